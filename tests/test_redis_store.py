"""registry.stores.redis: several nodes over one Valkey, in one process (contract 5.3; pitfalls 100, 159-169)."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway import cluster_scripts
from registry.errors import Forbidden, Full, NotFound, StoreError, StoreUnavailable
from registry.registry import Registry
from registry.stores.ledger import Gone, Kept, News
from registry.stores.redis import link, scripts, server
from registry.stores.redis.script import Script
from registry.stores.redis.store import RedisStore
from tests.fakes.clock import ManualClock
from tests.fakes.cut import Cut
from tests.fakes.running import eventually
from tests.fakes.valkey import Valkey, moving_time, replicated
from tests.test_stores import TTL, agent


@dataclass
class Node:
    """A store and what it told."""

    store: RedisStore
    clock: ManualClock
    told: list[News] = field(default_factory=list)

    async def known(self) -> dict[str, str]:
        """Which agents this node knows, and their cards."""
        return {one.agent.agent_id: one.agent.card.decode() for one in await self.store.list()}

    async def sees(self, *ids: str, within: float = 1.0) -> None:
        """Within the second that the change feed may take."""
        until = time.monotonic() + within
        while set(await self.known()) != set(ids):
            assert time.monotonic() < until, (await self.known(), ids)
            await asyncio.sleep(0.005)

    def kinds(self) -> list[tuple[str, str]]:
        return [(one.kind, one.agent_id) for one in self.told if isinstance(one, Kept | Gone)]


@asynccontextmanager
async def nodes(*urls: str, prefix: str = "t.", real_time: bool = True) -> AsyncIterator[list[Node]]:
    async with AsyncExitStack() as stack:
        opened = []
        for url in urls:
            clock = ManualClock()
            node = Node(RedisStore(url, prefix, Real.clock if real_time else clock.clock), clock)
            node.store.watch(node.told.append)
            await node.store.open(TTL)
            stack.push_async_callback(node.store.close)
            opened.append(node)
        yield opened


class Real:
    """The clock of the process, as a `Clock`."""

    from registry.clock import Clock

    clock = Clock()


async def settled(*all_of_them: Node, within: float = 3.0) -> None:
    """Until all nodes know the same, with the same leases."""
    until = time.monotonic() + within
    while True:
        seen = [
            {
                one.agent.agent_id: (one.agent.card, one.agent.owner, one.lease.number)
                for one in await it.store.list()
            }
            for it in all_of_them
        ]
        if all(one == seen[0] for one in seen):
            return
        assert time.monotonic() < until, seen
        await asyncio.sleep(0.01)


# -- the change feed


async def test_nodes_follow_each_other(shared_valkey: Valkey, prefix: str) -> None:
    async with nodes(*[shared_valkey.url] * 2, prefix=prefix) as (a, b):
        first = await a.store.put(agent("a1", "alice"), TTL, 0)
        await b.sees("a1")
        (seen,) = await b.store.list()
        assert (seen.agent.owner, seen.agent.registered_at) == ("alice", first.agent.registered_at)
        assert seen.lease.ends == pytest.approx(first.lease.ends, abs=0.1)
        same = seen.agent
        renewed = await a.store.renew("a1", TTL, "alice")
        assert renewed is not None
        await settled(a, b)
        (seen,) = await b.store.list()
        assert seen.agent is same
        assert seen.lease.last_seen == renewed.last_seen
        await a.store.put(agent("a1", "alice", name="Other"), TTL, 0)
        await settled(a, b)
        assert await b.store.remove("a1", "alice")
        await a.sees()
        assert b.kinds() == [(kind, "a1") for kind in ("registered", "renewed", "replaced", "removed")]
        assert a.kinds() == b.kinds()
        assert [one.elsewhere for one in (a.told[-1], b.told[-1]) if isinstance(one, Gone)] == [True, False]


async def test_renewals_are_announced_together(shared_valkey: Valkey, prefix: str) -> None:
    async with nodes(*[shared_valkey.url] * 2, prefix=prefix) as (a, b):
        ids = [f"a{number}" for number in range(50)]
        for one in ids:
            await a.store.put(agent(one), TTL, 0)
        await b.sees(*ids)
        spoken = shared_valkey.do("INFO", "commandstats")["cmdstat_publish"]["calls"]
        await asyncio.gather(*(a.store.renew(one, TTL, None) for one in ids))
        await settled(a, b)
        assert shared_valkey.do("INFO", "commandstats")["cmdstat_publish"]["calls"] - spoken <= 2


async def test_what_was_missed_is_caught_up(own_valkey: Valkey) -> None:
    """Pitfall 161: a deregistration, a registration and a replacement while nobody listened."""
    async with nodes(own_valkey.url) as (a,), Cut(own_valkey.port) as wire, nodes(wire.url) as (b,):
        for one in ("stays", "leaves", "changes", "returns"):
            await a.store.put(agent(one), TTL, 0)
        await b.sees("stays", "leaves", "changes", "returns")
        before = {one.agent.agent_id: one.agent for one in await b.store.list()}
        wire.cut()
        await a.store.remove("leaves", None)
        await a.store.put(agent("changes", name="Other"), TTL, 0)
        await a.store.put(agent("comes"), TTL, 0)
        await a.store.remove("returns", None)
        await a.store.put(agent("returns"), TTL, 0)
        wire.drop()
        wire.mend()
        await b.sees("stays", "changes", "comes", "returns", within=5)
        await settled(a, b)
        after = {one.agent.agent_id: one.agent for one in await b.store.list()}
        assert after["stays"] is before["stays"]
        assert after["returns"] is not before["returns"]
        assert ("registered", "returns") in b.kinds()


async def test_messages_that_get_lost_silently(shared_valkey: Valkey, prefix: str) -> None:
    """Nothing but the versions shows it: by the next message, or by the look every second."""
    async with nodes(*[shared_valkey.url] * 2, prefix=prefix) as (a, b):
        b.store._feed._hear = lambda message: None  # type: ignore[method-assign]
        b.store.link._listener._channels[f"{prefix}discovery"] = (lambda message: None, lambda: None)
        await a.store.put(agent("a1"), TTL, 0)
        await b.sees("a1", within=3)
        await a.store.remove("a1", None)
        await b.sees(within=3)


async def test_listening_that_is_killed_comes_back(own_valkey: Valkey) -> None:
    """Pitfall 159."""
    async with nodes(*[own_valkey.url] * 2) as (a, b):
        for turn in range(3):
            own_valkey.do("CLIENT", "KILL", "TYPE", "pubsub")
            await a.store.put(agent(f"a{turn}"), TTL, 0)
            await b.sees(*(f"a{number}" for number in range(turn + 1)), within=2)


async def test_malformed_and_unknown_messages_change_nothing(
    shared_valkey: Valkey, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with nodes(*[shared_valkey.url] * 2, prefix=prefix) as (a, b):
        await a.store.put(agent("a1"), TTL, 0)
        await b.sees("a1")
        version = shared_valkey.do("HGET", f"{prefix}store", "version").decode()
        for message in (
            b"",
            b"\xff\xff",
            b"1 2",
            f"{version} {int(version) + 1} new-kind x",
            f"{version} 9e9 removed",
        ):
            shared_valkey.do("PUBLISH", f"{prefix}discovery", message)
        await a.store.put(agent("a2"), TTL, 0)
        await b.sees("a1", "a2", within=2)
        await settled(a, b)
        assert "malformed" in caplog.text


async def test_the_rights_that_the_documentation_names_suffice(own_valkey: Valkey, prefix: str) -> None:
    rights = (f"~{prefix}*", f"&{prefix}*", "+@all", "-@dangerous", "+info")
    own_valkey.do("ACL", "SETUSER", "gate", "on", ">right-horse", *rights)
    url = f"redis://gate:right-horse@127.0.0.1:{own_valkey.port}"
    async with nodes(url, url, prefix=prefix) as (a, b):
        await a.store.put(agent("a1"), TTL, 0)
        await b.sees("a1")
        assert await b.store.renew("a1", TTL, None) is not None
        assert await b.store.remove("a1", None)
        await a.sees()
    with pytest.raises(StoreError, match="may not do this"):
        async with nodes(url, prefix="other."):
            pass


@pytest.mark.parametrize("lacking", ["publish", "zadd", "hdel"])
async def test_rights_that_lack_are_named_at_the_start(own_valkey: Valkey, lacking: str) -> None:
    """A step that is refused in its middle would be half done, and its caller told that it was not."""
    rights = (">right-horse", "~t.*", "&t.*", "+@all", f"-{lacking}")
    own_valkey.do("ACL", "SETUSER", "gate", "on", *rights)
    with pytest.raises(StoreError, match=f"the user may not do {lacking.upper()}: give it more rights"):
        async with nodes(f"redis://gate:right-horse@127.0.0.1:{own_valkey.port}"):
            pass


def test_all_that_steps_do_is_among_the_rights() -> None:
    steps = [vars(one).values() for one in (scripts, cluster_scripts, link, server)]
    sources = "".join(one.source for names in steps for one in names if isinstance(one, Script))
    assert set(re.findall(r"redis\.p?call\('(\w+)'", sources)) - {"TIME"} == set(server.COMMANDS)


async def test_two_writers_and_a_reader_end_up_equal(shared_valkey: Valkey, prefix: str) -> None:
    """Pitfall 162: while listings are read, while operations of its own overtake the feed."""
    async with nodes(*[shared_valkey.url] * 3, prefix=prefix) as (a, b, c):
        chance = random.Random(7)

        async def work(node: Node) -> None:
            for _ in range(300):
                one = f"a{chance.randrange(8)}"
                match chance.randrange(4):
                    case 0:
                        await node.store.put(agent(one, version=str(chance.randrange(3))), TTL, 0)
                    case 1:
                        await node.store.remove(one, None)
                    case 2:
                        await node.store.renew(one, TTL, None)
                    case _:
                        await node.store.get(one)

        async def disturb() -> None:
            for node in (a, b, c) * 5:
                node.store._feed._missed()
                await asyncio.sleep(0.01)

        await asyncio.gather(work(a), work(b), work(a), work(b), disturb())
        await settled(a, b, c)
        mirror: dict[str, Any] = {}
        for news in c.told:
            if isinstance(news, Kept):
                mirror[news.agent_id] = news.registration
            elif isinstance(news, Gone):
                mirror.pop(news.agent_id)
        assert mirror == {one.agent.agent_id: one for one in await c.store.list()}


async def test_nobody_hears_what_has_another_prefix(shared_valkey: Valkey, prefix: str) -> None:
    async with (
        nodes(shared_valkey.url, prefix=prefix) as (a,),
        nodes(shared_valkey.url, prefix=f"{prefix}x") as (b,),
    ):
        await a.store.put(agent("a1"), TTL, 0)
        assert await b.store.get("a1") is None
        assert await b.store.list() == []


# -- rules that hold across nodes


async def test_a_hundred_registrations_of_one_id_leave_one_owner(shared_valkey: Valkey, prefix: str) -> None:
    async with nodes(*[shared_valkey.url] * 3, prefix=prefix) as three:
        outcomes = await asyncio.gather(
            *(three[n % 3].store.put(agent("a1", f"p{n}"), TTL, 0) for n in range(100)), return_exceptions=True
        )
        owners = [one.agent.owner for one in outcomes if not isinstance(one, BaseException)]
        assert len(owners) == 1
        assert {type(one) for one in outcomes if isinstance(one, BaseException)} == {Forbidden}
        await settled(*three)
        for node in three:
            (seen,) = await node.store.list()
            assert seen.agent.owner == owners[0]


async def test_max_agents_counts_all_nodes(shared_valkey: Valkey, prefix: str) -> None:
    async with nodes(*[shared_valkey.url] * 2, prefix=prefix) as (a, b):
        outcomes = await asyncio.gather(
            *((a, b)[n % 2].store.put(agent(f"a{n}"), TTL, 10) for n in range(40)), return_exceptions=True
        )
        assert sum(not isinstance(one, BaseException) for one in outcomes) == 10
        assert {type(one) for one in outcomes if isinstance(one, BaseException)} == {Full}


async def test_entries_that_dangle_are_healed(shared_valkey: Valkey, prefix: str) -> None:
    """Pitfall 167: a per-agent key or an index entry deleted by hand: no crash, no ghost."""
    async with nodes(shared_valkey.url, prefix=prefix) as (a,):
        for number in range(4):
            await a.store.put(agent(f"a{number}"), TTL, 4)
        shared_valkey.do("DEL", f"{prefix}agents/a0", f"{prefix}agents/a1")
        shared_valkey.do("ZREM", f"{prefix}leases", "a2")
        assert await a.store.renew("a0", TTL, None) is None
        assert await a.store.get("a1") is None
        assert await a.store.renew("a2", TTL, None) is None
        assert not await a.store.remove("a2", None)
        await a.store.put(agent("b1"), TTL, 3)
        await a.store.put(agent("b2"), TTL, 3)
        with pytest.raises(Full):
            await a.store.put(agent("b3"), TTL, 3)
        assert await a.store.put(agent("a2"), TTL, 4)
        async with nodes(shared_valkey.url, prefix=prefix) as (b,):
            assert set(await b.known()) == {"a2", "a3", "b1", "b2"}
        assert shared_valkey.do("ZCARD", f"{prefix}leases") == 4


@pytest.mark.parametrize("row", [("HSET", "card", "{}", "rev", "12"), ("HSET", "rev", "x"), ("SET", "hello")])
async def test_entries_that_are_not_whole_are_healed(
    shared_valkey: Valkey, prefix: str, row: tuple[str, ...]
) -> None:
    """Pitfall 167: half a row, no number where one must be, a key of another type: nobody else is hurt."""
    command, *words = row
    async with nodes(*[shared_valkey.url] * 2, prefix=prefix) as (a, b):
        shared_valkey.do(command, f"{prefix}agents/half", *words)
        shared_valkey.do("ZADD", f"{prefix}leases", "9e15", "half")
        b.store._feed._missed()
        await a.store.put(agent("a1"), TTL, 1)
        await b.sees("a1")
        assert shared_valkey.do("ZRANGE", f"{prefix}leases", 0, -1) == [b"a1"]
        shared_valkey.do(command, f"{prefix}agents/half", *words)
        assert await a.store.get("half") is None
        shared_valkey.do(command, f"{prefix}agents/half", *words)
        assert await a.store.renew("half", TTL, None) is None
        shared_valkey.do(command, f"{prefix}agents/half", *words)
        await a.store.put(agent("half"), TTL, 0)
        await b.sees("a1", "half")


async def test_no_key_is_made_for_what_is_no_agent(shared_valkey: Valkey, prefix: str) -> None:
    """Pitfall 90: what clients send becomes part of a key only as a well-formed agent id."""
    store = RedisStore(shared_valkey.url, prefix, Real.clock)
    registry = Registry(store, ttl_seconds=TTL)
    await registry.start()
    for bad in ("", "A", "a", "a/b", "a b", "a\nb", "a1*", "a1:x", "x" * 129, "é1", "a1x"):
        assert await registry.find(bad) is None
        with pytest.raises(NotFound):
            await registry.heartbeat(bad, None)
        with pytest.raises(NotFound):
            await registry.deregister(bad, None)
    keys = {key.decode().removeprefix(prefix) for key in shared_valkey.do("KEYS", f"{prefix}*")}
    assert keys == {"store", "contact"}
    await registry.close()


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_heartbeats_against_sweeps_and_deregistrations(shared_valkey: Valkey, prefix: str) -> None:
    """Pitfall 100, 10,000 times: no ghost, nothing is renewed that is gone, nobody live is swept."""
    await _races(shared_valkey, prefix, 10_000)


async def test_some_heartbeats_against_sweeps_and_deregistrations(shared_valkey: Valkey, prefix: str) -> None:
    """The same, a few hundred times."""
    await _races(shared_valkey, prefix, 300)


async def _races(server: Valkey, prefix: str, times: int) -> None:
    async with nodes(*[server.url] * 2, prefix=prefix) as (a, b):
        for turn in range(times):
            one, ttl = f"a{turn % 50}", (0.002 if turn % 2 else TTL)
            lease = (await a.store.put(agent(one), ttl, 0)).lease
            if turn % 2:
                await asyncio.sleep(0.0005 * (turn % 7))  # before, at and after its end
                renewed, swept = await asyncio.gather(b.store.renew(one, TTL, None), a.store.expire(lease))
                assert not (swept and renewed), "a renewed agent was swept"
            else:
                renewed, removed = await asyncio.gather(b.store.renew(one, TTL, None), a.store.remove(one, None))
                assert removed
                assert await b.store.renew(one, TTL, None) is None
            alive = bool(turn % 2 and renewed)
            kept = await a.store.get(one)
            assert (kept is not None and kept.lease.number == getattr(renewed, "number", None)) or not alive
            if alive:
                await a.store.remove(one, None)
            elif kept is not None:  # over, and not swept yet
                assert await a.store.expire(kept.lease) or kept.lease.ends > time.monotonic() - 0.1
                await asyncio.sleep(0.003)
                await a.store.expire(kept.lease)
        await a.sees(within=3)
        await b.sees(within=3)
        assert server.do("KEYS", f"{prefix}agents/*") == []
        assert server.do("ZCARD", f"{prefix}leases") == 0


# -- a registry on each node


@asynccontextmanager
async def registries(*urls: str, prefix: str = "t.", ttl: float = TTL) -> AsyncIterator[list[Registry]]:
    async with AsyncExitStack() as stack:
        opened = []
        for url in urls:
            registry = Registry(RedisStore(url, prefix, Real.clock), ttl_seconds=ttl)
            await registry.start()
            stack.push_async_callback(registry.close)
            opened.append(registry)
        yield opened


def card(agent_id: str, **members: Any) -> bytes:
    return json.dumps({"agent_id": agent_id, "name": "Echo", "url": "http://127.0.0.1:9001/"} | members).encode()


async def test_what_one_node_answered_is_true_on_the_other_at_once(shared_valkey: Valkey, prefix: str) -> None:
    async with registries(*[shared_valkey.url] * 2, prefix=prefix) as (a, b):
        for number in range(100):
            await a.register(card(f"a{number}"), None)
            assert await b.find(f"a{number}") is not None


async def test_misses_are_asked_for_once_and_known_agents_never(shared_valkey: Valkey, prefix: str) -> None:
    store = RedisStore(shared_valkey.url, prefix, Real.clock)
    registry = Registry(store, ttl_seconds=TTL)
    await registry.start()
    await registry.register(card("here"), None)
    before = store.link.commands
    for _ in range(100):
        assert await registry.find("here") is not None
        assert await registry.find("not-here") is None
    assert await asyncio.gather(*(registry.find("nor-here") for _ in range(100))) == [None] * 100
    assert store.link.commands - before <= 4  # two look-ups, and perhaps the look every second
    await registry.close()


async def test_many_who_ask_for_what_is_nowhere_hide_nobody(shared_valkey: Valkey, prefix: str) -> None:
    """They share their questions: what was answered elsewhere is found, and the store is asked little."""
    async with registries(*[shared_valkey.url] * 2, prefix=prefix) as (a, b):
        store: Any = b._store
        before = store.link.commands
        flood = [asyncio.ensure_future(b.find(f"nowhere-{number}")) for number in range(150)]
        for number in range(20):
            flood += [asyncio.ensure_future(b.find(f"nowhere-{number}-{turn}")) for turn in range(150)]
            await a.register(card(f"a{number}"), None)
            assert await b.find(f"a{number}") is not None
        assert await asyncio.gather(*flood) == [None] * len(flood)
        assert store.link.commands - before < len(flood) / 20


async def test_an_agent_that_seems_over_here_may_live(shared_valkey: Valkey, prefix: str) -> None:
    """Its renewal at the other node is on the way, or was lost."""
    async with registries(*[shared_valkey.url] * 2, prefix=prefix, ttl=0.5) as (a, b):
        await a.register(card("a1"), None)
        assert await b.find("a1") is not None
        b_store: Any = b._store
        b_store.link._listener._channels[f"{prefix}discovery"] = (lambda message: None, lambda: None)
        for _ in range(4):
            await asyncio.sleep(0.2)
            await a.heartbeat("a1", None)
        assert await b.find("a1") is not None


async def test_expired_on_all_nodes_and_counted_once(shared_valkey: Valkey, prefix: str) -> None:
    counted: list[str] = []
    async with AsyncExitStack() as stack:
        two = []
        for _ in range(2):
            store = RedisStore(shared_valkey.url, prefix, Real.clock)
            registry = Registry(
                store,
                ttl_seconds=0.4,
                count=lambda operation, status: counted.append(operation) if operation == "expire" else None,
            )
            await registry.start()
            stack.push_async_callback(registry.close)
            two.append(registry)
        a, b = two
        await a.register(card("a1"), None)
        assert await b.find("a1") is not None
        await eventually(lambda: a.get("a1") is None and b.get("a1") is None, 1)
        await eventually(lambda: not shared_valkey.do("EXISTS", f"{prefix}agents/a1"), 2)
        await asyncio.sleep(0.3)
    assert counted == ["expire"]


# -- outages


async def out(registry: Registry, within: float = 3) -> None:
    await eventually(lambda: not registry.store_available, within)


async def back(registry: Registry, within: float = 5) -> None:
    await eventually(lambda: registry.store_available, within)


async def fails_fast(operation: Callable[[], Any]) -> None:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await operation()
    assert time.monotonic() - began < 1.5


async def test_nothing_expires_while_the_store_is_frozen(own_valkey: Valkey) -> None:
    """Pitfall 164: also without any write, from the last contact on; afterwards everybody gets a whole TTL."""
    async with registries(*[own_valkey.url] * 2, ttl=1) as (a, b):
        await a.register(card("a1"), None)
        assert await b.find("a1") is not None
        own_valkey.freeze()
        await fails_fast(lambda: a.heartbeat("a1", None))
        await out(b)
        await fails_fast(lambda: b.register(card("a2"), None))
        await asyncio.sleep(1)
        assert a.get("a1") is not None
        assert b.get("a1") is not None
        thawed = time.monotonic()
        own_valkey.thaw()
        await back(a)
        await back(b)
        for registry in (a, b):
            found = registry.get("a1")
            assert found is not None
            assert found.lease.ends >= thawed + 0.9
        assert a.get("a2") is None, "what was answered with 503 took effect"
        await eventually(lambda: a.get("a1") is None and b.get("a1") is None, 5)


async def test_a_thousand_heartbeats_fail_as_fast_as_one(own_valkey: Valkey) -> None:
    """Pitfall 164: none waits for the others' deadlines."""
    async with nodes(own_valkey.url) as (a,):
        await a.store.put(agent("a1"), TTL, 0)
        own_valkey.freeze()
        began = time.monotonic()
        outcomes = await asyncio.gather(
            *(a.store.renew("a1", TTL, None) for _ in range(1000)), return_exceptions=True
        )
        assert {type(one) for one in outcomes} == {StoreUnavailable}
        assert time.monotonic() - began < 1.8
        own_valkey.thaw()


