"""How a stream ends, over sockets: each row of contract 3.5, and its timers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.running import Running, eventually, running
from tests.fakes.stream_client import CALL, Door, Event, Headers, opened
from tests.fakes.stream_reply import End, Step, sse

DOORS: tuple[Door, ...] = ("direct", "asgi")
AT_ONCE = 1.8
"""Seconds: less than the grace after a final event."""
A2A_CALLER: Headers = [("A2A-Version", "1.0")]
ENVELOPE: Headers = [("X-Stream-Format", "envelope")]


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def rpc(result: Any) -> bytes:
    return event({"jsonrpc": "2.0", "id": 7, "result": result})


def update(state: str, *, final: bool | None = None) -> bytes:
    flag = {} if final is None else {"final": final}
    return rpc({"kind": "status-update", "status": {"state": state}, **flag})


WORKING = update("working", final=False)
COMPLETED = update("completed", final=True)
FAILED_V1 = rpc({"statusUpdate": {"taskId": "t", "status": {"state": "TASK_STATE_FAILED"}}})
PROGRESS = b'event: task.status\ndata: {"type":"status_update"}\n\n'
DONE = b'event: task.done\ndata: {"ok":1}\n\n'
ERROR = b'event: task.error\ndata: {"code":1}\n\n'


@pytest.fixture
async def agent() -> AsyncIterator[FaultAgent]:
    async with FaultAgent() as fake:
        yield fake


@asynccontextmanager
async def serving(agent: FaultAgent, **a2a: Any) -> AsyncIterator[Running]:
    async with running(a2a=a2a) as it:
        await it.register(agent)
        yield it


@pytest.fixture
async def gateway(agent: FaultAgent) -> AsyncIterator[Running]:
    async with serving(agent) as it:
        yield it


async def ended(gateway: Running, status: str, method: str = "message/stream") -> None:
    """Everything is free again, and the stream was counted once, with that status."""
    await eventually(lambda: not gateway.lifecycle.in_flight)
    assert await gateway.metric("kubemq_a2a_sse_streams_active") == 0
    labels = {"agent_id": "echo", "method": method, "status": status}
    assert await gateway.metric("kubemq_a2a_requests_total", **labels) == 1
    page = (await gateway.client.get("/metrics")).text
    assert page.count("kubemq_a2a_requests_total{") == 1


# --- the agent says how the work ended ---


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("last", "status"), [(DONE, "success"), (ERROR, "application_error")])
async def test_terminal_envelopes_close_both_sides(
    last: bytes, status: str, door: Door, gateway: Running, agent: FaultAgent
) -> None:
    """Contract 3.5, row 1; pitfall 73: at once, whatever the agent still has to say."""
    agent.next(sse(PROGRESS, last + DONE + PROGRESS, b": ping\n\n", end="hang"))
    async with opened(gateway.port, door=door) as stream:
        assert [event.name for event in await stream.rest(AT_ONCE)] == [
            "task.status",
            last[7:].split(b"\n")[0].decode(),
        ]
    await agent.closed(1)
    await ended(gateway, status)


FINALS = {
    "0.3 final": (COMPLETED, "success"),
    "0.3 final, input required": (update("input-required", final=True), "success"),
    "0.3 failed": (update("failed", final=True), "application_error"),
    "1.0 failed": (FAILED_V1, "application_error"),
    "1.0 completed": (rpc({"task": {"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}}}), "success"),
    "message": (rpc({"kind": "message", "parts": []}), "success"),
    "1.0 message": (rpc({"message": {"parts": []}}), "success"),
    "error": (event({"jsonrpc": "2.0", "id": 7, "error": {"code": -32001, "message": "m"}}), "application_error"),
}


@pytest.mark.parametrize("name", FINALS)
async def test_final_events_and_a_clean_close(name: str, gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.5, row 2: passed on unchanged; the agent's own close ends it at once."""
    last, status = FINALS[name]
    agent.next(sse(WORKING, last))
    async with opened(gateway.port) as stream:
        assert b"".join(stream.pieces) == b""
        assert [event.text + b"\n\n" for event in await stream.rest(AT_ONCE)] == [WORKING, last]
    await ended(gateway, status)


async def test_an_agent_that_stays_after_its_final_event(agent: FaultAgent) -> None:
    """Contract 3.5, row 2; pitfall 73: closed 2 s after the last event; comments are no events."""
    loop = asyncio.get_running_loop()
    async with serving(agent, keepalive_seconds=0.7) as gateway:
        pings: list[Step] = [step for _ in range(20) for step in (0.3, b": ping\n\n")]
        agent.next(sse(COMPLETED, 1.0, WORKING, *pings, end="hang"))
        async with opened(gateway.port) as stream:
            await stream.event()
            await stream.event()
            begun = loop.time()
            assert await stream.rest() == []
            assert 1.5 <= loop.time() - begun < 3
            assert stream.keepalives >= 5
        assert await agent.closed(1) - begun < 3
        await ended(gateway, "success")


