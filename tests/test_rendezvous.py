"""Who answers for which agent: the same everywhere, evenly, and no more moves than must."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.rendezvous import owner

AGENTS = [f"agent-{number}" for number in range(2000)]
NAMES = st.sets(st.text("0123456789abcdef", min_size=8, max_size=8), min_size=1, max_size=6)


@given(NAMES, st.randoms(use_true_random=False))
def test_the_order_of_the_nodes_is_of_no_account(nodes: set[str], random: object) -> None:
    listed = sorted(nodes)
    random.shuffle(listed)  # type: ignore[attr-defined]
    assert all(owner(agent, listed) == owner(agent, sorted(nodes)) for agent in AGENTS[:50])


def test_shares_are_even() -> None:
    shares = Counter(owner(agent, ("one", "two", "three", "four")) for agent in AGENTS)
    assert len(shares) == 4
    assert max(shares.values()) < 1.2 * len(AGENTS) / 4


@given(NAMES.filter(lambda nodes: len(nodes) > 1))
def test_only_the_share_of_a_node_that_leaves_moves(nodes: set[str]) -> None:
    gone = min(nodes)
    left = nodes - {gone}
    for agent in AGENTS[:50]:
        before = owner(agent, nodes)
        assert owner(agent, left) == before or before == gone
        assert owner(agent, left) in left


def test_nobody() -> None:
    assert owner("agent", ()) is None
