"""pure: what nodes tell each other of an agent's health, and how it is taken over (health contract 7).

A `Report` is all that a node knows, so that one that was lost is made good by the next. Two parts of it are
judged apart: the last run, of which the latest counts; and the state of routing, of which that with the latest
move counts and, between moves, the latest. So nodes agree in whatever order reports come, and a count that was
made in ignorance of a move does not undo it.

On the wire, times are those of the cluster: seconds, and for what is compared microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Final

import msgspec

from gateway.passive import Seen
from gateway.watched import Record, Transition, Watched
from healthcheck.adapters.registered import Notes
from healthcheck.model import Check, Finding, Result, Status, Target
from healthcheck.state import Evidence, State

FORMAT: Final = 1
"""Goes up when older nodes could not read what newer ones write; they leave it alone."""


class Run(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A run of the checks and what came of it; `ran` tells it from other runs."""

    ran: int
    name: str
    ended: float
    evidence: Evidence
    status: Status
    checks: dict[Check, Finding]
    latency_ms: float | None
    consecutive: int
    down_since: float
    notes: Notes
    record: Record


class Report(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An agent's health as a node knows it.

    Attributes:
        agent_id: The agent.
        node: Who tells.
        url: Digest of the URL that it is about: with another one an agent begins anew.
        card: Digest of the card that was checked.
        moved: When its routing changed last.
        stamp: When this state was come to; unique.
        turned: When it went out of service or came back last: passive evidence counts from there on.
        state: What routing knows.
        change: The last move.
        run: The last run.
    """

    agent_id: str
    node: str
    url: bytes
    card: bytes
    moved: int
    stamp: int
    turned: int
    state: State
    change: Transition | None = None
    run: Run | None = None


class Sighting(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the callers of a node have met with at an agent, since `turned` (see `Report`)."""

    agent_id: str
    url: bytes
    turned: int
    seen: Seen


class News(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message to all nodes; those with a report are kept for nodes that join later."""

    format: int
    node: str
    report: Report | None = None
    sightings: list[Sighting] = []


_NOTES: Final = tuple(one.name for one in fields(Notes))

encode: Final = msgspec.msgpack.Encoder().encode
read_news: Final = msgspec.msgpack.Decoder(News).decode


@dataclass(frozen=True, slots=True)
class Times:
    """Between the clock of this process and that of the cluster; both give seconds."""

    local: Callable[[], float]
    cluster: Callable[[], float]

    def there(self, local: float) -> float:
        """Give the cluster's time for one of this process."""
        return local - self.local() + self.cluster()

    def here(self, cluster: float) -> float:
        """Give this process's time for one of the cluster."""
        return cluster - self.cluster() + self.local()


def report(watched: Watched, node: str, times: Times) -> Report:
    """Write down all that is known of an agent."""
    versions = watched.versions
    url, card = versions.digests(watched.agent)
    state = watched.admission.state
    return Report(
        watched.agent.agent_id,
        node,
        url,
        card,
        versions.moved,
        versions.stamp,
        versions.turned,
        replace(state, trial_at=times.there(state.trial_at), trying=False),
        watched.last_transition,
        _run(watched, times),
    )


def _run(watched: Watched, times: Times) -> Run | None:
    result, evidence = watched.result, watched.evidence
    if result is None or evidence is None or not watched.history:
        return None
    return Run(
        watched.versions.ran,
        result.target.label,
        times.there(watched.checked),
        evidence,
        result.status,
        dict(result.checks),
        result.latency_ms,
        watched.consecutive,
        times.there(watched.down_since),
        watched.notes,
        watched.history[-1],
    )


def is_about(told: Report | Sighting, watched: Watched) -> bool:
    """Tell whether it is about the agent as it is registered now, as far as routing goes."""
    return told.url == watched.versions.digests(watched.agent)[0]


def is_news(told: Report, watched: Watched) -> bool:
    """Tell whether the state in a report goes before the one that is known."""
    versions = watched.versions
    return (told.moved, told.stamp) > (versions.moved, versions.stamp)


def has_new_run(told: Report, watched: Watched) -> bool:
    """Tell whether a report holds a later run than the one that is known, of the same card."""
    newer = told.run is not None and told.run.ran > watched.versions.ran
    return newer and not is_of_another_card(told, watched)


def is_of_another_card(told: Report, watched: Watched) -> bool:
    """Tell whether the run in a report is about another card than the one that is registered, as far as known."""
    return told.run is not None and told.card != watched.versions.digests(watched.agent)[1]


def take_run(watched: Watched, run: Run, times: Times) -> None:
    """Take a run over, as if it had been made here; its target is only what is shown of it."""
    for one in _NOTES:
        setattr(watched.notes, one, getattr(run.notes, one))
    agent = watched.agent
    target = Target(type="a2a", endpoint=agent.url, id=agent.agent_id, name=run.name)
    watched.result = Result(target, run.status, run.checks, run.latency_ms)
    watched.evidence, watched.consecutive = run.evidence, run.consecutive
    watched.checked, watched.checked_at, watched.checked_here = times.here(run.ended), run.record.at, False
    watched.down_since = times.here(run.down_since)
    note_run(watched, run.record)
    watched.versions.ran = run.ran


def note_run(watched: Watched, record: Record) -> None:
    """Put a run into the history at its place: it may have ended at another node before others known here."""
    history = watched.history
    if any(one.ran == record.ran for one in history):
        return
    history.append(record)
    if len(history) > 1 and history[-2].ran > record.ran:
        records = sorted(history, key=lambda one: one.ran)
        history.clear()
        history.extend(records)


def take_state(watched: Watched, told: Report, times: Times) -> None:
    """Take the state of routing over; the admission tells of it if it is another."""
    versions = watched.versions
    turned = told.turned != versions.turned
    versions.moved, versions.stamp, versions.turned, versions.own = told.moved, told.stamp, told.turned, False
    watched.last_transition = told.change
    state = replace(told.state, trial_at=times.here(told.state.trial_at))
    watched.admission.adopt(state, turned=turned)


def sighting(watched: Watched, seen: Seen, times: Times) -> Sighting:
    """Write down what this node has seen of an agent's calls."""
    versions = watched.versions
    slices = tuple((times.there(end), calls, failures) for end, calls, failures in seen.slices)
    there = Seen(times.there(seen.answered), tuple(map(times.there, seen.failed)), slices)
    return Sighting(watched.agent.agent_id, versions.digests(watched.agent)[0], versions.turned, there)


def seen_here(seen: Seen, times: Times) -> Seen:
    """Give what another node has seen in this process's time."""
    slices = tuple((times.here(end), calls, failures) for end, calls, failures in seen.slices)
    return Seen(times.here(seen.answered), tuple(map(times.here, seen.failed)), slices)
