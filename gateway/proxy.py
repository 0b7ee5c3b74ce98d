"""The proxied call: one straight exchange, from the caller's bytes to the caller's answer (contract 2).

It knows neither ASGI nor sockets: whoever has read a request calls `Proxy.call` and gets the reply through a
callback, at once or later. A `Call` is admitted, forwarded and ended; each way to end passes `_end`, once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qs

import msgspec

from gateway import jsonrpc, outcomes
from gateway.faults import FAULTS, Fault
from gateway.headers import EVENT_STREAM, Headers, Inbound, Outbound, RequestHeaders, is_json, read_answer
from gateway.jsonrpc import NULL, Envelope, Refused
from gateway.lifecycle import Lifecycle
from gateway.logs import CallLine, Logs, now
from gateway.methods import CARD_GETTERS, READ_ONLY, STREAMING, V1_METHODS
from gateway.metrics import CANCELLED, Metrics
from gateway.outcomes import Outcome
from gateway.peers import Peer, Peers, is_agent_id
from gateway.upstream import Exchange

log = logging.getLogger(__name__)


class Request(msgspec.Struct, gc=False):
    """A caller's request as an adapter has read it.

    Attributes:
        agent: The path segment that names the agent, undecoded.
        headers: Names in lower case, in order.
        query: The raw query string.
        body: The whole body; None if it was larger than `a2a.max_request_bytes`.
        caller: The caller's identity.
    """

    agent: bytes
    headers: Headers
    query: bytes
    body: bytes | None
    caller: str = "anonymous"


class Reply(msgspec.Struct, gc=False):
    """What goes back to the caller: status, header lines (Content-Length among them), body."""

    status: int
    head: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings that decide about calls (contract 2.3, 4); seconds and bytes."""

    default_timeout: float
    max_timeout: float
    response_bytes: int
    dialect: str
    forward_headers: tuple[str, ...] = ()


class Proxy:
    """What all calls share."""

    def __init__(
        self,
        peers: Peers,
        metrics: Metrics,
        logs: Logs,
        lifecycle: Lifecycle,
        rules: Rules,
        *,
        instance: str,
        clock: Callable[[], float],
        caller_line: Callable[[str], bytes],
        rewrite_card: Callable[[bytes, str, Headers], bytes],
    ) -> None:
        """Take the collaborators.

        Args:
            peers: Finds agents.
            metrics: Counts.
            logs: Gets a line per call.
            lifecycle: Tells whether calls are still taken.
            rules: The settings.
            instance: Name of this process, for `Via` and request ids.
            clock: The event loop's time in seconds.
            caller_line: Writes the identity of a caller as a header line.
            rewrite_card: (response, agent id, the caller's headers) → the response with the gateway's
                addresses (contract 5.4).
        """
        self.peers = peers
        self.metrics = metrics
        self.logs = logs
        self.lifecycle = lifecycle
        self.rules = rules
        self.headers = RequestHeaders(rules.forward_headers)
        self.clock = clock
        self.caller_line = caller_line
        self.rewrite_card = rewrite_card
        self.via = f"1.1 vitalgate-{instance}".encode()
        self._instance = instance.encode()
        self._made = 0

    def call(self, request: Request, deliver: Callable[[Reply | None], None]) -> Call:
        """Start a call. `deliver` gets the reply exactly once, None if the caller had left."""
        call = Call(self, request, deliver)
        call.start()
        return call

    def new_request_id(self) -> bytes:
        """Make a request id: unique in this process, and across processes by the instance's name."""
        self._made += 1
        return b"%b-%x" % (self._instance, self._made)


