"""One connection to an agent: HTTP/1.1 over an asyncio transport, one exchange at a time.

`data_received` is the hot path: the usual answer (head and body in one read, no coding, not consumed piece
by piece) passes through it in a straight line.
"""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING, Final, cast

from gateway.upstream.codings import STEP, Decoder, UndecodableError
from gateway.upstream.exchange import AnswerHead, Exchange
from gateway.upstream.failures import PROTOCOL, TOO_LARGE, UNDECODABLE, UPGRADED, Failure, lost_failure
from gateway.upstream.known_head import UNCOPIED, KnownHeads
from gateway.upstream.reader import ResponseReader

if TYPE_CHECKING:
    from gateway.upstream.pool import Pool

_GONE: Final = getattr(select, "POLLRDHUP", 0) | select.POLLERR | select.POLLHUP
_SPEAKS: Final = select.POLLIN


class Connection(asyncio.Protocol):
    """A connection of a pool. It is idle, or carries one exchange."""

    __slots__ = (
        "_body",
        "_decoder",
        "_exchange",
        "_fresh",
        "_known",
        "_poll",
        "_pool",
        "_pumping",
        "_reader",
        "_transport",
        "idle_since",
        "spoke_first",
        "used",
    )

    _transport: asyncio.Transport

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._reader = ResponseReader()
        self._exchange: Exchange | None = None
        self._decoder: Decoder | None = None
        self._body = bytearray()
        self._pumping = False
        self._fresh = False  # no byte of the answer has come
        self._known: KnownHeads[AnswerHead] = KnownHeads()
        self.idle_since = 0.0
        self.used = False
        self.spoke_first = False

    # What the pool does with it

    def send(self, exchange: Exchange) -> None:
        """Write the request; the answer ends the exchange."""
        self._exchange = exchange
        exchange.carrier = self
        exchange.written = True
        self._fresh = True
        payload = exchange.payload
        if len(payload) < UNCOPIED:
            self._transport.write(exchange.head + payload)
        else:
            self._transport.writelines((exchange.head, payload))

    def alive(self) -> bool:
        """Whether another request may be written: open, and the peer has neither closed nor said anything.

        The kernel knows of a closed peer before the event loop does (0.7 us, pitfall 40).
        """
        return not self._transport.is_closing() and not self._poll.poll(0)

    def usable(self) -> bool:
        """Whether a first request may be written: what the peer has to say is judged when it is read."""
        if self._transport.is_closing():
            return False
        return not any(events & _GONE for _, events in self._poll.poll(0))

    def abort(self) -> None:
        """Close at once. A running exchange has been let go of before."""
        self._exchange = None
        self._transport.abort()

    def fail(self, failure: Failure) -> None:
        """Close at once, with this failure for a running exchange."""
        exchange = self._exchange
        self.abort()
        if exchange is not None:
            exchange.finish(failure)

    @property
    def certificate_ends(self) -> str | None:
        """When the peer's verified certificate ends, as OpenSSL writes it; None without one."""
        certificate = self._transport.get_extra_info("peercert") or {}
        ends: str | None = certificate.get("notAfter")
        return ends

    # Carrier

    drop = abort

    def pause(self) -> None:
        """Stop reading."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """Read again, decoding first what is still held."""
        self._transport.resume_reading()
        exchange = self._exchange
        if exchange is not None and self._decoder is not None and not self._pumping:
            self._pump(exchange, self._decoder)
            self._settle(exchange)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register with the pool."""
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        self._poll = select.poll()
        socket = transport.get_extra_info("socket")
        # TLS connections may hold unread session tickets: only a hang-up counts there.
        tls = transport.get_extra_info("sslcontext") is not None
        self._poll.register(socket.fileno(), _GONE if tls and _GONE else _GONE | _SPEAKS)
        self._pool.opened(self)

    def data_received(self, data: bytes) -> None:
        """Read the answer."""
        exchange = self._exchange
        if exchange is None:
            self.spoke_first = not self.used
            self._transport.abort()
            return
        fresh, self._fresh = self._fresh, False
        if fresh and self._is_again(exchange, data):
            return
        reader = self._reader
        reader.feed(data)
        if not exchange.status:
            if not reader.status:
                if reader.broken:
                    self.fail(UPGRADED if reader.upgraded else PROTOCOL)
                return
            exchange.status = reader.status
            exchange.headers = reader.headers
            if exchange.on_head is not None:
                exchange.on_head(exchange)
                if self._exchange is not exchange:
                    return
            if reader.complete and exchange.consume is None and not reader.codings:
                body = b"".join(reader.pieces)
                if len(body) > exchange.cap:
                    self.fail(TOO_LARGE)
                    return
                if fresh:
                    self._learn(exchange, data, len(body))
                exchange.body = body
                self._release()
                exchange.finish(None)
                return
            if not self._expect(exchange):
                return
        self._more(exchange)
        if reader.broken and self._exchange is exchange:  # what came before the break has been passed on
            self.fail(PROTOCOL)

    # An answer whose head has come before

    def _is_again(self, exchange: Exchange, data: bytes) -> bool:
        """Take a whole answer whose head is that of one before: nothing needs to be parsed."""
        known = self._known.read(data)
        if known is None or len(known[1]) > exchange.cap or exchange.head.startswith(b"HEAD "):
            return False
        head, body = known
        exchange.known = head
        exchange.status, exchange.headers = head.status, head.headers
        if exchange.on_head is not None:
            exchange.on_head(exchange)
        if self._exchange is exchange and exchange.consume is not None:
            exchange.consume(bytes(body))
        if self._exchange is exchange:
            exchange.body = body
            self._exchange = None
            if exchange.paused:
                self._transport.resume_reading()
            self._give_back()
            exchange.finish(None)
        return True

    def _learn(self, exchange: Exchange, data: bytes, size: int) -> None:
        """Know the head of an answer that came in one piece, if it may come again."""
        reader = self._reader
        if reader.keep_alive and not reader.excess and not reader.chunked:
            self._known.learn(data, size, AnswerHead(exchange.status, exchange.headers))

    # The end of a connection

    def eof_received(self) -> None:
        """Take the end of the stream: the end of a body without other framing, else a loss."""
        exchange = self._exchange
        if exchange is None:
            self._transport.abort()
            return
        if self._reader.complete:
            return
        self._reader.end()
        if self._reader.complete:
            self._more(exchange)
        else:
            self._lost(exchange, None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Unregister; a running exchange is lost unless its answer is whole."""
        self._pool.lost(self)
        exchange = self._exchange
        if exchange is not None and not self._reader.complete:
            self._lost(exchange, exc)
        self._reader.close()

    # Less usual answers

    def _expect(self, exchange: Exchange) -> bool:
        """Prepare for a body that comes in pieces, coded or consumed; False if it cannot be accepted."""
        reader = self._reader
        if exchange.head.startswith(b"HEAD "):  # the parser does not know and would wait for a body
            reader.complete = True
            reader.keep_alive = False
            reader.pieces.clear()
        elif reader.codings:
            self._decoder = Decoder(reader.codings)
        elif exchange.consume is None and (reader.length or 0) > exchange.cap:
            self.fail(TOO_LARGE)
            return False
        return True

    def _more(self, exchange: Exchange) -> None:
        """Pass on what this read brought of the body."""
        pieces = self._reader.pieces
        if pieces:
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            if self._decoder is not None:
                self._decode(exchange, self._decoder, data)
            elif exchange.consume is not None:
                exchange.consume(data)
            else:
                self._deliver(exchange, data)
        if self._reader.complete:
            self._settle(exchange)

    def _decode(self, exchange: Exchange, decoder: Decoder, data: bytes) -> None:
        try:
            decoder.feed(data)
        except UndecodableError:
            self.fail(UNDECODABLE)
        else:
            self._pump(exchange, decoder)

    def _pump(self, exchange: Exchange, decoder: Decoder) -> None:
        """Decode in steps for as long as the exchange takes it: a bomb stops at the cap, or at a pause."""
        self._pumping = True
        try:
            while self._exchange is exchange and not exchange.paused:
                data = decoder.read()
                if data:
                    self._deliver(exchange, data)
                if len(data) < STEP:
                    break
        except UndecodableError:
            self.fail(UNDECODABLE)
        finally:
            self._pumping = False

    def _deliver(self, exchange: Exchange, data: bytes) -> None:
        if exchange.consume is not None:
            exchange.consume(data)
            return
        self._body += data
        if len(self._body) > exchange.cap:
            self.fail(TOO_LARGE)

    def _settle(self, exchange: Exchange) -> None:
        """End the exchange if its answer is whole and handed over."""
        if self._exchange is not exchange or not self._reader.complete:
            return
        if self._decoder is not None:
            if exchange.paused:  # decoded data may still be held; `resume` comes back here
                return
            if not self._decoder.whole:
                self.fail(UNDECODABLE)
                return
        exchange.body = bytes(self._body)
        self._release()
        exchange.finish(None)

    def _release(self) -> None:
        """Give the connection back to the pool if it may be used again; close it otherwise."""
        exchange, self._exchange = self._exchange, None
        reader, transport = self._reader, self._transport
        if exchange is not None and exchange.paused:
            transport.resume_reading()
        if reader.keep_alive and not reader.excess:
            reader.reset()
            if self._decoder is not None or self._body:
                self._decoder = None
                self._body = bytearray()
            self._give_back()
        else:
            transport.abort()

    def _give_back(self) -> None:
        transport = self._transport
        # Something unsent: the agent answered before it had read everything.
        if transport.is_closing() or transport.get_write_buffer_size():
            transport.abort()
        else:
            self.used = True
            self._pool.put(self)

    def _lost(self, exchange: Exchange, error: Exception | None) -> None:
        """Send again on a fresh connection where contract 2.3 allows it; fail otherwise."""
        self.abort()
        if self._reader.started:
            exchange.finish(lost_failure(None))
        elif self.used and exchange.repeatable:
            self._pool.dial(exchange)
        else:
            exchange.finish(lost_failure(error))
