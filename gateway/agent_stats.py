"""How every agent fares at this moment, for many who look at once (`GET /stats/agents`).

A view is computed when somebody asks and the last one is two seconds old: once for all who ask, and not at all
while nobody does. It is an increment: readers come back with the version they have and get the agents that are
different since. What is computed is kept as it is sent.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Final

import msgspec

from gateway.card_protocols import declared_protocols
from gateway.cards import parse_card
from gateway.metrics import Metrics
from gateway.monitor import Monitor
from gateway.traffic import WINDOW_SECONDS, Traffic, Window, sample
from gateway.watched import Watched
from healthcheck.model import Status
from healthcheck.state import Routing
from registry.agent import Agent, Registration
from registry.clock import Clock
from registry.registry import Registry

#: A view is as old as this at most, in seconds.
PERIOD_SECONDS: Final = 2.0
#: Nobody has asked for so long that what was measured before is none of now.
_IDLE_SECONDS: Final = 10.0
#: Ids of agents that are gone, and how many skills of one are named.
_GONE_KEPT: Final = 5000
_SKILLS_SHOWN: Final = 20
#: Answers kept of one view: most readers have the last version, or none.
_ANSWERS_KEPT: Final = 8
#: Agents looked at between two pauses: well below a millisecond of work.
_AGENTS_PER_TURN: Final = 100

_encode: Final = msgspec.json.Encoder().encode


class Row(msgspec.Struct, frozen=True, gc=False):
    """One agent. Times are timestamps, durations milliseconds."""

    agent_id: str
    name: str
    skills: tuple[str, ...]
    owner: str
    protocols: tuple[str, ...]
    last_seen: str
    status: str
    routing: str
    code: str | None
    reason: str | None
    checked_at: str | None
    calls_per_second: float | None
    outcomes: dict[str, int]
    p50_ms: float | None
    p95_ms: float | None
    open_streams: int


class _Known:
    """What is kept of one agent between two views."""

    __slots__ = ("_declared", "agent", "body", "changed", "key", "name", "protocols", "row", "skills", "window")

    def __init__(self, agent: Agent, window: Window) -> None:
        card = parse_card(agent.card)
        self.agent = agent
        self.window = window
        self.name = str(card.get("name", agent.agent_id))
        self.skills = tuple(_skill_names(card.get("skills")))
        self._declared = declared_protocols(card)
        self.protocols: tuple[str, ...] = tuple(sorted(self._declared, reverse=True))
        self.key: tuple[Any, ...] = ()
        self.row: Row | None = None
        self.body = b""
        self.changed = 0

    def learn(self, published: Any) -> None:
        """Take what a check has read of the protocols, where the registered card says nothing."""
        if not self._declared and published:
            self.protocols = tuple(sorted(declared_protocols(published), reverse=True))


def _skill_names(skills: Any) -> list[str]:
    entries = skills if isinstance(skills, list) else []
    return [str(one.get("name", "")) for one in entries[:_SKILLS_SHOWN] if isinstance(one, dict)]


class AgentStats:
    """The view of one process: calls and streams are those that came to it."""

    def __init__(
        self,
        registry: Registry,
        metrics: Metrics,
        monitor: Monitor | None,
        *,
        ttl_seconds: float,
        clock: Clock | None = None,
        period: float = PERIOD_SECONDS,
    ) -> None:
        """Prepare; nothing is looked at before somebody asks. `ttl_seconds` is that of registrations."""
        self._registry = registry
        self._metrics = metrics
        self._monitor = monitor
        self._ttl = ttl_seconds
        self._clock = clock or Clock()
        self._period = period
        self._mark = secrets.token_hex(4)
        self._version = 0
        self._floor = 0
        self._since = 0.0
        self._looked = -1e9
        self._known: dict[str, _Known] = {}
        self._gone: dict[str, int] = {}
        self._answers: dict[int, bytes] = {}
        self._looking: asyncio.Task[None] | None = None

    async def answer(self, version: str = "") -> bytes:
        """Give the view as JSON: all of it, or what is different since `version`, an earlier answer's."""
        await self._refresh()
        since = self._read(version)
        body = self._answers.get(since)
        if body is None:
            body = self._write(since)
            if len(self._answers) < _ANSWERS_KEPT:
                self._answers[since] = body
        return body

    async def one(self, agent_id: str) -> bytes | None:
        """Give one agent's row and what was counted of it since the process began; None: there is none."""
        await self._refresh()
        registration = self._registry.get(agent_id)
        if registration is None:
            return None
        if agent_id not in self._known:  # registered since
            self._version += 1
            self._look_at(registration, self._looked, self._version)
            self._answers.clear()
        known = self._known[agent_id]
        cells = self._metrics.peek(agent_id)
        counted = sample(cells, 0.0)
        totals = {
            "calls": counted.total,
            "errors_by_code": {} if cells is None else {str(code): count for code, count in cells.errors.items()},
            "stream_events": 0 if cells is None else cells.events,
        }
        return b'{"at":%b,"window_seconds":%b,"agent":%b,"totals":%b}' % (
            _encode(self._clock.timestamp()),
            _encode(self._measured),
            known.body,
            _encode(totals),
        )

    @property
    def _measured(self) -> float:
        return round(min(self._looked - self._since, WINDOW_SECONDS), 1)

    # -- computing a view

    async def _refresh(self) -> None:
        if self._looking is None:
            if self._clock.monotonic() - self._looked < self._period:
                return
            self._looking = asyncio.get_running_loop().create_task(self._look())
            self._looking.add_done_callback(self._done)
        await asyncio.shield(self._looking)

    def _done(self, _: asyncio.Task[None]) -> None:
        self._looking = None

    async def _look(self) -> None:
        now = self._clock.monotonic()
        if now - self._looked > _IDLE_SECONDS:
            self._since = now
            for known in self._known.values():
                known.window = Window(sample(self._metrics.peek(known.agent.agent_id), now))
        number, registrations = self._version + 1, self._registry.list()
        changed = False
        for start in range(0, len(registrations), _AGENTS_PER_TURN):
            for one in registrations[start : start + _AGENTS_PER_TURN]:
                changed |= self._look_at(one, now, number)
            await asyncio.sleep(0)
        changed |= self._forget({one.agent.agent_id for one in registrations}, number)
        self._version = number if changed else self._version
        self._looked = now
        self._answers.clear()

    def _look_at(self, one: Registration, now: float, number: int) -> bool:
        agent_id = one.agent.agent_id
        cells = self._metrics.peek(agent_id)
        known = self._known.get(agent_id)
        if known is None or known.agent is not one.agent:
            window = Window(sample(cells, now)) if known is None else known.window
            known = self._known[agent_id] = _Known(one.agent, window)
            self._gone.pop(agent_id, None)
        busy = known.window.look(cells, now)
        watched = None if self._monitor is None else self._monitor.find(agent_id)
        measured = now - self._since
        key = (one.lease, cells and cells.streams, measured > 0, *_health_key(watched))
        if not busy and key == known.key:
            return False
        known.key = key
        known.learn(watched and watched.notes.card)
        row = _row(known, one, watched, known.window.traffic(measured), cells.streams if cells else 0)
        if row == known.row:
            return False
        known.row, known.body, known.changed = row, _encode(row), number
        return True

    def _forget(self, alive: set[str], number: int) -> bool:
        gone = self._known.keys() - alive
        for agent_id in gone:
            del self._known[agent_id]
            self._gone[agent_id] = number
        while len(self._gone) > _GONE_KEPT:
            oldest = next(iter(self._gone))
            self._floor = max(self._floor, self._gone.pop(oldest))
        return bool(gone)

    # -- writing it

    def _read(self, version: str) -> int:
        """Read a reader's version: 0 if it must be told everything."""
        mark, _, number = version.partition("-")
        if mark != self._mark or not (number.isascii() and number.isdecimal() and len(number) < 19):
            return 0
        return int(number) if self._floor <= int(number) <= self._version else 0

    def _write(self, since: int) -> bytes:
        head = {
            "at": self._clock.timestamp(),
            "version": f"{self._mark}-{self._version}",
            "complete": not since,
            "window_seconds": self._measured,
            "ttl_seconds": self._ttl,
            "suspects_itself": self._monitor is not None and self._monitor.suspects_itself,
            "gone": [agent_id for agent_id, number in self._gone.items() if number > since] if since else [],
        }
        rows = b",".join(known.body for known in self._known.values() if known.changed > since)
        return _encode(head)[:-1] + b',"agents":[' + rows + b"]}"


def _health_key(watched: Watched | None) -> tuple[Any, ...]:
    return () if watched is None else (watched.checked_at, watched.routing, watched.status)


def _row(known: _Known, one: Registration, watched: Watched | None, traffic: Traffic, streams: int) -> Row:
    last = watched.history[-1] if watched is not None and watched.history else None
    return Row(
        one.agent.agent_id,
        known.name,
        known.skills,
        one.agent.registered_by,
        known.protocols,
        one.lease.last_seen,
        Status.UNKNOWN.value if watched is None else watched.status.value,
        Routing.UNCHECKED.value if watched is None else watched.routing.value,
        None if watched is None else watched.code,
        None if last is None else last.reason,
        None if watched is None else watched.checked_at,
        traffic.calls_per_second,
        traffic.outcomes,
        traffic.p50_ms,
        traffic.p95_ms,
        streams,
    )
