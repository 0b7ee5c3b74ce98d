"""The host check: it stops DNS rebinding from a browser (contract 1)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

_LEARNED_LIMIT: Final = 1024
_AUTHORITY: Final = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?").fullmatch


def is_loopback(host: str) -> bool:
    """Tell whether a host, as bound to or as in `Host`, is this machine: `localhost` and what is below it too.

    An IPv4 address counts in the form of IPv6 as well. Other spellings (`127.1`) are names here: what a listener
    is bound to must be asked of its socket.
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if address.version == 6 else None
    return (mapped or address).is_loopback


def host_of(authority: str) -> str | None:
    """Give the host of a `Host` header in lower case, without port, brackets or final dot; None if malformed."""
    match = _AUTHORITY(authority)
    return match and (match[1] or match[2]).lower().removesuffix(".")


class HostCheck:
    """Judges the `Host` header of requests to the API listener."""

    def __init__(
        self,
        bind_host: str,
        allowed: Iterable[str],
        public_url: str | None,
        *,
        bound: str | None = None,
        authenticated: bool = False,
    ) -> None:
        """Decide whether to check at all, and what passes.

        Args:
            bind_host: `server.host`, which always passes.
            bound: The address that the listener has for it; without one, `bind_host` is taken for an address.
            allowed: `server.allowed_hosts`; names, compared without port and case.
            public_url: `server.public_url`, whose host always passes.
            authenticated: Callers must show a token, which a page of a stranger does not have.
        """
        allowed = [host.lower() for host in allowed]
        public = urlsplit(public_url).hostname if public_url else None
        self._active = bool(allowed) or (is_loopback(bound or bind_host) and not authenticated)
        self._allowed = {bind_host.lower().strip("[]"), *allowed, *([public] if public else [])}
        self._known: dict[bytes, bool] = {}

    def allows_host(self, value: bytes) -> bool:
        """Tell whether a request with this `Host` may be served."""
        return not self._active or self._known.get(value) or self.vouches_for(value)

    def vouches_for(self, value: bytes) -> bool:
        """Tell whether this `Host` is known to be the gateway's own, whether or not the check is made."""
        known = self._known.get(value)
        return self._learn(value) if known is None else known

    def _learn(self, value: bytes) -> bool:
        host = host_of(value.decode("latin-1"))
        verdict = host is not None and (host in self._allowed or is_loopback(host))
        if len(self._known) < _LEARNED_LIMIT:
            self._known[value] = verdict
        return verdict
