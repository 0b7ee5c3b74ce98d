"""What a call becomes when the agent answers with events: the host of the relay (contract 3)."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from gateway import jsonrpc
from gateway.faults import FAULTS, SAFE, UNSAFE
from gateway.headers import Inbound
from gateway.heads import in_query, request_head
from gateway.jsonrpc import NULL, Envelope
from gateway.push import cancellation
from gateway.relay import Relay
from gateway.stream_formats import Writer
from gateway.upstream import Exchange

if TYPE_CHECKING:
    from gateway.call import Call

#: Bounds of the note that a stream is not read any more: seconds, and bytes of an answer that nobody reads.
CANCEL_SECONDS: Final = 5.0
CANCEL_BYTES: Final = 65536


class OpenStream:
    """An open stream of a call."""

    __slots__ = ("_call", "_envelope", "_id")

    def __init__(self, call: Call, envelope: Envelope, id: bytes) -> None:
        self._call = call
        self._envelope = envelope
        self._id = id

    def relay(self, exchange: Exchange) -> Relay:
        """Begin to relay, in the format that the caller wishes (contract 3.4, 3.6)."""
        request, proxy = self._call.request, self._call.proxy
        wish = (in_query(request.query, "format") or ("envelope" if self._call.inbound.envelope else "")).lower()
        enveloped = wish != "auto" if request.push else wish == "envelope"
        # A stream may last for hours, and there may be thousands: what is not needed any more goes.
        exchange.forget_request()
        request.forget()
        writer = Writer(self._id.decode(), envelope=enveloped, number_ids=bool(request.push))
        return Relay(self, exchange, writer, proxy.rules.streams, proxy.loop)

    # What the relay asks of its host

    def stream_events(self, count: int, first: bool) -> None:
        """Count events; the first one shows how long the agent thought."""
        call = self._call
        if call.peer is not None:
            call.peer.cells.events += count
        if first:
            call.proxy.metrics.first_event.observe(perf_counter() - call.started)

    def stream_error(self, reason: str) -> tuple[int, str, list[Any], bytes]:
        """Give code, message, data and request id of the event that ends the stream (contract 3.5)."""
        call, fault = self._call, FAULTS[reason]
        code = -32001 if reason == "STREAM_IDLE" else -32603
        if call.peer is not None:
            call.peer.cells.error(code)
        message = fault.message.format(f"{call.proxy.rules.streams.idle:g}")
        retry = UNSAFE if fault.retry == SAFE else fault.retry  # the agent has begun
        data = jsonrpc.error_data(fault, call.named() | {"retry": retry})
        return -32603 if call.a2a else code, message, data, self._envelope.id or NULL

    def stream_ended(self, status: str, reason: str, events: int, size: int) -> None:
        """Free what the call holds, count and log."""
        self._call.stream_ended(status, reason, events, size)

    def cancel_stream(self) -> None:
        """Tell an agent of the envelope format that its stream is not read any more (contract 3.7)."""
        call, proxy, peer = self._call, self._call.proxy, self._call.peer
        if peer is None or proxy.lifecycle.refusing:
            return
        body = cancellation(self._id)
        envelope, line = Envelope(None, "stream_cancel"), proxy.caller_line(call.request.identity.name)
        inbound = Inbound(content_type=b"application/json")
        head = request_head(call.prefix(peer), inbound, envelope, line, proxy.via, call.request_id, len(body))
        deadline = proxy.clock() + CANCEL_SECONDS
        exchange = Exchange(head, body, deadline=deadline, cap=CANCEL_BYTES, repeatable=False, done=lambda _: None)
        peer.pool.start(exchange)
