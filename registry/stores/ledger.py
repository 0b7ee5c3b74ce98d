"""What a store decides, without I/O: each decision is a `Change`, and takes effect when it is applied."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import Literal, TypeAlias

from registry.agent import Agent, Lease, Registration
from registry.clock import Clock
from registry.errors import Forbidden, Full


@dataclass(frozen=True, slots=True)
class Kept:
    """An agent is there from now on, or still: "registered", "replaced" (registered again), "renewed" (lease).

    `elsewhere`: another node took the registration.
    """

    kind: Literal["registered", "replaced", "renewed"]
    registration: Registration
    elsewhere: bool = False

    @property
    def agent_id(self) -> str:
        """Whose change it is."""
        return self.registration.agent.agent_id


@dataclass(frozen=True, slots=True)
class Gone:
    """An agent was "removed" (deregistered), or "expired" and swept; `elsewhere`: by another node."""

    kind: Literal["removed", "expired"]
    agent_id: str
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """The store cannot be reached; the last contact was at `since` (monotonic)."""

    since: float
    reason: str


@dataclass(frozen=True, slots=True)
class Found:
    """The store is back, and what it holds has been told."""


Change: TypeAlias = Kept | Gone
News: TypeAlias = Change | Lost | Found


class Ledger:
    """The registrations of a store that has one owner, and the rules that hold at each change of them.

    The methods that return changes leave the ledger as it is: a store first writes the change down, then
    applies it. Not safe for several threads at once.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._numbers = count(1)
        self._registrations: dict[str, Registration] = {}

    def apply(self, change: Change) -> None:
        """Makes a decided change effective."""
        if isinstance(change, Kept):
            self._registrations[change.agent_id] = change.registration
        else:
            self._registrations.pop(change.agent_id, None)

    def get(self, agent_id: str) -> Registration | None:
        """What is registered under the id, expired or not."""
        return self._registrations.get(agent_id)

    def everything(self) -> list[Registration]:
        """Everything that is registered, expired or not."""
        return [*self._registrations.values()]

    def put(self, agent: Agent, ttl_seconds: float, max_agents: int) -> Kept:
        """Registers an agent; a live one is replaced and keeps its `registered_at`. `max_agents` 0: no limit.

        Raises:
            Forbidden: a live agent of another principal has the id.
            Full: it would be one too many; replacing does not count, neither do expired agents.
        """
        lease = self.lease(agent.agent_id, ttl_seconds)
        current = self._alive(agent.agent_id)
        if current is None:
            self._check_room(max_agents)
            return Kept("registered", Registration(agent, lease))
        _check_owner(current.agent, agent.owner)
        return Kept("replaced", Registration(_continued(current.agent, agent), lease))

    def renew(self, agent_id: str, ttl_seconds: float, principal: str | None) -> Kept | None:
        """Gives a live agent a new lease; None if there is none.

        Raises:
            Forbidden: another principal owns it.
        """
        current = self._alive(agent_id)
        if current is None:
            return None
        _check_owner(current.agent, principal)
        return Kept("renewed", Registration(current.agent, self.lease(agent_id, ttl_seconds)))

    def remove(self, agent_id: str, principal: str | None) -> Gone | None:
        """Takes a live agent out; None if there is none.

        Raises:
            Forbidden: another principal owns it.
        """
        current = self._alive(agent_id)
        if current is None:
            return None
        _check_owner(current.agent, principal)
        return Gone("removed", agent_id)

    def expire(self, lease: Lease) -> Gone | None:
        """Takes an agent out whose very lease this is, and is over; None if it was heard of since, or is gone."""
        current = self._registrations.get(lease.agent_id)
        if current is None or current.lease.number != lease.number or self._clock.monotonic() < lease.ends:
            return None
        return Gone("expired", lease.agent_id)

    def grace(self, alive_at: float, seconds: float) -> list[Kept]:
        """Lets no lease that ran at `alive_at` (monotonic) end sooner than this many seconds from now."""
        ends = self._clock.monotonic() + seconds
        return [
            Kept("renewed", Registration(agent, replace(lease, ends=ends, number=next(self._numbers))))
            for agent, lease in ((one.agent, one.lease) for one in self._registrations.values())
            if alive_at < lease.ends < ends
        ]

    def lease(self, agent_id: str, ttl_seconds: float, last_seen: str | None = None) -> Lease:
        """A new lease that starts now."""
        ends = self._clock.monotonic() + ttl_seconds
        return Lease(agent_id, last_seen or self._clock.timestamp(), ttl_seconds, ends, next(self._numbers))

    def _alive(self, agent_id: str) -> Registration | None:
        current = self._registrations.get(agent_id)
        return current if current is not None and self._clock.monotonic() < current.lease.ends else None

    def _check_room(self, max_agents: int) -> None:
        if not 0 < max_agents <= len(self._registrations):
            return
        now = self._clock.monotonic()
        if sum(now < current.lease.ends for current in self._registrations.values()) >= max_agents:
            raise Full(max_agents)


def _check_owner(agent: Agent, principal: str | None) -> None:
    """An agent that was registered without authentication belongs to nobody: anyone may act on it."""
    if agent.owner is not None and agent.owner != principal:
        raise Forbidden


def _continued(current: Agent, agent: Agent) -> Agent:
    """The agent after it registered again: the same object if nothing but the lease changed."""
    if current.card == agent.card and current.owner == agent.owner:
        return current
    return replace(agent, registered_at=current.registered_at)
