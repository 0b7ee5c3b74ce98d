"""The load of streams: callers that open streams and check every byte of them.

A stream is whole when its last event and its final chunk have come; one that ends otherwise is an error, unless
its caller left.
"""

import asyncio
import time
from typing import cast

from tests.benchmarks import events
from tests.benchmarks.events import Checker, WrongStreamError
from tests.benchmarks.processes import BenchError

#: Streams that wait for their first event at the same time.
OPENING = 100
OPEN_SECONDS = 30.0


class Load:
    """The callers of one process under test, and what they have seen.

    Attributes:
        events: How many events have come.
        latencies: Nanoseconds from the writing of each event to its arrival.
        failure: What was wrong first.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.events = 0
        self.latencies: list[int] = []
        self.failure: str | None = None
        self.callers: list[Caller] = []

    def fail(self, complaint: str) -> None:
        """Note an error."""
        self.failure = self.failure or complaint

    def check(self) -> None:
        """Raise BenchError if anything was wrong."""
        if self.failure:
            raise BenchError(self.failure)

    async def connect(self) -> "Caller":
        """One more caller."""
        loop = asyncio.get_running_loop()
        _, caller = await loop.create_connection(lambda: Caller(self), "127.0.0.1", self.port)
        self.callers.append(caller)
        return caller

    async def open(self, paths: list[str], count: int, every: float) -> None:
        """Open one stream per path, each by a caller of its own; return when each has its first event."""
        gate = asyncio.Semaphore(OPENING)

        async def one(path: str) -> None:
            async with gate:
                caller = await self.connect()
                caller.begin(path, count, every)
                await asyncio.wait_for(caller.first, OPEN_SECONDS)

        try:
            await asyncio.gather(*map(one, paths))
        except TimeoutError:
            self.fail(f"no first event within {OPEN_SECONDS:g} s")
        except OSError as error:
            self.fail(f"a stream could not be opened: {error}")
        self.check()

    async def whole(self, seconds: float) -> None:
        """Wait until every stream is whole."""
        try:
            await asyncio.wait_for(asyncio.gather(*(caller.ended for caller in self.callers)), seconds)
        except TimeoutError:
            unfinished = sum(not caller.ended.done() for caller in self.callers)
            self.fail(f"{unfinished} of {len(self.callers)} streams had no end after {seconds:g} s")
        self.check()

    async def leave(self) -> None:
        """Close all callers' connections."""
        callers, self.callers = self.callers, []
        for caller in callers:
            caller.leave()
        await asyncio.gather(*(caller.lost for caller in callers))


class Caller(asyncio.Protocol):
    """One connection of a caller: one stream after the other.

    Attributes:
        first: Done when the stream at hand has an event, or never will.
        ended: Done when it is whole, or never will be.
        lost: Done when the connection is closed.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        loop = asyncio.get_running_loop()
        self.first: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()
        self._checker = Checker(0, load.latencies)
        self._rest = b""
        self._in_body = self._left = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def begin(self, path: str, count: int, every: float) -> None:
        """Ask for a stream."""
        if self.ended.done():
            self.ended = asyncio.get_running_loop().create_future()
        self._checker = Checker(count, self._load.latencies)
        self._in_body = False
        body = events.request(count, every)
        self._transport.write(
            b"POST %b HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\n"
            b"accept: text/event-stream\r\ncontent-length: %d\r\n\r\n%b"
            % (path.encode(), self._load.port, len(body), body)
        )

    def leave(self) -> None:
        """Close the connection, whatever is open."""
        self._left = True
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Read and check a piece of the answer."""
        now = time.monotonic_ns()
        if self._rest:
            data = self._rest + data
        try:
            self._take(data, now)
        except (WrongStreamError, ValueError) as error:
            self._give_up(f"wrong stream: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell an end that is none."""
        if not self._left and not self.ended.done():
            self._give_up(f"connection lost after {self._checker.number} events: {exc or 'closed'}")
        self.lost.set_result(None)

    def _take(self, data: bytes, now: int) -> None:
        at = 0
        if not self._in_body:
            at = self._head(data)
        body, end = b"", -1
        while self._in_body and (end := data.find(b"\r\n", at)) > 0:
            size = int(data[at:end], 16)
            stop = end + 2 + size
            if len(data) < stop + 2:
                break
            if data[stop : stop + 2] != b"\r\n":
                raise WrongStreamError(f"broken chunk: {data[at : at + 100]!r}")
            body = body + data[end + 2 : stop] if body else data[end + 2 : stop]
            at = stop + 2
            if not size:
                self._in_body = False
                self._end(body, now, data[at:])
                return
        self._rest = data[at:]
        self._check(body, now)

    def _head(self, data: bytes) -> int:
        """Check the head if it is there; where the body begins."""
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return 0
        head = data[:end].lower()
        if not (
            head.startswith(b"http/1.1 200 ")
            and b"\r\ncontent-type: text/event-stream" in head
            and b"\r\ntransfer-encoding: chunked" in head
        ):
            raise WrongStreamError(f"no stream: {data[:1000]!r}")
        self._in_body = True
        return end + 4

    def _check(self, body: bytes, now: int) -> None:
        if body:
            self._load.events += self._checker.feed(body, now)
            if not self.first.done() and self._checker.number:
                self.first.set_result(None)

    def _end(self, body: bytes, now: int, excess: bytes) -> None:
        self._check(body, now)
        self._rest = b""
        if excess or not self._checker.complete:
            raise WrongStreamError(f"an end after {self._checker.number} events, then {excess[:100]!r}")
        self.ended.set_result(None)

    def _give_up(self, complaint: str) -> None:
        self._load.fail(complaint)
        self._left = True
        self._transport.abort()
        for waited in (self.first, self.ended):
            if not waited.done():
                waited.set_result(None)
