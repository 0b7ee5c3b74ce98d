"""One accepted connection of a fault agent: what came in, exactly, and the means to answer or break it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

import msgspec

if TYPE_CHECKING:
    from tests.fakes.agent import FaultAgent

WAIT_SECONDS = 5.0
"""How long the awaitables of an agent wait before they fail with what has happened so far."""

HEAD_END = b"\r\n\r\n"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Received:
    """One request exactly as it came over the socket."""

    number: int
    """Counts from 1 over the life of the agent."""
    connection: int
    """Number of the connection it came on, from 1."""
    raw: bytes
    """Head and body as they were on the wire."""
    method: str
    target: str
    version: str
    headers: tuple[tuple[str, str], ...]
    """Names in their original case, in their original order, repeated ones repeated (latin-1)."""
    body: bytes
    """The content: chunked framing removed."""
    at: float
    """Loop time at which the last byte was there."""

    def values(self, name: str) -> list[str]:
        """Every value of a header, in order."""
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def header(self, name: str) -> str | None:
        """The one value of a header, None if absent; fails if it was sent twice."""
        values = self.values(name)
        assert len(values) <= 1, f"{name} was sent {len(values)} times: {values}"
        return values[0] if values else None

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def id(self) -> bytes:
        """The raw text of the JSON-RPC id, `null` if there is none to be read."""
        return raw_id(self.body)


class _Envelope(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw(b"null")


def raw_id(body: bytes) -> bytes:
    """The id of a JSON-RPC object with its own digits; `null` for anything that has none."""
    try:
        return bytes(msgspec.json.decode(body, type=_Envelope).id)
    except msgspec.MsgspecError:
        return b"null"


class Log(list[T], Generic[T]):
    """A list that can be awaited to reach a length."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what
        self._grown = asyncio.Event()

    def append(self, item: T) -> None:
        super().append(item)
        self._grown.set()
        self._grown = asyncio.Event()

    async def reach(self, count: int, within: float = WAIT_SECONDS) -> T:
        """The item with that number (from 1), as soon as it exists."""
        with deadline(within, lambda: f"{count} {self._what} expected, {len(self)} seen"):
            async with asyncio.timeout(within):
                while len(self) < count:
                    await self._grown.wait()
        return self[count - 1]


@contextlib.contextmanager
def deadline(within: float, say: Callable[[], str]) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise AssertionError(f"{say()} within {within} s") from None


class Connection(asyncio.Protocol):
    """One accepted connection. Behaviours drive it through send, pause, close, reset."""

    def __init__(self, agent: FaultAgent) -> None:
        self.agent = agent
        self.number = 0
        self.closed_at: float | None = None
        """Loop time at which the peer closed or reset its socket; None while it has not."""
        self.lost = False
        self.ended_by_us = False
        self.peer_gone = asyncio.Event()
        self.sent = 0
        """Bytes written so far; while the peer does not read, it stands still."""
        self._buffer = bytearray()
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._task: asyncio.Task[None] | None = None

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no instances of it
        self.agent.connections.append(self)
        self.number = len(self.agent.connections)
        self._task = asyncio.get_running_loop().create_task(self.agent.serve(self))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._arrived.set()

    def eof_received(self) -> bool:
        self._peer_left()
        return not self.tls  # half open, so that a behaviour may still write (TLS has no such thing)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if not self.ended_by_us:
            self._peer_left()
        self._arrived.set()
        self._writable.set()
        self.agent.changed()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _peer_left(self) -> None:
        if self.closed_at is None:
            self.closed_at = asyncio.get_running_loop().time()
            self.peer_gone.set()
            self._arrived.set()
            self.agent.changed()

    # -- for behaviours

    @property
    def tls(self) -> bool:
        return self.transport.get_extra_info("ssl_object") is not None

    @property
    def open(self) -> bool:
        """Neither side has closed it."""
        return self.closed_at is None and not self.lost and not self.ended_by_us

    async def read_to(self, mark: bytes) -> bytes:
        """Everything up to and including the mark."""
        start = 0
        while (at := self._buffer.find(mark, start)) < 0:
            start = max(0, len(self._buffer) - len(mark) + 1)
            await self._more()
        return self._cut(at + len(mark))

    async def read(self, size: int) -> bytes:
        while len(self._buffer) < size:
            await self._more()
        return self._cut(size)

    def _cut(self, size: int) -> bytes:
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    async def _more(self) -> None:
        if self.closed_at is not None or self.lost or self.ended_by_us:
            raise ConnectionResetError("the peer has left")
        self._arrived.clear()
        await self._arrived.wait()

    async def send(self, data: bytes) -> None:
        """Writes and waits until the peer has taken most of it; fails when the connection is gone."""
        if self.transport.is_closing():
            if not self.ended_by_us:
                self._peer_left()  # a write failed: uvloop tells the protocol only later
            raise ConnectionResetError("the peer has left")
        self.transport.write(data)
        self.sent += len(data)
        await asyncio.sleep(0)  # so that an endless body lets others run even if the peer takes all of it
        await self._writable.wait()

    async def pause(self, seconds: float) -> None:
        """A sleep that ends with an error as soon as the peer leaves."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.peer_gone.wait()
        if self.peer_gone.is_set():
            raise ConnectionResetError("the peer has left")

    def close(self) -> None:
        """Sends what is written, then FIN."""
        self.ended_by_us = self.ended_by_us or self.closed_at is None
        self.transport.close()

    def reset(self) -> None:
        """RST at once: what is still unsent is lost."""
        self.ended_by_us = self.ended_by_us or self.closed_at is None
        _linger(self.transport.get_extra_info("socket").fileno(), 0)
        self.transport.abort()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if not self.lost:
            self.reset()


def _linger(descriptor: int, seconds: int) -> None:
    """Set through a duplicate: event loops hand out sockets without setsockopt."""
    with socket.socket(fileno=os.dup(descriptor)) as duplicate:
        duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, seconds))


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What the agent does with one request, or (`when="connect"`) with a connection nobody asked on yet."""

    name: str
    run: Callable[[Connection, Received | None], Awaitable[None]]
    when: Literal["request", "connect"] = "request"


async def read_request(connection: Connection, number: int) -> Received:
    """The next request on the connection, as it came; fails with `ConnectionError` when the peer leaves."""
    head = await connection.read_to(HEAD_END)
    request_line, *lines = head[: -len(HEAD_END)].decode("latin-1").split("\r\n")
    method, target, version = request_line.split(" ")
    pairs = (line.split(":", 1) for line in lines)
    headers = tuple((name, value.strip(" \t")) for name, value in pairs)
    framing = {name.lower(): value.lower() for name, value in headers}
    if framing.get("transfer-encoding") == "chunked":
        content, body = await _read_chunks(connection)
    else:
        content = body = await connection.read(int(framing.get("content-length", "0")))
    return Received(
        number=number,
        connection=connection.number,
        raw=head + content,
        method=method,
        target=target,
        version=version,
        headers=headers,
        body=body,
        at=asyncio.get_running_loop().time(),
    )


async def _read_chunks(connection: Connection) -> tuple[bytes, bytes]:
    """Chunked content: (as on the wire, decoded). Trailers are kept in the raw part only."""
    raw, body = bytearray(), bytearray()
    while True:
        raw += (line := await connection.read_to(b"\r\n"))
        size = int(line.split(b";")[0], 16)
        if size == 0:
            break
        raw += (chunk := await connection.read(size + 2))
        body += chunk[:-2]
    while True:
        raw += (line := await connection.read_to(b"\r\n"))
        if line == b"\r\n":
            return bytes(raw), bytes(body)
