"""The two clocks: one decides leases, the other only writes timestamps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Clock:
    """Clocks as values, so that tests can move them.

    Attributes:
        monotonic: seconds that never jump; decides who has expired, so that a step of the wall clock expires
            nobody and makes nobody immortal.
        wall: seconds since the epoch, for the timestamps people read.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time

    def timestamp(self) -> str:
        """Now in UTC as RFC 3339 with six fraction digits and ``Z`` (contract 5.1)."""
        now = datetime.fromtimestamp(self.wall(), UTC)
        return now.isoformat(timespec="microseconds").replace("+00:00", "Z")
