"""The two ends of the in-process bench: transports that only pass bytes on, callers and agents behind them."""

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from gateway.answering import ServerLimits
from gateway.dispatch import Dispatch, Doors
from gateway.protocol import Caller
from gateway.proxy import Proxy
from gateway.upstream.connection import Connection
from tests.benchmarks import events, payloads

AGENT = "bench"
CONNECTIONS = 32
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
STREAM_REQUEST = events.request(1, 0)
STREAM_CALLER_BYTES = b"POST /a2a/bench HTTP/1.1\r\n%b\r\n%b" % (
    b"".join(b"%b: %b\r\n" % header for header in CALLER_HEADERS[:-1])
    + b"content-length: %d\r\n" % len(STREAM_REQUEST),
    STREAM_REQUEST,
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

AGENT_STREAM_HEAD = b"HTTP/1.1 200 OK\r\n%b\r\n" % (
    b"".join(b"%b: %b\r\n" % header for header in AGENT_HEADERS[:2])
    + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
)
#: An event as the agent writes it, and as the caller must get it.
CHUNK = b"%x\r\n%b\r\n" % (events.SIZE, events.event(0, 0))


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


def agent_connection(loop: asyncio.AbstractEventLoop, pool: Any, idle: socket.socket, answer: bytes) -> Connection:
    """A connection of an agent's pool; the agent answers every request with the same bytes."""
    connection = Connection(pool)

    def answered(_request: bytes) -> None:
        loop.call_soon(connection.data_received, answer)

    connection.connection_made(Wire(answered, idle))
    pool.put(connection)
    return connection


class Callers(ABC):
    """The callers' ends of the connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left = self._open = 0
        self._done: asyncio.Future[None] = loop.create_future()
        self._protocols: list[Caller] = []

    def connect(self, proxy: Proxy, idle: socket.socket, *, direct: bool) -> None:
        """Make the connections: uvicorn's protocol as the gateway uses it, with its door if `direct`."""
        doors = Doors(True, None, 10 << 20, idle.getsockname()[1])
        door = Dispatch(proxy, cast(Any, _nobody), proxy.metrics, proxy.gate, doors)
        config = uvicorn.Config(
            door,
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
        for _ in range(CONNECTIONS):
            protocol = Caller(
                config,
                state,
                {},
                self._loop,
                limits=ServerLimits(),
                lifecycle=proxy.lifecycle,
                door=door if direct else None,
            )
            protocol.connection_made(Wire(partial(self._heard, protocol, []), idle))
            self._protocols.append(protocol)

    @abstractmethod
    def _heard(self, protocol: Caller, seen: list[bytes], data: bytes) -> None:
        """Take what a caller gets; `seen` is its own."""

    @abstractmethod
    async def batch(self, number: int) -> None:
        """Make so many calls, or pass on so many events, in all."""


class Calls(Callers):
    """Each sends its next request when it has the whole answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, token: bytes = b"") -> None:
        super().__init__(loop)
        shown = b"authorization: Bearer %b\r\n" % token if token else b""
        self._request = CALLER_BYTES.replace(b"content-type:", shown + b"content-type:", 1)

    def _heard(self, protocol: Caller, seen: list[bytes], data: bytes) -> None:
        seen.append(data)
        if data.endswith(RESPONSE):
            answer = b"".join(seen)
            seen.clear()
            self._answered(protocol, answer)

    async def batch(self, number: int) -> None:
        self._done = self._loop.create_future()
        self._left, self._open = number, 0
        for protocol in self._protocols:
            self._send(protocol)
        await self._done

    def _send(self, protocol: Caller) -> None:
        if self._left:
            self._left -= 1
            self._open += 1
            self._loop.call_soon(protocol.data_received, self._request)

    def _answered(self, protocol: Caller, answer: bytes) -> None:
        if not answer.startswith(b"HTTP/1.1 200 ") and not self._done.done():
            self._done.set_exception(AssertionError(answer[:200]))
        self._open -= 1
        self._send(protocol)
        if not self._open and not self._done.done():
            self._done.set_result(None)


class Streams(Callers):
    """Each has a stream open; when all have heard an event, each gets the next."""

    def __init__(self, loop: asyncio.AbstractEventLoop, agents: list[Connection]) -> None:
        super().__init__(loop)
        self._agents = agents
        self._heads = 0
        self._opened: asyncio.Future[None] = loop.create_future()

    def _heard(self, protocol: Caller, seen: list[bytes], data: bytes) -> None:
        if data == CHUNK:
            self._left -= 1
            if not self._left % CONNECTIONS:
                self._next()
        else:
            self._heads += 1
            if self._heads == CONNECTIONS:
                self._opened.set_result(None)

    async def batch(self, number: int) -> None:
        if not self._heads:
            for protocol in self._protocols:
                protocol.data_received(STREAM_CALLER_BYTES)
            await self._opened
        self._done = self._loop.create_future()
        self._left = number // CONNECTIONS * CONNECTIONS
        self._next()
        await asyncio.wait_for(self._done, 60)
        assert self._heads == CONNECTIONS, "something that is no event came"

    def _next(self) -> None:
        if self._left:
            for agent in self._agents:
                self._loop.call_soon(agent.data_received, CHUNK)
        else:
            self._done.set_result(None)


async def _nobody(_scope: object, _receive: object, _send: object) -> None:
    raise AssertionError("this is no call")
