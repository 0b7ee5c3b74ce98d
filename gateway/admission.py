"""Admission to one agent on the proxied path: passive evidence, and who may pass (health contract 7).

A call reads one attribute, `open`, and at its end costs a few integer operations. What an outcome says of the
agent is decided by `blames_agent`, a table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import ceil
from typing import Final

from healthcheck.state import Evidence, Routing, State, may_try, seconds_to_trial, step

FAILURES_IN_A_ROW: Final = 5
WINDOW_SECONDS: Final = 30.0
WINDOW_CALLS: Final = 20

#: A caller may choose its time; only an agent that needs longer than this is to blame for being slow.
FAIR_TIMEOUT_SECONDS: Final = 5.0

_SLICE_SECONDS: Final = 3.0
_SLICES: Final = int(WINDOW_SECONDS / _SLICE_SECONDS)

#: Outcomes (`Fault.reason`) that are the agent's failure whatever else is known.
_BLAMED: Final = frozenset({"AGENT_UNREACHABLE", "PROTOCOL_ERROR", "CONNECTION_LOST", "STREAM_BROKEN"})
#: Outcomes that only an agent that works can bring about.
_ANSWERED: Final = frozenset(
    {"", "AGENT_HTTP_ERROR", "INVALID_RESPONSE", "RESPONSE_TOO_LARGE", "STREAM_INCOMPLETE", "STREAM_IDLE"}
)
_DOWN: Final = frozenset({502, 503, 504})


def blames_agent(reason: str, *, http_status: int = 0, timeout: float = 0.0) -> bool | None:
    """Say what a forwarded call's outcome means: True: the agent failed; False: it works; None: nothing.

    Args:
        reason: The fault's reason; empty for an answer that was passed on.
        http_status: Status of the agent's answer, 0 if there was none.
        timeout: T in seconds.
    """
    if reason in _ANSWERED:
        return False
    if reason in _BLAMED:
        return True
    if reason == "AGENT_UNAVAILABLE":
        return http_status in _DOWN
    if reason == "AGENT_TIMEOUT" and timeout >= FAIR_TIMEOUT_SECONDS:
        return True
    return None  # the caller's doing, or our own


class Traffic:
    """Counts calls and failures of the last 30 s, in slices of 3 s, and failures in a row."""

    __slots__ = ("_calls", "_failures", "_number", "_slices", "calls", "failures", "row")

    def __init__(self) -> None:
        self.calls = 0
        self.failures = 0
        self.row = 0
        self._number = 0
        self._calls = 0
        self._failures = 0
        self._slices: deque[tuple[int, int, int]] = deque()

    def count(self, now: float, *, failed: bool) -> None:
        """Count a call that ended at `now` (seconds)."""
        number = int(now / _SLICE_SECONDS)
        if number != self._number:
            self._turn(number)
        self._calls += 1
        self.calls += 1
        if failed:
            self._failures += 1
            self.failures += 1
            self.row += 1
        else:
            self.row = 0

    @property
    def failing(self) -> bool:
        """Whether this is enough to say that the agent fails."""
        many = self.calls >= WINDOW_CALLS and self.failures * 2 > self.calls
        return self.row >= FAILURES_IN_A_ROW or many

    def look(self, now: float) -> None:
        """Forget what is too old, for whoever reads the numbers."""
        self._turn(int(now / _SLICE_SECONDS))

    def reset(self) -> None:
        """Begin anew: what led to a verdict must not lead to the next one."""
        self._slices.clear()
        self.calls = self.failures = self.row = self._calls = self._failures = 0

    def _turn(self, number: int) -> None:
        if self._calls:
            self._slices.append((self._number, self._calls, self._failures))
        self._number, self._calls, self._failures = number, 0, 0
        slices = self._slices
        while slices and slices[0][0] <= number - _SLICES:
            _, calls, failures = slices.popleft()
            self.calls -= calls
            self.failures -= failures


class Admission:
    """Routing state of one agent.

    Attributes:
        open: True: calls go to the agent, and need ask for nothing more.
        state: What is known.
        traffic: The passive evidence.
        last_call: When the last forwarded call ended, or the agent was first seen (seconds of the loop's clock).
    """

    __slots__ = (
        "_changed",
        "_enforce",
        "_hold",
        "_trial",
        "_trial_seconds",
        "last_call",
        "open",
        "state",
        "traffic",
    )

    def __init__(
        self,
        now: float,
        *,
        enforce: bool = True,
        trial_seconds: float = 10.0,
        hold: Callable[[], bool] = lambda: False,
        changed: Callable[[State], None] = lambda before: None,
    ) -> None:
        """Open it.

        Args:
            now: The time.
            enforce: False: nobody is ever refused (`health.routing: observe`).
            trial_seconds: The first back-off.
            hold: Asked when the agent is about to be taken out; True forbids it.
            changed: Told the state before, whenever `state.routing` has become another.
        """
        self.open = True
        self.state = State()
        self.traffic = Traffic()
        self.last_call = now
        self._trial = 0
        self._enforce = enforce
        self._trial_seconds = trial_seconds
        self._hold = hold
        self._changed = changed

    def change(self, *, enforce: bool, trial_seconds: float) -> None:
        """Go on by these rules; see `__init__`."""
        self._enforce, self._trial_seconds = enforce, trial_seconds
        self.open = not enforce or self.state.routing is not Routing.OUT_OF_SERVICE

    def enter(self, now: float) -> int:
        """Ask where it is not open: the number of a trial call, or 0: refuse the call.

        Whoever gets a number must give it to `record` or `unused`, once.
        """
        if not may_try(self.state, now):
            return 0
        self.apply(Evidence.TRIAL_STARTED, now)
        self._trial += 1
        return self._trial

    def retry_after(self, now: float) -> int:
        """Give whole seconds until the next trial call, at least 1."""
        return max(1, ceil(seconds_to_trial(self.state, now)))

    def unused(self, trial: int, now: float) -> None:
        """The trial call was not forwarded after all: the next call is the trial."""
        if trial == self._trial:
            self.apply(Evidence.TRIAL_UNUSED, now)

    def record(self, blame: bool | None, now: float, trial: int = 0) -> None:
        """Take the outcome of a forwarded call.

        Args:
            blame: See `blames_agent`.
            now: When it ended.
            trial: What `enter` gave, 0 for an ordinary call.
        """
        self.last_call = now
        if trial:
            if trial == self._trial:
                self.apply(_TRIALS[blame], now)
        elif blame is not None:
            self.traffic.count(now, failed=blame)
            if not self.open or self.state.routing is Routing.OUT_OF_SERVICE:
                self._observed(blame, now)
            elif blame and self.traffic.failing:
                self.apply(Evidence.TRAFFIC_FAILING, now)

    def apply(self, evidence: Evidence, now: float) -> None:
        """Take any evidence."""
        before = self.state
        after = step(before, evidence, now, trial_seconds=self._trial_seconds)
        if after.routing is Routing.OUT_OF_SERVICE and before.routing is not after.routing and self._hold():
            after = step(before, evidence, now, trial_seconds=self._trial_seconds, hold=True)
        self.state = after
        if after.routing is not before.routing:
            if Routing.OUT_OF_SERVICE in (before.routing, after.routing):
                self.open = not self._enforce or after.routing is not Routing.OUT_OF_SERVICE
                self.traffic.reset()
                self._trial += 1  # a trial call of the time before has nothing more to say
            self._changed(before)

    def _observed(self, blame: bool, now: float) -> None:
        """Where nobody is refused, every call whose time has come is a trial."""
        if not self._enforce and may_try(self.state, now):
            self.apply(_TRIALS[blame], now)


_TRIALS: Final = {
    True: Evidence.TRIAL_FAILED,
    False: Evidence.TRIAL_PASSED,
    None: Evidence.TRIAL_UNCLEAR,
}


class Unwatched(Admission):
    """Stands where the health engine is off: open, and takes no notes."""

    __slots__ = ()

    def record(self, blame: bool | None, now: float, trial: int = 0) -> None:
        """Nothing to note."""


#: For agents that nobody watches.
UNWATCHED: Final = Unwatched(0.0)
