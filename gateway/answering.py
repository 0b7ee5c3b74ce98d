"""The answering half of a caller's connection: whole answers in one write, and streams of events."""

from __future__ import annotations

import asyncio
import fcntl
import sys
import termios
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from gateway.cycles import CloseDelimited
from gateway.upstream.known_head import UNCOPIED


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What a caller may take (contract 2.3 and 4, `limits` and `server`).

    Attributes:
        header_bytes: The request line and all headers, 431 beyond it.
        request_timeout_seconds: From the first byte of a request to its last, 408 beyond it.
        answer_seconds: How long the answer to a call may wait to be taken.
    """

    header_bytes: int = 32 * 1024
    request_timeout_seconds: float = 60.0
    answer_seconds: float = 10.0


class Stream(Protocol):
    """A stream of events as the connection sees it."""

    def attach(self, outlet: Answering) -> None:
        """Begin to write to the outlet."""

    def pause(self) -> None:
        """The caller does not keep up."""

    def resume(self) -> None:
        """The caller has caught up."""


class Answer(Protocol):
    """A whole answer: status code, header lines, body; or a stream."""

    @property
    def status(self) -> int:
        """Status code."""

    @property
    def head(self) -> bytes:
        """Header lines, each with its CRLF."""

    @property
    def body(self) -> bytes | memoryview:
        """The whole body, or nothing."""

    @property
    def stream(self) -> Stream | None:
        """The stream, if it is one."""


#: Nothing is queued here: what a caller pipelines is refused. One for all connections.
_NO_PIPELINE: Final[deque[Any]] = deque(maxlen=0)


class _Lines:
    """The lines that stand in every answer; uvicorn makes a new list of them every second, for the date."""

    __slots__ = ("_headers", "_text")

    def __init__(self) -> None:
        self._headers: list[tuple[bytes, bytes]] = []
        self._text = b""

    def __call__(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        """Write the lines, once for each list."""
        if headers is not self._headers:
            self._headers = headers
            self._text = b"".join(b"%b: %b\r\n" % line for line in headers)
        return self._text


_lines = _Lines()


class Answering(HttpToolsProtocol):
    """Writes what the proxy answers, without ASGI. It is the outlet of the stream at hand.

    Attributes beside uvicorn's have slots: with more in its dict than the interpreter shares among instances, an
    idle connection would take a third more.

    Attributes:
        lost: The caller has left, or was cut off, while a request was unanswered.
        on_lost: Called then, once; forgotten when the response is complete.
        done: Set when the answer at hand is complete, or the caller is lost; for whoever waits in a task.
    """

    __slots__ = ("_chunked", "_full", "_stream", "done", "limits", "lost", "on_lost")

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ServerLimits,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.pipeline = _NO_PIPELINE
        self.limits = limits
        self.lost = False
        self.on_lost: Callable[[], None] | None = None
        self.done: asyncio.Future[None] | None = None
        self._stream: Stream | None = None
        self._chunked = False
        self._full = False

    def close(self) -> None:
        """End the connection once everything written is sent."""
        raise NotImplementedError

    def deliver(self, reply: Answer | None) -> None:
        """Take the reply to the call at hand; None if there is nobody left to answer."""
        if reply is None or self.lost or self.cycle.disconnected:
            return
        if reply.stream is None:
            self._respond(reply.status, reply.head, reply.body)
        else:
            self._begin(reply.status, reply.head, reply.stream)

    def completed(self) -> None:
        """Note the end of an answer."""
        self.on_lost = self._stream = None
        done, self.done = self.done, None
        if done is not None and not done.done():
            done.set_result(None)

    # A whole answer

    def _respond(self, status: int, head: bytes, body: bytes | memoryview) -> None:
        transport = self.transport
        whole = self._head(status, head)
        if len(body) < UNCOPIED:
            transport.write(whole + body)
        else:
            transport.writelines((whole, body))
        self._complete()
        if transport.get_write_buffer_size():
            self.loop.call_later(self.limits.answer_seconds, self._cut_off, self.cycle)

    def _head(self, status: int, head: bytes) -> bytes:
        return b"%b%b%b%b" % (
            STATUS_LINE[status],
            _lines(self.server_state.default_headers),
            head,
            b"\r\n" if self.cycle.keep_alive else b"connection: close\r\n\r\n",
        )

    def _complete(self) -> None:
        cycle = self.cycle
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.close()
        self.on_response_complete()
        if self.flow.write_paused and not self.transport.is_closing():
            self._full = True  # no further request before this answer is taken: it could be answered as well
            self.flow.pause_reading()

    def _cut_off(self, cycle: object) -> None:
        """End the connection of a caller that has not taken its answer in time (contract 2.3)."""
        if self.cycle is cycle and self.transport.get_write_buffer_size():
            self.transport.abort()

    # A stream: this is its outlet

    def _begin(self, status: int, head: bytes, stream: Stream) -> None:
        cycle = self.cycle
        cycle.response_started = True
        # HTTP/1.0 knows no chunks: there the end of the connection ends the body.
        self._chunked = not isinstance(cycle, CloseDelimited)
        if self._chunked:
            head += b"transfer-encoding: chunked\r\n"
        self.transport.write(self._head(status, head))
        self._stream = stream
        stream.attach(self)
        if self.flow.write_paused:  # an earlier answer is not taken yet, and the transport says so only once
            stream.pause()

    def push(self, data: bytes) -> None:
        """Write whole events."""
        if self._stream is not None and not self.transport.is_closing():
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def finish(self) -> None:
        """End the stream in an orderly way. Slow callers take its last events as long as they take anything.

        Those that do not are ended by the server's sweep (`server.request_timeout_seconds`).
        """
        if self._stream is not None and not self.transport.is_closing():
            if self._chunked:
                self.transport.write(b"0\r\n\r\n")
            self._complete()

    def eof_received(self) -> None:
        """The caller has left. What it has not taken of a stream would keep the connection, and so the agent."""
        if self._stream is not None:
            self.transport.abort()

    def abort(self) -> None:
        """End the connection at once, whatever is still unsent."""
        self.transport.abort()

    def unsent(self) -> int:
        """Tell how many bytes the caller has not taken: those that wait here, and in the kernel."""
        return self.transport.get_write_buffer_size() + _in_kernel(self.transport)

    def pause_writing(self) -> None:
        """The caller does not keep up: a stream stops reading from its agent."""
        super().pause_writing()
        if self._stream is not None:
            self._stream.pause()

    def resume_writing(self) -> None:
        """The caller has caught up."""
        super().resume_writing()
        if self._full:
            self._full = False
            self.flow.resume_reading()
        if self._stream is not None:
            self._stream.resume()


def _in_kernel(transport: asyncio.Transport) -> int:
    """Give the bytes that the kernel has taken and the peer has not acknowledged (Linux's SIOCOUTQ).

    The kernel takes megabytes and asks for more only when a third of them is gone: without this a slow caller
    looks like one that takes nothing, and a dead one like one that has taken everything.
    """
    try:
        held = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:  # the connection is closed, or a system that does not tell
        return 0
    return int.from_bytes(held, sys.byteorder)
