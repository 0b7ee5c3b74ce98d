"""Pure: what a proxy in front of the gateway says about the request as its sender made it (contract 6.2).

Only a peer in `server.trusted_proxies` is believed: anybody can send `X-Forwarded-*`. Of several values the last
one counts, because that is the one which the proxy next to us has added.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gateway.headers import Headers

_LEARNED_LIMIT: Final = 1024
_SCHEMES: Final = (b"http", b"https")


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as its sender made it.

    Attributes:
        scheme: http or https.
        host: The `Host` that it was sent to.
        client: The sender's address.
    """

    scheme: str
    host: bytes
    client: str


class TrustedProxies:
    """Knows who is believed."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        """Take addresses and networks (`server.trusted_proxies`)."""
        self._networks = [ipaddress.ip_network(one, strict=False) for one in networks]
        self._known: dict[str, bool] = {}

    def __bool__(self) -> bool:
        """Tell whether anybody is believed."""
        return bool(self._networks)

    def trusts(self, address: str) -> bool:
        """Tell whether the peer with this address is such a proxy."""
        if not self._networks:
            return False
        known = self._known.get(address)
        return self._learn(address) if known is None else known

    def _learn(self, address: str) -> bool:
        try:
            read = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(read, ipaddress.IPv6Address) and read.ipv4_mapped is not None:
            read = read.ipv4_mapped
        verdict = any(read in network for network in self._networks)
        if len(self._known) < _LEARNED_LIMIT:
            self._known[address] = verdict
        return verdict

    def sent(self, headers: Headers, peer: str) -> Sent:
        """Give the request as its sender made it: as it came, unless a proxy is to be believed."""
        host = _last(headers, b"host")
        if not self.trusts(peer):
            return Sent("http", host, peer)
        scheme = _last(headers, b"x-forwarded-proto").lower()
        return Sent(
            scheme.decode() if scheme in _SCHEMES else "http",
            _last(headers, b"x-forwarded-host") or host,
            self._client(headers, peer),
        )

    def _client(self, headers: Headers, peer: str) -> str:
        """Give the address nearest to us that is not one of our proxies'."""
        chain = b",".join(value for name, value in headers if name == b"x-forwarded-for").split(b",")
        for entry in reversed(chain):
            text = entry.strip().decode("latin-1")
            try:
                ipaddress.ip_address(text)
            except ValueError:
                return peer
            if not self.trusts(text):
                return text
        return peer


def _last(headers: Headers, name: bytes) -> bytes:
    values = [value for found, value in headers if found == name]
    return values[-1].rpartition(b",")[2].strip() if values else b""
