"""The metrics of the health engine (health contract 7).

A thousand agents have eleven thousand lines. An agent's lines are written when its state changes, and only
joined at scrape time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from gateway.metrics import Metrics
from gateway.monitor import Monitor
from gateway.nodes import Nodes
from gateway.watched import Watched
from healthcheck.model import Check, Status
from healthcheck.state import Routing


def export(metrics: Metrics, monitor: Monitor) -> None:
    """Add the health of all agents, and of the checking itself, to the page."""
    for name, text, write in (
        ("agent_health", "1 for the status that the last check found, 0 for the others.", _statuses),
        ("agent_routing", "1 for the effective routing state, 0 for the others.", _routings),
        ("agent_certificate_expiry_timestamp_seconds", "End of the agent's TLS certificate.", _certificates),
    ):
        metrics.family(name, text, _Lines(monitor, write))
    metrics.gauge("health_checks_running", "Checks under way.", lambda: monitor.running)
    metrics.gauge(
        "health_checks_overdue_seconds",
        "How late the most delayed check is; grows without end if checking has stopped.",
        monitor.overdue,
    )
    metrics.gauge(
        "health_suspects_itself",
        "1 while more than half of the agents fail and none is taken out of service.",
        lambda: monitor.suspects_itself,
    )


def export_nodes(metrics: Metrics, nodes: Nodes) -> None:
    """Add what this node knows of the others."""
    metrics.gauge("nodes", "Live nodes, as this one sees them.", lambda: len(nodes.live()))
    metrics.gauge(
        "node_connected",
        "1 while this node is in contact with the store that all nodes share, or needs none.",
        lambda: nodes.connected,
    )


class _Lines:
    """The lines of one family, kept per agent for as long as they hold."""

    def __init__(self, monitor: Monitor, write: Callable[[Watched], tuple[object, Callable[[], str]]]) -> None:
        self._monitor = monitor
        self._write = write
        self._kept: dict[str, tuple[object, str]] = {}

    def __call__(self) -> list[str]:
        before, now = self._kept, {}
        for watched in self._monitor.agents():
            agent_id = watched.agent.agent_id
            key, write = self._write(watched)
            known = before.get(agent_id)
            now[agent_id] = known if known is not None and known[0] == key else (key, write())
        self._kept = now
        return [text for _, text in now.values()]


def _statuses(watched: Watched) -> tuple[object, Callable[[], str]]:
    return watched.status, lambda: _one_hot("agent_health", watched, "status", watched.status.value, Status)


def _routings(watched: Watched) -> tuple[object, Callable[[], str]]:
    return watched.routing, lambda: _one_hot("agent_routing", watched, "state", watched.routing.value, Routing)


def _certificates(watched: Watched) -> tuple[object, Callable[[], str]]:
    ends = _certificate_ends(watched)
    if ends is None:
        return None, str
    name = "vitalgate_agent_certificate_expiry_timestamp_seconds"
    seconds = datetime.fromisoformat(ends).timestamp()
    return ends, lambda: f'{name}{{agent_id="{watched.agent.agent_id}"}} {seconds:.0f}\n'


def _certificate_ends(watched: Watched) -> str | None:
    finding = None if watched.result is None else watched.result.checks.get(Check.REACHABILITY)
    return None if finding is None or finding.measured is None else finding.measured.certificate_expires_at


def _one_hot(name: str, watched: Watched, label: str, value: str, values: type[Status] | type[Routing]) -> str:
    agent_id = watched.agent.agent_id
    return "".join(
        f'vitalgate_{name}{{agent_id="{agent_id}",{label}="{one}"}} {int(one == value)}\n' for one in values
    )
