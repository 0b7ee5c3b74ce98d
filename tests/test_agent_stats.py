"""`GET /stats/agents`: one computation for all who look, and only what is different for those who come back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest_asyncio

from gateway.agent_stats import AgentStats
from gateway.metrics import Metrics
from registry.registry import Registry
from registry.stores.memory import MemoryStore
from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.clock import ManualClock
from tests.fakes.health_peer import A2APeer
from tests.fakes.running import running
from tests.fakes.stream_reply import sse

CALL = {"jsonrpc": "2.0", "id": 1, "method": "message/send"}
WORKING = b'data: {"jsonrpc":"2.0","id":1,"result":{"kind":"status-update","final":false}}\n\n'


class Bench:
    """A view of a registry in memory."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        clock = self.clock.clock
        self.registry = Registry(MemoryStore(clock), ttl_seconds=300, clock=clock)
        self.metrics = Metrics("kubemq_a2a", "1")
        self.stats = AgentStats(self.registry, self.metrics, None, ttl_seconds=300, clock=clock)

    async def register(self, agent_id: str, **card: Any) -> None:
        document = {"agent_id": agent_id, "name": agent_id, "url": "http://127.0.0.1:1/", **card}
        await self.registry.register(json.dumps(document).encode(), None)

    async def view(self, since: str = "", after: float = 2.0) -> dict[str, Any]:
        self.clock.tick(after)
        found: dict[str, Any] = msgspec.json.decode(await self.stats.answer(since))
        return found


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.registry.start()
    yield bench
    await bench.registry.close()


def ids(view: dict[str, Any]) -> list[str]:
    return [row["agent_id"] for row in view["agents"]]


async def test_the_first_view_is_complete_and_has_no_numbers_of_calls(bench: Bench) -> None:
    await bench.register("one", skills=[{"id": "s", "name": "Sing"}], protocolVersion="0.3.0")
    view = await bench.view()
    [row] = view["agents"]
    assert view["complete"]
    assert (view["window_seconds"], view["ttl_seconds"], view["gone"]) == (0.0, 300, [])
    assert (row["skills"], row["protocols"], row["owner"]) == (["Sing"], ["0.3"], "anonymous")
    assert (row["status"], row["routing"], row["calls_per_second"]) == ("UNKNOWN", "unchecked", None)


async def test_who_comes_back_gets_what_is_different(bench: Bench) -> None:
    await bench.register("one")
    await bench.register("two")
    await bench.view()
    first = await bench.view()  # now there are rates, of nothing
    nothing = await bench.view(first["version"])
    assert (nothing["complete"], nothing["agents"], nothing["version"]) == (False, [], first["version"])
    bench.metrics.cells("two").request("message/send", "success", 0.02)
    called = await bench.view(first["version"])
    assert ids(called) == ["two"]
    assert called["agents"][0]["calls_per_second"] > 0
    await bench.registry.heartbeat("one", None)
    assert ids(await bench.view(called["version"])) == ["one", "two"]  # two's rate falls


async def test_who_is_gone_is_named_and_who_returns_is_not(bench: Bench) -> None:
    await bench.register("one")
    await bench.register("two")
    await bench.view()
    first = await bench.view()
    await bench.registry.deregister("one", None)
    gone = await bench.view(first["version"])
    assert (gone["gone"], ids(gone)) == (["one"], [])
    await bench.register("one", name="again")
    back = await bench.view(first["version"])
    assert (back["gone"], ids(back)) == ([], ["one"])
    assert back["agents"][0]["name"] == "again"


async def test_a_strange_version_gets_everything(bench: Bench) -> None:
    await bench.register("one")
    version = (await bench.view())["version"]
    mark = version.partition("-")[0]
    for strange in ("", "x", "x-1", f"{mark}-", f"{mark}-99", f"{mark}--1", f"{mark}-²", "0" * 500):
        view = await bench.view(strange)
        assert view["complete"], strange
        assert ids(view) == ["one"]


