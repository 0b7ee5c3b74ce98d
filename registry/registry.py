"""The rules of the registry, given a store and a clock (contract 5).

Reads come from a snapshot in this process, which follows the store's changes; writes go to the store. Whether an
agent is alive is decided at each read; the sweep only cleans up and counts.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Set
from contextlib import contextmanager
from typing import Literal, TypeAlias, TypeVar

from registry.agent import Agent, Lease, Registration, is_agent_id
from registry.card import read_agent_id, read_card
from registry.clock import Clock
from registry.errors import Forbidden, Full, Invalid, NotFound, StoreUnavailable
from registry.lookups import Lookups
from registry.stores import Store
from registry.stores.ledger import Change, Found, Gone, Lost, News
from registry.url import Url

Kind: TypeAlias = Literal["registered", "replaced", "removed", "expired"]
Operation: TypeAlias = Literal["register", "deregister", "heartbeat"]
Result = TypeVar("Result")

RETRY_SECONDS = 1.0
"""While the store is out, one operation per this time tries it; the others fail at once."""

_SWEEP_SECONDS = (0.25, 5.0)
_STATUSES: dict[type[BaseException], str] = {
    Invalid: "invalid",
    Forbidden: "forbidden",
    Full: "full",
    NotFound: "not_found",
}

_log = logging.getLogger(__name__)


def _anything(_agent_id: str) -> bool:
    return True


def _check(may: Callable[[str], bool], agent_id: str) -> None:
    if not may(agent_id):
        raise Forbidden("not allowed to register this agent")


class Registry:
    """Registered agents. Use it from one event loop, between `start` and `close`."""

    def __init__(
        self,
        store: Store,
        *,
        ttl_seconds: float,
        max_agents: int = 0,
        check_url: Callable[[Url], str | None] = lambda url: None,
        clock: Clock | None = None,
        count: Callable[[str, str], None] = lambda operation, status: None,
    ) -> None:
        """Nothing happens before `start`.

        Args:
            store: not yet open.
            ttl_seconds: an agent expires this long after its last registration or heartbeat.
            max_agents: live agents at most; 0 means no limit.
            check_url: says why the gateway would not connect to a literal address, or None; must not block.
            clock: the one the store has.
            count: called with operation (register, deregister, heartbeat, expire) and status (ok, invalid,
                forbidden, full, not_found, error) of each (contract 7).
        """
        clock = clock or Clock()
        self._store = store
        self._ttl = ttl_seconds
        self._max_agents = max_agents
        self._check_url = check_url
        self._timestamp = clock.timestamp
        self._monotonic = clock.monotonic
        self._count = count
        self._listeners: list[Callable[[Kind, str], None]] = []
        self._registrations: dict[str, Registration] = {}
        self._out_since = math.inf
        self._retry_at = -math.inf
        self._sweeper: asyncio.Task[None] | None = None
        self._lookups = Lookups(store.get, self._monotonic)

    async def start(self) -> None:
        """Opens the store; the agents found there get one TTL to be heard of.

        Raises:
            StoreError: the store cannot be used.
        """
        self._store.watch(self._follow)
        try:
            await self._store.open(self._ttl)
            self._registrations = {one.agent.agent_id: one for one in await self._store.list()}
        except BaseException:
            await self._store.close()
            raise
        self._sweeper = asyncio.create_task(self._sweep_for_ever(), name="registry sweep")

    async def close(self) -> None:
        """Stops the sweep and closes the store."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait([self._sweeper])
        self._lookups.close()
        await self._store.close()

    def on_change(self, callback: Callable[[Kind, str], None]) -> None:
        """Calls back with kind and agent id, after the change, on the event loop.

        "replaced" = registered again while alive; the `Agent` is a new object only if card or owner changed.
        """
        self._listeners.append(callback)

    @property
    def store_available(self) -> bool:
        """Whether the store took the last operation; while it does not, nothing expires (contract 5.3)."""
        return self._out_since == math.inf

    # -- reading

    def resolve(self, agent_id: str) -> Agent | None:
        """The live agent with this id: the hot path, no I/O. The same object until its registration changes."""
        registration = self._registrations.get(agent_id)
        if registration is None:
            return None
        ends = registration.lease.ends
        return None if ends <= self._monotonic() and ends <= self._out_since else registration.agent

    def get(self, agent_id: str) -> Registration | None:
        """The live agent with this id, and its lease."""
        registration = self._registrations.get(agent_id)
        return registration if registration is not None and self.resolve(agent_id) is not None else None

    async def find(self, agent_id: str) -> Registration | None:
        """The same, after asking the store if others share it and nothing is known here (yet).

        What one node has answered is true on all of them at once. Takes a second at most.
        """
        if self.resolve(agent_id) is None and self.may_be_elsewhere(agent_id):
            await self._lookups.look(agent_id)
        return self.get(agent_id)

    def may_be_elsewhere(self, agent_id: str) -> bool:
        """Whether an agent that is not known here may be in the store: then `find` asks."""
        return self._store.remote and self.store_available and is_agent_id(agent_id)

    def list(
        self, *, skill_tags: Set[str] = frozenset(), query: str = "", limit: int | None = None
    ) -> list[Registration]:
        """Live agents in order of `registered_at`, then `agent_id` (contract 5.2).

        Args:
            skill_tags: only agents with a skill that bears one of these; empty means all.
            query: only agents with this text in id, name, description or skills, in any case; empty means all.
            limit: only the first so many of them.
        """
        now = min(self._monotonic(), self._out_since)
        text = query.casefold()
        found = [
            one
            for one in self._registrations.values()
            if now < one.lease.ends
            and (not skill_tags or not one.agent.tags.isdisjoint(skill_tags))
            and text in one.agent.text
        ]
        found.sort(key=lambda one: (one.agent.registered_at, one.agent.agent_id))
        return found[:limit]

    def __len__(self) -> int:
        """How many agents are alive."""
        now = min(self._monotonic(), self._out_since)
        return sum(now < one.lease.ends for one in self._registrations.values())

    # -- writing

    async def register(
        self, document: bytes, principal: str | None, *, may: Callable[[str], bool] = _anything
    ) -> Registration:
        """Registers the card in the document, or replaces a live agent of the same principal (contract 5.1).

        Args:
            document: the card.
            principal: who registers; None without authentication.
            may: tells whether the principal may have an agent with this id.

        Raises:
            Invalid: names every violation. Full: `max_agents`.
            Forbidden: another principal owns the id, or it may not have it.
            StoreUnavailable: nothing was changed; send again later.
        """
        with self._counted("register"):
            agent = read_card(
                document, owner=principal, registered_at=self._timestamp(), check_url=self._check_url
            )
            _check(may, agent.agent_id)
            return await self._stored(lambda: self._store.put(agent, self._ttl, self._max_agents))

    async def heartbeat(
        self, agent_id: str, principal: str | None, *, may: Callable[[str], bool] = _anything
    ) -> Lease:
        """Gives a live agent a new lease (contract 5.2).

        Raises:
            NotFound: unknown or expired: it must register again. Forbidden: another principal owns it.
            StoreUnavailable: the lease stands as it was, and does not end before the store is back.
        """
        with self._counted("heartbeat"):
            _check(may, agent_id)
            lease = await self._stored(lambda: self._store.renew(agent_id, self._ttl, principal))
            if lease is None:
                raise NotFound
            return lease

    async def deregister(
        self, agent_id: str, principal: str | None, *, may: Callable[[str], bool] = _anything
    ) -> None:
        """Takes a live agent out (contract 5.2).

        Raises:
            NotFound: unknown or expired. Forbidden: another principal owns it.
            StoreUnavailable: it is still there.
        """
        with self._counted("deregister"):
            _check(may, agent_id)
            if not is_agent_id(agent_id) or not await self._stored(
                lambda: self._store.remove(agent_id, principal)
            ):
                raise NotFound

    def read_agent_id(self, operation: Operation, document: bytes) -> str:
        """Reads ``{"agent_id": "..."}`` and counts it as an invalid operation if it is something else.

        Raises:
            Invalid: names the violation.
        """
        try:
            return read_agent_id(document)
        except Invalid:
            self._count(operation, "invalid")
            raise

    async def sweep(self) -> None:
        """Cleans up expired agents; after a loss of the store, sees whether it is back. `start` makes it run."""
        try:
            await self._reconnect()
        except StoreUnavailable:
            return
        now = self._monotonic()
        for one in [*self._registrations.values()]:
            if one.lease.ends <= now and not await self._expire(one.lease):
                return

    async def _expire(self, lease: Lease) -> bool:
        try:
            await self._stored(lambda: self._store.expire(lease))
        except StoreUnavailable:
            self._count("expire", "error")
            return False
        return True

    async def _sweep_for_ever(self) -> None:
        shortest, longest = _SWEEP_SECONDS
        while True:
            await asyncio.sleep(min(max(self._ttl / 4, shortest), longest))
            try:
                await self.sweep()
            except Exception:
                _log.exception("the registry sweep failed")

    # -- the store: following its changes, and living through its outages

    def _follow(self, news: News) -> None:
        if isinstance(news, Lost):
            self._lost(news.since, news.reason)
        elif isinstance(news, Found):
            self._found()
        else:
            self._take(news)

    def _take(self, change: Change) -> None:
        before = self._registrations.get(change.agent_id)
        if isinstance(change, Gone):
            self._registrations.pop(change.agent_id, None)
            if change.kind == "expired" and not change.elsewhere:
                self._count("expire", "ok")
            self._tell(change.kind, change.agent_id)
            return
        self._registrations[change.agent_id] = change.registration
        if change.kind == "renewed":
            return
        if change.kind == "registered" and before is not None:
            if not change.elsewhere:
                self._count("expire", "ok")
            self._tell("expired", change.agent_id)
        if change.kind == "replaced" and before is not None and before.agent.owner is None:
            self._note_claim(change.registration.agent)
        self._tell(change.kind, change.agent_id)

    def _note_claim(self, agent: Agent) -> None:
        if agent.owner is not None:
            _log.warning("agent %s, which had no owner, now belongs to %r", agent.agent_id, agent.owner)

    def _tell(self, kind: Kind, agent_id: str) -> None:
        for callback in self._listeners:
            try:
                callback(kind, agent_id)
            except Exception:
                _log.exception("a listener failed on %s of agent %s", kind, agent_id)

    async def _stored(self, operation: Callable[[], Awaitable[Result]]) -> Result:
        await self._reconnect()
        try:
            return await operation()
        except StoreUnavailable as error:
            self._lost(self._monotonic(), str(error))
            self._retry_at = self._monotonic() + RETRY_SECONDS
            raise

    def _lost(self, since: float, reason: str) -> None:
        if self._out_since == math.inf:
            _log.error("the registry store is out, nothing expires until it is back: %s", reason)
        self._out_since = min(since, self._out_since)

    def _found(self) -> None:
        if self._out_since != math.inf:
            _log.warning("the registry store is back after %.0f s", self._monotonic() - self._out_since)
            self._out_since = math.inf

    async def _reconnect(self) -> None:
        """After an outage, gives every agent that was alive at its begin the time back, up to one TTL."""
        now = self._monotonic()
        if self._out_since == math.inf:
            return
        if now < self._retry_at:
            raise StoreUnavailable("the registry store is out")
        self._retry_at = now + RETRY_SECONDS
        await self._store.grace(self._out_since, min(now - self._out_since, self._ttl))
        self._found()

    @contextmanager
    def _counted(self, operation: Operation) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._count(
                operation, next((_STATUSES[kind] for kind in _STATUSES if isinstance(error, kind)), "error")
            )
            raise
        self._count(operation, "ok")
