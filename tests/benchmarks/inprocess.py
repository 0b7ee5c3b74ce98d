"""The in-process bench: our code without the kernel, the steadiest gate.

`core` drives the proxied call alone, its upstream a list. `whole` drives everything between two sockets, from the
bytes a caller sends to the bytes it gets: uvicorn's protocol as we mend it, the direct door, the core, the
upstream pool and connections, over transports that only pass bytes on. `asgi` is the same through the ASGI door.
`stream` passes events through open streams, one at a time on each. `read-...` checks a 100 KB request: one plain
text, one with line ends, one with letters beyond ASCII. All but these log every call, as the gateway does.

A cost is the least CPU time of this thread per call, or event, over several batches, in microseconds, and in units
of a fixed piece of Python work measured in between, so that it compares across machines and noise.

Run as a program: python -m tests.benchmarks.inprocess KIND [--profile]
KIND: core, whole, asgi, auth, stream, read-plain, read-escapes, read-utf8.
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
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, cast

import jwt
import uvloop

from gateway import jsonrpc
from gateway.auth import Authenticator, FixedKey, TokenTerms
from gateway.gate import Gate
from gateway.headers import caller_line
from gateway.hosts import HostCheck
from gateway.keys import secret_key
from gateway.lifecycle import Lifecycle
from gateway.logs import Logs
from gateway.messages import Reply, Request
from gateway.metrics import Metrics
from gateway.origins import Origins
from gateway.peers import Peers
from gateway.proxies import TrustedProxies
from gateway.proxy import Proxy, Rules
from gateway.relay import Terms
from gateway.upstream import AddressGuard, Exchange, Upstream
from registry.registry import Registry
from registry.stores import open_store
from registry.url import Url
from tests.benchmarks import payloads
from tests.benchmarks.wires import (
    AGENT,
    AGENT_BYTES,
    AGENT_HEADERS,
    AGENT_STREAM_HEAD,
    CALLER_HEADERS,
    CONNECTIONS,
    REQUEST,
    RESPONSE,
    Calls,
    Streams,
    agent_connection,
)

BATCHES, CALLS = 15, 2048
SECRET = "a secret of the benchmark, 32 bytes or more"  # pragma: allowlist secret

#: Makes a number of calls (or events) and returns when all have come as expected.
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
async def proxy_over(upstream: Any, auth: Authenticator | None = None) -> AsyncIterator[Proxy]:
    """The core with everything that is on by default, one agent registered, logging to nowhere."""
    metrics, lifecycle = Metrics("kubemq_a2a", "0"), Lifecycle()
    registry = Registry(open_store("memory://"), ttl_seconds=3600)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    logs = Logs(level="info", form="json", calls=True, fd=nowhere)
    await registry.start()
    lifecycle.started()
    try:
        card = json.dumps(payloads.card(AGENT, "http://127.0.0.1:9/")).encode()
        await registry.register(card, None)
        peers = Peers(registry, upstream, metrics, concurrency=100, user_agent="vitalgate/0", credentials={})
        line, hosts = caller_line("anonymous"), HostCheck("127.0.0.1", (), None)
        yield Proxy(
            peers,
            metrics,
            logs,
            lifecycle,
            Rules(300, 3600, 10 << 20, "auto", Terms(idle=300, keepalive=30, event_bytes=10 << 20)),
            instance="bench",
            loop=asyncio.get_running_loop(),
            caller_line=lambda _caller: line,
            rewrite_card=lambda body, _agent_id, _request: body,
            gate=Gate(hosts, Origins(("auto",), hosts, None), TrustedProxies(), auth=auth),
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


@asynccontextmanager
async def whole(*, direct: bool = True, streams: bool = False, token: bytes = b"") -> AsyncIterator[Batch]:
    """Everything between the two sockets, as many calls or streams at a time as there are connections.

    With a token, authentication is on and the callers show it.
    """
    loop = asyncio.get_running_loop()
    upstream = Upstream(guard=AddressGuard(allow_loopback=True))
    auth = Authenticator(FixedKey(secret_key(SECRET)), TokenTerms()) if token else None
    if auth is not None:
        auth.verify([(b"authorization", b"Bearer " + token)])
    async with proxy_over(upstream, auth) as proxy:
        # A listening socket with an address and nobody calling.
        with socket.create_server(("127.0.0.1", 0)) as idle:
            pool = cast(Any, proxy.peers.find(AGENT.encode())).pool
            answer = AGENT_STREAM_HEAD if streams else AGENT_BYTES
            agents = [agent_connection(loop, pool, idle, answer) for _ in range(CONNECTIONS)]
            callers = Streams(loop, agents) if streams else Calls(loop, token)
            callers.connect(proxy, idle, direct=direct)
            yield callers.batch
            for connection in list(upstream.connections):
                connection.connection_lost(None)
            await upstream.aclose()


@asynccontextmanager
async def reading(words: str) -> AsyncIterator[Batch]:
    """The check of a 100 KB request whose text says this again and again."""
    body = payloads.request_of(words)

    async def batch(calls: int) -> None:
        for _ in range(calls):
            assert jsonrpc.read(body).method == "message/send"

    yield batch


KINDS: dict[str, Callable[[], AbstractAsyncContextManager[Batch]]] = {
    "core": core,
    "whole": whole,
    "asgi": partial(whole, direct=False),
    "auth": lambda: whole(token=jwt.encode({"sub": "bench", "exp": time.time() + 3600}, SECRET).encode()),
    "stream": partial(whole, streams=True),
    "read-plain": partial(reading, payloads.WORDS),
    "read-escapes": partial(reading, payloads.WORDS + r"\n"),
    "read-utf8": partial(reading, payloads.WORDS + "é"),
}


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


async def profile(kind: str, calls: int = 20_480) -> None:
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
