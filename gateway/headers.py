"""Pure: which headers go on and which stop here (contract 2.2, 2.5).

Names arrive in lower case. What to do with a name is looked up in a table that learns: a name not yet seen is
judged once by `_judge_*` and remembered, up to a bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import quote

import msgspec

Headers = list[tuple[bytes, bytes]]

EVENT_STREAM: Final = b"text/event-stream"
NDJSON: Final = b"application/x-ndjson"

DROP, KEEP = 0, 1
CONNECTION, VIA, REQUEST_ID, VERSION, CONTENT_TYPE, RETRY_AFTER, TRACEPARENT, STREAM_FORMAT = (
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
)
AGENT_CREDENTIAL, TOKEN, CHALLENGE = 10, 11, 12

_LEARNED_LIMIT: Final = 1024

_HOP_BY_HOP: Final = (
    b"keep-alive te trailer transfer-encoding upgrade http2-settings proxy-connection proxy-authenticate "
    b"proxy-authorization proxy-authentication-info"
).split()
_NEVER: Final = frozenset(
    [
        *_HOP_BY_HOP,
        *b"connection via authorization cookie cookie2 forwarded expect host content-length".split(),
        *b"accept-encoding content-encoding user-agent x-real-ip x-kubemq-caller-id".split(),
        *b"x-agent-authorization x-request-id".split(),
    ]
)
_FORWARDED: Final = frozenset(b"accept accept-language tracestate baggage last-event-id".split())
_SPECIAL: Final[dict[bytes, int]] = {
    b"connection": CONNECTION,
    b"via": VIA,
    b"x-request-id": REQUEST_ID,
    b"a2a-version": VERSION,
    b"content-type": CONTENT_TYPE,
    b"traceparent": TRACEPARENT,
    b"x-stream-format": STREAM_FORMAT,
}
_NEVER_BACK: Final = frozenset(
    [*_HOP_BY_HOP, *b"connection x-powered-by x-sendfile x-request-id x-gateway-error".split()]
)
_PASSED: Final = frozenset((KEEP, RETRY_AFTER))
_SPECIAL_BACK: Final = {
    b"connection": CONNECTION,
    b"content-type": CONTENT_TYPE,
    b"retry-after": RETRY_AFTER,
    b"www-authenticate": CHALLENGE,
}
_CREDENTIALS: Final[dict[bytes, int]] = {
    b"x-agent-authorization": AGENT_CREDENTIAL,
    b"authorization": TOKEN,
}
#: What a `Connection` header usually says: nothing is named that would have to be dropped.
_PLAIN_CONNECTION: Final = frozenset((b"keep-alive", b"Keep-Alive", b"close", b"Close"))
_REQUEST_ID: Final = re.compile(rb"[\x21-\x7e]{1,256}").fullmatch


class _Learning(dict[bytes, int]):
    """A table that judges a name when it is first seen, and forgets nothing until it is full."""

    def __init__(self, known: dict[bytes, int], judge: Callable[[bytes], int]) -> None:
        super().__init__(known)
        self._judge = judge

    def __missing__(self, name: bytes) -> int:
        verdict = self._judge(name)
        if len(self) < _LEARNED_LIMIT:
            self[name] = verdict
        return verdict


class Inbound(msgspec.Struct, gc=False):
    """What a caller's headers say: the lines that go on, and the values that the gateway itself acts on.

    Attributes:
        lines: `name: value CRLF` for each header that is forwarded as it came.
        content_type: The value of the first Content-Type; None if there is none.
        request_id: The caller's X-Request-ID, if it is usable (visible ASCII, at most 256 characters).
        version: The caller's A2A-Version.
        via: The values of Via, in order.
        traceparent: The caller's W3C trace context, for the log.
        envelope: Whether the caller wants every event in KubeMQ's envelope (contract 3.4).
        credential: What the caller brings for the agent (contract 6.4); empty: more than one, and so none.
        token: What the caller shows to the gateway, where callers may bring credentials.
    """

    lines: list[bytes] = []
    content_type: bytes | None = None
    request_id: bytes | None = None
    version: bytes | None = None
    via: list[bytes] = []
    traceparent: bytes = b""
    envelope: bool = False
    credential: bytes | None = None
    token: bytes = b""


class RequestHeaders:
    """Decides about the headers of requests (contract 2.2)."""

    def __init__(
        self, also: Iterable[str] = (), *, credentials: bool = False, authenticated: bool = False
    ) -> None:
        """Decide what to read.

        Args:
            also: Further names to forward (`a2a.forward_headers`); the never-rows cannot be overridden.
            credentials: Callers may bring credentials for agents (`upstream.caller_credentials`).
            authenticated: `Authorization` is for the gateway; otherwise it is such a credential, too.
        """
        self._also = frozenset(name.lower().encode() for name in also)
        self._token_is_credential = credentials and not authenticated
        self._table = _Learning(_SPECIAL | (_CREDENTIALS if credentials else {}), self._judge)

    def _judge(self, name: bytes) -> int:
        if name in _NEVER or b"_" in name or name.startswith((b"proxy-", b"x-forwarded-")):
            return DROP
        known = name in _FORWARDED or name in self._also or name.startswith((b"a2a-", b"x-"))
        return KEEP if known else DROP

    def read(self, headers: Headers) -> Inbound:
        """Sort a caller's headers. `Connection` removes what it names, never what the gateway sets."""
        inbound = Inbound()
        lines = inbound.lines
        table = self._table
        named: set[bytes] = set()
        for name, value in headers:
            verdict = table[name]
            if verdict == KEEP:
                lines.append(b"%b: %b\r\n" % (name, value))
            elif verdict != DROP:
                self._special(verdict, value, inbound, named)
        if named:
            _without(inbound, named)
        if self._token_is_credential and inbound.credential is None and inbound.token:
            inbound.credential = inbound.token
        return inbound

    def _special(self, verdict: int, value: bytes, inbound: Inbound, named: set[bytes]) -> None:
        if verdict == CONTENT_TYPE:
            inbound.content_type = value if inbound.content_type is None else inbound.content_type
        elif verdict == VERSION:
            inbound.version = value if inbound.version is None else inbound.version
        elif verdict == VIA:
            inbound.via.append(value)
        elif verdict == REQUEST_ID:
            if inbound.request_id is None and _REQUEST_ID(value):
                inbound.request_id = value
        elif verdict == TRACEPARENT:
            inbound.traceparent = value
            inbound.lines.append(b"traceparent: %b\r\n" % value)
        elif verdict == AGENT_CREDENTIAL:
            inbound.credential = value if inbound.credential is None else b""
        elif verdict == TOKEN:
            inbound.token = value
        elif verdict == STREAM_FORMAT:
            inbound.envelope = value.strip().lower() == b"envelope"
        elif value not in _PLAIN_CONNECTION:
            named.update(_tokens(value))


