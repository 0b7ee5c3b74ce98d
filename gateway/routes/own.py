"""What the gateway says of itself: /live, /ready, /health, and the OpenAPI document (contract 1, 8)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from litestar import Response, Router, route
from litestar.enums import HttpMethod, MediaType
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

from gateway.routes import problem
from healthcheck.model import Status

_READ: Final = [HttpMethod.GET, HttpMethod.HEAD]
_FRESH: Final = {"Cache-Control": "no-store"}


def own_routes(*, ready: Callable[[], bool], health: Callable[[], Status]) -> list[HTTPRouteHandler]:
    """Make the handlers for load balancers and orchestrators: public, and without detail.

    Args:
        ready: Tells whether new calls are welcome: after the first view of the registry, before the drain.
        health: Judges the gateway itself, never its agents.
    """

    @route("/live", http_method=_READ, sync_to_thread=False, summary="Does the event loop turn?")
    def live() -> Response[dict[str, str]]:
        return _status(200, "ok")

    @route("/ready", http_method=_READ, sync_to_thread=False, summary="Are new calls welcome?")
    def readiness() -> Response[dict[str, str]]:
        return _status(200, "ok") if ready() else _status(503, "unavailable")

    @route("/health", http_method=_READ, sync_to_thread=False, summary="How is the gateway itself?")
    def own_health() -> Response[dict[str, str]]:
        status = health()
        document = {
            "ahp_version": "v1",
            "spec_version": "v1",
            "status": status.value,
            "observed_at": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        }
        code = 200 if status.passing else 503
        return Response(document, status_code=code, media_type=MediaType.JSON, headers=_FRESH)

    return [live, readiness, own_health]


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
