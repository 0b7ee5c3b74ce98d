"""Callers of streams that read slowly or not at all: contract 3.5, the last paragraph."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.raw import FIN_WAIT_1, tcp_state
from tests.fakes.running import Running, eventually, running
from tests.fakes.stream_client import CALL, Door, Stream, calling, opened, request
from tests.fakes.stream_reply import pour, sse

DOORS: tuple[Door, ...] = ("direct", "asgi")
MB = 1 << 20
FINAL = b'data: {"jsonrpc":"2.0","id":7,"result":{"kind":"message","text":"%b"}}\n\n' % (b"x" * 6 * MB)
WORKING = b'data: {"jsonrpc":"2.0","id":7,"result":{"kind":"status-update","status":{"state":"working"}}}\n\n'
DONE = b'event: task.done\ndata: {"ok":1}\n\n'
KERNEL = 12 * MB
"""More than the kernel holds of a loopback connection in both directions, and what the gateway reads ahead."""


def numbered(count: int, size: int) -> list[bytes]:
    return [b'data: {"n":%d,"x":"%b"}\n\n' % (n, b"x" * size) for n in range(count)]


@pytest.fixture
async def agent() -> AsyncIterator[FaultAgent]:
    async with FaultAgent() as fake:
        yield fake


@asynccontextmanager
async def serving(agent: FaultAgent, **a2a: Any) -> AsyncIterator[Running]:
    async with running(a2a=a2a) as it:
        await it.register(agent)
        yield it


@asynccontextmanager
async def stalled(port: int, *data: bytes) -> AsyncIterator[socket.socket]:
    """A caller that sends and does not read, with a small window."""
    loop = asyncio.get_running_loop()
    with socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 128 << 10)
        caller.setblocking(False)
        await loop.sock_connect(caller, ("127.0.0.1", port))
        for part in data:
            await loop.sock_sendall(caller, part)
        yield caller


@asynccontextmanager
async def reading(caller: socket.socket) -> AsyncIterator[Stream]:
    """Begin to read what it was sent, as a stream."""
    reader, writer = await asyncio.open_connection(sock=caller.dup(), limit=MB)
    try:
        stream = Stream(reader, writer)
        await stream.head()
        yield stream
    finally:
        writer.close()


async def held(agent: FaultAgent, number: int = 1) -> int:
    """Wait until the agent's writing stands still; gives the bytes it has sent."""
    connection = await agent.connected(number)
    before = -1
    async with asyncio.timeout(10):
        while connection.sent != before or not before:
            before = connection.sent
            await asyncio.sleep(0.1)
    return before


@pytest.mark.parametrize("door", DOORS)
async def test_a_slow_reader_pauses_the_agent(door: Door, agent: FaultAgent) -> None:
    """Contract 3.5: nothing is lost or reordered when it reads on."""
    agent.next(sse(*numbered(700, 64 << 10), DONE, end="hang"))
    async with serving(agent) as gateway, stalled(gateway.port, request(door=door)) as caller:
        assert await held(agent) < KERNEL
        async with reading(caller) as stream:
            events = await stream.rest(20)
        assert [event.json()["payload"]["n"] for event in events[:-1]] == list(range(700))
        assert events[-1].name == "task.done"


@pytest.mark.parametrize("door", [*DOORS, "GET"])
async def test_a_caller_that_takes_nothing_is_cut_off(door: str, agent: FaultAgent) -> None:
    """Contract 3.5: after the idle limit; the agent of an envelope stream is told (3.7), and not blamed."""
    if door == "GET":
        data = request(None, path="/a2a/echo/stream")
    else:
        data = request(door="asgi" if door == "asgi" else "direct")
    agent.always(reply.json({}))
    agent.next(pour(b'data: {"x":"%b"}\n\n' % (b"x" * 4000), total=200 * MB))
    loop = asyncio.get_running_loop()
    async with serving(agent, max_sse_idle_seconds=0.6) as gateway, stalled(gateway.port, data):
        begun = loop.time()
        assert await agent.closed(1) - begun < 2
        assert agent.connections[0].sent < KERNEL
        assert (await agent.received(2)).json()["method"] == "stream_cancel"
        await eventually(lambda: not gateway.lifecycle.in_flight)
        assert await gateway.metric("kubemq_a2a_sse_streams_active") == 0
        labels = {"agent_id": "echo", "method": "message/stream", "status": "cancelled"}
        assert await gateway.metric("kubemq_a2a_requests_total", **labels) == 1


