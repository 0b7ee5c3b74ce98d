"""Limits: calls in flight per agent, requests per caller and time, connections per client (contract 2.3, 6.5)."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final

#: Names that a table of rates remembers at most.
MOST_NAMES: Final = 10_000
_ROUNDING: Final = 1e-9


class Slots:
    """A counter with a limit; nobody queues. Whoever has taken a slot gives it back exactly once."""

    __slots__ = ("__weakref__", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def take(self) -> bool:
        """Take a slot if one is free."""
        if self.used >= self.limit:
            return False
        self.used += 1
        return True

    def give(self) -> None:
        """Give a slot back.

        Raises:
            RuntimeError: If none is taken: a slot was freed twice.
        """
        if self.used == 0:
            raise RuntimeError("a slot was given back twice")
        self.used -= 1


class Rates:
    """How often each name may do something: a bucket per name that refills evenly (contract 6.5).

    The table is bounded. Buckets that are full again are forgotten first; they say nothing.
    """

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float]) -> None:
        """Prepare.

        Args:
            per_second: How much a bucket gets.
            burst: How much it holds, at least 1.
            clock: Monotonic, in seconds.
        """
        self._per_second = per_second
        self._burst = max(burst, 1.0)
        self._clock = clock
        self._empty_until: dict[str, float] = {}  # when the bucket, had it no bottom, would be full again
        self._sweep_at = 0.0

    def take(self, name: str) -> float:
        """Take one; give 0, or the seconds after which there will be one again."""
        now = self._clock()
        full_at = max(self._empty_until.get(name, now), now) + 1 / self._per_second
        short = full_at - now - self._burst / self._per_second
        if short > _ROUNDING:
            return short
        if name not in self._empty_until and len(self._empty_until) >= MOST_NAMES:
            self._make_room(now)
        self._empty_until[name] = full_at
        return 0.0

    def __len__(self) -> int:
        """How many names are remembered."""
        return len(self._empty_until)

    def _make_room(self, now: float) -> None:
        if now >= self._sweep_at:  # not for every new name, if all of them are busy
            self._sweep_at = now + 1
            self._empty_until = {name: full_at for name, full_at in self._empty_until.items() if full_at > now}
        if len(self._empty_until) >= MOST_NAMES:
            del self._empty_until[next(iter(self._empty_until))]


class Connections:
    """How many connections each client address has open (contract 6.5).

    An IPv6 client counts by its /64, since it may take any address in there.
    """

    def __init__(self, most: int, exempt: Callable[[str], bool]) -> None:
        """Prepare; `most` 0: any number. Addresses that are `exempt` (trusted proxies) do not count."""
        self._most = most
        self._exempt = exempt
        self._open: dict[str, int] = {}

    def enter(self, address: str) -> str | None:
        """Count a connection in; give what to `leave` with, or None if it is one too many."""
        if not self._most or self._exempt(address):
            return ""
        name = _client(address)
        count = self._open.get(name, 0)
        if count >= self._most:
            return None
        self._open[name] = count + 1
        return name

    def leave(self, name: str) -> None:
        """Count a connection out."""
        if name:
            left = self._open[name] - 1
            if left:
                self._open[name] = left
            else:
                del self._open[name]


def _client(address: str) -> str:
    try:
        read = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(read, ipaddress.IPv4Address):
        return address
    if read.ipv4_mapped is not None:
        return str(read.ipv4_mapped)
    return str(ipaddress.ip_network((int(read) >> 64 << 64, 64)))
