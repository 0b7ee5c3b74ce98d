"""A clock that moves when told."""

from __future__ import annotations


class MovableClock:
    """Seconds that pass only by `advance`."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds
