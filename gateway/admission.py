"""Admission to one agent on the proxied path: passive evidence, and who may pass (health contract 7).

A call reads one attribute, `open`, and at its end costs a few integer operations. What an outcome says of the
agent is decided by `blames_agent`, a table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import Final, TypeAlias

from gateway.passive import Seen, Traffic
from healthcheck.state import Evidence, Routing, State, may_try, seconds_to_trial, step

#: A caller may choose its time; only an agent that needs longer than this is to blame for being slow.
FAIR_TIMEOUT_SECONDS: Final = 5.0

#: Outcomes (`Fault.reason`) that are the agent's failure whatever else is known.
_BLAMED: Final = frozenset({"AGENT_UNREACHABLE", "PROTOCOL_ERROR", "CONNECTION_LOST", "STREAM_BROKEN"})
#: Outcomes that only an agent that works can bring about.
_ANSWERED: Final = frozenset(
    {"", "AGENT_HTTP_ERROR", "INVALID_RESPONSE", "RESPONSE_TOO_LARGE", "STREAM_INCOMPLETE", "STREAM_IDLE"}
)
_DOWN: Final = frozenset({502, 503, 504})
_OUT: Final = Routing.OUT_OF_SERVICE

#: Asks the other nodes whether a call may be the trial; the answer, and when it came, are given later, once.
Ask: TypeAlias = Callable[[Callable[[bool, float], None]], None]


class Asking(Exception):
    """Other nodes are asked whether a call may be the trial."""


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


class Admission:
    """Routing state of one agent.

    Attributes:
        open: True: calls go to the agent, and need ask for nothing more.
        state: What is known.
        traffic: The passive evidence.
    """

    __slots__ = (
        "_ask",
        "_changed",
        "_enforce",
        "_failed",
        "_hold",
        "_touched",
        "_trial",
        "_trial_seconds",
        "_tried",
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
        tried: Callable[[], None] = lambda: None,
        failed: Callable[[], None] = lambda: None,
        ask: Ask | None = None,
    ) -> None:
        """Open it.

        Args:
            now: The time.
            enforce: False: nobody is ever refused (`health.routing: observe`).
            trial_seconds: The first back-off.
            hold: Asked when the agent is about to be taken out; True forbids it.
            changed: Told the state before, whenever `state.routing` has become another.
            tried: Told when a trial call begins, or ends without changing that.
            failed: Told of every call that the agent is to blame for.
            ask: Asks the other nodes for a trial call; None: there are none.
        """
        self.open = True
        self.state = State()
        self.traffic = Traffic()
        self._touched = now
        self._trial = 0
        self._enforce = enforce
        self._trial_seconds = trial_seconds
        self._hold = hold
        self._changed = changed
        self._tried = tried
        self._failed = failed
        self._ask = ask

    @property
    def last_call(self) -> float:
        """When the last forwarded call ended, or the agent was first seen (seconds of the loop's clock)."""
        return max(self._touched, self.traffic.last)

    def change(self, *, enforce: bool, trial_seconds: float) -> None:
        """Go on by these rules; see `__init__`."""
        self._enforce, self._trial_seconds = enforce, trial_seconds
        self.open = not enforce or self.state.routing is not _OUT

    def enter(self, now: float, told: Callable[[int], None] | None = None) -> int:
        """Ask where it is not open: the number of a trial call, or 0: refuse the call.

        Whoever gets a number must give it to `record` or `unused`, once.

        Args:
            now: The time.
            told: Gets the number instead, -1: refuse the call, where other nodes must be asked.

        Raises:
            Asking: `told` is called later.
        """
        if not may_try(self.state, now):
            return 0
        if self._ask is not None and told is not None:
            self._ask(lambda may, now: told((self.enter(now) or -1) if may else -1))
            raise Asking
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
        if trial:
            self._touched = now
            if trial == self._trial:
                self.apply(_TRIALS[blame], now)
        elif blame is None:
            self._touched = now
        else:
            self.traffic.count(now, failed=blame)
            if not self.open or self.state.routing is _OUT:
                self._observed(blame, now)
            elif blame:
                self._failed()
                self._doubt(now)

    def hear(self, node: str, seen: Seen, now: float) -> None:
        """Take what another node has seen of the agent's calls."""
        failed = self.traffic.hear(node, seen)
        if failed and self.state.routing is not _OUT:
            self._doubt(now)

    def adopt(self, state: State, *, turned: bool) -> None:
        """Take over what another node has come to; `turned`: it went out of service, or came back, since."""
        self.state = replace(state, trying=self.state.trying and not turned and state.routing is _OUT)
        self.open = not self._enforce or state.routing is not _OUT
        if turned:
            self._turn()

    def apply(self, evidence: Evidence, now: float) -> None:
        """Take any evidence."""
        before = self.state
        after = step(before, evidence, now, trial_seconds=self._trial_seconds)
        if after.routing is _OUT and before.routing is not _OUT and self._hold():
            after = step(before, evidence, now, trial_seconds=self._trial_seconds, hold=True)
        self.state = after
        if after.routing is not before.routing:
            if _OUT in (before.routing, after.routing):
                self.open = not self._enforce or after.routing is not _OUT
                self._turn()
            self._changed(before)
        elif evidence in _OF_TRIALS:
            self._tried()

    def _turn(self) -> None:
        """What led to a verdict must not lead to the next; a trial call of the time before says nothing more."""
        self.traffic.reset()
        self._trial += 1

    def _doubt(self, now: float) -> None:
        """A call has failed: is it enough?"""
        self.traffic.look(now)
        if self.traffic.failing:
            self.apply(Evidence.TRAFFIC_FAILING, now)

    def _observed(self, blame: bool, now: float) -> None:
        """Where nobody is refused, every call whose time has come is a trial."""
        if not self._enforce and may_try(self.state, now):
            self.apply(_TRIALS[blame], now)


_TRIALS: Final = {
    True: Evidence.TRIAL_FAILED,
    False: Evidence.TRIAL_PASSED,
    None: Evidence.TRIAL_UNCLEAR,
}
_OF_TRIALS: Final = frozenset({*_TRIALS.values(), Evidence.TRIAL_STARTED, Evidence.TRIAL_UNUSED})


class Unwatched(Admission):
    """Stands where the health engine is off: open, and takes no notes."""

    __slots__ = ()

    def record(self, blame: bool | None, now: float, trial: int = 0) -> None:
        """Nothing to note."""


#: For agents that nobody watches.
UNWATCHED: Final = Unwatched(0.0)
