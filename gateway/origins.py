"""Pure: which web pages may call, and what browsers are told about it (contract 6.2).

A browser lets any page send requests to any address and only then asks whether the page may read the answer. So
a request with an untrusted `Origin` is not served at all; requests without one do not come from such pages.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from gateway.headers import Headers
from gateway.hosts import HostCheck, host_of
from gateway.proxies import Sent
from registry.url import parse_url

_LEARNED_LIMIT: Final = 1024
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
_TOKENS: Final = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, \t-]{1,4096}").fullmatch

_METHODS: Final = b"GET, HEAD, POST, DELETE, OPTIONS"
_MAX_AGE: Final = b"600"
#: What a page may read beside the body.
_EXPOSED: Final = (
    b"x-gateway-error, x-request-id, www-authenticate, retry-after, a2a-version, a2a-extensions, etag"
)


class Origins:
    """Judges the `Origin` header."""

    def __init__(self, trusted: Iterable[str], hosts: HostCheck, public_url: str | None) -> None:
        """Take what is trusted.

        Args:
            trusted: `a2a.trusted_origins`: `auto`, `*`, `null`, origins.
            hosts: The host check: `auto` believes only what it has vouched for.
            public_url: `server.public_url`, under which browsers know the gateway.
        """
        trusted = set(trusted)
        self._auto = "auto" in trusted
        self.everybody = "*" in trusted
        self._listed = {_normal(origin) for origin in trusted - {"auto", "*"}}
        self._public = _origin_of(public_url) if public_url else None
        self._hosts = hosts
        self._known: dict[tuple[bytes, str, bytes], bool] = {}

    def trusts(self, origin: bytes, sent: Sent) -> bool:
        """Tell whether a page of this origin may make the request."""
        if self.everybody:
            return True
        case = (origin, sent.scheme, sent.host)
        known = self._known.get(case)
        if known is None:
            known = self._judge(origin.decode("latin-1"), sent)
            if len(self._known) < _LEARNED_LIMIT:
                self._known[case] = known
        return known

    def _judge(self, origin: str, sent: Sent) -> bool:
        origin = _normal(origin)
        if origin in self._listed:
            return True
        if not self._auto or origin == "null":
            return False
        if self._public is not None and origin == self._public:
            return True
        own = _normal(f"{sent.scheme}://{sent.host.decode('latin-1')}")
        return origin == own and self._is_vouched_for(sent.host)

    def _is_vouched_for(self, host: bytes) -> bool:
        """Tell whether the host is the gateway's own, and not a name that somebody points at it.

        Where no host check is made, an address will do: names can be pointed anywhere, addresses cannot.
        """
        return self._hosts.vouches_for(host) or _is_address(host)


def origin_in(headers: Headers) -> bytes | None:
    """Give the value of `Origin`; several ones are joined, and so become one that nobody trusts."""
    values = [value for name, value in headers if name == b"origin"]
    return b", ".join(values) if values else None


def is_preflight(method: str, headers: Headers) -> bool:
    """Tell whether a browser only asks whether it may send a request."""
    return method == "OPTIONS" and any(name == b"access-control-request-method" for name, _ in headers)


def cors(origin: bytes) -> Headers:
    """Give the headers that let a trusted page read the answer."""
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"Origin"),
    ]


def preflight(origin: bytes, headers: Headers) -> Headers:
    """Give the headers that let a trusted page send what it has asked for."""
    asked = b", ".join(value for name, value in headers if name == b"access-control-request-headers")
    allowed = [(b"access-control-allow-headers", asked)] if _TOKENS(asked) else []
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-methods", _METHODS),
        *allowed,
        (b"access-control-max-age", _MAX_AGE),
        (b"vary", b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
    ]


def _normal(origin: str) -> str:
    """Write scheme and host in lower case, without a default port: how browsers write it."""
    scheme, _, host = origin.lower().partition("://")
    port = _DEFAULT_PORTS.get(scheme)
    return f"{scheme}://{host.removesuffix(port)}" if port and host else origin.lower()


def _origin_of(url: str) -> str:
    read = parse_url(url)
    return _normal(f"{read.scheme}://{read.authority.decode('ascii')}")


def _is_address(host: bytes) -> bool:
    try:
        ipaddress.ip_address(host_of(host.decode("latin-1")) or "")
    except ValueError:
        return False
    return True
