"""pure: what the calls of callers say of an agent, counted at this node and together with others.

Passive evidence (health contract 7): 5 failures in a row, or more than half of at least 20 calls within 30 s. With
several nodes it is judged over all of their calls: each tells what it has `Seen`, and `Traffic` adds up.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import Final

FAILURES_IN_A_ROW: Final = 5
WINDOW_SECONDS: Final = 30.0
WINDOW_CALLS: Final = 20

_SLICE_SECONDS: Final = 3.0
_SLICES: Final = int(WINDOW_SECONDS / _SLICE_SECONDS)


@dataclass(frozen=True, slots=True)
class Seen:
    """What another node has seen of an agent's calls; times in seconds of this process's clock.

    Attributes:
        answered: When the last call ended that did not fail; minus infinity: none.
        failed: When the last calls since then failed, at most five.
        slices: Until when they count, and how many: calls and failures.
    """

    answered: float = -inf
    failed: tuple[float, ...] = ()
    slices: tuple[tuple[float, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Totals:
    """What all nodes that have told of it have seen: calls and failures within 30 s, failures in a row."""

    calls: int
    failures: int
    row: int


class Traffic:
    """Counts calls and failures of the last 30 s, in slices of 3 s, and failures in a row.

    Attributes:
        calls: Of this node.
        failures: Of this node.
        row: Failures of this node since its last call that did not fail.
        last: When the last call ended.
    """

    __slots__ = (
        "_answered",
        "_answered_elsewhere",
        "_calls",
        "_failed",
        "_failures",
        "_number",
        "_others",
        "_slices",
        "calls",
        "failures",
        "last",
        "row",
    )

    def __init__(self) -> None:
        self.calls = 0
        self.failures = 0
        self.row = 0
        self.last = -inf
        self._answered = -inf  # the last call before the present row of failures
        self._failed: deque[float] = deque(maxlen=FAILURES_IN_A_ROW)
        self._number = 0
        self._calls = 0
        self._failures = 0
        self._slices: deque[tuple[int, int, int]] = deque()
        self._others: dict[str, Seen] = {}
        self._answered_elsewhere = -inf

    def count(self, now: float, *, failed: bool) -> None:
        """Count a call that ended at `now` (seconds)."""
        number = int(now / _SLICE_SECONDS)
        if number != self._number:
            self._turn(number)
        self._calls += 1
        self.calls += 1
        if failed:
            self._count_failure(now)
        else:
            self.row = 0
        self.last = now

    def _count_failure(self, now: float) -> None:
        if not self.row:
            self._answered = self.last
            self._failed.clear()
        self._failed.append(now)
        self._failures += 1
        self.failures += 1
        self.row += 1

    @property
    def failing(self) -> bool:
        """Whether this is enough to say that the agent fails."""
        if self._others:
            return _enough(self.totals())
        many = self.calls >= WINDOW_CALLS and self.failures * 2 > self.calls
        return self.row >= FAILURES_IN_A_ROW or many

    def look(self, now: float) -> None:
        """Forget what is too old, for whoever reads the numbers."""
        self._turn(int(now / _SLICE_SECONDS))
        if self._others:
            since = self._last_answer()
            recent = {node: _recent(seen, now, since) for node, seen in self._others.items()}
            self._others = {node: seen for node, seen in recent.items() if seen.slices or seen.failed}

    def reset(self) -> None:
        """Begin anew: what led to a verdict must not lead to the next one."""
        self._slices.clear()
        self._others.clear()
        self._failed.clear()
        self.calls = self.failures = self.row = self._calls = self._failures = 0

    # -- together with others

    def seen(self, now: float) -> Seen:
        """Give what this node has seen, for the others."""
        self._turn(int(now / _SLICE_SECONDS))
        slices = tuple(
            ((number + _SLICES) * _SLICE_SECONDS, calls, failures) for number, calls, failures in self._slices
        )
        return Seen(self._last_answer(), tuple(self._failed) if self.row else (), slices)

    def hear(self, node: str, seen: Seen) -> bool:
        """Take what another node has seen, in place of what it told before; True: a call failed since."""
        before = self._others.get(node, Seen())
        self._others[node] = seen
        self._answered_elsewhere = max(self._answered_elsewhere, seen.answered)
        return seen.failed[-1:] > before.failed[-1:]

    def totals(self) -> Totals:
        """Add up; `look` first."""
        others, since = self._others.values(), self._last_answer()
        row = sum(at > since for seen in others for at in seen.failed)
        if self.row:
            row += self.row if since == self._answered else sum(at > since for at in self._failed)
        return Totals(
            self.calls + sum(calls for seen in others for _, calls, _ in seen.slices),
            self.failures + sum(failures for seen in others for _, _, failures in seen.slices),
            row,
        )

    def _last_answer(self) -> float:
        return max(self._answered if self.row else self.last, self._answered_elsewhere)

    def _turn(self, number: int) -> None:
        slices = self._slices
        if self._calls:
            if slices and slices[-1][0] == self._number:
                _, calls, failures = slices.pop()
                self._calls, self._failures = self._calls + calls, self._failures + failures
            slices.append((self._number, self._calls, self._failures))
        self._number, self._calls, self._failures = number, 0, 0
        while slices and slices[0][0] <= number - _SLICES:
            _, calls, failures = slices.popleft()
            self.calls -= calls
            self.failures -= failures


def _enough(totals: Totals) -> bool:
    many = totals.calls >= WINDOW_CALLS and totals.failures * 2 > totals.calls
    return totals.row >= FAILURES_IN_A_ROW or many


def _recent(seen: Seen, now: float, since: float) -> Seen:
    """Leave out what has no weight any more."""
    return Seen(
        seen.answered,
        tuple(at for at in seen.failed if at > since),
        tuple(one for one in seen.slices if one[0] > now),
    )
