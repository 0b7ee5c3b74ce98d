"""Pure: an agent's calls of the last seconds, from counters that only grow (`metrics.Cells`).

Nothing is counted here: whoever wants to know looks at the counters now and then, and takes the difference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from gateway.metrics import (
    APPLICATION_ERROR,
    BUCKETS,
    CANCELLED,
    PROTOCOL_ERROR,
    SUCCESS,
    TRANSPORT_ERROR,
    Cells,
)

#: What the numbers are about, in seconds: as long as passive evidence looks back.
WINDOW_SECONDS: Final = 30.0
OUTCOMES: Final = (SUCCESS, APPLICATION_ERROR, TRANSPORT_ERROR, PROTOCOL_ERROR, CANCELLED)


class Traffic(msgspec.Struct, frozen=True, gc=False):
    """Calls that ended within the window.

    Attributes:
        calls_per_second: All of them; None as long as nothing has been measured.
        outcomes: How many ended in which way; those that do not occur are left out.
        p50_ms: Median duration in milliseconds, as exact as the buckets of the histogram; None without calls.
        p95_ms: The same of the slowest twentieth.
    """

    calls_per_second: float | None = None
    outcomes: dict[str, int] = {}
    p50_ms: float | None = None
    p95_ms: float | None = None


NOTHING: Final = Traffic()
QUIET: Final = Traffic(calls_per_second=0.0)


class Sample(msgspec.Struct, frozen=True, gc=False):
    """The counters at one moment."""

    at: float
    total: int
    outcomes: tuple[int, ...]
    buckets: tuple[int, ...]


_ZEROS: Final = (0,) * len(OUTCOMES), (0,) * (len(BUCKETS) + 1)


def sample(cells: Cells | None, at: float) -> Sample:
    """Read the counters of an agent; None: nothing was ever counted."""
    if cells is None or not cells.requests:
        return Sample(at, 0, *_ZEROS)
    counts = dict.fromkeys(OUTCOMES, 0)
    for (_, status), count in cells.requests.items():
        counts[status] += count
    return Sample(at, sum(counts.values()), tuple(counts.values()), tuple(cells.buckets))


class Window:
    """The samples of one agent. Only those in which something had changed are kept."""

    __slots__ = ("_samples",)

    def __init__(self, first: Sample) -> None:
        self._samples = deque((first,))

    def look(self, cells: Cells | None, now: float) -> bool:
        """Look at the counters; tell whether there is anything in the window, or was until now."""
        samples = self._samples
        busy = len(samples) > 1
        if cells is not None and cells.requests:
            current = sample(cells, now)
            if current.total < samples[-1].total:  # the agent was away for so long that its counters began anew
                samples.clear()
                samples.append(Sample(now, 0, *_ZEROS))
            if current.total != samples[-1].total:
                samples.append(current)
        while len(samples) > 1 and samples[1].at <= now - WINDOW_SECONDS:
            samples.popleft()
        return busy or len(samples) > 1

    def traffic(self, measured: float) -> Traffic:
        """Give what the samples say; `measured`: for how many seconds anybody has looked."""
        if measured <= 0:
            return NOTHING
        first, last = self._samples[0], self._samples[-1]
        calls = last.total - first.total
        if not calls:
            return QUIET
        buckets = [after - before for before, after in zip(first.buckets, last.buckets, strict=True)]
        differences = zip(OUTCOMES, first.outcomes, last.outcomes, strict=True)
        return Traffic(
            round(calls / min(measured, WINDOW_SECONDS), 2),
            {name: after - before for name, before, after in differences if after > before},
            quantile(buckets, 0.5),
            quantile(buckets, 0.95),
        )


def quantile(buckets: Sequence[int], part: float) -> float | None:
    """Estimate a quantile in milliseconds, even within its bucket, as Prometheus does; None without calls."""
    rank = part * sum(buckets)
    if not rank:
        return None
    below, seen = 0.0, 0
    for bound, count in zip(BUCKETS, buckets, strict=False):
        if count and seen + count >= rank:
            return round((below + (bound - below) * (rank - seen) / count) * 1000, 2)
        seen += count
        below = bound
    return BUCKETS[-1] * 1000
