"""Programs that tests start: an agent that says when it is ready, a client that prints what it got.

A `Program` is told to stop by the end of its standard input, so that none outlives a test run that was killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FAKES = Path(__file__).parent
ROOT = FAKES.parent.parent
START_SECONDS = 30.0
"""Importing an SDK on a busy machine takes seconds."""
STOP_SECONDS = 10.0

Record = list[dict[str, Any]]

NODE = shutil.which("node")
"""Runs the JavaScript clients, where there is one."""
SDK13 = Path(sys.executable)
SDK03 = ROOT / ".venv-sdk03" / "bin" / "python"
"""The Python of the environment with a2a-sdk 0.3.26 (`make .venv-sdk03`)."""


class Program:
    """A program that prints `ready URL` and serves until its standard input ends. Use as `async with`."""

    def __init__(
        self, python: Path, script: Path, *options: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command = [str(python), str(script), *options]
        self._environment = {**clean_environment(), **(environment or {})}
        self.url = ""
        assert python.exists(), f"{python} is missing: run `make .venv-sdk03`"

    async def __aenter__(self) -> Program:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=self._environment,
        )
        try:
            self.url = await asyncio.wait_for(self._ready(), START_SECONDS)
        except BaseException:
            await self._kill()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _ready(self) -> str:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            word, _, rest = line.decode().strip().partition(" ")
            if word == "ready":
                return rest
        raise AssertionError(f"{' '.join(self._command)} ended with {await self._process.wait()}")

    async def stop(self) -> int:
        """Ends it and gives its exit code, which must be 0."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
        except TimeoutError:
            await self._kill()
            raise AssertionError(f"{' '.join(self._command)} did not stop") from None
        assert code == 0, f"{' '.join(self._command)} ended with {code}"
        return code

    async def _kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


async def run(command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None) -> str:
    """Runs a program to its end and gives what it printed; fails with its error output unless it exits with 0."""
    process = await asyncio.create_subprocess_exec(
        *(str(part) for part in command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**clean_environment(), **(environment or {})},
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), START_SECONDS)
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    assert process.returncode == 0, f"{command} ended with {process.returncode}:\n{out.decode()}\n{err.decode()}"
    return out.decode()


def clean_environment() -> dict[str, str]:
    """The test's environment without what would change how the programs under test behave."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.upper().startswith(("VITALGATE_", "CONNECTORSA2_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"))
    }


def sdk13_agent(*options: str) -> Program:
    """An official SDK 1.3 agent: protocol 1.0 and 0.3 on one URL; `--only-v1` for 1.0 alone."""
    return Program(SDK13, FAKES / "sdk13" / "agent.py", *options)


def sdk03_agent(*options: str) -> Program:
    """An official SDK 0.3.26 agent: protocol 0.3."""
    return Program(SDK03, FAKES / "sdk03" / "agent.py", *options)


async def sdk13_client(base: str) -> Record:
    """The steps of an official SDK 1.3 client at that base URL."""
    return await record(SDK13, FAKES / "sdk13" / "client.py", base)


async def sdk13_streams(base: str, *options: str) -> Record:
    """The streams of the same; with a number of seconds as option, one that is silent for longer than that."""
    return await record(SDK13, FAKES / "sdk13" / "streams.py", base, *options)


async def sdk03_client(base: str) -> Record:
    """The steps of an official SDK 0.3.26 client at that base URL."""
    return await record(SDK03, FAKES / "sdk03" / "client.py", base)


async def sdk03_streams(base: str, *options: str) -> Record:
    """The streams of the same; with a number of seconds as option, one that is silent for longer than that."""
    return await record(SDK03, FAKES / "sdk03" / "streams.py", base, *options)


async def js_client(sdk: str, base: str) -> Record:
    """The steps and streams of an official JavaScript client: `sdk13` or `sdk03`. Its base URL must end in `/`."""
    folder = FAKES / "js" / sdk
    assert NODE is not None
    assert (folder / "node_modules").exists(), f"{folder}/node_modules is missing: run `make .js-sdk`"
    return await record(NODE, folder / "client.mjs", base.rstrip("/") + "/")


async def record(*command: str | Path) -> Record:
    """What a client program prints: a JSON list of `{"step", "result"}` or `{"step", "error"}`."""
    steps: Record = json.loads(await run(command))
    return steps
