"""Callers of streams that leave, stall, read slowly or come in numbers: contract 2.3, 3.5 (last rows) and 3.7."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fakes import reply
from tests.fakes.agent import Behaviour, FaultAgent
from tests.fakes.running import Running, eventually, running
from tests.fakes.stream_client import CALL, Door, calling, opened, request
from tests.fakes.stream_reply import sse

DOORS: tuple[Door, ...] = ("direct", "asgi")
A2A = b'data: {"jsonrpc":"2.0","id":7,"result":{"kind":"status-update","status":{"state":"working"}}}\n\n'
PROGRESS = b'event: task.status\ndata: {"type":"status_update"}\n\n'
DONE = b'event: task.done\ndata: {"ok":1}\n\n'


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


async def free(gateway: Running) -> None:
    """Nothing is held: no gauge, no slot, no call in flight, no connection at work."""
    await eventually(lambda: not gateway.lifecycle.in_flight)
    assert await gateway.metric("kubemq_a2a_sse_streams_active") == 0
    assert await gateway.metric("vitalgate_upstream_connections", state="active") == 0


async def count(gateway: Running, status: str) -> float | None:
    labels = {"agent_id": "echo", "method": "message/stream", "status": status}
    return await gateway.metric("kubemq_a2a_requests_total", **labels)


# --- leaving ---

STAGES: dict[str, Behaviour] = {
    "before the head": reply.hang(),
    "before the first event": sse(end="hang"),
    "while the agent is silent": sse(A2A, end="hang"),
    "between events": sse(*[step for _ in range(600) for step in (A2A, 0.02)], end="hang"),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("how", ["close", "half-close", "reset"])
@pytest.mark.parametrize("stage", STAGES)
async def test_a_caller_that_leaves(stage: str, how: str, door: Door, gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.3, 3.5; pitfalls 85, 86: upstream closed within 2 s, all is free, `cancelled` and no error."""
    agent.next(STAGES[stage])
    loop = asyncio.get_running_loop()
    async with calling(gateway.port, request(door=door)) as stream:
        await agent.received(1)
        if stage != "before the head":
            await stream.head()
            if stage != "before the first event":
                await stream.event()
        begun = loop.time()
        stream.leave(how)
        assert await agent.closed(1) - begun < 2
    await free(gateway)
    assert await count(gateway, "cancelled") == 1
    assert "kubemq_a2a_errors_total{" not in (await gateway.client.get("/metrics")).text
    assert len(agent.requests) == 1  # an agent of the A2A format is not sent `stream_cancel`


@pytest.mark.parametrize("door", DOORS)
async def test_a_caller_that_leaves_is_logged_as_such(door: Door, gateway: Running, agent: FaultAgent) -> None:
    """Pitfall 85; contract 8: one line, `cancelled`, not an error."""
    agent.next(sse(A2A, end="hang"))
    async with opened(gateway.port, door=door) as stream:
        await stream.event()
    await agent.closed(1)
    gateway.lifecycle.stop()
    await gateway.tasks[0]
    await asyncio.sleep(0.2)  # the log is written by a thread, in batches of 50 ms
    [line] = [line for line in gateway.lines() if line["event"] == "call"]
    assert (line["outcome"], line["level"], line["events"], line.get("reason", "")) == ("cancelled", "info", 1, "")


@pytest.mark.parametrize("door", [*DOORS, "GET"])
@pytest.mark.parametrize("how", ["reset", "close"])
async def test_200_that_reset_at_once(how: str, door: str, agent: FaultAgent) -> None:
    """Contract 2.3, issue: callers gone before the stream begins leave gauge, slots and counters at 0."""
    agent.always(sse(A2A, end="hang"))
    if door == "GET":
        data = request(None, path="/a2a/echo/stream")
    else:
        data = request(door="asgi" if door == "asgi" else "direct")
    async with serving(agent, agent_max_concurrency=200) as gateway:
        for _ in range(200):
            with socket.create_connection(("127.0.0.1", gateway.port)) as caller:
                caller.sendall(data)
                if how == "reset":
                    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await asyncio.sleep(0)
        await eventually(lambda: not agent.open_connections)
        await free(gateway)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_request_that_breaks_off_begins_nothing(method: str, gateway: Running, agent: FaultAgent) -> None:
    """Refused by the parser in the same read, before its handler has begun."""
    agent.always(sse(A2A, end="hang"))
    path = "/a2a/echo/stream" if method == "GET" else "/a2a/echo"
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nnot a size"
    async with calling(gateway.port, head.encode()) as answer:
        await answer.head()
        assert answer.status == 400
        assert (await gateway.client.get("/ready")).status_code == 200  # the handler has had its turn
        await free(gateway)
        assert agent.connections == []


