"""Where the gateway may connect (contract 6.3): decisions over addresses, no I/O.

Agent URLs are given by whoever may register. Names are judged after resolution, address by address, by
`AddressGuard.refuses`, and the connection goes to the address that was judged; literals are judged at
registration too.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from registry.url import Url

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)


#: Always refused. 0.0.0.0/8 reaches the own host on Linux.
_NEVER: Final[tuple[tuple[str, tuple[Network, ...]], ...]] = (
    ("unspecified", _networks("0.0.0.0/8", "::/128")),
    ("link-local", _networks("169.254.0.0/16", "fe80::/10")),
    ("multicast", _networks("224.0.0.0/4", "ff00::/8")),
    ("broadcast", _networks("255.255.255.255/32")),
    # Metadata services outside the link-local range: Alibaba, Azure, AWS over IPv6.
    ("cloud metadata", _networks("100.100.100.200/32", "168.63.129.16/32", "fd00:ec2::254/128")),
)
_LOOPBACK: Final = _networks("127.0.0.0/8", "::1/128")
_PRIVATE: Final = _networks(
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",  # carrier-grade NAT and overlay networks
    "192.0.0.0/24",
    "198.18.0.0/15",
    "240.0.0.0/4",  # unassigned, used inside some clouds
    "fc00::/7",
    "fec0::/10",
)

_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_NAT64_LOCAL: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
_6TO4: Final = ipaddress.IPv6Network("2002::/16")
_TEREDO: Final = ipaddress.IPv6Network("2001::/32")
_V4: Final = 0xFFFF_FFFF


def effective(address: Address) -> tuple[Address, ...]:
    """The addresses that an address stands for: the IPv4 ones inside an IPv6 one, else itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    bits = int(address)
    inside: tuple[int, ...] = ()
    if address in _MAPPED or address in _NAT64 or (address in _COMPATIBLE and bits > 1):
        inside = (bits & _V4,)
    elif address in _NAT64_LOCAL:  # RFC 6052 puts the IPv4 address last, or round bits 64-71
        split = (bits >> 64 & 0xFFFF) << 16 | (bits >> 40 & 0xFFFF)
        inside = tuple(value for value in (bits & _V4, split) if value) or (0,)
    elif address in _6TO4:
        inside = (bits >> 80 & _V4,)
    elif address in _TEREDO:  # its server, and its client inverted
        inside = (bits >> 64 & _V4, ~bits & _V4)
    return tuple(ipaddress.IPv4Address(value) for value in inside) or (address,)


def literal(host: str) -> Address | None:
    """Read a host that is an address, in the decimal, octal, hex and short forms too; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, UnicodeError):
        return None


@dataclass(frozen=True, slots=True)
class _Rules:
    """Host globs and networks, as `upstream.allow_hosts` and `deny_hosts` hold them."""

    networks: tuple[Network, ...]
    globs: tuple[str, ...]

    @classmethod
    def read(cls, entries: Iterable[str]) -> _Rules:
        networks: list[Network] = []
        globs: list[str] = []
        for entry in entries:
            try:
                networks.append(ipaddress.ip_network(entry, strict=False))
            except ValueError:
                if "/" in entry:
                    raise ValueError(f"not a network: {entry}") from None
                globs.append(entry.lower().removesuffix("."))
        return cls(tuple(networks), tuple(globs))

    def __bool__(self) -> bool:
        return bool(self.networks or self.globs)

    def name_matches(self, host: str) -> bool:
        return any(fnmatchcase(host, glob) for glob in self.globs)

    def matches(self, host: str, address: Address) -> bool:
        return (
            self.name_matches(host)
            or self.name_matches(str(address))
            or any(address in network for network in self.networks)
        )


class AddressGuard:
    """Judges addresses and URLs. Immutable."""

    __slots__ = ("_allow", "_allow_loopback", "_allow_private", "_deny")

    def __init__(
        self,
        *,
        allow_loopback: bool = False,
        allow_private: bool = True,
        allow_hosts: Iterable[str] = (),
        deny_hosts: Iterable[str] = (),
    ) -> None:
        """Prepare the rules.

        Args:
            allow_loopback: Agents may live on this host.
            allow_private: Agents may live in private networks.
            allow_hosts: If any: only hosts that match a glob, or whose address lies in a network.
            deny_hosts: Never these.

        Raises:
            ValueError: an entry with a slash is no network.
        """
        self._allow_loopback = allow_loopback
        self._allow_private = allow_private
        self._allow = _Rules.read(allow_hosts)
        self._deny = _Rules.read(deny_hosts)

    def refuses(self, host: str, address: Address) -> str | None:
        """Say why the gateway must not connect to this address of a host; None if it may."""
        if getattr(address, "scope_id", None):
            return "IPv6 zone ids are not allowed"
        host = host.removesuffix(".")
        for one in effective(address):
            why = self._refuses(host, one)
            if why is not None:
                return why
        return None

    def check_url(self, url: Url) -> str | None:
        """Judge what a URL shows without resolving it, for registration; None if nothing speaks against it."""
        address = literal(url.host)
        if address is not None:
            return self.refuses(url.host, address)
        host = url.host.removesuffix(".")
        if self._deny.name_matches(host):
            return "the host is denied by upstream.deny_hosts"
        if self._allow and not self._allow.networks and not self._allow.name_matches(host):
            return "the host is not in upstream.allow_hosts"
        return None

    def _refuses(self, host: str, address: Address) -> str | None:
        for name, networks in _NEVER:
            if _within(address, networks):
                return f"{name} addresses are not allowed"
        if not self._allow_loopback and _within(address, _LOOPBACK):
            return "loopback addresses are not allowed"
        if not self._allow_private and _within(address, _PRIVATE):
            return "private addresses are not allowed"
        if self._deny.matches(host, address):
            return "the host is denied by upstream.deny_hosts"
        if self._allow and not self._allow.matches(host, address):
            return "the host is not in upstream.allow_hosts"
        return None


def _within(address: Address, networks: tuple[Network, ...]) -> bool:
    return any(address in network for network in networks)
