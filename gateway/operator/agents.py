"""`vitalgate agents ...`, but for `watch`: what registry and health engine say (contract 5, health contract 7)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from gateway.operator import output
from gateway.operator.client import Answer, Client, Params, run
from gateway.operator.endpoint import Endpoint
from gateway.operator.failures import USAGE, Failed
from gateway.operator.output import Column

_LARGEST_CARD: Final = 1024 * 1024
_BEYOND_REASON: Final = 1e15
_AGENTS: Final = (
    Column("AGENT", whole=True),
    Column("HEALTH", whole=True),
    Column("ROUTING", whole=True),
    Column("SEEN", whole=True),
    Column("NAME"),
    Column("SKILLS"),
    Column("URL"),
)
_CHECKS: Final = (
    Column("CHECK", whole=True),
    Column("STATUS", whole=True),
    Column("MS", whole=True),
    Column("FINDING"),
)
_HISTORY: Final = (
    Column("AT", whole=True),
    Column("STATUS", whole=True),
    Column("ROUTING", whole=True),
    Column("MS", whole=True),
    Column("CODE"),
)

Document = Mapping[str, Any]


def ask(endpoint: Endpoint, seconds: float, method: str, path: str, **more: Any) -> Answer:
    """Ask one REST route; give its success."""

    async def main() -> Answer:
        async with Client(endpoint) as client:
            return await client.ask(method, path, **more)

    return run(main(), seconds, endpoint.url)


def show_list(endpoint: Endpoint, seconds: float, params: Params, as_json: bool) -> None:
    """List agents."""
    answer = ask(endpoint, seconds, "GET", "agents", params=params)
    if as_json:
        output.write_document(answer.body)
        return
    found = members(answer.document())
    if found:
        output.write_table(_AGENTS, [_line(one) for one in found])
    elif params:
        output.say("no agent is like that")
    else:
        output.say("no agent is registered: vitalgate agents register FILE")


def _line(one: Document) -> Sequence[object]:
    health = mapping(one.get("health"))
    skills = [skill.get("id") for skill in members(one.get("skills"))]
    ids = [one.get("agent_id"), health.get("status"), health.get("routing")]
    return [*ids, age(one.get("last_seen")), one.get("name"), skills, one.get("url")]


def show_agent(endpoint: Endpoint, seconds: float, agent_id: str, as_json: bool) -> None:
    """Show one agent."""
    answer = ask(endpoint, seconds, "GET", f"agents/{agent_id}", about=agent_id)
    if as_json:
        output.write_document(answer.body)
        return
    one = mapping(answer.document())
    health = mapping(one.get("health"))
    output.write_pairs(
        [
            ("agent", one.get("agent_id")),
            ("name", one.get("name")),
            ("description", one.get("description")),
            ("version", one.get("version")),
            ("url", one.get("url")),
            ("health", health.get("status")),
            ("routing", health.get("routing")),
            ("checked", _moment(health.get("checked_at"))),
            ("owner", one.get("registered_by")),
            ("registered", _moment(one.get("registered_at"))),
            ("seen", _moment(one.get("last_seen"))),
            ("protocol", one.get("protocolVersion")),
            ("interfaces", [_interface(entry) for entry in members(one.get("supportedInterfaces"))]),
            ("capabilities", [name for name, value in mapping(one.get("capabilities")).items() if value is True]),
            *(("skill", _skill(skill)) for skill in members(one.get("skills"))),
        ]
    )


def _interface(entry: Document) -> str:
    return f"{entry.get('protocolBinding', '')} {entry.get('protocolVersion', '')}".strip()


def _skill(skill: Document) -> str:
    tags = skill.get("tags")
    named = f"{skill.get('id')}: {skill.get('name')}"
    return f"{named} [{', '.join(map(str, tags))}]" if isinstance(tags, list) and tags else named


def register(
    endpoint: Endpoint, seconds: float, file: str, agent_id: str | None, at: str | None, as_json: bool
) -> None:
    """Register the card in a file, or replace the one that is there."""
    body = _read(file)
    if agent_id is not None or at is not None:
        body = _changed(file, body, agent_id, at)
    answer = ask(endpoint, seconds, "POST", "agents/register", body=body)
    if as_json:
        output.write_document(answer.body)
        return
    one = mapping(answer.document())
    owner = f", owned by {one['registered_by']}" if one.get("registered_by") else ""
    output.write(output.lines_of(f"registered {one.get('agent_id')} at {one.get('url')}{owner}") + "\n")


def _read(file: str) -> bytes:
    try:
        with sys.stdin.buffer if file == "-" else open(file, "rb") as source:
            body = source.read(_LARGEST_CARD + 1)
    except (OSError, ValueError, AttributeError) as error:
        raise Failed(USAGE, f"{file}: {getattr(error, 'strerror', None) or 'cannot be read'}") from None
    if len(body) > _LARGEST_CARD:
        raise Failed(USAGE, f"{file}: larger than {_LARGEST_CARD >> 20} MiB: that is no agent card")
    return body


def _changed(file: str, body: bytes, agent_id: str | None, at: str | None) -> bytes:
    """A published card for the registry: it lacks an id, and perhaps a url."""
    from registry.client_card import registration

    try:
        card = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Failed(USAGE, f"{file}: not JSON: {error}") from None
    try:
        return registration(card, agent_id, at)[1]
    except ValueError as error:
        raise Failed(USAGE, f"{file}: {error}") from None


def deregister(endpoint: Endpoint, seconds: float, agent_id: str, as_json: bool) -> None:
    """Take an agent out."""
    answer = ask(endpoint, seconds, "DELETE", f"agents/{agent_id}", about=agent_id)
    if as_json:
        output.write_document(answer.body)
    else:
        output.write(f"deregistered {agent_id}\n")


def show_health(endpoint: Endpoint, seconds: float, agent_id: str, as_json: bool, *, now: bool) -> None:
    """Show an agent's health; `now`: check it before."""
    path = f"agents/{agent_id}/health"
    answer = ask(endpoint, seconds, "POST" if now else "GET", f"{path}/check" if now else path, about=agent_id)
    if as_json:
        output.write_document(answer.body)
        return
    one = mapping(answer.document())
    passive, change = mapping(one.get("passive")), mapping(one.get("last_transition"))
    output.write_pairs(
        [
            ("agent", agent_id),
            ("health", one.get("status")),
            ("routing", one.get("routing")),
            ("checked", _moment(one.get("checked_at"))),
            ("results alike", one.get("consecutive") or None),
            ("next trial", _trial(one.get("next_trial_seconds"))),
            ("changed", _change(change)),
            ("calls in 30 s", _calls(passive)),
            ("drift", one.get("drift")),
        ]
    )
    checks = mapping(one.get("checks"))
    if checks:
        output.write("\n")
        output.write_table(_CHECKS, [_check(name, mapping(check)) for name, check in checks.items()])
    for advice in members(one.get("advice")):
        lines = [f"{advice.get('check')}: {advice.get('meaning')}"]
        lines += [f"  {word}: {advice[word]}" for word in ("cause", "remedy") if advice.get(word)]
        output.write("\n" + output.lines_of("\n".join(lines)) + "\n")


