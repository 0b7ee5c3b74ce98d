"""Counting calls without a cost worth naming, and writing the Prometheus page (contract 7).

A call touches plain dicts and lists (`Cells`); text is made at scrape time, agent by agent, with pauses, so
that a scrape of a thousand agents never holds up a call. What is not per call uses prometheus-client.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from gateway.methods import KUBEMQ_METHODS, V03_METHODS, V1_METHODS

SUCCESS, APPLICATION_ERROR, TRANSPORT_ERROR = "success", "application_error", "transport_error"
PROTOCOL_ERROR, CANCELLED = "protocol_error", "cancelled"

#: Upper bounds of the duration buckets, in seconds: from a local echo to the longest blocking call.
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

#: How long the series of a removed agent are kept, so that its last values are scraped.
RETENTION_SECONDS: Final = 3600.0
UNKNOWN: Final = "unknown"

_KNOWN_METHODS: Final = V03_METHODS | V1_METHODS | KUBEMQ_METHODS
#: A stall is remembered for some seconds, so that whoever asks after it hears of it.
_LAG_DECAY: Final = 0.8
#: Agents written between two pauses of a scrape: about a millisecond of work.
_AGENTS_PER_TURN: Final = 25


class Cells:
    """The numbers of one agent."""

    __slots__ = (
        "agent_id",
        "bucket_lines",
        "buckets",
        "errors",
        "events",
        "gone_at",
        "requests",
        "seconds",
        "streams",
        "transitions",
    )

    def __init__(self, agent_id: str) -> None:
        self.agent_id = agent_id
        self.requests: dict[tuple[str, str], int] = {}
        self.errors: dict[int, int] = {}
        self.events = 0
        self.streams = 0  # open now
        self.transitions: dict[tuple[str, str], int] = {}
        self.buckets = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0
        self.gone_at: float | None = None
        self.bucket_lines: tuple[str, ...] = ()

    def request(self, method: str, status: str, seconds: float) -> None:
        """Count a call whose forwarding had begun, at its end."""
        key = (method if method in KUBEMQ_METHODS else UNKNOWN, status)
        requests = self.requests
        requests[key] = requests.get(key, 0) + 1
        self.buckets[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds

    def error(self, code: int) -> None:
        """Count an error that the gateway made, by KubeMQ's code."""
        self.errors[code] = self.errors.get(code, 0) + 1

    def transition(self, before: str, after: str) -> None:
        """Count a change of the agent's routing state."""
        self.transitions[before, after] = self.transitions.get((before, after), 0) + 1


