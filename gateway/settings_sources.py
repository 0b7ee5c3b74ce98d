"""Where settings come from: a YAML file and environment variables, each read into a `Layer` (contract 4).

pydantic-settings' own readers pass over a missing file, duplicate keys and unknown names without a word and
do not tell where a value came from, so these are ours; it merges what they bring. Texts of problems name the
place and what is expected, never a value: it may be a secret.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, get_args, get_origin

import yaml

from gateway.settings_model import KUBEMQ_VARIABLES, SECTIONS

PREFIX = "VITALGATE_"
CONFIG_VARIABLE = "VITALGATE_CONFIG"
#: What the operator commands read (`gateway/operator/endpoint.py`); no settings, and no mistake beside them.
OPERATOR_VARIABLES = ("VITALGATE_URL", "VITALGATE_TOKEN", "VITALGATE_TOKEN_FILE")

Path = tuple[str | int, ...]
_LARGEST_FILE = 1024 * 1024  # bytes; a mistaken path to a device or a log must not fill the memory
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SERVICE_LINK = re.compile(
    r"[A-Z0-9_]+_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_LINK_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
_TAG = "tag:yaml.org,2002:"


@dataclass(slots=True)
class Layer:
    """The values of one source.

    Attributes:
        name: what to call the source where no line or variable is known.
        strict: values have types (YAML); otherwise they are text, to be read leniently.
        tree: section → field → value, as read and not yet judged.
        origins: where a value stands, as "FILE:LINE" or the name of a variable.
        problems: what could not be read at all.
    """

    name: str
    strict: bool
    tree: dict[str, Any] = field(default_factory=dict)
    origins: dict[Path, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def origin(self, path: Path) -> str:
        """The place of the value at `path`, or of the nearest value around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        return self.name


def file_layer(path: str, *, again: bool = False) -> Layer:
    """Reads a YAML file: one document, a mapping, each key once. Mistakes become `problems`.

    The second time it must be a regular file: who opens a pipe whose writer has gone waits for ever.
    """
    layer = Layer(path, strict=True)
    try:
        if again and not stat.S_ISREG(os.stat(path).st_mode):
            layer.problems.append(f"{path}: is no file that can be read again: restart")
            return layer
        with open(path, "rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        layer.problems.append(f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'not a file name'}")
        return layer
    if len(data) > _LARGEST_FILE:
        layer.problems.append(f"{path}: larger than {_LARGEST_FILE} bytes")
        return layer
    try:
        _read_yaml(data, layer)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else path
        layer.problems.append(f"{where}: not valid YAML: {_without_text(error.problem or error.context or '')}")
    except (yaml.YAMLError, UnicodeDecodeError):
        layer.problems.append(f"{path}: not valid YAML: must be UTF-8 text without control characters")
    except ValueError:
        layer.problems.append(f"{path}: not valid YAML: a date or number that does not exist (quote it)")
    except RecursionError:
        layer.problems.append(f"{path}: nested too deeply")
    return layer


#: What a YAML error quotes and is no secret: a punctuation mark, the name of a token.
_HARMLESS: Final = re.compile(r"'(?:[^\w\s'\"]|<[a-z ]+>)'")


def _without_text(problem: str) -> str:
    """Leave out what a YAML error quotes of the file: it may be a secret."""
    if problem.startswith("found character '\\t'"):
        return "a tab, where only spaces may indent"
    return re.sub(
        r"'[^']*'|\"[^\"]*\"",
        lambda quoted: quoted[0] if _HARMLESS.fullmatch(quoted[0]) else "...",
        problem,
    )


def _read_yaml(data: bytes, layer: Layer) -> None:
    loader = yaml.SafeLoader(data.decode("utf-8-sig"))
    try:
        root = loader.get_node() if loader.check_node() else None
        if root is None:
            return
        second = loader.get_node() if loader.check_node() else None
        if second is not None:
            line = second.start_mark.line + 1
            layer.problems.append(f"{layer.name}:{line}: a second document; the file must hold one")
        if isinstance(root, yaml.MappingNode) and root.tag == f"{_TAG}map":
            layer.problems.extend(_survey(root, (), layer, set()))
            layer.tree = loader.construct_document(root)
        elif root.tag != f"{_TAG}null":
            layer.problems.append(f"{layer.name}: must be a mapping of sections: {', '.join(SECTIONS)}")
    finally:
        loader.dispose()


def _survey(node: yaml.Node, path: Path, layer: Layer, visited: set[int]) -> Iterator[str]:
    """Notes the line of every value; yields keys that stand twice or are no text, and takes the latter out.

    Aliased nodes are visited once.
    """
    if id(node) in visited:
        return
    visited.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            layer.origins.setdefault((*path, index), f"{layer.name}:{item.start_mark.line + 1}")
            yield from _survey(item, (*path, index), layer, visited)
    elif isinstance(node, yaml.MappingNode):
        yield from _survey_keys(node, path, layer, visited)


