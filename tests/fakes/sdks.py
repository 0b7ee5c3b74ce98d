"""Agents made with official SDKs, each registered at a gateway, and how to compare what clients of them report."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.fakes.gateway import GatewayProcess
from tests.fakes.program import Program, Record, sdk03_agent, sdk13_agent

Client = Callable[[str], Awaitable[Record]]  # takes the base URL

AGENTS: dict[str, Callable[[], AbstractAsyncContextManager[Program]]] = {
    "sdk13": sdk13_agent,
    "sdk13-only-v1": lambda: sdk13_agent("--only-v1"),
    "sdk03": sdk03_agent,
}

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[^\"]*")


def comparable(record: Record) -> Record:
    """The record without addresses, with ids numbered in order of their appearance and times blanked."""
    text = json.dumps([step for step in record if step["step"] != "address"], sort_keys=True)
    numbers: dict[str, str] = {}
    text = UUID.sub(lambda found: numbers.setdefault(found.group(), f"id-{len(numbers) + 1}"), text)
    value: Record = json.loads(TIME.sub("time", text))
    return value


def outcome(record: Record) -> dict[str, str]:
    """Per step: `ok`, or the error the SDK raised, with its code where the SDK gives no type of its own."""
    return {step["step"]: _raised(step["error"]) if "error" in step else "ok" for step in record}


def _raised(error: dict[str, str]) -> str:
    code = re.search(r"[Cc]ode(?:=|: )(-\d+)", error["message"])
    return code.group(1) if code else error["type"]


def by_name(record: Record) -> dict[str, Any]:
    return {step["step"]: step.get("result", step.get("error")) for step in record}


@dataclass
class Peers:
    """The agents, a gateway at which each is registered under its name here, and what clients got directly."""

    programs: dict[str, Program]
    gateway: GatewayProcess
    clients: dict[str, Client]
    _records: dict[tuple[str, str], Record] = field(default_factory=dict)

    async def direct(self, client: str, agent: str) -> Record:
        if (client, agent) not in self._records:
            self._records[client, agent] = await self.clients[client](self.programs[agent].url)
        return self._records[client, agent]

    async def through(self, client: str, agent: str) -> Record:
        return await self.clients[client](self.gateway.base(agent))

    async def calls(self, agent: str) -> float:
        """How many calls to an agent the metrics count."""
        series = rf'^kubemq_a2a_requests_total{{agent_id="{agent}",.*}} (\S+)$'
        return sum(float(count) for count in re.findall(series, await self.gateway.scrape(), re.MULTILINE))

    async def errors(self, agent: str) -> list[str]:
        """The series of errors that the gateway counts as its own for an agent."""
        series = rf'^kubemq_a2a_errors_total{{agent_id="{agent}".*$'
        return re.findall(series, await self.gateway.scrape(), re.MULTILINE)


@asynccontextmanager
async def peers_at(folder: Path, clients: dict[str, Client], **settings: dict[str, Any]) -> AsyncIterator[Peers]:
    """Starts a gateway with these settings and every agent, and registers them."""
    async with AsyncExitStack() as stack, GatewayProcess(folder, settings) as gateway:
        started = await asyncio.gather(*(stack.enter_async_context(agent()) for agent in AGENTS.values()))
        programs = dict(zip(AGENTS, started, strict=True))
        for name, program in programs.items():
            await register(gateway, name, program.url)
        yield Peers(programs, gateway, clients)


async def register(gateway: GatewayProcess, agent_id: str, base: str) -> None:
    """Registers an agent with the card it publishes; `url`, which 1.0 cards lack, is required (contract 5.1)."""
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(f"{base}.well-known/agent-card.json", headers={"A2A-Version": "1.0"})
    card = answer.json()
    url = card.get("url") or card["supportedInterfaces"][0]["url"]
    await gateway.register({**card, "agent_id": agent_id, "url": url})
