"""What can go wrong, in one table: reason → code, message, category, executed, retry (contract 2.4).

`executed` follows KubeMQ: False means "there is no proof that the agent processed it". `retry` says what
that leaves open: *safe* (the agent never saw it or refused it), *unsafe* (it may have run), *no* (would fail
again).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SAFE, UNSAFE, NO = "safe", "unsafe", "no"
TRANSPORT, APPLICATION, PROTOCOL, INTERNAL = "transport", "application", "protocol", "internal"


@dataclass(frozen=True, slots=True)
class Fault:
    """One way a call ends without an answer of the agent.

    Attributes:
        reason: The stable name, sent as `reason` and in the `X-Gateway-Error` header.
        code: KubeMQ's JSON-RPC error code; metrics always use it.
        message: Text for people; `{}` is filled with the detail.
        category: transport, application, protocol or internal: who is at fault.
        executed: True when the agent has provably processed the call.
        retry: safe, unsafe or no.
        http: Status of the HTTP answer.
        a2a_http: The same in the A2A dialect, where it differs.
    """

    reason: str
    code: int
    message: str
    category: str
    executed: bool = False
    retry: str = NO
    http: int = 200
    a2a_http: int = 0

    def status(self, a2a: bool) -> int:
        """Give the status of the HTTP answer: clients of the A2A dialect act on it."""
        return (a2a and self.a2a_http) or self.http

    @property
    def a2a_code(self) -> int:
        """Give the code for callers in the A2A dialect, where -32001 to -32004 have other meanings."""
        return -32603 if -32004 <= self.code <= -32001 else self.code


_TABLE: Final = (
    # At the gate (contract 2.6, 6)
    Fault("UNAUTHENTICATED", -32010, "invalid token", PROTOCOL, a2a_http=401),
    Fault("FORBIDDEN", -32010, "forbidden: {}", PROTOCOL, a2a_http=403),
    Fault("ORIGIN_NOT_TRUSTED", -32010, "origin not trusted", PROTOCOL, http=403),
    Fault("RATE_LIMITED", -32003, "rate limit exceeded", TRANSPORT, retry=SAFE),
    # The caller's faults (contract 2.1)
    Fault("HOST_NOT_ALLOWED", -32600, "host not allowed", PROTOCOL, http=421),
    Fault("CONTENT_TYPE", -32700, "content type must be application/json", PROTOCOL),
    Fault("REQUEST_TOO_LARGE", -32600, "request body too large", PROTOCOL, http=413),
    Fault("PARSE_ERROR", -32700, "parse error: {}", PROTOCOL),
    Fault("INVALID_REQUEST", -32600, "invalid request: {}", PROTOCOL),
    Fault("INVALID_PARAMS", -32602, "invalid params: {}", PROTOCOL),
    Fault("EMPTY_AGENT_ID", -32600, "empty agent id", PROTOCOL),
    Fault("INVALID_AGENT_ID", -32600, "invalid agent id", PROTOCOL),
    Fault("AGENT_NOT_FOUND", -32002, "agent not found: {}", PROTOCOL),
    # The gateway's own refusals
    Fault("SERVER_BUSY", -32603, "server busy: concurrency limit reached", TRANSPORT, retry=SAFE),
    Fault("GATEWAY_SHUTDOWN", -32003, "gateway is shutting down", TRANSPORT, retry=SAFE),
    Fault("LOOP_DETECTED", -32603, "loop detected: the request has passed this gateway before", TRANSPORT),
    Fault("AGENT_OUT_OF_SERVICE", -32003, "agent unavailable: unhealthy", TRANSPORT, retry=SAFE),
    Fault("CREDENTIAL_MISSING", -32003, "agent unreachable: credential not available", TRANSPORT),
    Fault("GATEWAY_OVERLOADED", -32603, "gateway overloaded: {}", TRANSPORT, retry=SAFE),
    Fault("INTERNAL", -32603, "internal error", INTERNAL),
    # The way to the agent
    Fault("ADDRESS_NOT_ALLOWED", -32003, "agent unreachable: address not allowed", TRANSPORT),
    Fault("AGENT_UNREACHABLE", -32003, "agent unreachable: {}", TRANSPORT, retry=SAFE),
    Fault("PROTOCOL_ERROR", -32003, "agent unreachable: protocol error", TRANSPORT, retry=UNSAFE),
    Fault("CONNECTION_LOST", -32003, "agent unreachable: connection lost", TRANSPORT, retry=UNSAFE),
    Fault("AGENT_TIMEOUT", -32001, "agent timeout: {}", TRANSPORT, retry=UNSAFE),
    Fault("RESPONSE_TOO_LARGE", -32603, "agent response too large", TRANSPORT),
    # An open stream (contract 3.5)
    Fault(
        "STREAM_INCOMPLETE",
        -32603,
        "agent stream incomplete: it ended without a final event",
        TRANSPORT,
        retry=UNSAFE,
    ),
    Fault("STREAM_BROKEN", -32603, "agent stream broken: connection lost", TRANSPORT, retry=UNSAFE),
    Fault("STREAM_IDLE", -32001, "agent stream idle: no event for {} s", TRANSPORT, retry=UNSAFE),
    # The agent's answer
    Fault("AGENT_UNAVAILABLE", -32003, "agent unavailable: HTTP {}", TRANSPORT, retry=UNSAFE),
    Fault("AGENT_HTTP_ERROR", -32603, "agent returned HTTP {}", APPLICATION, executed=True),
    Fault("INVALID_RESPONSE", -32004, "invalid response: {}", APPLICATION, executed=True),
)

FAULTS: Final[dict[str, Fault]] = {fault.reason: fault for fault in _TABLE}

#: Statuses with which an agent, or a proxy in front of it, says "not now", whatever the body.
UNAVAILABLE_RETRY: Final[dict[int, str]] = {429: SAFE, 503: SAFE, 502: UNSAFE, 504: UNSAFE}
