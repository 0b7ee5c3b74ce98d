"""Health shared by several nodes over a real Valkey: who checks, what all know, who may try."""

from __future__ import annotations

import asyncio
from collections import Counter

from gateway.health_rules import HealthRules
from healthcheck.model import Status
from healthcheck.state import Routing
from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.clustered import Nodes
from tests.fakes.running import eventually
from tests.fakes.valkey import Valkey, own_valkey, shared_valkey

__all__ = ["own_valkey", "shared_valkey"]

NOT_FOUND = reply.error(-32001, "task not found")


def healthy() -> FaultAgent:
    agent = FaultAgent(path="/rpc")
    agent.always(NOT_FOUND)
    return agent


def probes(agent: FaultAgent) -> int:
    return sum(request.method == "POST" for request in agent.requests)


async def test_one_node_checks_and_all_know(shared_valkey: Valkey) -> None:
    async with healthy() as agent, Nodes(shared_valkey.url) as nodes:
        await nodes.start(3)
        await nodes.all[0].register(agent.url, protocolVersion="0.3.0")
        for node in nodes.all:
            watched = await node.knows()
            await eventually(lambda watched=watched: watched.result is not None)  # type: ignore[misc]
            assert (watched.status, watched.routing) == (Status.HEALTHY, Routing.IN_SERVICE)
        assert probes(agent) == 1
        first, *others = [node.known() for node in nodes.all]
        for other in others:
            assert list(other.history) == list(first.history)
            assert other.last_transition == first.last_transition
            assert other.checked_at == first.checked_at