async def test_a_node_that_was_cut_off_alone_gets_no_grace(own_valkey: Valkey) -> None:
    """The others lived on, and could be reached: who was not heard of there is gone."""
    async with registries(own_valkey.url, ttl=3) as (a,), Cut(own_valkey.port) as wire:
        async with registries(wire.url, ttl=3) as (b,):
            await a.register(card("silent"), None)
            await a.register(card("beats"), None)
            await eventually(lambda: b.get("beats") is not None and b.get("silent") is not None)
            wire.cut()
            for _ in range(8):
                await asyncio.sleep(0.4)
                await a.heartbeat("beats", None)
            assert not b.store_available
            assert b.get("silent") is not None, "nothing expires where nobody can be heard"
            assert a.get("silent") is None
            wire.drop()
            wire.mend()
            await back(b)
            assert b.get("silent") is None
            assert b.get("beats") is not None


async def test_a_flushed_store_is_put_back(own_valkey: Valkey) -> None:
    async with nodes(*[own_valkey.url] * 3) as three:
        a, b, c = three
        for number in range(300):
            await a.store.put(agent(f"a{number}", "alice" if number % 2 else None), TTL, 0)
        await b.sees(*(f"a{number}" for number in range(300)), within=3)
        await settled(*three)
        before = {one.agent.agent_id: one.agent for one in await b.store.list()}
        own_valkey.do("FLUSHALL")
        assert await b.store.renew("a7", TTL, "alice") is not None
        with pytest.raises(Forbidden):
            await c.store.remove("a7", "bob")
        assert await c.store.remove("a7", "alice")
        await asyncio.sleep(1.5)  # the last of the nodes has put its part back, and did not bring a7 with it
        await settled(*three)
        for node in three:
            assert len(await node.known()) == 299
            assert ("removed", "a8") not in node.kinds()
        after = {one.agent.agent_id: one.agent for one in await b.store.list()}
        assert all(after[one] is before[one] for one in after)
        assert own_valkey.do("ZCARD", "t.leases") == 299