async def test_within_two_seconds_it_is_computed_once(bench: Bench) -> None:
    await bench.register("one")
    first, again = await asyncio.gather(bench.stats.answer(), bench.stats.answer())
    assert first is again
    await bench.register("two")
    assert await bench.stats.answer() is first
    bench.clock.tick(2)
    assert ids(await bench.view(after=0)) == ["one", "two"]


async def test_readers_with_many_versions_cost_no_memory(bench: Bench) -> None:
    versions = []
    for number in range(20):
        await bench.register(f"agent-{number}")
        versions.append((await bench.view())["version"])
    views = [await bench.view(version, after=0) for version in versions]
    assert [len(view["agents"]) for view in views[1:]] == list(range(18, -1, -1))
    assert len(bench.stats._answers) == 8


async def test_after_a_pause_it_is_measured_anew(bench: Bench) -> None:
    await bench.register("one")
    await bench.view()
    bench.metrics.cells("one").request("message/send", "success", 0.02)
    assert (await bench.view())["agents"][0]["calls_per_second"] == 0.5
    bench.metrics.cells("one").request("message/send", "success", 0.02)
    paused = await bench.view(after=60.0)
    assert (paused["window_seconds"], paused["agents"][0]["calls_per_second"]) == (0.0, None)


async def test_calls_outcomes_and_open_streams_over_the_wire() -> None:
    async with FaultAgent() as agent, running() as gateway:
        await gateway.register(agent)
        version = (await gateway.client.get("/stats/agents")).json()["version"]
        agent.next(reply.json({}, status=500), sse(WORKING, asyncio.Event()))
        await gateway.call(CALL)
        async with gateway.client.stream("POST", "/a2a/echo", json=CALL) as stream:
            pieces = stream.aiter_bytes()
            await anext(pieces)
            await asyncio.sleep(2.0)  # a view is two seconds old at most: that is the promise
            view = (await gateway.client.get("/stats/agents", params={"since": version})).json()
            one = (await gateway.client.get("/stats/agents/echo")).json()
        [row] = view["agents"]
        assert row["open_streams"] == 1
        assert row["outcomes"] == {"application_error": 1}
        assert one["agent"] == row
        assert one["totals"]["calls"] == 1
        assert one["totals"]["errors_by_code"] == {"-32603": 1}
        for unknown in ("nobody", "Echo", "x"):
            assert (await gateway.client.get(f"/stats/agents/{unknown}")).status_code == 404


async def test_an_agent_may_be_called_stats() -> None:
    """Contract 1: ids and routes do not get in each other's way."""
    async with FaultAgent() as agent, running(health={"enable": True}) as gateway:
        for agent_id in ("stats", "agents", "gateway"):
            await gateway.register(agent, agent_id)
            assert (await gateway.client.get(f"/agents/{agent_id}")).json()["agent_id"] == agent_id
            one = (await gateway.client.get(f"/stats/agents/{agent_id}")).json()
            assert one["agent"]["agent_id"] == agent_id


async def test_the_card_that_an_agent_publishes_is_kept_as_the_check_read_it() -> None:
    """Health contract 7: what the registered card is compared with."""
    async with A2APeer() as peer, running(health={"enable": True, "interval_seconds": 3600}) as gateway:
        await gateway.register(peer.base, name="registered")
        before = (await gateway.client.get("/agents/echo/health/card")).json()
        assert before == {"agent_id": "echo", "published": None, "is_published": False, "drift": []}
        peer.card["name"] = "other <b>\u2028\U0001f600</b>"
        await gateway.client.post("/agents/echo/health/check")
        found = (await gateway.client.get("/agents/echo/health/card")).json()
        assert (found["published"], found["is_published"], found["drift"]) == (peer.card, True, ["name"])
        peer.card["skills"] *= 1000  # over 32 KiB: known, but not kept
        await gateway.client.post("/agents/echo/health/check")
        found = (await gateway.client.get("/agents/echo/health/card")).json()
        assert (found["published"], found["is_published"]) == (None, True)
        assert (await gateway.client.get("/agents/nobody/health/card")).status_code == 404
