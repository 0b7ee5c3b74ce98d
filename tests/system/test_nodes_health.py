"""Several gateway processes over one Valkey: one checks each agent, all route by what any of them has found."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import reply
from tests.fakes.agent import Behaviour, FaultAgent
from tests.fakes.gateway import GatewayProcess
from tests.fakes.valkey import Valkey, own_valkey, shared_valkey
from tests.system.test_nodes import gateways

__all__ = ["own_valkey", "shared_valkey"]

NOT_FOUND = reply.error(-32001, "task not found")
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


@asynccontextmanager
async def cluster(
    folder: Path, valkey: Valkey, count: int, interval: float = 1.0, trial: float = 1.0
) -> AsyncIterator[list[GatewayProcess]]:
    """So many processes that all know each other."""
    health = {"enable": True, "interval_seconds": interval, "trial_seconds": trial}
    urls = [valkey.url] * count
    async with gateways(folder, *urls, prefix=f"{folder.name}.", health=health) as nodes:
        for node in nodes:
            await until(lambda node=node: has(node, "/nodes", lambda found: len(found["nodes"]) == count))  # type: ignore[misc]
        yield nodes


async def until(condition: Callable[[], Awaitable[bool]], within: float = 10.0) -> None:
    async with asyncio.timeout(within):
        while not await condition():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.03)


async def read(node: GatewayProcess, path: str) -> Any:
    answer = await node.http.get(path)
    return answer.json() if answer.status_code == 200 else None


async def has(node: GatewayProcess, path: str, condition: Callable[[Any], object]) -> bool:
    found = await read(node, path)
    return found is not None and bool(condition(found))


async def everywhere(nodes: list[GatewayProcess], agent_id: str, condition: Callable[[Any], object]) -> None:
    """Wait until an agent's health is so at every node."""
    for node in nodes:
        await until(lambda node=node: has(node, f"/agents/{agent_id}/health", condition))  # type: ignore[misc]


async def register(node: GatewayProcess, agent: FaultAgent, agent_id: str = "peer") -> None:
    await node.register({"agent_id": agent_id, "name": agent_id, "url": agent.url, "protocolVersion": "0.3.0"})


def answering(calls: Behaviour) -> Behaviour:
    """Healthy for checks; `calls` for what callers send."""

    async def run(connection: Any, request: Any) -> None:
        await (calls if b'"ping"' in request.body else NOT_FOUND).run(connection, request)

    return Behaviour("request", run)


def checks(agent: FaultAgent, since: float = 0.0) -> list[float]:
    """When it was checked."""
    return [
        one.at for one in agent.requests if one.method == "POST" and b'"ping"' not in one.body and one.at > since
    ]


def calls(agent: FaultAgent) -> list[float]:
    return [one.at for one in agent.requests if b'"ping"' in one.body]


async def sample(node: GatewayProcess, name: str) -> dict[str, float]:
    """The lines of a family."""
    return {
        head: float(value)
        for head, value in re.findall(rf"^({name}{{[^}}]*}}) (\S+)$", await node.scrape(), re.MULTILINE)
    }


async def events(node: GatewayProcess, into: list[str]) -> None:
    async with node.http.stream("GET", "/events", timeout=60) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data:") and '"routing"' in line:
                into.append(line)


async def test_one_checks_and_all_show_the_same(tmp_path: Path, shared_valkey: Valkey) -> None:
    """Two processes: the agents count one checker; status, history, metrics and events agree after an outage."""
    async with FaultAgent(path="/rpc") as agent, cluster(tmp_path, shared_valkey, 2) as nodes:
        heard: list[list[str]] = [[], []]
        readers = [asyncio.create_task(events(node, into)) for node, into in zip(nodes, heard, strict=True)]
        agent.always(NOT_FOUND)
        await register(nodes[0], agent)
        assert (await nodes[1].http.get("/agents/peer/health")).status_code == 200  # in the same moment
        await everywhere(nodes, "peer", lambda found: found["routing"] == "in_service")
        agent.always(reply.reset())
        await everywhere(nodes, "peer", lambda found: found["routing"] == "out_of_service")
        for node in nodes:
            refused = await node.call("peer", PING)
            assert refused.headers["x-gateway-error"] == "AGENT_OUT_OF_SERVICE"
        agent.always(NOT_FOUND)
        await everywhere(nodes, "peer", lambda found: found["routing"] == "in_service")
        histories = [(await read(node, "/agents/peer/health/history"))["results"] for node in nodes]
        least = min(map(len, histories))
        one, other = ([entry["at"] for entry in reversed(history)][:least] for history in histories)
        assert one == other
        assert len(one) == len(set(one)) >= 5
        moves = [(await read(node, "/agents/peer/health"))["last_transition"] for node in nodes]
        assert moves[0] == moves[1]
        for name in ("vitalgate_agent_routing", "vitalgate_health_transitions_total"):
            first, second = [await sample(node, name) for node in nodes]
            assert first == second != {}
        assert len(heard[0]) >= 4
        assert heard[0] == heard[1]
        for task in readers:
            task.cancel()
        await listed_alike(nodes)
        begun = checks(agent)
        assert all(later - sooner > 0.3 for sooner, later in pairwise(begun))