async def test_who_knows_less_and_is_first_to_put_back_does_not_win(own_valkey: Valkey) -> None:
    """A node to which the last messages had not come when the store was emptied."""
    async with nodes(*[own_valkey.url] * 2) as (a, b):
        for one in ("changes", "goes"):
            await a.store.put(agent(one), TTL, 0)
        await b.sees("changes", "goes")
        b.store.link._listener._channels["t.discovery"] = (lambda message: None, lambda: None)
        await a.store.put(agent("changes", name="Other"), TTL, 0)
        assert await a.store.remove("goes", None)
        own_valkey.do("FLUSHALL")
        assert await b.store.renew("changes", TTL, None) is not None
        assert await a.store.renew("changes", TTL, None) is not None
        assert b'"name":"Other"' in own_valkey.do("HGET", "t.agents/changes", "card")
        assert own_valkey.do("ZRANGE", "t.leases", 0, -1) == [b"changes"]


async def test_a_restart_without_data_is_a_flush(own_valkey: Valkey) -> None:
    async with registries(*[own_valkey.url] * 2) as (a, b):
        await a.register(card("a1"), "alice")
        assert await b.find("a1") is not None
        own_valkey.kill()
        await out(a)
        await out(b)
        own_valkey.start()
        await back(a)
        await back(b)
        assert (await a.heartbeat("a1", "alice")).agent_id == "a1"
        with pytest.raises(Forbidden):
            await b.register(card("a1"), "mallory")
        assert own_valkey.do("ZCARD", "t.leases") == 1


