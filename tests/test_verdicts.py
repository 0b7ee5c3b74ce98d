"""What nodes tell each other of an agent's health: nothing is lost on the way, and all come to the same."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import permutations
from math import inf
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import verdicts
from gateway.admission import UNWATCHED, Admission
from gateway.passive import Seen
from gateway.verdicts import FORMAT, News, Report, Sighting, Times
from gateway.watched import Transition, Watched, target_of
from healthcheck.adapters.registered import Notes, RegisteredTarget
from healthcheck.document import document
from healthcheck.model import Check, Finding, Measurement, Result, Status
from healthcheck.state import Evidence, Routing, State
from registry.agent import Agent
from registry.url import parse_url

HERE = Times(lambda: 100.0, lambda: 1_700_000_000.0)
THERE = Times(lambda: 5000.0, lambda: 1_700_000_000.0)


def agent(
    url: str = "http://127.0.0.1:1/rpc", card: bytes = b'{"name":"a","url":"http://127.0.0.1:1/rpc"}'
) -> Agent:
    return Agent("peer", url, parse_url(url), card, None, "2026-01-01T00:00:00Z", frozenset(), "a")


def watched(of: Agent | None = None) -> Watched:
    found = Watched(of or agent(), UNWATCHED)
    found.admission = Admission(0.0)
    return found


def target(of: Watched) -> RegisteredTarget:
    return target_of(of.agent, bearer_env=None, verified=True, probe_seconds=5, notes=of.notes)


def sent(of: Watched) -> Report:
    """What another node reads of it."""
    told = verdicts.read_news(verdicts.encode(News(FORMAT, "here", verdicts.report(of, "here", HERE)))).report
    assert told is not None
    return told


FINDINGS = {
    Check.REACHABILITY: Finding(
        Status.HEALTHY,
        measured=Measurement(
            {"dns": Status.HEALTHY, "tcp": Status.HEALTHY, "tls": Status.HEALTHY, "http": Status.DEGRADED},
            {"dns": 0.5, "connect": 1.25, "total": 20.0},
            "2027-01-01T00:00:00Z",
        ),
    ),
    Check.AUTHENTICATION: Finding(Status.MISCONFIGURED, "a2a_auth", "credential_missing", "TOKEN"),
    Check.PROTOCOL: Finding(Status.DEGRADED, "a2a_rpc", "foreign_result"),
    Check.CAPABILITY: Finding(Status.HEALTHY),
    Check.LATENCY: Finding(Status.UNKNOWN, "not_probed"),
}


def test_a_result_comes_through_whole() -> None:
    """Every member of a result, its notes and its record, and times by the receiver's clock."""
    ours, theirs = watched(), watched()
    ours.target = target(ours)
    ours.notes.place, ours.notes.drift = "/card", ("name", "skills")
    ours.notes.card = {"url": "http://127.0.0.1:1/rpc", "supportedInterfaces": [{"url": "x", "n": 1}]}
    result = Result(ours.target, Status.MISCONFIGURED, FINDINGS, 20.0)
    ours.take(result, Evidence.IMPAIRED, 90.0, "2026-01-01T00:00:01Z")
    ours.remember(0.25)
    ours.versions.ran = ours.versions.stamp = ours.versions.moved = 7
    told = sent(ours)
    assert verdicts.is_about(told, theirs)
    assert verdicts.has_new_run(told, theirs)
    assert told.run is not None
    verdicts.take_run(theirs, told.run, THERE)
    assert theirs.result is not None
    assert theirs.result == replace(result, target=theirs.result.target)
    assert document([theirs.result]) == document([result])
    assert theirs.notes == ours.notes
    assert list(theirs.history) == list(ours.history)
    assert theirs.checked == pytest.approx(4990)
    assert (theirs.checked_at, theirs.consecutive) == (ours.checked_at, 1)
    assert theirs.evidence is Evidence.IMPAIRED
    assert theirs.down_since == inf
    assert not theirs.checked_here
    assert (theirs.code, theirs.drift, theirs.status) == (ours.code, ours.drift, ours.status)
    assert not verdicts.has_new_run(told, theirs)


def test_a_state_comes_through_but_not_whose_trial_it_is() -> None:
    ours, theirs = watched(), watched()
    ours.admission.state = State(Routing.OUT_OF_SERVICE, 3, 0, 0, True, True, 130.0, 20.0, True)
    ours.versions.moved, ours.versions.stamp, ours.versions.turned = 5, 6, 5
    ours.last_transition = Transition("t", "in_service", "out_of_service", "check")
    told = sent(ours)
    assert verdicts.is_news(told, theirs)
    verdicts.take_state(theirs, told, THERE)
    assert theirs.admission.state == replace(ours.admission.state, trial_at=pytest.approx(5030), trying=False)
    assert not theirs.admission.open
    assert told.change == ours.last_transition
    assert not verdicts.is_news(told, theirs)


