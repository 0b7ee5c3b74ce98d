"""The engine: order, gates, deadlines, retries and concurrency (health contract 2).

It takes its HTTP transport, its environment and its clock from outside, and knows no adapter by name.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence

import httpx

from healthcheck.adapters import ADAPTERS, Adapter, Session
from healthcheck.exchange import Ask, Evidence, send
from healthcheck.graph import summarise
from healthcheck.model import (
    PASSED,
    Check,
    DependencyResult,
    Finding,
    Result,
    Status,
    Target,
    fault,
    worst,
)
from healthcheck.plan import OMITTED_AFTER, planned, requested
from healthcheck.trace import Trace
from healthcheck.url import Url, UrlError, parse_url

MAX_PROBES = 16
RUN_SECONDS = 60.0
_TOKEN = re.compile(r"[!-~]+")
_OUT_OF_TIME = frozenset({"not_probed", "budget_exhausted"})

_log = logging.getLogger(__name__)


class Engine:
    """Runs checks. One engine may serve many runs at once; `concurrency` holds over all of them."""

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport,
        *,
        environ: Mapping[str, str],
        concurrency: int = MAX_PROBES,
        run_seconds: float = RUN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        adapters: Mapping[str, Adapter] = ADAPTERS,
    ) -> None:
        self.transport = transport
        self.adapters = adapters
        self.environ = environ
        self.slots = asyncio.Semaphore(concurrency)
        self.run_seconds = run_seconds
        self.clock = clock

    async def run(self, targets: Sequence[Target], done: Callable[[Result], None] | None = None) -> list[Result]:
        """Check the targets and all they depend on; results in the order given, `done` as each ends."""
        async with asyncio.TaskGroup() as tasks:
            run = _Run(self, tasks, done)
            roots = [run.start(target) for target in targets]
        return [root.result() for root in roots]


class _Run:
    """One run: its end, and the nodes already started (a node with an id runs once and is shared)."""

    def __init__(self, engine: Engine, tasks: asyncio.TaskGroup, done: Callable[[Result], None] | None) -> None:
        self.engine = engine
        self.ends = engine.clock() + engine.run_seconds
        self._tasks = tasks
        self._done = done
        self._shared: dict[int, asyncio.Task[Result]] = {}

    def start(self, target: Target) -> asyncio.Task[Result]:
        if target.id is None:
            return self._tasks.create_task(self._node(target))
        if id(target) not in self._shared:
            self._shared[id(target)] = self._tasks.create_task(self._node(target))
        return self._shared[id(target)]

    async def _node(self, target: Target) -> Result:
        below = [(one, self.start(one.target)) for one in target.dependencies]
        probe = Probe(self.engine, target, self.ends)
        findings = await probe.examine()
        dependencies = [DependencyResult(await task, one.critical, one.relationship) for one, task in below]
        result = _conclude(target, probe, findings, tuple(dependencies))
        if self._done:
            self._done(result)
        return result


def _conclude(
    target: Target,
    probe: Probe,
    findings: dict[Check, Finding],
    dependencies: tuple[DependencyResult, ...],
) -> Result:
    summary = summarise(dependencies)
    nothing_asked = target.checks == ()
    wanted = Check.DEPENDENCY in probe.requested or (dependencies and summary.status is not Status.HEALTHY)
    if wanted and not nothing_asked and not OMITTED_AFTER[Check.DEPENDENCY] & probe.failed:
        findings[Check.DEPENDENCY] = summary
    own = worst(finding.status for finding in findings.values())
    status = worst([own, summary.status])
    return Result(target, status, findings, probe.latency_ms, dependencies)


class Probe:
    """One target run: the evidence gathered, and the time left for it."""

    def __init__(self, engine: Engine, target: Target, ends: float) -> None:
        self._engine = engine
        self._target = target
        self._ends = ends
        self._budget = target.budget_ms / 1000
        self._adapter: Adapter | None = engine.adapters.get(target.type)
        self._session: Session | None = None
        self._evidence: dict[str, Evidence] = {}
        self.requested = requested(target, self._adapter)
        self.failed: set[Check] = set()
        self.latency_ms: float | None = None

    async def examine(self) -> dict[Check, Finding]:
        """Run the checks in their order; a gate that was not asked for shows only if it fails."""
        shown: dict[Check, Finding] = {}
        for check in planned(self.requested, self._adapter):
            if OMITTED_AFTER[check] & self.failed:
                continue
            finding = await self._judge(check)
            if not finding.status.passing:
                self.failed.add(check)
            if check in self.requested or check in self.failed:
                shown[check] = finding
        return shown

    async def _judge(self, check: Check) -> Finding:
        try:
            if check is Check.CONFIGURATION:
                return self._configure()
            if check is Check.LATENCY:
                return self._judge_latency()
            return await self._judge_evidence(check)
        except Exception as error:  # an adapter's fault says nothing about the peer
            _log.error("check %s of type %s failed: %s", check, self._target.type, type(error).__name__)
            return fault("adapter_fault")

    def _configure(self) -> Finding:
        """Everything that can be judged without the network; opens the adapter's session."""
        target, adapter = self._target, self._adapter
        if adapter is None:
            return fault("type_unsupported")
        lacking = [check for check in Check if check in self.requested and check not in adapter.checks]
        if lacking:
            return fault("check_unsupported", subject=lacking[0])
        try:
            endpoint = parse_url(target.endpoint)
        except UrlError as error:
            return fault("endpoint_invalid", error.reason)
        bearer = self._engine.environ.get(target.bearer_env, "") if target.bearer_env is not None else None
        if bearer is not None and not _TOKEN.fullmatch(bearer):
            return fault("bearer_env", "unusable" if bearer else "unset", subject=target.bearer_env)
        return adapter.configuration(target, endpoint) or self._open(adapter, endpoint, bearer)

    def _open(self, adapter: Adapter, endpoint: Url, bearer: str | None) -> Finding:
        self._session = adapter.open(self._target, endpoint, bearer, self._evidence)
        return PASSED

    def _judge_latency(self) -> Finding:
        threshold = self._target.latency_ms
        slow = threshold is not None and self.latency_ms is not None and self.latency_ms > threshold
        return fault("latency") if slow else PASSED

    async def _judge_evidence(self, check: Check) -> Finding:
        session = self._session
        if session is None:
            return fault("adapter_fault")
        ask = session.ask(check)
        if ask is not None and ask.key not in self._evidence:
            await self._gather(check, ask)
        finding = session.judge(check)
        if check is not Check.REACHABILITY or ask is None:
            return finding
        measured = self._evidence[ask.key].measured
        if finding.status.passing:
            self.latency_ms = measured.timings_ms.get("total")
        return Finding(finding.status, finding.code, finding.reason, finding.subject, measured)

    async def _gather(self, check: Check, ask: Ask) -> None:
        """One attempt, and retries only where the peer cannot have noticed the one before."""
        evidence = self._evidence[ask.key] = await self._attempt(check, ask)
        delay = self._target.retry_delay_ms / 1000
        for _ in range(self._target.retries if ask.passive else 0):
            failure = evidence.failure
            if failure is None or failure.status is not Status.UNREACHABLE or evidence.first_byte:
                return
            if delay >= self._left:
                return
            await asyncio.sleep(delay)
            self._budget -= delay
            evidence = await self._attempt(check, ask)
            if evidence.failure is None or evidence.failure.code not in _OUT_OF_TIME:
                self._evidence[ask.key] = evidence  # a retry that had no time says less than what came before

    @property
    def _left(self) -> float:
        """Seconds of the target's budget and of the run."""
        return min(self._budget, self._ends - self._engine.clock())

    async def _attempt(self, check: Check, ask: Ask) -> Evidence:
        """Wait for a slot, which costs the target nothing, then make one exchange under a total deadline."""
        clock = self._engine.clock
        try:
            async with asyncio.timeout(max(0.0, self._ends - clock())):
                await self._engine.slots.acquire()
        except TimeoutError:
            return _failed(fault("not_probed"), Trace(clock))
        began = clock()
        try:
            return await self._exchange(check, ask)
        finally:
            self._budget -= clock() - began
            self._engine.slots.release()

    async def _exchange(self, check: Check, ask: Ask) -> Evidence:
        clock = self._engine.clock
        own = self._target.check_timeouts_ms.get(check, self._target.timeout_ms) / 1000
        left = self._left
        out_of_time = fault("budget_exhausted", "run_ended" if left < self._budget else None)
        trace = Trace(clock)
        if left <= 0:
            return _failed(out_of_time, trace)
        try:
            async with asyncio.timeout(min(own, left)):
                return await send(self._engine.transport, ask, trace)
        except TimeoutError:
            if left < own:
                return _failed(out_of_time, trace)
            return _failed(fault("deadline_partial" if trace.first_byte else "deadline"), trace)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # we ourselves are being stopped
            return _failed(fault("cancelled"), trace)


def _failed(finding: Finding, trace: Trace) -> Evidence:
    return Evidence(None, finding, trace.finish(finding.status), trace.first_byte)
