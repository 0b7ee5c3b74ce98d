"""The reference pages, written from the program itself: they cannot say anything else than it does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import observed

from gateway.cli import cli
from gateway.faults import FAULTS
from gateway.remedies import REMEDIES
from gateway.settings import Settings
from gateway.settings_model import KUBEMQ_VARIABLES, RULES, SECTIONS
from gateway.settings_sources import field_names, variable

DOCS = Path(__file__).resolve().parents[1]
HEAD = "<!-- Written by docs/site/reference.py. -->\n\n"


def pages() -> Mapping[str, str]:
    """Every page, by its name."""
    openapi, metrics = observed.gateway()
    return {
        "settings": HEAD + settings(),
        "errors": HEAD + errors(),
        "metrics": HEAD + metrics_page(metrics),
        "rest": HEAD + rest(openapi),
        "commands": HEAD + commands(),
    }


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"


def _table(*names: str) -> str:
    return _row(*names) + "|" + "---|" * len(names) + "\n"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


# --- Settings ---


def settings() -> str:
    """Every setting: what it takes and its default from the code, its meaning from configuration.md."""
    meanings, schema = _meanings(), Settings.model_json_schema()
    kubemq = {target: name for name, target in KUBEMQ_VARIABLES.items()}
    text = "# Settings, from the code\n\nHow they are read: [configuration](../configuration.md).\n"
    for section in SECTIONS:
        text += f"\n## `{section}`\n"
        fields = _resolved(schema["properties"][section], schema)["properties"]
        for name in (name for name in field_names() if name.startswith(f"{section}.")):
            shape = _resolved(fields[name.partition(".")[2]], schema)
            variables = " or ".join(f"`{it}`" for it in (variable(name), kubemq.get(name)) if it)
            text += f"\n### `{name}`\n\n{meanings[name]}\n\n"
            text += f"Default {_default(name)}. Takes: {_takes(shape, schema)}. Variable {variables}.\n"
    text += "\n## Between settings\n\n" + _table("setting", "rule")
    for rule in RULES:
        text += _row(_code(rule.fields[0]), rule.expected)
    return text


def _meanings() -> dict[str, str]:
    page = (DOCS / "configuration.md").read_text()
    found: dict[str, str] = {}
    for section, table in re.findall(r"^### `(\w+)`.*\n\n((?:\|.*\n)+)", page, re.MULTILINE):
        for line in table.splitlines()[2:]:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            found[f"{section}.{cells[0].strip('`')}"] = cells[-1].replace("](", "](../")
    return found


def _default(name: str) -> str:
    section, field = name.split(".")
    if name == "registry.url":
        return "a file in the state directory"
    return _code(json.dumps(getattr(getattr(Settings(), section), field)))


def _resolved(shape: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in shape:
        return dict(schema["$defs"][shape["$ref"].rpartition("/")[2]])
    if "allOf" in shape:
        return _resolved(shape["allOf"][0], schema)
    return shape


_BOUNDS = {
    "exclusiveMinimum": "above {}",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} long",
    "maxLength": "at most {} long",
}
_KINDS = {
    "boolean": "true or false",
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "null": "null",
}


def _takes(shape: dict[str, Any], schema: dict[str, Any]) -> str:
    """What a value may be, in words."""
    shape = _resolved(shape, schema)
    if "enum" in shape:
        return ", ".join(_code(str(one)) for one in shape["enum"])
    if "const" in shape:
        return _code(str(shape["const"]))
    if "anyOf" in shape:
        return " or ".join(dict.fromkeys(_takes(one, schema) for one in shape["anyOf"]))
    if shape.get("type") == "array":
        return f"list of: {_takes(shape['items'], schema)}"
    if shape.get("type") == "object":
        return "mapping"
    if shape.get("type") == "null":
        return "`null`"
    bounds = [form.format(shape[name]) for name, form in _BOUNDS.items() if name in shape]
    return ", ".join([_KINDS.get(shape.get("type", ""), "see there"), *bounds])


# --- Errors ---


def errors() -> str:
    """Every error that the gateway makes, with its cause and remedy."""
    text = (
        "# Errors\n\nThe name stands in the header `X-Gateway-Error` and in `error.data`; `vitalgate explain "
        "NAME` says the same as this page. What the members mean: [API](../api.md#errors).\n"
    )
    for reason, fault in FAULTS.items():
        remedy = REMEDIES[reason]
        text += f"\n## `{reason}`\n\n"
        text += f"`{fault.message.format('…')}`\n\n"
        text += f"**Cause.** {remedy.cause}\n\n**What to do** ({remedy.acts}). {remedy.action}\n\n"
        text += _table("code", "in the A2A dialect", "HTTP", "category", "executed", "retry")
        statuses = dict.fromkeys((str(fault.status(False)), str(fault.status(True))))
        text += _row(
            str(fault.code), str(fault.a2a_code), ", ".join(statuses), fault.category,
            str(fault.executed).lower(), fault.retry,
        )  # fmt: skip
    return text


# --- Metrics ---


def metrics_page(page: str) -> str:
    """Every metric of a running gateway; labels from api.md, which is held to the code by a test."""
    api = (DOCS / "api.md").read_text()
    labels = dict(re.findall(r"^\| `(\w+)` \| \w+ \| ?([^|]*?) ?\|", api, re.MULTILINE))
    helps = dict(re.findall(r"^# HELP (\w+) (.*)$", page, re.MULTILINE))
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", page, re.MULTILINE))
    text = (
        "# Metrics\n\n`GET /metrics` on the metrics listener. `kubemq_a2a` is `metrics.namespace`. Alerts and a "
        "dashboard made of them: [observe it](../guides/observe.md).\n\n"
    )
    text += _table("metric", "type", "labels", "what it says")
    for name, help_text in helps.items():
        if not name.endswith("_created"):
            text += _row(_code(name), kinds[name], labels.get(name, ""), help_text)
    return text


# --- REST ---


def rest(document: dict[str, Any]) -> str:
    """Every route of the OpenAPI document of a running gateway."""
    about = document["info"]["description"]
    text = f"# REST\n\n{about} The document itself: `GET /schema`. With examples: [API](../api.md).\n"
    for path, item in document["paths"].items():
        for method, operation in item.items():
            text += f"\n## `{method.upper()} {path}`\n\n{operation.get('summary', '')}.\n\n".replace("..", ".")
            if described := operation.get("description"):
                text += f"{described}\n\n"
            text += _parameters(operation) + _answers(operation)
    return text


def _parameters(operation: dict[str, Any]) -> str:
    rows = [
        _row(_code(it["name"]), it["in"], "yes" if it.get("required") else "no", it.get("description", ""))
        for it in operation.get("parameters", ())
    ]
    for content in operation.get("requestBody", {}).get("content", {}).values():
        schema = content.get("schema", {})
        rows += [
            _row(_code(name), "body", "yes" if name in schema.get("required", ()) else "no", it.get("type", ""))
            for name, it in schema.get("properties", {}).items()
        ]
    return _table("name", "in", "required", "what it is") + "".join(rows) + "\n" if rows else ""


def _answers(operation: dict[str, Any]) -> str:
    answers = sorted(operation.get("responses", {}).items())
    return _table("status", "when") + "".join(_row(status, it.get("description", "")) for status, it in answers)


# --- Commands ---


def commands() -> str:
    """Every command, its arguments and options."""
    text = "# Commands\n\nThe same as `vitalgate COMMAND --help`.\n"
    for words, command in _walk("vitalgate", cli):
        text += f"\n## `{words}`\n\n{_prose(command)}\n"
        if not isinstance(command, click.Group):
            text += _options(words, command)
    return text


def _walk(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            if not child.hidden:
                yield from _walk(f"{words} {name}", child)


def _prose(command: click.Command) -> str:
    """The help text; what stands after a backspace is kept as it is."""
    text = ""
    for paragraph in re.split(r"\n\s*\n", re.sub(r"^ {4}", "", command.help or "", flags=re.MULTILINE).strip()):
        if paragraph.startswith("\b"):
            head, _, rest = paragraph.removeprefix("\b\n").partition("\n")
            text += f"{head}\n\n```text\n{rest}\n```\n\n" if rest else f"{head}\n\n"
        else:
            text += f"{paragraph}\n\n"
    if command.epilog:
        text += f"{command.epilog}\n\n"
    return text.rstrip("\n") + "\n"


def _options(words: str, command: click.Command) -> str:
    context = click.Context(command, info_name=words)
    rows = []
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option):
            rows.append(
                _row(
                    ", ".join(_code(it) for it in parameter.opts),
                    _metavar(parameter, context),
                    parameter.help or "",
                )
            )
        else:
            rows.append(_row(_code(parameter.make_metavar(context)), "argument", ""))
    return "\n" + _table("option", "takes", "what it does") + "".join(rows)


def _metavar(option: click.Option, context: click.Context) -> str:
    return "" if option.is_flag else _code(option.make_metavar(context))
