"""YAML read strictly: one document, no aliases, no nulls, no key twice, no clever scalars (health contract 5).

Every mistake is recorded with its path, and never with a value: configuration files may hold secrets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?[0-9]+\.[0-9]*([eE][-+]?[0-9]{1,3})?")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_UNSAFE = re.compile(r"[^ -~]")


@dataclass(frozen=True, slots=True)
class Mistake:
    """Where in the document, and what is wrong there."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


class ConfigError(Exception):
    """The file cannot be used; `mistakes` holds every one that was found."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        super().__init__("; ".join(map(str, mistakes)))
        self.mistakes = mistakes


class Invalid:
    """Stands for a value about which a mistake was already recorded."""


INVALID = Invalid()


class Odd:
    """A scalar that YAML takes for something other than text, a plain number or a truth value."""


class _Loader(yaml.SafeLoader):
    """Leaves a marker where an alias stands, instead of following it."""

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.get_event()  # type: ignore[no-untyped-call]
            return yaml.ScalarNode("!alias", "", event.start_mark, event.end_mark)
        return super().compose_node(parent, index)


def load(text: str) -> tuple[Any, list[Mistake]]:
    """The document as plain values, with the mistakes of its form; raises `ConfigError` if it is no YAML."""
    try:
        documents = list(yaml.compose_all(text, Loader=_Loader))
        if len(documents) > 1:
            raise ConfigError([Mistake("", "more than one YAML document")])
        reader = _Plain()
        value = reader.plain(documents[0], "") if documents else {}
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError([Mistake(where, "not valid YAML")]) from error
    except yaml.YAMLError as error:
        raise ConfigError([Mistake("", "not valid YAML: a character that YAML does not allow")]) from error
    except RecursionError as error:
        raise ConfigError([Mistake("", "nested too deeply")]) from error
    return value, reader.mistakes


class _Plain:
    def __init__(self) -> None:
        self.mistakes: list[Mistake] = []

    def plain(self, node: yaml.Node, path: str) -> Any:
        if node.tag == "!alias":
            return self._fail(path, "aliases are not allowed")
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.plain(item, f"{path}[{at}]") for at, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        return self._fail(path, "tags are not allowed")

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != f"{_TAG}str":
                self._fail(path, "keys must be text")
                continue
            key = key_node.value
            below = join(path, key)
            if key in values:
                self._fail(below, "given twice")
            values[key] = self.plain(value_node, below)
        return values

    def _scalar(self, node: yaml.ScalarNode, path: str) -> Any:
        kind, text = node.tag.removeprefix(_TAG), node.value
        if kind == "null":
            return self._fail(path, "null is not allowed")
        if kind == "str":
            return self._text(text, path)
        if kind == "bool":
            return text.lower() == "true" if text.lower() in {"true", "false"} else Odd()
        if kind == "int" and _INTEGER.fullmatch(text):
            return int(text)
        if kind == "float" and _FLOAT.fullmatch(text):
            return float(text)
        return Odd() if kind in {"int", "float", "timestamp"} else self._fail(path, "tags are not allowed")

    def _text(self, text: str, path: str) -> Any:
        """JSON writes what lies beyond U+FFFF as two escapes, which YAML leaves apart; half a pair is no text."""
        if _SURROGATE.search(text) is None:
            return text
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            return self._fail(path, "not valid text")

    def _fail(self, path: str, text: str) -> Invalid:
        self.mistakes.append(Mistake(path, text))
        return INVALID


def join(path: str, key: str) -> str:
    """The path of a member; keys are cut and made printable, as they come from the file."""
    shown = _UNSAFE.sub("?", key[:64])
    return f"{path}.{shown}" if path else shown
