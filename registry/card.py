"""Agent cards as they arrive: what is refused, with every reason, and what is kept (contract 5.1). No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from registry import strict_json
from registry.agent import Agent, is_agent_id
from registry.errors import Invalid, Violation
from registry.url import Url, parse_url

MAX_CARD_BYTES = 256 * 1024
MAX_VIOLATIONS = 100

SERVER_SET = frozenset({"registered_by", "registered_at", "last_seen", "health"})
"""Members only the gateway writes; what a client sends under these names is dropped (contract 5.1, 5.2)."""

_UNUSABLE = re.compile(r"[\x00\ud800-\udfff]")
_MAY_HOLD_UNUSABLE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


def read_agent_id(document: bytes) -> str:
    """Reads ``{"agent_id": "..."}``, the body of a heartbeat or a deregistration (contract 5.2).

    Raises:
        TooLarge: over `MAX_CARD_BYTES`.
        Invalid: not such an object.
    """
    body = strict_json.read_object(document, MAX_CARD_BYTES)
    violations = list(_violations(body, {"agent_id": _agent_id}))
    if violations:
        raise Invalid("invalid request", violations)
    return str(body["agent_id"])


def read_card(
    document: bytes,
    *,
    owner: str | None,
    registered_at: str,
    check_url: Callable[[Url], str | None] = lambda url: None,
) -> Agent:
    """Makes an agent of a registered card (contract 5.1).

    Args:
        document: the card as JSON.
        owner: the principal that registers it, None without authentication.
        registered_at: timestamp to give it.
        check_url: says why the gateway would not connect there, or None; must not block.

    Raises:
        TooLarge: over `MAX_CARD_BYTES`.
        Invalid: names every violation (the first `MAX_VIOLATIONS` of very many).
    """
    card = strict_json.read_object(document, MAX_CARD_BYTES)
    checks = CARD | {"url": partial(_url, check_url)}
    violations = _at_most(MAX_VIOLATIONS, _violations(card, checks), _unusable_strings(document, card))
    if violations:
        raise Invalid("invalid agent card", violations)
    skills: list[dict[str, Any]] = card.get("skills") or []
    return Agent(
        agent_id=card["agent_id"],
        url=card["url"],
        location=parse_url(card["url"]),
        card=_kept(document),
        owner=owner,
        registered_at=registered_at,
        tags=frozenset(tag for skill in skills for tag in skill.get("tags") or ()),
        text="\n".join(_searchable(card, skills)).casefold(),
    )


def _kept(document: bytes) -> bytes:
    """The card with the bytes of every member's value as they came, in their order, without server-set ones.

    A null in place of an optional member means that it is absent: that is how Go writes an empty list.
    """
    members = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    kept = {
        name: bytes(raw)
        for name, raw in members.items()
        if name not in SERVER_SET and not (name in CARD and bytes(raw) == b"null")
    }
    kept.setdefault("protocolVersions", b'["1.0"]')
    return b"{" + b",".join(_name(name) + b":" + raw for name, raw in kept.items()) + b"}"


def _name(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False).encode()


def _searchable(card: dict[str, Any], skills: Iterable[dict[str, Any]]) -> Iterator[str]:
    yield from (card["agent_id"], card["name"], card.get("description") or "")
    for skill in skills:
        yield from (skill["id"], skill["name"], *(skill.get("tags") or ()))
        if isinstance(description := skill.get("description"), str):
            yield description


# -- the rules of a card, one per row of contract 5.1


def _violations(document: dict[str, Any], checks: dict[str, Check]) -> Iterator[Violation]:
    for name, check in checks.items():
        value = document.get(name)
        if value is not None:
            yield from check(name, value)
        elif name in REQUIRED:
            yield Violation(name, "is required")


def _at_most(limit: int, *sources: Iterator[Violation]) -> list[Violation]:
    everything = (violation for source in sources for violation in source)
    first = list(islice(everything, limit))
    more = sum(1 for _ in everything)
    return [*first, Violation("", f"and {more} more")] if more else first


def _agent_id(field: str, value: Any) -> Iterator[Violation]:
    if not isinstance(value, str):
        yield Violation(field, "must be a string")
    elif not is_agent_id(value):
        yield Violation(
            field, "must be 2 to 128 lower-case letters, digits and hyphens, with no hyphen at either end"
        )


def _text(field: str, value: Any, *, shortest: int = 0, longest: int) -> Iterator[Violation]:
    if not isinstance(value, str):
        yield Violation(field, "must be a string")
    elif not shortest <= len(value) <= longest:
        yield Violation(field, f"must be {shortest} to {longest} characters long, not {len(value)}")


def _url(check_url: Callable[[Url], str | None], field: str, value: Any) -> Iterator[Violation]:
    broken = list(_text(field, value, shortest=1, longest=2048))
    if broken:
        yield from broken
        return
    try:
        reason = check_url(parse_url(value))
    except ValueError as error:
        reason = str(error)
    if reason is not None:
        yield Violation(field, reason)


def _object(field: str, value: Any) -> Iterator[Violation]:
    if not isinstance(value, dict):
        yield Violation(field, "must be an object")


def _strings(field: str, value: Any) -> Iterator[Violation]:
    if not isinstance(value, list):
        yield Violation(field, "must be a list of strings")
        return
    for index, item in enumerate(value):
        if not isinstance(item, str):
            yield Violation(f"{field}[{index}]", "must be a string")


def _skills(field: str, value: Any) -> Iterator[Violation]:
    if not isinstance(value, list):
        yield Violation(field, "must be a list of objects")
        return
    for index, skill in enumerate(value):
        yield from _skill(f"{field}[{index}]", skill)


def _skill(field: str, skill: Any) -> Iterator[Violation]:
    if not isinstance(skill, dict):
        yield Violation(field, "must be an object")
        return
    for name in ("id", "name"):
        if skill.get(name) is None:
            yield Violation(f"{field}.{name}", "is required")
        elif not isinstance(skill[name], str):
            yield Violation(f"{field}.{name}", "must be a string")
    if skill.get("tags") is not None:
        yield from _strings(f"{field}.tags", skill["tags"])


def _unusable_strings(document: bytes, card: dict[str, Any]) -> Iterator[Violation]:
    """Strings that databases, metrics or the next JSON writer choke on; most documents cannot hold any."""
    if _MAY_HOLD_UNUSABLE.search(document):
        yield from _unusable("", card)


def _unusable(path: str, value: Any) -> Iterator[Violation]:
    if isinstance(value, str) and _UNUSABLE.search(value):
        yield Violation(path, "must not hold U+0000 or a lone surrogate")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unusable(f"{path}[{index}]", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            member = f"{path}.{strict_json.printable(key)}".removeprefix(".")
            yield from _unusable(member, key)
            yield from _unusable(member, item)


Check = Callable[[str, Any], Iterator[Violation]]

REQUIRED = frozenset({"agent_id", "name", "url"})
CARD: dict[str, Check] = {
    "agent_id": _agent_id,
    "name": partial(_text, shortest=1, longest=256),
    "description": partial(_text, longest=2048),
    "version": partial(_text, longest=64),
    "url": partial(_url, lambda url: None),
    "skills": _skills,
    "capabilities": _object,
    "metadata": _object,
    "defaultInputModes": _strings,
    "defaultOutputModes": _strings,
    "protocolVersions": _strings,
}
