"""How the gateway itself is: event loop, store, checks; never its agents (health contract 7)."""

from __future__ import annotations

from typing import Final

from gateway.lifecycle import Lifecycle
from gateway.metrics import Metrics
from gateway.monitor import Monitor
from healthcheck.model import Status
from registry.registry import Registry

#: A loop this late, or checks this late, in seconds, are worth a word.
_LATE_LOOP: Final = 1.0
_LATE_CHECKS: Final = 60.0


def own_health(lifecycle: Lifecycle, registry: Registry, metrics: Metrics, monitor: Monitor | None) -> Status:
    """Judge the gateway: UNHEALTHY before it serves and while it drains, DEGRADED while something is amiss."""
    if not lifecycle.ready:
        return Status.UNHEALTHY
    late = metrics.lag > _LATE_LOOP or (monitor is not None and monitor.overdue() > _LATE_CHECKS)
    return Status.DEGRADED if late or not registry.store_available else Status.HEALTHY
