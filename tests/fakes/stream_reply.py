"""Event streams as a `FaultAgent` answers them: whole, torn, broken, silent, endless."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from typing import Literal

from tests.fakes.answers import LAST_CHUNK, Headers, chunk, head
from tests.fakes.connection import Behaviour, Connection, Received

SSE = (("Content-Type", "text/event-stream"),)

Step = bytes | asyncio.Event | float
"""Bytes are sent, an event is waited for, a number is a pause in seconds."""
Framing = Literal["chunked", "close", "HTTP/1.0"]
End = Literal["clean", "close", "reset", "hang"]
"""The last chunk (or the close that stands for it); FIN without it; RST; silence until the peer leaves."""


def sse(
    *steps: Step,
    end: End = "clean",
    headers: Headers = SSE,
    status: int = 200,
    framing: Framing = "chunked",
    size: int = 0,
    gzip: bool = False,
) -> Behaviour:
    """An event stream; with `size`, pieces of so many bytes; with `gzip`, coded with a flush for every step."""

    async def act(connection: Connection, request: Received | None) -> None:
        coding = [("Content-Encoding", "gzip")] if gzip else []
        chunks = [("Transfer-Encoding", "chunked")] if framing == "chunked" else []
        version = "HTTP/1.0" if framing == "HTTP/1.0" else "HTTP/1.1"
        await connection.send(head(status, [*headers, *coding, *chunks], version))
        async for data in _pieces(connection, steps, size, gzip):
            await connection.send(chunk(data) if framing == "chunked" else data)
        await _end(connection, end, framing)

    return Behaviour("sse", act)


async def _pieces(connection: Connection, steps: tuple[Step, ...], size: int, gzip: bool) -> AsyncIterator[bytes]:
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    for step in steps:
        if isinstance(step, asyncio.Event):
            await _told(connection, step)
        elif isinstance(step, float | int):
            await connection.pause(step)
        else:
            data = packer.compress(step) + packer.flush(zlib.Z_SYNC_FLUSH) if gzip else step
            for at in range(0, len(data), size or len(data)):
                yield data[at : at + (size or len(data))]
    if gzip:
        yield packer.flush()


async def _told(connection: Connection, event: asyncio.Event) -> None:
    """Waits for the test, or fails because the peer has left."""
    gone = asyncio.ensure_future(connection.peer_gone.wait())
    told = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([gone, told], return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        told.cancel()
    if not event.is_set():
        raise ConnectionResetError("the peer has left")


async def _end(connection: Connection, end: End, framing: Framing) -> None:
    if end == "hang":
        await connection.peer_gone.wait()
    elif end == "reset":
        await asyncio.sleep(0.05)  # a reset throws away what the peer's kernel has not handed over yet
        connection.reset()
    elif end == "clean" and framing == "chunked":
        await connection.send(LAST_CHUNK)
    else:
        connection.close()


def pour(event: bytes, *, total: int, opening: bytes = b"") -> Behaviour:
    """The same bytes again and again, as fast as the peer takes them, until so many were sent; then silence.

    `Connection.sent` tells how far it has come.
    """

    async def act(connection: Connection, request: Received | None) -> None:
        await connection.send(head(200, [*SSE, ("Transfer-Encoding", "chunked")]))
        if opening:
            await connection.send(chunk(opening))
        block = chunk(event * max(1, 16_384 // len(event)))
        while connection.sent < total:
            await connection.send(block)
        await connection.peer_gone.wait()

    return Behaviour("pour", act)
