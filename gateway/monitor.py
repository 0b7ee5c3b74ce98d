"""Registry × health engine: which agents are checked, and what a verdict does to routing (health contract 7).

Runs on the event loop. What the proxied path needs stands in each agent's `Admission`; everything else is here,
off that path.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from math import inf
from random import Random
from typing import Final

import httpx

from gateway.admission import UNWATCHED, Admission
from gateway.doubt import Doubt
from gateway.events import Events
from gateway.health_rules import HealthRules
from gateway.metrics import Metrics
from gateway.schedule import FIRST_SECONDS, Pace, Schedule
from gateway.sharing import Alone, Sharing
from gateway.transitions import Transitions
from gateway.watched import Transition, Watched, target_of
from healthcheck.adapters.registered import REGISTERED, RegisteredTarget
from healthcheck.engine import Engine
from healthcheck.model import Result, Status
from healthcheck.state import FALL, Evidence, Routing, State, judge
from registry.agent import Agent
from registry.clock import Clock
from registry.registry import Kind, Registry

#: Agents whose node is gone are checked within this time, but no more than so many in a second.
_SOON_SECONDS: Final = 5.0
_SOON_RATE: Final = 200

_log = logging.getLogger(__name__)


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
        sharing: Sharing | None = None,
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
            sharing: The other nodes, if there are any.
            clock: For timestamps; the schedule follows the loop's clock.
            random: For jitter.
        """
        self._registry = registry
        self._metrics = metrics
        self._rules = rules
        self._credentials = credentials
        self._sharing = sharing or Alone()
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
        self._transitions = Transitions(metrics, events, self._timestamp)
        self._doubt = Doubt(self._agents, events, self._timestamp)
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
            watched.release()
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
                self._plan(watched, rules.interval if other_pace else FIRST_SECONDS)
        self._turn()

    # -- what others ask

    def admission(self, agent_id: str) -> Admission:
        """Give the admission of an agent, for the proxied path."""
        watched = self._agents.get(agent_id)
        return UNWATCHED if watched is None else watched.admission

    def find(self, agent_id: str) -> Watched | None:
        """Give what is known of a live agent."""
        return self._agents.get(agent_id) if self._registry.resolve(agent_id) is not None else None

    async def look_up(self, agent_id: str) -> Watched | None:
        """The same, after asking the store where the agent may have been registered at another node just now."""
        await self._registry.find(agent_id)
        return self.find(agent_id)

    def known(self, agent_id: str) -> Watched | None:
        """Give what is known of an agent, expired or not."""
        return self._agents.get(agent_id)

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
    def rules(self) -> HealthRules:
        """The settings in force."""
        return self._rules

    @property
    def running(self) -> int:
        """Checks under way."""
        return self._schedule.running

    @property
    def share(self) -> int:
        """How many agents this node checks."""
        return sum(one.due != inf or one.task is not None for one in self._agents.values())

    @property
    def suspects_itself(self) -> bool:
        """Whether so many agents fail that it is more likely this node."""
        return self._doubt.suspects_itself

    async def check(self, agent_id: str) -> Watched | None:
        """Check now, or share the check that runs; None if there is no such agent (any more)."""
        watched = await self.look_up(agent_id)
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
            watched.replace(agent)
            self._drop(watched)
            self._sharing.begun(watched)
            self._plan(watched)

    def _watch(self, agent: Agent, within: float = FIRST_SECONDS) -> None:
        watched = Watched(agent, UNWATCHED)
        watched.admission = Admission(
            self._now(),
            enforce=self._rules.enforce,
            trial_seconds=self._rules.trial,
            hold=lambda: self._doubt.must_hold(watched, self._now(), self._recently()),
            changed=lambda before: self._moved(watched, before),
            tried=lambda: self._sharing.tried(watched),
            failed=lambda: self._sharing.failed(watched),
            ask=self._sharing.ask(watched),
        )
        self._agents[agent.agent_id] = watched
        self._sharing.begun(watched)
        self._plan(watched, within)

    def _plan(self, watched: Watched, within: float = FIRST_SECONDS) -> None:
        """Have it checked within a time, if it is for this node to do so or somebody here waits for it."""
        if watched.waiting is not None or self._sharing.mine(watched.agent.agent_id):
            self._schedule.first(watched, self._now(), within)

    def _forget(self, agent_id: str) -> None:
        watched = self._agents.pop(agent_id, None)
        if watched is not None:
            self._schedule.forget(watched)
            self._drop(watched)
            watched.release()
            self._sharing.gone(watched)

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
            watched.release()
            if self._sharing.mine(watched.agent.agent_id):
                self._schedule.again(watched, self._now())
            else:
                self._schedule.forget(watched)
        if not self._closed:
            self._turn()

    async def _check(self, watched: Watched, agent: Agent) -> None:
        began = self._now()
        try:
            [result] = await self._engine.run([self._target(watched)])
            if self._registry.resolve(agent.agent_id) is agent and watched.agent is agent:
                self._conclude(watched, result, self._now() - began)
        except Exception:  # the edge: one agent's fault must not stop the checking of the others
            _log.exception("the health check of agent %s failed", agent.agent_id)

    def _target(self, watched: Watched) -> RegisteredTarget:
        """Give what the checks of an agent look at, made if need be."""
        if watched.target is None:
            watched.target = target_of(
                watched.agent,
                bearer_env=self._credentials.get(watched.agent.agent_id),
                verified=self._rules.verified,
                probe_seconds=self._rules.probe_seconds,
                notes=watched.notes,
            )
        return watched.target

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
            self._transitions.publish(watched, status, routing)
        self._sharing.ran(watched, routing)
        if watched.admission.state.downs == FALL - 1:
            for one in self._doubt.witnesses(watched, self._sharing.mine):
                self._schedule.hurry(one, now)
        if watched.evidence is Evidence.DOWN or self.suspects_itself:
            self._doubt.look(now, self._recently())

    def _measure(self, result: Result) -> None:
        for check, finding in result.checks.items():
            if finding.measured is not None:
                self._metrics.check_seconds(check.value, finding.measured.timings_ms.get("total", 0.0) / 1000)

    def _recently(self) -> float:
        """Since when a result says something of now."""
        return self._now() - 2 * self._rules.interval

    # -- routing

    def _moved(self, watched: Watched, before: State) -> None:
        """The effective state of an agent has changed: by a check, by callers' calls, or by a trial call."""
        judging = self._judging is watched
        by_calls = "calls" if watched.routing is Routing.OUT_OF_SERVICE else "trial"
        self._transitions.moved(watched, before.routing, "check" if judging else by_calls)
        if not judging:  # no result follows: tell now, and look at it soon
            self._transitions.publish(watched, watched.status, before.routing)
            self._sharing.moved(watched, before.routing)
            self._hurry(watched)

    def _hurry(self, watched: Watched) -> None:
        if self._sharing.mine(watched.agent.agent_id):
            self._schedule.hurry(watched, self._now())
            self._loop.call_soon(self._turn)

    # -- other nodes

    def adopted(
        self, watched: Watched, status: Status, routing: Routing, change: Transition | None, node: str
    ) -> None:
        """What another node has found was taken over; `status` and `routing` are those before."""
        moved = routing is not watched.routing
        if moved and change is not None:
            self._transitions.heard(watched, change, node)
            if change.because != "check":
                self._hurry(watched)
        if moved or status is not watched.status:
            self._transitions.publish(watched, status, routing)
        if self.suspects_itself:
            self._doubt.look(self._now(), self._recently())

    def reshare(self, *, lost: bool) -> None:
        """The agents are shared out anew; `lost`: some have nobody who checks them."""
        mine = [one for agent_id, one in self._agents.items() if self._sharing.mine(agent_id)]
        new = [one for one in mine if one.due == inf and one.task is None]
        within = max(_SOON_SECONDS, len(new) / _SOON_RATE) if lost else self._rules.interval
        for watched in new:
            self._schedule.first(watched, self._now(), within)
        kept = {id(one) for one in mine}
        for watched in self._agents.values():
            if id(watched) not in kept and watched.waiting is None:
                self._schedule.forget(watched)
        self._turn()
