"""Streams where two rules meet: limits against endings, endings against what comes after them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.answers import LAST_CHUNK, chunk, head
from tests.fakes.running import running
from tests.fakes.stream_client import Door, calling, opened, request
from tests.fakes.stream_reply import SSE, End, pour, sse

DOORS: tuple[Door, ...] = ("direct", "asgi")
COMPLETED = (
    b'data: {"jsonrpc":"2.0","id":7,"result":'
    b'{"kind":"status-update","status":{"state":"completed"},"final":true}}\n\n'
)


@pytest.fixture
async def agent() -> AsyncIterator[FaultAgent]:
    async with FaultAgent() as fake:
        yield fake


@pytest.mark.parametrize("door", DOORS)
async def test_the_idle_limit_makes_no_failure_of_finished_work(door: Door, agent: FaultAgent) -> None:
    """Contract 3.5, row 2 against row 6: silence after a final event ends well."""
    async with running(a2a={"max_sse_idle_seconds": 0.5}) as gateway:
        await gateway.register(agent)
        agent.next(sse(COMPLETED, end="hang"))
        async with opened(gateway.port, door=door) as stream:
            assert [event.text + b"\n\n" for event in await stream.rest()] == [COMPLETED]
        await agent.closed(1)
        labels = {"agent_id": "echo", "method": "message/stream", "status": "success"}
        assert await gateway.metric("kubemq_a2a_requests_total", **labels) == 1


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
async def test_a_stalled_caller_that_leaves(how: str, door: Door, agent: FaultAgent) -> None:
    """Contract 3.5, last row: within 2 s, whatever it has not taken; pitfall 85."""
    agent.next(pour(b'data: {"x":"%b"}\n\n' % (b"x" * 4000), total=1 << 30))
    async with running() as gateway:
        await gateway.register(agent)
        async with calling(gateway.port, request(door=door), limit=1000) as stream:
            stream.writer.transport.pause_reading()  # type: ignore[attr-defined]
            connection, before = await agent.connected(1), -1
            while connection.sent != before or not before:
                before = connection.sent
                await asyncio.sleep(0.1)
            begun = asyncio.get_running_loop().time()
            stream.leave(how)
            assert await agent.closed(1) - begun < 2
        assert (await agent.received(2)).json()["method"] == "stream_cancel"
        assert gateway.lifecycle.in_flight == 0
        assert await gateway.metric("kubemq_a2a_sse_streams_active") == 0


@contextlib.contextmanager
def pouring(data: bytes) -> Iterator[str]:
    """An agent in a thread of its own that repeats some bytes as fast as they are taken; gives its URL."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(head(200, SSE))
                while True:
                    connection.sendall(block)

    block = data * (300_000 // len(data))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    thread.join(5)


@pytest.mark.parametrize("data", [b"\n", b": x\n\n", b"data: 1\n\n"], ids=["blank lines", "comments", "events"])
async def test_an_agent_that_pours_starves_nobody(data: bytes, agent: FaultAgent) -> None:
    """Contract 2.3: streams to one agent never starve calls to another, however much there is to read."""
    loop = asyncio.get_running_loop()
    with pouring(data) as url:
        async with running() as gateway:
            await gateway.register(url, "pouring")
            await gateway.register(agent)
            async with opened(gateway.port, path="/a2a/pouring") as stream:
                taking = asyncio.create_task(stream.reader.read(-1))
                for _ in range(5):
                    begun = loop.time()
                    assert (
                        await gateway.call({"jsonrpc": "2.0", "id": 1, "method": "tasks/get"})
                    ).status_code == 200
                    assert loop.time() - begun < 1
                taking.cancel()


@pytest.mark.parametrize("gzip", [False, True], ids=["", "gzip"])
@pytest.mark.parametrize(
    ("end", "reason"), [("clean", "STREAM_INCOMPLETE"), ("close", "STREAM_BROKEN"), ("hang", "STREAM_IDLE")]
)
async def test_much_at_once_is_whole_before_the_end(end: End, reason: str, gzip: bool, agent: FaultAgent) -> None:
    """Contract 3.5: delivered events are kept, and the end comes after them."""
    async with running(a2a={"max_sse_idle_seconds": 1 if end == "hang" else 20}) as gateway:
        await gateway.register(agent)
        agent.next(sse(b"".join(b"data: %d\n\n" % n for n in range(20_000)), end=end, gzip=gzip))
        async with opened(gateway.port) as stream:
            *events, last = await stream.rest(20)
        assert [event.json()["payload"] for event in events] == list(range(20_000))
        assert last.reason == reason
        assert gateway.lifecycle.in_flight == 0


async def test_broken_framing_after_much_at_once(agent: FaultAgent) -> None:
    """Contract 3.5: what came before the break is passed on, in one segment with it, too."""
    data = b"".join(b"data: %d\n\n" % n for n in range(10_000))
    async with running() as gateway:
        await gateway.register(agent)
        chunked = head(200, [*SSE, ("Transfer-Encoding", "chunked")])
        agent.next(reply.raw(chunked + chunk(data) + b"no chunk\r\n"))
        agent.next(reply.raw(chunked + chunk(data + COMPLETED) + LAST_CHUNK))
        async with opened(gateway.port) as stream:
            *events, last = await stream.rest(20)
        assert (len(events), last.reason) == (10_000, "STREAM_BROKEN")
        async with opened(gateway.port) as stream:
            *events, last = await stream.rest(20)
        assert (len(events), last.text + b"\n\n") == (10_000, COMPLETED)
