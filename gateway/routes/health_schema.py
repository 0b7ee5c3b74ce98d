"""How the health routes are described in the OpenAPI document."""

from __future__ import annotations

from typing import Final

from litestar.openapi.spec import Schema
from litestar.openapi.spec.enums import OpenAPIFormat, OpenAPIType

from gateway.routes.registry_schema import ID_IN_PATH, described
from healthcheck.model import Status
from healthcheck.state import Routing

_STRING: Final = Schema(type=OpenAPIType.STRING)
_NUMBER: Final = Schema(type=OpenAPIType.NUMBER)
_COUNT: Final = Schema(type=OpenAPIType.INTEGER, minimum=0)
_OBJECT: Final = Schema(type=OpenAPIType.OBJECT)
_TIME: Final = Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.DATE_TIME)
_STATUS: Final = Schema(type=OpenAPIType.STRING, enum=[status.value for status in Status])
_ROUTING: Final = Schema(type=OpenAPIType.STRING, enum=[state.value for state in Routing])


def _object(**properties: Schema) -> Schema:
    return Schema(type=OpenAPIType.OBJECT, properties={**properties})


def _list(items: Schema) -> Schema:
    return Schema(type=OpenAPIType.ARRAY, items=items)


_HEALTH: Final = _object(
    spec_version=_STRING,
    target=_OBJECT,
    status=_STATUS,
    latency_ms=_NUMBER,
    checks=_OBJECT,
    dependencies=_list(_OBJECT),
    routing=_ROUTING,
    checked_at=_TIME,
    consecutive=_COUNT,
    last_transition=_OBJECT,
    next_trial_seconds=_NUMBER,
    passive=_object(window_seconds=_COUNT, calls=_COUNT, failures=_COUNT, failures_in_a_row=_COUNT),
    drift=_list(_STRING),
    advice=_list(_OBJECT),
)
_RECORD: Final = _object(
    at=_TIME,
    status=_STATUS,
    routing=_ROUTING,
    latency_ms=_NUMBER,
    first_byte_ms=_NUMBER,
    duration_ms=_NUMBER,
    code=_STRING,
    reason=_STRING,
)
_LINE: Final = _object(
    agent_id=_STRING, status=_STATUS, routing=_ROUTING, checked_at=_TIME, code=_STRING, consecutive=_COUNT
)

HEALTH: Final = described(_HEALTH, [404], parameters=(ID_IN_PATH,))
HISTORY: Final = described(_object(agent_id=_STRING, results=_list(_RECORD)), [404], parameters=(ID_IN_PATH,))
PUBLISHED: Final = described(
    _object(
        agent_id=_STRING,
        published=Schema(type=[OpenAPIType.OBJECT, OpenAPIType.NULL]),
        is_published=Schema(type=OpenAPIType.BOOLEAN),
        drift=_list(_STRING),
    ),
    [404],
    parameters=(ID_IN_PATH,),
)
OVERVIEW: Final = described(
    _object(
        statuses=_OBJECT,
        routing=_OBJECT,
        suspects_itself=Schema(type=OpenAPIType.BOOLEAN),
        agents=_list(_LINE),
    ),
    [],
)
