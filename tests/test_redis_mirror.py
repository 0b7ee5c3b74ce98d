"""registry.stores.redis.mirror: whichever way news takes, it counts once, in order (pitfalls 161, 162)."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest

from registry.card import read_card
from registry.stores.ledger import Gone, Kept, News
from registry.stores.redis.mirror import BURIED_MICROS, MOST_BURIED, Listed, Mirror, Row, Term, timestamp


class Told:
    """A mirror and what it told, as kinds and ids."""

    def __init__(self) -> None:
        self.news: list[News] = []
        self.mirror = Mirror(lambda cluster: cluster - 1000, self.news.append)

    def kinds(self) -> list[str]:
        return [one.kind for one in self.news if isinstance(one, Kept | Gone)]


def term(number: int, end: int = 2_000_000_000) -> Term:
    return Term(number, end, number, 60_000_000)


def row(rev: int, number: int | None = None, *, registered_at: int = 1, name: str = "n") -> Row:
    card = json.dumps({"agent_id": "a1", "name": name, "url": "http://h/"}).encode()
    kept = read_card(card, owner=None, registered_at="").card
    return Row("a1", rev, term(rev if number is None else number), registered_at, None, kept)


def test_a_lease_in_local_terms() -> None:
    told = Told()
    told.mirror.put("registered", row(10), 10)
    lease = told.mirror.entries["a1"].registration.lease
    assert (lease.ends, lease.ttl_seconds, lease.number) == (1000.0, 60.0, 10)
    assert lease.last_seen == timestamp(10) == "1970-01-01T00:00:00.000010Z"


def test_the_answer_and_the_message_of_one_change_count_once() -> None:
    told = Told()
    for _ in range(2):
        told.mirror.put("registered", row(10), 10)
    assert told.kinds() == ["registered"]


def test_what_was_removed_is_kept_in_mind_for_ten_minutes() -> None:
    mirror = Told().mirror
    for agent_id, version in (("a1", 10), ("a2", 20), ("a1", 30), ("a2", 15)):
        mirror.buried(agent_id, version)
    mirror.followed(40)
    assert mirror.gone_since() == ["a1", 30, "a2", 20]
    mirror.buried("a3", 31 + BURIED_MICROS)
    assert mirror.gone_since() == ["a2", 20, "a3", 31 + BURIED_MICROS]
    mirror.buried("a3", 32 + BURIED_MICROS)
    assert mirror.gone_since() == ["a3", 32 + BURIED_MICROS]


def test_what_was_removed_is_kept_in_mind_up_to_a_bound() -> None:
    mirror = Told().mirror
    for number in range(MOST_BURIED + 5):
        mirror.buried(f"a{number}", number)
    assert len(mirror.gone_since()) == 2 * MOST_BURIED
    assert mirror.gone_since()[0] == "a5"


def test_a_message_from_before_a_removal_brings_nothing_back() -> None:
    """The answer to the own removal came ahead of the feed."""
    told = Told()
    told.mirror.followed(5)
    told.mirror.gone("removed", "a1", 20, elsewhere=False)
    told.mirror.put("registered", row(10), 10)
    assert told.mirror.entries == {}
    told.mirror.followed(20)
    told.mirror.put("registered", row(30), 30)
    assert list(told.mirror.entries) == ["a1"]


def test_an_answer_from_before_a_removal_brings_nothing_back() -> None:
    """The answer to the own registration came after the feed had told of its removal."""
    told = Told()
    told.mirror.put("registered", row(10), 10)
    told.mirror.gone("removed", "a1", 20, elsewhere=True)
    told.mirror.followed(20)
    assert told.mirror.put("registered", row(10), 10) is None
    assert told.kinds() == ["registered", "removed"]


def test_a_removal_of_an_earlier_registration_does_not_touch_its_successor() -> None:
    told = Told()
    told.mirror.put("registered", row(30, registered_at=30), 30)
    told.mirror.gone("removed", "a1", 20, elsewhere=True)
    assert list(told.mirror.entries) == ["a1"]


def test_the_newer_lease_stays() -> None:
    told = Told()
    told.mirror.put("registered", row(10), 10)
    told.mirror.renewed("a1", term(25))
    told.mirror.renewed("a1", term(20))
    told.mirror.put("replaced", row(22, name="other"), 22)
    known = told.mirror.entries["a1"]
    assert (known.rev, known.term.number) == (22, 25)
    assert known.registration.lease.number == 25
    assert b"other" in known.registration.agent.card


def test_the_same_card_is_the_same_agent() -> None:
    told = Told()
    first = told.mirror.put("registered", row(10), 10)
    again = told.mirror.put(None, row(40), 40)  # put back into an emptied store
    assert first is not None
    assert again is not None
    assert again.agent is first.agent
    other = told.mirror.put("registered", row(50, registered_at=50), 50)  # gone and come meanwhile
    assert other is not None
    assert other.agent is not first.agent
    assert told.kinds() == ["registered", "renewed", "registered"]


@pytest.mark.parametrize(
    "order",
    [one for one in permutations(range(4)) if one.index(1) < one.index(3) and one.index(0) < one.index(2)],
)
def test_in_whatever_order_two_ways_bring_the_news(order: tuple[int, ...]) -> None:
    """Own answers (0, 2) and the feed (1, 3, in its order) about a registration and a removal."""
    told = Told()

    def feed(version: int, apply: Any) -> None:
        apply()
        told.mirror.followed(version)

    def put() -> None:
        told.mirror.put("registered", row(10), 10)

    def remove() -> None:
        told.mirror.gone("removed", "a1", 20, elsewhere=False)

    steps = [put, lambda: feed(10, put), remove, lambda: feed(20, remove)]
    for index in order:
        steps[index]()
    assert told.mirror.entries == {}
    assert told.kinds() == ["registered", "removed"]


def test_a_listing_finds_what_must_be_read_and_what_has_gone() -> None:
    told = Told()
    told.mirror.put("registered", row(10), 10)
    assert told.mirror.unknown([Listed("a1", 10, term(10)), Listed("b1", 5, term(5))]) == ["b1"]
    assert told.mirror.unknown([Listed("a1", 11, term(11))]) == ["a1"]
    assert told.mirror.vanished([Listed("b1", 5, term(5))], 15) == ["a1"]
    assert told.mirror.vanished([], 9) == []


def test_a_card_that_is_not_valid_here_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    bad = Row("a1", 10, term(10), 1, None, b"{}")
    assert told.mirror.put("registered", bad, 10) is None
    assert told.mirror.entries == {}
    assert "a1 is passed over" in caplog.text
    assert told.mirror.ids() == {"a1"}, "it is registered all the same"
    assert told.mirror.unknown([Listed("a1", 10, term(12))]) == [], "nor read again and again"
    assert told.mirror.unknown([Listed("a1", 11, term(12))]) == ["a1"]
    told.mirror.gone("removed", "a1", 12, elsewhere=True)
    assert told.mirror.ids() == set()


def test_when_time_was_mistaken_all_leases_are_told_anew() -> None:
    told = Told()
    told.mirror.put("registered", row(10), 10)
    told.mirror._local = lambda cluster: cluster
    told.mirror.restart()
    assert told.mirror.entries["a1"].registration.lease.ends == 2000.0
    assert told.kinds() == ["registered", "renewed"]
