"""Whatever JSON a peer sends, the readers judge it and never raise anything else (pitfalls 123 and 131)."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from healthcheck.adapters import ADAPTERS
from healthcheck.card import V03, V10, CardFault, read_card
from healthcheck.exchange import Evidence, Reply
from healthcheck.handoff import Question, judge
from healthcheck.model import A2AFunctional, A2AOptions, AgentOptions, Check, Measurement, Target
from healthcheck.rpc import Malformed, get_task, read_answer, read_sent, read_task
from healthcheck.url import Origin, parse_url
from tests.fakes.health_peer import DOCUMENT, card_03, card_10

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        ["", " ", "1.0", "0.3.0", "JSONRPC", "http://h/", "https://h/", "text/plain", "task", "bearer"]
    ),
    st.text(max_size=5),
)
KEYS = st.sampled_from(
    [
        "id",
        "name",
        "url",
        "schemes",
        "scheme",
        "type",
        "extensions",
        "required",
        "uri",
        "streaming",
        "tags",
        "inputModes",
        "tenant",
        "status",
        "state",
        "artifacts",
        "parts",
        "text",
        "kind",
        "role",
        "messageId",
        "task",
        "message",
        "code",
        "data",
        "metadata",
        "source",
    ]
)
JSON = st.recursive(
    LEAVES,
    lambda below: st.one_of(st.lists(below, max_size=3), st.dictionaries(KEYS, below, max_size=3)),
    max_leaves=8,
)
STATES = {"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [{"parts": [{"text": "x"}]}]}
MORE = {
    "securitySchemes": {"b": {"type": "http", "scheme": "bearer"}},
    "security": [{"b": []}],
    "securityRequirements": [{"schemes": {"b": {"list": []}}}],
}


@st.composite
def broken(draw: st.DrawFn, *documents: Any) -> Any:
    """One of the documents, with any JSON in one to three places."""
    document = json.loads(json.dumps(draw(st.sampled_from(documents))))
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(document))
        owner, key = draw(st.sampled_from(places))
        if draw(st.booleans()) or isinstance(owner, list):
            owner[key] = draw(JSON)
        else:
            del owner[key]
        if not list(_places(document)):
            break
    return document


def _places(value: Any) -> list[tuple[Any, Any]]:
    pairs = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    return [place for key, one in pairs for place in [(value, key), *_places(one)]]


@settings(max_examples=400, deadline=None, derandomize=True)
@given(broken({**card_10("https://h/"), **MORE}, {**card_03("https://h/"), **MORE}))
def test_cards(document: Any) -> None:
    for version in (V10, V03):
        with contextlib.suppress(CardFault):
            read_card(document, version).select(version)
        question = Question("echo", origins=(Origin("https", "h", 443),), public=True, version=version)
        trace, _ = judge(question, json.dumps(document).encode(), {})
        assert trace.final_state


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    broken(STATES, {"task": STATES}, {"message": {"messageId": "m", "role": "agent", "parts": [{"text": "x"}]}})
)
def test_results(value: Any) -> None:
    for version in (V10, V03):
        for read in (read_task, read_sent):
            with contextlib.suppress(Malformed):
                read(value, version)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    broken(
        {
            "jsonrpc": "2.0",
            "id": "x",
            "error": {"code": -32001, "message": "m", "data": [{"metadata": {"source": "a"}}]},
        }
    )
)
def test_envelopes(value: Any) -> None:
    call = get_task(V10, None)
    with contextlib.suppress(Malformed):
        read_answer(json.dumps(value).encode(), call)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(broken({"document": DOCUMENT, "task": {"completed": True, "success": True, "downstream": "x"}}))
def test_sessions(value: Any) -> None:
    """The adapters themselves, with any JSON as every answer."""
    body = json.dumps(value.get("document") if isinstance(value, dict) else value).encode()
    reply = Reply(200, httpx.Headers({"content-type": "application/json"}), body)
    evidence = {
        key: Evidence(reply, None, Measurement(), True)
        for key in ("head", "document", "task", "card", "rpc", "send", "response")
    }
    for kind in ("a2a", "agent", "http"):
        target = Target(
            type=kind,
            endpoint="https://h/",
            a2a=A2AOptions(functional=A2AFunctional("x")),
            agent=AgentOptions(required_capabilities=("answer",)),
        )
        session = ADAPTERS[kind].open(target, parse_url("https://h/"), "token", evidence)
        for check in ADAPTERS[kind].checks:
            if check not in {Check.CONFIGURATION, Check.LATENCY, Check.DEPENDENCY}:
                session.ask(check)
                assert session.judge(check).status
