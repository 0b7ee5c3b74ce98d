"""registry.stores.redis: a server that forgets, and nodes that know each something else (pitfalls 161, 166).

Whatever was answered stands: what was registered comes back, what was removed does not, whoever notices first.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from registry.errors import StoreUnavailable
from tests.fakes.cut import Cut
from tests.fakes.running import eventually
from tests.fakes.valkey import Valkey
from tests.test_redis_store import Node, nodes, settled
from tests.test_stores import TTL, agent

CHANNEL = "t.discovery"


def deafen(node: Node) -> Any:
    """The node hears nothing of the others any more; gives what `hears` takes."""
    channels = node.store.link._listener._channels
    heard = channels[CHANNEL]
    channels[CHANNEL] = (lambda message: None, lambda: None)
    return heard


def hears(node: Node, heard: Any) -> None:
    """The node hears again."""
    node.store.link._listener._channels[CHANNEL] = heard


async def looks(node: Node) -> None:
    """The node meets the server, and puts back what it knows if that forgot something."""
    assert await node.store.renew("stays", TTL, None) is not None


def kept(server: Valkey) -> set[bytes]:
    return set(server.do("ZRANGE", "t.leases", 0, -1))


async def test_who_knows_less_and_is_last_to_put_back_does_not_win(own_valkey: Valkey) -> None:
    """What is not there when it is said to be gone must not come later."""
    async with nodes(*[own_valkey.url] * 2) as (a, b):
        for one in ("stays", "goes"):
            await a.store.put(agent(one), TTL, 0)
        await b.sees("stays", "goes")
        deafen(b)
        assert await a.store.remove("goes", None)
        await settled(a)
        own_valkey.do("FLUSHALL")
        await looks(a)
        await looks(b)
        assert kept(own_valkey) == {b"stays"}


async def test_who_has_heard_of_the_end_does_not_end_what_came_after_it(own_valkey: Valkey) -> None:
    """Removed, registered again elsewhere, and a server with the data of before: the last word counts."""
    async with nodes(*[own_valkey.url] * 2) as (a, b):
        for one in ("stays", "returns"):
            await a.store.put(agent(one), TTL, 0)
        await b.sees("stays", "returns")
        own_valkey.do("SAVE")
        assert await a.store.remove("returns", None)
        await settled(a, b)
        deafen(a)
        await b.store.put(agent("returns", name="Again"), TTL, 0)
        await asyncio.to_thread(own_valkey.restart)
        await looks(a)
        await looks(b)
        assert kept(own_valkey) == {b"returns", b"stays"}
        assert b'"name":"Again"' in own_valkey.do("HGET", "t.agents/returns", "card")


async def test_a_node_that_knows_nothing_is_first(own_valkey: Valkey) -> None:
    """Server and one gateway start anew: the changes of the latter must not hide what the former lacks."""
    async with Cut(own_valkey.port) as wire, nodes(wire.url) as (b,):
        for one in ("stays", "goes"):
            await b.store.put(agent(one), TTL, 0)
        own_valkey.do("INCRBY", "t.contact", -4_000_000)
        own_valkey.do("SAVE")
        await b.store.put(agent("new"), TTL, 0)
        assert await b.store.remove("goes", None)
        wire.cut()
        wire.drop()
        await asyncio.to_thread(own_valkey.restart)
        async with nodes(own_valkey.url) as (c,):
            wire.mend()
            for _ in range(50):
                with suppress(StoreUnavailable):
                    await looks(b)
                    break
                await asyncio.sleep(0.1)
            await c.sees("stays", "new", within=3)
            assert kept(own_valkey) == {b"stays", b"new"}


async def test_a_node_that_joins_a_server_that_forgot_nothing_changes_nothing(own_valkey: Valkey) -> None:
    async with nodes(own_valkey.url) as (a,):
        await a.store.put(agent("stays"), TTL, 0)
        token = own_valkey.do("HGET", "t.store", "token")
        async with nodes(own_valkey.url) as (b,):
            await b.sees("stays")
        assert own_valkey.do("HGET", "t.store", "token") == token


async def test_an_end_by_older_data_ends_no_lease_that_was_renewed(own_valkey: Valkey) -> None:
    """A node that has not heard of the renewal finds the lease of before over."""
    async with nodes(*[own_valkey.url] * 2) as (a, b):
        await a.store.put(agent("stays"), TTL, 0)
        await a.store.put(agent("renewed"), 0.6, 0)
        await b.sees("stays", "renewed")
        await settled(a, b)
        own_valkey.do("SAVE")
        deafen(a)
        assert await b.store.renew("renewed", TTL, None) is not None
        for node in (a, b):  # so that both know more than the server will
            await node.store.put(agent(f"of-{'a' if node is a else 'b'}"), TTL, 0)
        await asyncio.sleep(0.6)
        await asyncio.to_thread(own_valkey.restart)
        await looks(a)
        [lease] = [one.lease for one in await a.store.list() if one.agent.agent_id == "renewed"]
        await a.store.expire(lease)
        assert await b.store.renew("renewed", TTL, None) is not None


async def test_what_came_after_an_end_outlives_a_second_loss(own_valkey: Valkey) -> None:
    """An end that is found out late is told at the version at which it was, not at that of the finding."""
    async with nodes(*[own_valkey.url] * 3) as (n, a, b):
        for one in ("stays", "returns"):
            await n.store.put(agent(one), TTL, 0)
        for node in (a, b):
            await node.sees("stays", "returns")
        own_valkey.do("SAVE")
        heard_by_n = deafen(n)
        await b.store.put(agent("other"), TTL, 0)
        assert await a.store.remove("returns", None)
        for node in (a, b):
            await node.sees("stays", "other")
        heard_by_a = deafen(a)
        await b.store.put(agent("returns", name="Again"), TTL, 0)
        await n.store.put(agent("own"), TTL, 0)
        await asyncio.to_thread(own_valkey.restart)
        hears(n, heard_by_n)
        await looks(n)
        feed = n.store._feed
        await eventually(lambda: feed._held is None and feed._listing is None)
        hears(a, heard_by_a)
        await looks(a)
        await looks(b)
        for node in (n, a, b):
            await node.sees("stays", "other", "own", "returns", within=5)
        own_valkey.do("FLUSHALL")
        for node in (n, a, b):
            await looks(node)
        assert kept(own_valkey) == {b"stays", b"other", b"own", b"returns"}


async def test_a_stranger_who_asks_in_between_takes_nobody_out(own_valkey: Valkey) -> None:
    """What is said to be unknown before the node that knows better has put it back is not removed."""
    async with nodes(*[own_valkey.url] * 2) as (a, b):
        await a.store.put(agent("stays"), TTL, 0)
        await b.sees("stays")
        deafen(a)
        await b.store.put(agent("owned", "alice"), TTL, 0)
        own_valkey.do("FLUSHALL")
        await looks(a)
        assert not await a.store.remove("owned", "mallory")
        assert await b.store.renew("owned", TTL, "alice") is not None
