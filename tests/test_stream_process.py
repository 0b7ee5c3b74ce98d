"""Streams through a gateway in a process of its own: memory, numbers, SIGTERM (contract 3.5, 8; the issue)."""

from __future__ import annotations

import asyncio
import signal
import socket
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.gateway import GatewayProcess
from tests.fakes.stream_client import CALL, Door, Stream, calling, opened, request
from tests.fakes.stream_reply import SSE, pour, sse

MB = 1 << 20
A2A = b'data: {"jsonrpc":"2.0","id":7,"result":{"kind":"status-update","status":{"state":"working"}}}\n\n'
ANSWER = b'{"jsonrpc":"2.0","id":7,"result":{}}'


@asynccontextmanager
async def served(folder: Path, agent: FaultAgent, **settings: dict[str, Any]) -> AsyncIterator[GatewayProcess]:
    async with GatewayProcess(folder, settings) as gateway:
        await gateway.register({"agent_id": "echo", "name": "Echo", "url": agent.url})
        yield gateway


def port(gateway: GatewayProcess) -> int:
    return int(gateway.api.rpartition(":")[2])


def memory(gateway: GatewayProcess, field: str = "VmHWM") -> int:
    """Bytes: what the process holds now (`VmRSS`), or has held at most since `forget` (`VmHWM`)."""
    for line in Path(f"/proc/{gateway.pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise AssertionError(field)


def forget(gateway: GatewayProcess) -> int:
    """Begin to measure the peak; gives what the process holds now."""
    Path(f"/proc/{gateway.pid}/clear_refs").write_text("5")
    return memory(gateway)


async def warmed(gateway: GatewayProcess, agent: FaultAgent) -> int:
    """Serve a few streams first: what they leave behind is no growth."""
    agent.next(*[sse(*[b"data: %b\n\n" % (b"x" * 100_000)] * 20, A2A) for _ in range(5)])
    for _ in range(5):
        async with opened(port(gateway)) as stream:
            await stream.rest()
    return forget(gateway)


# --- memory ---


@pytest.mark.parametrize("way", ["direct", "asgi", "GET"])
async def test_memory_is_flat_while_an_agent_pours(way: str, tmp_path: Path) -> None:
    """Contract 3.5: 200 MB at each of ten callers who take nothing."""
    loop = asyncio.get_running_loop()
    if way == "GET":
        data = request(None, path="/a2a/echo/stream")
    else:
        data = request(door="asgi" if way == "asgi" else "direct")
    async with FaultAgent() as agent, AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(served(tmp_path, agent))
        before = await warmed(gateway, agent)
        agent.always(pour(b'data: {"x":"%b"}\n\n' % (b"x" * 4000), total=200 * MB))
        opened_before, asked = len(agent.connections), len(agent.requests)
        for _ in range(10):
            caller = stack.enter_context(socket.socket())
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            caller.setblocking(False)
            await loop.sock_connect(caller, ("127.0.0.1", port(gateway)))
            await loop.sock_sendall(caller, data)
        await agent.received(asked + 10)
        sent, last = -1, -2
        while sent != last:
            await asyncio.sleep(0.3)
            last, sent = sent, sum(connection.sent for connection in agent.connections[opened_before - 1 :])
        assert sent > 10 * MB
        assert memory(gateway) - before < 15 * MB


UNBOUNDED: dict[str, tuple[bytes, bytes]] = {
    "one endless line": (b"data: ", b"x" * 65_536),
    "endless lines": (b"data: x\n", b"data: x\n" * 8192),
    "an endless comment": (b": ", b"c" * 65_536),
    "an endless name": (b"event: ", b"n" * 65_536),
}


@pytest.mark.parametrize("name", UNBOUNDED)
async def test_memory_is_bounded_for_events_without_end(name: str, tmp_path: Path) -> None:
    """Pitfall 92: 80 MB of one event end at the cap of 2 MiB."""
    first, more = UNBOUNDED[name]
    settings = {"a2a": {"agent_max_response_bytes": 2 * MB}}
    async with FaultAgent() as agent, served(tmp_path, agent, **settings) as gateway:
        before = await warmed(gateway, agent)
        agent.next(sse(first, *[more] * (80 * MB // len(more)), end="hang"))
        async with opened(port(gateway)) as stream:
            [error] = await stream.rest(20)
        assert error.reason == "RESPONSE_TOO_LARGE"
        assert memory(gateway) - before < 16 * MB


async def test_memory_is_bounded_for_compressed_events_without_end(tmp_path: Path) -> None:
    """Pitfalls 20, 92: a bomb of 100 MB in one event, sent as 100 KB."""
    settings = {"a2a": {"agent_max_response_bytes": 2 * MB}}
    coded = [*SSE, ("Content-Encoding", "gzip"), ("Content-Length", "1000000")]
    async with FaultAgent() as agent, served(tmp_path, agent, **settings) as gateway:
        before = await warmed(gateway, agent)
        agent.next(reply.hang(reply.head(200, coded) + reply.bomb(100 * MB)))
        async with opened(port(gateway)) as stream:
            [error] = await stream.rest(20)
        assert error.reason == "RESPONSE_TOO_LARGE"
        assert memory(gateway) - before < 16 * MB


@pytest.mark.parametrize("door", ["direct", "asgi"])
async def test_an_open_stream_keeps_no_copy_of_its_request(door: Door, tmp_path: Path) -> None:
    """What a stream holds does not grow with what was asked: 40 requests of 4 MB."""
    large = CALL.replace(b"{}", b'{"text":"%b"}' % (b"x" * 4 * MB))
    async with FaultAgent() as agent, AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(served(tmp_path, agent))
        before = await warmed(gateway, agent)
        for _ in range(40):
            agent.next(sse(A2A, end="hang"))
            stream = await stack.enter_async_context(opened(port(gateway), large, door=door))
            await stream.event()
            agent.requests.clear()
        assert memory(gateway, "VmRSS") - before < 40 * MB


# --- numbers ---


async def many(stack: AsyncExitStack, gateway: GatewayProcess, count: int, *, at_once: int = 50) -> list[Stream]:
    """Open so many streams; each has had its first event."""
    streams = [await stack.enter_async_context(calling(port(gateway), b"", limit=4096)) for _ in range(count)]
    turns = asyncio.Semaphore(at_once)

    async def begin(stream: Stream) -> None:
        async with turns:
            stream.writer.write(request())
            await stream.head()
            await stream.event(within=20)

    await asyncio.gather(*map(begin, streams))
    return streams


async def test_sigterm_with_1000_open_streams(tmp_path: Path) -> None:
    """Contract 8, pitfall 97: every caller gets `GATEWAY_SHUTDOWN`; the process ends within drain + 5 s."""
    settings = {"a2a": {"agent_max_concurrency": 2000}, "server": {"drain_seconds": 1}}
    async with FaultAgent() as agent, AsyncExitStack() as stack:
        agent.always(sse(A2A, end="hang"))
        gateway = await stack.enter_async_context(served(tmp_path, agent, **settings))
        streams = await many(stack, gateway, 1000)
        assert "kubemq_a2a_sse_streams_active 1000.0" in await gateway.scrape()
        begun = time.monotonic()
        ends = [asyncio.create_task(stream.rest(10)) for stream in streams]
        assert await gateway.stop(signal.SIGTERM) == 0
        assert time.monotonic() - begun < 1 + 5
        for [error] in await asyncio.gather(*ends):
            assert error.reason == "GATEWAY_SHUTDOWN"
        assert len(agent.requests) == 1000
        lines = gateway.events("call")
        assert [line["reason"] for line in lines] == ["GATEWAY_SHUTDOWN"] * 1000


async def timed(gateway: GatewayProcess, count: int) -> list[float]:
    """Seconds that each of so many calls took, one after the other."""
    seconds = []
    for _ in range(count):
        begun = time.perf_counter()
        assert (await gateway.call("beside", CALL.replace(b"stream", b"send"))).content == ANSWER
        seconds.append(time.perf_counter() - begun)
    return sorted(seconds)


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_5000_open_streams_leave_calls_beside_them_unharmed(tmp_path: Path) -> None:
    """The issue: all calls to another agent succeed, about as fast as without the streams; all streams live on."""
    settings = {"a2a": {"agent_max_concurrency": 6000, "keepalive_seconds": 10}}
    async with FaultAgent() as agent, FaultAgent() as beside, AsyncExitStack() as stack:
        go = asyncio.Event()
        agent.always(sse(A2A, go, b'event: task.done\ndata: {"ok":1}\n\n'))
        beside.always(reply.body(ANSWER))
        gateway = await stack.enter_async_context(served(tmp_path, agent, **settings))
        await gateway.register({"agent_id": "beside", "name": "Beside", "url": beside.url})
        await timed(gateway, 50)
        alone = await timed(gateway, 300)
        streams = await many(stack, gateway, 5000)
        assert "kubemq_a2a_sse_streams_active 5000.0" in await gateway.scrape()
        begun = time.monotonic()
        with_streams = await timed(gateway, 300)
        while time.monotonic() - begun < 12:  # through a round of keepalives
            with_streams += await timed(gateway, 50)
        assert statistics.median(with_streams) < 3 * statistics.median(alone) + 0.002
        assert sorted(with_streams)[int(len(with_streams) * 0.99)] < 0.25
        go.set()
        ends = await asyncio.gather(*(stream.rest(60) for stream in streams))
        assert {event.name for [event] in ends} == {"task.done"}
        assert all(stream.keepalives >= 1 for stream in streams)
        assert "kubemq_a2a_sse_streams_active 0.0" in await gateway.scrape()
