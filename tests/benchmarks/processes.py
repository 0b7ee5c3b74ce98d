"""Processes of the bench: pinned to a core, measured through /proc, ended by their own id."""

import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

CPUCLOCK_SCHED = 2  # of the kernel's interface: all threads' time on a core
LOG_TAIL_BYTES = 2000

T = TypeVar("T")


class BenchError(Exception):
    """The bench cannot go on; the text says what is missing or broken."""


@dataclass(slots=True)
class Process:
    """One started program, leader of a process group of its own."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    def check_running(self) -> None:
        """Raise BenchError with the end of its log if the program has ended."""
        code = self.popen.poll()
        if code is not None:
            tail = self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
            raise BenchError(f"{self.name} ended with exit code {code}:\n{tail}")

    def forget_log(self) -> None:
        """Empty the log (it is opened for appending), so that a long run does not fill the disk."""
        os.truncate(self.log, 0)

    def cpu_seconds(self) -> float:
        """User + system time of the program and its living descendants so far."""
        return sum(_cpu_ns(pid) for pid in tree(self.popen.pid)) / 1e9

    def waited_seconds(self) -> float:
        """Time its threads were ready to run while their core did something else: others' noise."""
        return sum(_waited_ns(pid) for pid in tree(self.popen.pid)) / 1e9

    def pss_mb(self) -> float:
        """Memory of the program and its descendants as proportional set size, in 10^6 bytes."""
        return sum(_pss_kib(pid) for pid in tree(self.popen.pid)) * 1024 / 1e6

    def stop(self, patience: float = 5.0) -> None:
        """Ask the program to end, then make it and its descendants; takes two times `patience` at most."""
        family = list(tree(self.popen.pid))
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(patience)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        deadline = time.monotonic() + patience
        while any(self._kill(pid) for pid in family[1:]) and time.monotonic() < deadline:
            time.sleep(0.002)

    def _kill(self, pid: int) -> bool:
        """Kill a descendant that outlived the program; whether there was one."""
        try:
            state, _parent, group = _stat(pid)[:3]
            if state in "ZX" or int(group) != self.popen.pid:  # dead, or the number was given anew
                return False
            os.kill(pid, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            return False
        return True


@dataclass(frozen=True, slots=True)
class Used:
    """What a process used in a while: seconds of CPU and of wall time, and the share it waited for its core."""

    cpu: float
    wall: float
    waited: float


class Meter:
    """Reads what a process has used since now."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._cpu, self._waited = process.cpu_seconds(), process.waited_seconds()
        self._begin = time.perf_counter()

    def read(self) -> Used:
        """What it has used."""
        cpu, wall = self._process.cpu_seconds() - self._cpu, time.perf_counter() - self._begin
        return Used(cpu, wall, (self._process.waited_seconds() - self._waited) / wall)


def start(
    name: str, command: list[str], *, core: int, log: Path, environment: Mapping[str, str] | None = None
) -> Process:
    """Start a program on one core; its output goes to `log`."""
    env = os.environ | dict(environment or {})
    with log.open("ab") as output:
        popen = on_core(
            core,
            lambda: subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=env,
                cwd=log.parent,
                start_new_session=True,
            ),
        )
    return Process(name, popen, log)


def on_core(core: int, action: Callable[[], T]) -> T:
    """Run `action` on a core; what it starts inherits the core from its first instruction on."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        return action()
    finally:
        os.sched_setaffinity(0, before)


def two_cores() -> tuple[int, int]:
    """The core for load and agent, and the core for the process under test."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchError("the bench needs two cores: one for the load, one for the process under test")
    return cores[0], cores[-1]


def allow_open_files(count: int) -> None:
    """Raise the limit of open files for this process and all it starts, if it is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            raise BenchError(f"the bench needs {count} open files, the limit is {hard}: ulimit -Hn {count}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(attempt: Callable[[], T | None], *, process: Process, seconds: float) -> T:
    """Repeat `attempt` every 2 ms until it gives a value; BenchError when the program ends or time is up."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = attempt()
        if value is not None:
            return value
        process.check_running()
        time.sleep(0.002)
    raise BenchError(f"{process.name} was not ready within {seconds:g} s; its log: {process.log}")


def tree(pid: int) -> Iterator[int]:
    """A process and its living descendants."""
    yield pid
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return
    for thread in threads:
        try:
            children = (thread / "children").read_text().split()
        except FileNotFoundError:
            continue
        for child in children:
            yield from tree(int(child))


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third (state) on; the command name may hold blanks."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat[stat.rindex(")") + 2 :].split()


def _cpu_ns(pid: int) -> int:
    """The process's own clock (clock_getcpuclockid(3)): what /proc/PID/stat says, without its steps of 10 ms."""
    try:
        return time.clock_gettime_ns(~pid << 3 | CPUCLOCK_SCHED)
    except OSError:  # it has ended
        return 0


def _waited_ns(pid: int) -> int:
    total = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(thread.read_text().split()[1])
        except FileNotFoundError:  # the thread has ended
            continue
    return total


def _pss_kib(pid: int) -> int:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")), 0)
