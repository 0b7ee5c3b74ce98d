"""Registry × health engine: which agents are checked, and what a verdict does to routing (health contract 7).

Runs on the event loop. What the proxied path needs stands in each agent's `Admission`; everything else is here,
off that path.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nsmallest
from math import inf
from random import Random
from typing import Any, Final

import httpx

from gateway.admission import UNWATCHED, Admission
from gateway.events import Events
from gateway.metrics import Metrics
from gateway.schedule import FIRST_SECONDS, Pace, Schedule
from gateway.watched import Transition, Watched, target_of
from healthcheck.adapters.registered import REGISTERED
from healthcheck.engine import Engine
from healthcheck.model import Result, Status
from healthcheck.state import FALL, Evidence, Routing, State, judge
from registry.agent import Agent
from registry.clock import Clock
from registry.registry import Kind, Registry

_PROBE_SECONDS: Final = (1.0, 10.0)
#: Self-doubt needs this many agents, and asks so many others before the third failure of one takes it out.
_ENOUGH: Final = 4
_WITNESSES: Final = 8

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HealthRules:
    """The settings `health.*` and what else the checks depend on; times in seconds."""

    interval: float = 30.0
    concurrency: int = 50
    enforce: bool = True
    evict_unhealthy: bool = False
    trial: float = 10.0
    verified: bool = True

    @property
    def probe_seconds(self) -> float:
        """Deadline of one request of a check: the interval, but at least 1 s and at most 10 s."""
        least, most = _PROBE_SECONDS
        return min(most, max(least, self.interval))


class Monitor:
    """Checks every registered agent for as long as it is registered."""

    def __init__(
        self,
        registry: Registry,
        transport: httpx.AsyncBaseTransport,
        metrics: Metrics,
        events: Events,
        rules: HealthRules,
        *,
        environ: Mapping[str, str],
        credentials: Mapping[str, str],
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """Prepare; nothing is checked before `start`.

        Args:
            registry: Tells which agents there are.
            transport: Sends the probes.
            metrics: Counts.
            events: Gets every change.
            rules: The settings.
            environ: Where the tokens are.
            credentials: Agent id → name of the variable with its token.
            clock: For timestamps; the schedule follows the loop's clock.
            random: For jitter.
        """
        self._registry = registry
        self._metrics = metrics
        self._events = events
        self._rules = rules
        self._credentials = credentials
        self._timestamp = (clock or Clock()).timestamp
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._random = random or Random()  # noqa: S311 - spreads load
        self._engine = Engine(
            transport, environ=environ, concurrency=rules.concurrency, clock=self._now, adapters=REGISTERED
        )
        self._schedule = Schedule(Pace(rules.interval), rules.concurrency, self._random)
        self._agents: dict[str, Watched] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._judging: Watched | None = None
        self.suspects_itself = False
        registry.on_change(self._changed)

    def start(self) -> None:
        """Begin with the agents that the registry knows already, spread over an interval."""
        for one in self._registry.list():
            self._watch(one.agent, within=self._rules.interval)
        self._arm()

    async def close(self) -> None:
        """Stop everything; checks that run are dropped."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for watched in self._agents.values():
            _release(watched)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def change(self, rules: HealthRules, credentials: Mapping[str, str]) -> None:
        """Go on by other rules (contract 8); a check that runs ends by the old ones."""
        other_pace = rules.interval != self._rules.interval
        self._rules, self._credentials = rules, credentials
        self._engine.slots = asyncio.Semaphore(rules.concurrency)
        self._schedule.change(Pace(rules.interval), rules.concurrency)
        for agent_id, watched in self._agents.items():
            watched.admission.change(enforce=rules.enforce, trial_seconds=rules.trial)
            other_token = watched.retarget(credentials.get(agent_id), rules.probe_seconds)
            if (other_pace or other_token) and not watched.queued:
                self._schedule.first(watched, self._now(), rules.interval if other_pace else FIRST_SECONDS)
        self._turn()

    # -- what others ask

    def admission(self, agent_id: str) -> Admission:
        """Give the admission of an agent, for the proxied path."""
        watched = self._agents.get(agent_id)
        return UNWATCHED if watched is None else watched.admission

    def find(self, agent_id: str) -> Watched | None:
        """Give what is known of a live agent."""
        return self._agents.get(agent_id) if self._registry.resolve(agent_id) is not None else None

    def status(self, agent_id: str) -> Status:
        """Give the raw status of an agent; UNKNOWN before its first check."""
        watched = self._agents.get(agent_id)
        return Status.UNKNOWN if watched is None else watched.status

    def agents(self) -> list[Watched]:
        """Give all that are watched."""
        return list(self._agents.values())

    def overdue(self) -> float:
        """Give how late the most delayed check is, in seconds: more than a few say that checking has stopped."""
        return self._schedule.overdue(self._now())

    def now(self) -> float:
        """Give the time of the schedule and the gates, in seconds."""
        return self._now()

    @property
    def running(self) -> int:
        """Checks under way."""
        return self._schedule.running

    async def check(self, agent_id: str) -> Watched | None:
        """Check now, or share the check that runs; None if there is no such agent (any more)."""
        watched = self.find(agent_id)
        if watched is None:
            return None
        if watched.waiting is None:
            watched.waiting = self._loop.create_future()
            self._schedule.hurry(watched, self._now(), first=True)
            self._turn()
        await asyncio.shield(watched.waiting)
        return self.find(agent_id)

    # -- following the registry

    def _changed(self, kind: Kind, agent_id: str) -> None:
        agent = self._registry.resolve(agent_id)
        if kind in ("removed", "expired") or agent is None:
            self._forget(agent_id)
        else:
            self._take_over(agent)
        self._arm()

    def _take_over(self, agent: Agent) -> None:
        """Follow a registration: with the url the state stays, and what runs for an older one is dropped."""
        watched = self._agents.get(agent.agent_id)
        if watched is None or watched.agent.url != agent.url:
            self._forget(agent.agent_id)
            self._watch(agent)
        elif watched.agent is not agent:
            watched.agent = agent
            watched.target = None
            self._drop(watched)
            self._schedule.first(watched, self._now())

    def _watch(self, agent: Agent, within: float = 1.0) -> None:
        watched = Watched(agent, UNWATCHED)
        watched.admission = Admission(
            self._now(),
            enforce=self._rules.enforce,
            trial_seconds=self._rules.trial,
            hold=lambda: self._must_hold(watched),
            changed=lambda before: self._moved(watched, before),
        )
        self._agents[agent.agent_id] = watched
        self._schedule.first(watched, self._now(), within)

    def _forget(self, agent_id: str) -> None:
        watched = self._agents.pop(agent_id, None)
        if watched is not None:
            self._schedule.forget(watched)
            self._drop(watched)
            _release(watched)

    def _drop(self, watched: Watched) -> None:
        """End a running check without a result."""
        if watched.task is not None:
            watched.task.cancel()
            watched.task = None

    # -- checking

    def _arm(self) -> None:
        """Set the timer for the next check that is due."""
        if self._closed:
            return
        due = self._schedule.next_due
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if due == inf else self._loop.call_at(due, self._turn)

    def _turn(self) -> None:
        """Start what is due and has a place. It is the heart of the engine: a fault in it must not stop it."""
        try:
            self._schedule.collect(self._now())
            while not self._closed and (taken := self._schedule.take()) is not None:
                self._start(*taken)
        except Exception:
            _log.exception("starting health checks failed")
        self._arm()

    def _start(self, watched: Watched, kind: int) -> None:
        task = self._loop.create_task(self._check(watched, watched.agent), name="health check")
        watched.task = task
        if watched.waiting is None:
            watched.waiting = self._loop.create_future()
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._ended(watched, task, kind))

    def _ended(self, watched: Watched, task: asyncio.Task[None], kind: int) -> None:
        self._tasks.discard(task)
        self._schedule.give(kind)
        if watched.task is task:
            watched.task = None
            _release(watched)
            self._schedule.again(watched, self._now())
        if not self._closed:
            self._turn()

    async def _check(self, watched: Watched, agent: Agent) -> None:
        began = self._now()
        try:
            if watched.target is None:
                watched.target = target_of(
                    agent,
                    bearer_env=self._credentials.get(agent.agent_id),
                    verified=self._rules.verified,
                    probe_seconds=self._rules.probe_seconds,
                )
            [result] = await self._engine.run([watched.target])
            if self._registry.resolve(agent.agent_id) is agent and watched.agent is agent:
                self._conclude(watched, result, self._now() - began)
        except Exception:  # the edge: one agent's fault must not stop the checking of the others
            _log.exception("the health check of agent %s failed", agent.agent_id)

    def _conclude(self, watched: Watched, result: Result, seconds: float) -> None:
        now = self._now()
        status, routing = watched.status, watched.routing
        watched.take(result, judge(result, evict_unhealthy=self._rules.evict_unhealthy), now, self._timestamp())
        self._judging = watched
        try:
            watched.admission.apply(watched.evidence or Evidence.IMPAIRED, now)
        finally:
            self._judging = None
        watched.remember(seconds)
        self._measure(result)
        if status is not result.status or routing is not watched.routing:
            self._publish(watched, status, routing)
        if watched.admission.state.downs == FALL - 1:
            self._ask_others(watched)
        if watched.evidence is Evidence.DOWN or self.suspects_itself:
            self._doubt(self._most_fail())

    def _measure(self, result: Result) -> None:
        for check, finding in result.checks.items():
            if finding.measured is not None:
                self._metrics.check_seconds(check.value, finding.measured.timings_ms.get("total", 0.0) / 1000)

    # -- routing

    def _moved(self, watched: Watched, before: State) -> None:
        """The effective state of an agent has changed: by a check, by callers' calls, or by a trial call."""
        judging = self._judging is watched
        out = watched.routing is Routing.OUT_OF_SERVICE
        because = "check" if judging else "calls" if out else "trial"
        change = Transition(self._timestamp(), before.routing.value, watched.routing.value, because)
        watched.last_transition = change
        agent_id = watched.agent.agent_id
        self._metrics.cells(agent_id).transition(change.before, change.after)
        fields = {
            "agent": agent_id,
            "from": change.before,
            "to": change.after,
            "because": because,
            "status": watched.status.value,
            "code": watched.code or "",
        }
        loud = out or before.routing is Routing.OUT_OF_SERVICE
        _log.log(logging.WARNING if loud else logging.INFO, "agent routing changed", extra={"fields": fields})
        if not judging:  # no result follows: tell now, and look at it soon
            self._publish(watched, watched.status, before.routing)
            self._schedule.hurry(watched, self._now())
            self._loop.call_soon(self._turn)

    def _publish(self, watched: Watched, status: Status, routing: Routing) -> None:
        data: dict[str, Any] = {
            "agent_id": watched.agent.agent_id,
            "status": watched.status.value,
            "routing": watched.routing.value,
            "previous_status": status.value,
            "previous_routing": routing.value,
            "at": self._timestamp(),
        }
        self._events.publish("health", data)

    # -- self-doubt

    def _must_hold(self, watched: Watched) -> bool:
        """Ask before an agent is taken out: is it the agent, or are we cut off?

        Those asked since its first failure know more of a sudden cut than those asked within two intervals.
        """
        self._doubt(self._most_fail() or self._most_fail_since(watched.down_since))
        return self.suspects_itself

    def _most_fail(self) -> bool:
        """Whether more than half of the agents heard of within two intervals are failing."""
        now = self._now()
        since = now - 2 * self._rules.interval
        for one in self._agents.values():
            one.admission.traffic.look(now)
        return _more_than_half([one for one in self._agents.values() if one.checked >= since or one.failing])

    def _most_fail_since(self, since: float) -> bool:
        return _more_than_half([one for one in self._agents.values() if one.checked >= since])

    def _doubt(self, doubt: bool) -> None:
        if doubt is self.suspects_itself:
            return
        self.suspects_itself = doubt
        self._events.publish("suspicion", {"suspects_itself": doubt, "at": self._timestamp()})
        if doubt:
            _log.error(
                "more than half of the agents fail: the gateway suspects its own network, name resolution or load;"
                " no agent is taken out of service until that is over"
            )
        else:
            _log.warning("the gateway trusts its health checks again")

    def _ask_others(self, watched: Watched) -> None:
        """Before a third failure: what do agents say that have not been asked since the first?"""
        if self.suspects_itself or len(self._agents) < _ENOUGH:
            return
        others = (one for one in self._agents.values() if not one.failing and one.checked < watched.down_since)
        now = self._now()
        for one in nsmallest(_WITNESSES, others, key=lambda one: one.checked):
            self._schedule.hurry(one, now)


def _more_than_half(heard: list[Watched]) -> bool:
    return len(heard) >= _ENOUGH and sum(one.failing for one in heard) * 2 > len(heard)


def _release(watched: Watched) -> None:
    """Tell those who wait for a check that there will be none, or that it is over."""
    waiting, watched.waiting = watched.waiting, None
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
