"""Telling that an agent's routing or status is another: log line, counter, event (health contract 7)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from gateway.events import Events
from gateway.metrics import Metrics
from gateway.watched import Transition, Watched
from healthcheck.model import Status
from healthcheck.state import Routing

_log: Final = logging.getLogger(__name__)


class Transitions:
    """Tells."""

    def __init__(self, metrics: Metrics, events: Events, timestamp: Callable[[], str]) -> None:
        """Take who is told, and what gives the time for people."""
        self._metrics = metrics
        self._events = events
        self._timestamp = timestamp

    def moved(self, watched: Watched, before: Routing, because: str) -> None:
        """An agent's routing has changed here, because of a `check`, of `calls`, or of a `trial`."""
        self.heard(watched, Transition(self._timestamp(), before.value, watched.routing.value, because))

    def heard(self, watched: Watched, change: Transition, node: str = "") -> None:
        """The same, found by another node."""
        watched.last_transition = change
        self._metrics.cells(watched.agent.agent_id).transition(change.before, change.after)
        fields = {
            "agent": watched.agent.agent_id,
            "from": change.before,
            "to": change.after,
            "because": change.because,
            "status": watched.status.value,
            "code": watched.code or "",
            **({"node": node} if node else {}),
        }
        loud = Routing.OUT_OF_SERVICE.value in (change.before, change.after)
        _log.log(logging.WARNING if loud else logging.INFO, "agent routing changed", extra={"fields": fields})

    def publish(self, watched: Watched, status: Status, routing: Routing) -> None:
        """Add an event: the status or the routing is another than before; the same at every node."""
        change = watched.last_transition
        at = watched.checked_at if change is None or routing is watched.routing else change.at
        data = {
            "agent_id": watched.agent.agent_id,
            "status": watched.status.value,
            "routing": watched.routing.value,
            "previous_status": status.value,
            "previous_routing": routing.value,
            "at": at or self._timestamp(),
        }
        self._events.publish("health", data)
