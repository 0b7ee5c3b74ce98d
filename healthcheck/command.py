"""Running the commands: read, check, write; progress on standard error, results on standard output."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from healthcheck.config import MAX_FILE_BYTES, Config, read_config
from healthcheck.engine import Engine
from healthcheck.errors import ToolFailed
from healthcheck.model import Result, Target, worst
from healthcheck.report import RENDERERS
from healthcheck.strict_yaml import ConfigError
from healthcheck.terminal import render_terminal, style_for
from healthcheck.text import printable
from healthcheck.transport import ProbeTransport, tls_context

PROGRESS_AFTER = 1.0
PROGRESS_EVERY = 0.5
_CLEAR = "\x1b[H\x1b[2J"


@dataclass(frozen=True, slots=True)
class Output:
    """How results are shown."""

    format: str = "terminal"
    every: bool = True
    explained: bool = False

    def render(self, results: Sequence[Result]) -> str:
        """The text for standard output."""
        if self.format in RENDERERS:
            return RENDERERS[self.format](results)
        style = style_for(stdout(), os.environ, every=self.every, explained=self.explained)
        return render_terminal(results, style)


@dataclass(frozen=True, slots=True)
class Watch:
    """Run again every `interval` seconds, give or take a fifth; `count` runs, 0 for ever."""

    interval: float
    count: int = 0


# -- input


def read_file(path: str) -> bytes:
    """The bytes of a file, `-` for standard input; ToolFailed if it cannot be read."""
    if path == "-" and sys.stdin is None:
        raise ToolFailed("standard input is closed")
    try:
        with sys.stdin.buffer if path == "-" else Path(path).open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "cannot be read"
        raise ToolFailed(f"{printable(path)}: {why}") from error
    if len(data) > MAX_FILE_BYTES:
        raise ToolFailed(f"{printable(path)}: larger than {MAX_FILE_BYTES >> 20} MiB")
    return data


def load_file(path: str) -> Config:
    """A configuration file; ToolFailed with every mistake."""
    try:
        return read_config(read_file(path).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ToolFailed(f"{printable(path)}: not UTF-8 text") from error
    except ConfigError as error:
        raise ToolFailed(f"{printable(path)}: {error}") from error


def single(target: Mapping[str, Any]) -> Config:
    """One target from the command line, under the same rules as in a file."""
    try:
        return read_config(json.dumps({"version": "v1", "targets": [target]}))
    except ConfigError as error:
        raise ToolFailed(str(error).replace("targets[0].", "")) from error


# -- output


def stdout() -> Any:
    """Standard output, which a caller may have closed."""
    if sys.stdout is None:
        raise ToolFailed("standard output is closed")
    return sys.stdout


def write(text: str, encoding: str | None = None) -> None:
    """Write a result; ToolFailed if that is impossible (a full disk, a closed pipe)."""
    stream = stdout()
    try:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding=encoding, errors="backslashreplace")
        stream.write(text)
        stream.flush()
    except (OSError, ValueError) as error:
        _silence(stream)
        why = error.strerror if isinstance(error, OSError) and error.strerror else "closed"
        raise ToolFailed(f"standard output cannot be written: {why}") from error


def _silence(stream: Any) -> None:
    """Let what is left in the buffer go nowhere, so that the interpreter's own flush does not complain."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for the rest of the process


class _Progress:
    """A line on standard error for runs of more than a second: redrawn on a terminal, said once elsewhere."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._waiting = {id(target) for target in targets}
        self._total = len(self._waiting)
        self._shown = False

    def done(self, result: Result) -> None:
        self._waiting.discard(id(result.target))

    async def show(self) -> None:
        await asyncio.sleep(PROGRESS_AFTER)
        if sys.stderr is None:  # closed by the caller
            return
        terminal = sys.stderr.isatty()
        while True:
            line = f"checking: {self._total - len(self._waiting)} of {self._total} targets done"
            sys.stderr.write(f"\r\x1b[K{line}" if terminal else f"{line}\n")
            sys.stderr.flush()
            self._shown = True
            if not terminal:
                return
            await asyncio.sleep(PROGRESS_EVERY)

    def clear(self) -> None:
        if self._shown and sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


# -- running


def run(config: Config, output: Output, ca_file: str | None = None, watch: Watch | None = None) -> int:
    """Check and write, once or again and again; the exit code is the worst root target's severity."""
    transport = make_transport(ca_file, tls=_uses_tls(config.targets))
    codes: list[int] = []

    async def main() -> None:
        try:
            await transport.warm_up()
            engine = Engine(transport, environ=os.environ, concurrency=config.concurrency)
            await _repeat(lambda: _once(engine, config, output, watch is not None), watch, codes)
        finally:
            await transport.aclose()

    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        if watch is None or not codes:
            raise
    return codes[-1]


async def _repeat(once: Callable[[], Awaitable[int]], watch: Watch | None, codes: list[int]) -> None:
    while True:
        codes[:] = [*codes[-1:], await once()]
        if watch is None:
            return
        if watch.count:
            watch = Watch(watch.interval, watch.count - 1)
            if not watch.count:
                return
        await asyncio.sleep(jittered(watch.interval))


def jittered(seconds: float) -> float:
    """Give or take a fifth, so that many watchers do not fall into step."""
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311 - not a secret


async def _once(engine: Engine, config: Config, output: Output, redraw: bool) -> int:
    results = await _with_progress(engine, config.targets)
    text = output.render(results)
    if redraw and output.format == "terminal" and stdout().isatty():
        text = _CLEAR + text
    elif redraw and output.format == "yaml":
        text = "---\n" + text
    # what programs read is UTF-8, whatever the terminal is
    write(text, "utf-8" if output.format in RENDERERS else None)
    return worst(result.status for result in results).severity


async def _with_progress(engine: Engine, targets: Sequence[Target]) -> list[Result]:
    progress = _Progress(targets)
    line = asyncio.create_task(progress.show())
    try:
        return await engine.run(targets, progress.done)
    finally:
        line.cancel()
        progress.clear()


def make_transport(ca_file: str | None, *, tls: bool) -> ProbeTransport:
    """The probe's own transport; ToolFailed if the CA file cannot be used.

    With `tls` the context is made here: loading the roots takes 30 ms, which no deadline should pay for.
    """
    if not tls and ca_file is None:
        return ProbeTransport()
    try:
        context = tls_context(ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise ToolFailed(f"{printable(ca_file or 'TLS roots')}: no certificates can be read from it") from error
    return ProbeTransport(lambda: context)


def _uses_tls(targets: Sequence[Target]) -> bool:
    seen: set[int] = set()
    waiting = list(targets)
    while waiting:
        target = waiting.pop()
        if target.endpoint[:6].lower() == "https:":
            return True
        if id(target) not in seen:
            seen.add(id(target))
            waiting += [one.target for one in target.dependencies]
    return False
