"""How the routes of `stats.py` are described in the OpenAPI document."""

from __future__ import annotations

from typing import Final

from litestar.openapi.spec import Parameter, Schema
from litestar.openapi.spec.enums import OpenAPIType

from gateway.routes.registry_schema import ID_IN_PATH, described
from gateway.routes.schema_words import COUNT, NUMBER, OBJECT, ROUTING, STATUS, STRING, TIME, list_of, object_of

_BOOLEAN: Final = Schema(type=OpenAPIType.BOOLEAN)


def _or_null(one: OpenAPIType) -> Schema:
    return Schema(type=[one, OpenAPIType.NULL])


_TEXT_OR_NULL: Final = _or_null(OpenAPIType.STRING)
_NUMBER_OR_NULL: Final = _or_null(OpenAPIType.NUMBER)
_ROW: Final = object_of(
    agent_id=STRING,
    name=STRING,
    skills=list_of(STRING),
    owner=STRING,
    protocols=list_of(STRING),
    last_seen=TIME,
    status=STATUS,
    routing=ROUTING,
    code=_TEXT_OR_NULL,
    reason=_TEXT_OR_NULL,
    checked_at=_TEXT_OR_NULL,
    calls_per_second=_NUMBER_OR_NULL,
    outcomes=OBJECT,
    p50_ms=_NUMBER_OR_NULL,
    p95_ms=_NUMBER_OR_NULL,
    open_streams=COUNT,
)
_SINCE: Final = Parameter(
    name="since",
    param_in="query",
    schema=STRING,
    description="The `version` of an earlier answer: only what is different since; else everything.",
)

AGENTS: Final = described(
    object_of(
        at=TIME,
        version=STRING,
        complete=_BOOLEAN,
        window_seconds=NUMBER,
        ttl_seconds=NUMBER,
        suspects_itself=_BOOLEAN,
        gone=list_of(STRING),
        agents=list_of(_ROW),
    ),
    [],
    parameters=(_SINCE,),
)
AGENT: Final = described(
    object_of(
        at=TIME,
        window_seconds=NUMBER,
        agent=_ROW,
        totals=object_of(calls=COUNT, errors_by_code=OBJECT, stream_events=COUNT),
    ),
    [404],
    parameters=(ID_IN_PATH,),
)
GATEWAY: Final = described(
    object_of(
        version=STRING,
        python=STRING,
        host=STRING,
        pid=COUNT,
        started_at=TIME,
        uptime_seconds=NUMBER,
        phase=STRING,
        status=STATUS,
        suspects_itself=_BOOLEAN,
        addresses=OBJECT,
        caller=object_of(name=STRING, authenticated=_BOOLEAN),
        settings=Schema(
            type=[OpenAPIType.ARRAY, OpenAPIType.NULL],
            items=object_of(name=STRING, value=Schema(), default=_BOOLEAN),
        ),
        limits=list_of(
            object_of(name=STRING, setting=_TEXT_OR_NULL, used=NUMBER, limit=_NUMBER_OR_NULL, unit=STRING)
        ),
        faults=list_of(
            object_of(
                time=TIME,
                agent=STRING,
                method=STRING,
                reason=STRING,
                outcome=STRING,
                status=COUNT,
                duration_ms=NUMBER,
                caller=STRING,
                request_id=STRING,
            )
        ),
    ),
    [],
)
