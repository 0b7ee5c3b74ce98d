"""How the handoff inspector's routes are described in the OpenAPI document."""

from __future__ import annotations

from typing import Final

from litestar.openapi.spec import Schema
from litestar.openapi.spec.enums import OpenAPIFormat, OpenAPIType

from gateway import handoff_examples as examples
from gateway.handoff_form import CREDENTIALS, MOST_MS, POLICIES
from gateway.routes.registry_schema import described
from healthcheck.card import VERSIONS
from healthcheck.handoff import GATES

_STRING: Final = Schema(type=OpenAPIType.STRING)
_MAYBE: Final = Schema(type=[OpenAPIType.STRING, OpenAPIType.NULL])
_COUNT: Final = Schema(type=OpenAPIType.INTEGER, minimum=0)
_NUMBER: Final = Schema(type=[OpenAPIType.INTEGER, OpenAPIType.NULL])
_FLAG: Final = Schema(type=OpenAPIType.BOOLEAN)
_OBJECT: Final = Schema(type=OpenAPIType.OBJECT)
_MAYBE_OBJECT: Final = Schema(type=[OpenAPIType.OBJECT, OpenAPIType.NULL])


def _object(required: list[str], **properties: Schema) -> Schema:
    return Schema(
        type=OpenAPIType.OBJECT, required=required, properties={**properties}, additional_properties=False
    )


def _list(items: Schema) -> Schema:
    return Schema(type=OpenAPIType.ARRAY, items=items)


def _words(*words: str) -> Schema:
    return Schema(type=OpenAPIType.STRING, enum=[*words])


def _milliseconds(least: int, default: int) -> Schema:
    return Schema(type=OpenAPIType.INTEGER, minimum=least, maximum=MOST_MS, default=default)


_ANSWER: Final = Schema(
    description="null: a dry run. A fixture is an answer that nobody gives; an agent is really sent the task.",
    any_of=[
        Schema(type=OpenAPIType.NULL),
        _object(
            ["fixture"],
            fixture=_words(*examples.FIXTURES),
            delay_ms=_milliseconds(0, examples.PEER_DELAY_MS),
        ),
        _object(["agent_id"], agent_id=Schema(type=OpenAPIType.STRING, description="A registered agent's id.")),
    ],
)
_FORM: Final = _object(
    ["card", "destination", "skill"],
    card=Schema(type=OpenAPIType.STRING, description="The card's text, which need not be JSON; at most 256 KiB."),
    destination=Schema(
        type=OpenAPIType.STRING,
        format=OpenAPIFormat.URI,
        description="The origin that is meant: the one allowed, and the one the credential belongs to.",
    ),
    skill=Schema(type=OpenAPIType.STRING, min_length=1, max_length=256),
    policy=_words(*POLICIES),
    credential=_words(*CREDENTIALS),
    public=_FLAG,
    protocol_version=_words(*VERSIONS),
    text=_STRING,
    deadline_ms=_milliseconds(1, 30_000),
    answer=_ANSWER,
)

_GATE: Final = Schema(
    type=OpenAPIType.OBJECT,
    required=["gate", "result"],
    properties={
        "gate": _words(*GATES),
        "result": _words("pass", "stop", "not reached"),
        "reason": _STRING,
        "looked_at": _OBJECT,
    },
)
_TRACE: Final = _object(
    ["gates", "sends", "destination", "credential_exposed", "final_state", "artifact", "task_id", "request"],
    gates=_list(_GATE),
    sends=_COUNT,
    destination=_MAYBE,
    credential_exposed=_FLAG,
    final_state=_STRING,
    artifact=_words("none", "accepted"),
    task_id=_MAYBE,
    request=_MAYBE_OBJECT,
)
_RESPONSE: Final = Schema(
    type=[OpenAPIType.OBJECT, OpenAPIType.NULL],
    properties={
        "status": _NUMBER,
        "failure": _MAYBE,
        "elapsed_ms": _COUNT,
        "body": _MAYBE,
        "truncated": _FLAG,
    },
)

TRACE: Final = described(
    _object(
        ["trace", "simulated", "response", "artifact_text", "remedy"],
        trace=_TRACE,
        simulated=_FLAG,
        response=_RESPONSE,
        artifact_text=_MAYBE,
        remedy=_MAYBE,
    ),
    [400, 403, 404, 413],
    body=_FORM,
)
_NAMED: Final = _list(_object(["id", "label"], id=_STRING, label=_STRING))
EXAMPLES: Final = described(
    _object(
        ["cards", "fixtures", "deadlines_ms", "defaults"],
        cards=_list(_object(["id", "label", "card"], id=_STRING, label=_STRING, card=_STRING)),
        fixtures=_NAMED,
        deadlines_ms=_OBJECT,
        defaults=_FORM,
    ),
    [],
)