class Call:
    """One call on its way. Whoever drives it may `cancel` it at any time."""

    __slots__ = (
        "_a2a",
        "_answer",
        "_deliver",
        "_envelope",
        "_exchange",
        "_holding",
        "_inbound",
        "_peer",
        "_proxy",
        "_request",
        "_request_id",
        "_started",
        "_timeout",
        "ended",
    )

    def __init__(self, proxy: Proxy, request: Request, deliver: Callable[[Reply | None], None]) -> None:
        self._proxy = proxy
        self._request = request
        self._deliver = deliver
        self._started = proxy.clock()
        self._inbound: Inbound = proxy.headers.read(request.headers)
        self._request_id = self._inbound.request_id or proxy.new_request_id()
        self._a2a = False
        self._envelope: Envelope | None = None
        self._peer: Peer | None = None
        self._exchange: Exchange | None = None
        self._answer: Outbound | None = None
        self._timeout = 0.0  # T; stays 0 for a call that is not forwarded
        self._holding = False
        self.ended = False

    def start(self) -> None:
        """Admit and forward the call, or refuse it."""
        try:
            envelope, peer = self._admit()
            self._forward(envelope, peer)
        except Refused as refused:
            self._end_with(outcomes.failed(FAULTS[refused.reason], refused.detail), refused.id)
        except Exception:
            self._broken()

    def cancel(self) -> None:
        """The caller has left: close the way to the agent, hold nothing against the agent (contract 2.3)."""
        if not self.ended:
            self._stop_exchange()
            self._end(None, CANCELLED, "")

    # --- admission ---

    def _admit(self) -> tuple[Envelope, Peer]:
        """Check in the order of contract 2.1; the first failure answers."""
        request, inbound = self._request, self._inbound
        self._a2a = self._speaks_a2a()
        if not is_json(inbound.content_type):
            raise Refused("CONTENT_TYPE", "")
        if request.body is None:
            raise Refused("REQUEST_TOO_LARGE", "")
        if not request.agent:
            raise Refused("EMPTY_AGENT_ID", "")
        envelope = self._envelope = jsonrpc.read(request.body)
        if self._proxy.rules.dialect == "auto" and envelope.method in V1_METHODS:
            self._a2a = True
        peer = self._peer = self._proxy.peers.find(request.agent)
        if peer is None:
            raise _unknown_agent(request.agent)
        self._check_gateway(envelope, peer)
        return envelope, peer

    def _speaks_a2a(self) -> bool:
        """Tell the dialect as far as headers and query do (contract, introduction)."""
        inbound = self._inbound
        if self._request.query and inbound.version is None:
            inbound.version = _version_in(self._request.query)
        dialect = self._proxy.rules.dialect
        return inbound.version is not None if dialect == "auto" else dialect == "a2a"

    def _check_gateway(self, envelope: Envelope, peer: Peer) -> None:
        proxy = self._proxy
        if self._inbound.via and any(proxy.via in value for value in self._inbound.via):
            raise Refused("LOOP_DETECTED", "")
        if proxy.lifecycle.refusing:
            raise Refused("GATEWAY_SHUTDOWN", "")
        if envelope.method in STREAMING:
            raise Refused("STREAM_UNSUPPORTED", "")
        if peer.credential_missing:
            raise Refused("CREDENTIAL_MISSING", "")
        if not peer.slots.take():
            raise Refused("SERVER_BUSY", "")
        self._holding = True
        proxy.lifecycle.begin()

    # --- forwarding ---

    def _forward(self, envelope: Envelope, peer: Peer) -> None:
        rules = self._proxy.rules
        timeout = min(envelope.timeout or rules.default_timeout, rules.max_timeout)
        exchange = Exchange(
            self._head(envelope, peer),
            self._request.body or b"",
            deadline=self._started + timeout,
            cap=rules.response_bytes,
            repeatable=envelope.method in READ_ONLY,
            done=self._answered,
            on_head=self._look_at_head,
        )
        self._exchange = exchange
        self._timeout = timeout
        peer.pool.start(exchange)

    def _head(self, envelope: Envelope, peer: Peer) -> bytes:
        """Write the request head: the peer's prefix, the caller's lines, the gateway's own (contract 2.2)."""
        inbound, request, proxy = self._inbound, self._request, self._proxy
        version = inbound.version
        if version is None and envelope.method in V1_METHODS:
            version = b"1.0"
        return b"%b%b%bContent-Type: %b\r\n%bVia: %b\r\nX-Request-ID: %b\r\nContent-Length: %d\r\n\r\n" % (
            peer.prefix,
            b"".join(inbound.lines),
            b"" if version is None else b"A2A-Version: %b\r\n" % version,
            inbound.content_type or b"",
            proxy.caller_line(request.caller),
            b", ".join([*inbound.via, proxy.via]) if inbound.via else proxy.via,
            self._request_id,
            len(request.body or b""),
        )

    def _look_at_head(self, exchange: Exchange) -> None:
        """Stop an event stream at its head: it would never end, and it is no answer to a plain call."""
        answer = self._answer = read_answer(exchange.headers)
        if answer.kind == EVENT_STREAM and exchange.status < 300:
            self._stop_exchange()
            self._end_with(outcomes.failed(FAULTS["INVALID_RESPONSE"], "an event stream"))

    def _answered(self, exchange: Exchange) -> None:
        self._release()
        try:
            failure = exchange.failure
            if self._answer is not None and (
                failure is None or outcomes.is_told_by_status(exchange.status, failure)
            ):
                id = self._envelope.id if self._envelope else None
                outcome = outcomes.of_answer(exchange.status, exchange.body, self._answer, id)
            elif failure is not None:
                agent_id = self._peer.agent_id if self._peer else ""
                outcome = outcomes.of_failure(failure, agent_id, self._timeout)
            self._end_with(outcome)
        except Exception:
            self._broken()

    # --- the ends ---

    def _stop_exchange(self) -> None:
        if self._exchange is not None:
            self._exchange.cancel()
        self._release()

    def _release(self) -> None:
        """Free what the call holds, once, whichever path comes first."""
        self._exchange = None
        if self._holding:
            self._holding = False
            self._proxy.lifecycle.end()
            if self._peer is not None:
                self._peer.slots.give()

    def _broken(self) -> None:
        """A fault of our own: say so, and lose neither the slot nor the caller."""
        log.exception("internal error", extra={"fields": {"request_id": self._request_id.decode()}})
        self._stop_exchange()
        if not self.ended:
            self._end_with(outcomes.failed(FAULTS["INTERNAL"]))

    def _end_with(self, outcome: Outcome, id: bytes = NULL) -> None:
        """Write the reply for an outcome; a notification is answered 202 whatever became of it."""
        fault, envelope = outcome.fault, self._envelope
        if fault is not None:
            (self._peer.cells if self._peer else self._proxy.metrics.unknown).error(fault.code)
        if envelope is not None and envelope.id is None:
            self._end(Reply(202, self._lines(0), b""), outcome.status, fault.reason if fault else "")
        elif fault is None:
            self._end(self._relayed(outcome.body or b""), outcome.status, "")
        else:
            body = self._error(outcome, fault, id if envelope is None else envelope.id or NULL)
            head = b"%bx-gateway-error: %b\r\n" % (self._lines(len(body)), fault.reason.encode())
            self._end(Reply(fault.http, head, body), outcome.status, fault.reason)

    def _relayed(self, body: bytes) -> Reply:
        envelope, peer = self._envelope, self._peer
        if envelope is not None and peer is not None and envelope.method in CARD_GETTERS:
            body = self._proxy.rewrite_card(body, peer.agent_id, self._request.headers)
        return Reply(200, self._lines(len(body)), body)

    def _error(self, outcome: Outcome, fault: Fault, id: bytes) -> bytes:
        agent = {"agentId": self._request.agent.decode()} if is_agent_id(self._request.agent) else {}
        return jsonrpc.error(
            fault,
            id,
            detail=outcome.detail,
            a2a=self._a2a,
            metadata=agent | outcome.metadata,
            foreign=outcome.foreign,
        )

    def _lines(self, length: int) -> bytes:
        """Write the headers of a reply: ours, and those of the agent that go back (contract 2.5)."""
        lines = b"content-type: application/json\r\ncontent-length: %d\r\nx-request-id: %b\r\n" % (
            length,
            self._request_id,
        )
        answer = self._answer
        return lines if answer is None or not answer.lines else lines + b"".join(answer.lines)

    def _end(self, reply: Reply | None, status: str, reason: str) -> None:
        """Count, log, deliver: the only place where a call ends."""
        self.ended = True
        proxy = self._proxy
        seconds = proxy.clock() - self._started
        method = "" if self._envelope is None else self._envelope.method
        proxy.metrics.call(method, status)
        if self._timeout and self._peer is not None:
            self._peer.cells.request(method, status, seconds)
        if proxy.logs.calls:
            proxy.logs.call(self._line(method, reply, status, reason, seconds))
        self._deliver(reply)

    def _line(self, method: str, reply: Reply | None, status: str, reason: str, seconds: float) -> CallLine:
        return CallLine(
            time=now(),
            level="info",
            event="call",
            request_id=self._request_id.decode("ascii"),
            caller=self._request.caller,
            agent="" if self._peer is None else self._peer.agent_id,
            method=method[:128],
            outcome=status,
            reason=reason,
            status=0 if reply is None else reply.status,
            duration_ms=round(seconds * 1000, 3),
            bytes_in=len(self._request.body or b""),
            bytes_out=0 if reply is None else len(reply.body),
            trace_id=self._inbound.traceparent and self._inbound.traceparent[3:35].decode("latin-1"),
        )


def _unknown_agent(segment: bytes) -> Refused:
    if not is_agent_id(segment):
        return Refused("INVALID_AGENT_ID", "")
    return Refused("AGENT_NOT_FOUND", segment.decode())


def _version_in(query: bytes) -> bytes | None:
    """Give the `A2A-Version` of a query string: A2A 1.0 allows it in place of the header."""
    if b"A2A-Version=" not in query:
        return None
    try:
        values = parse_qs(query.decode("ascii"), max_num_fields=64).get("A2A-Version", [])
        return values[0].encode("ascii") if values and values[0].isprintable() else None
    except ValueError:
        return None
