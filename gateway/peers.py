"""The registered agents as the proxied path sees them: pool, slots, numbers, and a prepared request head."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from weakref import WeakValueDictionary

from gateway.admission import UNWATCHED, Admission, Asking
from gateway.jsonrpc import Refused
from gateway.limits import Slots
from gateway.metrics import Cells, Metrics
from gateway.upstream import Pool, Upstream
from registry.agent import Agent
from registry.registry import Registry

#: An agent id as it may stand in a path (contract 1).
_AGENT_ID: Final = re.compile(rb"[a-z0-9][a-z0-9-]{0,126}[a-z0-9]").fullmatch
_IN_PATH: Final = re.compile(rb"/(?:a2a|agents)/([a-z0-9][a-z0-9-]{0,126}[a-z0-9])(?:/.*)?", re.DOTALL).fullmatch


class Peer:
    """What the gateway keeps for one registered agent between calls."""

    __slots__ = (
        "admission",
        "agent",
        "agent_id",
        "bare_prefix",
        "cells",
        "credential_missing",
        "pool",
        "prefix",
        "slots",
    )

    def __init__(self, agent: Agent, pool: Pool, slots: Slots, cells: Cells, bare_prefix: bytes) -> None:
        self.agent = agent
        self.agent_id = agent.agent_id
        self.pool = pool
        self.slots = slots
        self.cells = cells
        self.bare_prefix = bare_prefix
        self.prefix = bare_prefix
        self.credential_missing = False
        self.admission: Admission = UNWATCHED

    def show(self, token: str | None) -> None:
        """Have the agent shown this bearer token; empty: none; None: the one it should be shown is missing."""
        credential = b"Authorization: Bearer " + token.encode() + b"\r\n" if token else b""
        self.prefix = self.bare_prefix + credential
        self.credential_missing = token is None


class Peers:
    """Finds the peer for an agent id; follows the registry."""

    def __init__(
        self,
        registry: Registry,
        upstream: Upstream,
        metrics: Metrics,
        *,
        concurrency: int,
        user_agent: str,
        credentials: Mapping[str, str | None],
        admission: Callable[[str], Admission] = lambda agent_id: UNWATCHED,
    ) -> None:
        """Prepare an empty table.

        Args:
            registry: Tells which agents live.
            upstream: Makes pools.
            metrics: Keeps the numbers.
            concurrency: Slots per agent (`a2a.agent_max_concurrency`).
            user_agent: What the gateway calls itself.
            credentials: Bearer tokens by agent id; None where the named variable is not set (contract 6.4).
            admission: Gives an agent's admission: what the health engine makes of it.
        """
        self._registry = registry
        self._upstream = upstream
        self._metrics = metrics
        self._concurrency = concurrency
        self._user_agent = user_agent.encode()
        self._credentials = credentials
        self._admission = admission
        self._peers: dict[bytes, Peer] = {}
        # Calls in flight keep theirs alive: an agent that leaves and returns meanwhile gets no new ones.
        self._slots: WeakValueDictionary[bytes, Slots] = WeakValueDictionary()
        self._asking: set[asyncio.Future[Any]] = set()
        registry.on_change(self._changed)

    def find(self, segment: bytes) -> Peer | None:
        """Find the peer of a path segment; None if no such agent is registered, or it has expired."""
        peer = self._peers.get(segment)
        if peer is not None:
            agent = self._registry.resolve(peer.agent_id)
            if agent is peer.agent:
                return peer
        elif is_agent_id(segment):
            agent = self._registry.resolve(segment.decode())
        else:
            return None
        return None if agent is None else self._remember(segment, agent, peer)

    async def look_up(self, agent_id: str) -> Peer | None:
        """Find a peer; the store is asked if other nodes may know the agent and this one does not."""
        await self._registry.find(agent_id)
        return self.find(agent_id.encode())

    async def seek(self, path: bytes) -> None:
        """Ask the store about the agent in a path, if other nodes may know it and this one does not."""
        named = _IN_PATH(path)
        if named is not None:
            await self._registry.find(named[1].decode())

    def unknown(self, segment: bytes, go_on: Callable[[Peer | None], None]) -> Exception:
        """Give what to raise for an agent that `find` does not know.

        Other nodes may know it: then the store is asked, and `go_on` called with what `find` says after that.
        """
        if not is_agent_id(segment) or not self._registry.may_be_elsewhere(segment.decode()):
            return not_found(segment)
        task = asyncio.ensure_future(self._registry.find(segment.decode()))
        self._asking.add(task)

        def asked(task: asyncio.Future[Any]) -> None:
            self._asking.discard(task)
            go_on(None if task.cancelled() or task.exception() else self.find(segment))

        task.add_done_callback(asked)
        return Asking()

    def change_credentials(self, credentials: Mapping[str, str | None]) -> None:
        """Show agents other tokens from the next call on; see `__init__`."""
        self._credentials = credentials
        for peer in self._peers.values():
            peer.show(credentials.get(peer.agent_id, ""))

    def busiest(self) -> tuple[str, int]:
        """Give the agent with the most calls in flight, and their number; no name if there are none."""
        busy = ((peer.slots.used, peer.agent_id) for peer in self._peers.values() if peer.slots.used)
        used, agent_id = max(busy, default=(0, ""))
        return agent_id, used

    def _remember(self, segment: bytes, agent: Agent, known: Peer | None) -> Peer:
        pool = self._upstream.pool(agent.location)
        slots = self._slots.setdefault(segment, Slots(self._concurrency))
        cells = self._metrics.cells(agent.agent_id)
        peer = Peer(agent, pool, slots, cells, self._prefix(pool))
        peer.show(self._credentials.get(agent.agent_id, ""))
        peer.admission = self._admission(agent.agent_id)
        self._peers[segment] = peer
        if known is not None:
            known.pool.close()
        return peer

    def _prefix(self, pool: Pool) -> bytes:
        """Write the part of a request head that is the same for every call to the agent, but its credential."""
        return b"".join(
            (
                b"POST " + pool.target + b" HTTP/1.1\r\n",
                b"Host: " + pool.authority + b"\r\n",
                b"User-Agent: " + self._user_agent + b"\r\n",
                b"Accept-Encoding: identity\r\n",
            )
        )

    def _changed(self, kind: str, agent_id: str) -> None:
        if kind in ("removed", "expired"):
            self._metrics.retire(agent_id)
            peer = self._peers.pop(agent_id.encode(), None)
            if peer is not None:
                peer.pool.close()


def is_agent_id(segment: bytes) -> bool:
    """Tell whether these bytes of a path are a well-formed agent id (contract 1)."""
    return _AGENT_ID(segment) is not None


def not_found(segment: bytes) -> Refused:
    """Give the refusal for a path segment that names no live agent (contract 2.1)."""
    if not segment:
        return Refused("EMPTY_AGENT_ID", "")
    if not is_agent_id(segment):
        return Refused("INVALID_AGENT_ID", "")
    return Refused("AGENT_NOT_FOUND", segment.decode())
