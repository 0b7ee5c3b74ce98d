"""Why an exchange with an agent failed: kinds, fixed texts, and the tables that translate foreign exceptions.

The texts go to callers, so they come from here and never from an exception (contract 2.4).
"""

from __future__ import annotations

import errno
import socket
import ssl
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final


class FailureKind(StrEnum):
    """What went wrong, seen from the gateway."""

    DNS = "dns"  #: the host name has no address, or the resolver failed
    REFUSED = "refused"  #: nothing listens there
    UNROUTABLE = "unroutable"  #: no way to the address, or nobody answers there
    TLS = "tls"  #: handshake or certificate
    ADDRESS_NOT_ALLOWED = "address_not_allowed"  #: forbidden by the address guard (contract 6.3)
    LOCAL = "local"  #: this process has no descriptor, port or memory left: not the agent's fault
    PROTOCOL = "protocol"  #: not HTTP/1.x, or broken framing
    LOST = "lost"  #: closed before the answer was whole
    TIMEOUT = "timeout"  #: the total deadline passed
    TOO_LARGE = "too_large"  #: decoded body over the cap
    UNDECODABLE = "undecodable"  #: unknown or broken content coding
    UPGRADED = "upgraded"  #: 101, which nobody asked for
    CANCELLED = "cancelled"  #: the gateway itself gave up (`Upstream.aclose`)
    INTERNAL = "internal"  #: a bug on our side; the loop's exception handler has the details


@dataclass(frozen=True, slots=True)
class Failure:
    """How an exchange failed.

    Attributes:
        kind: The class of failure.
        what: Short fixed text for messages, e.g. "DNS failure", "TLS failure: certificate expired".
        connecting: True when no byte of the request had been handed to a connection, so that the agent
            cannot have seen it.
    """

    kind: FailureKind
    what: str
    connecting: bool = False


NOT_ALLOWED: Final = Failure(FailureKind.ADDRESS_NOT_ALLOWED, "address not allowed", True)
NO_ADDRESS: Final = Failure(FailureKind.DNS, "DNS failure", True)
NO_ROUTE: Final = Failure(FailureKind.UNROUTABLE, "no route", True)
SPOKE_FIRST: Final = Failure(FailureKind.PROTOCOL, "protocol error", True)
LOST_CONNECTING: Final = Failure(FailureKind.LOST, "connection lost", True)
TIMEOUT_CONNECTING: Final = Failure(FailureKind.TIMEOUT, "timeout", True)

PROTOCOL: Final = Failure(FailureKind.PROTOCOL, "protocol error")
LOST: Final = Failure(FailureKind.LOST, "connection lost")
TIMEOUT: Final = Failure(FailureKind.TIMEOUT, "timeout")
TOO_LARGE: Final = Failure(FailureKind.TOO_LARGE, "response too large")
UNDECODABLE: Final = Failure(FailureKind.UNDECODABLE, "undecodable content coding")
UPGRADED: Final = Failure(FailureKind.UPGRADED, "unexpected protocol upgrade")
CANCELLED: Final = Failure(FailureKind.CANCELLED, "gateway is shutting down")
INTERNAL: Final = Failure(FailureKind.INTERNAL, "internal error")

_NO_DESCRIPTOR: Final = Failure(FailureKind.LOCAL, "no file descriptor left", True)
_NO_MEMORY: Final = Failure(FailureKind.LOCAL, "no socket memory left", True)
_NO_THREAD: Final = Failure(FailureKind.LOCAL, "no thread left", True)
_NO_PORT: Final = Failure(FailureKind.LOCAL, "no local address or port left", True)
_CONNECT_TIMEOUT: Final = Failure(FailureKind.UNROUTABLE, "connect timed out", True)

