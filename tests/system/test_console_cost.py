"""What the console costs the gateway: ten open pages, two thousand agents.

The pages are stood for by what they ask: the feed, and every two seconds what is different (`store.js`). Agents
send heartbeats as `registry.client` does, and in the second half every tenth is called all the time.
"""

from __future__ import annotations

import asyncio
import sys
import time
from itertools import cycle
from pathlib import Path

import pytest

from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.gateway import GatewayProcess
from tests.system.test_health_fleet import cpu

AGENTS, PAGES = 2000, 10
SECONDS = 30.0
CALL = {"jsonrpc": "2.0", "id": 1, "method": "message/send"}


async def page(gateway: GatewayProcess) -> None:
    """What an open page asks for."""

    async def feed() -> None:
        async with gateway.http.stream("GET", "/events", timeout=None) as events:
            async for _ in events.aiter_bytes():
                pass

    async def poll() -> None:
        version = ""
        while True:
            view = (await gateway.http.get("/stats/agents", params={"since": version})).json()
            version = view["version"]
            await asyncio.sleep(2)

    await asyncio.gather(feed(), poll())


async def heartbeats(gateway: GatewayProcess) -> None:
    """Each agent every hundred seconds: a third of the TTL."""
    for number in cycle(range(AGENTS)):
        await gateway.http.post("/agents/heartbeat", json={"agent_id": f"agent-{number}"})
        await asyncio.sleep(100 / AGENTS)


async def calls(gateway: GatewayProcess) -> None:
    """Two hundred agents, each about every two seconds."""
    for number in cycle(range(0, AGENTS, 10)):
        await gateway.call(f"agent-{number}", CALL)
        await asyncio.sleep(0.01)


async def share(gateway: GatewayProcess, seconds: float = SECONDS) -> float:
    """Part of a core that the process uses."""
    used, began = cpu(gateway.pid), time.monotonic()
    await asyncio.sleep(seconds)
    return (cpu(gateway.pid) - used) / (time.monotonic() - began)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_ten_pages_and_two_thousand_agents(tmp_path: Path) -> None:
    """Ten pages cost at most 3 % of a core, whether agents are called or not."""
    async with FaultAgent() as agent, GatewayProcess(tmp_path, {"log": {"calls": False}}) as gateway:
        agent.always(reply.result({"kind": "message"}))
        for number in range(AGENTS):
            await gateway.register({"agent_id": f"agent-{number}", "name": f"Agent {number}", "url": agent.url})
        tasks = [asyncio.create_task(heartbeats(gateway))]
        without = await share(gateway)
        tasks += [asyncio.create_task(page(gateway)) for _ in range(PAGES)]
        await asyncio.sleep(5)  # the first view, which is of everything
        quiet = await share(gateway) - without
        tasks.append(asyncio.create_task(calls(gateway)))
        await asyncio.sleep(5)
        busy = await share(gateway)
        for one in tasks[1 : PAGES + 1]:
            one.cancel()
        await asyncio.sleep(1)
        busy -= await share(gateway)
        for one in tasks:
            one.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in results), results
    print(f"ten pages, {AGENTS} agents: {quiet:.2%} of a core; while 200 of them are called: {busy:.2%}")
    assert quiet < 0.03
    assert busy < 0.03
