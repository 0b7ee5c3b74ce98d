"""`GET /nodes` of a gateway that has no others (contract 1); with others: tests/system/test_nodes_health.py."""

from __future__ import annotations

import os

from gateway.app import VERSION
from tests.fakes.agent import FaultAgent
from tests.fakes.running import running


async def test_one_node_lists_itself() -> None:
    async with FaultAgent() as agent, running(health={"enable": True}) as gateway:
        await gateway.register(agent)
        answer = await gateway.client.get("/nodes")
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"
        document = answer.json()
        [node] = document["nodes"]
        assert (document["node"], document["connected"]) == (node["id"], True)
        assert (node["pid"], node["version"], node["address"]) == (os.getpid(), VERSION, gateway.api)
        assert node["checking"] is True
        assert node["lease_ends_at"] is None
        assert node["load"] == {"calls": 0, "streams": 0, "agents": 1, "checked": 1}
        assert (await gateway.client.head("/nodes")).status_code == 200
        assert (await gateway.client.post("/nodes")).status_code == 405
        assert await gateway.metric("vitalgate_nodes") == 1
        assert await gateway.metric("vitalgate_node_connected") == 1


async def test_who_does_not_check_says_so() -> None:
    async with FaultAgent() as agent, running(health={"enable": False}) as gateway:
        await gateway.register(agent)
        [node] = (await gateway.client.get("/nodes")).json()["nodes"]
        assert node["checking"] is False
        assert node["load"]["checked"] == 0
