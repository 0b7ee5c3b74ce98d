"""What REST says of an agent's health, as plain documents (health contract 7)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.watched import Watched
from healthcheck.document import SPEC_VERSION, document
from healthcheck.explain import explain
from healthcheck.model import Status
from healthcheck.state import Routing, State, may_try, seconds_to_trial

Document = dict[str, Any]


def summary(watched: Watched | None) -> Document:
    """Give the `health` member of a registry view."""
    if watched is None:
        return {"status": Status.UNKNOWN.value, "routing": Routing.UNCHECKED.value, "checked_at": None}
    return {"status": watched.status.value, "routing": watched.routing.value, "checked_at": watched.checked_at}


def full(watched: Watched, now: float) -> Document:
    """Give the result document and what routing makes of it; `now` in seconds of the loop's clock."""
    shown = _unchecked(watched) if watched.result is None else document([watched.result])
    state = watched.admission.state
    return {
        **shown,
        "routing": state.routing.value,
        "checked_at": watched.checked_at,
        "consecutive": watched.consecutive,
        "last_transition": _transition(watched),
        "next_trial_seconds": _next_trial(state, now),
        "passive": _passive(watched, now),
        "drift": list(watched.drift),
        "advice": _advice(watched),
    }


def _next_trial(state: State, now: float) -> float | None:
    """Give the seconds until a call is let through to try; 0: the next one is."""
    if state.routing is not Routing.OUT_OF_SERVICE:
        return None
    return 0.0 if may_try(state, now) else round(seconds_to_trial(state, now), 3)


def history(watched: Watched) -> Document:
    """Give the last results, the newest first."""
    return {
        "agent_id": watched.agent.agent_id,
        "results": [
            msgspec.to_builtins(msgspec.structs.replace(record, ran=0)) for record in reversed(watched.history)
        ],
    }


def cards(watched: Watched) -> bytes:
    """Give what is known of the published card, as JSON: its text is the agent's."""
    found = watched.notes.published
    document = {
        "agent_id": watched.agent.agent_id,
        "published": None if found is None else json.loads(found),
        "is_published": watched.notes.card is not None,
        "drift": list(watched.drift),
    }
    return json.dumps(document).encode()


def overview(agents: Iterable[Watched], *, suspects_itself: bool) -> Document:
    """Give counts per status and routing state, and one line per agent."""
    lines = [
        {"agent_id": one.agent.agent_id, **summary(one), "code": one.code, "consecutive": one.consecutive}
        for one in sorted(agents, key=lambda one: one.agent.agent_id)
    ]
    statuses = Counter(line["status"] for line in lines)
    routings = Counter(line["routing"] for line in lines)
    return {
        "statuses": {status.value: statuses[status.value] for status in Status},
        "routing": {state.value: routings[state.value] for state in Routing},
        "suspects_itself": suspects_itself,
        "agents": lines,
    }


def _unchecked(watched: Watched) -> Document:
    agent_id = watched.agent.agent_id
    return {
        "spec_version": SPEC_VERSION,
        "target": {"id": agent_id, "name": agent_id, "type": "a2a"},
        "status": Status.UNKNOWN.value,
        "latency_ms": None,
        "checks": {},
        "dependencies": [],
    }


def _transition(watched: Watched) -> Document | None:
    change = watched.last_transition
    if change is None:
        return None
    return {"at": change.at, "from": change.before, "to": change.after, "because": change.because}


def _passive(watched: Watched, now: float) -> Document:
    traffic = watched.admission.traffic
    traffic.look(now)
    totals = traffic.totals()
    return {
        "window_seconds": 30,
        "calls": totals.calls,
        "failures": totals.failures,
        "failures_in_a_row": totals.row,
    }


def _advice(watched: Watched) -> list[Document]:
    """Say of each finding what it means and what to do, once each."""
    found: dict[tuple[str | None, str | None], Document] = {}
    for check, finding in watched.result.checks.items() if watched.result is not None else ():
        words = explain(finding)
        if words is not None:
            entry = {"check": check.value, "code": finding.code, **words._asdict()}
            found.setdefault((finding.code, finding.reason), entry)
    return list(found.values())
