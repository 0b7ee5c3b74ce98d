"""When which agent is checked: health contract 7, pitfall 121."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from gateway.admission import Admission
from gateway.schedule import Pace, Schedule
from gateway.watched import Watched
from healthcheck.state import Evidence
from registry.agent import Agent
from registry.url import parse_url


def agent(number: int) -> Watched:
    url = f"http://h/{number}"
    told = Agent(f"a{number}", url, parse_url(url), b"{}", None, "", frozenset(), "")
    return Watched(told, Admission(0.0))


def schedule(interval: float = 30.0, places: int = 4) -> Schedule:
    return Schedule(Pace(interval), places, Random(1))


@pytest.mark.parametrize(
    ("interval", "failing", "idle", "pause"),
    [
        (30, False, False, 30),
        (30, False, True, 90),
        (30, True, False, 10),
        (30, True, True, 10),
        (9, True, False, 5),  # a third, but at least 5 s
        (3, True, False, 3),  # and never more seldom than the others
        (300, True, False, 100),
    ],
)
def test_the_pace(interval: float, failing: bool, idle: bool, pause: float) -> None:
    assert Pace(interval).pause(failing=failing, idle=idle) == pause


def test_checks_are_spread() -> None:
    """±20 %: five hundred agents that were checked at once are not checked at once again."""
    it, agents = schedule(10), [agent(number) for number in range(500)]
    for watched in agents:
        it.again(watched, 100.0)
    dues = sorted(watched.due for watched in agents)
    assert 108 <= dues[0] < 108.2
    assert 111.8 < dues[-1] <= 112
    most = max(sum(second <= due < second + 0.5 for due in dues) for second in dues)
    assert most < 120


def test_idle_agents_are_those_without_calls_for_ten_minutes() -> None:
    it, watched = schedule(), agent(1)
    it.again(watched, 599.0)
    assert watched.due - 599 < 36.1
    it.again(watched, 600.0)
    assert watched.due - 600 > 71.9
    watched.admission.record(False, 700.0)
    it.again(watched, 800.0)
    assert watched.due - 800 < 36.1


def test_a_first_check_is_soon() -> None:
    it = schedule()
    for number in range(50):
        watched = agent(number)
        it.first(watched, 10.0)
        assert 10 <= watched.due <= 11


def drain(it: Schedule, now: float) -> list[tuple[Watched, int]]:
    it.collect(now)
    taken = []
    while (one := it.take()) is not None:
        taken.append(one)
    return taken


def test_places_are_bounded_and_failing_agents_get_half_of_them() -> None:
    it = schedule(places=4)
    good, bad = [agent(number) for number in range(6)], [agent(10 + number) for number in range(6)]
    for watched in bad:
        watched.evidence = Evidence.DOWN
    for watched in [*bad, *good]:
        it.plan(watched, 1.0)
    first = drain(it, 0.5)
    assert first == []
    first = drain(it, 1.0)
    assert [watched for watched, _ in first] == good[:4]  # those that answer go first
    for _, kind in first:
        it.give(kind)
    second = drain(it, 1.0)
    assert [watched for watched, _ in second] == [*good[4:], *bad[:2]]
    it.give(0)
    assert drain(it, 1.0) == []  # failing ones hold their half already
    it.give(1)
    assert [watched for watched, _ in drain(it, 1.0)] == [bad[2]]


def test_what_was_planned_before_does_not_count() -> None:
    it, watched = schedule(), agent(1)
    it.plan(watched, 5.0)
    it.plan(watched, 50.0)
    assert it.next_due == 50.0
    assert drain(it, 49.0) == []
    assert len(drain(it, 50.0)) == 1
    assert it.next_due == inf


def test_hurry_and_forget() -> None:
    it, one, other = schedule(), agent(1), agent(2)
    it.plan(one, 50.0)
    it.hurry(other, 1.0)
    it.hurry(one, 1.0, first=True)
    it.hurry(one, 1.0)
    assert [watched for watched, _ in drain(it, 1.0)] == [one, other]
    it.hurry(one, 2.0)
    it.forget(one)
    assert drain(it, 99.0) == []


def test_how_late_the_latest_is() -> None:
    """Pitfall 123: that checking has stopped can be seen."""
    it, watched = schedule(places=1), agent(1)
    assert it.overdue(100.0) == 0.0
    it.plan(watched, 10.0)
    assert it.overdue(9.0) == 0.0
    assert it.overdue(12.0) == 2.0
    it.collect(12.0)
    assert it.overdue(15.0) == 3.0
    assert it.take() is not None
    assert it.overdue(99.0) == 0.0
