"""Registrations shared by several nodes: the contract of `registry.stores.Store` over Redis or Valkey.

The server decides, one atomic step per operation (`scripts.py`); each node has a copy of everything (`mirror.py`),
which follows the others (`feed.py`). Durable as far as the server is: with its own persistence, or else a server
that restarts empty is filled again from the nodes' copies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from registry.agent import Agent, Lease, Registration
from registry.clock import Clock
from registry.errors import Forbidden, Full, StoreError, StoreUnavailable
from registry.stores.ledger import News
from registry.stores.redis import scripts
from registry.stores.redis.feed import Feed
from registry.stores.redis.link import Link
from registry.stores.redis.mirror import Mirror, Row, Term, owner_text
from registry.stores.redis.questions import Questions
from registry.stores.redis.renewals import Renewals


class RedisStore:
    """See `registry.stores.Store`. Leases are decided by the server's clock."""

    remote: Final = True

    def __init__(self, url: str, prefix: str, clock: Clock) -> None:
        """Nothing is touched before `open`.

        Raises:
            StoreError: the URL is malformed.
        """
        self.link = Link(url, prefix, clock)
        self._listener: Callable[[News], None] = lambda news: None
        self._opened = False
        self._mirror = Mirror(self.link.local, self._tell)
        self._renewals = Renewals(self.link, self._mirror)
        self._feed = Feed(self.link, self._mirror, clock.monotonic, self._tell)
        self._questions = Questions(self._feed.read)

    def watch(self, listener: Callable[[News], None]) -> None:
        """See `Store.watch`."""
        self._listener = listener

    async def open(self, ttl_seconds: float) -> None:
        """See `Store.open`. Agents get a new lease only if no node could be reached before."""
        await self.link.open()
        try:
            await self._feed.open()
        except StoreUnavailable as error:
            await self.close()
            raise StoreError(str(error)) from error
        self._opened = True

    async def put(self, agent: Agent, ttl_seconds: float, max_agents: int) -> Registration:
        """See `Store.put`."""
        ttl = _micros(ttl_seconds)
        answer = await self.link.run(
            scripts.PUT, agent.agent_id, agent.card, owner_text(agent.owner), ttl, max_agents
        )
        kind, *numbers = answer
        if kind == b"forbidden":
            raise Forbidden
        if kind == b"full":
            raise Full(max_agents)
        version, rev, number, end, seen, registered_at = map(int, numbers)
        term = Term(number, end, seen, ttl)
        row = Row(agent.agent_id, rev, term, registered_at, agent.owner, agent.card)
        kept = self._mirror.put("replaced" if kind == b"replaced" else "registered", row, version, agent)
        return kept or self._mirror.registration(row, agent)

    async def renew(self, agent_id: str, ttl_seconds: float, principal: str | None) -> Lease | None:
        """See `Store.renew`."""
        term = await self._renewals.renew(agent_id, _micros(ttl_seconds), principal)
        if isinstance(term, Term):
            return self._mirror.lease(agent_id, term)
        if term == "":
            return None
        raise Forbidden

    async def remove(self, agent_id: str, principal: str | None) -> bool:
        """See `Store.remove`."""
        version = int(await self.link.run(scripts.REMOVE, agent_id, owner_text(principal)))
        if version < 0:
            raise Forbidden
        if version:
            self._mirror.gone("removed", agent_id, version, elsewhere=False)
            self._mirror.buried(agent_id, version)
        return version > 0

    async def expire(self, lease: Lease) -> bool:
        """See `Store.expire`."""
        kind, *rest = await self.link.run(scripts.EXPIRE, lease.agent_id, lease.number)
        if kind == b"kept":
            self._mirror.renewed(lease.agent_id, Term(*map(int, rest)))
            return False
        self._mirror.gone("expired", lease.agent_id, int(rest[0]), elsewhere=kind == b"gone")
        return bool(kind == b"expired")

    async def grace(self, alive_at: float, seconds: float) -> None:
        """See `Store.grace`. The first node back gives all agents their whole time anew, if none had contact."""
        await self._feed.look()

    async def get(self, agent_id: str) -> Registration | None:
        """See `Store.get`. Asks the server."""
        await self._questions.ask(agent_id)
        known = self._mirror.entries.get(agent_id)
        return None if known is None else known.registration

    async def list(self) -> list[Registration]:
        """See `Store.list`. What this node knows."""
        return [entry.registration for entry in self._mirror.entries.values()]

    async def close(self) -> None:
        """See `Store.close`."""
        await self._feed.close()
        await self._renewals.close()
        await self.link.close()

    def _tell(self, news: News) -> None:
        if self._opened:
            self._listener(news)


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)
