"""Health over REST, in registry views, as metrics, of the gateway itself (health contract 7, contract 5.2, 8)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gateway.health_metrics import export
from gateway.lifecycle import Lifecycle
from gateway.metrics import Metrics
from gateway.monitor import Monitor
from gateway.own_health import own_health
from healthcheck.document import schema
from healthcheck.model import Status
from registry.clock import Clock
from registry.errors import StoreUnavailable
from registry.registry import Registry
from registry.stores.memory import MemoryStore
from tests.fakes import reply
from tests.fakes.certs import Authority
from tests.fakes.health_peer import A2APeer
from tests.fakes.monitored import HealthRules, card_of, monitored
from tests.fakes.ports import refusing_port
from tests.fakes.running import Running, eventually, running

ON = {"enable": True, "interval_seconds": 3600}


async def get(gateway: Running, path: str, status: int = 200) -> Any:
    answer = await gateway.client.get(path)
    assert answer.status_code == status, answer.text
    return answer.json()


async def check(gateway: Running, agent_id: str) -> Any:
    answer = await gateway.client.post(f"/agents/{agent_id}/health/check")
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()


async def test_the_document_is_a_result_document_with_more_beside_it() -> None:
    """Defined members as everywhere; ours stand beside them."""
    async with A2APeer() as peer, running(health=ON) as gateway:
        await gateway.register(peer.at("/rpc"), "peer", **card_of(peer, name="peer"))
        shown = await check(gateway, "peer")
        ours = {
            "routing",
            "checked_at",
            "consecutive",
            "last_transition",
            "next_trial_seconds",
            "passive",
            "drift",
            "advice",
        }
        jsonschema.validate({name: value for name, value in shown.items() if name not in ours}, schema())
        assert ours < shown.keys()
        assert shown["target"] == {"id": "peer", "name": "peer", "type": "a2a"}
        assert (shown["status"], shown["routing"], shown["consecutive"]) == ("HEALTHY", "in_service", 1)
        assert shown["last_transition"]["from"] == "unchecked"
        assert (await get(gateway, "/agents/peer/health"))["checked_at"] == shown["checked_at"]


async def test_an_undeclared_agent_is_served_as_it_publishes_itself() -> None:
    """Contract 5.4: what the health engine read in its published card tells the protocols, once it has read it."""
    async with A2APeer() as peer, running(health=ON) as gateway:
        await gateway.register(peer.at("/rpc"), "peer", protocolVersions=["1.0"])
        await check(gateway, "peer")
        card = await get(gateway, "/a2a/peer/.well-known/agent-card.json")
        at = f"{gateway.api}/a2a/peer"
        interface = {"url": at, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        assert card["supportedInterfaces"] == [interface]
        assert not card.keys() & {"url", "protocolVersion", "preferredTransport"}
        async with gateway.client.stream("GET", "/a2a/peer/stream") as answer:
            await answer.aread()
        assert peer.requests[-1].json()["method"] == "SendStreamingMessage"


async def test_before_the_first_check_has_ended() -> None:
    async with A2APeer() as peer, running(health=ON) as gateway:
        peer.paths["/rpc"] = reply.hang()
        await gateway.register(peer.at("/rpc"), "peer")
        shown = await get(gateway, "/agents/peer/health")
        assert (shown["status"], shown["routing"], shown["checked_at"]) == ("UNKNOWN", "unchecked", None)
        assert (shown["checks"], shown["consecutive"], shown["last_transition"]) == ({}, 0, None)
        assert (await get(gateway, "/agents/peer/health/history"))["results"] == []
        view = await get(gateway, "/agents/peer")
        assert view["health"] == {"status": "UNKNOWN", "routing": "unchecked", "checked_at": None}


async def test_findings_come_with_advice() -> None:
    """A wrong version, a drifted card: state, message, what to do."""
    async with A2APeer() as peer, running(health=ON) as gateway:
        await gateway.register(peer.at("/rpc"), "peer", **card_of(peer, name="another"))
        shown = await check(gateway, "peer")
        assert (shown["status"], shown["routing"], shown["drift"]) == ("DEGRADED", "degraded", ["name"])
        [advice] = shown["advice"]
        assert (advice["check"], advice["code"]) == ("capability", "card_drift")
        assert advice["remedy"]
        peer.rpc["GetTask"] = reply.error(-32009, "version not supported")
        shown = await check(gateway, "peer")
        assert (shown["status"], shown["routing"]) == ("UNHEALTHY", "degraded")
        assert shown["checks"]["protocol"]["code"] == "a2a_version"
        assert "Version mismatch" in json.dumps(shown["advice"])
        assert await gateway.metric("vitalgate_agent_health", agent_id="peer", status="UNHEALTHY") == 1
        assert await gateway.metric("vitalgate_agent_health", agent_id="peer", status="HEALTHY") == 0
        assert await gateway.metric("vitalgate_agent_routing", agent_id="peer", state="degraded") == 1
        moved = {"agent_id": "peer", "from": "unchecked", "to": "degraded"}
        assert await gateway.metric("vitalgate_health_transitions_total", **moved) == 1


async def test_the_history_is_newest_first() -> None:
    async with A2APeer() as peer, running(health=ON) as gateway:
        await gateway.register(peer.at("/rpc"), "peer", **card_of(peer, name="peer"))
        await check(gateway, "peer")
        peer.rpc["GetTask"] = reply.reset()
        await check(gateway, "peer")
        history = await get(gateway, "/agents/peer/health/history")
        assert history["agent_id"] == "peer"
        [last, first] = history["results"]
        assert (first["status"], last["status"], last["code"]) == ("HEALTHY", "UNREACHABLE", "connection_lost")
        assert first["duration_ms"] >= first["latency_ms"] >= first["first_byte_ms"] > 0
        assert last["at"] > first["at"]


async def test_fifty_requests_cause_one_probe() -> None:
    async with A2APeer() as peer, running(health=ON) as gateway:
        await gateway.register(peer.at("/rpc"), "peer", **card_of(peer, name="peer"))
        await check(gateway, "peer")
        before = len(peer.requests)
        gate = asyncio.Event()
        peer.rpc["GetTask"] = reply.after(gate, reply.error(-32001, "task not found"))
        asked = [asyncio.create_task(check(gateway, "peer")) for _ in range(50)]
        await peer.received(before + 1)
        await eventually(lambda: _waiting_for_a_check() == 50, within=20)
        gate.set()
        answers = await asyncio.gather(*asked)
        assert len({answer["checked_at"] for answer in answers}) == 1
        assert len(peer.requests) == before + 2  # the look-up and the card


def _waiting_for_a_check() -> int:
    """How many tasks of this loop, where the gateway runs too, stand in `Monitor.check`."""
    return sum(Monitor.check.__code__ in _standing_in(task.get_coro()) for task in asyncio.all_tasks())


def _standing_in(awaited: Any) -> Iterator[Any]:
    while awaited is not None:
        yield getattr(awaited, "cr_code", None)
        awaited = getattr(awaited, "cr_await", None)


@pytest.mark.parametrize("agent_id", ["register", "heartbeat", "deregister", "health"])
async def test_agents_with_names_of_routes(agent_id: str) -> None:
    """Contract 1."""
    async with A2APeer() as peer, running(health=ON) as gateway:
        await gateway.register(peer.at("/rpc"), agent_id)
        assert (await check(gateway, agent_id))["target"]["id"] == agent_id
        assert (await get(gateway, f"/agents/{agent_id}/health"))["target"]["id"] == agent_id
        assert (await get(gateway, f"/agents/{agent_id}/health/history"))["agent_id"] == agent_id


@pytest.mark.parametrize("agent_id", ["nobody", "Nobody", "a", "-a", "x%2Fy", "..%2f", "a" * 129])
async def test_nobody(agent_id: str) -> None:
    async with running(health=ON) as gateway:
        for path in ("", "/history"):
            assert await get(gateway, f"/agents/{agent_id}/health{path}", 404)
        answer = await gateway.client.post(f"/agents/{agent_id}/health/check")
        assert answer.status_code == 404


async def test_methods() -> None:
    async with running(health=ON) as gateway:
        assert (await gateway.client.post("/agents/a1/health")).status_code == 405
        assert (await gateway.client.get("/agents/a1/health/check")).status_code == 405
        assert (await gateway.client.delete("/health/agents")).status_code == 405
        assert (await gateway.client.head("/health/agents")).status_code == 200


async def test_counts_and_a_line_per_agent() -> None:
    async with A2APeer() as peer, running(health=ON) as gateway:
        with refusing_port() as port:
            await gateway.register(f"http://127.0.0.1:{port}/", "down")
            await gateway.register(peer.at("/rpc"), "up", **card_of(peer, name="peer"))
            for agent_id in ("up", "down"):
                await check(gateway, agent_id)
            shown = await get(gateway, "/health/agents")
        assert {status: count for status, count in shown["statuses"].items() if count} == {
            "HEALTHY": 1,
            "UNREACHABLE": 1,
        }
        assert shown["routing"] == {"in_service": 1, "degraded": 0, "out_of_service": 0, "unchecked": 1}
        assert shown["suspects_itself"] is False
        [down, up] = shown["agents"]
        assert (down["agent_id"], down["status"], down["code"]) == ("down", "UNREACHABLE", "connect_refused")
        assert (up["agent_id"], up["code"], up["consecutive"]) == ("up", None, 1)


async def test_registry_views_and_the_filter() -> None:
    """Contract 5.2: REST views add `health`; `health=` filters, and `limit` applies afterwards."""
    async with A2APeer() as peer, running(health=ON) as gateway:
        with refusing_port() as port:
            await gateway.register(f"http://127.0.0.1:{port}/", "down")
            stored = await gateway.register(peer.at("/rpc"), "up", **card_of(peer, name="peer"))
            assert "health" not in stored
            await check(gateway, "up")
            await check(gateway, "down")
        view = await get(gateway, "/agents/up")
        assert view["health"] == {
            "status": "HEALTHY",
            "routing": "in_service",
            "checked_at": view["health"]["checked_at"],
        }

        async def ids(query: str) -> list[str]:
            return [one["agent_id"] for one in await get(gateway, f"/agents?{query}")]

        assert await ids("health=HEALTHY") == ["up"]
        assert await ids("health=HEALTHY,DEGRADED&limit=1") == ["up"]
        assert await ids("health=UNREACHABLE&health=HEALTHY") == ["down", "up"]
        assert await ids("health=") == ["down", "up"]
        assert await ids("health=UNKNOWN") == []
        wrong = await get(gateway, "/agents?health=healthy", 400)
        assert wrong["details"][0]["field"] == "health"
        assert "HEALTHY, DEGRADED" in wrong["details"][0]["message"]


async def test_a_registrant_cannot_write_its_own_health() -> None:
    async with A2APeer() as peer, running(health=ON) as gateway:
        await gateway.register(peer.at("/rpc"), "peer", health={"status": "HEALTHY"})
        assert "checked_at" in (await get(gateway, "/agents/peer"))["health"]
        answer = await gateway.client.get("/agents/peer")
        assert answer.text.count('"health"') == 1


async def test_the_routes_are_described() -> None:
    async with running(health=ON) as gateway:
        paths = (await get(gateway, "/schema"))["paths"]
        assert {
            "/agents/{agent_id}/health",
            "/agents/{agent_id}/health/history",
            "/agents/{agent_id}/health/check",
            "/health/agents",
            "/health",
            "/events",
        } < paths.keys()
        assert not [path for path in paths if "/register/health" in path]


# -- metrics


async def test_the_series_of_the_health_engine(tmp_path: Path) -> None:
    """One-hot states, durations by check, certificate's end; a removed agent's gauges go at once."""
    authority = Authority(tmp_path)
    async with A2APeer(tls=authority.server()) as peer, monitored(ca_file=str(authority.ca_file)) as it:
        export(it.metrics, it.monitor)
        await it.register(peer.at("/rpc"), **card_of(peer))
        await it.checked()
        page = (await it.metrics.page()).decode()
        assert 'vitalgate_agent_health{agent_id="peer",status="HEALTHY"} 1\n' in page
        assert page.count('vitalgate_agent_health{agent_id="peer"') == 6
        assert page.count('vitalgate_agent_routing{agent_id="peer"') == 4
        assert 'vitalgate_health_check_duration_seconds_count{check="reachability"} 1.0\n' in page
        assert 'vitalgate_agent_certificate_expiry_timestamp_seconds{agent_id="peer"} 1' in page
        assert "\nvitalgate_health_suspects_itself 0.0\n" in page
        assert "\nvitalgate_health_checks_overdue_seconds 0.0\n" in page
        peer.rpc["GetTask"] = reply.error(-32603, "x")
        await it.checked()
        page = (await it.metrics.page()).decode()
        assert 'vitalgate_agent_health{agent_id="peer",status="DEGRADED"} 1\n' in page
        assert 'vitalgate_agent_health{agent_id="peer",status="HEALTHY"} 0\n' in page
        await it.registry.deregister("peer", None)
        page = (await it.metrics.page()).decode()
        assert "agent_health{" not in page
        assert "vitalgate_health_transitions_total{" in page  # a counter stays for a last scrape


async def test_a_scrape_of_a_thousand_agents_is_cheap() -> None:
    """Contract 7, performance: what has not changed is not written again."""
    async with monitored(HealthRules(3600.0)) as it:
        export(it.metrics, it.monitor)
        for number in range(1000):
            await it.register(f"http://127.0.0.1:9/{number}", f"agent-{number}")
        await it.metrics.page()
        times = []
        for _ in range(5):
            began = time.thread_time()  # what it costs, however busy the machine is
            page = await it.metrics.page()
            times.append(time.thread_time() - began)
        assert page.count(b"vitalgate_agent_health{") == 6000
        assert min(times) < 0.04
        for family in ("agent_health", "agent_routing"):
            read = next(read for head, read in it.metrics._families if f"vitalgate_{family} " in head)
            assert all(one is other for one, other in zip(read(), read(), strict=True)), family


# -- the gateway itself


async def test_live_ready_and_health() -> None:
    """The gateway's own health says nothing of its agents, and asking never causes a probe."""
    with refusing_port() as port:
        async with running(health=ON) as gateway:
            await gateway.register(f"http://127.0.0.1:{port}/", "down")
            for _ in range(3):
                await check(gateway, "down")
            before = len((await get(gateway, "/agents/down/health/history"))["results"])
            for _ in range(20):
                shown = await get(gateway, "/health")
            assert {name: shown[name] for name in ("ahp_version", "spec_version", "status")} == {
                "ahp_version": "v1",
                "spec_version": "v1",
                "status": "HEALTHY",
            }
            assert shown["observed_at"].endswith("Z")
            assert len(shown) == 4
            assert len((await get(gateway, "/agents/down/health/history"))["results"]) == before
            assert (await get(gateway, "/live"), await get(gateway, "/ready")) == ({"status": "ok"},) * 2


