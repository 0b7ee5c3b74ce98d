"""Pure: what a node knows of the shared registrations, and in which order news about them counts.

News comes three ways: by the feed, in order; by the answers to this node's own operations and look-ups, ahead of
the feed or behind it; by a listing of everything. Whatever way a piece takes, it must be applied once, and nothing
that was removed later may come back. An agent's `rev` and its lease's number only grow, and so do versions: that
decides.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from registry.agent import Agent, Lease, Registration
from registry.card import read_card
from registry.errors import Invalid
from registry.stores.ledger import Change, Gone, Kept

BURIED_MICROS: Final = 600 * 1_000_000
"""How long it is kept in mind what was removed: versions are never below the time.

Nodes hear of it within seconds; one that is cut off for longer than this may bring somebody back, should the
store be emptied then.
"""
MOST_BURIED: Final = 10_000

_log = logging.getLogger(__name__)


class Term(NamedTuple):
    """A lease as the store has it; times in microseconds of cluster time."""

    number: int
    end: int
    seen: int
    ttl: int


class Row(NamedTuple):
    """An agent as the store has it."""

    agent_id: str
    rev: int
    term: Term
    registered_at: int
    owner: str | None
    card: bytes


class Listed(NamedTuple):
    """One line of a listing."""

    agent_id: str
    rev: int
    term: Term


@dataclass(slots=True)
class Entry:
    """An agent as this node knows it."""

    registration: Registration
    rev: int
    term: Term
    registered_at: int


def timestamp(micros: int) -> str:
    """A moment in the form of `Clock.timestamp`."""
    seconds, rest = divmod(micros, 1_000_000)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def owner_text(owner: str | None) -> str:
    """An owner as the store keeps it: JSON in ASCII."""
    return json.dumps(owner)


class Mirror:
    """The registrations by id.

    Attributes:
        version: How far the feed has been followed.
        newest: The latest version that was heard of.
        entries: What is registered.
    """

    def __init__(self, local: Callable[[float], float], tell: Callable[[Change], None]) -> None:
        """Starts empty.

        Args:
            local: turns cluster time into this process's monotonic clock; both in seconds.
            tell: hears of every change.
        """
        self.version = 0
        self.newest = 0
        self.entries: dict[str, Entry] = {}
        self._unread: dict[str, int] = {}  # what is registered with a card that is not valid here, and its rev
        self._gone: dict[str, int] = {}  # what was not there by news ahead of the feed, and its version
        self._buried: dict[str, int] = {}  # what was removed of late, and at which version
        self._local = local
        self._tell = tell

    # -- news

    def put(
        self, kind: Literal["registered", "replaced"] | None, row: Row, as_of: int, agent: Agent | None = None
    ) -> Registration | None:
        """An agent was in the store at version `as_of`; `kind` None: find out from what was known.

        Gives what is known now; None if it is gone again, or the card is not valid (any more).
        """
        self.newest = max(self.newest, as_of)
        known = self.entries.get(row.agent_id)
        if known is None and as_of < max(self._gone.get(row.agent_id, 0), self.version):
            return None
        if known is not None and known.rev > row.rev:
            return known.registration
        if known is not None and known.rev == row.rev:
            self._extend(known, row.term, "replaced" if kind == "replaced" else "renewed")
            return known.registration
        return self._enter(kind, row, known, agent)

    def _enter(
        self,
        kind: Literal["registered", "replaced"] | None,
        row: Row,
        known: Entry | None,
        agent: Agent | None,
    ) -> Registration | None:
        same, elsewhere = known is not None and _same(known, row), agent is None
        agent = known.registration.agent if known is not None and same else _named(row, agent)
        if agent is None:
            self._unread[row.agent_id] = row.rev
            return None
        self._unread.pop(row.agent_id, None)
        self._buried.pop(row.agent_id, None)
        term = row.term if known is None else max(known.term, row.term)
        registration = Registration(agent, self.lease(row.agent_id, term))
        self.entries[row.agent_id] = Entry(registration, row.rev, term, row.registered_at)
        self._tell(Kept(kind or ("renewed" if same else _kind(known, row)), registration, elsewhere))
        return registration

    def renewed(self, agent_id: str, term: Term) -> None:
        """A lease was renewed; nothing if the agent is not known, or a newer lease is."""
        known = self.entries.get(agent_id)
        if known is not None:
            self._extend(known, term, "renewed")

    def gone(self, kind: Literal["removed", "expired"], agent_id: str, version: int, *, elsewhere: bool) -> None:
        """An agent was not in the store at this version."""
        self.newest = max(self.newest, version)
        self._unread.pop(agent_id, None)
        if version > self.version:
            self._gone[agent_id] = max(version, self._gone.get(agent_id, 0))
        known = self.entries.get(agent_id)
        if known is not None and known.rev <= version:
            del self.entries[agent_id]
            self._tell(Gone(kind, agent_id, elsewhere))

    def buried(self, agent_id: str, version: int) -> None:
        """The store removed an agent at just this version: should it forget that, it is to be told."""
        version = max(version, self._buried.pop(agent_id, 0))
        self._buried[agent_id] = version  # at the end: in the order of their coming
        first = next(iter(self._buried))
        if len(self._buried) > MOST_BURIED or self._buried[first] < version - BURIED_MICROS:
            del self._buried[first]

    def followed(self, version: int) -> None:
        """The feed was applied up to this version."""
        self.version = version
        self.newest = max(self.newest, version)
        if self._gone:
            self._gone = {one: at for one, at in self._gone.items() if at > version}

    def registration(self, row: Row, agent: Agent) -> Registration:
        """What an operation of this node made of the agent, whatever became of it since."""
        agent = replace(agent, registered_at=timestamp(row.registered_at))
        return Registration(agent, self.lease(row.agent_id, row.term))

    def ids(self) -> set[str]:
        """Who is registered, as far as is known."""
        return self.entries.keys() | self._unread.keys()

    def gone_since(self) -> list[str | int]:
        """What was removed of late: id and version, one after the other."""
        return [word for pair in self._buried.items() for word in pair]

    # -- a listing of everything

    def unknown(self, listed: Iterable[Listed]) -> list[str]:
        """The agents in a listing that must be read."""
        return [one.agent_id for one in listed if not self._knows(one)]

    def _knows(self, listed: Listed) -> bool:
        known = self.entries.get(listed.agent_id)
        return max(0 if known is None else known.rev, self._unread.get(listed.agent_id, 0)) >= listed.rev

    def vanished(self, listed: Iterable[Listed], version: int) -> list[str]:
        """The agents that are known here, and were not in the store at the version of a listing."""
        names = {one.agent_id for one in listed}
        return [one for one, known in self.entries.items() if one not in names and known.rev <= version]

    def restart(self) -> None:
        """Cluster time was mistaken: every lease ends at another local moment."""
        for agent_id, known in self.entries.items():
            lease = self.lease(agent_id, known.term)
            known.registration = replace(known.registration, lease=lease)
            self._tell(Kept("renewed", known.registration))

    def lease(self, agent_id: str, term: Term) -> Lease:
        """The lease in local terms."""
        ends = self._local(term.end / 1e6)
        return Lease(agent_id, timestamp(term.seen), term.ttl / 1e6, ends, term.number)

    def _extend(self, known: Entry, term: Term, kind: Literal["replaced", "renewed"]) -> None:
        if term.number <= known.term.number:
            return
        lease = self.lease(known.registration.agent.agent_id, term)
        known.registration, known.term = Registration(known.registration.agent, lease), term
        self._tell(Kept(kind, known.registration))


def _kind(known: Entry | None, row: Row) -> Literal["registered", "replaced"]:
    return "registered" if known is None or known.registered_at != row.registered_at else "replaced"


def _same(known: Entry, row: Row) -> bool:
    agent = known.registration.agent
    return (agent.card, agent.owner, known.registered_at) == (row.card, row.owner, row.registered_at)


def _named(row: Row, agent: Agent | None) -> Agent | None:
    """The agent of a row, read from its card unless it is at hand."""
    registered_at = timestamp(row.registered_at)
    if agent is not None:
        return replace(agent, registered_at=registered_at)
    try:
        return read_card(row.card, owner=row.owner, registered_at=registered_at)
    except Invalid as error:
        _log.warning("registered agent %s is passed over: its card is not valid here: %s", row.agent_id, error)
        return None
