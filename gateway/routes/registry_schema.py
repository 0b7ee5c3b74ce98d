"""How the registry's routes are described in the OpenAPI document: their bodies are read and written by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from litestar.openapi.spec import OpenAPIMediaType, OpenAPIResponse, Operation, Parameter, RequestBody, Schema
from litestar.openapi.spec.enums import OpenAPIFormat, OpenAPIType

_STRING: Final = Schema(type=OpenAPIType.STRING)
_STRINGS: Final = Schema(type=OpenAPIType.ARRAY, items=_STRING)
_OBJECT: Final = Schema(type=OpenAPIType.OBJECT)
_TIME: Final = Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.DATE_TIME)
_OK: Final = Schema(type=OpenAPIType.BOOLEAN, const=True)
_ID: Final = Schema(type=OpenAPIType.STRING, pattern="^[a-z0-9][a-z0-9-]{0,126}[a-z0-9]$")


def _object(required: list[str], **properties: Schema) -> Schema:
    return Schema(type=OpenAPIType.OBJECT, required=required, properties={**properties})


_SKILL: Final = _object(["id", "name"], id=_STRING, name=_STRING, tags=_STRINGS)
_CARD: Final[dict[str, Schema]] = {
    "agent_id": _ID,
    "name": Schema(type=OpenAPIType.STRING, min_length=1, max_length=256),
    "url": Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.URL, max_length=2048),
    "description": Schema(type=OpenAPIType.STRING, max_length=2048),
    "version": Schema(type=OpenAPIType.STRING, max_length=64),
    "skills": Schema(type=OpenAPIType.ARRAY, items=_SKILL),
    "capabilities": _OBJECT,
    "metadata": _OBJECT,
    "defaultInputModes": _STRINGS,
    "defaultOutputModes": _STRINGS,
    "protocolVersions": _STRINGS,
}
_REQUIRED: Final = ["agent_id", "name", "url"]
_SERVER_SET: Final = {"registered_by": _STRING, "registered_at": _TIME, "last_seen": _TIME}

CARD: Final = _object(_REQUIRED, **_CARD)
REGISTERED: Final = _object([*_REQUIRED, *_SERVER_SET], **_CARD, **_SERVER_SET)
_HEALTH: Final = _object(["status", "routing", "checked_at"], status=_STRING, routing=_STRING, checked_at=_TIME)
SHOWN: Final = _object([*_REQUIRED, *_SERVER_SET], **_CARD, **_SERVER_SET, health=_HEALTH)
LISTING: Final = Schema(type=OpenAPIType.ARRAY, items=SHOWN)
AGENT_ID: Final = _object(["agent_id"], agent_id=_ID)
DONE: Final = _object(["ok"], ok=_OK)
LEASE: Final = _object(
    ["ok", "agent_id", "last_seen", "ttl_seconds"],
    ok=_OK,
    agent_id=_ID,
    last_seen=_TIME,
    ttl_seconds=Schema(type=OpenAPIType.NUMBER),
)
ERROR: Final = _object(
    ["error"],
    error=_STRING,
    details=Schema(type=OpenAPIType.ARRAY, items=_object(["field", "message"], field=_STRING, message=_STRING)),
)

ID_IN_PATH: Final = Parameter(name="agent_id", param_in="path", required=True, schema=_ID)
SELECTION: Final = (
    Parameter(
        name="skill_tags",
        param_in="query",
        schema=_STRING,
        description="Only agents with a skill that bears one of these comma-separated tags; empty: all.",
    ),
    Parameter(
        name="q",
        param_in="query",
        schema=_STRING,
        description="Only agents with this text in id, name, description or skills, in any case; empty: all.",
    ),
    Parameter(
        name="health",
        param_in="query",
        schema=_STRING,
        description="Only agents with one of these comma-separated statuses; empty: all.",
    ),
    Parameter(
        name="limit",
        param_in="query",
        schema=Schema(type=OpenAPIType.INTEGER, minimum=1),
        description="Only the first so many.",
    ),
)
_ERRORS: Final = {
    400: "The request is malformed; `details` names every violation.",
    403: "The agent belongs to another principal.",
    404: "No such agent, or it has expired.",
    409: "The registry is full.",
    413: "The body is too large.",
    503: "The registry's store is out; try again after `Retry-After` seconds.",
}


def described(
    answer: Schema, errors: list[int], *, body: Schema | None = None, parameters: tuple[Parameter, ...] = ()
) -> type[Operation]:
    """Make an `operation_class` for a handler.

    Args:
        answer: What a 200 holds.
        errors: Statuses of the errors it gives.
        body: What it reads.
        parameters: From the path and the query.
    """
    answers = {"200": _response("Done.", answer)}
    answers |= {str(status): _response(_ERRORS[status], ERROR) for status in errors}
    members: dict[str, Any] = {"responses": answers, "parameters": [*parameters] or None}
    if body is not None:
        members["request_body"] = RequestBody(content=_json(body), required=True)

    @dataclass
    class Described(Operation):
        def __post_init__(self) -> None:
            for name, value in members.items():
                setattr(self, name, value)

    return Described


def _response(text: str, schema: Schema) -> OpenAPIResponse:
    return OpenAPIResponse(description=text, content=_json(schema))


def _json(schema: Schema) -> dict[str, OpenAPIMediaType]:
    return {"application/json": OpenAPIMediaType(schema=schema)}