class Metrics:
    """All metrics of one gateway; several may live in one process."""

    def __init__(self, namespace: str, version: str, *, clock: Callable[[], float] = monotonic) -> None:
        """Prepare the page. `namespace` is the prefix of KubeMQ's metrics (`metrics.namespace`)."""
        self._namespace = namespace
        self._clock = clock
        self._cells: dict[str, Cells] = {}
        self.unknown = Cells(UNKNOWN)
        self.calls: dict[tuple[str, str], int] = {}
        self.streams = 0
        self.by_path = {"direct": 0, "asgi": 0}
        self.lag = 0.0
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        self._operations = Counter(
            f"{namespace}_registry_operations",
            "Registry operations.",
            ("op", "status"),
            registry=registry,
        )
        self.loop_lag = Histogram(
            "vitalgate_event_loop_lag_seconds",
            "How late the event loop ran a timer.",
            buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0),
            registry=registry,
        )
        self.first_event = Histogram(
            "vitalgate_time_to_first_event_seconds",
            "From a caller's request to the first event of its stream.",
            buckets=BUCKETS,
            registry=registry,
        )
        streams = Gauge(f"{namespace}_sse_streams_active", "Streams that are open.", registry=registry)
        streams.set_function(lambda: self.streams)
        self._checks = Histogram(
            "vitalgate_health_check_duration_seconds",
            "Duration of the requests that health checks make.",
            ("check",),
            buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
            registry=registry,
        )
        self._families: list[tuple[str, Callable[[], Sequence[str]]]] = []
        Info("vitalgate_build", "The running version.", registry=registry).info({"version": version})

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a gauge that is read at scrape time."""
        gauge = Gauge(f"vitalgate_{name}", text, registry=self.registry)
        gauge.set_function(read)

    def gauges(self, name: str, text: str, label: str, reads: dict[str, Callable[[], float]]) -> None:
        """Add a gauge with one label, each value read at scrape time."""
        gauge = Gauge(f"vitalgate_{name}", text, (label,), registry=self.registry)
        for value, read in reads.items():
            gauge.labels(value).set_function(read)

    def family(self, name: str, text: str, read: Callable[[], Sequence[str]]) -> None:
        """Add a gauge whose lines, many perhaps, are ready-made: read and joined at scrape time."""
        self._families.append((_head("vitalgate", name, "gauge", text), read))

    def check_seconds(self, check: str, seconds: float) -> None:
        """Count the request that a health check has made."""
        self._checks.labels(check).observe(seconds)

    def operation(self, op: str, status: str) -> None:
        """Count a registry operation."""
        self._operations.labels(op, status).inc()

    def call(self, method: str, outcome: str) -> None:
        """Count a call, forwarded or not, under the closed set of A2A's method names."""
        key = (method if method in _KNOWN_METHODS else UNKNOWN, outcome)
        self.calls[key] = self.calls.get(key, 0) + 1

    def cells(self, agent_id: str) -> Cells:
        """Give the cells of a registered agent, made if need be."""
        cells = self._cells.get(agent_id)
        if cells is None:
            cells = self._cells[agent_id] = Cells(agent_id)
        cells.gone_at = None
        return cells

    def peek(self, agent_id: str) -> Cells | None:
        """Give the cells of an agent, if anything was ever counted."""
        return self._cells.get(agent_id)

    def retire(self, agent_id: str) -> None:
        """Note that an agent is gone: its series disappear an hour later unless it comes back."""
        cells = self._cells.get(agent_id)
        if cells is not None:
            cells.gone_at = self._clock()

    async def page(self) -> bytes:
        """Write the whole page; other work of the event loop goes on in between."""
        parts = [generate_latest(self.registry).decode()]
        self._forget()
        everybody = [self.unknown, *self._cells.values()]
        for family, write in (
            ((self._namespace, *_REQUESTS), self._request_lines),
            ((self._namespace, *_DURATIONS), self._duration_lines),
            ((self._namespace, *_ERRORS), self._error_lines),
            (("vitalgate", *_EVENTS), self._event_lines),
            (("vitalgate", *_TRANSITIONS), self._transition_lines),
        ):
            parts.append(_head(*family))
            for start in range(0, len(everybody), _AGENTS_PER_TURN):
                for cells in everybody[start : start + _AGENTS_PER_TURN]:
                    parts.extend(write(cells))
                await asyncio.sleep(0)
        for head, read in self._families:
            parts.append(head)
            parts.extend(read())
            await asyncio.sleep(0)
        parts.append(_head("vitalgate", "calls_total", "counter", "Calls by method and outcome."))
        parts.extend(
            f'vitalgate_calls_total{{method="{method}",outcome="{outcome}"}} {count}\n'
            for (method, outcome), count in sorted(self.calls.items())
        )
        parts.append(_head("vitalgate", "requests_by_path_total", "counter", "Calls by their way in."))
        parts.extend(
            f'vitalgate_requests_by_path_total{{path="{path}"}} {count}\n' for path, count in self.by_path.items()
        )
        return "".join(parts).encode()

    def _forget(self) -> None:
        horizon = self._clock() - RETENTION_SECONDS
        for cells in [c for c in self._cells.values() if c.gone_at is not None and c.gone_at <= horizon]:
            del self._cells[cells.agent_id]

    def _request_lines(self, cells: Cells) -> Iterator[str]:
        for (method, status), count in cells.requests.items():
            labels = f'agent_id="{cells.agent_id}",method="{method}",status="{status}"'
            yield f"{self._namespace}_requests_total{{{labels}}} {count}\n"

    def _error_lines(self, cells: Cells) -> Iterator[str]:
        for code, count in cells.errors.items():
            labels = f'agent_id="{cells.agent_id}",error_code="{code}"'
            yield f"{self._namespace}_errors_total{{{labels}}} {count}\n"

    def _event_lines(self, cells: Cells) -> Iterator[str]:
        if cells.events:
            yield f'vitalgate_stream_events_total{{agent_id="{cells.agent_id}"}} {cells.events}\n'

    def _transition_lines(self, cells: Cells) -> Iterator[str]:
        for (before, after), count in cells.transitions.items():
            labels = f'agent_id="{cells.agent_id}",from="{before}",to="{after}"'
            yield f"vitalgate_health_transitions_total{{{labels}}} {count}\n"

    def _duration_lines(self, cells: Cells) -> Iterator[str]:
        if not cells.requests:
            return
        if not cells.bucket_lines:
            cells.bucket_lines = self._bucket_lines(cells.agent_id)
        total = 0
        for line, count in zip(cells.bucket_lines, cells.buckets, strict=False):
            total += count
            yield f"{line}{total}\n"
        yield f"{cells.bucket_lines[-2]}{cells.seconds!r}\n"
        yield f"{cells.bucket_lines[-1]}{total}\n"

    def _bucket_lines(self, agent_id: str) -> tuple[str, ...]:
        name = f"{self._namespace}_request_duration_seconds"
        bounds = [*map(str, BUCKETS), "+Inf"]
        return (
            *(f'{name}_bucket{{agent_id="{agent_id}",le="{bound}"}} ' for bound in bounds),
            f'{name}_sum{{agent_id="{agent_id}"}} ',
            f'{name}_count{{agent_id="{agent_id}"}} ',
        )


_REQUESTS: Final = ("requests_total", "counter", "Calls whose forwarding began.")
_DURATIONS: Final = ("request_duration_seconds", "histogram", "Duration of forwarded calls.")
_ERRORS: Final = ("errors_total", "counter", "Errors made by the gateway.")
_EVENTS: Final = ("stream_events_total", "counter", "Events relayed to callers.")
_TRANSITIONS: Final = (
    "health_transitions_total",
    "counter",
    "Changes of agents' routing states.",
)


def _head(prefix: str, name: str, kind: str, text: str) -> str:
    return f"# HELP {prefix}_{name} {text}\n# TYPE {prefix}_{name} {kind}\n"


async def watch_loop(metrics: Metrics, period: float = 0.5) -> None:
    """Measure how late timers run, for as long as the task lives. `period` is in seconds."""
    while True:
        due = monotonic() + period
        await asyncio.sleep(period)
        late = max(0.0, monotonic() - due)
        metrics.loop_lag.observe(late)
        metrics.lag = max(late, metrics.lag * _LAG_DECAY)