def test_another_url_is_another_agent_and_another_card_another_run() -> None:
    """A verdict about an older registration is dropped: wholly with another url, its run with another card."""
    ours = watched()
    ours.target = target(ours)
    ours.take(Result(ours.target, Status.HEALTHY, {}), Evidence.GOOD, 90.0, "t")
    ours.remember(0.1)
    ours.versions.ran = ours.versions.stamp = 1
    told = verdicts.report(ours, "here", HERE)
    assert not verdicts.is_about(told, watched(agent(url="http://127.0.0.1:2/rpc")))
    other_card = watched(agent(card=b'{"name":"b","url":"http://127.0.0.1:1/rpc"}'))
    assert verdicts.is_about(told, other_card)
    assert not verdicts.has_new_run(told, other_card)
    assert verdicts.is_of_another_card(told, other_card)


def state_report(moved: int, stamp: int, routing: Routing, node: str = "a") -> Report:
    url, card = watched().versions.digests(agent())
    return Report("peer", node, url, card, moved, stamp, moved, State(routing, downs=stamp % 7))


REPORTS = st.lists(
    st.builds(state_report, st.integers(1, 4), st.integers(1, 99), st.sampled_from(Routing)),
    min_size=1,
    max_size=5,
    unique_by=lambda one: one.stamp,
)


@given(REPORTS)
def test_in_whatever_order_reports_come_all_agree(reports: list[Report]) -> None:
    """Messages may be late, or come twice."""
    ends = set()
    for order in permutations(reports):
        here = watched()
        for told in (*order, order[0]):
            if verdicts.is_news(told, here):
                verdicts.take_state(here, told, HERE)
        ends.add((here.admission.state, here.versions.stamp, here.admission.open))
    assert len(ends) == 1


def test_a_count_made_in_ignorance_of_a_move_does_not_undo_it() -> None:
    """The check that found nothing ended just after callers' calls had taken the agent out at another node."""
    out, count = state_report(10, 10, Routing.OUT_OF_SERVICE), state_report(1, 11, Routing.IN_SERVICE)
    for order in ((out, count), (count, out)):
        here = watched()
        for told in order:
            if verdicts.is_news(told, here):
                verdicts.take_state(here, told, HERE)
        assert here.routing is Routing.OUT_OF_SERVICE


def test_sightings_come_through_in_the_receivers_time() -> None:
    ours = watched()
    seen = Seen(90.0, (95.0, 99.5), ((120.0, 7, 3),))
    data = verdicts.encode(News(FORMAT, "here", None, [verdicts.sighting(ours, seen, HERE)]))
    [told] = verdicts.read_news(data).sightings
    assert verdicts.is_about(told, ours)
    here = verdicts.seen_here(told.seen, THERE)
    assert here == Seen(
        pytest.approx(4990), (pytest.approx(4995), pytest.approx(4999.5)), ((pytest.approx(5020), 7, 3),)
    )
    nothing = verdicts.sighting(ours, Seen(), HERE)
    assert msgspec.msgpack.decode(verdicts.encode(nothing), type=Sighting).seen == Seen()


@given(st.binary(max_size=60))
def test_what_is_no_message_is_refused(data: bytes) -> None:
    """Whoever may write to the store may write anything: nothing but `MsgspecError` comes of it."""
    try:
        found: Any = verdicts.read_news(data)
    except msgspec.MsgspecError:
        return
    assert isinstance(found, News)


def test_notes_are_all_told() -> None:
    """A member that is added to `Notes` must be taken over, too."""
    ours, theirs = watched(), watched()
    ours.target = target(ours)
    values = {
        "place": "/c",
        "absent": 3,
        "version": "1.0",
        "card": {"u": 1},
        "drift": ("n",),
        "published": b"{}",
    }
    assert values.keys() == {one.name for one in fields(Notes)}
    for name, value in values.items():
        setattr(ours.notes, name, value)
    ours.take(Result(ours.target, Status.HEALTHY, {}), Evidence.GOOD, 1.0, "t")
    ours.remember(0.1)
    told = sent(ours)
    assert told.run is not None
    verdicts.take_run(theirs, told.run, THERE)
    assert theirs.notes == ours.notes != Notes()