def _survey_keys(node: yaml.MappingNode, path: Path, layer: Layer, visited: set[int]) -> Iterator[str]:
    merged = [pair for pair in node.value if pair[0].tag == f"{_TAG}merge"]
    named = [pair for pair in node.value if _is_text(pair[0])]
    for key, _ in node.value:
        if not _is_text(key) and key.tag != f"{_TAG}merge":
            around = f"{dotted(path)}: " if path else ""
            yield f"{layer.name}:{key.start_mark.line + 1}: {around}the key must be text (quote it)"
    node.value = merged + named
    seen: set[str] = set()
    for key, value in named:
        where = f"{layer.name}:{key.start_mark.line + 1}"
        if key.value in seen:
            yield f"{where}: {dotted((*path, key.value))}: stands twice"
        seen.add(key.value)
        layer.origins.setdefault((*path, key.value), where)
        yield from _survey(value, (*path, key.value), layer, visited)
    for _, value in merged:  # last: what is named here stands here
        yield from _survey(value, path, layer, visited)


def _is_text(key: yaml.Node) -> bool:
    return isinstance(key, yaml.ScalarNode) and key.tag == f"{_TAG}str"


def dotted(path: Path) -> str:
    """``a2a.forward_headers[1]``; names that are no plain words are left out."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part if _NAME.fullmatch(part) else '...'}"
    return text.removeprefix(".")


def kubemq_layer(environ: Mapping[str, str]) -> Layer:
    """The ten variables of KubeMQ; an empty one counts as not set."""
    return _variables_layer(environ, KUBEMQ_VARIABLES)


def vitalgate_layer(environ: Mapping[str, str]) -> Layer:
    """``VITALGATE_SECTION__FIELD`` variables; an empty one counts as not set."""
    return _variables_layer(environ, {variable(name): name for name in field_names()})


def field_names() -> Iterator[str]:
    """Every setting, as ``section.field``."""
    return (f"{section}.{name}" for section, model in SECTIONS.items() for name in model.model_fields)


def variable(name: str) -> str:
    """The variable of ``section.field``."""
    return PREFIX + name.replace(".", "__").upper()


def _variables_layer(environ: Mapping[str, str], names: Mapping[str, str]) -> Layer:
    layer = Layer("environment", strict=False)
    for name, target in names.items():
        text = environ.get(name, "").strip()
        if not text:
            continue
        section, key = target.split(".")
        layer.origins[section, key] = name
        try:
            layer.tree.setdefault(section, {})[key] = _from_text(text, section, key)
        except (ValueError, RecursionError):
            layer.problems.append(f"{name}: {target}: must be {_form(section, key)}")
    return layer


def _from_text(text: str, section: str, key: str) -> object:
    kind = _kind(section, key)
    if kind is dict or (kind is tuple and text.startswith("[")):
        return json.loads(text)
    if kind is tuple:
        return [item.strip() for item in text.split(",") if item.strip()]
    return text


def _form(section: str, key: str) -> str:
    return "a JSON object" if _kind(section, key) is dict else "a comma list or a JSON list"


def _kind(section: str, key: str) -> object:
    """Tell what a setting holds: dict, tuple, or something that is no container."""
    found: Any = SECTIONS[section].model_fields[key].annotation
    for part in get_args(found) if type(None) in get_args(found) else (found,):
        bare = get_args(part)[0] if get_origin(part) is Annotated else part
        if get_origin(bare) in (dict, tuple):
            return get_origin(bare)
    return None


def unknown_variables(environ: Mapping[str, str], named: set[str]) -> list[str]:
    """Names that start like ours and mean nothing; `named` are variables the settings refer to themselves.

    Kubernetes sets variables for every service, one called "vitalgate" included: those are nobody's mistake.
    """
    known = {CONFIG_VARIABLE, *OPERATOR_VARIABLES, *(variable(name) for name in field_names()), *named}
    ours = (name for name in environ if name.upper().startswith(PREFIX) and name not in known)
    return sorted(name for name in ours if not _is_service_link(name, environ[name]))


def _is_service_link(name: str, value: str) -> bool:
    if "__" in name:
        return False
    address = name.endswith("_PORT") and _LINK_ADDRESS.match(value) is not None
    return address or _SERVICE_LINK.fullmatch(name) is not None


def config_path(path: str | None, environ: Mapping[str, str]) -> str | None:
    """The file to read: the one asked for, else that of ``VITALGATE_CONFIG``."""
    return path if path is not None else environ.get(CONFIG_VARIABLE) or None
