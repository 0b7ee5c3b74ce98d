"""What each error of the gateway comes from and what to do, by reason: for `vitalgate explain` and the docs.

Beside `faults.py`, which calls read and which therefore holds no prose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

CALLER, AGENT, OPERATOR = "caller", "agent", "operator"


@dataclass(frozen=True, slots=True)
class Remedy:
    """Words on one reason of `faults.FAULTS`.

    Attributes:
        acts: Who has to act: the caller, whoever runs the agent, or whoever runs the gateway.
        cause: The most likely cause.
        action: What to do.
    """

    acts: str
    cause: str
    action: str


REMEDIES: Final[Mapping[str, Remedy]] = {
    "UNAUTHENTICATED": Remedy(
        CALLER,
        "No token, or one that is expired, badly signed, or made for another issuer or audience.",
        "Send `Authorization: Bearer TOKEN` with a fresh token; its claims must fit the settings below `auth`.",
    ),
    "FORBIDDEN": Remedy(
        OPERATOR,
        "The token is good, but no rule of `auth.policy` lets this caller call this agent; or the caller sent its "
        "gateway token as the agent's credential.",
        "Add a rule with `call: [PATTERN]`, or send another credential in `X-Agent-Authorization`.",
    ),
    "ORIGIN_NOT_TRUSTED": Remedy(
        OPERATOR,
        "A web page of another origin calls the gateway.",
        "If it may, add its origin to `a2a.trusted_origins`; behind a proxy set `server.public_url` or "
        "`server.trusted_proxies`.",
    ),
    "RATE_LIMITED": Remedy(
        CALLER,
        "More requests than `limits.requests_per_second` from one principal; without authentication all are one.",
        "Wait for `Retry-After`, then send again.",
    ),
    "HOST_NOT_ALLOWED": Remedy(
        OPERATOR,
        "The request names a host that is not the gateway's: it was reached by another name, or by a proxy that "
        "keeps the name.",
        "Add the name to `server.allowed_hosts`, or set `server.public_url`.",
    ),
    "CONTENT_TYPE": Remedy(
        CALLER,
        "The request has no `Content-Type: application/json`.",
        "Send it; with curl: `-H 'Content-Type: application/json'`.",
    ),
    "REQUEST_TOO_LARGE": Remedy(
        CALLER,
        "The body is larger than `a2a.max_request_bytes`.",
        "Send less, such as a link in place of a file; or have the setting raised.",
    ),
    "PARSE_ERROR": Remedy(
        CALLER,
        "The body is no JSON: cut off, compressed, not UTF-8, or with a byte order mark, a raw line end or NaN.",
        "The message says what is wrong, and at which byte, counted from 0; correct the client.",
    ),
    "INVALID_REQUEST": Remedy(
        CALLER,
        "The body is JSON, but not one JSON-RPC 2.0 request: a batch, no `method`, an `id` that is a fraction.",
        "The message names the member; correct the client.",
    ),
    "INVALID_PARAMS": Remedy(
        CALLER,
        "`params` is no object, or `params.configuration.timeout` is no number above 0.",
        "Correct the client. Faults in other members are for the agent to judge.",
    ),
    "EMPTY_AGENT_ID": Remedy(
        CALLER,
        "The call went to `/a2a` or `/a2a/`: no agent is named.",
        "Call `/a2a/{agent_id}`; SDK clients need the base URL with its slash, `http://gateway/a2a/{agent_id}/`.",
    ),
    "INVALID_AGENT_ID": Remedy(
        CALLER,
        "The id in the path is not 2 to 128 lower-case letters, digits and inner hyphens.",
        "Compare it with `GET /agents`.",
    ),
    "AGENT_NOT_FOUND": Remedy(
        AGENT,
        "Nobody has registered under this id, or the registration has expired: no heartbeat for "
        "`a2a.agent_ttl_seconds`.",
        "Look at `GET /agents`; have the agent register, and send heartbeats well within the time.",
    ),
    "SERVER_BUSY": Remedy(
        CALLER,
        "`a2a.agent_max_concurrency` calls to this agent are under way already.",
        "Send again a little later; if it lasts, raise the setting or run more agents.",
    ),
    "GATEWAY_SHUTDOWN": Remedy(
        CALLER,
        "This gateway is about to end. `retry` says whether the call had been sent.",
        "Send again, to another node if there is one. A `server.shutdown_delay_seconds` gives load balancers the "
        "time to look away.",
    ),
    "LOOP_DETECTED": Remedy(
        OPERATOR,
        "An agent's registered URL leads back to this gateway.",
        "Register the address where the agent itself listens.",
    ),
    "AGENT_OUT_OF_SERVICE": Remedy(
        AGENT,
        "The agent could not be reached three times in a row, or callers' calls failed; it is tried again after "
        "`Retry-After`.",
        "`GET /agents/{agent_id}/health` says why. Repair the agent; it comes back by itself. "
        "`health.routing: observe` refuses nobody.",
    ),
    "CREDENTIAL_MISSING": Remedy(
        OPERATOR,
        "`upstream.credentials` names a variable for this agent that is not set in the gateway's environment.",
        "Set it and start the gateway again.",
    ),
    "GATEWAY_OVERLOADED": Remedy(
        OPERATOR,
        "The gateway has reached a limit of its own: `limits.streams`, or open files.",
        "Raise the limit (`ulimit -n`, two files per stream), or run more nodes.",
    ),
    "INTERNAL": Remedy(
        OPERATOR,
        "A fault of the gateway's own.",
        "Please report it with the log lines that have the same `X-Request-ID`.",
    ),
    "ADDRESS_NOT_ALLOWED": Remedy(
        OPERATOR,
        "The agent's name leads to an address that the gateway may not connect to: loopback while the gateway "
        "listens elsewhere, link-local, or one that the settings forbid.",
        "See `upstream.allow_loopback`, `allow_private`, `allow_hosts`, `deny_hosts`; never link-local ones.",
    ),
    "AGENT_UNREACHABLE": Remedy(
        AGENT,
        "No connection: the name is unknown, nothing listens there, or its certificate is not accepted. The "
        "message says which.",
        "`vitalgate doctor a2a URL` on the gateway's machine; private authorities go into `upstream.ca_file`.",
    ),
    "PROTOCOL_ERROR": Remedy(
        AGENT,
        "What came back is no HTTP/1.1, or broken: another service, TLS on a plain port, two lengths.",
        "Check the registered URL with `curl -v`.",
    ),
    "CONNECTION_LOST": Remedy(
        AGENT,
        "The agent closed the connection before its answer was complete: it crashed, restarted, or something in "
        "front of it did.",
        "Read the agent's log. The call may have run: ask for its task (`tasks/get`) before sending it again.",
    ),
    "AGENT_TIMEOUT": Remedy(
        AGENT,
        "No complete answer within the call's time: `params.configuration.timeout`, else "
        "`a2a.default_timeout_seconds`.",
        "Give it more time, or stream; the work may go on: ask for its task.",
    ),
    "RESPONSE_TOO_LARGE": Remedy(
        AGENT,
        "The answer is larger than `a2a.agent_max_response_bytes`.",
        "Have the agent send less, such as a link in place of a file; or raise the setting.",
    ),
    "STREAM_INCOMPLETE": Remedy(
        AGENT,
        "The agent ended its stream without a final event.",
        "The last state is not known: ask for the task. Agents end a stream with `final: true`, or `task.done`.",
    ),
    "STREAM_BROKEN": Remedy(
        AGENT,
        "The connection to the agent broke in the middle of the stream.",
        "Attach to the task again: `tasks/resubscribe`, `SubscribeToTask`.",
    ),
    "STREAM_IDLE": Remedy(
        AGENT,
        "No event for `a2a.max_sse_idle_seconds`; comments do not count.",
        "Have the agent send status updates, or raise the setting. The task may go on: attach to it again.",
    ),
    "AGENT_UNAVAILABLE": Remedy(
        AGENT,
        "The agent, or a proxy in front of it, answered 429, 502, 503 or 504.",
        "After 429 and 503 send again after `Retry-After`; after 502 and 504 the call may have run.",
    ),
    "AGENT_HTTP_ERROR": Remedy(
        AGENT,
        "The agent answered an HTTP error that is no JSON-RPC answer; what it said is in `data`.",
        "Read it, and the agent's log. 404 and 405: the registered URL has the wrong path.",
    ),
    "INVALID_RESPONSE": Remedy(
        AGENT,
        "The agent answered something that is no answer to this call: no JSON, another id, a redirect.",
        "Check the registered URL with `vitalgate doctor a2a URL`; redirects are not followed.",
    ),
}
