"""Rendered cards are kept per agent and address, and not beyond a bound (contract 5.4; pitfalls 116, 117)."""

from __future__ import annotations

import json

from gateway.card_cache import CardCache, Published
from registry.agent import Agent
from registry.card import read_card


def agent(agent_id: str, name: str = "Echo") -> Agent:
    card = {"agent_id": agent_id, "name": name, "url": "http://10.0.0.5:9001/"}
    return read_card(json.dumps(card).encode(), owner=None, registered_at="2027-01-15T08:00:00.000000Z")


class Rendering:
    """A cache whose rendering is counted: 1,000 bytes for any agent and address."""

    def __init__(self, max_bytes: int = 1_000_000) -> None:
        self.calls: list[tuple[str, str]] = []
        self.now = 100.0
        self.cache = CardCache(self._render, max_bytes=max_bytes, clock=lambda: self.now)

    def _render(self, one: Agent, address: str, published: Published) -> bytes:
        self.calls.append((one.agent_id, address))
        return f"{one.agent_id} {published} {one.card!r} {address}".ljust(1000).encode()


def test_a_card_is_rendered_once_per_agent_and_address() -> None:
    """Serving costs a look-up, not a rendering."""
    rendering, one, other = Rendering(), agent("echo-01"), agent("echo-02")
    for _ in range(3):
        for which in (one, other):
            for address in ("http://a", "http://b"):
                rendering.cache.get(which, address)
    assert len(rendering.calls) == 4


def test_another_agent_object_is_another_card() -> None:
    """Pitfall 117: the registry hands out a new object for every change."""
    rendering = Rendering()
    old = rendering.cache.get(agent("echo-01"), "http://a")
    new = rendering.cache.get(agent("echo-01", "Other"), "http://a")
    assert new.body != old.body
    assert new.etag != old.etag


def test_dates_of_one_second_do_not_tell_versions_apart() -> None:
    """RFC 9110 8.8.2: a date is good as a validator only if one version bears it."""
    rendering = Rendering()
    assert rendering.cache.get(agent("echo-01"), "http://a").dated
    rendering.now += 0.5
    assert not rendering.cache.get(agent("echo-01"), "http://a").dated
    rendering.now += 1
    assert rendering.cache.get(agent("echo-01"), "http://a").dated


def test_addresses_that_callers_choose_do_not_fill_the_memory() -> None:
    """Pitfall 116: every Host header makes an address; what is asked for most lately stays."""
    rendering, one = Rendering(max_bytes=20_000), agent("echo-01")
    for number in range(1000):
        rendering.cache.get(one, f"http://h{number}")
        rendering.cache.get(one, "http://home")
    held = [entry for entry in rendering.calls if entry[1] == "http://home"]
    assert len(held) == 1
    rendering.calls.clear()
    for number in range(990, 1000):
        rendering.cache.get(one, f"http://h{number}")
    assert rendering.calls == []
    rendering.cache.get(one, "http://h900")
    assert len(rendering.calls) == 1


def test_a_card_over_the_bound_is_served_all_the_same() -> None:
    """The bound says what is kept, not what is served."""
    rendering, one = Rendering(max_bytes=10), agent("echo-01")
    assert rendering.cache.get(one, "http://a").body.startswith(b"echo-01")
    assert rendering.cache.get(one, "http://b").body.strip().endswith(b"http://b")


def test_what_an_agent_publishes_shows_once_it_is_known() -> None:
    """Contract 5.4: a check that has read another published card changes the served one, the same one does not."""
    rendering, one = Rendering(), agent("echo-01")
    unknown = rendering.cache.get(one, "http://a")
    for _ in range(2):
        known = rendering.cache.get(one, "http://a", {"protocolVersion": "1.0"})
        assert known.etag != unknown.etag
    assert len(rendering.calls) == 2
