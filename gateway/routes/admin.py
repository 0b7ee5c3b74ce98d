"""POST /admin/reload: reads the settings again (contract 8). The gate has judged who may."""

from __future__ import annotations

from typing import Any, Final, TypeAlias, cast

from litestar import Request, Response, post
from litestar.enums import MediaType
from litestar.handlers import HTTPRouteHandler

from gateway.identity import ANONYMOUS, Identity
from gateway.reload import Reload, ReloadError
from gateway.routes import problem
from gateway.routes.admin_schema import RELOADED
from gateway.routes.registry import Audit

AnyRequest: TypeAlias = Request[Any, Any, Any]

_WRONG: Final = "the configuration is wrong: nothing was changed"


def admin_routes(reload: Reload, audit: Audit) -> list[HTTPRouteHandler]:
    """Make the handler."""

    @post("/admin/reload", status_code=200, summary="Read the settings again", operation_class=RELOADED)
    async def read_again(request: AnyRequest) -> Response[dict[str, Any]]:
        caller = cast("Identity", request.scope.get("vitalgate.identity", ANONYMOUS)).name
        client = str(request.scope.get("vitalgate.client", ""))
        try:
            outcome = await reload.everywhere()
        except ReloadError as error:
            audit("reload", caller=caller, agent="", outcome="invalid", reason=_WRONG, client=client)
            return problem(400, _WRONG, details=[{"field": "", "message": one} for one in error.problems])
        audit("reload", caller=caller, agent="", outcome="ok", client=client)
        document = {
            "changed": list(outcome.changed),
            "unchanged_until_restart": list(outcome.unchanged_until_restart),
        }
        return Response(document, media_type=MediaType.JSON, headers={"Cache-Control": "no-store"})

    return [read_again]
