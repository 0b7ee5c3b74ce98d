"""Load by wrk: one window of calls against one process under test, every answer checked."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.processes import BenchError, on_core

SCRIPT = Path(__file__).with_name("calls.lua")
ERRORS = ("wrong", "connect", "read", "write", "timeout")


@dataclass(frozen=True, slots=True)
class Window:
    """What one window of load saw."""

    answers: int
    seconds: float
    p50_us: float
    p99_us: float
    errors: dict[str, int]
    sample: str

    @property
    def complaint(self) -> str | None:
        """Why this window must not be counted, or None."""
        bad = {kind: count for kind, count in self.errors.items() if count}
        if bad:
            return f"{bad} of {self.answers} answers; the first wrong one: {self.sample or '-'}"
        return None if self.answers else "no answer at all"


def wrk() -> str:
    """The path of wrk; BenchError tells how to get it."""
    found = shutil.which("wrk")
    if found is None:
        raise BenchError("the load generator `wrk` is missing: apt-get install wrk")
    return found


def run(
    port: int,
    paths: Sequence[str],
    *,
    request: Path,
    expected: Path,
    connections: int,
    seconds: int,
    core: int,
    token: str = "",
) -> Window:
    """Drive `connections` keep-alive connections for `seconds` from one thread on `core`."""
    shown = ["--header", f"Authorization: Bearer {token}"] if token else []
    command = [
        wrk(), "--threads", "1", "--connections", str(connections), "--duration", f"{seconds}s",
        "--timeout", f"{seconds + 5}s", "--script", str(SCRIPT), *shown, f"http://127.0.0.1:{port}", "--",
        str(request), str(expected), *paths,
    ]  # fmt: skip
    done = on_core(
        core, lambda: subprocess.run(command, capture_output=True, text=True, timeout=seconds + 20, check=False)
    )
    if done.returncode:
        raise BenchError(f"wrk failed: {done.stderr or done.stdout}")
    return parse(done.stdout)


def parse(output: str) -> Window:
    """Read the line that calls.lua prints at the end."""
    line = next((line for line in output.splitlines() if line.startswith("RESULT ")), None)
    if line is None:
        raise BenchError(f"wrk printed no result: {output[-500:]}")
    numbers, _, sample = line.removeprefix("RESULT ").partition(" sample=")
    field = {name: int(value) for name, value in (pair.split("=") for pair in numbers.split())}
    return Window(
        answers=field["requests"],
        seconds=field["duration_us"] / 1e6,
        p50_us=field["p50_us"],
        p99_us=field["p99_us"],
        errors={kind: field[kind] for kind in ERRORS},
        sample=sample,
    )
