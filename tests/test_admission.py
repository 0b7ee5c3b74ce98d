"""Admission to one agent: what an outcome says, how much of it is enough, who may pass (health contract 7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission import UNWATCHED, Admission, blames_agent
from gateway.faults import FAULTS
from gateway.passive import WINDOW_SECONDS, Traffic
from healthcheck.state import Evidence, Routing, State

#: Every fault that a forwarded call can end in, beside those of the agent: they must say nothing against it.
OURS_OR_THE_CALLERS = {
    "GATEWAY_SHUTDOWN",
    "GATEWAY_OVERLOADED",
    "ADDRESS_NOT_ALLOWED",
    "CREDENTIAL_MISSING",
    "SERVER_BUSY",
    "INTERNAL",
}


@pytest.mark.parametrize(
    ("reason", "status", "timeout", "blame"),
    [
        ("", 200, 30, False),
        ("AGENT_HTTP_ERROR", 500, 30, False),
        ("AGENT_HTTP_ERROR", 404, 30, False),
        ("INVALID_RESPONSE", 200, 30, False),
        ("RESPONSE_TOO_LARGE", 200, 30, False),
        ("AGENT_UNAVAILABLE", 429, 30, False),
        ("AGENT_UNAVAILABLE", 502, 30, True),
        ("AGENT_UNAVAILABLE", 503, 30, True),
        ("AGENT_UNAVAILABLE", 504, 30, True),
        ("AGENT_UNREACHABLE", 0, 30, True),
        ("CONNECTION_LOST", 0, 30, True),
        ("PROTOCOL_ERROR", 0, 30, True),
        ("STREAM_BROKEN", 200, 30, True),
        ("STREAM_INCOMPLETE", 200, 30, False),
        ("AGENT_TIMEOUT", 0, 4.999, None),
        ("AGENT_TIMEOUT", 0, 5, True),
        *((reason, 0, 30, None) for reason in sorted(OURS_OR_THE_CALLERS)),
    ],
)
def test_who_is_to_blame(reason: str, status: int, timeout: float, blame: bool | None) -> None:
    """Health contract 7: only failures that the agent is to blame for count against it."""
    assert blames_agent(reason, http_status=status, timeout=timeout) is blame


def test_no_fault_blames_the_agent_by_accident() -> None:
    """A fault that is added to the table says nothing of the agent until somebody decides that it does."""
    blaming = {reason for reason in FAULTS if blames_agent(reason, http_status=503, timeout=30)}
    assert blaming <= {
        "AGENT_UNREACHABLE",
        "PROTOCOL_ERROR",
        "CONNECTION_LOST",
        "AGENT_TIMEOUT",
        "AGENT_UNAVAILABLE",
        "STREAM_BROKEN",
    }


# -- how much is enough


def test_five_in_a_row() -> None:
    """Pitfall 118: scattered failures do not add up."""
    traffic = Traffic()
    for _ in range(10):
        for failed in (*[True] * 4, *[False] * 8):
            traffic.count(0.0, failed=failed)
            assert not traffic.failing
    for number in range(5):
        assert not traffic.failing, number
        traffic.count(0.0, failed=True)
    assert traffic.failing


def test_more_than_half_of_twenty() -> None:
    traffic = Traffic()
    for failed in [True, False] * 9 + [True]:
        traffic.count(1.0, failed=failed)
    assert (traffic.calls, traffic.failures) == (19, 10)
    assert not traffic.failing
    traffic.count(1.0, failed=False)
    assert not traffic.failing  # exactly half
    traffic.count(1.0, failed=True)
    assert traffic.failing


@given(st.lists(st.tuples(st.floats(0, 8), st.booleans()), max_size=60))
def test_the_window_forgets(steps: list[tuple[float, bool]]) -> None:
    """The counts are those of the last 30 s, give or take a slice of 3 s."""
    traffic, now, ended = Traffic(), 100.0, list[tuple[float, bool]]()
    for pause, failed in steps:
        now += pause
        traffic.count(now, failed=failed)
        ended.append((now, failed))
        longest = [one for one in ended if one[0] > now - WINDOW_SECONDS]
        shortest = [one for one in ended if one[0] > now - WINDOW_SECONDS + 3]
        assert len(shortest) <= traffic.calls <= len(longest)
        assert sum(one[1] for one in shortest) <= traffic.failures <= sum(one[1] for one in longest)


# -- who may pass


def moved(**rules: object) -> tuple[Admission, list[tuple[Routing, Routing]]]:
    """An admission and the list of its moves."""
    moves: list[tuple[Routing, Routing]] = []
    admission: Admission

    def changed(before: State) -> None:
        moves.append((before.routing, admission.state.routing))

    admission = Admission(0.0, changed=changed, **rules)  # type: ignore[arg-type]
    return admission, moves


def fail(admission: Admission, now: float, times: int = 5) -> None:
    for _ in range(times):
        admission.record(True, now)


def test_five_failed_calls_close_it_and_one_trial_opens_it() -> None:
    admission, moves = moved()
    assert admission.open
    fail(admission, 1.0, 4)
    assert admission.open
    fail(admission, 1.0, 1)
    assert not admission.open
    assert admission.enter(10.9) == 0
    assert admission.retry_after(1.0) == 10
    assert admission.retry_after(10.5) == 1
    trial = admission.enter(11.0)
    assert trial
    assert admission.enter(11.0) == 0  # exactly one at a time
    assert admission.retry_after(11.0) == 10
    admission.record(False, 12.0, trial)
    assert admission.open
    assert moves == [
        (Routing.UNCHECKED, Routing.OUT_OF_SERVICE),
        (Routing.OUT_OF_SERVICE, Routing.IN_SERVICE),
    ]


def test_the_back_off_doubles_to_its_cap() -> None:
    admission, _ = moved()
    fail(admission, 0.0)
    now, waits = 0.0, []
    for _ in range(7):
        wait = admission.retry_after(now)
        waits.append(wait)
        assert not admission.enter(now + wait - 0.1)
        now += wait
        trial = admission.enter(now)
        assert trial
        admission.record(True, now, trial)
    assert waits == [10, 20, 40, 80, 160, 300, 300]


@pytest.mark.parametrize(
    ("end", "wait"),
    [
        (lambda it, trial: it.record(None, 20.0, trial), 10),  # says nothing: as long again
        (lambda it, trial: it.unused(trial, 20.0), 1),  # never went out: the next call is the trial
    ],
)
def test_a_trial_that_says_nothing(end: Callable[[Admission, int], None], wait: int) -> None:
    """A caller that leaves, or has no time, neither helps nor harms."""
    admission, _ = moved()
    fail(admission, 0.0)
    trial = admission.enter(15.0)
    end(admission, trial)
    assert not admission.open
    assert admission.enter(20.0 + wait)


def test_a_trial_of_the_time_before_has_nothing_to_say() -> None:
    """It was under way when two checks brought the agent back; then the agent failed again."""
    admission, _ = moved()
    fail(admission, 0.0)
    old = admission.enter(15.0)
    admission.apply(Evidence.GOOD, 16.0)
    assert admission.open
    fail(admission, 17.0)
    assert not admission.open
    admission.record(False, 18.0, old)
    assert not admission.open
    admission.record(True, 18.0, old)
    assert admission.retry_after(17.0) == 10


def test_what_was_under_way_counts_neither_way() -> None:
    """Calls that began before the agent was taken out end afterwards."""
    admission, moves = moved()
    fail(admission, 0.0)
    for blame in (False, True, False, None):
        admission.record(blame, 1.0)
    assert not admission.open
    assert len(moves) == 1
    assert admission.retry_after(0.0) == 10


def test_observing_refuses_nobody() -> None:
    """`health.routing: observe`: the same states, and every call passes."""
    admission, moves = moved(enforce=False)
    fail(admission, 0.0)
    assert admission.state.routing is Routing.OUT_OF_SERVICE
    assert admission.open
    admission.record(False, 5.0)  # before the time of a trial
    assert admission.state.routing is Routing.OUT_OF_SERVICE
    admission.record(False, 11.0)
    assert admission.state.routing is Routing.IN_SERVICE
    assert len(moves) == 2


def test_a_checker_that_doubts_itself_takes_nobody_out() -> None:
    doubt = [True]
    admission, moves = moved(hold=lambda: doubt[0])
    fail(admission, 0.0, 9)
    assert admission.open
    assert moves == []
    doubt[0] = False
    fail(admission, 0.0, 1)
    assert not admission.open


def test_nobody_watches() -> None:
    fail(UNWATCHED, 0.0, 50)
    assert UNWATCHED.open
