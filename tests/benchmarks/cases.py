"""The table of scenarios: which processes are measured, and what is done to them.

A group's processes run side by side for all of its cases; one repeat visits every (case, subject) pair
of the group once, in shuffled order. A case is a name, its subjects and a function that measures one
subject once and returns named numbers; a new scenario is a new line in GROUPS.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from tests.benchmarks import client, cluster_cases, load, payloads, processes, stream_cases, subjects
from tests.benchmarks.processes import BenchError, Meter
from tests.benchmarks.subjects import AGENTS, Bench, numbered

Metrics = dict[str, float]
#: Measures one subject, given by name, once. Raises BenchError when an answer was wrong.
Measure = Callable[[Bench, str], Metrics]

PROXIES = ("nginx", "envoy", "reference", "vitalgate")
NATIVE = ("nginx", "envoy", "vitalgate")
WITH_DIRECT = ("direct", *NATIVE)
SCRAPES = 5
#: Until every agent has had its first check; and half of the 30 s between two of the same agent, over which the
#: checks of all are spread.
SETTLE_SECONDS, CHECKED_SECONDS = 30.0, 15.0
NODES = ("nodes",)
IN_PROCESS = ("core", "whole", "stream")


@dataclass(frozen=True, slots=True)
class Case:
    """One scenario."""

    name: str
    about: str
    subjects: tuple[str, ...]
    measure: Measure


@dataclass(frozen=True, slots=True)
class Group:
    """Cases that share processes; `cold` ones start their own."""

    name: str
    cases: tuple[Case, ...]
    cold: bool = False
    #: Fewer repeats than the others, where a number hardly varies or takes long.
    at_most: int | None = None
    #: Only when asked for by name.
    extra: bool = False


def calls(
    connections: int,
    *,
    agents: tuple[str, ...] = ("bench",),
    request: int = payloads.SMALL_REQUEST,
    response: int = payloads.SMALL_RESPONSE,
) -> Measure:
    """A window of calls over keep-alive connections: CPU per call first, then throughput and latency."""

    def measure(bench: Bench, name: str) -> Metrics:
        return _window(bench, name, list(agents), connections, request, response)

    return measure


def calls_to_ten(connections: int) -> Measure:
    """The same, the calls spread over ten of the numbered agents that the subject has registered."""

    def measure(bench: Bench, name: str) -> Metrics:
        registered = bench.many_agents if name == "vitalgate-many" else subjects.FEW
        ids = [numbered(index * registered // subjects.FEW) for index in range(subjects.FEW)]
        return _window(bench, name, ids, connections, payloads.SMALL_REQUEST, payloads.SMALL_RESPONSE)

    return measure


def _window(bench: Bench, name: str, agents: list[str], connections: int, request: int, response: int) -> Metrics:
    subject = bench.running[name]
    direct = subject.process is bench.agent
    subject.process.forget_log()
    meter = Meter(subject.process)
    window = load.run(
        subject.port,
        [AGENTS[agent] for agent in agents] if direct else [f"/a2a/{agent}" for agent in agents],
        request=bench.folder / f"request-{request}",
        expected=bench.folder / f"response-{response}",
        connections=connections,
        seconds=bench.window_seconds,
        core=bench.load_core,
        token=subject.token,
    )
    used = meter.read()
    if window.complaint:
        raise BenchError(window.complaint)
    return {
        "cpu_us": used.cpu / window.answers * 1e6,
        "rps": window.answers / window.seconds,
        "p50_us": window.p50_us,
        "p99_us": window.p99_us,
        "pss_mb": subject.process.pss_mb(),
        # How long the process was kept waiting for its core: the noise of this window. (The agent shares
        # its core with the load, so for `direct` it means nothing.)
        "waited": 0.0 if direct else used.waited,
    }


def streams(scenario: stream_cases.Scenario) -> Measure:
    """A scenario of streams (stream_cases.py) with a process that is running."""
    return lambda bench, name: stream_cases.run(scenario, bench, bench.streaming(name))


def fresh_streams(scenario: stream_cases.Scenario) -> Measure:
    """The same with a fresh process, whose memory has not been used by anything else."""

    def measure(bench: Bench, name: str) -> Metrics:
        subject = bench.start(name)
        try:
            return stream_cases.run(scenario, bench, subject)
        finally:
            bench.stop(subject)

    return measure


def start(bench: Bench, name: str) -> Metrics:
    """From the start of the process to its first correct answer to a proxied call, and memory then."""
    begin = time.perf_counter()
    subject = bench.start(name)
    seconds = time.perf_counter() - begin
    try:
        return {"start_s": seconds, "pss_mb": subject.process.pss_mb()}
    finally:
        bench.stop(subject)


def in_process(bench: Bench, name: str) -> Metrics:
    """Our code without the kernel (inprocess.py), in a process of its own."""
    return on_core_alone(name, bench.test_core)


def on_core_alone(kind: str, core: int) -> Metrics:
    """Run the in-process bench of this kind on a core; its cost per call."""
    command = [sys.executable, "-m", "tests.benchmarks.inprocess", kind]
    done = processes.on_core(
        core,
        lambda: subprocess.run(command, capture_output=True, cwd=subjects.ROOT, timeout=60, check=False),
    )
    if done.returncode:
        raise BenchError(f"the in-process bench failed: {done.stderr[-1000:].decode(errors='replace')}")
    metrics: Metrics = json.loads(done.stdout)
    return metrics


def command_help(bench: Bench, name: str) -> Metrics:
    """Wall time of `vitalgate --help`."""
    command = [str(Path(sys.executable).with_name("vitalgate")), "--help"]
    begin = time.perf_counter()
    done = processes.on_core(
        bench.test_core, lambda: subprocess.run(command, capture_output=True, timeout=30, check=False)
    )
    seconds = time.perf_counter() - begin
    if done.returncode or b"Usage" not in done.stdout:
        raise BenchError(f"`vitalgate --help` failed: {(done.stderr or done.stdout)[-300:]!r}")
    return {"help_s": seconds}


def scrape(bench: Bench, name: str) -> Metrics:
    """GET /metrics with 1,000 agents that have been called: CPU, time, and the longest stall of calls."""
    subject, expected = bench.running[name], payloads.response()
    with closing(client.connect(subject.port)) as caller:
        for number in range(subjects.METRICS_AGENTS):
            client.checked_call(caller, f"/a2a/{numbered(number)}", expected)
    with closing(client.connect(subject.metrics_port)) as scraper:
        client.scrape(scraper, subjects.METRICS_AGENTS)
        cpu, begin = subject.process.cpu_seconds(), time.perf_counter()
        for _ in range(SCRAPES):
            client.scrape(scraper, subjects.METRICS_AGENTS)
        wall = (time.perf_counter() - begin) / SCRAPES
        cpu = (subject.process.cpu_seconds() - cpu) / SCRAPES
        with client.probing(subject.port, "/a2a/bench", expected) as stalls:
            for _ in range(SCRAPES):
                client.scrape(scraper, subjects.METRICS_AGENTS)
                time.sleep(0.02)
    return {"scrape_cpu_ms": cpu * 1000, "scrape_ms": wall * 1000, "stall_ms": stalls.longest_ms}


def checks(bench: Bench, name: str) -> Metrics:
    """The share of a core that the health checks of many agents take, with nothing else to do."""
    subject = bench.running[name]
    time.sleep(SETTLE_SECONDS)
    meter = Meter(subject.process)
    time.sleep(CHECKED_SECONDS)
    used = meter.read()
    return {"core": used.cpu / used.wall, "pss_mb": subject.process.pss_mb()}


GROUPS: tuple[Group, ...] = (
    Group(
        "start",
        (Case("start", "process start to the first proxied answer", PROXIES, start),),
        cold=True,
        at_most=3,
    ),
    Group("help", (Case("help", "`vitalgate --help`", ("vitalgate",), command_help),), cold=True),
    Group(
        "in-process",
        (Case("in-process", "the call without the kernel", IN_PROCESS, in_process),),
        cold=True,
    ),
    Group(
        "calls",
        (
            Case("calls-c1", "calls, 1 connection", WITH_DIRECT, calls(1)),
            Case("calls-c8", "calls, 8 connections", ("vitalgate",), calls(8)),
            Case("calls-c32", "calls, 32 connections", PROXIES, calls(32)),
            Case("calls-c128", "calls, 128 connections", ("vitalgate",), calls(128)),
            Case("request-100k", "100 KB request, 8 connections", NATIVE, calls(8, request=payloads.LARGE)),
            Case(
                "response-100k",
                "100 KB response, 8 connections",
                NATIVE,
                calls(8, agents=("bench-large",), response=payloads.LARGE),
            ),
        ),
    ),
    Group(
        "streams",
        (
            Case("stream-paced", "100 streams, an event each 100 ms", WITH_DIRECT, streams(stream_cases.paced)),
            Case("stream-burst", "32 streams, events as they come", NATIVE, streams(stream_cases.burst)),
        ),
    ),
    Group(
        "stream-memory",
        (
            Case("stream-idle", "5,000 silent streams", ("envoy", "vitalgate"), fresh_streams(stream_cases.idle)),
            Case("stream-waves", "three waves of 3,000", ("vitalgate",), fresh_streams(stream_cases.waves)),
        ),
        cold=True,
        at_most=2,
    ),
    Group(
        "soak",
        (
            Case(
                "soak", "5,000 streams of 500 agents for 60 s, calls beside them", ("vitalgate",),
                fresh_streams(stream_cases.soak),
            ),
        ),
        cold=True,
        at_most=1,
        extra=True,
    ),
    Group("log", (Case("log", "one log line per call, or none", ("vitalgate", "vitalgate-nolog"), calls(32)),)),
    Group("auth", (Case("auth", "callers show a token, or none", ("vitalgate", "vitalgate-jwt"), calls(32)),)),
    Group(
        "checks",
        (Case("checks", "health checks of 1,000 agents every 30 s", ("vitalgate-checks",), checks),),
        at_most=1,
    ),
    Group(
        "agents",
        (
            Case(
                "agents", "10 agents called, of 10 or of many", ("vitalgate-few", "vitalgate-many"),
                calls_to_ten(32),
            ),
        ),
        at_most=3,
    ),
    Group(
        "stores",
        (Case("stores", "one node on SQLite, or on Redis", ("vitalgate-sqlite", "vitalgate-redis"), calls(32)),),
    ),
    Group(
        "cluster",
        (Case("cluster", "two nodes, 10,000 agents and their heartbeats", NODES, cluster_cases.measure),),
        cold=True,
        at_most=2,
    ),
    Group("scrape", (Case("scrape", "/metrics with 1,000 agents", ("vitalgate-metrics",), scrape),)),
)  # fmt: skip


def select(wanted: list[str], only: list[str]) -> list[Group]:
    """The groups and cases of these names (all without any), cut down to the subjects in `only`."""
    known = {group.name for group in GROUPS} | {case.name for group in GROUPS for case in group.cases}
    unknown = sorted(set(wanted) - known)
    if unknown:
        raise BenchError(f"no scenario {', '.join(unknown)}; there are: {', '.join(sorted(known))}")
    names = [*subjects.START, *IN_PROCESS, *NODES]
    unknown = sorted(set(only) - {*names})
    if unknown:
        raise BenchError(f"no subject {', '.join(unknown)}; there are: {', '.join(names)}")
    chosen = []
    for group in GROUPS:
        if group.extra and not {group.name, *(case.name for case in group.cases)} & set(wanted):
            continue
        cases = [case for case in group.cases if not wanted or {case.name, group.name} & set(wanted)]
        cases = [_narrowed(case, only) for case in cases]
        cases = [case for case in cases if case.subjects]
        if cases:
            chosen.append(replace(group, cases=tuple(cases)))
    return chosen


def _narrowed(case: Case, only: list[str]) -> Case:
    kept = tuple(name for name in case.subjects if not only or name in only)
    return Case(case.name, case.about, kept, case.measure)
