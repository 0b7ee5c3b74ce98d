"""Registering, heartbeats, deregistering and looking agents up (contract 5.1, 5.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, cast
from urllib.parse import parse_qs

import msgspec
from litestar import Request, Response, Router, delete, post, route
from litestar.enums import HttpMethod, MediaType
from litestar.handlers import HTTPRouteHandler
from litestar.types import ExceptionHandlersMap

from gateway.identity import ANONYMOUS, Identity
from gateway.monitor import Monitor
from gateway.routes import problem
from gateway.routes import registry_schema as schema
from gateway.routes.body import read_body
from gateway.routes.health import summary_of
from healthcheck.model import Status
from registry.agent import Registration
from registry.card import MAX_CARD_BYTES, read_agent_id
from registry.errors import (
    Forbidden,
    Full,
    Invalid,
    NotFound,
    RegistryError,
    StoreUnavailable,
    TooLarge,
    Violation,
)
from registry.registry import Registry

AnyRequest: TypeAlias = Request[Any, Any, Any]

RETRY_AFTER_SECONDS: Final = 5

_READ: Final = [HttpMethod.GET, HttpMethod.HEAD]
_AGENT: Final = re.compile(rb"/agents/([a-z0-9][a-z0-9-]{0,126}[a-z0-9])")
_ACTIONS: Final = ["/register", "/heartbeat", "/deregister"]
_encode: Final = msgspec.json.Encoder().encode
_LIMIT: Final = re.compile(r"[0-9]{1,100}")
_UNAVAILABLE: Final = "the registry's store is not available, try again later"
_STATUSES: Final[dict[type[RegistryError], int]] = {
    TooLarge: 413,
    Invalid: 400,
    Forbidden: 403,
    NotFound: 404,
    Full: 409,
    StoreUnavailable: 503,
}
_OUTCOMES: Final[dict[type[BaseException], str]] = {
    Invalid: "invalid",
    Forbidden: "refused",
    RegistryError: "failed",
}


class Audit(Protocol):
    """Takes note of who did what; see `Logs.audit`."""

    def __call__(
        self, action: str, *, caller: str, agent: str, outcome: str, reason: str = "", client: str = ""
    ) -> None:
        """Write a line."""


def _nowhere(action: str, **_: str) -> None:
    pass


def registry_routes(registry: Registry, monitor: Monitor | None = None, audit: Audit = _nowhere) -> list[Router]:
    """Make the handlers of the registry's six routes.

    With a monitor, what GET shows has a member `health` (contract 5.2).
    The caller is `scope["vitalgate.identity"]`, an `Identity`, where the gate has put one.
    """
    handlers = [*_writing(registry, audit), *_reading(registry, monitor), *_removing(registry, audit)]
    return [Router("/agents", route_handlers=handlers, exception_handlers=REFUSALS)]


def _writing(registry: Registry, audit: Audit) -> list[HTTPRouteHandler]:
    @post(
        "/register",
        status_code=200,
        summary="Register an agent, or replace its card",
        operation_class=schema.described(schema.REGISTERED, [400, 403, 409, 413, 503], body=schema.CARD),
    )
    async def register(request: AnyRequest) -> Response[bytes]:
        caller, body = _caller(request), await read_body(request, MAX_CARD_BYTES)
        with _audited(audit, request, "register", _id_in(body)):
            found = await registry.register(body, caller.owner, may=caller.grants.register)
        return _json(found.document())

    @post(
        "/heartbeat",
        status_code=200,
        summary="Prolong an agent's registration; 400: it must register again",
        operation_class=schema.described(schema.LEASE, [400, 403, 413, 503], body=schema.AGENT_ID),
    )
    async def heartbeat(request: AnyRequest) -> Response[dict[str, Any]]:
        agent_id = registry.read_agent_id("heartbeat", await read_body(request, MAX_CARD_BYTES))
        caller = _caller(request)
        try:
            with _audited(audit, request, "heartbeat", agent_id, only_refused=True):
                lease = await registry.heartbeat(agent_id, caller.owner, may=caller.grants.register)
        except NotFound as error:
            return problem(400, str(error))
        answer = {"agent_id": agent_id, "last_seen": lease.last_seen, "ttl_seconds": lease.ttl_seconds}
        return Response({"ok": True, **answer}, media_type=MediaType.JSON)

    @post(
        "/deregister",
        status_code=200,
        summary="Take an agent out",
        operation_class=schema.described(schema.DONE, [400, 403, 404, 413, 503], body=schema.AGENT_ID),
    )
    async def deregister(request: AnyRequest) -> dict[str, bool]:
        agent_id = registry.read_agent_id("deregister", await read_body(request, MAX_CARD_BYTES))
        await _deregister(registry, audit, request, agent_id)
        return {"ok": True}

    return [register, heartbeat, deregister]


def _reading(registry: Registry, monitor: Monitor | None) -> list[HTTPRouteHandler]:
    def shown(one: Registration) -> bytes:
        health = summary_of(monitor, one.agent.agent_id)
        document = one.document()
        return document if health is None else document[:-1] + b',"health":' + _encode(health) + b"}"

    @route(
        "/",
        http_method=_READ,
        sync_to_thread=False,
        summary="List agents",
        operation_class=schema.described(schema.LISTING, [400], parameters=schema.SELECTION),
    )
    def listing(request: AnyRequest) -> Response[bytes]:
        chosen = read_selection(request.scope["query_string"], health=monitor is not None)
        found = registry.list(skill_tags=chosen.skill_tags, query=chosen.text)
        if chosen.health and monitor is not None:
            found = [one for one in found if monitor.status(one.agent.agent_id) in chosen.health]
        return _json(b"[" + b",".join(shown(one) for one in found[: chosen.limit]) + b"]")

    def agent(request: AnyRequest) -> Response[bytes]:
        found = registry.get(_agent_id(request))
        if found is None:
            raise NotFound
        return _json(shown(found))

    operation = schema.described(schema.SHOWN, [404], parameters=(schema.ID_IN_PATH,))
    by_id = route(
        "/{agent_id:str}",
        http_method=_READ,
        sync_to_thread=False,
        summary="Show an agent",
        operation_class=operation,
    )
    by_action = route(_ACTIONS, http_method=_READ, sync_to_thread=False, include_in_schema=False)
    return [listing, by_id(agent), by_action(agent)]


def _removing(registry: Registry, audit: Audit) -> list[HTTPRouteHandler]:
    async def remove(request: AnyRequest) -> dict[str, bool]:
        await _deregister(registry, audit, request, _agent_id(request))
        return {"ok": True}

    operation = schema.described(schema.DONE, [403, 404, 503], parameters=(schema.ID_IN_PATH,))
    by_id = delete("/{agent_id:str}", status_code=200, summary="Take an agent out", operation_class=operation)
    by_action = delete(_ACTIONS, status_code=200, include_in_schema=False)
    return [by_id(remove), by_action(remove)]


async def _deregister(registry: Registry, audit: Audit, request: AnyRequest, agent_id: str) -> None:
    """Take an agent out; whoever administers does it in its owner's name."""
    caller = _caller(request)
    owner, may = caller.owner, caller.grants.register
    if caller.grants.administer:
        found = await registry.find(agent_id)
        owner, may = (owner if found is None else found.agent.owner), _any
    with _audited(audit, request, "deregister", agent_id):
        await registry.deregister(agent_id, owner, may=may)


