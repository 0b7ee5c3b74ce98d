"""The in-process bench: our code without the kernel, the steadiest gate.

`core` drives the proxied call alone, its upstream a list. `whole` drives everything between two sockets, from the
bytes a caller sends to the bytes it gets: uvicorn's protocol as we mend it, the direct door, the core, the
upstream pool and connections, over transports that only pass bytes on. `asgi` is the same through the ASGI door.
All of them log every call, as the gateway does.

A cost is the least CPU time of this thread per call over several batches, in microseconds, and in units of a fixed
piece of Python work measured in between, so that it compares across machines and noise.

Run as a program: python -m tests.benchmarks.inprocess core|whole|asgi [--profile]
"""

import asyncio
import cProfile
import json
import os
import pstats
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import uvicorn
import uvloop
from uvicorn.server import ServerState

from gateway.answering import ServerLimits
from gateway.dispatch import Dispatch, Doors
from gateway.headers import caller_line
from gateway.hosts import HostCheck
from gateway.lifecycle import Lifecycle
from gateway.logs import Logs
from gateway.messages import Reply, Request
from gateway.metrics import Metrics
from gateway.peers import Peers
from gateway.protocol import Caller
from gateway.proxy import Proxy, Rules
from gateway.relay import Terms
from gateway.upstream import AddressGuard, Exchange, Upstream
from gateway.upstream.connection import Connection
from registry.registry import Registry
from registry.stores import open_store
from registry.url import Url
from tests.benchmarks import payloads

AGENT = "bench"
BATCHES, CALLS, CONNECTIONS = 15, 2000, 32
REQUEST, RESPONSE = payloads.request(), payloads.response()
CALLER_HEADERS = [
    (b"host", b"127.0.0.1:9090"),
    (b"content-type", b"application/json"),
    (b"content-length", b"441"),
]
CALLER_BYTES = b"POST /a2a/bench HTTP/1.1\r\n%b\r\n%b" % (
    b"".join(b"%b: %b\r\n" % header for header in CALLER_HEADERS),
    REQUEST,
)
AGENT_HEADERS = [
    (b"server", b"nginx"),
    (b"date", b"Mon, 30 Nov 2026 12:00:00 GMT"),
    (b"content-type", b"application/json"),
    (b"content-length", b"600"),
    (b"connection", b"keep-alive"),
]
AGENT_BYTES = b"HTTP/1.1 200 OK\r\n%b\r\n%b" % (
    b"".join(b"%b: %b\r\n" % header for header in AGENT_HEADERS),
    RESPONSE,
)

#: Makes a number of calls and returns when all are answered as expected.
Batch = Callable[[int], Awaitable[None]]


class ListPool:
    """In the place of an agent's pool: keeps the exchange that has been started."""

    def __init__(self, url: Url) -> None:
        self.authority, self.target = url.authority, url.target
        self.started: list[Exchange] = []

    def start(self, exchange: Exchange) -> None:
        """Keep it, as a pool may not answer from here."""
        self.started.append(exchange)

    def close(self) -> None:
        """Nothing is open."""


class ListUpstream:
    """In the place of the upstream."""

    def __init__(self) -> None:
        self.pools: list[ListPool] = []

    def pool(self, url: Url) -> ListPool:
        """Make the pool of an agent."""
        self.pools.append(ListPool(url))
        return self.pools[-1]


@asynccontextmanager
async def proxy_over(upstream: Any) -> AsyncIterator[Proxy]:
    """The core with everything that is on by default, one agent registered, logging to nowhere."""
    metrics, lifecycle = Metrics("kubemq_a2a", "0"), Lifecycle()
    registry = Registry(open_store("memory://"), ttl_seconds=3600)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    logs = Logs(level="info", form="json", calls=True, fd=nowhere)
    await registry.start()
    try:
        card = json.dumps(payloads.card(AGENT, "http://127.0.0.1:9/")).encode()
        await registry.register(card, None)
        peers = Peers(registry, upstream, metrics, concurrency=100, user_agent="vitalgate/0", credentials={})
        line = caller_line("anonymous")
        yield Proxy(
            peers,
            metrics,
            logs,
            lifecycle,
            Rules(300, 3600, 10 << 20, "auto", Terms(idle=300, keepalive=30, event_bytes=10 << 20)),
            instance="bench",
            loop=asyncio.get_running_loop(),
            caller_line=lambda _caller: line,
            rewrite_card=lambda body, _agent_id, _base: body,
        )
    finally:
        await registry.close()
        logs.close()
        os.close(nowhere)


@asynccontextmanager
async def core() -> AsyncIterator[Batch]:
    """The proxied call alone."""
    upstream = ListUpstream()
    async with proxy_over(upstream) as proxy:
        replies: list[Reply | None] = []

        async def batch(calls: int) -> None:
            replies.clear()
            for _ in range(calls):
                proxy.call(Request(b"bench", list(CALLER_HEADERS), b"", REQUEST), replies.append)
                exchange = upstream.pools[0].started.pop()
                exchange.status, exchange.headers, exchange.body = 200, list(AGENT_HEADERS), RESPONSE
                if exchange.on_head is not None:
                    exchange.on_head(exchange)
                exchange.finish(None)
            assert len(replies) == calls
            assert all(reply is not None and reply.body == RESPONSE for reply in replies)

        yield batch


