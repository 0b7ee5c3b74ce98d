"""The gateway about itself: version, settings in force, limits and their use, recent faults (`GET /gateway`)."""

from __future__ import annotations

import os
import platform
import resource
import socket
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.events import MOST_READERS, Events
from gateway.identity import Identity
from gateway.lifecycle import Lifecycle
from gateway.logs import CallLine
from gateway.metrics import Metrics
from gateway.monitor import Monitor
from gateway.peers import Peers
from gateway.settings import Settings, shown
from gateway.upstream import Upstream
from healthcheck.model import Status
from registry.clock import Clock
from registry.registry import Registry

Document = dict[str, Any]

#: What a fault shows of a call; the rest of the log line is the same for all of them, or empty.
_FAULT: Final = ("time", "agent", "method", "reason", "outcome", "status", "duration_ms", "caller", "request_id")
_PROC: Final = Path("/proc/self")


@dataclass(frozen=True, slots=True)
class Parts:
    """Whose numbers are shown."""

    registry: Registry
    upstream: Upstream
    metrics: Metrics
    lifecycle: Lifecycle
    peers: Peers
    events: Events
    monitor: Monitor | None
    faults: deque[CallLine]
    settings: Callable[[], Settings]
    health: Callable[[], Status]


class About:
    """What one process says of itself."""

    def __init__(self, version: str, addresses: dict[str, str], parts: Parts, clock: Clock | None = None) -> None:
        """Take what is shown; the process begins now."""
        self._clock = clock or Clock()
        self._parts = parts
        self._addresses = addresses
        self._version = version
        self._began = self._clock.monotonic()
        self._started_at = self._clock.timestamp()

    def document(self, caller: Identity) -> Document:
        """Say everything the caller may see: who may not administer where there is a policy sees no settings."""
        parts = self._parts
        settings = parts.settings()
        open_to_all = not settings.auth.enable or not settings.auth.policy
        return {
            "version": self._version,
            "python": platform.python_version(),
            "host": self._host,
            "pid": os.getpid(),
            "started_at": self._started_at,
            "uptime_seconds": round(self._clock.monotonic() - self._began, 1),
            "phase": parts.lifecycle.phase.value,
            "status": parts.health().value,
            "suspects_itself": parts.monitor is not None and parts.monitor.suspects_itself,
            "addresses": self._addresses,
            "caller": {"name": caller.name, "authenticated": settings.auth.enable},
            "settings": list(_settings(settings)) if open_to_all or caller.grants.administer else None,
            "limits": [_limit(*one) for one in self._use(settings)],
            "faults": [_fault(line) for line in reversed(parts.faults)],
        }

    @cached_property
    def _host(self) -> str:
        return socket.gethostname()

    def _use(self, settings: Settings) -> Iterable[tuple[str, str, float, float | None, str]]:
        """Name, the setting that bounds it, use, bound (None: there is none), unit."""
        parts, limits = self._parts, settings.limits
        agent_id, used = parts.peers.busiest()
        busiest = f"calls to the busiest agent{f' ({agent_id})' if agent_id else ''}"
        upstream, files = parts.upstream, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        yield "agents", "a2a.max_agents", len(parts.registry), settings.a2a.max_agents or None, ""
        yield busiest, "a2a.agent_max_concurrency", used, settings.a2a.agent_max_concurrency, ""
        yield "calls in flight", "", parts.lifecycle.in_flight, None, ""
        yield "open streams", "limits.streams", parts.metrics.streams, limits.streams or None, ""
        if parts.monitor is not None:
            yield "checks running", "health.concurrency", parts.monitor.running, settings.health.concurrency, ""
            yield "checks overdue", "", round(parts.monitor.overdue(), 1), None, "s"
        yield "connections to agents", "", upstream.open, None, ""
        yield "readers of events", "", parts.events.readers, MOST_READERS, ""
        yield "open files", "ulimit -n", _open_files(), files if files != resource.RLIM_INFINITY else None, ""
        yield "memory", "", _memory(), None, "MiB"
        yield "event loop lag", "", round(parts.metrics.lag * 1000, 1), None, "ms"


def _settings(settings: Settings) -> Iterable[Document]:
    """Give each setting that holds, secrets masked, and whether it is the default."""
    defaults = shown(Settings())
    for section, fields in shown(settings).items():
        for name, value in fields.items():
            default = defaults[section][name] == value
            yield {"name": f"{section}.{name}", "value": msgspec.to_builtins(value), "default": default}


def _limit(name: str, setting: str, used: float, most: float | None, unit: str) -> Document:
    return {"name": name, "setting": setting or None, "used": used, "limit": most, "unit": unit}


def _fault(line: CallLine) -> Document:
    return {name: getattr(line, name) for name in _FAULT}


def _open_files() -> int:
    try:
        return len(os.listdir(_PROC / "fd")) - 1
    except OSError:  # no /proc here
        return 0


def _memory() -> float:
    """The memory of the process in MiB: what it has now, or where that cannot be read, at most had."""
    try:
        pages = int((_PROC / "statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
    return round(pages * resource.getpagesize() / 1024**2, 1)