async def test_a_caller_that_takes_little_is_not_cut_off(agent: FaultAgent) -> None:
    """Contract 3.5: only one that takes no byte for the idle limit; meanwhile the agent is not idle."""
    agent.next(sse(*numbered(200, 64 << 10), DONE))
    async with serving(agent, max_sse_idle_seconds=0.6) as gateway:
        async with stalled(gateway.port, request()) as caller:
            loop = asyncio.get_running_loop()
            got = b""
            for _ in range(15):  # 1.5 s
                await asyncio.sleep(0.1)
                got += await loop.sock_recv(caller, 256 << 10)
            while data := await loop.sock_recv(caller, MB):
                got += data
                if got.endswith(b"\r\n0\r\n\r\n"):
                    break
            assert got.count(b'"payload":{"n":') == 200
            assert b"task.done" in got
            assert b"task.error" not in got


async def test_a_caller_that_takes_a_little_all_the_time(agent: FaultAgent) -> None:
    """Contract 3.5: what counts is what the caller takes, not when the kernel has room again for the gateway."""
    agent.next(pour(b'data: {"x":"%b"}\n\n' % (b"x" * 4000), total=200 * MB))
    async with serving(agent, max_sse_idle_seconds=0.5) as gateway:
        async with stalled(gateway.port, request()) as caller:
            loop = asyncio.get_running_loop()
            await held(agent)
            for _ in range(60):  # 3 s
                assert await loop.sock_recv(caller, 64 << 10)
                await asyncio.sleep(0.05)
            assert gateway.lifecycle.in_flight == 1


async def test_keepalives_go_on_after_a_stall(agent: FaultAgent) -> None:
    """Contract 3.5: at their interval from the moment at which the caller has caught up."""
    agent.next(sse(*numbered(300, 64 << 10), end="hang"))
    async with serving(agent, keepalive_seconds=0.3) as gateway:
        async with stalled(gateway.port, request()) as caller:
            await held(agent)
            await asyncio.sleep(0.5)
            async with reading(caller) as stream:
                for _ in range(300):
                    await stream.event()
                await stream.silence(until=stream.keepalives + 3, within=1.5)


async def test_the_final_grace_after_a_stall(agent: FaultAgent) -> None:
    """Contract 3.5, row 2: 2 s, however long the caller took for the last event."""
    loop = asyncio.get_running_loop()
    agent.next(sse(*numbered(200, 64 << 10), FINAL, end="hang"))
    async with serving(agent) as gateway:
        async with stalled(gateway.port, request()) as caller:
            await held(agent)
            async with reading(caller) as stream:
                for _ in range(200):
                    await stream.event()
                await asyncio.sleep(0.3)  # the final event does not fit into what the caller has room for
                assert len((await stream.event()).data) > 6 * MB
                begun = loop.time()
                assert await stream.rest() == []
                assert loop.time() - begun < 4


async def test_what_follows_a_final_event_is_not_lost_in_a_stall(agent: FaultAgent) -> None:
    """Contract 3.5, row 2: while nothing is read from the agent its 2 s do not pass."""
    agent.next(sse(FINAL, 0.3, WORKING))
    async with serving(agent) as gateway, stalled(gateway.port, request()) as caller:
        await agent.received(1)
        await asyncio.sleep(2.6)
        async with reading(caller) as stream:
            first, second = await stream.rest()
        assert (len(first.data) > 6 * MB, second.text + b"\n\n") == (True, WORKING)


