"""One call on its straight way: admitted, forwarded, ended (contract 2); or opened as a stream (contract 3)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from gateway import jsonrpc, outcomes
from gateway.admission import Asking, blames_agent
from gateway.faults import FAULTS, UNSAFE, Fault
from gateway.gate import RATE_LIMITED, REFUSALS, UNAUTHENTICATED, challenge, check_grants, retry_after
from gateway.headers import EVENT_STREAM, Inbound, Outbound, is_json
from gateway.heads import challenge_head, reply_head, request_head, speaks_a2a, stream_head
from gateway.identity import EVERYTHING
from gateway.jsonrpc import NULL, Envelope, Refused
from gateway.logs import CallLine, now
from gateway.messages import Reply, Request
from gateway.methods import CARD_GETTERS, READ_ONLY, STREAMING, V1_METHODS
from gateway.metrics import APPLICATION_ERROR, CANCELLED, SUCCESS
from gateway.open_stream import OpenStream
from gateway.outcomes import Outcome
from gateway.peers import Peer, is_agent_id, not_found
from gateway.relay import Relay
from gateway.upstream import Exchange

if TYPE_CHECKING:
    from gateway.proxy import Proxy

log = logging.getLogger(__name__)

_TOO_MANY_STREAMS = "too many open streams"


class Call:
    """One call. Whoever drives it may `cancel` it at any time; each way to end passes `_record` once."""

    __slots__ = (
        "_agent_status",
        "_answer",
        "_deliver",
        "_exchange",
        "_holding",
        "_relay",
        "_timeout",
        "_trial",
        "_wait",
        "a2a",
        "ended",
        "envelope",
        "inbound",
        "peer",
        "proxy",
        "request",
        "request_id",
        "started",
    )

    def __init__(self, proxy: Proxy, request: Request, deliver: Callable[[Reply | None], None]) -> None:
        self.proxy = proxy
        self.request = request
        self._deliver = deliver
        self.started = perf_counter()  # the event loop's own clock has a grain of a millisecond
        self.inbound: Inbound = request.inbound or proxy.headers.read(request.headers)
        self.request_id = self.inbound.request_id or proxy.new_request_id()
        self.a2a = False
        self.envelope: Envelope | None = None
        self.peer: Peer | None = None
        self._exchange: Exchange | None = None
        self._answer: Outbound | None = None
        self._relay: Relay | None = None
        self._timeout = 0.0  # T; stays 0 for a call that is not forwarded
        self._wait = 0.0  # until a caller who is refused for now may send again
        self._trial = 0  # the number of a trial call to an agent that is out of service
        self._agent_status = 0
        self._holding = self.ended = False

    def start(self) -> None:
        """Admit and forward the call, or refuse it."""
        try:
            envelope, peer = self._admit()
            self._forward(envelope, peer)
        except Exception as error:
            self._not_forwarded(error)

    def _not_forwarded(self, error: Exception) -> None:
        if isinstance(error, Refused):
            self._end_with(outcomes.failed(FAULTS[error.reason], error.detail), error.id)
        elif not isinstance(error, Asking):  # else `_go_on` is called
            self._broken()

    def cancel(self) -> None:
        """The caller has left: close the way to the agent, hold nothing against the agent (contract 2.3)."""
        if self._relay is not None:
            self._relay.caller_left()
        elif not self.ended:
            self._stop_exchange()
            self._end(None, CANCELLED, "")

    # --- admission ---

    def _admit(self) -> tuple[Envelope, Peer]:
        """Check in the order of contract 2.1; the first failure answers."""
        request, inbound = self.request, self.inbound
        self.a2a = speaks_a2a(inbound, request.query, self.proxy.rules.dialect)
        if request.refused or self.proxy.gate.limits:
            self._check_caller()
        if not is_json(inbound.content_type):
            raise Refused("CONTENT_TYPE", "")
        if request.body is None:
            raise Refused("REQUEST_TOO_LARGE", "")
        envelope = self.envelope = jsonrpc.read(request.body)
        self._hear(envelope)
        if request.identity.grants is not EVERYTHING or inbound.credential is not None:
            check_grants(request.identity, request.agent, inbound, self.proxy.rules.authenticated)
        peer = self.peer = self.proxy.peers.find(request.agent)
        if peer is None:
            raise self.proxy.peers.unknown(request.agent, partial(self._go_on, envelope))
        self._check_gateway(envelope, peer)
        return envelope, peer

    def _check_caller(self) -> None:
        """Refuse whom the gate has refused, or who sends too often; of the body only the id is read (2.1)."""
        request = self.request
        reason = request.refused
        if not reason:
            self._wait = self.proxy.gate.limit(request.identity)
            reason = RATE_LIMITED if self._wait else ""
        if reason:
            envelope, id = None, NULL
            try:
                envelope = jsonrpc.read(request.body or b"")
                self._hear(envelope)
                id = NULL if request.push else envelope.id or NULL
            except Refused as unreadable:
                id = unreadable.id
            if reason == RATE_LIMITED:  # as anything else that becomes of a notification, nobody is told
                self.envelope = envelope
            raise Refused(reason, "", id)

    def _hear(self, envelope: Envelope) -> None:
        """A method of 1.0 shows the dialect, too."""
        if self.proxy.rules.dialect == "auto" and envelope.method in V1_METHODS and not self.request.push:
            self.a2a = True

    def _streams_are_full(self) -> bool:
        most = self.proxy.rules.most_streams
        return 0 < most <= self.proxy.metrics.streams

    def _check_gateway(self, envelope: Envelope, peer: Peer) -> None:
        proxy = self.proxy
        if self.inbound.via and any(proxy.via in value for value in self.inbound.via):
            raise Refused("LOOP_DETECTED", "")
        if proxy.lifecycle.refusing:
            raise Refused("GATEWAY_SHUTDOWN", "")
        if peer.credential_missing and self.inbound.credential is None:
            raise Refused("CREDENTIAL_MISSING", "")
        if not peer.admission.open:
            self._try(envelope, peer)
        if (envelope.method in STREAMING or self.request.push) and self._streams_are_full():
            raise Refused("GATEWAY_OVERLOADED", _TOO_MANY_STREAMS)
        if not peer.slots.take():
            raise Refused("SERVER_BUSY", "")
        self._holding = True
        proxy.lifecycle.begin()

    def _try(self, envelope: Envelope, peer: Peer) -> None:
        """One trial call at a time for an agent out of service; the others hear when to come again."""
        self._trial = self._trial or peer.admission.enter(self.proxy.clock(), partial(self._go_on, envelope, peer))
        if self._trial <= 0:
            self._trial, self._wait = 0, peer.admission.retry_after(self.proxy.clock())
            raise Refused("AGENT_OUT_OF_SERVICE", "")

    def _go_on(self, envelope: Envelope, peer: Peer | None, trial: int = 0) -> None:
        """The other nodes have said who the agent is, or whether this call may be the trial (-1: no)."""
        if self.ended:  # the caller has left: the next call is the trial
            return None if peer is None or not trial else peer.admission.unused(trial, self.proxy.clock())
        self.peer, self._trial = peer, trial
        try:
            if peer is None:
                raise not_found(self.request.agent)
            self._check_gateway(envelope, peer)
            self._forward(envelope, peer)
        except Exception as error:
            self._not_forwarded(error)

    # --- forwarding ---

    def _forward(self, envelope: Envelope, peer: Peer) -> None:
        proxy, rules, body = self.proxy, self.proxy.rules, self.request.body or b""
        timeout = min(envelope.timeout or rules.default_timeout, rules.max_timeout)
        line = proxy.caller_line(self.request.identity.name)
        exchange = Exchange(
            request_head(self.prefix(peer), self.inbound, envelope, line, proxy.via, self.request_id, len(body)),
            body,
            deadline=proxy.clock() + timeout,
            cap=rules.response_bytes,
            repeatable=envelope.method in READ_ONLY,
            done=self._answered,
            on_head=self._look_at_head,
        )
        self._exchange = exchange
        self._timeout = timeout
        peer.pool.start(exchange)

    def prefix(self, peer: Peer) -> bytes:
        """Give the begin of the head; what the caller brings goes before what the configuration holds (6.4)."""
        credential = self.inbound.credential
        return peer.prefix if not credential else b"%bAuthorization: %b\r\n" % (peer.bare_prefix, credential)

    def _look_at_head(self, exchange: Exchange) -> None:
        """The agent's answer decides whether this is a stream, whatever the method was (contract 3.1)."""
        answer = self._answer = outcomes.read_head(exchange)
        self._agent_status = exchange.status
        if answer.kind == EVENT_STREAM and 200 <= exchange.status < 300:
            try:
                self._open_stream(exchange, answer)
            except Exception:
                self._broken()

    def _answered(self, exchange: Exchange) -> None:
        if self._relay is not None:
            self._relay.agent_ended(exchange.failure)
            return
        self._release()
        try:
            failure, answer, status = exchange.failure, self._answer, exchange.status
            if failure is None or (answer is not None and outcomes.is_told_by_status(status, failure)):
                id = self.envelope.id if self.envelope else None
                if status in (401, 403) and self.inbound.credential and id is not None:
                    # It refuses the credential that the caller brought: that is between the two (contract 6.4).
                    head = challenge_head(len(exchange.body), self.request_id, answer or Outbound())
                    self._end(Reply(status, head, exchange.body), APPLICATION_ERROR, "")
                    return
                self._end_with(outcomes.of_answer(status, exchange.body, answer or Outbound(), id))
            else:
                agent_id = self.peer.agent_id if self.peer else ""
                self._end_with(outcomes.of_failure(failure, agent_id, self._timeout))
        except Exception:
            self._broken()

    # --- a stream ---

    def _open_stream(self, exchange: Exchange, answer: Outbound) -> None:
        proxy = self.proxy
        if self.envelope is None or self.envelope.id is None:  # a notification: nobody reads the events
            self._stop_exchange()
            self._end_with(Outcome(SUCCESS, b""))
        elif self._streams_are_full():  # nobody could know that this call would become one
            self._stop_exchange()
            fault = replace(FAULTS["GATEWAY_OVERLOADED"], retry=UNSAFE)
            self._end_with(outcomes.failed(fault, _TOO_MANY_STREAMS))
        else:
            stream = OpenStream(self, self.envelope, self.request.push or proxy.new_stream_id())
            self._relay = stream.relay(exchange)
            proxy.metrics.streams += 1
            if self.peer is not None:
                self.peer.cells.streams += 1
            if self._trial and self.peer is not None:  # it answers: the others need not wait for the end
                self.peer.admission.record(False, proxy.clock(), self._trial)
                self._trial = 0
            self._deliver(Reply(200, stream_head(self.request_id, answer), b"", self._relay))

    def stream_ended(self, status: str, reason: str, events: int, size: int) -> None:
        """Free what the call holds, count and log."""
        self._relay = None
        self.proxy.metrics.streams -= 1
        if self.peer is not None:
            self.peer.cells.streams -= 1
        self._stop_exchange()
        self._record(200, status, reason, size, events)

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
            self.proxy.lifecycle.end()
            if self.peer is not None:
                self.peer.slots.give()

    def _broken(self) -> None:
        """A fault of our own: say so, and lose neither the slot nor the caller."""
        log.exception("internal error", extra={"fields": {"request_id": self.request_id.decode()}})
        self._stop_exchange()
        if not self.ended:
            self._end_with(outcomes.failed(FAULTS["INTERNAL"]))

    def _end_with(self, outcome: Outcome, id: bytes = NULL) -> None:
        """Write the reply for an outcome; a notification is answered 202 whatever became of it."""
        fault, envelope = outcome.fault, self.envelope
        if fault is not None:
            (self.peer.cells if self.peer else self.proxy.metrics.unknown).error(fault.code)
        if envelope is not None and envelope.id is None:
            reply = Reply(202, reply_head(0, self.request_id, self._answer), b"")
        elif fault is None:
            reply = self._relayed(outcome.body or b"")
        else:
            if envelope is not None:
                id = NULL if self.request.push else envelope.id or NULL
            body = self._error(outcome, fault, id)
            head = reply_head(len(body), self.request_id, self._answer)
            head = b"%bx-gateway-error: %b\r\n%b" % (head, fault.reason.encode(), self._advice(fault))
            reply = Reply(fault.status(self.a2a), head, body)
        self._end(reply, outcome.status, fault.reason if fault else "")

    def _advice(self, fault: Fault) -> bytes:
        """Write the header that tells a refused caller what to do."""
        if fault.reason == UNAUTHENTICATED:
            return b"www-authenticate: %b\r\n" % challenge(self.request.headers)
        if self._wait:
            return b"retry-after: %b\r\n" % retry_after(self._wait)
        return b""

    def _relayed(self, body: bytes | memoryview) -> Reply:
        envelope, peer = self.envelope, self.peer
        if envelope is not None and peer is not None and envelope.method in CARD_GETTERS:
            body = self.proxy.rewrite_card(bytes(body), peer.agent_id, self.request)
        return Reply(200, reply_head(len(body), self.request_id, self._answer), body)

    def _error(self, outcome: Outcome, fault: Fault, id: bytes) -> bytes:
        waiting = {"retryAfter": retry_after(self._wait).decode()} if self._wait else {}
        return jsonrpc.error(
            fault,
            id,
            detail=outcome.detail,
            a2a=self.a2a,
            metadata=self.named() | waiting | outcome.metadata,
            foreign=outcome.foreign,
        )

    def named(self) -> dict[str, str]:
        """Give what an error says of the agent."""
        return {"agentId": self.request.agent.decode()} if is_agent_id(self.request.agent) else {}

    def _end(self, reply: Reply | None, status: str, reason: str) -> None:
        if reply is None:
            self._record(0, status, reason, 0)
        else:
            self._record(reply.status, status, reason, len(reply.body))
        self._deliver(reply)

    def _record(self, http: int, status: str, reason: str, size: int, events: int = 0) -> None:
        """Count and log, before the answer is written: the only place where a call ends."""
        self.ended = True
        proxy = self.proxy
        seconds = perf_counter() - self.started
        method = "" if self.envelope is None else self.envelope.method
        proxy.metrics.call(method, status)
        if self._timeout and self.peer is not None:
            self.peer.cells.request(method, status, seconds)
        if self.peer is not None:
            self._tell(self.peer, status, reason)
        if reason in REFUSALS:
            proxy.audit_refusal(self.request, self.named().get("agentId", ""), self.request_id, reason)
        if reason or proxy.logs.calls:
            line = CallLine(
                time=now(),
                level="info",
                event="call",
                request_id=self.request_id.decode("ascii"),
                caller=self.request.identity.name,
                agent=self.named().get("agentId", "") if self.peer is None else self.peer.agent_id,
                method=method[:128],
                outcome=status,
                reason=reason,
                status=http,
                duration_ms=int(seconds * 1e6) / 1000,
                bytes_in=self.request.forgotten or len(self.request.body or b""),
                bytes_out=size,
                events=events,
                trace_id=self.inbound.traceparent[3:35].decode("latin-1"),
            )
            if reason:
                proxy.faults.append(line)
            if proxy.logs.calls:
                proxy.logs.call(line)

    def _tell(self, peer: Peer, status: str, reason: str) -> None:
        """Tell what the outcome says of the agent: every forwarded call is evidence (health contract 7)."""
        if self._timeout:
            blame: bool | None = False  # an answer that was passed on, mostly
            if status == CANCELLED:
                blame = None
            elif reason:
                blame = blames_agent(reason, http_status=self._agent_status, timeout=self._timeout)
            peer.admission.record(blame, self.proxy.clock(), self._trial)
        elif self._trial:
            peer.admission.unused(self._trial, self.proxy.clock())