def _any(_agent_id: str) -> bool:
    return True


@contextmanager
def _audited(
    audit: Audit, request: AnyRequest, action: str, agent_id: str, *, only_refused: bool = False
) -> Iterator[None]:
    """Note what becomes of an operation; of one that comes every few seconds, only that it was refused."""
    outcome, reason = "failed", ""
    try:
        yield
        outcome = "ok"
    except RegistryError as error:
        outcome = next(_OUTCOMES[kind] for kind in type(error).__mro__ if kind in _OUTCOMES)
        reason = str(error)
        raise
    finally:
        if outcome == "refused" or not only_refused:
            client, name = str(request.scope.get("vitalgate.client", "")), _caller(request).name
            audit(action, caller=name, agent=agent_id, outcome=outcome, reason=reason, client=client)


# -- reading requests


@dataclass(frozen=True, slots=True)
class Selection:
    """Which agents to list; see `Registry.list`."""

    skill_tags: frozenset[str] = frozenset()
    text: str = ""
    limit: int | None = None
    health: frozenset[Status] = frozenset()


def read_selection(query: bytes, *, health: bool = True) -> Selection:
    """Reads the query of GET /agents: `skill_tags`, `health` (both also repeated), `q`, `limit`.

    Others are ignored. Blank tags do not count, and without any other tag there is no filter. The argument
    `health` says whether agents are checked at all.

    Raises:
        Invalid: names every violation.
    """
    try:
        members = parse_qs(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise Invalid("invalid query: not percent-encoded UTF-8") from None
    violations = [
        Violation(name, "is given more than once") for name in ("q", "limit") if len(members.get(name, ())) > 1
    ]
    limit = members.get("limit", [""])[0]
    if "limit" in members and not (_LIMIT.fullmatch(limit) and int(limit)):
        violations.append(Violation("limit", "must be a whole number, at least 1"))
    statuses = _words(members.get("health", ()))
    if statuses and not health:
        violations.append(Violation("health", "agents are not checked: health.enable is off"))
    elif not statuses <= {status.value for status in Status}:
        violations.append(Violation("health", f"must be some of {', '.join(Status)}"))
    if violations:
        raise Invalid("invalid query", violations)
    return Selection(
        _words(members.get("skill_tags", ())),
        members.get("q", [""])[0],
        int(limit) if limit else None,
        frozenset(Status(status) for status in statuses),
    )


def _words(values: Iterable[str]) -> frozenset[str]:
    """The words of comma lists; blank ones do not count."""
    return frozenset({word.strip() for value in values for word in value.split(",")} - {""})


def _agent_id(request: AnyRequest) -> str:
    """The id in the raw path; nothing decoded ever becomes one (contract 1)."""
    found = _AGENT.fullmatch(request.scope["raw_path"])
    if found is None:
        raise NotFound
    return found[1].decode("ascii")


def _caller(request: AnyRequest) -> Identity:
    return cast("Identity", request.scope.get("vitalgate.identity", ANONYMOUS))


def _id_in(document: bytes) -> str:
    """The id in a card that may be anything, for the audit; empty if it has none that is well formed."""
    try:
        return read_agent_id(document)
    except Invalid:
        return ""


# -- writing answers


def _json(body: bytes) -> Response[bytes]:
    return Response(body, media_type=MediaType.JSON)


def _refusal(request: AnyRequest, error: RegistryError) -> Response[dict[str, Any]]:
    status = next(_STATUSES[kind] for kind in type(error).__mro__ if kind in _STATUSES)
    if isinstance(error, StoreUnavailable):
        return problem(status, _UNAVAILABLE, headers={"Retry-After": str(RETRY_AFTER_SECONDS)})
    violations = error.violations if isinstance(error, Invalid) else ()
    return problem(
        status, str(error), details=[{"field": one.field, "message": one.message} for one in violations]
    )


REFUSALS: Final[ExceptionHandlersMap] = dict.fromkeys(_STATUSES, _refusal)
"""For routers whose handlers raise the registry's errors."""
