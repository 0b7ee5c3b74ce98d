"""Probes over the gateway's own connections: what the upstream knows, in the words of the health engine."""

from __future__ import annotations

import ssl
from typing import Final

import httpx

from gateway.upstream import Failure, FailureKind, Upstream
from gateway.upstream.dial import UnreachableError
from gateway.upstream.transport import CERTIFICATE_ENDS, PoolTransport
from healthcheck.exchange import KnownFailure
from healthcheck.trace import TRACE, Trace

_CODES: Final = {
    FailureKind.DNS: "dns_failed",
    FailureKind.REFUSED: "connect_refused",
    FailureKind.UNROUTABLE: "connect_failed",
    FailureKind.ADDRESS_NOT_ALLOWED: "address_not_allowed",
    FailureKind.LOCAL: "not_probed",
    FailureKind.PROTOCOL: "not_http",
    FailureKind.UPGRADED: "not_http",
    FailureKind.LOST: "connection_lost",
    FailureKind.CANCELLED: "cancelled",
    FailureKind.INTERNAL: "adapter_fault",
}
_CERTIFICATES: Final = {
    "certificate not yet valid": "certificate_not_yet_valid",
    "certificate expired": "certificate_expired",
    "self-signed certificate": "certificate_untrusted",
    "unknown certificate authority": "certificate_untrusted",
    "certificate is for another name": "certificate_name",
    "certificate is for another address": "certificate_name",
    "certificate revoked": "certificate_invalid",
    "certificate not accepted": "certificate_invalid",
}


class ProbeTransport(httpx.AsyncBaseTransport):
    """The engine's transport: the upstream's address guard, TLS settings and pools; deadlines are the engine's."""

    def __init__(self, upstream: Upstream) -> None:
        """Prepare; `upstream` belongs to the caller."""
        self._pool = PoolTransport(upstream)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and wait for the head of its answer.

        Raises:
            KnownFailure: what became of it, as a code of the health engine.
            httpx.TransportError: for everything else.
        """
        try:
            response = await self._pool.handle_async_request(request)
        except httpx.TransportError as error:
            if isinstance(error.__cause__, UnreachableError):
                raise _known(error.__cause__.failure) from error
            raise
        trace = request.extensions.get(TRACE)
        ends = response.extensions.get(CERTIFICATE_ENDS)
        if isinstance(trace, Trace) and ends is not None:
            trace.certificate(ssl.cert_time_to_seconds(ends))
        return response

    async def aclose(self) -> None:
        """Close the idle connections."""
        await self._pool.aclose()


def _known(failure: Failure) -> KnownFailure:
    if failure.kind is FailureKind.TLS:
        reason = _CERTIFICATES.get(failure.what.removeprefix("TLS failure: "))
        return KnownFailure("tls_failed" if reason is None else "tls_certificate", reason)
    return KnownFailure(_CODES.get(failure.kind, "connection_lost"))
