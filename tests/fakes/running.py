"""The whole gateway in the running event loop, on real sockets; for tests that need to look inside or be quick."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from gateway.app import serve_on
from gateway.lifecycle import Lifecycle
from gateway.listeners import Listeners
from gateway.logs import Logs
from gateway.settings import Settings
from tests.fakes.agent import FaultAgent
from tests.fakes.leaks import secrets_in


async def eventually(condition: Callable[[], bool], within: float = 5.0) -> None:
    """Let the loop turn until something is so that no event tells of; fails after `within` seconds."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - what is waited for is counted, not signalled
            await asyncio.sleep(0.002)


UNLIMITED = httpx.Limits(max_connections=None)
JSON = {"content-type": "application/json"}


@dataclass
class Running:
    """A gateway that serves, and a client of it."""

    api: str
    client: httpx.AsyncClient
    lifecycle: Lifecycle
    log: Path
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.api.rpartition(":")[2])

    async def register(self, agent: FaultAgent | str, agent_id: str = "echo", **card: Any) -> dict[str, Any]:
        """Register an agent over REST; it must be accepted."""
        url = agent if isinstance(agent, str) else agent.url
        document = {"agent_id": agent_id, "name": agent_id, "url": url, **card}
        response = await self.client.post("/agents/register", json=document)
        assert response.status_code == 200, response.text
        return dict(response.json())

    async def call(
        self, body: bytes | dict[str, Any], agent_id: str = "echo", headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.client.post(f"/a2a/{agent_id}", content=content, headers=JSON | dict(headers or {}))

    async def metric(self, name: str, **labels: str) -> float | None:
        """Give one sample of `/metrics`; None if there is no such series."""
        for line in (await self.client.get("/metrics")).text.splitlines():
            head, _, value = line.rpartition(" ")
            found, _, rest = head.partition("{")
            given = dict(pair.split("=", 1) for pair in rest.rstrip("}").split(",") if pair)
            if found == name and given == {key: f'"{text}"' for key, text in labels.items()}:
                return float(value)
        return None

    def lines(self) -> list[dict[str, Any]]:
        """Give what has been logged; complete once the gateway has ended."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@asynccontextmanager
async def running(
    *, environ: Mapping[str, str] | None = None, **sections: Mapping[str, Any]
) -> AsyncIterator[Running]:
    """Run a gateway with these settings, by section, over a memory store on free loopback ports."""
    defaults: dict[str, dict[str, Any]] = {
        "server": {"port": 0, "drain_seconds": 1},
        "metrics": {"port": 0},
        "registry": {"url": "memory://"},
        "health": {"enable": False},  # agents of other tests get no requests but theirs
    }
    merged = {name: {**defaults.get(name, {}), **sections.get(name, {})} for name in {*defaults, *sections}}
    settings = Settings(**merged)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        logs = Logs(level=settings.log.level, form="json", calls=settings.log.calls, fd=descriptor)
        lifecycle = Lifecycle(
            shutdown_delay_seconds=settings.server.shutdown_delay_seconds,
            drain_seconds=settings.server.drain_seconds,
        )
        listeners = Listeners.bind(settings)
        api = listeners.addresses()["api"]
        serving = asyncio.create_task(serve_on(listeners, settings, lifecycle, logs, environ or {}))
        try:
            async with httpx.AsyncClient(base_url=api, timeout=20, limits=UNLIMITED, trust_env=False) as client:
                yield Running(api, client, lifecycle, path, [serving])
        finally:
            lifecycle.stop()
            async with asyncio.timeout(15):
                await serving
            logs.close()
            os.close(descriptor)
            assert not secrets_in(path.read_text(errors="replace"))  # noqa: ASYNC240
