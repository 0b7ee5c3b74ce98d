# ruff: noqa: D102 (public methods without a docstring are callbacks of asyncio, httptools and uvicorn)
"""HTTP/1.1 towards callers: uvicorn's httptools protocol, mended where a gateway needs more.

What uvicorn 0.54 does not do and this does: read the body of a request that offers an upgrade, drop pipelined
requests, answer HTTP/1.0 without chunks, bound the request head and the time a request takes to arrive, keep
trailers out of the headers, insist on one `Host`, tell at once that the caller has left, and read on for a
moment after an early answer, so that a reset does not destroy it.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from typing import Any, Protocol, cast

import httptools
from uvicorn._types import HTTPScope
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from gateway.answering import Answering, ServerLimits, Stream
from gateway.cycles import CloseDelimited, Cycle, Direct
from gateway.flow import Flow
from gateway.headers import Headers
from gateway.identity import Identity
from gateway.lifecycle import Lifecycle
from gateway.limits import Connections
from gateway.messages import Plain
from gateway.request_heads import RequestRefused, check_head, plain_answer, target_parts
from gateway.upstream.content_length import read_length
from gateway.upstream.known_head import KnownHeads

_BLANK = frozenset((b" ", b"\t"))
KEEP_ALIVE_SECONDS = 75.0
"""Longer than load balancers and clients keep an idle connection, so that it is they who close it."""
LINGER_SECONDS = 2.0
"""How long a caller who is still sending is read on after the final answer."""

# How far the request at hand has come.
_NONE, _HEAD, _BODY, _WHOLE = range(4)


class _Pipelined(Exception):
    """Raised inside a parser callback: a second request came before the first was answered."""


class Door(Protocol):
    """Takes calls straight from the connection: the same that `Dispatch` takes over ASGI, for less."""

    port: int
    """The API listener's; connections to the metrics listener have no door."""

    def read(self, url: bytes, headers: Headers, fields: dict[bytes, bytes]) -> Plain:
        """Read the head of a POST."""

    def admits(self, caller: Caller, plain: Plain, length: int) -> Identity | None:
        """Give who calls, if a POST with this head and so long a body may skip ASGI."""

    def call(self, caller: Caller, plain: Plain, identity: Identity, body: bytes | memoryview) -> None:
        """Take a complete call; the answer goes to `caller.deliver`."""