# --- 3.7 ---


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("after", [reply.json({}), reply.reset(), reply.close()])
async def test_stream_cancel(after: Behaviour, door: Door, agent: FaultAgent) -> None:
    """Contract 3.7: one POST when a caller leaves an envelope stream; its result is ignored, it takes no slot."""
    async with serving(agent, agent_max_concurrency=1) as gateway:
        agent.next(sse(PROGRESS, end="hang"), after)
        async with opened(gateway.port, door=door, headers=[("X-Own", "1")]) as stream:
            stream_id = (await stream.event()).json()["stream_id"]
        await agent.closed(1)
        note = await agent.received(2)
        value = note.json()
        assert (note.method, note.header("content-type")) == ("POST", "application/json")
        assert list(value) == ["jsonrpc", "id", "method", "params"]
        assert value["method"] == "stream_cancel"
        assert value["params"] == {"stream_id": stream_id}
        assert isinstance(value["id"], str)
        await free(gateway)
        agent.next(sse(DONE))
        async with opened(gateway.port) as stream:
            await stream.rest()
        assert len(agent.requests) == 3
        assert await count(gateway, "cancelled") == 1


async def test_stream_cancel_is_bounded(gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.7: an agent that does not answer is left alone after 5 s, and not asked again."""
    agent.always(reply.hang())
    agent.next(sse(PROGRESS, end="hang"))
    async with opened(gateway.port) as stream:
        await stream.event()
    asked = (await agent.received(2)).at
    assert 4.8 < await agent.closed(2, within=7) - asked < 5.5
    assert len(agent.requests) == 2


@pytest.mark.parametrize("end", ["done", "broken", "idle"])
async def test_no_stream_cancel_for_streams_that_end(end: str, agent: FaultAgent) -> None:
    """Contract 3.7: it says that a caller has left, nothing else."""
    async with serving(agent, max_sse_idle_seconds=0.2) as gateway:
        behaviours = {
            "done": sse(PROGRESS, DONE),
            "broken": sse(PROGRESS, end="reset"),
            "idle": sse(PROGRESS, end="hang"),
        }
        agent.next(behaviours[end])
        async with opened(gateway.port) as stream:
            await stream.rest()
        await free(gateway)
        agent.next(sse(DONE))
        async with opened(gateway.port) as stream:  # whatever was to be sent is sent by now
            await stream.rest()
        assert [request.body for request in agent.requests] == [CALL, CALL]


# --- slots and gauge ---


@pytest.mark.parametrize("door", DOORS)
async def test_open_streams_hold_their_slots(door: Door, agent: FaultAgent) -> None:
    """Contract 2.3; pitfall 89: until the end of the body, not of the head."""
    async with serving(agent, agent_max_concurrency=1) as gateway:
        agent.always(sse(A2A, end="hang"))
        async with opened(gateway.port, door=door) as stream:
            await stream.event()
            for _ in range(3):
                busy = await gateway.call(CALL)
                assert busy.headers["x-gateway-error"] == "SERVER_BUSY"
                assert busy.json()["error"]["message"] == "server busy: concurrency limit reached"
            assert await gateway.metric("kubemq_a2a_sse_streams_active") == 1
        await agent.closed(1)
        await eventually(lambda: not gateway.lifecycle.in_flight)
        async with opened(gateway.port, door=door) as stream:
            await stream.event()


async def _reads_all(gateway: Running, door: Door) -> None:
    async with opened(gateway.port, door=door) as stream:
        await stream.rest()


async def _leaves_early(gateway: Running, door: Door) -> None:
    async with calling(gateway.port, request(door=door)):
        pass


async def _leaves_late(gateway: Running, door: Door) -> None:
    async with opened(gateway.port, door=door) as stream:
        await stream.event()


async def _gets_json(gateway: Running, door: Door) -> None:
    async with calling(gateway.port, request(door=door)) as answer:
        await answer.head()
        await answer.body()


ENDINGS: dict[str, tuple[Behaviour, Callable[[Running, Door], Awaitable[None]], str | None]] = {
    "done": (sse(A2A, DONE), _reads_all, "success"),
    "broken": (sse(A2A, end="reset"), _reads_all, "transport_error"),
    "incomplete": (sse(PROGRESS), _reads_all, "transport_error"),
    "idle": (sse(A2A, end="hang"), _reads_all, "transport_error"),
    "left early": (sse(0.1, A2A, end="hang"), _leaves_early, None),  # some before the request is read
    "left late": (sse(A2A, end="hang"), _leaves_late, "cancelled"),
    "unauthorized": (reply.json({}, status=401), _gets_json, "application_error"),
    "refused": (reply.reset(), _gets_json, "transport_error"),
}


@pytest.mark.parametrize("name", ENDINGS)
async def test_gauge_and_slots_after_50_of_each_ending(name: str, agent: FaultAgent) -> None:
    """Pitfall 176: back at 0, never below it; each is counted once."""
    behaviour, act, status = ENDINGS[name]
    agent.always(behaviour)
    async with serving(agent, agent_max_concurrency=50, max_sse_idle_seconds=0.3) as gateway:
        await asyncio.gather(*(act(gateway, DOORS[n % 2]) for n in range(50)))
        await free(gateway)
        if status is not None:
            assert await count(gateway, status) == 50
        agent.always(sse(DONE))
        await asyncio.gather(*(_reads_all(gateway, "direct") for _ in range(50)))  # no slot is missing
        await free(gateway)


async def test_gauge_when_streams_are_refused(agent: FaultAgent) -> None:
    """Pitfall 176: too busy."""
    agent.always(sse(A2A, end="hang"))
    async with serving(agent, agent_max_concurrency=1) as gateway:
        async with opened(gateway.port) as stream:
            await stream.event()
            await asyncio.gather(*(_gets_json(gateway, DOORS[n % 2]) for n in range(50)))
            assert await gateway.metric("kubemq_a2a_sse_streams_active") == 1
        await agent.closed(1)
        await free(gateway)


async def test_every_stream_is_counted_when_the_gateway_ends(agent: FaultAgent) -> None:
    """Pitfall 176: shutdown; each of 50 is logged once."""
    agent.always(sse(A2A, end="hang"))
    async with running(server={"drain_seconds": 0.3}) as gateway:
        await gateway.register(agent)
        callers = [asyncio.create_task(_reads_all(gateway, DOORS[n % 2])) for n in range(50)]
        await agent.received(50)
        await eventually(lambda: gateway.lifecycle.in_flight == 50)
        gateway.lifecycle.stop()
        await asyncio.gather(*callers)
        await gateway.tasks[0]
        assert gateway.lifecycle.in_flight == 0
        await asyncio.sleep(0.2)  # the log is written by a thread, in batches of 50 ms
        lines = [line for line in gateway.lines() if line["event"] == "call"]
        assert [line["reason"] for line in lines] == ["GATEWAY_SHUTDOWN"] * 50


FINAL = (
    b'data: {"jsonrpc":"2.0","id":7,"result":{"kind":"status-update","final":true,"status":{"state":"%s"}}}\n\n'
)


@pytest.mark.parametrize(("state", "status"), [("completed", "success"), ("failed", "application_error")])
async def test_who_leaves_after_the_final_event_has_seen_the_end(
    state: str, status: str, gateway: Running, agent: FaultAgent
) -> None:
    """Contract 3.5, 7: SDK clients need not wait until the agent closes; that is no cancellation."""
    agent.next(sse(FINAL % state.encode(), end="hang"))
    async with calling(gateway.port, request()) as stream:
        await stream.head()
        await stream.event()
    await agent.all_closed()
    await free(gateway)
    assert await count(gateway, status) == 1
