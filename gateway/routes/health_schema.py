"""How the health routes are described in the OpenAPI document."""

from __future__ import annotations

from typing import Final

from litestar.openapi.spec import Schema
from litestar.openapi.spec.enums import OpenAPIType

from gateway.routes.registry_schema import ID_IN_PATH, described
from gateway.routes.schema_words import COUNT, NUMBER, OBJECT, ROUTING, STATUS, STRING, TIME, list_of, object_of

_HEALTH: Final = object_of(
    spec_version=STRING,
    target=OBJECT,
    status=STATUS,
    latency_ms=NUMBER,
    checks=OBJECT,
    dependencies=list_of(OBJECT),
    routing=ROUTING,
    checked_at=TIME,
    consecutive=COUNT,
    last_transition=OBJECT,
    next_trial_seconds=NUMBER,
    passive=object_of(window_seconds=COUNT, calls=COUNT, failures=COUNT, failures_in_a_row=COUNT),
    drift=list_of(STRING),
    advice=list_of(OBJECT),
)
_RECORD: Final = object_of(
    at=TIME,
    status=STATUS,
    routing=ROUTING,
    latency_ms=NUMBER,
    first_byte_ms=NUMBER,
    duration_ms=NUMBER,
    code=STRING,
    reason=STRING,
)
_LINE: Final = object_of(
    agent_id=STRING, status=STATUS, routing=ROUTING, checked_at=TIME, code=STRING, consecutive=COUNT
)

HEALTH: Final = described(_HEALTH, [404], parameters=(ID_IN_PATH,))
HISTORY: Final = described(object_of(agent_id=STRING, results=list_of(_RECORD)), [404], parameters=(ID_IN_PATH,))
PUBLISHED: Final = described(
    object_of(
        agent_id=STRING,
        published=Schema(type=[OpenAPIType.OBJECT, OpenAPIType.NULL]),
        is_published=Schema(type=OpenAPIType.BOOLEAN),
        drift=list_of(STRING),
    ),
    [404],
    parameters=(ID_IN_PATH,),
)
OVERVIEW: Final = described(
    object_of(
        statuses=OBJECT,
        routing=OBJECT,
        suspects_itself=Schema(type=OpenAPIType.BOOLEAN),
        agents=list_of(_LINE),
    ),
    [],
)
