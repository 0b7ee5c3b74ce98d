"""What is a stream and what its answer looks like, over sockets: contract 3.1 and 3.2."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.fakes import reply
from tests.fakes.agent import Behaviour, FaultAgent
from tests.fakes.running import Running, eventually, running
from tests.fakes.stream_client import CALL, Door, calling, opened, request
from tests.fakes.stream_reply import SSE, sse

WORKING = b'{"jsonrpc":"2.0","id":7,"result":{"kind":"status-update","status":{"state":"working"},"final":false}}'
DONE = b'event: task.done\ndata: {"ok":1}\n\n'
A2A = b"data: " + WORKING + b"\n\n"
ANSWER = b'{"jsonrpc":"2.0","id":7,"result":{}}'
DOORS: tuple[Door, ...] = ("direct", "asgi")


@pytest.fixture
async def agent() -> AsyncIterator[FaultAgent]:
    async with FaultAgent() as fake:
        yield fake


@pytest.fixture
async def gateway(agent: FaultAgent) -> AsyncIterator[Running]:
    async with running(a2a={"agent_max_concurrency": 2}) as it:
        await it.register(agent)
        yield it


def call(method: str) -> bytes:
    return CALL.replace(b"message/stream", method.encode())


async def idle(gateway: Running) -> bool:
    """Nothing is held any more: neither gauge, nor slot, nor count of calls in flight."""
    await eventually(lambda: not gateway.lifecycle.in_flight)
    return await gateway.metric("kubemq_a2a_sse_streams_active") == 0


# --- 3.1: what is a stream ---


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "method",
    ["message/stream", "tasks/resubscribe", "SendStreamingMessage", "SubscribeToTask", "message/send", "x"],
)
async def test_the_agents_answer_decides(method: str, door: Door, gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.1: whatever the method was; pitfall 56: `message/send` answered with events does not hang."""
    agent.next(sse(A2A, DONE))
    async with opened(gateway.port, call(method), door=door) as stream:
        assert (await stream.rest())[0].data == WORKING
    assert (await agent.received(1)).body == call(method)