async def test_a_slow_reader_gets_the_end_of_a_stream(agent: FaultAgent) -> None:
    """Contract 3.5: what a stream has left to say when it ends is cut off only for a caller that takes nothing."""
    agent.next(sse(FINAL))
    async with serving(agent, gateway_timeout_buffer_seconds=0.2) as gateway:
        async with stalled(gateway.port, request()) as caller:
            loop = asyncio.get_running_loop()
            await agent.received(1)
            got = b""
            while not got.endswith(b"\r\n0\r\n\r\n"):
                data = await loop.sock_recv(caller, 256 << 10)
                assert data, f"cut off after {len(got)} bytes"
                got += data
                await asyncio.sleep(0.03)


@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_a_caller_that_takes_nothing_of_the_end(version: str, agent: FaultAgent) -> None:
    """Contract 3.5: a stream that is over holds no slot; its connection ends if nothing is taken."""
    agent.next(sse(FINAL))
    server = {"request_timeout_seconds": 0.3}
    async with running(server=server) as gateway:
        await gateway.register(agent)
        async with stalled(gateway.port, request(version=version)) as caller:
            await agent.received(1)
            await eventually(lambda: not gateway.lifecycle.in_flight)
            ports = (gateway.port, caller.getsockname()[1])
            await eventually(lambda: tcp_state(*ports) == FIN_WAIT_1)
            loop = asyncio.get_running_loop()
            size = 0
            while data := await loop.sock_recv(caller, MB):
                size += len(data)
            assert size < len(FINAL)


async def test_an_answer_not_taken_before_the_stream(agent: FaultAgent) -> None:
    """Contract 3.5: memory is bounded too when the connection was full before the stream began."""
    agent.next(pour(b'data: {"x":"%b"}\n\n' % (b"x" * 4000), total=100 * MB))
    async with serving(agent) as gateway:
        for n in range(60):
            await gateway.register(agent, f"big-{n}", metadata={"x": "x" * 200_000})
        listing = b"GET /agents HTTP/1.1\r\nHost: localhost\r\n\r\n"
        async with stalled(gateway.port, listing) as caller:
            await asyncio.sleep(0.3)  # nothing tells when an answer is written that nobody takes
            await asyncio.get_running_loop().sock_sendall(caller, request())
            await agent.received(1)
            assert await held(agent) < KERNEL


@pytest.mark.parametrize("door", DOORS)
async def test_answers_not_taken_hold_up_the_next_request(door: Door, agent: FaultAgent) -> None:
    """Contract 2.3: otherwise a caller who asks and asks and never reads could fill the gateway's memory."""
    big = b'{"jsonrpc":"2.0","id":7,"result":"%b"}' % (b"x" * 9 * MB)
    agent.always(reply.body(big))
    async with serving(agent) as gateway:
        async with stalled(gateway.port, request(door=door)) as caller:
            loop = asyncio.get_running_loop()
            await agent.received(1)
            await eventually(lambda: not gateway.lifecycle.in_flight)
            await loop.sock_sendall(caller, request(door=door))
            await asyncio.sleep(0.3)  # time in which it would be read
            assert len(agent.requests) == 1
            size = 0
            async with asyncio.timeout(10):
                while size < 2 * len(big):
                    data = await loop.sock_recv(caller, MB)
                    assert data, f"cut off after {size} bytes"
                    size += len(data)
            assert len(agent.requests) == 2


@pytest.mark.parametrize("door", DOORS)
async def test_a_slow_reader_holds_up_nobody_else(door: Door, agent: FaultAgent) -> None:
    """Contract 2.3; pitfall 42."""
    agent.next(pour(b'data: {"x":"%b"}\n\n' % (b"x" * 4000), total=200 * MB))
    agent.always(sse(DONE))
    async with serving(agent) as gateway, stalled(gateway.port, request(door=door)):
        await held(agent)
        for _ in range(5):
            async with opened(gateway.port, door=door) as stream:
                assert [event.name for event in await stream.rest(1)] == ["task.done"]
        async with calling(gateway.port, request(CALL)) as stream:
            await stream.head()
            assert await stream.rest(1)
