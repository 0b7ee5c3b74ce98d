"""The settings `health.*` as the checks follow them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_PROBE_SECONDS: Final = (1.0, 10.0)


@dataclass(frozen=True, slots=True)
class HealthRules:
    """The settings `health.*` and what else the checks depend on; times in seconds."""

    interval: float = 30.0
    concurrency: int = 50
    enforce: bool = True
    evict_unhealthy: bool = False
    trial: float = 10.0
    verified: bool = True

    @property
    def probe_seconds(self) -> float:
        """Deadline of one request of a check: the interval, but at least 1 s and at most 10 s."""
        least, most = _PROBE_SECONDS
        return min(most, max(least, self.interval))

    @property
    def memory_seconds(self) -> float:
        """How long a result that no other follows means anything: twice the longest pause, and a minute."""
        return 6 * self.interval + 60
