"""The agents' health over REST (health contract 7). Only POST .../check ever makes a check run."""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

from litestar import Request, Response, post, route
from litestar.enums import HttpMethod, MediaType
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.spec import Operation

from gateway import health_views as views
from gateway.monitor import Monitor
from gateway.routes import health_schema as schema
from gateway.routes import problem
from gateway.watched import Watched

AnyRequest: TypeAlias = Request[Any, Any, Any]
AnyResponse: TypeAlias = Response[dict[str, Any]]

_READ: Final = [HttpMethod.GET, HttpMethod.HEAD]
_AGENT: Final = re.compile(rb"/agents/([a-z0-9][a-z0-9-]{0,126}[a-z0-9])/health(?:/[a-z]+)?/?")
#: Agents may be called like the registry's own routes; the framework looks at fixed words first.
_NAMES: Final = ("{agent_id:str}", "register", "heartbeat", "deregister")


def health_routes(monitor: Monitor) -> list[HTTPRouteHandler]:
    """Make the handlers."""

    async def health(request: AnyRequest) -> AnyResponse:
        found = await monitor.look_up(_agent_id(request))
        return _not_found() if found is None else _fresh(views.full(found, monitor.now()))

    async def history(request: AnyRequest) -> AnyResponse:
        found = await monitor.look_up(_agent_id(request))
        return _not_found() if found is None else _fresh(views.history(found))

    async def card(request: AnyRequest) -> Response[bytes] | AnyResponse:
        found = await monitor.look_up(_agent_id(request))
        if found is None:
            return _not_found()
        return Response(views.cards(found), media_type=MediaType.JSON, headers={"Cache-Control": "no-store"})

    async def check(request: AnyRequest) -> AnyResponse:
        found = await monitor.check(_agent_id(request))
        return _not_found() if found is None else _fresh(views.full(found, monitor.now()))

    @route(
        "/health/agents",
        http_method=_READ,
        sync_to_thread=False,
        summary="Counts per status, and one line per agent",
        operation_class=schema.OVERVIEW,
    )
    def overview() -> AnyResponse:
        return _fresh(views.overview(monitor.agents(), suspects_itself=monitor.suspects_itself))

    handlers: list[HTTPRouteHandler] = [overview]
    for name in _NAMES:
        shown = name == _NAMES[0]
        handlers += [
            _reads(f"/agents/{name}/health", "An agent's health", schema.HEALTH, shown)(health),
            _reads(f"/agents/{name}/health/history", "Its last 100 results", schema.HISTORY, shown)(history),
            _reads(f"/agents/{name}/health/card", "The card that it publishes", schema.PUBLISHED, shown)(card),
            post(
                f"/agents/{name}/health/check",
                status_code=200,
                summary="Check it now, or share the check that runs",
                operation_class=schema.HEALTH,
                include_in_schema=shown,
            )(check),
        ]
    return handlers


def _reads(path: str, summary: str, operation: type[Operation], shown: bool) -> Any:
    return route(
        path,
        http_method=_READ,
        summary=summary,
        operation_class=operation,
        include_in_schema=shown,
    )


def _agent_id(request: AnyRequest) -> str:
    """The id in the raw path; nothing decoded ever becomes one (contract 1)."""
    found = _AGENT.fullmatch(request.scope["raw_path"])
    return "" if found is None else found[1].decode("ascii")


def _not_found() -> AnyResponse:
    return problem(404, "agent not found")


def _fresh(document: dict[str, Any]) -> AnyResponse:
    return Response(document, media_type=MediaType.JSON, headers={"Cache-Control": "no-store"})


def summary_of(monitor: Monitor | None, agent_id: str) -> dict[str, Any] | None:
    """Give the `health` member of a registry view; None without a health engine."""
    if monitor is None:
        return None
    found: Watched | None = monitor.find(agent_id)
    return views.summary(found)