_ERRNOS: Final[dict[int, Failure]] = {
    errno.ECONNREFUSED: Failure(FailureKind.REFUSED, "connection refused", True),
    errno.ECONNRESET: LOST_CONNECTING,
    errno.ECONNABORTED: LOST_CONNECTING,
    errno.EPIPE: LOST_CONNECTING,
    errno.EHOSTUNREACH: NO_ROUTE,
    errno.ENETUNREACH: NO_ROUTE,
    errno.EHOSTDOWN: NO_ROUTE,
    errno.ENETDOWN: NO_ROUTE,
    errno.EACCES: NO_ROUTE,  # a packet filter, or a broadcast address
    errno.EPERM: NO_ROUTE,
    errno.EAFNOSUPPORT: NO_ROUTE,
    errno.EINVAL: NO_ROUTE,  # such as a link-local address without its interface
    errno.ETIMEDOUT: _CONNECT_TIMEOUT,
    errno.EMFILE: _NO_DESCRIPTOR,
    errno.ENFILE: _NO_DESCRIPTOR,
    errno.ENOBUFS: _NO_MEMORY,
    errno.ENOMEM: _NO_MEMORY,
    errno.EADDRNOTAVAIL: _NO_PORT,
    errno.EAGAIN: _NO_THREAD,
}

#: X509_V_ERR_* of OpenSSL.
_CERTIFICATES: Final[dict[int, str]] = {
    9: "certificate not yet valid",
    10: "certificate expired",
    18: "self-signed certificate",
    19: "unknown certificate authority",
    20: "unknown certificate authority",
    21: "unknown certificate authority",
    23: "certificate revoked",
    62: "certificate is for another name",
    64: "certificate is for another address",
}

_NOT_TLS: Final = "the agent does not speak TLS"
_REASONS: Final[dict[str, str]] = {
    "WRONG_VERSION_NUMBER": _NOT_TLS,
    "HTTP_REQUEST": _NOT_TLS,
    "RECORD_LAYER_FAILURE": _NOT_TLS,
    "PACKET_LENGTH_TOO_LONG": _NOT_TLS,
    "UNEXPECTED_EOF_WHILE_READING": "connection closed in the handshake",
    "UNSUPPORTED_PROTOCOL": "no common protocol version",
    "TLSV1_ALERT_PROTOCOL_VERSION": "no common protocol version",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "handshake refused",
    "TLSV1_UNRECOGNIZED_NAME": "host name not known to the agent",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "client certificate required",
    "SSLV3_ALERT_BAD_CERTIFICATE": "client certificate refused",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "client certificate refused",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "client certificate refused",
    "TLSV1_ALERT_UNKNOWN_CA": "client certificate refused",
    "TLSV1_ALERT_ACCESS_DENIED": "client certificate refused",
}


def connect_failure(error: OSError) -> Failure:
    """Translate what resolving or connecting raised."""
    if isinstance(error, socket.gaierror):
        return NO_ADDRESS
    # Several addresses that failed in different ways come without an errno.
    return _ERRNOS.get(error.errno or 0, NO_ROUTE)


def tls_failure(error: Exception) -> Failure:
    """Translate what a TLS handshake raised."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        known = _ERRNOS.get(error.errno or 0)
        if known is not None and known.kind is FailureKind.LOCAL:
            return known
        return _tls("connection closed in the handshake")
    if isinstance(error, ssl.SSLCertVerificationError):
        return _tls(_CERTIFICATES.get(error.verify_code, "certificate not accepted"))
    return _tls(_REASONS.get(_reason(error), "handshake failed"))


def lost_failure(error: Exception | None) -> Failure:
    """Translate what closed a connection whose request was written and that answered nothing.

    With TLS 1.3 a server refuses the client's certificate only after the client has begun to send.
    """
    if isinstance(error, ssl.SSLError) and _reason(error) in _REASONS:
        return replace(tls_failure(error), connecting=False)
    return LOST


def _reason(error: Exception) -> str:
    """OpenSSL's name of what went wrong; not every SSLError has one."""
    return getattr(error, "reason", None) or ""


def _tls(what: str) -> Failure:
    return Failure(FailureKind.TLS, f"TLS failure: {what}", True)
