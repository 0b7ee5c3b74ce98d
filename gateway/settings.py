"""Reading the settings (contract 4): defaults, YAML file, KubeMQ variables, ``VITALGATE_*``, command line.

Later ones win. Every source is judged by itself, so that a mistake is named even where a later source covers
it, and all mistakes are named at once. Texts never hold a value.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from gateway.errors import StartError
from gateway.settings_model import (
    RULES,
    SECTIONS,
    A2ASettings,
    AuthSettings,
    Credential,
    HealthSettings,
    LimitsSettings,
    LogSettings,
    MetricsSettings,
    RegistrySettings,
    ServerSettings,
    Settings,
    UpstreamSettings,
    default_store_url,
)
from gateway.settings_sources import (
    Layer,
    Path,
    config_path,
    dotted,
    field_names,
    file_layer,
    kubemq_layer,
    unknown_variables,
    variable,
    vitalgate_layer,
)
from registry.redis_url import masked

__all__ = [
    "A2ASettings",
    "AuthSettings",
    "Credential",
    "HealthSettings",
    "LimitsSettings",
    "Loaded",
    "LogSettings",
    "MetricsSettings",
    "RegistrySettings",
    "ServerSettings",
    "Settings",
    "SettingsError",
    "UpstreamSettings",
    "load",
    "shown",
]

DEFAULT = "default"

_EXPECTED = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "string_type": "must be text (quote it)",
    "tuple_type": "must be a list",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "invalid_key": "the key must be text (quote it)",
    "missing": "is missing",
}
"""What to say for pydantic's kinds of error; its own text serves for the others."""


class SettingsError(StartError):
    """The configuration cannot be used.

    Attributes:
        problems: every mistake, one line each: place, setting, what is expected. No value is repeated.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings and where each value came from: "default", "FILE:LINE", a variable or an option."""

    settings: Settings
    origins: Mapping[str, str]


def load(
    path: str | None,
    environ: Mapping[str, str],
    options: Mapping[str, object] | None = None,
    *,
    again: bool = False,
) -> Loaded:
    """Reads, judges and merges all sources.

    Args:
        path: the YAML file; None: the one that ``VITALGATE_CONFIG`` names, if any.
        environ: the environment variables.
        options: values from the command line, such as ``{"server.port": 0}``.
        again: in a process that has read them before; what can be read only once, such as a pipe, is a mistake.

    Raises:
        SettingsError: with every mistake in every source.
    """
    file = config_path(path, environ)
    layers = [file_layer(file, again=again)] if file is not None else []
    layers += [kubemq_layer(environ), vitalgate_layer(environ), _options_layer(options or {})]
    problems = [problem for layer in layers for problem in layer.problems]
    wrong: set[str] = set()
    for layer in layers:
        problems += _judge(layer, wrong)
    settings = _merge(layers, environ)
    origins = _origins(layers)
    problems += _broken_rules(settings, origins, wrong)
    problems += _unknown_variables(settings, environ)
    if problems:
        raise SettingsError(problems)
    return Loaded(settings, {name: origins.get(name, DEFAULT) for name in field_names()} | origins)


def _options_layer(options: Mapping[str, object]) -> Layer:
    layer = Layer("command line", strict=True)
    for name, value in options.items():
        section, key = name.split(".")
        layer.tree.setdefault(section, {})[key] = value
        layer.origins[section, key] = f"--{key}"
    return layer


def _judge(layer: Layer, wrong: set[str]) -> Iterator[str]:
    """Yields a layer's mistakes, notes their settings in `wrong`, and leaves the right values in its tree."""
    clean: dict[str, Any] = {}
    for section, values in layer.tree.items():
        if section not in SECTIONS:
            yield _describe(layer, (section,), _unknown((section,)))
        elif values is not None:
            for path, text in _mistakes(layer, section, values):
                wrong.add(dotted(path[:2]))
                yield _describe(layer, path, text)
            clean[section] = _right_values(layer, section, values, wrong)
    layer.tree = clean


