"""A clock that moves when it is told."""

from __future__ import annotations

from collections.abc import Callable

from registry.clock import Clock


class ManualClock:
    """Hands out a `Clock`; `tick` moves both of its clocks, `step_wall` only the wall clock."""

    def __init__(self, wall: float = 1_750_000_000.0) -> None:
        self._monotonic = 1_000.0
        self._wall = wall
        self.along: Callable[[float], None] = lambda seconds: None
        """Moves other clocks when this one ticks."""
        self.clock = Clock(monotonic=lambda: self._monotonic, wall=lambda: self._wall)

    def tick(self, seconds: float) -> None:
        self._monotonic += seconds
        self._wall += seconds
        self.along(seconds)

    def step_wall(self, seconds: float) -> None:
        self._wall += seconds
