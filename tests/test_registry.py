"""registry.registry: the rules over a store and a clock (contract 5.1-5.3; pitfalls 100-110, 115, 123, 167)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from registry.agent import Registration
from registry.errors import Forbidden, Full, Invalid, NotFound, StoreError, StoreUnavailable
from registry.registry import RETRY_SECONDS, Registry
from registry.stores import open_store
from tests.fakes.clock import ManualClock

TTL = 60.0


def card(agent_id: str = "echo-01", **members: Any) -> bytes:
    return json.dumps({"agent_id": agent_id, "name": "Echo", "url": "http://127.0.0.1:9001/"} | members).encode()


class Bench:
    """A registry with everything around it that a test wants to move or read."""

    def __init__(self, url: str, **options: Any) -> None:
        self.clock = ManualClock()
        self.counts: Counter[tuple[str, str]] = Counter()
        self.told: list[tuple[str, str]] = []
        self.registry = Registry(
            open_store(url, self.clock.clock),
            ttl_seconds=TTL,
            clock=self.clock.clock,
            count=self._count,
            **options,
        )
        self.registry.on_change(lambda kind, agent_id: self.told.append((kind, agent_id)))

    def _count(self, operation: str, status: str) -> None:
        self.counts[operation, status] += 1

    def ids(self, **selection: Any) -> list[str]:
        return [one.agent.agent_id for one in self.registry.list(**selection)]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench("memory://")
    await bench.registry.start()
    yield bench
    await bench.registry.close()


@pytest.fixture
async def limited() -> AsyncIterator[Bench]:
    bench = Bench("memory://", max_agents=2)
    await bench.registry.start()
    yield bench
    await bench.registry.close()


# -- registering


async def test_a_registered_agent_is_found_in_every_way(bench: Bench) -> None:
    registration = await bench.registry.register(card(), None)
    assert bench.registry.resolve("echo-01") is registration.agent
    assert bench.registry.get("echo-01") == registration
    assert bench.registry.list() == [registration]
    assert len(bench.registry) == 1
    assert bench.told == [("registered", "echo-01")]
    assert bench.counts == {("register", "ok"): 1}


async def test_server_set_fields_on_registering_twice(bench: Bench) -> None:
    """Pitfall 103: registered_at is the first one, last_seen is now, everything else is replaced."""
    first = await bench.registry.register(card(skills=[{"id": "s", "name": "n", "tags": ["t"]}]), "alice")
    bench.clock.tick(2)
    claims = {
        "registered_at": "1970-01-01T00:00:00Z",
        "registered_by": "root",
        "last_seen": "2999-01-01T00:00:00Z",
    }
    second = await bench.registry.register(card(**claims), "alice")
    shown = json.loads(second.document())
    assert shown == json.loads(card()) | {
        "protocolVersions": ["1.0"],
        "registered_by": "alice",
        "registered_at": first.agent.registered_at,
        "last_seen": "2025-06-15T15:06:42.000000Z",
    }
    assert first.agent.registered_at == "2025-06-15T15:06:40.000000Z"
    assert bench.ids(skill_tags={"t"}) == []
    assert bench.told[1:] == [("replaced", "echo-01")]
    assert bench.registry.resolve("echo-01") is second.agent is not first.agent


async def test_the_agent_object_changes_only_with_the_registration(bench: Bench) -> None:
    first = await bench.registry.register(card(), None)
    await bench.registry.heartbeat("echo-01", None)
    await bench.registry.register(card(), None)
    assert bench.registry.resolve("echo-01") is first.agent
    await bench.registry.register(card(version="2"), None)
    assert bench.registry.resolve("echo-01") is not first.agent


async def test_invalid_cards_change_nothing(bench: Bench) -> None:
    await bench.registry.register(card(), None)
    for document in (b"{", b"[]", card(name=""), card(url="http://u:p@h/")):
        with pytest.raises(Invalid):
            await bench.registry.register(document, None)
    assert bench.counts["register", "invalid"] == 4
    assert bench.told == [("registered", "echo-01")]


async def test_the_address_check() -> None:
    """Contract 6.3."""
    bench = Bench("memory://", check_url=lambda url: "address not allowed" if url.host == "10.0.0.1" else None)
    await bench.registry.start()
    with pytest.raises(Invalid) as caught:
        await bench.registry.register(card(url="http://10.0.0.1/"), None)
    await bench.registry.close()
    assert [(one.field, one.message) for one in caught.value.violations] == [("url", "address not allowed")]


async def test_another_principal_gets_nowhere(bench: Bench) -> None:
    """Pitfall 105: 403 for register, heartbeat and deregister; nothing is told about the owner."""
    kept = await bench.registry.register(card(), "alice")
    for principal in ("bob", None, ""):
        with pytest.raises(Forbidden) as caught:
            await bench.registry.register(card(url="http://evil/"), principal)
        assert "alice" not in str(caught.value)
        with pytest.raises(Forbidden):
            await bench.registry.heartbeat("echo-01", principal)
        with pytest.raises(Forbidden):
            await bench.registry.deregister("echo-01", principal)
    assert bench.registry.get("echo-01") == kept
    assert {key: n for key, n in bench.counts.items() if key[1] != "ok"} == {
        ("register", "forbidden"): 3,
        ("heartbeat", "forbidden"): 3,
        ("deregister", "forbidden"): 3,
    }


async def test_claiming_an_unowned_agent_is_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    await bench.registry.register(card(), None)
    await bench.registry.heartbeat("echo-01", "alice")
    await bench.registry.register(card(version="2"), None)
    assert not caplog.records
    await bench.registry.register(card(), "alice")
    assert [record.getMessage() for record in caplog.records] == [
        "agent echo-01, which had no owner, now belongs to 'alice'"
    ]
    with pytest.raises(Forbidden):
        await bench.registry.heartbeat("echo-01", "bob")


async def test_max_agents(limited: Bench) -> None:
    """Contract 5.1: re-registration does not count, expired agents do not count."""
    await limited.registry.register(card("a1"), None)
    limited.clock.tick(TTL / 2)
    await limited.registry.register(card("a2"), None)
    with pytest.raises(Full, match="max_agents is 2"):
        await limited.registry.register(card("a3"), None)
    await limited.registry.register(card("a2", version="2"), None)
    limited.clock.tick(TTL / 2)
    await limited.registry.register(card("a3"), None)
    assert limited.ids() == ["a2", "a3"]
    assert limited.counts["register", "full"] == 1
    await limited.registry.deregister("a2", None)
    await limited.registry.register(card("a4"), None)


# -- life


async def test_heartbeats_prolong_and_tell_nobody(bench: Bench) -> None:
    """Pitfall 108: an interval close to the TTL never flaps."""
    registration = await bench.registry.register(card(), None)
    for _ in range(20):
        bench.clock.tick(TTL * 0.95)
        lease = await bench.registry.heartbeat("echo-01", None)
        await bench.registry.sweep()
    assert lease.last_seen > registration.lease.last_seen
    assert bench.registry.resolve("echo-01") is registration.agent
    assert bench.told == [("registered", "echo-01")]
    assert bench.counts["heartbeat", "ok"] == 20


async def test_expiry_is_decided_on_read_at_exactly_the_ttl(bench: Bench) -> None:
    """Pitfalls 108, 109, 101: all reads agree before any sweep, and a heartbeat brings nothing back."""
    await bench.registry.register(card(), None)
    bench.clock.tick(TTL - 0.001)
    assert bench.registry.resolve("echo-01") is not None
    bench.clock.tick(0.001)
    assert bench.registry.resolve("echo-01") is None
    assert bench.registry.get("echo-01") is None
    assert bench.registry.list() == []
    assert len(bench.registry) == 0
    with pytest.raises(NotFound):
        await bench.registry.heartbeat("echo-01", None)
    with pytest.raises(NotFound):
        await bench.registry.deregister("echo-01", None)
    assert bench.told == [("registered", "echo-01")]
    await bench.registry.sweep()
    await bench.registry.sweep()
    assert bench.told == [("registered", "echo-01"), ("expired", "echo-01")]
    assert bench.counts["expire", "ok"] == 1
    assert bench.counts["heartbeat", "not_found"] == 1
    assert bench.counts["deregister", "not_found"] == 1


async def test_coming_back_before_the_sweep_is_a_new_registration(bench: Bench) -> None:
    first = await bench.registry.register(card(), "alice")
    bench.clock.tick(TTL)
    second = await bench.registry.register(card(), "bob")
    assert second.agent.registered_at > first.agent.registered_at
    assert bench.told == [("registered", "echo-01"), ("expired", "echo-01"), ("registered", "echo-01")]
    await bench.registry.sweep()
    assert bench.registry.resolve("echo-01") is second.agent
    assert bench.counts["expire", "ok"] == 1


@pytest.mark.parametrize("step", [3600.0, -3600.0])
async def test_steps_of_the_wall_clock_decide_nothing(bench: Bench, step: float) -> None:
    """Pitfall 110: no mass expiry, no immortality."""
    await bench.registry.register(card(), None)
    bench.clock.step_wall(step)
    await bench.registry.sweep()
    assert bench.registry.resolve("echo-01") is not None
    bench.clock.tick(TTL)
    assert bench.registry.resolve("echo-01") is None


async def test_the_sweep_runs_by_itself() -> None:
    """Pitfall 123 for the sweep: it goes on after an error of a listener."""
    expired = asyncio.Queue[str]()

    def fails(kind: str, agent_id: str) -> None:
        raise RuntimeError("a listener's bug")

    registry = Registry(open_store("memory://"), ttl_seconds=0.05)
    registry.on_change(fails)
    registry.on_change(lambda kind, agent_id: expired.put_nowait(f"{kind} {agent_id}"))
    await registry.start()
    for agent_id in ("a1", "a2"):
        await registry.register(card(agent_id), None)
        assert await asyncio.wait_for(expired.get(), 5) == f"registered {agent_id}"
        assert await asyncio.wait_for(expired.get(), 5) == f"expired {agent_id}"
    await registry.close()


async def test_a_heartbeat_after_deregistration_does_not_bring_it_back(bench: Bench) -> None:
    """Contract 5.2."""
    await bench.registry.register(card(), None)
    await bench.registry.deregister("echo-01", None)
    with pytest.raises(NotFound):
        await bench.registry.heartbeat("echo-01", None)
    assert bench.registry.get("echo-01") is None
    assert bench.told == [("registered", "echo-01"), ("removed", "echo-01")]


async def test_heartbeats_and_sweeps_at_once(tmp_path: Path) -> None:
    """Pitfall 100 over a file: who is heard of in time is never swept, whatever the order of the writes."""
    bench = Bench(f"sqlite:///{tmp_path}/r.db")
    await bench.registry.start()
    ids = [f"a{number}" for number in range(20)]
    await asyncio.gather(*(bench.registry.register(card(one), None) for one in ids))
    for _ in range(5):
        bench.clock.tick(TTL * 0.6)
        await asyncio.gather(
            *(bench.registry.heartbeat(one, None) for one in ids[:10]),
            bench.registry.sweep(),
            *(bench.registry.sweep() for _ in range(3)),
        )
    assert sorted(bench.ids()) == sorted(ids[:10])
    assert bench.counts["expire", "ok"] == 10
    await bench.registry.close()


# -- listing


@pytest.fixture
async def listed(bench: Bench) -> Bench:
    for agent_id, tags in (("zz", ["a", " b "]), ("aa", ["A"]), ("mm", None), ("bb", ["c d", "b"])):
        skills = (
            [] if tags is None else [{"id": "one", "name": "Straße"}, {"id": "two", "name": "n", "tags": tags}]
        )
        await bench.registry.register(card(agent_id, name=f"Agent {agent_id}", skills=skills), None)
        if agent_id != "aa":
            bench.clock.tick(1)
    return bench


@pytest.mark.parametrize(
    ("selection", "found"),
    [
        ({}, ["zz", "aa", "mm", "bb"]),
        ({"skill_tags": {"a"}}, ["zz"]),
        ({"skill_tags": {"b"}}, ["bb"]),
        ({"skill_tags": {"a", "b"}}, ["zz", "bb"]),
        ({"skill_tags": {"A", "nope"}}, ["aa"]),
        ({"skill_tags": {"c d"}}, ["bb"]),
        ({"query": "AGENT M"}, ["mm"]),
        ({"query": "strasse"}, ["zz", "aa", "bb"]),
        ({"query": "c D"}, ["bb"]),
        ({"query": "9001"}, []),
        ({"limit": 2}, ["zz", "aa"]),
        ({"limit": 10**30}, ["zz", "aa", "mm", "bb"]),
        ({"limit": 1, "skill_tags": {"b"}}, ["bb"]),
    ],
)
async def test_listing(listed: Bench, selection: dict[str, Any], found: list[str]) -> None:
    """Contract 5.2, pitfall 115: any of the tags, exact; the limit applies after filtering; a stable order."""
    assert listed.ids(**selection) == found


async def test_ties_are_in_order_of_the_id(bench: Bench) -> None:
    for agent_id in ("bb", "cc", "aa"):
        await bench.registry.register(card(agent_id), None)
    assert bench.ids() == ["aa", "bb", "cc"]


# -- start, restart, outage


async def test_a_start_gives_one_ttl_of_grace(tmp_path: Path) -> None:
    """Contract 5.3."""
    bench = Bench(f"sqlite:///{tmp_path}/r.db")
    await bench.registry.start()
    await bench.registry.register(card(), "alice")
    await bench.registry.close()
    again = Bench(f"sqlite:///{tmp_path}/r.db")
    again.clock.tick(10_000)
    await again.registry.start()
    again.clock.tick(TTL - 1)
    assert again.ids() == ["echo-01"]
    with pytest.raises(Forbidden):
        await again.registry.heartbeat("echo-01", "bob")
    again.clock.tick(1)
    assert again.ids() == []
    await again.registry.close()


async def test_a_failed_start_leaves_nothing_behind(tmp_path: Path) -> None:
    first = Registry(open_store(f"sqlite:///{tmp_path}/r.db"), ttl_seconds=TTL)
    await first.start()
    second = Registry(open_store(f"sqlite:///{tmp_path}/r.db"), ttl_seconds=TTL)
    with pytest.raises(StoreError, match="in use"):
        await second.start()
    await second.close()
    await first.close()


class Outage:
    """Somebody else's write transaction: the file takes no writes for as long as it lasts."""

    def __init__(self, file: Path) -> None:
        self._database = sqlite3.connect(file, isolation_level=None)

    def begin(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")

    def end(self) -> None:
        self._database.execute("ROLLBACK")

    def close(self) -> None:
        self._database.close()


@pytest.fixture
async def on_file(tmp_path: Path) -> AsyncIterator[tuple[Bench, Outage]]:
    bench = Bench(f"sqlite:///{tmp_path}/r.db")
    await bench.registry.start()
    outage = Outage(tmp_path / "r.db")
    yield bench, outage
    outage.close()
    await bench.registry.close()


async def begin(bench: Bench, outage: Outage) -> None:
    outage.begin()
    with pytest.raises(StoreUnavailable):
        await bench.registry.heartbeat("echo-01", None)


async def test_nothing_expires_while_the_store_is_out(on_file: tuple[Bench, Outage]) -> None:
    """Contract 5.3: the known agents stay routable, writes are refused; after it, one TTL of grace."""
    bench, outage = on_file
    kept = await bench.registry.register(card(), None)
    bench.clock.tick(TTL - 1)
    await begin(bench, outage)
    bench.clock.tick(10 * TTL)
    await bench.registry.sweep()
    assert bench.registry.resolve("echo-01") is kept.agent
    assert bench.ids() == ["echo-01"]
    assert len(bench.registry) == 1
    with pytest.raises(StoreUnavailable):
        await bench.registry.register(card("new"), None)
    outage.end()
    bench.clock.tick(RETRY_SECONDS)
    await bench.registry.sweep()
    bench.clock.tick(TTL - 1)
    assert bench.ids() == ["echo-01"]
    bench.clock.tick(1)
    assert bench.ids() == []
    assert bench.counts["heartbeat", "error"] == 1
    assert bench.counts["register", "error"] == 1
    assert bench.told == [("registered", "echo-01")]


async def test_a_short_outage_gives_its_own_length_back(on_file: tuple[Bench, Outage]) -> None:
    """Or flapping storage would make agents immortal that are never heard of again."""
    bench, outage = on_file
    await bench.registry.register(card(), None)
    bench.clock.tick(TTL - 1)
    await begin(bench, outage)
    bench.clock.tick(10)
    outage.end()
    await bench.registry.sweep()
    bench.clock.tick(9.9)
    assert bench.ids() == ["echo-01"]
    bench.clock.tick(0.1)
    assert bench.ids() == []


async def test_an_outage_brings_no_dead_back(on_file: tuple[Bench, Outage]) -> None:
    """Expired, not swept, and then the store goes: time stands still at the begin of the outage, not before."""
    bench, outage = on_file
    await bench.registry.register(card("old-one"), None)
    bench.clock.tick(TTL)
    await bench.registry.register(card(), None)
    bench.clock.tick(1)
    await begin(bench, outage)
    bench.clock.tick(5 * TTL)
    assert bench.ids() == ["echo-01"]
    outage.end()
    with pytest.raises(NotFound):
        await bench.registry.heartbeat("old-one", None)
    await bench.registry.heartbeat("echo-01", None)
    await bench.registry.sweep()
    assert bench.ids() == ["echo-01"]
    assert bench.told[-1] == ("expired", "old-one")


async def test_a_sweep_that_meets_the_outage_first(on_file: tuple[Bench, Outage]) -> None:
    bench, outage = on_file
    await bench.registry.register(card(), None)
    bench.clock.tick(TTL)
    outage.begin()
    await bench.registry.sweep()
    assert bench.counts["expire", "error"] == 1
    assert bench.ids() == []
    outage.end()
    bench.clock.tick(RETRY_SECONDS)
    await bench.registry.sweep()
    assert bench.told[-1] == ("expired", "echo-01")


async def test_during_an_outage_writes_fail_at_once(on_file: tuple[Bench, Outage]) -> None:
    """Pitfall 164: a herd of heartbeats does not queue up behind a store that is out."""
    bench, outage = on_file
    await bench.registry.register(card(), None)
    await begin(bench, outage)
    loop = asyncio.get_running_loop()
    started = loop.time()
    results = await asyncio.gather(
        *(bench.registry.heartbeat("echo-01", None) for _ in range(200)), return_exceptions=True
    )
    assert {type(result) for result in results} == {StoreUnavailable}
    assert loop.time() - started < 5
    outage.end()
    bench.clock.tick(RETRY_SECONDS)
    await bench.registry.heartbeat("echo-01", None)


async def test_an_outage_is_logged_once_at_each_end(
    on_file: tuple[Bench, Outage], caplog: pytest.LogCaptureFixture
) -> None:
    bench, outage = on_file
    await bench.registry.register(card(), None)
    await begin(bench, outage)
    for _ in range(3):
        bench.clock.tick(RETRY_SECONDS)
        await bench.registry.sweep()
    outage.end()
    bench.clock.tick(RETRY_SECONDS)
    await bench.registry.sweep()
    first, last = (record.getMessage() for record in caplog.records)
    assert first.startswith("the registry store is out")
    assert last.startswith("the registry store is back after 4 s")


async def test_a_body_that_names_no_agent_is_counted(bench: Bench) -> None:
    """Contract 7, pitfall 101."""
    assert bench.registry.read_agent_id("heartbeat", b'{"agent_id":"echo-01"}') == "echo-01"
    for operation in ("heartbeat", "deregister"):
        with pytest.raises(Invalid):
            bench.registry.read_agent_id(operation, b'{"agent_id":5}')
    assert bench.counts == {("heartbeat", "invalid"): 1, ("deregister", "invalid"): 1}


# -- size


@pytest.mark.long
async def test_ten_thousand_agents(tmp_path: Path) -> None:
    """Registering, heartbeats and listing stay fast, and no heartbeat costs more for the others' number."""
    bench = Bench(f"sqlite:///{tmp_path}/r.db", max_agents=10_000)
    await bench.registry.start()
    loop = asyncio.get_running_loop()

    async def timed(count: int, operation: Any) -> float:
        started = loop.time()
        for number in range(count):
            await operation(number)
        return (loop.time() - started) / count

    async def register(number: int) -> Registration:
        return await bench.registry.register(card(f"a{number}", skills=[{"id": "s", "name": "n"}]), None)

    few = await timed(500, register)
    for number in range(500, 10_000):
        await register(number)
    many = await timed(500, register)
    beats = await timed(500, lambda number: bench.registry.heartbeat(f"a{number}", None))
    started = loop.time()
    found = bench.registry.list(query="zzz")
    assert found == []
    listing = [one.document() for one in bench.registry.list()]
    took = loop.time() - started
    assert len(listing) == 10_000
    await bench.registry.close()
    assert many < 5 * few
    assert beats < 5 * few
    assert took < 1