class Wire(asyncio.Transport):
    """A transport whose other end is a function; a real idle socket stands for whoever asks for one."""

    def __init__(self, heard: Callable[[bytes], None], idle: socket.socket) -> None:
        super().__init__({"socket": idle, "sockname": ("127.0.0.1", 9090), "peername": ("127.0.0.1", 1)})
        self._closing = False
        self.write = heard  # type: ignore[method-assign, assignment]

    def is_closing(self) -> bool:
        """Whether it was closed or aborted."""
        return self._closing

    def close(self) -> None:
        """Close."""
        self._closing = True

    abort = close

    def get_write_buffer_size(self) -> int:
        """Everything is taken at once."""
        return 0

    def pause_reading(self) -> None:
        """The other end is never too fast."""

    resume_reading = pause_reading


@asynccontextmanager
async def whole(*, direct: bool = True) -> AsyncIterator[Batch]:
    """Everything between the two sockets, as many calls at a time as there are connections."""
    loop = asyncio.get_running_loop()
    upstream = Upstream(guard=AddressGuard(allow_loopback=True))
    async with proxy_over(upstream) as proxy:
        # A listening socket with an address and nobody calling.
        with socket.create_server(("127.0.0.1", 0)) as idle:
            pool = cast(Any, proxy.peers.find(AGENT.encode())).pool
            for _ in range(CONNECTIONS):
                pool.put(_agent_connection(loop, pool, idle))
            callers = _Callers(loop, proxy, idle, direct=direct)
            yield callers.batch
            for connection in list(upstream.connections):
                connection.connection_lost(None)
            await upstream.aclose()


def _agent_connection(loop: asyncio.AbstractEventLoop, pool: Any, idle: socket.socket) -> Connection:
    connection = Connection(pool)

    def answer(_request: bytes) -> None:
        loop.call_soon(connection.data_received, AGENT_BYTES)

    connection.connection_made(Wire(answer, idle))
    return connection


class _Callers:
    """The callers' ends of the connections: each sends its next request when it has the whole answer."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, proxy: Proxy, idle: socket.socket, *, direct: bool
    ) -> None:
        self._loop, self._idle, self._direct = loop, idle, direct
        self._left = self._open = 0
        self._done: asyncio.Future[None] = loop.create_future()
        doors = Doors(True, None, 10 << 20, idle.getsockname()[1])
        self._door = Dispatch(proxy, _nobody, proxy.metrics, HostCheck("127.0.0.1", (), None), doors)
        config = uvicorn.Config(
            self._door,
            interface="asgi3",
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
        state = ServerState()
        state.default_headers = [(b"date", b"Mon, 30 Nov 2026 12:00:00 GMT")]
        self._protocols = [self._connect(config, state, proxy.lifecycle) for _ in range(CONNECTIONS)]

    def _connect(self, config: uvicorn.Config, state: ServerState, lifecycle: Lifecycle) -> Caller:
        door = self._door if self._direct else None
        protocol = Caller(config, state, {}, self._loop, limits=ServerLimits(), lifecycle=lifecycle, door=door)
        seen: list[bytes] = []

        def heard(data: bytes) -> None:
            seen.append(data)
            if data.endswith(RESPONSE):
                answer = b"".join(seen)
                seen.clear()
                self._answered(protocol, answer)

        protocol.connection_made(Wire(heard, self._idle))
        return protocol

    async def batch(self, calls: int) -> None:
        """Make `calls` calls in all."""
        self._done = self._loop.create_future()
        self._left, self._open = calls, 0
        for protocol in self._protocols:
            self._send(protocol)
        await self._done

    def _send(self, protocol: Caller) -> None:
        if self._left:
            self._left -= 1
            self._open += 1
            self._loop.call_soon(protocol.data_received, CALLER_BYTES)

    def _answered(self, protocol: Caller, answer: bytes) -> None:
        if not answer.startswith(b"HTTP/1.1 200 ") and not self._done.done():
            self._done.set_exception(AssertionError(answer[:200]))
        self._open -= 1
        self._send(protocol)
        if not self._open and not self._done.done():
            self._done.set_result(None)


async def _nobody(_scope: object, _receive: object, _send: object) -> None:
    raise AssertionError("this is no call")


KINDS = {"core": core, "whole": whole, "asgi": partial(whole, direct=False)}


def unit() -> float:
    """CPU seconds of the fixed piece of Python work."""
    begin = time.thread_time()
    for _ in range(200):
        names = {name: len(value) for name, value in CALLER_HEADERS}
        assert json.loads(REQUEST)["id"] == payloads.CALL_ID
        assert b"%b: %d" % (b"content-length", sum(names.values()))
    return (time.thread_time() - begin) / 200


async def measure(kind: str, batches: int = BATCHES, calls: int = CALLS) -> dict[str, float]:
    """Cost per call: `cpu_us`, and `units`."""
    best = smallest = float("inf")
    async with KINDS[kind]() as batch:
        await batch(calls)  # warm
        for _ in range(batches):
            smallest = min(smallest, unit())
            begin = time.thread_time()
            await batch(calls)
            best = min(best, (time.thread_time() - begin) / calls)
    return {"cpu_us": best * 1e6, "units": best / smallest}


async def profile(kind: str, calls: int = 20_000) -> None:
    """Print where the calls spend their time, by cProfile (which makes Python code look dearer than C)."""
    async with KINDS[kind]() as batch:
        await batch(CALLS)
        profiler = cProfile.Profile(time.thread_time)
        profiler.enable()
        await batch(calls)
        profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(40)


def main(arguments: list[str]) -> None:
    """Run as a program."""
    kind, *rest = arguments
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if rest == ["--profile"]:
            runner.run(profile(kind))
        else:
            print(json.dumps(runner.run(measure(kind))))


if __name__ == "__main__":
    main(sys.argv[1:])
