"""Rates and connections: contract 6.5."""

from __future__ import annotations

import pytest

from gateway.limits import MOST_NAMES, Connections, Rates


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_and_then_evenly() -> None:
    clock = Clock()
    rates = Rates(5, 5, clock)
    assert [rates.take("a") for _ in range(5)] == [0] * 5
    assert rates.take("a") == pytest.approx(0.2)
    assert rates.take("a") == pytest.approx(0.2)  # being refused costs nothing
    clock.now += 0.2
    assert rates.take("a") == 0
    assert rates.take("a") > 0
    clock.now += 100
    assert [rates.take("a") > 0 for _ in range(6)] == [False] * 5 + [True]


def test_each_name_has_its_own() -> None:
    rates = Rates(1, 1, Clock())
    assert (rates.take("a"), rates.take("b")) == (0, 0)
    assert rates.take("a") > 0


def test_less_than_one_a_second() -> None:
    clock = Clock()
    rates = Rates(1 / 60, 0.5, clock)
    assert rates.take("a") == 0
    assert rates.take("a") == pytest.approx(60)
    clock.now += 60
    assert rates.take("a") == 0


def test_the_table_is_bounded_and_forgets_the_idle_first() -> None:
    clock = Clock()
    rates = Rates(1, 1, clock)
    for number in range(MOST_NAMES):
        rates.take(f"old-{number}")
    clock.now += 2
    assert rates.take("busy") == 0
    assert len(rates) == 1
    for number in range(MOST_NAMES * 2):
        rates.take(f"new-{number}")
    assert len(rates) <= MOST_NAMES


def test_connections_of_one_client() -> None:
    connections = Connections(2, lambda address: address == "10.0.0.1")
    places = [connections.enter("1.2.3.4") for _ in range(3)]
    assert places[2] is None
    assert connections.enter("1.2.3.5") is not None
    connections.leave(places[0] or "")
    assert connections.enter("1.2.3.4") is not None
    assert all(connections.enter("10.0.0.1") == "" for _ in range(9))
    assert all(Connections(0, lambda _: False).enter("1.2.3.4") == "" for _ in range(9))


def test_an_ipv6_client_is_its_network() -> None:
    connections = Connections(1, lambda _: False)
    place = connections.enter("2001:db8::1")
    assert connections.enter("2001:db8::ffff:2") is None
    assert connections.enter("2001:db8:0:1::1") is not None
    connections.leave(place or "")
    assert connections.enter("2001:db8::2") is not None
    assert connections.enter("::ffff:1.2.3.4") == connections.enter("1.2.3.5").replace("5", "4")  # type: ignore[union-attr]