class FailingStore(MemoryStore):
    """A store whose writes can fail."""

    out = False

    async def put(self, *args: Any) -> Any:
        if self.out:
            raise StoreUnavailable("out")
        return await super().put(*args)

    async def grace(self, *args: Any) -> None:
        if self.out:
            raise StoreUnavailable("out")
        await super().grace(*args)


async def test_what_makes_the_gateway_itself_degraded_or_unhealthy() -> None:
    """A store outage is DEGRADED and leaves the gateway ready; draining is UNHEALTHY."""
    clock = Clock()
    store = FailingStore(clock)
    registry, metrics, lifecycle = Registry(store, ttl_seconds=300), Metrics("kubemq_a2a", "1"), Lifecycle()
    assert own_health(lifecycle, registry, metrics, None) is Status.UNHEALTHY
    await registry.start()
    lifecycle.started()
    assert own_health(lifecycle, registry, metrics, None) is Status.HEALTHY
    store.out = True
    with pytest.raises(StoreUnavailable):
        await registry.register(b'{"agent_id":"a1","name":"a","url":"http://h/"}', None)
    assert own_health(lifecycle, registry, metrics, None) is Status.DEGRADED
    assert lifecycle.ready
    store.out = False
    registry._retry_at = 0.0
    await registry.register(b'{"agent_id":"a1","name":"a","url":"http://h/"}', None)
    assert own_health(lifecycle, registry, metrics, None) is Status.HEALTHY
    metrics.lag = 1.1
    assert own_health(lifecycle, registry, metrics, None) is Status.DEGRADED
    metrics.lag = 0.0
    await lifecycle.drain()
    assert own_health(lifecycle, registry, metrics, None) is Status.UNHEALTHY
    await registry.close()
