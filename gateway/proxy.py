"""The proxy: what all calls share (contract 2, 3).

It knows neither ASGI nor sockets: whoever has read a request calls `Proxy.call` and gets the reply through a
callback, at once or later.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.call import Call
from gateway.gate import Gate
from gateway.headers import RequestHeaders
from gateway.lifecycle import Lifecycle
from gateway.logs import CallLine, Logs
from gateway.messages import Reply, Request
from gateway.metrics import Metrics
from gateway.peers import Peers
from gateway.relay import Terms

#: Calls that ended in an error of the gateway's, kept for whoever looks (`GET /gateway`).
RECENT_FAULTS: Final = 100


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings that decide about calls (contract 2.3, 4); seconds and bytes."""

    default_timeout: float
    max_timeout: float
    response_bytes: int
    dialect: str
    streams: Terms
    forward_headers: tuple[str, ...] = ()
    most_streams: int = 0  # 0: any number
    caller_credentials: bool = False
    authenticated: bool = False


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
        loop: AbstractEventLoop,
        caller_line: Callable[[str], bytes],
        rewrite_card: Callable[[bytes, str, Request], bytes],
        gate: Gate,
    ) -> None:
        """Take the collaborators.

        Args:
            peers: Finds agents.
            metrics: Counts.
            logs: Gets a line per call.
            lifecycle: Tells whether calls are still taken.
            rules: The settings.
            instance: Name of this process, for `Via` and request ids.
            loop: The event loop, for its clock and timers.
            caller_line: Writes the identity of a caller as a header line.
            rewrite_card: (response, agent id, the request) → the response with the gateway's addresses
                (contract 5.4).
            gate: Counts requests, and tells where they come from.
        """
        self.peers = peers
        self.metrics = metrics
        self.logs = logs
        self.lifecycle = lifecycle
        self.rules = rules
        self.headers = RequestHeaders(
            rules.forward_headers, credentials=rules.caller_credentials, authenticated=rules.authenticated
        )
        self.loop = loop
        self.clock = loop.time
        self.caller_line = caller_line
        self.rewrite_card = rewrite_card
        self.gate = gate
        self.faults: deque[CallLine] = deque(maxlen=RECENT_FAULTS)
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

    def new_stream_id(self) -> bytes:
        """Make the id of a stream; `push.is_of_an_ended_stream` knows its form."""
        return b"s-" + self.new_request_id()

    def audit_refusal(self, request: Request, agent_id: str, request_id: bytes, reason: str) -> None:
        """Note that a caller was refused, whatever it asked for (contract 6)."""
        self.logs.audit(
            "call",
            caller=request.identity.name,
            agent=agent_id,
            outcome="refused",
            reason=reason,
            client=self.gate.proxies.sent(request.headers, request.peer).client,
            request_id=request_id.decode("ascii"),
        )
