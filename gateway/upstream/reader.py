"""Reads HTTP/1.x answers: bytes in, values out, no I/O. The grammar is llhttp's (httptools), in strict mode."""

from __future__ import annotations

from typing import Final

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpResponseParser

from gateway.upstream.content_length import read_length

MAX_HEAD: Final = 65_536  # bytes of head, and of anything else that comes without a byte of body
MAX_HEADERS: Final = 256
MAX_INTERIM: Final = 16

_REMEMBERED: Final = 1024
_BLANK: Final = frozenset((b" ", b"\t"))
_NOTED: Final = frozenset((b"content-encoding", b"transfer-encoding"))
_VERSIONS: Final = frozenset(("1.0", "1.1"))


class _Lower(dict[bytes, bytes]):
    """Names in lower case, remembered up to a bound: agents say the same ones all the time."""

    def __missing__(self, name: bytes) -> bytes:
        lower = name.lower()
        if len(self) < _REMEMBERED:
            self[name] = lower
        return lower


_lower = _Lower()


class _NotAcceptedError(Exception):
    """Raised through the parser: legal for llhttp, not for us."""


class ResponseReader:
    """Takes one answer after the other out of the bytes of a connection.

    Attributes:
        status: Of the final answer; 0 until its head is complete.
        headers: Its headers, names in lower case.
        pieces: Raw pieces of body since the last `clear`; whoever takes them clears the list.
        complete: The whole answer is there.
        excess: Something followed the complete answer.
        broken: What came is not acceptable as HTTP/1.x.
        upgraded: 101.
        keep_alive: The connection may serve another request.
        codings: Content codings, outermost last, "identity" left out.
    """

    __slots__ = (
        "_interim",
        "_parser",
        "_quiet",
        "_taken",
        "broken",
        "chunked",
        "codings",
        "complete",
        "excess",
        "headers",
        "keep_alive",
        "on_body",
        "pieces",
        "status",
        "upgraded",
    )

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.on_body = self.pieces.append
        self.broken = self.upgraded = self.excess = False
        self.reset()
        self._parser = HttpResponseParser(self)

    def reset(self) -> None:
        """Make ready for the next answer."""
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.pieces.clear()
        self.complete = self.keep_alive = self.chunked = False
        self.codings: tuple[bytes, ...] = ()
        self._interim = self._quiet = self._taken = 0

    @property
    def started(self) -> bool:
        """Whether any byte of the answer has come."""
        return bool(self.status or self._quiet or self.broken)

    @property
    def length(self) -> int | None:
        """The announced Content-Length, if any."""
        for name, value in self.headers:
            if name == b"content-length":
                return read_length(value)
        return None

    def feed(self, data: bytes) -> None:
        """Read some bytes; the attributes tell what they brought."""
        if self.complete or self.broken:
            self.excess = self.complete
            return
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:  # 101 has been noticed before
            self.broken = True
        except HttpParserCallbackError as error:
            if not isinstance(error.__context__, _NotAcceptedError):
                raise
            self._bad()
        except HttpParserError:
            self._bad()
        if self.excess:
            del self.pieces[self._taken :]
        if len(data) > MAX_HEAD and sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD:
            self.broken, self.status, self.complete = True, 0, False
        elif self.pieces or self.complete:
            self._quiet = 0
        else:  # an endless head, chunk extension or trailer
            self._quiet += len(data)
            if self._quiet > MAX_HEAD:
                self.broken = True

    def end(self) -> None:
        """Note that the connection was closed in an orderly way: the end of a body without other framing."""
        if self.status and not self.chunked and self.length is None:
            self.complete = True

    def close(self) -> None:
        """Let go of the parser, which holds on to this reader: both are freed at once, without the collector."""
        del self._parser

    def _bad(self) -> None:
        if self.complete:
            self.excess = True
        else:
            self.broken = True

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        """Notice a second answer."""
        if self.complete:
            self.excess = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers are ignored."""
        if not self.status:
            name = _lower[name]
            if value[-1:] in _BLANK:
                value = value.rstrip()
            if name in _NOTED:
                self._note(name, value)
            self.headers.append((name, value))

    def _note(self, name: bytes, value: bytes) -> None:
        tokens = tuple(token for part in value.lower().split(b",") if (token := part.strip()))
        if name == b"content-encoding":
            self.codings += tuple(token for token in tokens if token != b"identity")
        elif tokens != (b"chunked",) or self.chunked:
            raise _NotAcceptedError
        else:
            self.chunked = True

    def on_headers_complete(self) -> None:
        """Judge the head."""
        if self.complete:
            return
        parser = self._parser
        status = parser.get_status_code()
        if status < 200:
            self._skip(status)
            return
        self.keep_alive = parser.should_keep_alive()
        if not self.keep_alive and parser.get_http_version() not in _VERSIONS:
            raise _NotAcceptedError
        if len(self.headers) > MAX_HEADERS:
            raise _NotAcceptedError
        self.status = status

    def _skip(self, status: int) -> None:
        self._interim += 1
        if status == 101:
            self.upgraded = True
        if status == 101 or self._interim > MAX_INTERIM:
            raise _NotAcceptedError
        self.headers.clear()
        self.codings, self.chunked = (), False

    def on_message_complete(self) -> None:
        """Notice the end of the answer; interim answers end too."""
        if self.status and not self.complete:
            self.complete = True
            self._taken = len(self.pieces)
