"""The health engine put together: monitor, other nodes, event feed, routes, metrics, the gateway's own health."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from gateway import health_metrics
from gateway.admission import UNWATCHED, Admission
from gateway.events import Events
from gateway.health_rules import HealthRules
from gateway.lifecycle import Lifecycle
from gateway.metrics import Metrics
from gateway.monitor import Monitor
from gateway.nodes import Node, Nodes, OneNode
from gateway.own_health import own_health
from gateway.probes import ProbeTransport
from gateway.routes.events import event_routes
from gateway.routes.health import health_routes
from gateway.routes.nodes import node_routes
from gateway.routes.own import own_routes
from gateway.settings import Settings
from gateway.upstream import Upstream
from registry.clock import Clock
from registry.registry import Registry

if TYPE_CHECKING:
    from gateway.cluster import Cluster
    from gateway.members import Members
    from registry.stores.redis.link import Link


class Health:
    """What `app` needs of it. `monitor` is None where nobody checks agents."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        registry: Registry,
        upstream: Upstream,
        metrics: Metrics,
        lifecycle: Lifecycle,
        *,
        node: Node,
        link: Link | None = None,
    ) -> None:
        """Build it in the running event loop; nothing is checked before `start`.

        Args:
            settings: All of them.
            environ: Where the tokens are.
            registry: Tells which agents there are.
            upstream: The way to them.
            metrics: Counts.
            lifecycle: Tells when to leave.
            node: What this process says of itself to others, but for its load.
            link: To the store that nodes have in common, not yet open; None: there are no others.
        """
        self.events = Events(Clock().timestamp)
        self.monitor: Monitor | None = None
        self._registry = registry
        self._metrics = metrics
        self._lifecycle = lifecycle
        checking = settings.health.enable and settings.a2a.enable
        self._node = msgspec.structs.replace(node, checking=checking)
        self._members: Members | None = None
        self._cluster: Cluster | None = None
        if link is not None:
            self._members, self._cluster = self._join(link, checking)
        self.nodes: Nodes = self._members or OneNode(self._describe)
        self._leaving: asyncio.Task[None] | None = None
        if checking:
            self.monitor = Monitor(
                registry,
                ProbeTransport(upstream),
                metrics,
                self.events,
                _rules(settings),
                environ=environ,
                credentials=_credentials(settings),
                sharing=self._cluster,
            )
            health_metrics.export(metrics, self.monitor)
        health_metrics.export_nodes(metrics, self.nodes)
        registry.on_change(self.events.registry_changed)
        lifecycle.on_close(self.events.close)

    def change(self, settings: Settings) -> None:
        """Go on by other settings (contract 8)."""
        if self.monitor is not None:
            self.monitor.change(_rules(settings), _credentials(settings))

    def published(self, agent_id: str) -> Mapping[str, Any] | None:
        """Give what an agent publishes of its protocols and addresses, as far as a check has seen it."""
        watched = None if self.monitor is None else self.monitor.find(agent_id)
        return None if watched is None else watched.notes.card

    def _join(self, link: Link, checking: bool) -> tuple[Members, Cluster | None]:
        from gateway.cluster import Cluster  # most have one node, and need no redis-py
        from gateway.members import Members

        members = Members(link, self._describe)
        return members, Cluster(link, members) if checking else None

    def _describe(self) -> Node:
        return msgspec.structs.replace(
            self._node,
            calls=self._lifecycle.in_flight,
            streams=self._metrics.streams,
            agents=len(self._registry),
            checked=0 if self.monitor is None else self.monitor.share,
        )

    async def start(self) -> None:
        """Check the agents that the registry knows, and those that come; or this node's share of them."""
        self._lifecycle.on_leave(self._leave)
        if self.monitor is not None:
            self.monitor.start()
            if self._cluster is not None:
                await self._cluster.start(self.monitor)
        if self._members is not None:
            await self._members.start()

    def _leave(self) -> None:
        """Have other nodes take over at once, while calls go on here."""
        if self._members is not None:
            self._leaving = asyncio.create_task(self._members.leave(), name="node leaves")

    async def close(self) -> None:
        """Stop checking."""
        self.events.close()
        if self._leaving is not None:
            await self._leaving
        if self._members is not None:
            await self._members.leave()
        if self._cluster is not None:
            await self._cluster.close()
        if self.monitor is not None:
            await self.monitor.close()

    def admission(self, agent_id: str) -> Admission:
        """Give an agent's admission, for the proxied path."""
        return UNWATCHED if self.monitor is None else self.monitor.admission(agent_id)

    def routes(self) -> list[Any]:
        """Give the handlers of the agents' health, the event feed, and the gateway's own health."""
        lifecycle, registry, metrics, monitor = self._lifecycle, self._registry, self._metrics, self.monitor
        return [
            *([] if monitor is None else health_routes(monitor)),
            *event_routes(self.events),
            *node_routes(self.nodes),
            *own_routes(
                ready=lambda: lifecycle.ready,
                health=lambda: own_health(lifecycle, registry, metrics, monitor),
            ),
        ]


def _rules(settings: Settings) -> HealthRules:
    health = settings.health
    return HealthRules(
        interval=health.interval_seconds,
        concurrency=health.concurrency,
        enforce=health.routing == "enforce",
        evict_unhealthy="UNHEALTHY" in health.evict_on,
        trial=health.trial_seconds,
        verified=not settings.a2a.agent_tls_skip_verify,
    )


def _credentials(settings: Settings) -> dict[str, str]:
    return {agent_id: one.bearer_env for agent_id, one in settings.upstream.credentials.items()}