@pytest.mark.parametrize(
    "kind", ["text/event-stream;charset=utf-8", "Text/Event-Stream", "text/event-stream ; charset=latin-1; x=y"]
)
async def test_any_spelling_of_the_content_type(kind: str, gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.1: any case, any parameters, always UTF-8."""
    agent.next(sse('event: task.done\ndata: "é"\n\n'.encode(), headers=[("Content-Type", kind)]))
    async with opened(gateway.port) as stream:
        assert (await stream.event()).json()["payload"] == "é"


@pytest.mark.parametrize("status", [200, 201, 202, 206])
async def test_any_success_may_be_a_stream(status: int, gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.1: 2xx; the caller gets 200 (3.2)."""
    agent.next(sse(DONE, status=status))
    async with opened(gateway.port) as stream:
        assert stream.status == 200


@pytest.mark.parametrize(
    ("method", "accept"),
    [
        *((name, ["text/event-stream, application/json"]) for name in ("message/stream", "tasks/resubscribe")),
        *((name, ["text/event-stream, application/json"]) for name in ("SendStreamingMessage", "SubscribeToTask")),
        ("message/send", ["*/*"]),
    ],
)
async def test_what_streaming_methods_accept(
    method: str, accept: list[str], gateway: Running, agent: FaultAgent
) -> None:
    """Contract 3.1; whatever the caller said for its own leg."""
    async with calling(gateway.port, request(call(method), headers=[("Accept", "*/*")])):
        assert (await agent.received(1)).values("accept") == accept


HTML = [("Content-Type", "text/html")]
NDJSON = [("Content-Type", "application/x-ndjson")]
HALF = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
BEFORE: dict[str, tuple[Behaviour, str, int]] = {
    "401 JSON": (reply.json({"error": "who?"}, status=401), "AGENT_HTTP_ERROR", -32603),
    "404 empty": (reply.body(b"", status=404), "AGENT_HTTP_ERROR", -32603),
    "500 that says event-stream": (reply.body(A2A, status=500, headers=SSE), "AGENT_HTTP_ERROR", -32603),
    "503 HTML": (reply.body(b"<html>", status=503, headers=HTML), "AGENT_UNAVAILABLE", -32003),
    "NDJSON": (reply.body(ANSWER + b"\n" + ANSWER, headers=NDJSON), "INVALID_RESPONSE", -32004),
    "HTML": (reply.body(b"<html>", headers=HTML), "INVALID_RESPONSE", -32004),
    "reset": (reply.reset(), "CONNECTION_LOST", -32003),
    "half a head": (reply.close(HALF), "CONNECTION_LOST", -32003),
    "silence": (reply.hang(), "AGENT_TIMEOUT", -32001),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", BEFORE)
async def test_failures_before_it_opens(name: str, door: Door, gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.1; pitfalls 81, 83: nothing is committed before the agent's status line is judged."""
    behaviour, reason, code = BEFORE[name]
    agent.always(behaviour)
    timeout = b"0.3" if name == "silence" else b"10"
    body = CALL.replace(b'"params":{}', b'"params":{"configuration":{"timeout":%b}}' % timeout)
    for _ in range(3):  # one more than there are slots
        async with calling(gateway.port, request(body, door=door)) as answer:
            await answer.head()
            error = json.loads(await answer.body())
            assert (answer.status, answer.header("content-type")) == (200, "application/json")
            assert answer.header("x-gateway-error") == reason
            assert (error["id"], error["error"]["code"]) == (7, code)
    assert await idle(gateway)


@pytest.mark.parametrize(
    "answer",
    [
        b'{"jsonrpc":"2.0","id":7,"error":{"code":-32004,"message":"no streaming","data":[1]}}',
        b' {"jsonrpc":"2.0", "id":7,"result":{"kind":"task"}}',
    ],
)
async def test_an_answer_that_is_no_stream(answer: bytes, gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.1; pitfall 80: relayed as in 2.4, byte for byte."""
    agent.always(reply.body(answer))
    response = await gateway.call(CALL)
    assert (response.content, response.headers["content-type"]) == (answer, "application/json")
    assert "x-gateway-error" not in response.headers


async def test_a_notification_has_no_stream(gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.1: 202 with an empty body once the outcome is known; nobody reads events."""
    agent.always(sse(A2A, end="hang"))
    response = await gateway.call(b'{"jsonrpc":"2.0","method":"message/stream"}')
    assert (response.status_code, response.content) == (202, b"")
    await agent.closed(1)
    assert await idle(gateway)


async def test_slots_survive_streams_that_never_open(gateway: Running, agent: FaultAgent) -> None:
    """Pitfall 88: refused ports, invalid params and 401 leave no slot behind."""
    await gateway.register("http://127.0.0.1:1/", "refused")
    for _ in range(3):
        assert (await gateway.call(CALL, "refused")).headers["x-gateway-error"] == "AGENT_UNREACHABLE"
    assert (await gateway.call(CALL.replace(b"{}", b"[]"))).headers["x-gateway-error"] == "INVALID_PARAMS"
    agent.next(reply.json({}, status=401))
    await gateway.call(CALL)
    agent.next(reply.body(ANSWER))
    assert (await gateway.call(CALL)).content == ANSWER
    assert await idle(gateway)


async def test_only_the_head_is_bounded_by_the_timeout(gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.1: T ends the wait for the headers; after that only the idle limit counts."""
    agent.next(sse(A2A, 0.6, DONE))
    body = CALL.replace(b'"params":{}', b'"params":{"configuration":{"timeout":0.3}}')
    async with opened(gateway.port, body) as stream:
        assert [event.name for event in await stream.rest()] == [None, "task.done"]


# --- 3.2: the answer ---


@pytest.mark.parametrize("door", DOORS)
async def test_the_head_of_a_stream(door: Door, gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.2, 2.5; pitfalls 77, 78: against buffering, whatever the agent or the caller says."""
    contrary = [
        *[("Content-Type", "text/event-stream; charset=utf-8"), ("Cache-Control", "public, max-age=60")],
        *[("X-Accel-Buffering", "yes"), ("Set-Cookie", "a=b"), ("X-Own", "1"), ("Server", "agent")],
        *[("X-Powered-By", "p"), ("A2A-Version", "1.0"), ("Keep-Alive", "timeout=9"), ("X-Gateway-Error", "FAKE")],
    ]
    agent.next(sse(A2A, end="hang", headers=contrary))
    headers = [("Accept-Encoding", "gzip, br"), ("X-Request-ID", "mine")]
    async with opened(gateway.port, door=door, headers=headers) as stream:
        assert stream.status == 200
        assert sorted(stream.headers) == sorted(
            [
                ("content-type", "text/event-stream"),
                ("cache-control", "no-cache, no-transform"),
                ("x-accel-buffering", "no"),
                ("transfer-encoding", "chunked"),
                ("x-request-id", "mine"),
                ("x-own", "1"),
                ("a2a-version", "1.0"),
                ("date", stream.header("date")),
            ]
        )
        assert (await stream.event()).data == WORKING
    assert (await agent.received(1)).values("accept-encoding") == ["identity"]


@pytest.mark.parametrize("door", DOORS)
async def test_events_come_at_once_whole_and_in_order(door: Door, gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.2: the agent waits for each event to have arrived before it sends the next."""
    go = [asyncio.Event() for _ in range(5)]
    steps: list[Any] = [step for n, told in enumerate(go) for step in (b"data: %d\n\n" % n, told)]
    agent.next(sse(*steps, DONE))
    async with opened(gateway.port, door=door) as stream:
        for n, told in enumerate(go):
            assert (await stream.event()).json()["payload"] == n
            told.set()
        assert [event.name for event in await stream.rest()] == ["task.done"]
        assert len(stream.pieces) == 6


async def test_only_whole_events_are_written(gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.2: a keepalive, and the end, never land inside one (the client of these tests insists)."""
    async with running(a2a={"keepalive_seconds": 0.05}) as quick:
        await quick.register(agent)
        agent.next(sse(b"data: {", 0.2, b'"a":\ndata:', 0.2, b"1}\n\n" + DONE))
        async with opened(quick.port) as stream:
            assert (await stream.event()).json()["payload"] == {"a": 1}
            assert stream.keepalives >= 4


async def test_http_1_0_callers_get_no_chunks(gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.2: the end of the connection ends the body."""
    agent.next(sse(A2A, DONE))
    async with opened(gateway.port, version="1.0", headers=[("Connection", "keep-alive")]) as stream:
        assert stream.header("transfer-encoding") is None
        assert stream.header("connection") == "close"
        assert [event.name for event in await stream.rest()] == [None, "task.done"]


@pytest.mark.parametrize("door", DOORS)
async def test_the_connection_serves_on_after_a_stream(door: Door, gateway: Running, agent: FaultAgent) -> None:
    """The end of a stream is an end of an answer like any other: the next request is heard."""
    agent.always(sse(A2A, DONE))
    async with calling(gateway.port, request(door=door)) as stream:
        for _ in range(3):
            await stream.head()
            assert len(await stream.rest()) == 2
            stream.ended = False
            stream.writer.write(request(door=door))
        await stream.head()


# --- 7 and 8: what is counted and logged ---


@pytest.mark.parametrize("door", DOORS)
async def test_metrics_of_a_stream(door: Door, gateway: Running, agent: FaultAgent) -> None:
    """Contract 7: a stream is counted at its end, with its outcome; events as they come."""
    go = asyncio.Event()
    agent.next(sse(A2A, 0.05, A2A, go, DONE))
    counted = {"agent_id": "echo", "method": "message/stream", "status": "success"}
    async with opened(gateway.port, door=door) as stream:
        await stream.event()
        await stream.event()
        assert await gateway.metric("kubemq_a2a_sse_streams_active") == 1
        assert await gateway.metric("kubemq_a2a_requests_total", **counted) is None
        assert await gateway.metric("vitalgate_stream_events_total", agent_id="echo") == 2
        assert await gateway.metric("vitalgate_time_to_first_event_seconds_count") == 1
        go.set()
        await stream.rest()
    assert await gateway.metric("kubemq_a2a_sse_streams_active") == 0
    assert await gateway.metric("kubemq_a2a_requests_total", **counted) == 1
    assert await gateway.metric("vitalgate_calls_total", method="message/stream", outcome="success") == 1
    assert await gateway.metric("vitalgate_stream_events_total", agent_id="echo") == 3
    assert await gateway.metric("vitalgate_time_to_first_event_seconds_count") == 1


async def test_the_log_line_of_a_stream(gateway: Running, agent: FaultAgent) -> None:
    """Contract 8: one line at the end, with the number of events and bytes, without their content."""
    agent.next(sse(b"data: hunter2\n\n", DONE))
    async with opened(gateway.port, headers=[("X-Request-ID", "r1")]) as stream:
        await stream.rest()
        size = sum(map(len, stream.pieces))
    agent.next(sse(A2A, end="close"))
    async with opened(gateway.port, headers=[("X-Request-ID", "r2")]) as stream:
        await stream.rest()
    gateway.lifecycle.stop()
    await gateway.tasks[0]
    await asyncio.sleep(0.2)  # the log is written by a thread, in batches of 50 ms
    lines = {line["request_id"]: line for line in gateway.lines() if line["event"] == "call"}
    fields = ("agent", "method", "outcome", "reason", "status", "events", "bytes_in", "bytes_out")
    assert [lines["r1"].get(name, "") for name in fields] == [
        "echo",
        "message/stream",
        "success",
        "",
        200,
        2,
        len(CALL),
        size,
    ]
    assert [lines["r2"][name] for name in fields[2:6]] == ["transport_error", "STREAM_BROKEN", 200, 1]
    assert "hunter2" not in gateway.log.read_text()
