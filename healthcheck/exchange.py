"""One bounded HTTP exchange: what to ask, what came back, or which failure it was.

The one place where foreign exceptions are met; they become codes here and go no further.
"""

from __future__ import annotations

import socket
import ssl
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import httpcore
import httpx

from healthcheck.model import Finding, Measurement, Status, fault
from healthcheck.trace import TRACE, Trace
from healthcheck.url import Url

_TOLD_APART = frozenset({401, 403, 404, 429, 502, 503, 504})
USER_AGENT = "vitalgate-health/1"
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to send: `key` names the evidence it brings, `limit` bounds the body in bytes.

    `passive` requests change nothing at the peer and may be retried. `cut_code` is the adapter's own code
    for a body that ends early.
    """

    key: str
    method: str
    url: Url
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    limit: int = MIB
    passive: bool = True
    cut_code: str = "interrupted"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. `truncated`: there was more than the limit; `body` is decoded, None if it could not be."""

    status: int
    headers: Mapping[str, str]
    body: bytes | None
    truncated: bool = False

    @property
    def is_success(self) -> bool:
        """A 2xx status; a redirect is none, and is never followed."""
        return 200 <= self.status < 300

    @property
    def status_reason(self) -> str:
        """A word for a status that is not a success."""
        if self.status in _TOLD_APART:
            return f"http_{self.status}"
        return {3: "redirect", 4: "http_4xx", 5: "http_5xx"}.get(self.status // 100, "http_other")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one request brought: a reply, or the finding that stands for its failure."""

    reply: Reply | None
    failure: Finding | None
    measured: Measurement
    first_byte: bool


class KnownFailure(Exception):
    """For transports that know exactly what happened: raise this, or have it as a cause.

    `code` is one of `healthcheck.codes.CODES`; it is taken as it is.
    """

    def __init__(self, code: str, reason: str | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.reason = reason


class _Incomplete(Exception):
    """The body ended before its announced end."""


async def send(transport: httpx.AsyncBaseTransport, ask: Ask, trace: Trace) -> Evidence:
    """Perform the exchange; never raises but for cancellation, which the caller's deadline uses."""
    try:
        reply = await _perform(transport, ask, trace)
    except Exception as error:  # the border: everything the network or a transport can raise becomes a code
        failure = classify(error, trace, ask.cut_code)
        return Evidence(None, failure, trace.finish(failure.status), trace.first_byte)
    return Evidence(reply, None, trace.finish(Status.HEALTHY), True)


async def _perform(transport: httpx.AsyncBaseTransport, ask: Ask, trace: Trace) -> Reply:
    origin, target = ask.url.origin, ask.url.target.encode("ascii")
    headers = httpx.Headers({"User-Agent": USER_AGENT, "Accept-Encoding": "identity"})
    headers.update(ask.headers)  # whatever the case of the names
    request = httpx.Request(
        ask.method,
        httpx.URL(scheme=origin.scheme, host=origin.host, port=origin.port, raw_path=target),
        headers=headers,
        content=ask.body or None,
        extensions={TRACE: trace, "target": target},  # httpx.URL shortens /a/../b: this is sent in its place
    )
    response = await transport.handle_async_request(request)
    trace.byte()
    try:
        raw, truncated = await _read(response, ask)
    finally:
        await response.aclose()
    received = {name.lower(): value for name, value in response.headers.items()}
    body, too_long = _decode(raw, truncated, received.get("content-encoding", ""), ask.limit)
    return Reply(response.status_code, received, body, truncated or too_long)


async def _read(response: httpx.Response, ask: Ask) -> tuple[bytes, bool]:
    """At most `limit` bytes, and whether there were more."""
    body = bytearray()
    if ask.method == "HEAD" or not isinstance(response.stream, httpx.AsyncByteStream):
        return b"", False
    try:
        async for chunk in response.stream:  # raw: coded as it came
            body += chunk
            if len(body) > ask.limit:
                return bytes(body[: ask.limit]), True
    except (httpx.TransportError, httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
        raise _Incomplete from error
    return bytes(body), False


def _decode(raw: bytes, truncated: bool, coding: str, limit: int) -> tuple[bytes | None, bool]:
    """Undo gzip or deflate without ever holding more than `limit` bytes; None for what cannot be undone."""
    coding = coding.strip().lower()
    if not raw or coding in {"", "identity"}:
        return raw, False
    if coding not in {"gzip", "x-gzip", "deflate"}:
        return None, False
    try:
        inflate = zlib.decompressobj(47)
        body = inflate.decompress(raw, limit + 1)
    except zlib.error:
        return None, False
    if not inflate.eof and len(body) <= limit and not truncated:
        raise _Incomplete
    return body[:limit], len(body) > limit


_CERTIFICATE_REASONS = {
    9: "certificate_not_yet_valid",
    10: "certificate_expired",
    18: "certificate_untrusted",
    19: "certificate_untrusted",
    20: "certificate_untrusted",
    21: "certificate_untrusted",
    62: "certificate_name",
    64: "certificate_name",
}

_CODES: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((socket.gaierror, UnicodeError), "dns_failed"),
    ((ssl.SSLError,), "tls_failed"),
    ((ConnectionRefusedError,), "connect_refused"),
    ((httpx.PoolTimeout,), "not_probed"),
    ((httpx.ConnectError, httpx.ConnectTimeout, httpcore.ConnectError), "connect_failed"),
    ((httpx.LocalProtocolError, httpcore.LocalProtocolError), "adapter_fault"),
    ((httpx.RemoteProtocolError, httpcore.RemoteProtocolError), "not_http"),
    ((httpx.TransportError, httpcore.NetworkError, OSError), "connection_lost"),
)


def classify(error: BaseException, trace: Trace, cut_code: str) -> Finding:
    """The finding that stands for an exception, by its type and those that caused it, never by its text."""
    if isinstance(error, _Incomplete):
        return fault(cut_code, "cut_off", status=Status.UNKNOWN)
    chain = list(_causes(error))
    for cause in chain:
        if isinstance(cause, KnownFailure):
            return fault(cause.code, cause.reason)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return fault("tls_certificate", _CERTIFICATE_REASONS.get(cause.verify_code, "certificate_invalid"))
    for kinds, code in _CODES:
        if any(isinstance(cause, kinds) for cause in chain):
            return fault(_at_step(code, trace))
    return fault("adapter_fault")


def _at_step(code: str, trace: Trace) -> str:
    """The same exception means different things before a connection, before a byte, and after one."""
    if code in {"connection_lost", "not_http", "connect_failed"} and trace.failed_step == "tls":
        return "tls_failed"
    if code == "connection_lost" and trace.failed_step in {"dns", "tcp"}:
        return "connect_failed"
    if code == "connection_lost" and trace.first_byte:
        return "interrupted"
    if code == "not_http" and not trace.first_byte:
        return "connection_lost"
    return code


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        if isinstance(current, BaseExceptionGroup):
            for member in current.exceptions:
                yield from _causes(member)
        current = current.__cause__ or current.__context__