async def test_a_server_out_of_memory(own_valkey: Valkey) -> None:
    """Pitfall 166."""
    async with registries(own_valkey.url, ttl=1) as (a,):
        await a.register(card("a1"), None)
        own_valkey.do("CONFIG", "SET", "maxmemory", "1")
        await fails_fast(lambda: a.register(card("a2"), None))
        await asyncio.sleep(1.2)
        assert a.get("a1") is not None
        own_valkey.do("CONFIG", "SET", "maxmemory", "0")
        await back(a)
        await a.register(card("a2"), None)


async def test_a_failover_that_loses_the_last_changes() -> None:
    """Pitfall 166: replication is late; the nodes know better than the new master, and tell it."""
    with replicated() as (sentinel, master, replica):
        async with nodes(*[sentinel.url] * 2) as (a, b):
            await a.store.put(agent("a1"), TTL, 0)
            await b.sees("a1")
            await asyncio.sleep(0.2)
            replica.do("REPLICAOF", "NO", "ONE")  # nothing reaches it any more
            await a.store.put(agent("a2", "alice"), TTL, 0)
            await a.store.put(agent("a1", name="Other"), TTL, 0)
            await b.sees("a1", "a2")
            await settled(a, b)
            master.kill()
            until = time.monotonic() + 20
            while True:
                try:
                    if await a.store.renew("a2", TTL, "alice") is not None:
                        break
                except StoreUnavailable:
                    pass
                assert time.monotonic() < until
                await asyncio.sleep(0.1)
            await eventually(lambda: replica.do("ZCARD", "t.leases") == 2, 5)
            await settled(a, b)
            assert b'"name":"Other"' in replica.do("HGET", "t.agents/a1", "card").replace(b'": "', b'":"')


