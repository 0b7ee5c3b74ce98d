"""A thousand agents: what checking them costs, in CPU and memory (health contract 7, performance 2)."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from tests.fakes.gateway import GatewayProcess
from tests.fakes.health_thousand import card
from tests.fakes.program import FAKES, Program

AGENTS = 1000
INTERVAL = 3.0
DEFAULT_INTERVAL = 30.0


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> int:
    """Bytes of memory."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


async def checks(gateway: GatewayProcess) -> float:
    """How many checks have been made."""
    found = re.search(
        r'^vitalgate_health_check_duration_seconds_count{check="reachability"} (\S+)$',
        await gateway.scrape(),
        re.MULTILINE,
    )
    return float(found[1]) if found else 0.0


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_thousand_agents(tmp_path: Path) -> None:
    """At a tenth of the default interval, so that a minute stands for ten: 10 % of a core, memory flat."""
    settings = {"health": {"enable": True, "interval_seconds": INTERVAL}, "log": {"calls": False}}
    async with (
        Program(Path(sys.executable), FAKES / "health_thousand.py") as fleet,
        GatewayProcess(tmp_path, settings) as gateway,
    ):
        for number in range(AGENTS):
            url = f"{fleet.url}/a{number}/rpc"
            await gateway.register({**card(url), "agent_id": f"agent-{number}", "url": url})
        await asyncio.sleep(2 * INTERVAL)
        counts = (await gateway.http.get("/health/agents")).json()["statuses"]
        assert counts["HEALTHY"] == AGENTS, counts
        before, used, memory = await checks(gateway), cpu(gateway.pid), resident(gateway.pid)
        await asyncio.sleep(60)
        made = await checks(gateway) - before
        per_check = (cpu(gateway.pid) - used) / made
        assert made > 0.8 * AGENTS * 60 / INTERVAL
        assert per_check * AGENTS / DEFAULT_INTERVAL < 0.10, f"{per_check * 1e6:.0f} µs per check"
        assert resident(gateway.pid) - memory < 12 << 20  # histories fill: 20 entries of 1000 agents
        assert (await gateway.http.get("/health/agents")).json()["statuses"]["HEALTHY"] == AGENTS