async def test_a_break_after_the_final_event_is_no_failure(gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.5, row 2: the event has said how the work ended."""
    agent.next(sse(update("canceled", final=True), end="reset"))
    async with opened(gateway.port) as stream:
        assert len(await stream.rest(AT_ONCE)) == 1
    await ended(gateway, "application_error")


async def test_a_clean_end_after_a2a_events(gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.5, row 3: nothing is made up."""
    agent.next(sse(WORKING, WORKING))
    async with opened(gateway.port) as stream:
        assert [event.text + b"\n\n" for event in await stream.rest(AT_ONCE)] == [WORKING, WORKING]
    await ended(gateway, "success")


# --- it says nothing: never made-up success ---


def check(error: Event, reason: str, code: int, form: str) -> dict[str, Any]:
    """An error event that the gateway made, in the format it must have; gives its metadata."""
    assert error.name == "task.error"
    value = error.json()
    if form == "rpc":
        assert (list(value), value["jsonrpc"], value["id"]) == (["jsonrpc", "id", "error"], "2.0", 7)
        problem = value["error"]
    else:
        assert (list(value), value["type"]) == (["stream_id", "type", "payload"], "error")
        problem = value["payload"]
    assert list(problem) == ["code", "message", "data"]
    [info] = problem["data"]
    assert (problem["code"], info["reason"], info["domain"]) == (code, reason, "vitalgate")
    metadata: dict[str, Any] = info["metadata"]
    assert (metadata["source"], metadata["reason"], metadata["agentId"]) == ("gateway", reason, "echo")
    assert (metadata["executed"], metadata["category"]) == ("false", "transport")
    return metadata


FAILING: dict[str, tuple[tuple[Step, ...], End, str, Headers, str]] = {
    "envelope without end": ((PROGRESS,), "clean", "STREAM_INCOMPLETE", (), "envelope"),
    "no event": ((), "clean", "STREAM_INCOMPLETE", (), "rpc"),
    "no event, envelope wanted": ((), "clean", "STREAM_INCOMPLETE", ENVELOPE, "envelope"),
    "only comments": ((b": ping\n\n",), "clean", "STREAM_INCOMPLETE", (), "rpc"),
    "envelope after A2A": ((WORKING, PROGRESS), "clean", "STREAM_INCOMPLETE", (), "envelope"),
    "FIN in mid-stream": ((WORKING, b"data: {}"), "close", "STREAM_BROKEN", (), "rpc"),
    "RST in mid-stream": ((WORKING, b"data: {}"), "reset", "STREAM_BROKEN", (), "rpc"),
    "RST, envelope": ((PROGRESS, b"event: task.done\ndata: {}\n"), "reset", "STREAM_BROKEN", (), "envelope"),
    "RST before any event": ((b"data: {}",), "reset", "STREAM_BROKEN", (), "rpc"),
    "FIN, A2A events wanted in the envelope": ((WORKING,), "close", "STREAM_BROKEN", ENVELOPE, "envelope"),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", FAILING)
async def test_unfinished_streams_end_in_an_error(
    name: str, door: Door, gateway: Running, agent: FaultAgent
) -> None:
    """Contract 3.5, rows 4 and 5; pitfall 71: what was whole stays, half an event is dropped, one `task.error`."""
    steps, end, reason, headers, form = FAILING[name]
    agent.next(sse(*steps, end=end))
    async with opened(gateway.port, door=door, headers=headers) as stream:
        *before, error = await stream.rest(AT_ONCE)
    whole = [step for step in steps if step in (WORKING, PROGRESS)]
    assert len(before) == len(whole)
    assert check(error, reason, -32603, form)["retry"] == "unsafe"
    assert await gateway.metric("kubemq_a2a_errors_total", agent_id="echo", error_code="-32603") == 1
    await ended(gateway, "transport_error")


async def test_broken_framing_is_a_broken_stream(gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.5, row 5."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    agent.next(reply.raw(head + b"%x\r\n%b\r\nnot a size" % (len(WORKING), WORKING)))
    async with opened(gateway.port) as stream:
        first, error = await stream.rest(AT_ONCE)
    assert first.text + b"\n\n" == WORKING
    check(error, "STREAM_BROKEN", -32603, "rpc")


# --- the idle limit ---

IDLE: dict[str, tuple[tuple[Step, ...], Headers, int, str]] = {
    "before any event": ((), (), -32001, "rpc"),
    "before any event, A2A caller": ((), A2A_CALLER, -32603, "rpc"),
    "after an A2A event": ((WORKING,), (), -32001, "rpc"),
    "after an envelope": ((PROGRESS,), (), -32001, "envelope"),
    "after an envelope, A2A caller": ((PROGRESS,), A2A_CALLER, -32603, "envelope"),
    "comments": ((WORKING, *[step for _ in range(60) for step in (0.05, b": ping\n\n")]), (), -32001, "rpc"),
    "an unfinished event": (
        (WORKING, *[step for _ in range(60) for step in (0.05, b"data: x\n")]),
        (),
        -32001,
        "rpc",
    ),
}


@pytest.mark.parametrize("name", IDLE)
async def test_silence_ends_at_the_idle_limit(name: str, agent: FaultAgent) -> None:
    """Contract 3.5, row 6: neither keepalives, nor comments, nor bytes of an unfinished event reset the clock."""
    steps, headers, code, form = IDLE[name]
    async with serving(agent, max_sse_idle_seconds=0.4, keepalive_seconds=0.1) as gateway:
        agent.next(sse(*steps, end="hang"))
        async with opened(gateway.port, headers=headers) as stream:
            begun = asyncio.get_running_loop().time()
            *before, error = await stream.rest()
            assert 0.2 <= asyncio.get_running_loop().time() - begun < 1.5
            assert len(before) == bool(steps)
            assert stream.keepalives >= 1
            assert check(error, "STREAM_IDLE", code, form)["retry"] == "unsafe"
        await agent.closed(1)
        assert await gateway.metric("kubemq_a2a_errors_total", agent_id="echo", error_code="-32001") == 1
        await ended(gateway, "transport_error")


async def test_complete_events_reset_the_idle_clock(agent: FaultAgent) -> None:
    """Contract 3.5, row 6: a stream may take much longer than the limit."""
    async with serving(agent, max_sse_idle_seconds=0.6) as gateway:
        agent.next(sse(*[step for _ in range(5) for step in (0.25, PROGRESS)], DONE))
        async with opened(gateway.port) as stream:
            assert [event.name for event in await stream.rest()] == ["task.status"] * 5 + ["task.done"]


# --- keepalives ---


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_keepalives_from_the_beginning(version: str, door: Door, agent: FaultAgent) -> None:
    """Contract 3.5; pitfall 75: also before the first event, and between events, at the interval."""
    if (version, door) == ("1.0", "asgi"):
        door = "direct"  # HTTP/1.0 knows no chunked requests; it takes the ASGI way in any case
    loop = asyncio.get_running_loop()
    async with serving(agent, keepalive_seconds=0.1) as gateway:
        go = asyncio.Event()
        agent.next(sse(go, PROGRESS, end="hang"))
        async with opened(gateway.port, door=door, version=version) as stream:
            begun = loop.time()
            await stream.silence(until=3)
            assert 0.2 <= loop.time() - begun < 0.9
            go.set()
            assert (await stream.event()).name == "task.status"
            begun = loop.time()
            await stream.silence(until=stream.keepalives + 2)
            assert 0.1 <= loop.time() - begun < 0.8


async def test_no_keepalive_while_events_flow(agent: FaultAgent) -> None:
    """Contract 3.5: it follows silence only."""
    async with serving(agent, keepalive_seconds=0.4) as gateway:
        agent.next(sse(*[step for _ in range(12) for step in (0.05, PROGRESS)], DONE))
        async with opened(gateway.port) as stream:
            assert len(await stream.rest()) == 13
            assert stream.keepalives == 0


# --- shutdown ---


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("form", ["rpc", "envelope"])
async def test_shutdown_is_told_after_the_drain(form: str, door: Door, agent: FaultAgent) -> None:
    """Contract 3.5, row 7, and 8; pitfall 97: not safe to send again, since the agent has begun."""
    loop = asyncio.get_running_loop()
    async with running(server={"drain_seconds": 0.3}) as gateway:
        await gateway.register(agent)
        agent.next(sse(WORKING if form == "rpc" else PROGRESS, end="hang"))
        async with opened(gateway.port, door=door) as stream:
            await stream.event()
            gateway.lifecycle.stop()
            begun = loop.time()
            [error] = await stream.rest()
            assert 0.25 <= loop.time() - begun < 2
            assert check(error, "GATEWAY_SHUTDOWN", -32603, form)["retry"] == "unsafe"
            assert await stream.reader.read() == b""
        await agent.closed(1)
        assert len(agent.requests) == 1


async def test_streams_finish_within_the_drain(agent: FaultAgent) -> None:
    """Contract 8: new calls are refused, open streams go on and end as the agent ends them."""
    async with running(server={"drain_seconds": 10}) as gateway:
        await gateway.register(agent)
        go = asyncio.Event()
        agent.next(sse(PROGRESS, go, PROGRESS, DONE))
        async with opened(gateway.port) as stream:
            await stream.event()
            gateway.lifecycle.stop()
            await eventually(lambda: gateway.lifecycle.refusing)
            refused = await gateway.call(CALL)
            assert refused.headers["x-gateway-error"] == "GATEWAY_SHUTDOWN"
            go.set()
            assert [event.name for event in await stream.rest(AT_ONCE)] == ["task.status", "task.done"]
        async with asyncio.timeout(2):  # nothing is left to wait for
            await asyncio.shield(gateway.tasks[0])