async def test_a_server_that_comes_back_with_older_data(own_valkey: Valkey) -> None:
    """Pitfall 166: whatever was answered since stands, under heartbeats: cards, leases, and what was removed."""
    async with nodes(*[own_valkey.url] * 2) as (a, b):
        for one in ("keeps", "changes", "goes", "short"):
            await a.store.put(agent(one), 0.6 if one == "short" else TTL, 0)
        own_valkey.do("SAVE")
        await a.store.put(agent("changes", name="Other"), TTL, 0)
        await a.store.put(agent("new", "alice"), TTL, 0)
        assert await a.store.remove("goes", None)
        assert await a.store.renew("short", TTL, None) is not None
        await b.sees("keeps", "changes", "short", "new")
        await asyncio.sleep(0.7)
        stop, unknown = time.monotonic() + 2, []

        async def beat(node: Node, agent_id: str) -> None:
            while time.monotonic() < stop:
                with suppress(StoreUnavailable):
                    if await node.store.renew(agent_id, TTL, "alice") is None:
                        unknown.append(agent_id)
                await asyncio.sleep(0.02)

        async with asyncio.TaskGroup() as group:
            for node in (a, b):
                for one in ("keeps", "short", "new"):
                    group.create_task(beat(node, one))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(own_valkey.restart)
        await settled(a, b)
        assert unknown == []
        assert set(await b.known()) == {"keeps", "changes", "short", "new"}
        assert own_valkey.do("ZCARD", "t.leases") == 4
        assert b'"name":"Other"' in own_valkey.do("HGET", "t.agents/changes", "card")
        with pytest.raises(Forbidden):
            await b.store.remove("new", "bob")


