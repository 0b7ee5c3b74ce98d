"""The health engine put together: monitor, event feed, routes, metrics, the gateway's own health."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway import health_metrics
from gateway.admission import UNWATCHED, Admission
from gateway.events import Events
from gateway.lifecycle import Lifecycle
from gateway.metrics import Metrics
from gateway.monitor import HealthRules, Monitor
from gateway.own_health import own_health
from gateway.probes import ProbeTransport
from gateway.routes.events import event_routes
from gateway.routes.health import health_routes
from gateway.routes.own import own_routes
from gateway.settings import Settings
from gateway.upstream import Upstream
from registry.clock import Clock
from registry.registry import Registry


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
    ) -> None:
        """Build it in the running event loop; nothing is checked before `start`."""
        self.events = Events(Clock().timestamp)
        self.monitor: Monitor | None = None
        self._registry = registry
        self._metrics = metrics
        self._lifecycle = lifecycle
        if settings.health.enable and settings.a2a.enable:
            self.monitor = Monitor(
                registry,
                ProbeTransport(upstream),
                metrics,
                self.events,
                _rules(settings),
                environ=environ,
                credentials=_credentials(settings),
            )
            health_metrics.export(metrics, self.monitor)
        registry.on_change(self.events.registry_changed)
        lifecycle.on_close(self.events.close)

    def change(self, settings: Settings) -> None:
        """Go on by other settings (contract 8)."""
        if self.monitor is not None:
            self.monitor.change(_rules(settings), _credentials(settings))

    def published(self, agent_id: str) -> Mapping[str, Any] | None:
        """Give what an agent publishes of its protocols and addresses, as far as a check has seen it."""
        watched = None if self.monitor is None else self.monitor.find(agent_id)
        return None if watched is None or watched.target is None else watched.target.notes.card

    def start(self) -> None:
        """Check the agents that the registry knows, and those that come."""
        if self.monitor is not None:
            self.monitor.start()

    async def close(self) -> None:
        """Stop checking."""
        self.events.close()
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
