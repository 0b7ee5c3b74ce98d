"""What the gateway says of itself: /live, /ready and the description of its REST routes (contract 1, 8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from litestar import Response, Router, route
from litestar.enums import HttpMethod, MediaType
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

from gateway.routes import problem

_READ: Final = [HttpMethod.GET, HttpMethod.HEAD]
_FRESH: Final = {"Cache-Control": "no-store"}


def own_routes(*, ready: Callable[[], bool]) -> list[HTTPRouteHandler]:
    """Make the handlers for load balancers and orchestrators: public, and without detail.

    Args:
        ready: Tells whether new calls are welcome: after the first view of the registry, before the drain.
    """

    @route("/live", http_method=_READ, sync_to_thread=False, summary="Does the event loop turn?")
    def live() -> Response[dict[str, str]]:
        return _status(200, "ok")

    @route("/ready", http_method=_READ, sync_to_thread=False, summary="Are new calls welcome?")
    def readiness() -> Response[dict[str, str]]:
        return _status(200, "ok") if ready() else _status(503, "unavailable")

    return [live, readiness]


def _status(code: int, status: str) -> Response[dict[str, str]]:
    return Response({"status": status}, status_code=code, media_type=MediaType.JSON, headers=_FRESH)


def openapi_config(version: str) -> OpenAPIConfig:
    """Serve the OpenAPI document as JSON at /schema, and none of the pages that load scripts from elsewhere."""
    return OpenAPIConfig(
        title="vitalgate",
        version=version,
        description="REST routes of the gateway. Calls to agents are JSON-RPC: POST /a2a/{agent_id}.",
        render_plugins=[JsonRenderPlugin(path="/")],
        openapi_router=Router("/schema", route_handlers=[], include_in_schema=False, after_request=_without_html),
    )


async def _without_html(response: Response[Any]) -> Response[Any]:
    """Give what is missing under /schema the shape of all errors; the framework has a page for it."""
    return problem(404, "not found") if response.status_code == 404 else response
