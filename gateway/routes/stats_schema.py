"""How the routes of `stats.py` are described in the OpenAPI document."""

from __future__ import annotations

from typing import Final

from litestar.openapi.spec import Parameter, Schema
from litestar.openapi.spec.enums import OpenAPIFormat, OpenAPIType

from gateway.routes.registry_schema import ID_IN_PATH, described
from healthcheck.model import Status
from healthcheck.state import Routing

_STRING: Final = Schema(type=OpenAPIType.STRING)
_NUMBER: Final = Schema(type=OpenAPIType.NUMBER)
_BOOLEAN: Final = Schema(type=OpenAPIType.BOOLEAN)
_COUNT: Final = Schema(type=OpenAPIType.INTEGER, minimum=0)
_OBJECT: Final = Schema(type=OpenAPIType.OBJECT)
_TIME: Final = Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.DATE_TIME)
_STATUS: Final = Schema(type=OpenAPIType.STRING, enum=[status.value for status in Status])
_ROUTING: Final = Schema(type=OpenAPIType.STRING, enum=[state.value for state in Routing])


def _object(**properties: Schema) -> Schema:
    return Schema(type=OpenAPIType.OBJECT, properties={**properties})


def _list(items: Schema) -> Schema:
    return Schema(type=OpenAPIType.ARRAY, items=items)


def _or_null(one: OpenAPIType) -> Schema:
    return Schema(type=[one, OpenAPIType.NULL])


_TEXT_OR_NULL: Final = _or_null(OpenAPIType.STRING)
_NUMBER_OR_NULL: Final = _or_null(OpenAPIType.NUMBER)
_ROW: Final = _object(
    agent_id=_STRING,
    name=_STRING,
    skills=_list(_STRING),
    owner=_STRING,
    protocols=_list(_STRING),
    last_seen=_TIME,
    status=_STATUS,
    routing=_ROUTING,
    code=_TEXT_OR_NULL,
    reason=_TEXT_OR_NULL,
    checked_at=_TEXT_OR_NULL,
    calls_per_second=_NUMBER_OR_NULL,
    outcomes=_OBJECT,
    p50_ms=_NUMBER_OR_NULL,
    p95_ms=_NUMBER_OR_NULL,
    open_streams=_COUNT,
)
_SINCE: Final = Parameter(
    name="since",
    param_in="query",
    schema=_STRING,
    description="The `version` of an earlier answer: only what is different since; else everything.",
)

AGENTS: Final = described(
    _object(
        at=_TIME,
        version=_STRING,
        complete=_BOOLEAN,
        window_seconds=_NUMBER,
        ttl_seconds=_NUMBER,
        suspects_itself=_BOOLEAN,
        gone=_list(_STRING),
        agents=_list(_ROW),
    ),
    [],
    parameters=(_SINCE,),
)
AGENT: Final = described(
    _object(
        at=_TIME,
        window_seconds=_NUMBER,
        agent=_ROW,
        totals=_object(calls=_COUNT, errors_by_code=_OBJECT, stream_events=_COUNT),
    ),
    [404],
    parameters=(ID_IN_PATH,),
)
GATEWAY: Final = described(
    _object(
        version=_STRING,
        python=_STRING,
        host=_STRING,
        pid=_COUNT,
        started_at=_TIME,
        uptime_seconds=_NUMBER,
        phase=_STRING,
        status=_STATUS,
        suspects_itself=_BOOLEAN,
        addresses=_OBJECT,
        caller=_object(name=_STRING, authenticated=_BOOLEAN),
        settings=Schema(
            type=[OpenAPIType.ARRAY, OpenAPIType.NULL],
            items=_object(name=_STRING, value=Schema(), default=_BOOLEAN),
        ),
        limits=_list(
            _object(name=_STRING, setting=_TEXT_OR_NULL, used=_NUMBER, limit=_NUMBER_OR_NULL, unit=_STRING)
        ),
        faults=_list(
            _object(
                time=_TIME,
                agent=_STRING,
                method=_STRING,
                reason=_STRING,
                outcome=_STRING,
                status=_COUNT,
                duration_ms=_NUMBER,
                caller=_STRING,
                request_id=_STRING,
            )
        ),
    ),
    [],
)
