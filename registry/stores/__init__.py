"""Where registrations are kept: the contract of all stores, and `open_store`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from registry.agent import Agent, Lease, Registration
from registry.clock import Clock
from registry.errors import StoreError
from registry.redis_url import DEFAULT_PREFIX, SCHEMES
from registry.stores.ledger import News
from registry.stores.memory import MemoryStore
from registry.stores.sqlite import SqliteStore

_SQLITE = "sqlite:///"


class Store(Protocol):
    """Small atomic operations on registrations. Whatever raises `StoreUnavailable` has changed nothing.

    Leases end on the monotonic clock of this process. An expired agent stays until `expire`, but counts as gone
    in every rule.
    """

    @property
    def remote(self) -> bool:
        """Whether other nodes share it, so that `get` may know what was not told yet."""

    def watch(self, listener: Callable[[News], None]) -> None:
        """Sets who hears of changes: called on the event loop, in order, before the operation returns.

        A remote store also tells what other nodes did, and by itself when it is lost and found.
        """

    async def open(self, ttl_seconds: float) -> None:
        """Makes the store ready; agents of an earlier run get leases of one TTL.

        Raises:
            StoreError: it cannot be used.
        """

    async def put(self, agent: Agent, ttl_seconds: float, max_agents: int) -> Registration:
        """Registers, or replaces a live agent, which keeps its `registered_at`. `max_agents` 0 means no limit.

        Raises:
            Forbidden: a live agent of another principal has the id.
            Full: `max_agents` other agents are alive.
            StoreUnavailable: not now.
        """

    async def renew(self, agent_id: str, ttl_seconds: float, principal: str | None) -> Lease | None:
        """Gives a live agent a new lease; None if there is no such agent.

        Raises:
            Forbidden: another principal owns it.
            StoreUnavailable: not now.
        """

    async def remove(self, agent_id: str, principal: str | None) -> bool:
        """Takes a live agent out; False if there is no such agent.

        Raises:
            Forbidden: another principal owns it.
            StoreUnavailable: not now.
        """

    async def expire(self, lease: Lease) -> bool:
        """Takes the agent out if this is still its lease, and over; False if it was heard of since, or is gone.

        Raises:
            StoreUnavailable: not now.
        """

    async def grace(self, alive_at: float, seconds: float) -> None:
        """After an outage: no lease that ran at `alive_at` (monotonic) ends sooner than in this many seconds.

        A remote store does so by itself, if no node could reach it, and for a whole TTL.

        Raises:
            StoreUnavailable: the outage goes on: the store takes no writes.
        """

    async def get(self, agent_id: str) -> Registration | None:
        """What is kept under the id, expired or not.

        Raises:
            StoreUnavailable: not now.
        """

    async def list(self) -> list[Registration]:
        """Everything that is kept, expired or not."""

    async def close(self) -> None:
        """Lets go of everything; may be called twice, and after a failed `open`."""


def open_store(url: str, clock: Clock | None = None, *, key_prefix: str = DEFAULT_PREFIX) -> Store:
    """The store for a ``registry.url`` (contract 4); nothing is touched before its `open`.

    Args:
        url: what kind, and where.
        clock: the one the registry has.
        key_prefix: what the names of all keys begin with, in Redis.

    Raises:
        StoreError: no such kind of store.
    """
    clock = clock or Clock()
    if url == "memory://":
        return MemoryStore(clock)
    if url.startswith(_SQLITE) and (file := url.removeprefix(_SQLITE)) and file.isprintable():
        return SqliteStore(_path(file), clock)
    if url.startswith(SCHEMES):
        from registry.stores.redis.store import RedisStore  # slow to import, and not needed by most

        return RedisStore(url, key_prefix, clock)
    raise StoreError("registry.url: must be memory://, sqlite:///FILE or a redis:// URL")


def _path(file: str) -> Path:
    if file.startswith(":memory:"):
        raise StoreError(
            "registry.url: :memory: is no file; registrations that need not last are kept by memory://"
        )
    try:
        return Path(file).expanduser().absolute()
    except RuntimeError:
        raise StoreError(
            f"registry.url: {file}: no such home directory; name the file by its whole path"
        ) from None
