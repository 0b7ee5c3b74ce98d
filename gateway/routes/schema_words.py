"""The words that the descriptions of several routes share in the OpenAPI document."""

from __future__ import annotations

from typing import Final

from litestar.openapi.spec import Schema
from litestar.openapi.spec.enums import OpenAPIFormat, OpenAPIType

from healthcheck.model import Status
from healthcheck.state import Routing

STRING: Final = Schema(type=OpenAPIType.STRING)
NUMBER: Final = Schema(type=OpenAPIType.NUMBER)
COUNT: Final = Schema(type=OpenAPIType.INTEGER, minimum=0)
OBJECT: Final = Schema(type=OpenAPIType.OBJECT)
TIME: Final = Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.DATE_TIME)
STATUS: Final = Schema(type=OpenAPIType.STRING, enum=[status.value for status in Status])
ROUTING: Final = Schema(type=OpenAPIType.STRING, enum=[state.value for state in Routing])


def object_of(**properties: Schema) -> Schema:
    """Describe an object with these members."""
    return Schema(type=OpenAPIType.OBJECT, properties={**properties})


def list_of(items: Schema) -> Schema:
    """Describe an array of such items."""
    return Schema(type=OpenAPIType.ARRAY, items=items)
