"""Passive evidence of several nodes, added up: the verdict is that of one node that had all the calls."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.passive import Seen, Totals, Traffic

NODES = ("a", "b", "c")


def tell_all(traffics: dict[str, Traffic], now: float) -> None:
    """Every node hears what every other has seen."""
    seen = {node: traffic.seen(now) for node, traffic in traffics.items()}
    for node, traffic in traffics.items():
        for other in NODES:
            if other != node:
                traffic.hear(other, seen[other])


CALLS = st.lists(
    st.tuples(st.floats(0.001, 8), st.sampled_from(NODES), st.sampled_from([True, True, False])), max_size=90
)


@given(CALLS)
def test_the_merged_verdict_is_that_of_one_node(calls: list[tuple[float, str, bool]]) -> None:
    """Health contract 7 over nodes: for each sequence of calls, every node judges as one with all of them."""
    one, traffics, now = Traffic(), {node: Traffic() for node in NODES}, 100.0
    for pause, node, failed in calls:
        now += pause
        for traffic in (one, traffics[node]):
            traffic.count(now, failed=failed)
        tell_all(traffics, now)
        for traffic in (one, *traffics.values()):
            traffic.look(now)
        expected = Totals(one.calls, one.failures, one.row)
        for traffic in traffics.values():
            totals = traffic.totals()
            assert (totals.calls, totals.failures) == (expected.calls, expected.failures)
            assert min(totals.row, 5) == min(expected.row, 5)
            assert traffic.failing is one.failing
        if one.failing:
            for traffic in (one, *traffics.values()):
                traffic.reset()


@given(CALLS, st.integers(2, 20))
def test_late_news_never_make_more_failures_than_there_were(
    calls: list[tuple[float, str, bool]], every: int
) -> None:
    """Nodes hear of each other now and then only: never more failures than there were, all of them once heard."""
    one, traffics, now = Traffic(), {node: Traffic() for node in NODES}, 100.0
    for number, (pause, node, failed) in enumerate(calls):
        now += pause / 100
        for traffic in (one, traffics[node]):
            traffic.count(now, failed=failed)
        for traffic in (one, *traffics.values()):
            traffic.look(now)
        if number % every == 0:
            tell_all(traffics, now)
            assert {min(traffic.totals().row, 5) for traffic in traffics.values()} == {min(one.row, 5)}
        assert all(traffic.totals().failures <= one.failures for traffic in traffics.values())


def test_three_here_and_two_there() -> None:
    here, there = Traffic(), Traffic()
    for now in (1.0, 2.0, 3.0):
        here.count(now, failed=True)
    there.count(1.5, failed=True)
    there.hear("here", here.seen(3.0))
    assert not there.failing
    there.count(3.5, failed=True)
    assert there.failing
    here.hear("there", there.seen(3.5))
    assert here.failing


def test_an_answer_anywhere_breaks_the_row() -> None:
    here, there = Traffic(), Traffic()
    for now in (1.0, 2.0, 3.0):
        here.count(now, failed=True)
    there.count(2.5, failed=False)
    for now in (3.5, 4.0, 4.5):
        there.count(now, failed=True)
    there.hear("here", here.seen(3.0))
    assert there.totals() == Totals(7, 6, 4)
    assert not there.failing


def test_what_others_saw_is_forgotten_after_the_window_but_not_the_row() -> None:
    """As at one node: a row of failures has no end but an answer."""
    there = Traffic()
    there.hear("here", Seen(-inf, (1.0, 2.0), ((33.0, 2, 2),)))
    there.look(32.9)
    assert there.totals() == Totals(2, 2, 2)
    there.look(33.0)
    assert there.totals() == Totals(0, 0, 2)
    there.count(40.0, failed=False)
    there.look(40.0)
    assert there.totals() == Totals(1, 0, 0)
    assert there.totals() == Totals(there.calls, there.failures, there.row)


def test_an_answer_elsewhere_is_remembered_when_its_window_is_over() -> None:
    here = Traffic()
    for now in (1.0, 2.0, 3.0):
        here.count(now, failed=True)
    here.hear("there", Seen(10.0, (), ((40.0, 1, 0),)))
    here.look(50.0)
    here.count(51.0, failed=True)
    here.hear("elsewhere", Seen(-inf, (2.0, 52.0), ()))
    here.look(52.0)
    assert here.totals().row == 2


@pytest.mark.parametrize("looks", [1, 50])
def test_looking_often_costs_no_memory(looks: int) -> None:
    traffic = Traffic()
    for number in range(100):
        traffic.count(100 + number / 100, failed=True)
        for _ in range(looks):
            traffic.look(100 + number / 100)
    assert len(traffic.seen(101).slices) == 1
