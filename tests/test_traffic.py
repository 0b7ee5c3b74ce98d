"""An agent's calls of the last seconds, from counters that only grow."""

from __future__ import annotations

import pytest

from gateway.metrics import BUCKETS, Cells
from gateway.traffic import NOTHING, QUIET, WINDOW_SECONDS, Window, quantile, sample


def called(cells: Cells, times: int, seconds: float = 0.02, status: str = "success") -> Cells:
    for _ in range(times):
        cells.request("message/send", status, seconds)
    return cells


def test_before_anything_is_measured_there_are_no_numbers() -> None:
    window = Window(sample(called(Cells("echo"), 5), 100.0))
    assert window.traffic(0.0) == NOTHING


def test_an_agent_without_calls_is_quiet() -> None:
    window = Window(sample(None, 100.0))
    assert not window.look(None, 102.0)
    assert window.traffic(2.0) == QUIET


def test_what_was_counted_before_does_not_count() -> None:
    cells = called(Cells("echo"), 1000)
    window = Window(sample(cells, 100.0))
    called(cells, 4)
    called(cells, 1, status="transport_error")
    called(cells, 1, status="cancelled")
    assert window.look(cells, 102.0)
    traffic = window.traffic(2.0)
    assert traffic.calls_per_second == 3.0
    assert traffic.outcomes == {"success": 4, "transport_error": 1, "cancelled": 1}


def test_calls_leave_the_window_and_the_agent_is_quiet_again() -> None:
    cells = Cells("echo")
    window = Window(sample(cells, 0.0))
    window.look(called(cells, 30), 2.0)
    assert window.traffic(2.0).calls_per_second == 15
    assert window.look(cells, 20.0)
    assert window.traffic(20.0).calls_per_second == 1.5
    assert window.look(cells, 2.0 + WINDOW_SECONDS)  # it changed: there was something until now
    assert window.traffic(WINDOW_SECONDS + 2) == QUIET
    assert not window.look(cells, 40.0)


def test_the_rate_is_that_of_the_window_once_it_is_full() -> None:
    cells = Cells("echo")
    window = Window(sample(cells, 0.0))
    for second in range(2, 202, 2):
        window.look(called(cells, 20), float(second))
    assert window.traffic(200.0).calls_per_second == 10


def test_counters_that_began_anew_are_not_taken_for_negative_calls() -> None:
    window = Window(sample(called(Cells("echo"), 50), 0.0))
    assert window.look(called(Cells("echo"), 3), 2.0)
    assert window.traffic(2.0).outcomes == {"success": 3}


@pytest.mark.parametrize(
    ("counts", "part", "milliseconds"),
    [
        ({}, 0.5, None),
        ({1: 10}, 0.5, 7.5),  # between 5 and 10 ms
        ({0: 10}, 0.95, 4.75),
        ({0: 90, 8: 10}, 0.95, 1750.0),  # the slow tenth: between 1 and 2.5 s
        ({len(BUCKETS): 1}, 0.5, 300_000.0),  # beyond the last bound: at least that
    ],
)
def test_quantiles_are_estimated_as_prometheus_does(
    counts: dict[int, int], part: float, milliseconds: float | None
) -> None:
    buckets = [counts.get(index, 0) for index in range(len(BUCKETS) + 1)]
    assert quantile(buckets, part) == milliseconds
