"""How the administering routes are described in the OpenAPI document."""

from __future__ import annotations

from typing import Final

from litestar.openapi.spec import Schema
from litestar.openapi.spec.enums import OpenAPIType

from gateway.routes.registry_schema import described

_NAMES: Final = Schema(type=OpenAPIType.ARRAY, items=Schema(type=OpenAPIType.STRING))

RELOADED: Final = described(
    Schema(type=OpenAPIType.OBJECT, properties={"changed": _NAMES, "unchanged_until_restart": _NAMES}), [400]
)
