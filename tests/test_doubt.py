"""Self-doubt of one node among several (health contract 7): its own way to the agents, not the others'."""

from __future__ import annotations

import json

import pytest

from gateway.admission import UNWATCHED
from gateway.doubt import Doubt
from gateway.events import Events
from gateway.watched import Watched
from healthcheck.state import Evidence
from registry.card import read_card

NOW, RECENTLY = 1000.0, 940.0


def watched(agent_id: str, evidence: Evidence, *, here: bool, checked: float = 990.0) -> Watched:
    document = json.dumps({"agent_id": agent_id, "name": agent_id, "url": "http://127.0.0.1:1/"}).encode()
    agent = read_card(document, owner=None, registered_at="t", check_url=lambda url: None)
    found = Watched(agent, UNWATCHED)
    found.evidence, found.checked, found.checked_here = evidence, checked, here
    found.down_since = checked if evidence is Evidence.DOWN else found.down_since
    return found


def doubt(*groups: tuple[int, Evidence, bool]) -> tuple[Doubt, dict[str, Watched]]:
    agents: dict[str, Watched] = {}
    for count, evidence, here in groups:
        for _ in range(count):
            agent_id = f"agent-{len(agents)}"
            agents[agent_id] = watched(agent_id, evidence, here=here)
    return Doubt(agents, Events(lambda: "t"), lambda: "t"), agents


@pytest.mark.parametrize(
    ("groups", "suspects"),
    [
        # All that this node checks fail, those of others do not: it is cut off.
        ([(4, Evidence.DOWN, True), (8, Evidence.GOOD, False)], True),
        # Those of another node fail: that says nothing of this one, unless they are most of all.
        ([(4, Evidence.GOOD, True), (3, Evidence.DOWN, False)], False),
        ([(2, Evidence.GOOD, True), (3, Evidence.DOWN, False)], True),
        # Its share is too small to judge by alone, the whole is not.
        ([(3, Evidence.DOWN, True), (8, Evidence.GOOD, False)], False),
        ([(3, Evidence.DOWN, True), (2, Evidence.GOOD, False)], True),
        ([(5, Evidence.GOOD, True), (4, Evidence.DOWN, True)], False),
    ],
)
def test_by_what_it_has_found_and_by_all(groups: list[tuple[int, Evidence, bool]], suspects: bool) -> None:
    judged, agents = doubt(*groups)
    judged.look(NOW, RECENTLY)
    assert judged.suspects_itself is suspects
    failing = next(one for one in agents.values() if one.evidence is Evidence.DOWN)
    assert judged.must_hold(failing, NOW, RECENTLY) is suspects


def test_of_very_many_agents_not_every_result_is_a_reason_to_look_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a network fails there are as many results as agents: work that grows with the square stops the loop."""
    judged, agents = doubt((1400, Evidence.DOWN, True), (1100, Evidence.GOOD, True))
    judgements = 0
    heard = judged._heard

    def counted(now: float, since: float) -> list[Watched]:
        nonlocal judgements
        judgements += 1
        return heard(now, since)

    monkeypatch.setattr(judged, "_heard", counted)
    for _ in range(100):
        judged.look(NOW, RECENTLY)
    assert judgements == 20
    assert judged.suspects_itself
    for one in list(agents.values())[:400]:
        one.evidence = Evidence.GOOD
    for _ in range(5):  # it is not missed
        judged.look(NOW, RECENTLY)
    assert not judged.suspects_itself


def test_a_sudden_cut_is_seen_by_those_asked_since_however_many_there_are() -> None:
    """What must hold an agent in service is judged each time, by those asked since its first failure."""
    judged, agents = doubt((10, Evidence.DOWN, True), (2990, Evidence.GOOD, True))
    first = agents["agent-0"]
    for one in agents.values():
        one.checked = 995.0 if one.evidence is Evidence.DOWN else 985.0
    for _ in range(20):
        judged.look(NOW, RECENTLY)
        assert judged.must_hold(first, NOW, RECENTLY)


def test_only_agents_of_its_own_are_asked_as_witnesses() -> None:
    """Others' agents are theirs to ask: each is checked by one node."""
    judged, agents = doubt((1, Evidence.DOWN, True), (12, Evidence.GOOD, True))
    first = agents["agent-0"]
    for one in agents.values():
        if one is not first:
            one.checked = 980.0
    mine = {"agent-1", "agent-2"}
    found = judged.witnesses(first, lambda agent_id: agent_id in mine)
    assert {one.agent.agent_id for one in found} == mine
    assert len(judged.witnesses(first, lambda agent_id: True)) == 8
