"""What is done to a process under test with streams, one function per scenario.

The bench's own process is the load: it is pinned to the core that load and agent share.
"""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from statistics import median
from typing import Any

import uvloop

from tests.benchmarks import client, load, payloads
from tests.benchmarks.processes import BenchError, Meter
from tests.benchmarks.stream_load import Caller, Load
from tests.benchmarks.subjects import AGENTS, STREAM_PATH, Bench, Subject, numbered

Metrics = dict[str, float]

PACED, EVERY_SECONDS = 100, 0.1
BURST, BURST_EVENTS = 32, 1000
SETTLE_SECONDS = 0.5
#: Longer than any run: a stream that is silent after its first event.
SILENT = 100_000.0
WAVES = 3
SOAK_AGENTS, SOAK_SECONDS, SOAK_EVERY_SECONDS = 500, 60.0, 5.0
SOAK_CALLS, SOAK_CALL_SECONDS, SOAK_PAUSE_SECONDS, SOAK_ALONE = 8, 2, 3.0, 3
PATIENCE_SECONDS = 30.0

#: What one scenario does with the load and the subject.
Scenario = Callable[[Bench, Subject, Load], Coroutine[Any, Any, Metrics]]


def run(scenario: Scenario, bench: Bench, subject: Subject) -> Metrics:
    """Run a scenario; BenchError when anything but the expected bytes came."""

    async def main() -> Metrics:
        caller = Load(subject.port)
        try:
            metrics = await scenario(bench, subject, caller)
        finally:
            await caller.leave()
        caller.check()
        return metrics

    subject.process.forget_log()
    gc.collect()
    gc.disable()  # the load must not stand still
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())
    finally:
        gc.enable()


