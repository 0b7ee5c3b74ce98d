"""Small rules for the values of a configuration file; each one reads, and each has its JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from healthcheck.strict_yaml import INVALID, Invalid, Mistake, join

Schema = dict[str, Any]


class Reader:
    """Collects the mistakes."""

    def __init__(self) -> None:
        self.mistakes: list[Mistake] = []

    def fail(self, path: str, text: str) -> Invalid:
        """Record a mistake."""
        self.mistakes.append(Mistake(path, text))
        return INVALID


@dataclass(frozen=True, slots=True)
class Rule:
    """`read` gives the value or INVALID, with the mistake recorded; `schema` says the same to machines."""

    schema: Schema
    read: Callable[[Reader, Any, str], Any]


def _value(schema: Schema, accepts: Callable[[Any], bool], expected: str) -> Rule:
    def read(reader: Reader, value: Any, path: str) -> Any:
        if isinstance(value, Invalid) or accepts(value):
            return value
        return reader.fail(path, f"expected {expected}")

    return Rule(schema, read)


def text(most: int, *, expected: str = "") -> Rule:
    """Text that is not blank, of at most so many characters."""
    return _value(
        {"type": "string", "pattern": r"\S", "maxLength": most},
        lambda value: isinstance(value, str) and bool(value.strip()) and len(value) <= most,
        expected or f"text of 1 to {most} characters, not blank",
    )


def utf8(most: int) -> Rule:
    """Text that is not blank, of at most so many bytes in UTF-8."""
    return _value(
        {"type": "string", "pattern": r"\S", "maxLength": most},
        lambda value: isinstance(value, str) and bool(value.strip()) and len(value.encode()) <= most,
        f"text of 1 to {most} bytes, not blank",
    )


def pattern(regex: str, expected: str) -> Rule:
    """Text that matches as a whole."""
    compiled = re.compile(regex)
    return _value(
        {"type": "string", "pattern": f"^({regex})$"},
        lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None,
        expected,
    )


def integer(least: int, most: int) -> Rule:
    """A whole number in a range."""
    return _value(
        {"type": "integer", "minimum": least, "maximum": most},
        lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most,
        f"an integer from {least} to {most}",
    )


def number(least: float) -> Rule:
    """Any number from a bound on."""
    return _value(
        {"type": "number", "minimum": least},
        lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value >= least,
        f"a number, at least {least:g}",
    )


def boolean() -> Rule:
    """True or false."""
    return _value({"type": "boolean"}, lambda value: isinstance(value, bool), "true or false")


def constant(wanted: bool | str, expected: str) -> Rule:
    """Exactly this value."""
    return _value({"const": wanted}, lambda value: isinstance(value, type(wanted)) and value == wanted, expected)


def choice(*words: str) -> Rule:
    """One of these words, as text (a bare 1.0 is a number)."""
    shown = ", ".join(f'"{word}"' for word in words)
    return _value(
        {"type": "string", "enum": list(words)},
        lambda value: isinstance(value, str) and value in words,
        f"one of {shown}, as text" if any(word[0].isdigit() for word in words) else f"one of {shown}",
    )


def listing(item: Rule, *, least: int = 0, unique: bool = True) -> Rule:
    """A list, without repetitions unless told otherwise."""

    def read(reader: Reader, value: Any, path: str) -> Any:
        if isinstance(value, Invalid):
            return value
        if not isinstance(value, list):
            return reader.fail(path, "expected a list")
        if len(value) < least:
            return reader.fail(path, f"expected at least {least}")
        items = [item.read(reader, one, f"{path}[{at}]") for at, one in enumerate(value)]
        seen: set[str | int] = set()
        for at, one in enumerate(items):
            if unique and isinstance(one, str | int):
                if one in seen:
                    reader.fail(f"{path}[{at}]", "given twice")
                seen.add(one)
        return items

    schema: Schema = {"type": "array", "items": item.schema}
    if least:
        schema["minItems"] = least
    if unique:
        schema["uniqueItems"] = True
    return Rule(schema, read)


def either(first: Rule, second: Rule, choose: Callable[[Any], bool]) -> Rule:
    """The second rule for values for which `choose` says so, else the first."""

    def read(reader: Reader, value: Any, path: str) -> Any:
        return (second if choose(value) else first).read(reader, value, path)

    return Rule({"anyOf": [first.schema, second.schema]}, read)


def mapping(members: Mapping[str, Rule], *, required: tuple[str, ...] = ()) -> Rule:
    """Named members, each with its rule; anything else is unknown."""

    def read(reader: Reader, value: Any, path: str) -> Any:
        if isinstance(value, Invalid):
            return value
        if not isinstance(value, dict):
            return reader.fail(path, "expected a mapping")
        for name in required:
            if name not in value:
                reader.fail(join(path, name), "missing")
        for name in value:
            if name not in members:
                reader.fail(join(path, name), "unknown key")
        return {
            name: members[name].read(reader, one, join(path, name))
            for name, one in value.items()
            if name in members
        }

    schema: Schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: rule.schema for name, rule in members.items()},
    }
    if required:
        schema["required"] = list(required)
    return Rule(schema, read)


def table(name: Rule, item: Rule) -> Rule:
    """Members with names of the user's own, all of one kind."""

    def read(reader: Reader, value: Any, path: str) -> Any:
        if isinstance(value, Invalid):
            return value
        if not isinstance(value, dict):
            return reader.fail(path, "expected a mapping")
        return {
            key: item.read(reader, one, join(path, key))
            for key, one in value.items()
            if not isinstance(name.read(reader, key, join(path, key)), Invalid)
        }

    return Rule({"type": "object", "propertyNames": name.schema, "additionalProperties": item.schema}, read)