async def listed_alike(nodes: list[GatewayProcess]) -> None:
    """`GET /nodes` (contract 1): version, load and lease of all, the same at each."""

    async def alike() -> bool:
        one, other = [await read(node, "/nodes") for node in nodes]
        return bool(one["nodes"] == other["nodes"] and one["node"] != other["node"])

    await until(alike)
    found = await read(nodes[0], "/nodes")
    assert found["connected"] is True
    assert {node["pid"] for node in found["nodes"]} == {node.pid for node in nodes}
    assert {node["address"] for node in found["nodes"]} == {node.api for node in nodes}
    assert sorted(loads(found)) == [0, 1]
    for node in found["nodes"]:
        assert node["lease_ends_at"]
        assert node["version"]
        assert node["load"]["agents"] == 1
    page = await nodes[0].scrape()
    assert "vitalgate_nodes 2.0" in page
    assert "vitalgate_node_connected 1.0" in page


async def test_failures_add_up_and_one_call_tries(tmp_path: Path, shared_valkey: Valkey) -> None:
    """Three calls fail at one node and two at the other: out of service at both, and then one trial call per time.

    Both are hammered meanwhile; the agent sees one call a second after it was taken out, and the next two later.
    """
    async with FaultAgent(path="/rpc") as agent, cluster(tmp_path, shared_valkey, 2, interval=60) as nodes:
        agent.always(NOT_FOUND)
        await register(nodes[0], agent)
        await everywhere(nodes, "peer", lambda found: found["routing"] == "in_service")
        agent.always(answering(reply.reset()))
        for node in (nodes[0], nodes[1], nodes[0], nodes[1], nodes[0]):
            answer = await node.call("peer", PING)
            assert answer.headers["x-gateway-error"] in ("CONNECTION_LOST", "AGENT_UNREACHABLE")
        await everywhere(nodes, "peer", lambda found: found["routing"] == "out_of_service")
        for node in nodes:
            change = (await read(node, "/agents/peer/health"))["last_transition"]
            assert (change["because"], change["from"]) == ("calls", "in_service")
        before, until_then = len(calls(agent)), time.monotonic() + 4.5

        async def hammer(node: GatewayProcess) -> set[str]:
            seen = set()
            while time.monotonic() < until_then:
                seen.add((await node.call("peer", PING)).headers["x-gateway-error"])
            return seen

        outcomes = await asyncio.gather(*(hammer(node) for node in nodes for _ in range(4)))
        tried = calls(agent)[before:]
        assert 1 <= len(tried) <= 2
        assert all(later - sooner > 1.5 for sooner, later in pairwise(tried))
        assert "AGENT_OUT_OF_SERVICE" in set[str]().union(*outcomes)
        agent.always(answering(reply.result("pong")))
        await until(lambda: answers(nodes[1]), 15)
        await everywhere(nodes, "peer", lambda found: found["routing"] in ("in_service", "degraded"))


async def answers(node: GatewayProcess) -> bool:
    return "x-gateway-error" not in (await node.call("peer", PING)).headers


@pytest.mark.parametrize(
    ("number", "within"),
    [
        pytest.param(signal.SIGKILL, 15.0, id="SIGKILL"),
        pytest.param(signal.SIGTERM, 3.0, id="SIGTERM", marks=pytest.mark.long),  # see also tests/test_cluster.py
    ],
)
async def test_the_share_of_a_node_that_ends_moves(
    tmp_path: Path, shared_valkey: Valkey, number: signal.Signals, within: float
) -> None:
    """A dead node's share moves within 15 s; one that ends gives it back at once."""
    async with FaultAgent(path="/rpc") as agent, cluster(tmp_path, shared_valkey, 3) as nodes:
        agent.always(NOT_FOUND)
        ids = [f"agent-{index}" for index in range(9)]
        for agent_id in ids:
            await register(nodes[0], agent, agent_id)
        await until(
            lambda: has(nodes[0], "/nodes", lambda found: sum(loads(found)) == 9 and min(loads(found)) > 0)
        )
        victim, *left = nodes
        began = time.monotonic()
        if number is signal.SIGKILL:
            await victim.kill()
        else:
            await victim.stop()
        for node in left:
            await until(
                lambda node=node: has(node, "/nodes", lambda found: loads(found) and len(loads(found)) == 2),
                within,
            )  # type: ignore[misc]
        await until(lambda: has(left[0], "/nodes", lambda found: sum(loads(found)) == 9), within)
        marks = {agent_id: await checked_at(left[0], agent_id) for agent_id in ids}
        for agent_id in ids:
            await until(lambda agent_id=agent_id: is_later(left[0], agent_id, marks), within)  # type: ignore[misc]
        assert time.monotonic() - began < within + 3


