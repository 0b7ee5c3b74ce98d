"""The nodes over REST (contract 1)."""

from __future__ import annotations

from typing import Any, Final

from litestar import Response, route
from litestar.enums import HttpMethod, MediaType
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.spec import Schema
from litestar.openapi.spec.enums import OpenAPIFormat, OpenAPIType

from gateway import nodes as views
from gateway.nodes import Nodes
from gateway.routes.registry_schema import described

_STRING: Final = Schema(type=OpenAPIType.STRING)
_BOOLEAN: Final = Schema(type=OpenAPIType.BOOLEAN)
_COUNT: Final = Schema(type=OpenAPIType.INTEGER, minimum=0)
_TIME: Final = Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.DATE_TIME)
_NODE: Final = Schema(
    type=OpenAPIType.OBJECT,
    properties={
        "id": _STRING,
        "host": _STRING,
        "pid": _COUNT,
        "version": _STRING,
        "started_at": _TIME,
        "address": _STRING,
        "checking": _BOOLEAN,
        "lease_ends_at": Schema(type=[OpenAPIType.STRING, OpenAPIType.NULL]),
        "load": Schema(
            type=OpenAPIType.OBJECT,
            properties={"calls": _COUNT, "streams": _COUNT, "agents": _COUNT, "checked": _COUNT},
        ),
    },
)
_NODES: Final = described(
    Schema(
        type=OpenAPIType.OBJECT,
        properties={
            "node": _STRING,
            "connected": _BOOLEAN,
            "nodes": Schema(type=OpenAPIType.ARRAY, items=_NODE),
        },
    ),
    [],
)


def node_routes(nodes: Nodes) -> list[HTTPRouteHandler]:
    """Make the handler."""

    @route(
        "/nodes",
        http_method=[HttpMethod.GET, HttpMethod.HEAD],
        summary="The nodes of the cluster: version, load, lease",
        operation_class=_NODES,
    )
    async def listing() -> Response[dict[str, Any]]:
        return Response(await views.view(nodes), media_type=MediaType.JSON, headers={"Cache-Control": "no-store"})

    return [listing]
