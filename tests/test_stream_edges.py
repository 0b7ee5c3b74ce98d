"""Streams where two rules meet: limits against endings, endings against what comes after them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.fakes.agent import FaultAgent
from tests.fakes.running import running
from tests.fakes.stream_client import Door, calling, opened, request
from tests.fakes.stream_reply import pour, sse

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
