"""The soak: a gateway under bounded load for as long as you like, and what it keeps of it.

    .venv-bench/bin/python -m tests.benchmarks.soak --minutes 60

50 agents; calls of all kinds, faults and callers that leave among them; streams that end, break and are left;
agents that leave and come back elsewhere. Every few seconds memory, open files, threads and tasks of the
gateway are read. Flat means: the median of the last quarter is at most the median of the second quarter and a
little more (`FLAT`); the first quarter fills pools and caches. At the end the load stops, and what is left is
counted.

Exit code 0: flat, and every answer was to be expected; 1: otherwise. The load takes about a tenth of a core.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks import client, configs, processes, report, soak_agents
from tests.benchmarks.processes import Process

AGENTS = 50
CALLS_PER_SECOND, STREAMS_PER_SECOND, CHURN_SECONDS = 40.0, 4.0, 2.0
LARGEST = 200_000  # bytes of text
KEPT = 30  # connections that callers keep
SAMPLES, SETTLE_SECONDS, PATIENCE_SECONDS = 40, 8.0, 20.0
#: How much more the last quarter may have than the second one: a share, and a number.
FLAT = {"anon_mb": (0.03, 1.0), "files": (0.1, 10), "threads": (0.0, 1), "tasks": (0.1, 5)}
#: What may be left a moment after the load: files and tasks beside those of the start. Health checks go on, and
#: keep their connections for some seconds.
LEFT = {"files": 24, "tasks": 3}

#: What a caller asks for, how often, and which answers are right: the HTTP status, a member of the body.
WISHES: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("answer", 60, ("result",)),
    ("late", 6, ("result",)),
    ("large", 4, ("result",)),
    ("refuse", 5, ("error",)),
    ("busy", 2, ("error",)),
    ("garbage", 2, ("error",)),
    ("hang up", 2, ("error",)),
    ("break", 2, ("error",)),
)
#: Faults count against an agent: health may hold it out of service for a while, and churn deregisters it.
ALSO_RIGHT = ("AGENT_OUT_OF_SERVICE", "AGENT_NOT_FOUND", "CONNECTION_LOST", "AGENT_UNREACHABLE")


@dataclass(frozen=True, slots=True)
class Sample:
    """What the gateway holds at a moment."""

    seconds: float
    anon_mb: float
    files: int
    threads: int
    tasks: int
    streams: int


def sample(process: Process, metrics_port: int, begin: float) -> Sample:
    """Look at the process and its metrics page."""
    pid = process.popen.pid
    with closing(client.connect(metrics_port)) as connection:
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
    numbers = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    return Sample(
        time.monotonic() - begin,
        anonymous_mb(pid),
        sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()),
        sum(1 for _ in Path(f"/proc/{pid}/task").iterdir()),
        int(float(numbers["vitalgate_tasks"])),
        int(float(numbers["kubemq_a2a_sse_streams_active"])),
    )


def anonymous_mb(pid: int) -> float:
    """The process's own memory, in 10^6 bytes: a PSS moves with every neighbour that shares its libraries."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in rollup if line.startswith("Anonymous:")) * 1024 / 1e6