@pytest.mark.parametrize("seconds", [86400.0, -86400.0])
async def test_a_jump_of_the_servers_clock_expires_nobody(own_valkey: Valkey, seconds: float) -> None:
    """Pitfall 169. The offset stands for the server's clock: scripts see only the sum of both."""
    async with registries(*[own_valkey.url] * 2, ttl=5) as (a, b):
        await a.register(card("a1"), None)
        found = await b.find("a1")
        assert found is not None
        own_valkey.do("INCRBY", "t.clock", round(seconds * 1e6))
        await asyncio.sleep(1.2)  # every node has looked
        for registry in (a, b):
            seen = registry.get("a1")
            assert seen is not None
            assert seen.lease.ends == pytest.approx(found.lease.ends, abs=0.3)
            assert registry.store_available
        lease = await b.heartbeat("a1", None)
        assert lease.ends == pytest.approx(time.monotonic() + 5, abs=0.3)


@pytest.mark.parametrize("offset", ["garbage", "nan", "9" * 24, "-1e20", ""])
async def test_an_offset_that_is_no_number_counts_as_none(own_valkey: Valkey, offset: str) -> None:
    """Pitfall 169: nobody expires, nobody waits, and a node that starts can."""
    async with registries(own_valkey.url) as (a,):
        before = (await a.register(card("a1"), None)).lease.ends
        own_valkey.do("INCRBY", "t.clock", 3600 * 1_000_000)  # what the nodes live by
        assert (await a.heartbeat("a1", None)).ends == pytest.approx(before, abs=1)
        own_valkey.do("SET", "t.clock", offset)
        assert (await a.heartbeat("a1", None)).ends == pytest.approx(before, abs=1)
        async with registries(own_valkey.url) as (b,):
            assert b.get("a1") is not None