class Caller(Answering):
    """One connection of a caller; every request's scope carries it as `vitalgate.connection`.

    `lost` turns true, and `on_lost` is called once and at once, when the caller closes, half-closes or resets
    the connection, or is cut off, while a request is unanswered. `on_lost` is forgotten when the response is
    complete. Look at `lost` before setting `on_lost`: the caller may have left before the handler began.
    """

    __slots__ = (
        "arrived",
        "deaf",
        "direct",
        "door",
        "is_closing",
        "known",
        "leftover",
        "lifecycle",
        "place",
        "places",
        "since",
        "stage",
        "unparsed",
        "write",
    )

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ServerLimits,
        lifecycle: Lifecycle,
        door: Door | None = None,
        connections: Connections | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop, limits=limits)
        self.places = connections
        self.place: str | None = None  # among the connections of the same client
        self.door = door
        self.direct: Direct | None = None
        self.lifecycle = lifecycle
        self.stage = _NONE
        self.deaf = False  # nothing more is heard from this caller, only its leaving
        self.known: KnownHeads[Plain] = KnownHeads()
        self.arrived = b""  # what is being parsed, if it began with a request
        self.unparsed = 0  # bytes since the parser last delivered a head or a piece of a body
        self.since = 0.0  # when the present wait began
        self.leftover = 0  # bytes of answers that the caller had not taken at the last sweep

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = Flow(transport)
        if self.door is not None and self.server is not None and self.door.port != self.server[1]:
            self.door = None
        self.since = self.loop.time()
        self.write = transport.write
        self.is_closing = transport.is_closing
        if self.places is not None:
            self.place = self.places.enter(self.client[0] if self.client else "")
            if self.place is None:
                self._refuse(503, "Too many connections from this address.")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._lose()
        if self.places is not None and self.place is not None:
            self.places.leave(self.place)
        # Free without the garbage collector: each of them leads back here.
        self.cycle = self.scope = self.direct = None  # type: ignore[assignment]

    def close(self) -> None:
        """End the connection once everything written is sent."""
        if self.transport.is_closing():
            return
        if self.deaf or self.stage == _BODY:
            self._linger()
        else:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self.deaf:
            return
        if self.stage == _NONE and not self.unparsed:
            if self._is_again(data):
                return
            self.arrived = data
        self.unparsed += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.arrived = b""
            rest = data[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            self._reject(error.__context__)
            return
        else:
            self.arrived = b""
            if self.unparsed > self.limits.header_bytes:
                self._refuse(431, "Request header fields too large.")
            return
        self._decline_upgrade(rest)

    def _is_again(self, data: bytes) -> bool:
        """Take a plain call whose head has come before: nothing needs to be parsed."""
        known, door = self.known.read(data), self.door
        if known is None or door is None:
            return False
        plain, body = known
        identity = door.admits(self, plain, len(body))
        if identity is None:
            return False
        self.stage = _WHOLE
        self.cycle = self.direct = Direct(self.lifecycle.ready, identity, None)  # type: ignore[assignment]
        door.call(self, plain, identity, body)
        return True

    # Parser callbacks, in the order of their coming

    def on_message_begin(self) -> None:
        if self.stage == _WHOLE:
            raise _Pipelined
        self.url = b""
        self.headers = []
        self.stage = _HEAD
        self.since = self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value.rstrip(b" \t") if value[-1:] in _BLANK else value))

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # the head is read again
        version = self.parser.get_http_version()
        fields = dict(self.headers)
        limit = self.limits.header_bytes
        # More may have come only because of the body behind it.
        check_head(version, self.url, self.headers, fields, limit if self.unparsed > limit else 0)
        self.direct = self._plain_call(version, fields)
        if self.direct is not None:
            self.stage = _BODY
            self.unparsed = 0
            self.cycle = cast(RequestResponseCycle, self.direct)
            self.headers = []
            return
        self.scope = self._scope(version)
        self.stage = _BODY
        self.unparsed = 0
        expect = b"expect" in fields and fields[b"expect"].lower() == b"100-continue"
        self.headers = []  # trailers go here, not into the scope
        old = version == "1.0"
        self.cycle = (CloseDelimited if old else Cycle)(
            scope=self.scope,
            transport=cast(asyncio.Transport, self),
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=expect,
            # A caller who was not asked to continue may still send the body or not: only a new connection is
            # sure to be in step.
            keep_alive=self.parser.should_keep_alive() and self.lifecycle.ready and not (old or expect),
            on_response=self.on_response_complete,
        )
        self._start_asgi_task(self.cycle, self.app)

    def on_body(self, body: bytes) -> None:
        self.unparsed = 0
        if self.direct is not None:
            self.direct.pieces.append(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self.stage == _HEAD:
            return  # an upgrade: the head is read again
        self.stage = _NONE if self.cycle.response_complete else _WHOLE
        self.unparsed = 0
        self.cycle.more_body = False
        if self.direct is not None:
            self._call(self.direct)
            return
        self.cycle.message_event.set()
        self.flow.resume_reading()  # there is no more to hold back, and who does not read sees nobody leave

    def _call(self, direct: Direct) -> None:
        plain, direct.plain = direct.plain, None
        if plain is None or self.door is None:
            raise AssertionError("a plain call has a head, and came through the door")
        body = b"".join(direct.pieces)
        direct.pieces.clear()
        if self.arrived and direct.keep_alive:
            self.known.learn(self.arrived, len(body), plain)
        self.door.call(self, plain, direct.identity, body)

    def _plain_call(self, version: str, fields: dict[bytes, bytes]) -> Direct | None:
        """Begin a plain call, which needs neither scope nor task, if the request is one."""
        if (
            self.door is not None
            and self.url.startswith(b"/a2a/")
            and self.parser.get_method() == b"POST"
            and version == "1.1"
            and b"transfer-encoding" not in fields
            and b"expect" not in fields
        ):
            length = read_length(fields.get(b"content-length", b""))
            plain = self.door.read(self.url, self.headers, fields)
            identity = None if length is None else self.door.admits(self, plain, length)
            if identity is not None:
                return Direct(self.parser.should_keep_alive() and self.lifecycle.ready, identity, plain)
        return None

    def _begin(self, status: int, head: bytes, stream: Stream) -> None:
        self.known.forget()  # there may be thousands of streams, and few connections have a request after one
        super()._begin(status, head, stream)

    # The end of a response, of a wait, of a connection

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self.completed()
        self.since = self.loop.time()
        if self.stage == _WHOLE:
            self.stage = _NONE
        if self.flow.read_paused and not self.transport.is_closing():
            self.flow.resume_reading()

    def expire(self, now: float) -> None:
        """End a wait that has become too long; called by the server's sweep with the loop's time."""
        answering = self._answering()
        if answering and (self.stage == _WHOLE or self.cycle.response_started):
            return  # the handler's turn: its deadlines are its own
        unsent = self.transport.get_write_buffer_size()
        if unsent < self.leftover:
            self.since = now
        self.leftover = unsent
        if now - self.since <= self._patience():
            return
        if not self.deaf and (self.stage == _HEAD or answering):
            self._refuse(408, "The request took too long to arrive.")
        else:
            self.abort()

    def _patience(self) -> float:
        if self.leftover or (self.stage and not self.deaf):
            return self.limits.request_timeout_seconds
        return LINGER_SECONDS if self.deaf else KEEP_ALIVE_SECONDS

    def _answering(self) -> bool:
        cycle = self.cycle
        return self.stage >= _BODY and not (cycle.response_complete or cycle.disconnected)

    def _lose(self) -> None:
        self.lost = True
        on_lost = self.on_lost
        self.completed()
        if on_lost is not None:
            on_lost()

    def _linger(self) -> None:
        """Send what is written and an end, and read on unheard: a reset would destroy the answer."""
        self.deaf = True
        self.since = self.loop.time()
        self.flow.resume_reading()
        self.transport.write_eof()

    # Requests that never reach the application, or only in part

    def _scope(self, version: str) -> HTTPScope:
        raw_path, _, query = self.url.partition(b"?")
        if raw_path[:1] != b"/" or b"#" in self.url:  # the absolute form, or `*`
            raw_path, query = target_parts(self.url)
        path = raw_path.decode("ascii")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "method": self.parser.get_method().decode("ascii"),
            "scheme": self.scheme,
            "path": urllib.parse.unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": self.headers,
            "client": self.client,
            "server": self.server,
            "state": self.app_state.copy(),
            "vitalgate.connection": self,
        }
        return cast(HTTPScope, scope)

    def _decline_upgrade(self, rest: bytes) -> None:
        """Read the head again without its `Upgrade`: to the parser, the body is another protocol's."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        if method == b"CONNECT":
            self._refuse(501, "This is not a forward proxy.")
            return
        lines = [b"%s %s HTTP/%s" % (method, self.url, version.encode())]
        lines += [b"%s: %s" % field for field in self.headers if field[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join([*lines, b"", rest]))

    def _reject(self, cause: BaseException | None) -> None:
        if isinstance(cause, _Pipelined) or self.stage == _WHOLE:
            self.deaf = True
            self.cycle.keep_alive = False
        elif isinstance(cause, RequestRefused):
            self._refuse(cause.status, cause.reason)
        else:
            if cause is not None:
                self.logger.error("reading a request failed", exc_info=cause)
            self._refuse(400, "Invalid HTTP request received.")

    def _refuse(self, status: int, reason: str) -> None:
        """Answer instead of the application, unless an answer has begun, and hear no more of this caller."""
        if self._answering():
            if self.cycle.response_started:
                self.abort()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self.transport.write(plain_answer(status, reason))
        elif self.stage <= _HEAD:
            self.transport.write(plain_answer(status, reason))
        self._linger()
        self._lose()
