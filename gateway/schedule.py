"""When which agent is checked: due times, places for running checks, and who waits for one (health contract 7).

It starts nothing itself: `due` gives those whose time has come, `admit` those that may begin.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Final

from gateway.watched import Watched

JITTER: Final = 0.2
FIRST_SECONDS: Final = 1.0  # the first check of a new agent begins within this time
IDLE_SECONDS: Final = 600.0
_FAILING_LEAST: Final = 5.0
_IDLE_FACTOR: Final = 3


@dataclass(frozen=True, slots=True)
class Pace:
    """How often: `interval` in seconds, as `health.interval_seconds`."""

    interval: float

    def pause(self, *, failing: bool, idle: bool) -> float:
        """Give the seconds from the end of a check to the next one, before jitter."""
        if failing:
            return min(self.interval, max(_FAILING_LEAST, self.interval / 3))
        return self.interval * (_IDLE_FACTOR if idle else 1)


class Schedule:
    """Due times in a heap, places in two classes: failing agents, which may hang, get at most half of them."""

    def __init__(self, pace: Pace, places: int, random: Random) -> None:
        """Begin empty; `places` is how many checks may run at once."""
        self._pace = pace
        self._places = places
        self._random = random
        self._heap: list[tuple[float, int, Watched]] = []
        self._number = 0
        self._ready: tuple[deque[Watched], deque[Watched]] = (deque(), deque())
        self._running = [0, 0]

    @property
    def running(self) -> int:
        """Checks under way."""
        return sum(self._running)

    @property
    def next_due(self) -> float:
        """When the next check is to begin; infinite if there is none."""
        heap = self._heap
        while heap and (heap[0][2].due != heap[0][0] or heap[0][2].queued):
            heappop(heap)
        return heap[0][0] if heap else inf

    def overdue(self, now: float) -> float:
        """Give how late the most delayed check is, in seconds."""
        waiting = [queue[0].due for queue in self._ready if queue]
        return max(0.0, now - min([self.next_due, *waiting]))

    def first(self, watched: Watched, now: float, within: float = FIRST_SECONDS) -> None:
        """Plan the first check of a new registration."""
        self.plan(watched, now + self._random.uniform(0, min(within, self._pace.interval)))

    def again(self, watched: Watched, now: float) -> None:
        """Plan the next check after one has ended."""
        idle = now - watched.admission.last_call >= IDLE_SECONDS
        pause = self._pace.pause(failing=watched.failing, idle=idle)
        self.plan(watched, now + pause * self._random.uniform(1 - JITTER, 1 + JITTER))

    def change(self, pace: Pace, places: int) -> None:
        """Plan by these from now on; what is planned stays."""
        self._pace, self._places = pace, places

    def plan(self, watched: Watched, when: float) -> None:
        """Have it checked at a time, in place of what was planned before."""
        watched.due = when
        self._number += 1
        heappush(self._heap, (when, self._number, watched))

    def hurry(self, watched: Watched, now: float, *, first: bool = False) -> None:
        """Have it checked as soon as there is a place; `first`: before all others that wait."""
        if watched.queued or watched.task is not None:
            return
        watched.due = now
        watched.queued = True
        queue = self._ready[watched.failing]
        (queue.appendleft if first else queue.append)(watched)

    def forget(self, watched: Watched) -> None:
        """Take it out of the plan."""
        watched.due = inf
        watched.queued = False

    def collect(self, now: float) -> None:
        """Queue those whose time has come."""
        while self.next_due <= now:
            self.hurry(heappop(self._heap)[2], now)

    def take(self) -> tuple[Watched, int] | None:
        """Give the next that may begin, and the class of its place, which must be given back."""
        if self.running >= self._places:
            return None
        for kind in (0, 1):
            if kind and self._running[1] >= max(1, self._places // 2):
                return None
            queue = self._ready[kind]
            while queue:
                watched = queue.popleft()
                if watched.queued:  # not forgotten since
                    watched.queued = False
                    self._running[kind] += 1
                    return watched, kind
        return None

    def give(self, kind: int) -> None:
        """Give a place back."""
        self._running[kind] -= 1
