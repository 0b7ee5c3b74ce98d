"""The gateway as users run it: the installed command, a settings file, a process of its own."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.fakes.agent import Log
from tests.fakes.leaks import secrets_in
from tests.fakes.program import clean_environment

COMMAND = Path(sys.executable).with_name("vitalgate")
START_SECONDS = 20.0
STOP_SECONDS = 30.0

Document = dict[str, Any]


class GatewayProcess:
    """`vitalgate serve --config FILE` on ports of its own choosing. Use as `async with`.

    `folder` receives the settings file (and whatever the gateway keeps below its home directory). `settings`
    are sections of the file, laid over what every test needs: free ports, registrations in memory. `options` are
    further words of the command line; `program` is what is run instead of the installed command.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        program: Sequence[str] = (str(COMMAND),),
    ) -> None:
        self.folder = folder
        self._command = [*program, "serve", *options]
        self.settings: dict[str, dict[str, Any]] = {
            "server": {"host": "127.0.0.1", "port": 0, "drain_seconds": 2},
            "metrics": {"port": 0},
            "registry": {"url": "memory://"},
            "health": {"enable": False},
        }
        for section, fields in (settings or {}).items():
            self.settings.setdefault(section, {}).update(fields)
        self._environment = {**clean_environment(), "HOME": str(folder), **(environment or {})}
        self.api = ""
        """Base URL of the API, without a slash at its end."""
        self.metrics = ""
        """The URL of the metrics."""
        self.lines: Log[str] = Log("log lines")
        """Everything it wrote to stderr."""

    @property
    def file(self) -> Path:
        return self.folder / "vitalgate.yaml"

    @property
    def pid(self) -> int:
        return self._process.pid

    async def __aenter__(self) -> GatewayProcess:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()
        if self._process.returncode is None:
            await self.stop()
        assert not secrets_in("\n".join(self.lines))

    async def start(self) -> None:
        """Starts it, or starts it again with the same folder and settings."""
        self.file.write_text(yaml.safe_dump(self.settings))
        self.lines = Log("log lines")
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            "--config",
            str(self.file),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
            limit=16 << 20,
        )
        self._reader = asyncio.create_task(self._read())
        try:
            listening = await asyncio.wait_for(self._listening(), START_SECONDS)
        except BaseException:
            await self.kill()
            raise
        self.api, self.metrics = listening["api"], listening["metrics"]
        self.http = httpx.AsyncClient(base_url=self.api, timeout=20, trust_env=False)

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.lines.append(line.decode().rstrip("\n"))

    async def _listening(self) -> Document:
        while not (found := self.events("listening")):
            wait = asyncio.ensure_future(self.lines.reach(len(self.lines) + 1, START_SECONDS))
            await asyncio.wait([wait, self._reader], return_when=asyncio.FIRST_COMPLETED)
            if not wait.done():
                wait.cancel()
                text = "\n".join(self.lines)
                raise AssertionError(f"the gateway ended with {await self._process.wait()}:\n{text}")
            wait.result()
        return found[0]

    def events(self, name: str) -> list[Document]:
        """The JSON log lines with that `event` so far."""
        return [record for record in self.records() if record.get("event") == name]

    def records(self) -> list[Document]:
        """Every log line that is a JSON object."""
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signals it and waits for its end: the exit code."""
        self._process.send_signal(number)
        try:
            code = await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
        except TimeoutError:
            await self.kill()
            raise AssertionError("the gateway did not stop:\n" + "\n".join(self.lines)) from None
        await self._reader
        return code

    async def kill(self) -> None:
        """SIGKILL: nothing is drained, nothing is flushed."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await self._reader

    # -- as its users call it

    def base(self, agent_id: str) -> str:
        """Where an agent is reached through the gateway: G of contract 5.4."""
        return f"{self.api}/a2a/{agent_id}"

    async def register(self, document: Document) -> Document:
        """Registers an agent and gives the stored card; fails unless that worked."""
        answer = await self.http.post("/agents/register", json=document)
        assert answer.status_code == 200, answer.text
        stored: Document = answer.json()
        return stored

    async def call(self, agent_id: str, body: bytes | Document, **headers: str) -> httpx.Response:
        """One JSON-RPC call; underscores in header names become hyphens."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named = {"content-type": "application/json"} | named
        return await self.http.post(f"/a2a/{agent_id}", content=content, headers=named)

    async def scrape(self) -> str:
        """The text of `/metrics`."""
        answer = await self.http.get(self.metrics)
        assert answer.status_code == 200, answer.text
        return answer.text