@pytest.mark.long
async def test_a_node_that_was_stopped_comes_back_without_a_word(tmp_path: Path, shared_valkey: Valkey) -> None:
    """SIGSTOP for longer than its lease: the other takes its share over, and what it finds is not undone."""
    async with FaultAgent(path="/rpc") as agent, cluster(tmp_path, shared_valkey, 2) as nodes:
        agent.always(NOT_FOUND)
        ids = [f"agent-{index}" for index in range(6)]
        for agent_id in ids:
            await register(nodes[0], agent, agent_id)
            await everywhere(nodes, agent_id, lambda found: found["routing"] == "in_service")
        stopped, left = nodes
        os.kill(stopped.pid, signal.SIGSTOP)
        try:
            await until(lambda: has(left, "/nodes", lambda found: loads(found) == [6]), 15)
            agent.always(reply.reset())
            for agent_id in ids[:3]:  # of six, so that nobody doubts
                for _ in range(5):
                    await left.call(agent_id, PING)
            agent.always(NOT_FOUND)
            for agent_id in ids[:3]:
                assert (await read(left, f"/agents/{agent_id}/health"))["last_transition"][
                    "to"
                ] == "out_of_service"
        finally:
            os.kill(stopped.pid, signal.SIGCONT)
        await until(
            lambda: has(left, "/nodes", lambda found: len(loads(found)) == 2 and sum(loads(found)) == 6), 15
        )
        for agent_id in ids:
            await everywhere(nodes, agent_id, lambda found: found["routing"] == "in_service")

            async def alike(agent_id: str = agent_id) -> bool:
                one, other = [await read(node, f"/agents/{agent_id}/health") for node in nodes]
                return bool(one["last_transition"] == other["last_transition"])

            await until(alike)


def loads(found: Any) -> list[int]:
    return [node["load"]["checked"] for node in found["nodes"]]


async def checked_at(node: GatewayProcess, agent_id: str) -> str:
    return str((await read(node, f"/agents/{agent_id}/health"))["checked_at"])


async def is_later(node: GatewayProcess, agent_id: str, marks: dict[str, str]) -> bool:
    return await checked_at(node, agent_id) > marks[agent_id]


async def test_a_node_that_joins_later_refuses_at_once(tmp_path: Path, shared_valkey: Valkey) -> None:
    """It knows the verdicts before it serves."""
    async with FaultAgent(path="/rpc") as agent, cluster(tmp_path, shared_valkey, 1, trial=60) as [node]:
        agent.always(reply.reset())
        await register(node, agent)
        await everywhere([node], "peer", lambda found: found["routing"] == "out_of_service")
        known = await read(node, "/agents/peer/health")
        (tmp_path / "late").mkdir()
        async with GatewayProcess(tmp_path / "late", node.settings) as late:
            refused = await late.call("peer", PING)
            assert refused.headers["x-gateway-error"] == "AGENT_OUT_OF_SERVICE"
            shown = await read(late, "/agents/peer/health")
            assert (shown["status"], shown["last_transition"]) == (known["status"], known["last_transition"])


async def test_without_the_store_each_decides_alone(tmp_path: Path, own_valkey: Valkey) -> None:
    """Redis gone: checks, evidence and trial calls go on, and nothing waits for it."""
    async with FaultAgent(path="/rpc") as agent, cluster(tmp_path, own_valkey, 2) as nodes:
        agent.always(NOT_FOUND)
        await register(nodes[0], agent)
        await everywhere(nodes, "peer", lambda found: found["routing"] == "in_service")
        own_valkey.freeze()
        agent.always(answering(reply.reset()))
        for node in nodes:
            for _ in range(5):
                await node.call("peer", PING)
            assert (await read(node, "/agents/peer/health"))["routing"] == "out_of_service"
        agent.always(answering(reply.result("pong")))
        began = time.monotonic()
        for node in nodes:
            await until(lambda node=node: ponged(node), 5)  # type: ignore[misc]
        assert time.monotonic() - began < 5
        own_valkey.thaw()
        await everywhere(nodes, "peer", lambda found: found["routing"] in ("in_service", "degraded"))


async def ponged(node: GatewayProcess) -> bool:
    began = time.monotonic()
    answer = await node.call("peer", PING)
    assert time.monotonic() - began < 1.0
    return "x-gateway-error" not in answer.headers
