"""Registrations in memory: gone when the process ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from registry.agent import Agent, Lease, Registration
from registry.clock import Clock
from registry.stores.ledger import Gone, Kept, Ledger, News

Decision = TypeVar("Decision", Kept, Gone, Kept | None, Gone | None)


class MemoryStore:
    """The contract of `registry.stores.Store` over a dict."""

    remote = False

    def __init__(self, clock: Clock) -> None:
        self._ledger = Ledger(clock)
        self._listener: Callable[[News], None] = lambda change: None

    def watch(self, listener: Callable[[News], None]) -> None:
        """See `Store.watch`."""
        self._listener = listener

    async def open(self, ttl_seconds: float) -> None:
        """Nothing to open."""

    async def put(self, agent: Agent, ttl_seconds: float, max_agents: int) -> Registration:
        """See `Store.put`."""
        return self._apply(self._ledger.put(agent, ttl_seconds, max_agents)).registration

    async def renew(self, agent_id: str, ttl_seconds: float, principal: str | None) -> Lease | None:
        """See `Store.renew`."""
        change = self._apply(self._ledger.renew(agent_id, ttl_seconds, principal))
        return None if change is None else change.registration.lease

    async def remove(self, agent_id: str, principal: str | None) -> bool:
        """See `Store.remove`."""
        return self._apply(self._ledger.remove(agent_id, principal)) is not None

    async def expire(self, lease: Lease) -> bool:
        """See `Store.expire`."""
        return self._apply(self._ledger.expire(lease)) is not None

    async def grace(self, alive_at: float, seconds: float) -> None:
        """See `Store.grace`."""
        for change in self._ledger.grace(alive_at, seconds):
            self._apply(change)

    async def get(self, agent_id: str) -> Registration | None:
        """See `Store.get`."""
        return self._ledger.get(agent_id)

    async def list(self) -> list[Registration]:
        """See `Store.list`."""
        return self._ledger.everything()

    async def close(self) -> None:
        """Nothing to close."""

    def _apply(self, change: Decision) -> Decision:
        if change is not None:
            self._ledger.apply(change)
            self._listener(change)
        return change
