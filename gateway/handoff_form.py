"""Pure: reading what the handoff inspector asks, strictly, every mistake named (health contract 8)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from gateway.handoff_examples import FIXTURES, PEER_DELAY_MS
from healthcheck.card import V10, VERSIONS
from healthcheck.rpc import MAX_TEXT
from healthcheck.url import Origin, UrlError, parse_url
from registry import strict_json
from registry.card import MAX_VIOLATIONS
from registry.errors import Invalid, Violation

#: Bytes: the request as a whole, and the card in it, which is as large as one that is registered.
MOST_BYTES: Final = 1 << 20
_MOST_CARD: Final = 256 * 1024
_MOST_SKILL: Final = 256
MOST_MS: Final = 60_000
_AGENT_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,126}[a-z0-9]").fullmatch

#: The command's words for the scope, and one for no credential at all.
CREDENTIALS: Final = ("bound", "broad", "missing")
POLICIES: Final = ("allowlist", "advertised")


@dataclass(frozen=True, slots=True)
class Fixture:
    """An answer that no peer gives: which one, and after how many milliseconds."""

    name: str
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Sending:
    """The answer of a registered agent, to which the task is really sent."""

    agent_id: str


@dataclass(frozen=True, slots=True)
class Form:
    """What is asked. `answer` is None for a dry run."""

    card: bytes
    destination: Origin
    skill: str
    policy: str
    credential: str
    public: bool
    version: str
    text: str
    deadline_ms: int
    answer: Fixture | Sending | None


class _Wrong(ValueError):
    """What is wrong with a value; its text follows the field's name."""


def read_form(body: bytes) -> Form:
    """Read a request.

    Raises:
        TooLarge: the body is over `MOST_BYTES`.
        Invalid: every violation is named.
    """
    document = strict_json.read_object(body, MOST_BYTES)
    violations: list[Violation] = []
    given = _members(document, _FIELDS, "", violations)
    if violations:
        raise Invalid("invalid handoff", violations)
    return Form(**given)


def _members(
    document: Mapping[str, Any], fields: Mapping[str, _Field], within: str, violations: list[Violation]
) -> dict[str, Any]:
    """Read the members that a table names; by the names of `Form`."""
    for name in islice((name for name in document if name not in fields), MAX_VIOLATIONS):
        violations.append(Violation(within + strict_json.printable(name), "is not known"))
    given: dict[str, Any] = {}
    for name, (target, default, read) in fields.items():
        if name not in document:
            if default is _REQUIRED:
                violations.append(Violation(within + name, "is required"))
            given[target] = default
            continue
        try:
            given[target] = read(document[name])
        except _Wrong as wrong:
            violations.append(Violation(within + name, str(wrong)))
        except Invalid as invalid:
            violations += invalid.violations
    return given


# -- kinds of values


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Wrong("must be a text")
    return value


def _card(value: Any) -> bytes:
    """The card's bytes as they would stand in a file; halves of a pair are kept, and are no UTF-8."""
    card = _text(value).encode("utf-8", "surrogatepass")
    if len(card) > _MOST_CARD:
        raise _Wrong(f"must be at most {_MOST_CARD} bytes")
    return card


def _origin(value: Any) -> Origin:
    try:
        url = parse_url(_text(value))
    except UrlError:
        raise _Wrong("must be an origin such as https://agent.example") from None
    if url.target != "/":
        raise _Wrong("must be an origin, without a path")
    return url.origin


def _skill(value: Any) -> str:
    text = _text(value)
    if not 0 < len(text) <= _MOST_SKILL:
        raise _Wrong(f"must have 1 to {_MOST_SKILL} characters")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise _Wrong("must be text that UTF-8 can hold")
    return text


def _task_text(value: Any) -> str:
    """Whether it may be sent is for the fifth gate to say: here only what is far too long is refused."""
    text = _text(value)
    if len(text) > 2 * MAX_TEXT:
        raise _Wrong(f"must have at most {2 * MAX_TEXT} characters")
    return text


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Wrong("must be true or false")
    return value


def _choice(words: tuple[str, ...]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise _Wrong(f"must be one of {', '.join(words)}")
        return value

    return read


def _milliseconds(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        whole = isinstance(value, float) and least <= value <= MOST_MS and value.is_integer()
        if not whole:
            raise _Wrong(f"must be a whole number of milliseconds, {least} to {MOST_MS}")
        return int(value)

    return read


def _agent_id(value: Any) -> str:
    if not isinstance(value, str) or not _AGENT_ID(value):
        raise _Wrong("must be the id of a registered agent")
    return value


def _answer(value: Any) -> Fixture | Sending | None:
    if value is None:
        return None
    if not isinstance(value, dict) or ("fixture" in value) == ("agent_id" in value):
        raise _Wrong("must be null, or an object with either fixture or agent_id")
    violations: list[Violation] = []
    fields = _FIXTURE if "fixture" in value else _SENDING
    given = _members(value, fields, "answer.", violations)
    if violations:
        raise Invalid("", violations)
    return Fixture(**given) if "fixture" in value else Sending(**given)


_REQUIRED: Final = object()
_Field = tuple[str, Any, Callable[[Any], Any]]  # the name in `Form`, the default, the reader

_FIELDS: Final[Mapping[str, _Field]] = {
    "card": ("card", _REQUIRED, _card),
    "destination": ("destination", _REQUIRED, _origin),
    "skill": ("skill", _REQUIRED, _skill),
    "policy": ("policy", "allowlist", _choice(POLICIES)),
    "credential": ("credential", "bound", _choice(CREDENTIALS)),
    "public": ("public", False, _flag),
    "protocol_version": ("version", V10, _choice(VERSIONS)),
    "text": ("text", "hello", _task_text),
    "deadline_ms": ("deadline_ms", 30_000, _milliseconds(1)),
    "answer": ("answer", None, _answer),
}
_FIXTURE: Final[Mapping[str, _Field]] = {
    "fixture": ("name", _REQUIRED, _choice(tuple(FIXTURES))),
    "delay_ms": ("delay_ms", PEER_DELAY_MS, _milliseconds(0)),
}
_SENDING: Final[Mapping[str, _Field]] = {"agent_id": ("agent_id", _REQUIRED, _agent_id)}
