"""The routing states as a table: health contract 7, with the invariants under any history of evidence."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthcheck.model import Check, Finding, Result, Status, Target, fault
from healthcheck.state import (
    FALL,
    RISE,
    Evidence,
    Routing,
    State,
    judge,
    may_try,
    seconds_to_trial,
    step,
)

GOOD, IMPAIRED, DOWN, TRAFFIC = Evidence.GOOD, Evidence.IMPAIRED, Evidence.DOWN, Evidence.TRAFFIC_FAILING
LETTERS = {
    "g": GOOD,
    "i": IMPAIRED,
    "d": DOWN,
    "t": TRAFFIC,
    "T": Evidence.TRIAL_STARTED,
    "p": Evidence.TRIAL_PASSED,
    "f": Evidence.TRIAL_FAILED,
    "u": Evidence.TRIAL_UNCLEAR,
    "n": Evidence.TRIAL_UNUSED,
}
U, I, D, O = Routing.UNCHECKED, Routing.IN_SERVICE, Routing.DEGRADED, Routing.OUT_OF_SERVICE  # noqa: E741


def walk(letters: str, *, hold: bool = False, seconds: float = 1.0) -> list[State]:
    states = [State()]
    for number, letter in enumerate(letters):
        states.append(step(states[-1], LETTERS[letter], number * seconds, hold=hold))
    return states


def routes(letters: str, **more: object) -> list[Routing]:
    return [state.routing for state in walk(letters, **more)[1:]]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("g", [I]),  # the first run that passes admits at once
        ("i", [D]),
        ("ddg", [U, U, I]),  # unchecked agents are routed until three runs say otherwise
        ("ddd", [U, U, O]),
        ("dddg", [U, U, O, I]),  # it was never up: the first such run admits
        ("gdddg", [I, I, I, O, O]),
        ("gdddgg", [I, I, I, O, O, I]),
        ("gdddgi", [I, I, I, O, O, D]),
        ("gdddgdg", [I, I, I, O, O, O, O]),
        ("gdddii", [I, I, I, O, O, D]),
        ("gddgddgddg", [I] * 10),  # pitfall 118: scattered failures never add up
        ("giiiiiiii", [I] + [D] * 8),  # impaired never evicts
        ("gig", [I, D, D]),
        ("gigg", [I, D, D, I]),
        ("gt", [I, O]),
        ("t", [O]),
        ("gtTp", [I, O, O, I]),
        ("itTp", [D, O, O, D]),  # as the last run that reached it found it
        ("gtTf", [I, O, O, O]),
        ("gtTu", [I, O, O, O]),
        ("gtTn", [I, O, O, O]),
        ("gdddTpdd", [I, I, I, O, O, I, I, I]),  # after a trial it takes three runs again
        ("gdddTpddd", [I, I, I, O, O, I, I, I, O]),
        ("gp", [I, I]),  # no trial outside of out_of_service
    ],
)
def test_the_table(letters: str, expected: list[Routing]) -> None:
    assert routes(letters) == expected


def test_alternating_results_do_not_flap() -> None:
    """Pitfall 120: bounded state changes under S F S F ..., in each of its spellings."""
    for pair in ("gd", "id", "gi"):
        path = routes(pair * 50)
        assert sum(a is not b for a, b in pairwise(path)) <= 2, pair


def test_while_holding_nothing_is_taken_out_and_everything_is_counted() -> None:
    assert routes("gdddddt", hold=True) == [I] * 7
    assert walk("gddddd", hold=True)[-1].downs == 5
    assert step(walk("gddd", hold=True)[-1], DOWN, 9.0).routing is O
    assert routes("gigg", hold=True) == [I, D, D, I]  # the rest goes on


evidence = st.sampled_from(list(Evidence))
history = st.lists(st.tuples(evidence, st.floats(0, 1000), st.booleans()), max_size=80)
trial_seconds = st.sampled_from([0.1, 1.0, 10.0, 400.0])


def path(steps: list[tuple[Evidence, float, bool]], trial: float) -> list[tuple[State, Evidence, float]]:
    state, now, found = State(), 0.0, []
    for one, pause, hold in steps:
        now += pause
        state = step(state, one, now, trial_seconds=trial, hold=hold)
        found.append((state, one, now))
    return found


@given(history, trial_seconds)
def test_never_out_without_three_runs_or_failing_calls(
    steps: list[tuple[Evidence, float, bool]], trial: float
) -> None:
    """And never by a protocol, card, credential or unknown finding, which are all `impaired`."""
    before = State()
    downs = 0
    for (state, one, _), (_, _, hold) in zip(path(steps, trial), steps, strict=True):
        downs = downs + 1 if one is DOWN else 0 if one in (GOOD, IMPAIRED) else downs
        if state.routing is O and before.routing is not O:
            assert not hold
            assert one is TRAFFIC or (one is DOWN and downs >= FALL)
        if state.routing is not O and before.routing is O:
            downs = 0
        before = state


@given(history, trial_seconds)
def test_there_is_always_a_way_back(steps: list[tuple[Evidence, float, bool]], trial: float) -> None:
    """From anywhere: two runs, or one trial call, whose time comes."""
    found = path(steps, trial)
    state, _, now = found[-1] if found else (State(), GOOD, 0.0)
    by_runs = state
    for _ in range(RISE):
        by_runs = step(by_runs, IMPAIRED, now, trial_seconds=trial, hold=True)
    assert by_runs.routing is not O
    if state.routing is O:
        if state.trying:
            state = step(state, Evidence.TRIAL_FAILED, now, trial_seconds=trial)
        later = now + seconds_to_trial(state, now)
        assert later - now <= max(300.0, trial) + 1e-6
        assert may_try(state, later)
        tried = step(state, Evidence.TRIAL_STARTED, later, trial_seconds=trial)
        assert not may_try(tried, later + 10_000)
        back = step(tried, Evidence.TRIAL_PASSED, later, trial_seconds=trial)
        assert back.routing in (I, D)
        assert not back.trying


@given(history, trial_seconds)
def test_impaired_findings_never_evict(steps: list[tuple[Evidence, float, bool]], trial: float) -> None:
    harmless = [one for one in steps if one[0] not in (DOWN, TRAFFIC)]
    assert all(state.routing is not O for state, _, _ in path(harmless, trial))


@given(history, trial_seconds)
def test_counts_make_sense(steps: list[tuple[Evidence, float, bool]], trial: float) -> None:
    for state, _, now in path(steps, trial):
        assert not (state.downs and state.ups)
        assert state.goods <= state.ups or state.routing is not O
        assert state.routing is not U or not state.admitted
        if state.routing is O:
            assert 0 < state.trial_wait <= max(300.0, trial)
            assert 0 <= seconds_to_trial(state, now) <= max(300.0, trial) + 1e-6


# -- what a run means


def result(status: Status, *findings: Finding) -> Result:
    checks = dict(zip((Check.REACHABILITY, Check.AUTHENTICATION, Check.PROTOCOL), findings, strict=False))
    return Result(Target(type="a2a", endpoint="http://h/"), status, checks)


@pytest.mark.parametrize(
    ("status", "findings", "expected"),
    [
        (Status.HEALTHY, (), GOOD),
        (Status.UNREACHABLE, (fault("connect_refused"),), DOWN),
        (Status.UNHEALTHY, (fault("a2a_http", "http_502"),), DOWN),
        (Status.UNHEALTHY, (fault("a2a_http", "http_503"),), DOWN),
        (Status.UNHEALTHY, (fault("a2a_http", "http_504"),), DOWN),
        (Status.UNHEALTHY, (fault("a2a_http", "http_5xx"),), IMPAIRED),
        (Status.UNHEALTHY, (fault("a2a_http", "http_429"),), IMPAIRED),
        (Status.UNHEALTHY, (fault("a2a_card"),), IMPAIRED),
        (Status.UNHEALTHY, (fault("a2a_version"),), IMPAIRED),
        (Status.UNHEALTHY, (fault("a2a_protocol"),), IMPAIRED),
        (Status.MISCONFIGURED, (fault("a2a_auth"),), IMPAIRED),
        (Status.MISCONFIGURED, (fault("address_not_allowed"),), IMPAIRED),
        (Status.UNKNOWN, (fault("deadline_partial"),), IMPAIRED),
        (Status.UNKNOWN, (fault("not_probed"),), IMPAIRED),
        (Status.DEGRADED, (fault("card_drift"),), IMPAIRED),
    ],
)
def test_what_a_run_means(status: Status, findings: tuple[Finding, ...], expected: Evidence) -> None:
    assert judge(result(status, *findings)) is expected


def test_evict_on_unhealthy() -> None:
    """`health.evict_on` adds UNHEALTHY, and nothing else."""
    assert judge(result(Status.UNHEALTHY, fault("a2a_card")), evict_unhealthy=True) is DOWN
    for status in (Status.MISCONFIGURED, Status.UNKNOWN, Status.DEGRADED):
        assert judge(result(status), evict_unhealthy=True) is IMPAIRED