def _mistakes(layer: Layer, section: str, values: object) -> Iterator[tuple[Path, str]]:
    try:
        SECTIONS[section].model_validate(values, strict=layer.strict)
    except ValidationError as error:
        for detail in error.errors(include_input=False, include_url=False):
            path = (section, *(part for part in detail["loc"] if part != "[key]"))
            yield path, _unknown(path) if detail["type"] == "extra_forbidden" else _expectation(detail)


def _expectation(detail: ErrorDetails) -> str:
    text = _EXPECTED.get(detail["type"], detail["msg"])
    return re.sub(r"^(Input|String|Value) should", "must", text)


def _right_values(layer: Layer, section: str, values: object, wrong: set[str]) -> dict[str, Any]:
    if not isinstance(values, dict):
        return {}
    fields = SECTIONS[section].model_fields
    right = {key: values[key] for key in fields if key in values and dotted((section, key)) not in wrong}
    return (
        SECTIONS[section].model_validate(right, strict=layer.strict).model_dump(exclude_unset=True, by_alias=True)
    )


def _describe(layer: Layer, path: Path, text: str) -> str:
    return f"{layer.origin(path)}: {dotted(path)}: {text}"


def _unknown(path: Path) -> str:
    name = dotted(path)
    around = path[:-1]
    siblings = (
        list(SECTIONS)
        if not around
        else [known for known in field_names() if known.startswith(f"{dotted(around)}.")]
    )
    return "unknown setting" + _suggestion(name, siblings)


def _suggestion(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
    return f"; did you mean {close[0]}?" if close else ""


class _LayerSource(PydanticBaseSettingsSource):
    """A judged layer, as a source of pydantic-settings."""

    def __init__(self, settings_cls: type[BaseSettings], tree: dict[str, Any]) -> None:
        super().__init__(settings_cls)
        self._tree = tree

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self._tree.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return self._tree


def _merge(layers: list[Layer], environ: Mapping[str, str]) -> Settings:
    defaults = {"registry": {"url": default_store_url(environ)}}
    trees = [*(layer.tree for layer in reversed(layers)), defaults]

    class Merged(Settings):
        @classmethod
        def settings_customise_sources(
            cls, settings_cls: type[BaseSettings], *_: Any, **__: Any
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return tuple(_LayerSource(settings_cls, tree) for tree in trees)

    return Settings(**dict(Merged()))


def _origins(layers: list[Layer]) -> dict[str, str]:
    """Where each value of the merged settings stands. Mappings merge: each entry has a place of its own."""
    found: dict[str, str] = {}
    for layer in layers:
        for section, values in layer.tree.items():
            for key, value in values.items():
                inner: list[Path] = [(name,) for name in value] if isinstance(value, dict) else [()]
                for rest in inner:
                    path = (section, key, *rest)
                    found[dotted(path)] = layer.origin(path)
    return found


def _broken_rules(settings: Settings, origins: Mapping[str, str], wrong: set[str]) -> Iterator[str]:
    for rule in RULES:
        if wrong.isdisjoint(rule.fields) and not rule.holds(settings):
            place = next((origins[name] for name in rule.fields if name in origins), DEFAULT)
            yield f"{place}: {rule.fields[0]}: {rule.expected}"


def _unknown_variables(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    named = {credential.bearer_env for credential in settings.upstream.credentials.values()}
    named |= {settings.auth.secret_env} if settings.auth.secret_env else set()
    known = [variable(name) for name in field_names()]
    for name in unknown_variables(environ, named):
        yield f"{name}: unknown variable" + _suggestion(name.upper(), known)


def shown(settings: Settings) -> dict[str, dict[str, Any]]:
    """The settings as plain data for people to see, secrets masked."""
    data: dict[str, dict[str, Any]] = settings.model_dump(by_alias=True)
    data["registry"]["url"] = masked(data["registry"]["url"])
    return data