def _tokens(value: bytes) -> set[bytes]:
    return {token.strip().lower() for token in value.split(b",")}


def _without(inbound: Inbound, named: set[bytes]) -> None:
    inbound.lines = _not_named(inbound.lines, named)
    if b"a2a-version" in named:
        inbound.version = None
    if b"x-agent-authorization" in named:
        inbound.credential = None
    if b"authorization" in named:
        inbound.token = b""


def _not_named(lines: list[bytes], named: set[bytes]) -> list[bytes]:
    return [line for line in lines if line.partition(b":")[0] not in named]


def _judge_back(name: bytes) -> int:
    if name in _NEVER_BACK or b"_" in name or name.startswith((b"x-accel-", b"proxy-")):
        return DROP
    return KEEP if name.startswith((b"a2a-", b"x-")) else DROP


_back = _Learning(_SPECIAL_BACK, _judge_back)


class Outbound(msgspec.Struct, gc=False):
    """What an agent's headers say.

    Attributes:
        lines: What goes back to the caller.
        kind: The media type of the body.
        retry_after: Its Retry-After.
        content_type: Its Content-Type as it came.
        challenges: Its WWW-Authenticate lines, which go back only to a caller who brought the credential.
    """

    lines: list[bytes] = []
    kind: bytes = b""
    retry_after: bytes | None = None
    content_type: bytes = b""
    challenges: list[bytes] = []


def read_answer(headers: Headers) -> Outbound:
    """Sort an agent's headers (contract 2.5)."""
    outbound = Outbound()
    named: set[bytes] = set()
    for name, value in headers:
        verdict = _back[name]
        if verdict == CONTENT_TYPE:
            outbound.kind = media_type(value)
            outbound.content_type = value
        elif verdict in _PASSED:
            outbound.lines.append(b"%b: %b\r\n" % (name, value))
            if verdict == RETRY_AFTER:
                outbound.retry_after = value
        elif verdict == CHALLENGE:
            outbound.challenges.append(b"www-authenticate: %b\r\n" % value)
        elif verdict == CONNECTION and value not in _PLAIN_CONNECTION:
            named |= _tokens(value)
    if named:
        outbound.lines = _not_named(outbound.lines, named)
    return outbound


def is_same_credential(one: bytes, other: bytes) -> bool:
    """Tell whether two `Authorization` values hold the same secret, whatever they call it."""
    return one.rpartition(b" ")[2] == other.rpartition(b" ")[2]


def is_json(content_type: bytes | None) -> bool:
    """Tell whether a Content-Type is application/json, in any case and with any parameters."""
    if content_type == b"application/json":
        return True
    return content_type is not None and media_type(content_type) == b"application/json"


def media_type(content_type: bytes) -> bytes:
    """Give the type without its parameters, in lower case."""
    return content_type.partition(b";")[0].strip().lower()


def caller_line(principal: str) -> bytes:
    """Write the identity of the caller as a header line (contract 2.2).

    Whatever is not visible ASCII is percent-encoded, and so is the percent sign, so that two principals never
    become one.
    """
    text = quote(principal.encode("utf-8", "surrogatepass"), safe="!\"#$&'()*+,/:;<=>?@[\\]^`{|}~")
    return b"X-KubeMQ-Caller-ID: " + text.encode() + b"\r\n"
