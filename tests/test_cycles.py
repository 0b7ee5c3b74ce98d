"""What is over is freed at once: the garbage collector, which looks seldom (`heap.py`), has little to find."""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.connection import Behaviour
from tests.fakes.raw import exchange
from tests.fakes.running import Running, running
from tests.fakes.stream_client import CALL, Door, calling, opened, request
from tests.fakes.stream_reply import sse

TIMES = 10
OURS = ("gateway.", "registry.", "healthcheck.", "httptools.", "uvicorn.", "litestar.")
EVENT = b'data: {"jsonrpc":"2.0","id":7,"result":{"kind":"status-update","status":{"state":"working"}}}\n\n'
ANSWER = reply.result({"kind": "message"})
LONG = CALL.replace(b"{}", b'{"text":"%b"}' % (b"x" * 50_000))
Deed = Callable[[Running, FaultAgent], Awaitable[None]]


@contextmanager
def kept() -> Iterator[Counter[str]]:
    """Count, by type, what only the collector would free of all that is done meanwhile."""
    found: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found.update(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def call(door: Door = "direct", body: bytes = CALL, behaviour: Behaviour = ANSWER) -> Deed:
    async def deed(gateway: Running, agent: FaultAgent) -> None:
        data = request(body, door=door)
        async with calling(gateway.port, data) as caller:
            for turn in range(3):  # the later ones have a head that is known
                if turn:
                    caller.writer.write(data)
                agent.next(behaviour)
                await caller.head()
                await caller.body()

    return deed


def stream(door: Door, *, left: bool = False) -> Deed:
    async def deed(gateway: Running, agent: FaultAgent) -> None:
        agent.next(sse(EVENT, EVENT, end="hang" if left else "clean"))
        async with opened(gateway.port, door=door) as caller:
            await caller.event()
            if not left:
                await caller.rest()

    return deed


def left_alone(gateway: Running, agent: FaultAgent) -> Awaitable[None]:
    async def deed() -> None:
        agent.next(reply.hang())
        seen = len(agent.requests)
        async with calling(gateway.port, request()):
            await agent.received(seen + 1)

    return deed()


def rest(method: str, path: str, body: object = None) -> Deed:
    data = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    )

    async def deed(gateway: Running, _: FaultAgent) -> None:
        whole = f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
        assert (await exchange(gateway.port, whole)).startswith(b"HTTP/1.1 ")

    return deed


async def garbage(gateway: Running, _: FaultAgent) -> None:
    assert b" 400 " in await exchange(gateway.port, b"GARBAGE\r\n\r\n")


DEEDS: dict[str, Deed] = {
    "call": call(),
    "long call": call(body=LONG),
    "call by ASGI": call("asgi"),
    "refused call": call(body=b'{"a":'),
    "agent that closes": call(behaviour=reply.close()),
    "agent that resets": call(behaviour=reply.reset()),
    "agent that talks nonsense": call(behaviour=reply.raw(b"\x00 nonsense\r\n\r\n", close=True)),
    "agent that fails": call(behaviour=reply.body(b"no", status=500)),
    "caller that leaves": left_alone,
    "stream": stream("direct"),
    "stream by ASGI": stream("asgi"),
    "stream that is left": stream("direct", left=True),
    "stream by ASGI that is left": stream("asgi", left=True),
    "no HTTP": garbage,
    "registration": rest(
        "POST", "/agents/register", {"agent_id": "more", "name": "More", "url": "http://[::1]:9/"}
    ),
    "refused registration": rest("POST", "/agents/register", {"agent_id": ".."}),
    "heartbeat": rest("POST", "/agents/heartbeat", {"agent_id": "echo"}),
    "list": rest("GET", "/agents"),
    "card": rest("GET", "/a2a/echo/.well-known/agent-card.json"),
    "not found": rest("GET", "/nowhere"),
    "health check": rest("POST", "/agents/echo/health/check"),
    "numbers": rest("GET", "/stats/agents"),
}


@pytest.mark.parametrize("name", DEEDS)
async def test_nothing_is_left_to_the_collector(name: str) -> None:
    deed = DEEDS[name]
    async with FaultAgent() as agent, running(health={"enable": name == "health check"}) as gateway:
        await gateway.register(agent)
        await deed(gateway, agent)  # what is made once and kept
        with kept() as found:
            for _ in range(TIMES):
                await deed(gateway, agent)
            await asyncio.sleep(0.1)  # until both ends of the last connection are closed
        assert not {kind: count for kind, count in found.items() if kind.startswith(OURS) and count >= TIMES / 2}
