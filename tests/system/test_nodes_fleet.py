"""A thousand agents checked by two nodes: what it costs them and the store (performance 2)."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.fakes.health_thousand import card
from tests.fakes.program import FAKES, Program
from tests.fakes.valkey import Valkey, own_valkey
from tests.system.test_health_fleet import AGENTS, DEFAULT_INTERVAL, INTERVAL, checks, cpu
from tests.system.test_nodes import gateways

__all__ = ["own_valkey"]

SECONDS = 20.0


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_thousand_agents_checked_by_two_nodes(tmp_path: Path, own_valkey: Valkey) -> None:
    """At a tenth of the default interval: 15 % of a core for both nodes together, 1 % for the store."""
    health = {"enable": True, "interval_seconds": INTERVAL}
    async with (
        Program(Path(sys.executable), FAKES / "health_thousand.py") as fleet,
        gateways(tmp_path, own_valkey.url, own_valkey.url, health=health, log={"calls": False}) as nodes,
    ):
        for number in range(AGENTS):
            url = f"{fleet.url}/a{number}/rpc"
            await nodes[number % 2].register({**card(url), "agent_id": f"agent-{number}", "url": url})
        await asyncio.sleep(3 * INTERVAL)
        for node in nodes:
            counts = (await node.http.get("/health/agents")).json()["statuses"]
            assert counts["HEALTHY"] == AGENTS, counts
        shares = [one["load"]["checked"] for one in (await nodes[0].http.get("/nodes")).json()["nodes"]]
        assert sum(shares) == AGENTS
        assert min(shares) > AGENTS / 3
        made = sum([await checks(node) for node in nodes])
        used = [cpu(pid) for pid in (nodes[0].pid, nodes[1].pid, own_valkey.pid)]
        commands = own_valkey.do("INFO", "stats")["total_commands_processed"]
        await asyncio.sleep(SECONDS)
        made = sum([await checks(node) for node in nodes]) - made
        first, second, store = (
            cpu(pid) - before
            for pid, before in zip((nodes[0].pid, nodes[1].pid, own_valkey.pid), used, strict=True)
        )
        sent = own_valkey.do("INFO", "stats")["total_commands_processed"] - commands
        assert 0.8 * AGENTS * SECONDS / INTERVAL < made < 1.3 * AGENTS * SECONDS / INTERVAL
        share_of_a_core = (first + second) / made * AGENTS / DEFAULT_INTERVAL
        print(f"nodes {share_of_a_core:.1%}, store {store / SECONDS:.1%}, {sent / SECONDS:.0f} commands/s")
        assert share_of_a_core < 0.15
        assert store / made * AGENTS / DEFAULT_INTERVAL < 0.02
