"""What the gateway says of itself: /live, /ready, /health, and the OpenAPI document (contract 1, 8)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from litestar import Request, Response, Router, route
from litestar.enums import HttpMethod, MediaType
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

from gateway.gate import is_public
from gateway.routes import problem
from healthcheck.model import Status

_READ: Final = [HttpMethod.GET, HttpMethod.HEAD]
_ANYWHERE: Final = {
    403: "The web page that asks is not trusted, or the policy does not allow it.",
    404: "There is no such thing.",
    421: "The host is not one of the gateway's.",
}
_WITH_TOKEN: Final = {
    401: "There is no valid token, and authentication is on.",
    429: "Too many requests; try again after `Retry-After` seconds.",
}
#: How the framework describes a refusal of its own, which does not read as it thinks (`routes.ERROR_HANDLERS`).
_FRAMEWORKS: Final = "Bad request syntax or unsupported method"
_ERROR: Final = {
    "application/json": {
        "schema": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
    }
}
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
        render_plugins=[_Rendered(path="/")],
        openapi_router=Router("/schema", route_handlers=[], include_in_schema=False, after_request=_without_html),
    )


class _Rendered(JsonRenderPlugin):
    """Writes the document, with the answers that every route may give because the gate gives them."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        """Write the document."""
        return super().render(request, with_refusals(openapi_schema))


def with_refusals(document: dict[str, Any]) -> dict[str, Any]:
    """Add what the gate answers to each operation (contract 1, 2.6, 6.2, 6.5), and the scheme it asks for."""
    paths = {
        path: {method: _refusing(path, method, operation) for method, operation in operations.items()}
        for path, operations in document["paths"].items()
    }
    scheme = {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
    components = {**document.get("components", {}), "securitySchemes": {"token": scheme}}
    return {**document, "paths": paths, "components": components}


def _refusing(path: str, method: str, operation: dict[str, Any]) -> dict[str, Any]:
    public = is_public(method.upper(), path.encode())
    statuses = _ANYWHERE if public else {**_ANYWHERE, **_WITH_TOKEN}
    refusals = {str(status): {"description": text, "content": _ERROR} for status, text in statuses.items()}
    own = {
        status: {**answer, "content": _ERROR} if answer["description"] == _FRAMEWORKS else answer
        for status, answer in operation["responses"].items()
    }
    security: dict[str, Any] = {} if public else {"security": [{}, {"token": []}]}
    return {**operation, **security, "responses": {**refusals, **own}}


async def _without_html(response: Response[Any]) -> Response[Any]:
    """Give what is missing under /schema the shape of all errors; the framework has a page for it."""
    return problem(404, "not found") if response.status_code == 404 else response
