"""The streaming agent: answers POST with the stream of events that the request's metadata asks for.

Every event is a write of its own, as agents do it. `GET /open` tells how many streams are open.

Run as a program: python -m tests.benchmarks.stream_agent PORT
"""

import asyncio
import itertools
import re
import sys
import time
from typing import cast

import uvloop

from tests.benchmarks import events

_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_CHUNK = b"%x\r\n" % events.SIZE
_LAST = b"%x\r\n%b\r\n0\r\n\r\n" % (len(events.FINAL), events.FINAL)
_ID = re.compile(rb'"id": *("[^"]*"|[0-9]+)')
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)
#: Spreads the streams over the interval, however many there are.
_GOLDEN = 0.6180339887


def _id(body: bytes) -> bytes:
    found = _ID.search(body)
    return found[1] if found else b"null"


class Streams:
    """What all connections share.

    Attributes:
        open: How many streams are open.
        counter: Numbers the streams.
        unused: Set while there is no connection.
    """

    def __init__(self) -> None:
        self.open = self._connections = 0
        self.counter = itertools.count(1)
        self.unused = asyncio.Event()

    def count(self, change: int) -> None:
        """Note a connection that comes (1) or goes (-1)."""
        self._connections += change
        if self._connections:
            self.unused.clear()
        else:
            self.unused.set()


class StreamAgent(asyncio.Protocol):
    """One connection: one stream after the other."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._number = self._count = 0
        self._every = self._next = 0.0
        self._streaming = self._paused = self._closed = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)
        self._streams.count(1)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the stream at hand."""
        self._closed = True
        self._streams.count(-1)
        if self._timer is not None:
            self._timer.cancel()
        if self._streaming:
            self._streaming = False
            self._streams.open -= 1

    def data_received(self, data: bytes) -> None:
        """Read a request."""
        self._buffer += data
        head, blank, body = self._buffer.partition(b"\r\n\r\n")
        if not blank:
            return
        if head.startswith(b"GET "):
            self._buffer = b""
            text = b"%d" % self._streams.open
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text))
            return
        length = _LENGTH.search(head + b"\r\n")
        if length is None:
            self._transport.abort()
        elif len(body) >= int(length[1]):
            self._buffer = b""
            if b'"message/stream"' in body:
                self._begin(*events.plan(body))
            else:  # the gateway asks how the agent is
                answer = b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32601,"message":"no such method"}}' % _id(
                    body
                )
                self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(answer), answer))

    def _begin(self, count: int, every: float) -> None:
        self._streaming = True
        self._streams.open += 1
        self._number, self._count, self._every = 0, count, every
        self._transport.write(_HEAD)
        self._next = self._loop.time() + every * (next(self._streams.counter) * _GOLDEN % 1)
        self._write()

    def _write(self) -> None:
        """Write the next event, and see to the one after it."""
        if self._closed or self._paused:
            return
        event = events.event(self._number, time.monotonic_ns())
        self._transport.write(b"%b%b\r\n" % (_CHUNK, event))
        self._number += 1
        if self._number >= self._count:
            self._end()
        elif self._every:
            self._timer = self._loop.call_at(self._next, self._write)
            self._next += self._every
        else:
            self._loop.call_soon(self._write)

    def _end(self) -> None:
        self._streaming = False
        self._streams.open -= 1
        self._transport.write(_LAST)

    def pause_writing(self) -> None:
        """The reader does not keep up."""
        self._paused = True

    def resume_writing(self) -> None:
        """It does again."""
        self._paused = False
        if self._streaming:
            self._write()


async def serve(port: int, streams: Streams) -> asyncio.Server:
    """Listen on a port of 127.0.0.1."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: StreamAgent(streams), "127.0.0.1", port, backlog=4096)


async def _main(port: int) -> None:
    server = await serve(port, Streams())
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(int(sys.argv[1])))
