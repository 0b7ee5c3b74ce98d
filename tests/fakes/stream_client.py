"""A caller of streams that sees what was written, chunk by chunk, and can leave, reset, or stop reading."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

CALL = b'{"jsonrpc":"2.0","id":7,"method":"message/stream","params":{}}'
Door = Literal["direct", "asgi"]
"""The two ways into the gateway: a plain POST skips ASGI, one with a chunked body does not."""
Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Event:
    """One event as it came."""

    data: bytes
    name: str | None
    id: str | None
    text: bytes
    """The whole event as it stood on the wire, without its blank line."""

    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def reason(self) -> str:
        """The reason in an error event that the gateway made, in either format."""
        value = self.json()
        error = value["error"] if "error" in value else value["payload"]
        [info] = error["data"]
        assert info["domain"] == "vitalgate"
        return str(info["reason"])


class Stream:
    """The answer to one request. `events` of it come one by one, or all that are left by `rest`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self.pieces: list[bytes] = []
        """What came in one piece: a chunk, or one read where there are none."""
        self.keepalives = 0
        self.ended = False
        """The end was announced: the last chunk, or the end of the connection where there are none."""
        self._chunked = False
        self._waiting: list[Event] = []

    async def head(self) -> None:
        """Reads the head of the answer."""
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
        self.status = int(first.split(" ")[1])
        self.headers = [(name.lower(), value.strip()) for name, value in (line.split(":", 1) for line in lines)]
        self._chunked = self.header("transfer-encoding") == "chunked"

    def header(self, name: str) -> str | None:
        """The one value of a header; None if it is absent."""
        values = [value for key, value in self.headers if key == name]
        assert len(values) <= 1, values
        return values[0] if values else None

    async def body(self) -> bytes:
        """The body of an answer that is no stream."""
        return await self.reader.readexactly(int(self.header("content-length") or "0"))

    async def event(self, within: float = 5.0) -> Event:
        """The next event; fails if the stream ends first."""
        async with asyncio.timeout(within):
            while not self._waiting and not self.ended:
                await self._read()
        assert self._waiting, "the stream has ended"
        return self._waiting.pop(0)

    async def rest(self, within: float = 5.0) -> list[Event]:
        """All events up to the announced end."""
        async with asyncio.timeout(within):
            while not self.ended:
                await self._read()
        events, self._waiting = self._waiting, []
        return events

    async def silence(self, until: int, within: float = 5.0) -> None:
        """Reads until so many keepalives have come, and no event."""
        async with asyncio.timeout(within):
            while self.keepalives < until:
                await self._read()
        assert self._waiting == []

    async def _read(self) -> None:
        piece = await (self._chunk() if self._chunked else self._until_close())
        if piece:
            self.pieces.append(piece)
            self._parse(piece)

    async def _chunk(self) -> bytes:
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        data = await self.reader.readexactly(size + 2)
        assert data.endswith(b"\r\n")
        self.ended = size == 0
        return data[:-2]

    async def _until_close(self) -> bytes:
        try:
            return await self.reader.readuntil(b"\n\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise AssertionError(f"half an event before the end: {error.partial!r}") from None
            self.ended = True
            return b""

    def _parse(self, piece: bytes) -> None:
        assert piece.endswith(b"\n\n"), f"not whole events: {piece[-100:]!r}"
        for block in piece[:-2].split(b"\n\n"):
            if block.startswith(b":"):
                assert block == b": keepalive"
                self.keepalives += 1
            else:
                self._waiting.append(_event(block))

    # -- leaving

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """RST."""
        descriptor = self.writer.get_extra_info("socket").fileno()
        with socket.socket(fileno=os.dup(descriptor)) as duplicate:
            duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def leave(self, how: str) -> None:
        """`close`, `reset`, or `half-close`."""
        if how == "half-close":
            self.writer.write_eof()
        elif how == "reset":
            self.reset()
        else:
            self.close()


def _event(block: bytes) -> Event:
    fields: dict[bytes, list[bytes]] = {}
    for line in block.split(b"\n"):
        name, _, value = line.partition(b": ")
        fields.setdefault(name, []).append(value)
    single = {name: values[0].decode() for name, values in fields.items() if name != b"data"}
    assert all(len(fields[name]) == 1 for name in fields if name != b"data"), block
    return Event(b"\n".join(fields.get(b"data", [])), single.get(b"event"), single.get(b"id"), block)


def request(
    body: bytes | None = CALL,
    *,
    path: str = "/a2a/echo",
    door: Door = "direct",
    version: str = "1.1",
    headers: Headers = (),
) -> bytes:
    """The bytes of a request: POST with that body, GET without one."""
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/{version}", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body is None:
        return "\r\n".join([*lines, "", ""]).encode()
    lines.append("Content-Type: application/json")
    lines.append("Transfer-Encoding: chunked" if door == "asgi" else f"Content-Length: {len(body)}")
    content = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if door == "asgi" else body
    return "\r\n".join([*lines, "", ""]).encode() + content


@asynccontextmanager
async def calling(port: int, data: bytes, *, limit: int = 1 << 20) -> AsyncIterator[Stream]:
    """Send a request; the answer is not read yet."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit)
    try:
        writer.write(data)
        yield Stream(reader, writer)
    finally:
        writer.close()


@asynccontextmanager
async def opened(
    port: int,
    body: bytes | None = CALL,
    *,
    path: str = "/a2a/echo",
    door: Door = "direct",
    version: str = "1.1",
    headers: Headers = (),
) -> AsyncIterator[Stream]:
    """Send a request and read the head of its answer, which must be a stream."""
    data = request(body, path=path, door=door, version=version, headers=headers)
    async with calling(port, data) as stream:
        async with asyncio.timeout(5):
            await stream.head()
        assert stream.header("content-type") == "text/event-stream", await stream.body()
        yield stream