def _check(name: str, check: Document) -> Sequence[object]:
    words = [check.get("code"), check.get("message")]
    finding = ": ".join(str(word) for word in words if word)
    took = mapping(check.get("timings_ms")).get("total")
    return [name, check.get("status"), _milliseconds(took), finding]


def _change(change: Document) -> str:
    if not change:
        return ""
    moment = _moment(change.get("at"))
    return f"{change.get('from')} to {change.get('to')} because of {change.get('because')}, {moment}"


def _calls(passive: Document) -> str:
    if not passive.get("calls"):
        return ""
    row = passive.get("failures_in_a_row")
    return f"{passive.get('calls')}, {passive.get('failures')} failed, {row} in a row"


def show_history(endpoint: Endpoint, seconds: float, agent_id: str, limit: int | None, as_json: bool) -> None:
    """Show the last results of an agent's checks, the newest first."""
    answer = ask(endpoint, seconds, "GET", f"agents/{agent_id}/health/history", about=agent_id)
    if as_json:
        output.write_document(answer.body)
        return
    results = members(mapping(answer.document()).get("results"))[:limit]
    if not results:
        output.say(f"{agent_id} has not been checked yet")
        return
    output.write_table(_HISTORY, [_result(one) for one in results])


def _result(one: Document) -> Sequence[object]:
    code = ": ".join(str(one[name]) for name in ("code", "reason") if one.get(name))
    return [one.get("at"), one.get("status"), one.get("routing"), _milliseconds(one.get("latency_ms")), code]


# -- what is shared


def mapping(value: object) -> Document:
    """The value if it is an object, else an empty one: another gateway's documents may differ."""
    return value if isinstance(value, dict) else {}


def members(value: object) -> list[Document]:
    """The objects in a list, whatever else there may be in it or in its place."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def age(timestamp: object, now: datetime | None = None) -> str:
    """How long ago: `12s`, `3m`, `5h`, `9d`."""
    try:
        then = datetime.fromisoformat(str(timestamp))
        passed = max(0.0, ((now or datetime.now(UTC)) - then).total_seconds())
    except (ValueError, TypeError):
        return ""
    for unit, seconds in (("d", 86400), ("h", 3600), ("m", 60)):
        if passed >= 2 * seconds:
            return f"{passed // seconds:.0f}{unit}"
    return f"{passed:.0f}s"


def _moment(timestamp: object) -> str:
    return f"{timestamp} ({age(timestamp)} ago)" if timestamp else ""


def _milliseconds(value: object) -> str:
    return f"{value:.1f}" if _is_plain(value) else ""


def _trial(seconds: object) -> str:
    if not _is_plain(seconds):
        return ""
    return f"in {seconds:.0f} s" if seconds else "the next call"


def _is_plain(value: object) -> bool:
    """Whether it is a number that says something; JSON may hold integers that no float can."""
    return isinstance(value, int | float) and abs(value) < _BEYOND_REASON