async def paced(bench: Bench, subject: Subject, caller: Load) -> Metrics:
    """Many streams with an event now and then: CPU per event, and how long an event takes."""
    count = int((SETTLE_SECONDS + bench.window_seconds) / EVERY_SECONDS) + 5
    await caller.open([_path(subject)] * PACED, count, EVERY_SECONDS)
    await asyncio.sleep(SETTLE_SECONDS)
    meter, seen = Meter(subject.process), len(caller.latencies)
    await asyncio.sleep(bench.window_seconds)
    used = meter.read()
    latencies = sorted(caller.latencies[seen:])
    await caller.whole(PATIENCE_SECONDS)
    return {
        "event_us": used.cpu / len(latencies) * 1e6,
        "events_s": len(latencies) / used.wall,
        "p50_us": latencies[len(latencies) // 2] / 1000,
        "p99_us": latencies[len(latencies) * 99 // 100] / 1000,
        "waited": 0.0 if subject.name == "direct" else used.waited,
    }


async def burst(bench: Bench, subject: Subject, caller: Load) -> Metrics:
    """Streams one after the other over some connections, their events as fast as they come."""
    callers = [await caller.connect() for _ in range(BURST)]
    meter = Meter(subject.process)
    loop = asyncio.get_running_loop()
    end = loop.time() + bench.window_seconds

    async def one(connection: Caller) -> None:
        while loop.time() < end and caller.failure is None:
            connection.begin(_path(subject), BURST_EVENTS, 0)
            await connection.ended

    running = asyncio.gather(*map(one, callers))
    await asyncio.sleep(bench.window_seconds)
    seen, used = caller.events, meter.read()
    await asyncio.wait_for(running, PATIENCE_SECONDS)
    caller.check()
    return {
        "event_us": used.cpu / max(seen, 1) * 1e6,
        "events_s": seen / used.wall,
        "busy": used.cpu / used.wall,
        "waited": 0.0 if subject.name == "direct" else used.waited,
    }


async def idle(bench: Bench, subject: Subject, caller: Load) -> Metrics:
    """Open streams that have had one event and are silent: memory of each, and CPU to open it."""
    await _warm(subject)
    before, meter = subject.process.pss_mb(), Meter(subject.process)
    await caller.open([_path(subject)] * bench.streams, 2, SILENT)
    cpu = meter.read().cpu
    await asyncio.sleep(SETTLE_SECONDS)
    after = subject.process.pss_mb()
    return {
        "stream_kb": (after - before) * 1000 / bench.streams,
        "open_us": cpu / bench.streams * 1e6,
        "pss_mb": after,
    }


async def waves(bench: Bench, subject: Subject, caller: Load) -> Metrics:
    """Waves of streams that their callers leave: does memory grow, is anything left open to the agent?"""
    opened: list[float] = []
    closed: list[float] = []
    left = 0
    for _ in range(WAVES):
        await caller.open([_path(subject)] * (bench.streams * 3 // 5), 2, SILENT)
        opened.append(subject.process.pss_mb())
        await caller.leave()
        await asyncio.sleep(1)
        left = max(left, client.open_streams(bench.stream_port))
        closed.append(subject.process.pss_mb())
    return {
        "growth": max(opened[-1] / opened[-2], closed[-1] / closed[-2]),
        "left": left,
        "pss_mb": closed[-1],
    }


async def soak(bench: Bench, subject: Subject, caller: Load) -> Metrics:
    """Many streams of many agents for a minute: whole, no memory gained, and calls beside them as before."""
    agents = [numbered(number) for number in range(SOAK_AGENTS)]
    client.register(subject.port, dict.fromkeys(agents, f"http://127.0.0.1:{bench.stream_port}/"))
    await _warm(subject)
    before = [await _calls(bench, subject, 0.0) for _ in range(SOAK_ALONE)]
    alone = {name: median(one[name] for one in before) for name in before[0]}
    count = int(SOAK_SECONDS / SOAK_EVERY_SECONDS) + 1
    paths = [f"/a2a/{agents[number % SOAK_AGENTS]}" for number in range(bench.streams)]
    await caller.open(paths, count, SOAK_EVERY_SECONDS)
    loop = asyncio.get_running_loop()
    end, sizes, beside = loop.time() + SOAK_SECONDS - 2 * SOAK_EVERY_SECONDS, [], []
    begin, meter = caller.events, Meter(subject.process)
    while loop.time() < end:
        quiet = Meter(subject.process)
        await asyncio.sleep(SOAK_PAUSE_SECONDS)
        sizes.append(subject.process.pss_mb())
        used = quiet.read()
        beside.append(await _calls(bench, subject, used.cpu / used.wall))
    events_s = (caller.events - begin) / meter.read().wall
    await caller.whole(SOAK_SECONDS)
    return {
        "cpu_us": median(one["cpu_us"] for one in beside),
        "p99_us": median(one["p99_us"] for one in beside),
        "beside": median(one["cpu_us"] for one in beside) / alone["cpu_us"],
        "beside_p99": median(one["p99_us"] for one in beside) / alone["p99_us"],
        "events_s": events_s,
        # The first look is after the streams have settled, the last before they end.
        "growth": sizes[-1] / sizes[1],
        "pss_mb": sizes[-1],
    }


def _path(subject: Subject) -> str:
    return "/" if subject.name == "direct" else STREAM_PATH


async def _calls(bench: Bench, subject: Subject, streams_cpu: float) -> Metrics:
    """A window of calls; CPU per call without the share of a core that the streams take."""
    meter = Meter(subject.process)
    window = await asyncio.to_thread(
        load.run,
        subject.port,
        [f"/a2a/{agent}" for agent in AGENTS if AGENTS[agent] == "/"],
        request=bench.folder / f"request-{payloads.SMALL_REQUEST}",
        expected=bench.folder / f"response-{payloads.SMALL_RESPONSE}",
        connections=SOAK_CALLS,
        seconds=SOAK_CALL_SECONDS,
        core=bench.load_core,
    )
    used = meter.read()
    if window.complaint:
        raise BenchError(window.complaint)
    return {"cpu_us": (used.cpu - streams_cpu * used.wall) / window.answers * 1e6, "p99_us": window.p99_us}


async def _warm(subject: Subject) -> None:
    """One whole stream: what the first one costs is none of the others' business."""
    caller = Load(subject.port)
    await caller.open([_path(subject)], 10, 0)
    await caller.whole(PATIENCE_SECONDS)
    await caller.leave()
