"""How agents fare now, and what the gateway is: `/stats/agents`, `/gateway`, for the console and for scripts."""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias, cast

import msgspec
from litestar import Request, Response, route
from litestar.enums import HttpMethod, MediaType
from litestar.handlers import HTTPRouteHandler

from gateway.about import About
from gateway.agent_stats import AgentStats
from gateway.identity import ANONYMOUS, Identity
from gateway.routes import problem
from gateway.routes import stats_schema as schema

AnyRequest: TypeAlias = Request[Any, Any, Any]

_READ: Final = [HttpMethod.GET, HttpMethod.HEAD]
_AGENT: Final = re.compile(rb"/stats/agents/([a-z0-9][a-z0-9-]{0,126}[a-z0-9])/?")
_FRESH: Final = {"Cache-Control": "no-store"}
_encode: Final = msgspec.json.Encoder().encode


def stats_routes(stats: AgentStats | None, about: About) -> list[HTTPRouteHandler]:
    """Make the handlers; `stats` is None where there are no agents (`a2a.enable: false`)."""

    @route(
        "/gateway",
        http_method=_READ,
        sync_to_thread=False,
        summary="The gateway: version, settings in force, limits and their use, recent faults",
        operation_class=schema.GATEWAY,
    )
    def gateway(request: AnyRequest) -> Response[bytes]:
        caller = cast("Identity", request.scope.get("vitalgate.identity", ANONYMOUS))
        return _json(_encode(about.document(caller)))

    return [gateway] if stats is None else [gateway, *_agents(stats)]


def _agents(stats: AgentStats) -> list[HTTPRouteHandler]:
    @route(
        "/stats/agents",
        http_method=_READ,
        summary="How every agent fares now; or what is different since a version",
        operation_class=schema.AGENTS,
    )
    async def agents(request: AnyRequest) -> Response[bytes]:
        return _json(await stats.answer(request.query_params.get("since", "")))

    @route(
        "/stats/agents/{agent_id:str}",
        http_method=_READ,
        summary="How one agent fares now, and what was counted of it",
        operation_class=schema.AGENT,
    )
    async def agent(request: AnyRequest) -> Response[bytes] | Response[dict[str, Any]]:
        named = _AGENT.fullmatch(request.scope["raw_path"])
        body = None if named is None else await stats.one(named[1].decode("ascii"))
        return problem(404, "agent not found") if body is None else _json(body)

    return [agents, agent]


def _json(body: bytes) -> Response[bytes]:
    return Response(body, media_type=MediaType.JSON, headers=_FRESH)
