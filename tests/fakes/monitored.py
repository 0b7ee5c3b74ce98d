"""A registry whose agents are checked, without the rest of the gateway; and a fleet of peers to be checked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from gateway.events import Event, Events
from gateway.health_rules import HealthRules
from gateway.metrics import Metrics
from gateway.monitor import Monitor
from gateway.probes import ProbeTransport
from gateway.upstream import AddressGuard, Upstream
from gateway.watched import Watched
from healthcheck.model import Status
from healthcheck.state import Routing
from registry.clock import Clock
from registry.registry import Registry
from registry.stores.memory import MemoryStore
from tests.fakes.health_peer import A2APeer
from tests.fakes.running import eventually

#: Nothing is checked twice unless a test asks for it.
SELDOM = HealthRules(interval=3600.0)


@dataclass
class Monitored:
    """What there is to look at."""

    registry: Registry
    monitor: Monitor
    metrics: Metrics
    events: Events
    upstream: Upstream
    seen: list[Event]

    async def register(self, url: str, agent_id: str = "peer", **card: Any) -> Watched:
        document = {"agent_id": agent_id, "name": agent_id, "url": url, **card}
        await self.registry.register(json.dumps(document).encode(), None)
        found = self.monitor.find(agent_id)
        assert found is not None
        return found

    async def checked(self, agent_id: str = "peer") -> Watched:
        """Check now."""
        found = await self.monitor.check(agent_id)
        assert found is not None
        return found

    async def reaches(self, routing: Routing, agent_id: str = "peer", within: float = 10.0) -> Watched:
        """Wait for a routing state."""
        found = self.monitor.find(agent_id)
        assert found is not None
        await eventually(lambda: found.routing is routing, within)
        return found

    def named(self, name: str) -> list[dict[str, Any]]:
        """The events of one name so far."""
        return [json.loads(event.data) for event in self.seen if event.name == name]


@asynccontextmanager
async def monitored(
    rules: HealthRules = SELDOM,
    *,
    environ: Mapping[str, str] | None = None,
    credentials: Mapping[str, str] | None = None,
    seed: int = 1,
    **upstream: Any,
) -> AsyncIterator[Monitored]:
    """Check agents in memory by these rules; everything is closed, and nothing is left."""
    clock = Clock()
    registry = Registry(MemoryStore(clock), ttl_seconds=300, clock=clock)
    reach = Upstream(**{"guard": AddressGuard(allow_loopback=True), **upstream})
    metrics, events = Metrics("kubemq_a2a", "1"), Events(clock.timestamp)
    monitor = Monitor(
        registry,
        ProbeTransport(reach),
        metrics,
        events,
        rules,
        environ=environ or {},
        credentials=credentials or {},
        random=Random(seed),
    )
    registry.on_change(events.registry_changed)
    seen: list[Event] = []

    async def follow() -> None:
        async for event in events.read():
            seen.append(event)

    await registry.start()
    monitor.start()
    reader = asyncio.create_task(follow())
    await asyncio.sleep(0)
    try:
        yield Monitored(registry, monitor, metrics, events, reach, seen)
    finally:
        events.close()
        await reader
        await monitor.close()
        await reach.aclose()
        await registry.close()


def card_of(peer: A2APeer, **changes: Any) -> dict[str, Any]:
    """What a peer would register: its own card, but for the url."""
    own = {member: value for member, value in peer.card.items() if member != "url"}
    return own | changes


def code_of(watched: Watched) -> tuple[Status, str | None]:
    return watched.status, watched.code