class Load:
    """Callers. Each call is a task; how many are begun per second is bounded, and so is how long each may take."""

    def __init__(self, port: int, agents: soak_agents.Agents, chance: random.Random) -> None:
        self._port = port
        self._agents = agents
        self._chance = chance
        self._kept: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._running: set[asyncio.Task[None]] = set()
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []

    async def run(self, seconds: float) -> None:
        """Make load for so long, and wait until the last caller has gone."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        made: Counter[str] = Counter()
        while (now := loop.time() - begin) < seconds:
            for kind, per_second, act in (
                ("calls", CALLS_PER_SECOND, self._call),
                ("streams", STREAMS_PER_SECOND, self._stream),
                ("moves", 1 / CHURN_SECONDS, self._move),
            ):
                for _ in range(min(int(now * per_second) - made[kind], 20)):
                    made[kind] += 1
                    self._begin(act())
            await asyncio.sleep(0.02)
        await asyncio.gather(*self._running)
        while self._kept:
            self._kept.pop()[1].transport.abort()

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._bounded(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _bounded(self, work: Any) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await work
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            self.wrong.append(f"{type(error).__name__}: {error}")

    def _agent(self) -> str:
        return f"soak-{self._chance.randrange(AGENTS):02d}"

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._kept and self._chance.random() < 0.9:
            reader, writer = self._kept.pop()
            if not reader.at_eof():  # the gateway closes what has been idle for longer than load balancers keep it
                return reader, writer
            writer.close()
        return await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)

    def _keep(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._kept) < KEPT:
            self._kept.append((reader, writer))
        else:
            writer.close()

    async def _send(self, method: str, metadata: dict[str, Any]) -> Any:
        reader, writer = await self._connection()
        size = self._chance.randrange(LARGEST if metadata["do"] == "large" else 2000)
        params = {"metadata": metadata, "message": {"parts": [{"text": "x" * size}]}}
        call = {"jsonrpc": "2.0", "id": self._chance.randrange(1 << 30), "method": method, "params": params}
        body = json.dumps(call).encode()
        head = f"POST /a2a/{self._agent()} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return reader, writer, call["id"]

    async def _call(self) -> None:
        do, _, right = self._chance.choices(WISHES, [wish[1] for wish in WISHES])[0]
        reader, writer, id = await self._send("message/send", {"do": do})
        if self._chance.random() < 0.03:
            await asyncio.sleep(self._chance.random() * 0.01)
            writer.transport.abort()  # a caller that leaves
            self.outcomes["left"] += 1
            return
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        answer = json.loads(await reader.readexactly(length))
        reason = head.partition(b"x-gateway-error: ")[2].partition(b"\r")[0].decode()
        if answer.get("id") != id or not (set(right) & set(answer) or reason in ALSO_RIGHT):
            self.wrong.append(f"{do}: {head[:100]!r} {str(answer)[:300]}")
        self.outcomes[reason or do] += 1
        self._keep(reader, writer)

    async def _stream(self) -> None:
        do = self._chance.choice(("events", "events", "events", "lose"))
        count = self._chance.randint(2, 8)
        wish = {"do": do, "count": count, "every": self._chance.random()}
        reader, writer, _ = await self._send("message/stream", wish)
        if self._chance.random() < 0.2:
            await asyncio.sleep(self._chance.random() * 2)
            writer.transport.abort()
            self.outcomes["stream left"] += 1
            return
        head = await reader.readuntil(b"\r\n\r\n")
        if b"text/event-stream" not in head:  # out of service, or not there
            writer.transport.abort()
            self.outcomes["no stream"] += 1
            return
        text = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            text += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
        whole = text.count(b'"n":') + text.count(b'"n": ') >= count
        if not whole or (b"STREAM_BROKEN" in text) != (do == "lose"):
            self.wrong.append(f"{do}: {text[-300:]!r}")
        self.outcomes["stream " + do] += 1
        self._keep(reader, writer)

    async def _move(self) -> None:
        """An agent leaves, or comes back where another one was."""
        agent_id = self._agent()
        if self._chance.random() < 0.5:
            await asyncio.to_thread(deregister, self._port, agent_id)
        url = self._chance.choice(self._agents.urls)
        await asyncio.to_thread(client.register, self._port, {agent_id: url})
        self.outcomes["moves"] += 1


def deregister(port: int, agent_id: str) -> None:
    """Take an agent out of the registry."""
    with closing(client.connect(port)) as connection:
        connection.request("DELETE", f"/agents/{agent_id}")
        connection.getresponse().read()


async def soak(process: Process, port: int, metrics_port: int, seconds: float, seed: int) -> dict[str, Any]:
    """Make load and look; the samples, what callers saw, and what is left afterwards."""
    begin = time.monotonic()
    async with soak_agents.Agents(AGENTS) as agents:
        ids = [f"soak-{number:02d}" for number in range(AGENTS)]
        await asyncio.to_thread(client.register, port, dict(zip(ids, agents.urls, strict=True)))
        samples = [await asyncio.to_thread(sample, process, metrics_port, begin)]
        load = Load(port, agents, random.Random(seed))
        running = asyncio.create_task(load.run(seconds))
        every = seconds / SAMPLES
        while not (await asyncio.wait([running], timeout=every))[0]:
            samples.append(await asyncio.to_thread(sample, process, metrics_port, begin))
            print(samples[-1], dict(load.outcomes.most_common(3)), file=sys.stderr, flush=True)
        await running
        await asyncio.sleep(SETTLE_SECONDS)
        after = await asyncio.to_thread(sample, process, metrics_port, begin)
    return {
        "seconds": seconds,
        "samples": [asdict(one) for one in samples],
        "after": asdict(after),
        "outcomes": dict(load.outcomes.most_common()),
        "wrong": load.wrong,
    }


def complaints(found: dict[str, Any]) -> list[str]:
    """What is not as it must be."""
    problems = [f"unexpected: {text}" for text in found["wrong"][:5]]
    samples, quarter = found["samples"][1:], max(1, (len(found["samples"]) - 1) // 4)
    for name, (share, number) in FLAT.items():
        early = median(one[name] for one in samples[quarter : 2 * quarter])
        late = median(one[name] for one in samples[-quarter:])
        if late > early * (1 + share) + number:
            problems.append(f"{name} grows: {early:g} in the second quarter, {late:g} in the last")
    for name, number in LEFT.items():
        if found["after"][name] > found["samples"][0][name] + number:
            problems.append(f"{name}: {found['after'][name]} are left, {found['samples'][0][name]} at the start")
    if found["after"]["streams"]:
        problems.append(f"{found['after']['streams']} streams are left")
    return problems


def main(argv: Sequence[str] | None = None) -> int:
    """Run as told; the exit code."""
    parser = argparse.ArgumentParser(description="a gateway under bounded load, and what it keeps of it")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--seed", type=int, default=1, help="of what is called")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample")
    options = parser.parse_args(argv)
    found = run(options.minutes * 60, options.seed)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    names = list(found["after"])
    rows = [names, *([f"{one[name]:.1f}" for name in names] for one in [*found["samples"], found["after"]])]
    print(report.table(rows))
    print("callers saw:", found["outcomes"])
    problems = complaints(found)
    print("\n".join(problems) or "flat")
    return 1 if problems else 0


def run(seconds: float, seed: int = 1) -> dict[str, Any]:
    """Start a gateway, soak it, end it."""
    port, metrics_port = processes.free_port(), processes.free_port()
    with tempfile.TemporaryDirectory(prefix="vitalgate-soak-") as name:
        folder = Path(name)
        config = folder / "vitalgate.yaml"
        config.write_text(configs.vitalgate(port=port, metrics_port=metrics_port))
        command = [sys.executable, "-m", "gateway.cli", "serve", "--config", str(config)]
        log, core = folder / "output.log", processes.two_cores()[1]
        process = processes.start("vitalgate", command, core=core, log=log)
        try:
            processes.wait_until(
                lambda: client.try_register(port, "soak-00", "http://127.0.0.1:9/"), process=process, seconds=30
            )
            return asyncio.run(soak(process, port, metrics_port, seconds, seed))
        finally:
            process.stop()


if __name__ == "__main__":
    sys.exit(main())