@pytest.mark.parametrize(
    ("seed", "seconds"), [(0, 3.0), *(pytest.param(seed, 12.0, marks=pytest.mark.long) for seed in range(1, 4))]
)
async def test_whatever_happens_to_the_server_no_answer_is_broken(
    own_valkey: Valkey, seed: int, seconds: float
) -> None:
    """Connections killed, scripts forgotten, freezes, jumps, flushes, restarts; nine callers at three nodes."""
    chance, stop = random.Random(seed), time.monotonic() + seconds
    expected: dict[str, str | None] = {}  # what was answered last; those that failed are left out

    async def write(node: Node, caller: int) -> None:
        for turn in range(1_000_000):
            if time.monotonic() > stop:
                return
            one = f"w{caller}-{chance.randrange(15)}"
            expected.pop(one, None)
            try:
                if chance.random() < 0.6:
                    await node.store.put(agent(one, version=str(turn)), TTL, 0)
                    expected[one] = str(turn)
                else:
                    if await node.store.remove(one, None):  # else it may be another node's to put back
                        expected[one] = None
            except StoreUnavailable:
                await asyncio.sleep(0.05)

    async def disturb() -> None:
        while time.monotonic() < stop:
            await asyncio.sleep(chance.random() * 0.5)
            match chance.randrange(8):
                case 0:
                    own_valkey.do("CLIENT", "KILL", "TYPE", "pubsub")
                case 1:
                    own_valkey.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                case 2:
                    own_valkey.do("SCRIPT", "FLUSH")
                case 3:
                    own_valkey.do("INCRBY", "t.clock", chance.choice((-3600, -3, 3, 3600)) * 1_000_000)
                case 4:
                    own_valkey.do("SAVE")
                case 5:
                    await asyncio.to_thread(own_valkey.restart)
                case 6:
                    own_valkey.do("FLUSHALL")
                case _:
                    own_valkey.freeze()
                    await asyncio.sleep(chance.choice((0.3, 1.3)))
                    own_valkey.thaw()

    def kept() -> set[str]:
        return {key.decode().removeprefix("t.agents/") for key in own_valkey.do("KEYS", "t.agents/*")}

    async with nodes(*[own_valkey.url] * 3) as three:
        await asyncio.gather(disturb(), *(write(three[caller % 3], caller) for caller in range(9)))
        await settled(*three, within=6)
        for node in three:
            known = {one: json.loads(text)["version"] for one, text in (await node.known()).items()}
            assert {one: known.get(one) for one in expected} == expected
            await eventually(lambda known=known: kept() == set(known), 5)  # type: ignore[misc]


