"""pure: which agents get traffic: (state, evidence) → state, as a table (health contract 7).

The raw result of a run is never damped and not kept here. What is kept is what routing needs: how many runs in
a row found the agent down, how many did not, and when the next trial call may go through. Times are seconds of
any one clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from healthcheck.model import Result, Status

FALL: Final = 3  #: runs in a row that find an agent down take it out of service
RISE: Final = 2  #: runs in a row that do not bring it back
LONGEST_TRIAL_SECONDS: Final = 300.0

#: Reasons of `a2a_http`: what a proxy says when there is no agent behind it.
DOWN_REASONS: Final = frozenset({"http_502", "http_503", "http_504"})


class Routing(StrEnum):
    """Whether calls go to an agent: all but `out_of_service` are routed."""

    IN_SERVICE = "in_service"
    DEGRADED = "degraded"
    OUT_OF_SERVICE = "out_of_service"
    UNCHECKED = "unchecked"


class Evidence(StrEnum):
    """What was learned."""

    GOOD = "good"  #: a run that found nothing
    IMPAIRED = "impaired"  #: a run that found anything but `DOWN`
    DOWN = "down"  #: a run that found it unreachable or answering 502-504
    TRAFFIC_FAILING = "traffic_failing"  #: the calls that callers make fail
    TRIAL_STARTED = "trial_started"
    TRIAL_PASSED = "trial_passed"
    TRIAL_FAILED = "trial_failed"
    TRIAL_UNCLEAR = "trial_unclear"  #: it ended in a way that says nothing about the agent
    TRIAL_UNUSED = "trial_unused"  #: it never went out


@dataclass(frozen=True, slots=True)
class State:
    """What routing knows of an agent.

    Attributes:
        routing: The effective state.
        downs: Runs in a row, up to the last one, that found it down; 0 again whenever it comes back.
        ups: Runs in a row, up to the last one, that did not.
        goods: Runs in a row, up to the last one, that found nothing at all.
        impaired: The last run that did not find it down had something to say.
        admitted: It has been in service or degraded at least once.
        trial_at: When the next trial call may go through, while it is out of service.
        trial_wait: The present back-off in seconds.
        trying: A trial call is under way.
    """

    routing: Routing = Routing.UNCHECKED
    downs: int = 0
    ups: int = 0
    goods: int = 0
    impaired: bool = False
    admitted: bool = False
    trial_at: float = 0.0
    trial_wait: float = 0.0
    trying: bool = False


def judge(result: Result, *, evict_unhealthy: bool = False) -> Evidence:
    """Say what a run means for routing; with `evict_unhealthy`, UNHEALTHY counts as down (`health.evict_on`)."""
    if result.status is Status.UNREACHABLE or (evict_unhealthy and result.status is Status.UNHEALTHY):
        return Evidence.DOWN
    found = result.checks.values()
    if any(finding.code == "a2a_http" and finding.reason in DOWN_REASONS for finding in found):
        return Evidence.DOWN
    return Evidence.GOOD if result.status is Status.HEALTHY else Evidence.IMPAIRED


def step(
    state: State, evidence: Evidence, now: float, *, trial_seconds: float = 10.0, hold: bool = False
) -> State:
    """Give the next state.

    Args:
        state: What was known.
        evidence: What was learned.
        now: When.
        trial_seconds: The first back-off; it doubles up to `LONGEST_TRIAL_SECONDS`.
        hold: Nothing is taken out (the checker suspects itself); everything is still counted.
    """
    counted = _COUNTS[evidence](state) if evidence in _COUNTS else state
    move = _MOVES.get((state.routing, evidence))
    if move is None or (hold and move in (_fall, _take_out)):
        return counted
    return move(counted, now, trial_seconds)


def _count_good(state: State) -> State:
    return replace(state, downs=0, ups=state.ups + 1, goods=state.goods + 1, impaired=False)


def _count_impaired(state: State) -> State:
    return replace(state, downs=0, ups=state.ups + 1, goods=0, impaired=True)


def _count_down(state: State) -> State:
    return replace(state, downs=state.downs + 1, ups=0, goods=0)


_COUNTS: Final[Mapping[Evidence, Callable[[State], State]]] = {
    Evidence.GOOD: _count_good,
    Evidence.IMPAIRED: _count_impaired,
    Evidence.DOWN: _count_down,
}


def _admit(state: State, now: float, trial_seconds: float) -> State:
    """Route to it, as what the last run found it to be."""
    routing = Routing.DEGRADED if state.impaired else Routing.IN_SERVICE
    return replace(state, routing=routing, downs=0, admitted=True, trying=False, trial_wait=0.0, trial_at=0.0)


def _degrade(state: State, now: float, trial_seconds: float) -> State:
    return replace(state, routing=Routing.DEGRADED)


def _recover(state: State, now: float, trial_seconds: float) -> State:
    """Two good runs in a row: one would let results that alternate flap."""
    return _admit(state, now, trial_seconds) if state.goods >= RISE else state


def _fall(state: State, now: float, trial_seconds: float) -> State:
    return _take_out(state, now, trial_seconds) if state.downs >= FALL else state


def _take_out(state: State, now: float, trial_seconds: float) -> State:
    return replace(
        state,
        routing=Routing.OUT_OF_SERVICE,
        ups=0,
        goods=0,
        trying=False,
        trial_wait=trial_seconds,
        trial_at=now + trial_seconds,
    )


def _rise(state: State, now: float, trial_seconds: float) -> State:
    """An agent that was never up is admitted by the first run that finds it up."""
    enough = state.ups >= RISE or not state.admitted
    return _admit(state, now, trial_seconds) if enough else state


def _try(state: State, now: float, trial_seconds: float) -> State:
    return replace(state, trying=True, trial_at=now + state.trial_wait)


def _back_off(state: State, now: float, trial_seconds: float) -> State:
    wait = min(state.trial_wait * 2, max(LONGEST_TRIAL_SECONDS, trial_seconds))
    return replace(state, trying=False, trial_wait=wait, trial_at=now + wait)


def _wait_again(state: State, now: float, trial_seconds: float) -> State:
    return replace(state, trying=False, trial_at=now + state.trial_wait)


def _give_back(state: State, now: float, trial_seconds: float) -> State:
    return replace(state, trying=False, trial_at=now)


Move = Callable[[State, float, float], State]
_U, _I, _D, _O = Routing.UNCHECKED, Routing.IN_SERVICE, Routing.DEGRADED, Routing.OUT_OF_SERVICE

#: What is not in the table changes nothing but the counts.
_MOVES: Final[Mapping[tuple[Routing, Evidence], Move]] = {
    (_U, Evidence.GOOD): _admit,
    (_U, Evidence.IMPAIRED): _admit,
    (_U, Evidence.DOWN): _fall,
    (_U, Evidence.TRAFFIC_FAILING): _take_out,
    (_I, Evidence.IMPAIRED): _degrade,
    (_I, Evidence.DOWN): _fall,
    (_I, Evidence.TRAFFIC_FAILING): _take_out,
    (_D, Evidence.GOOD): _recover,
    (_D, Evidence.DOWN): _fall,
    (_D, Evidence.TRAFFIC_FAILING): _take_out,
    (_O, Evidence.GOOD): _rise,
    (_O, Evidence.IMPAIRED): _rise,
    (_O, Evidence.TRIAL_STARTED): _try,
    (_O, Evidence.TRIAL_PASSED): _admit,
    (_O, Evidence.TRIAL_FAILED): _back_off,
    (_O, Evidence.TRIAL_UNCLEAR): _wait_again,
    (_O, Evidence.TRIAL_UNUSED): _give_back,
}


def may_try(state: State, now: float) -> bool:
    """Tell whether a trial call may go through: one at a time, and not before its time."""
    return state.routing is Routing.OUT_OF_SERVICE and not state.trying and now >= state.trial_at


def seconds_to_trial(state: State, now: float) -> float:
    """Give the time until the next trial call, for `Retry-After`; the whole back-off while one is under way."""
    left = state.trial_at - now
    return left if left > 0 else state.trial_wait