async def test_clocks_of_nodes_need_not_agree(shared_valkey: Valkey, prefix: str) -> None:
    """Pitfall 169: timestamps and leases come from the server's clock."""
    async with nodes(*[shared_valkey.url] * 2, prefix=prefix, real_time=False) as (a, b):
        b.clock.step_wall(120)
        await a.store.put(agent("a1"), TTL, 0)
        await b.sees("a1")
        one, two = (await a.store.list())[0], (await b.store.list())[0]
        assert one.lease.last_seen == two.lease.last_seen
        assert one.agent.registered_at == two.agent.registered_at
        renewed = await b.store.renew("a1", TTL, None)
        assert renewed is not None
        assert one.lease.last_seen < renewed.last_seen < one.lease.last_seen[:11] + "24"


async def test_agents_of_an_earlier_run_get_a_whole_ttl(shared_valkey: Valkey, prefix: str) -> None:
    """`Store.open`: all nodes were down, so nobody could be heard; but who was over before stays over."""
    async with nodes(shared_valkey.url, prefix=prefix) as (a,):
        await a.store.put(agent("over"), 0.05, 0)
        await a.store.put(agent("alive"), TTL, 0)
        await asyncio.sleep(1.2)  # a look has noted the contact
    moving_time(shared_valkey, prefix)(0)
    shared_valkey.do("INCRBY", f"{prefix}clock", round(2 * TTL * 1e6))
    async with nodes(shared_valkey.url, prefix=prefix) as (b,):
        leases = {one.agent.agent_id: one.lease for one in await b.store.list()}
        assert leases["alive"].ends == pytest.approx(time.monotonic() + TTL, abs=0.5)
        assert leases["over"].ends < time.monotonic()


@pytest.mark.long
async def test_ten_thousand_agents_are_known_soon(shared_valkey: Valkey, prefix: str) -> None:
    """Issue: a fresh node starts within two seconds; this machine does other things, too."""
    async with nodes(shared_valkey.url, prefix=prefix) as (a,):
        for start in range(0, 10_000, 500):
            await asyncio.gather(*(a.store.put(agent(f"a{start + n}"), 600, 0) for n in range(500)))
        began = time.process_time()
        async with nodes(shared_valkey.url, prefix=prefix) as (b,):
            taken = time.process_time() - began
            assert len(await b.known()) == 10_000
    assert taken < 4
