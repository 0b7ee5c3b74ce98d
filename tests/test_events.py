"""The feed of changes: ids, resuming, resync, bounded memory (contract 1, health contract 7)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest

from gateway.events import Event, Events
from gateway.routes import events as routes
from tests.fakes import issuer
from tests.fakes.health_peer import A2APeer
from tests.fakes.monitored import card_of
from tests.fakes.running import Running, running


def feed(kept: int = 1000) -> Events:
    return Events(lambda: "now", kept)


async def take(events: Events, number: int, last_id: str | None = None) -> list[Event]:
    found = []
    async with asyncio.timeout(5):
        async for event in events.read(last_id):
            found.append(event)
            if len(found) == number:
                break
    return found


async def test_a_reader_gets_what_comes_after_it() -> None:
    events = feed()
    events.publish("a", {"n": 1})
    reading = asyncio.create_task(take(events, 2))
    await asyncio.sleep(0)
    events.publish("b", {"n": 2})
    events.publish("c", {"n": 3})
    assert [(event.name, event.data) for event in await reading] == [("b", '{"n":2}'), ("c", '{"n":3}')]


async def test_resuming() -> None:
    events = feed(kept=3)
    for number in range(5):
        events.publish("e", {"n": number})
    [third, fourth, fifth] = await take(events, 3, events._id(2))
    assert [event.data for event in (third, fourth, fifth)] == ['{"n":2}', '{"n":3}', '{"n":4}']
    assert await take(events, 1, third.id) == [fourth]


@pytest.mark.parametrize("last_id", ["", "x", "00000000-1", "{mark}-1", "{mark}-6", "{mark}--1", "{mark}-1e3"])
async def test_an_id_that_is_gone_or_was_never_there(last_id: str) -> None:
    """`resync` says: read the lists again; then the feed goes on with what comes."""
    events = feed(kept=3)
    for number in range(5):
        events.publish("e", {"n": number})
    mark = events._id(0).partition("-")[0]
    reading = asyncio.create_task(take(events, 2, last_id.replace("{mark}", mark)))
    await asyncio.sleep(0)
    events.publish("e", {"n": 5})
    resync, after = await reading
    assert (resync.name, resync.id) == ("resync", events._id(5))
    assert after.data == '{"n":5}'


async def test_a_reader_that_falls_behind_is_told() -> None:
    """Memory is the one buffer, however many readers stand still."""
    events = feed(kept=3)
    reading = events.read()
    first = asyncio.ensure_future(anext(reading))
    await asyncio.sleep(0)
    events.publish("e", {"n": 0})
    assert (await first).data == '{"n":0}'
    for number in range(1, 6):
        events.publish("e", {"n": number})
    assert (await anext(reading)).name == "resync"
    await reading.aclose()


async def test_closing_ends_every_reader() -> None:
    events = feed()
    readers = [asyncio.create_task(take(events, 1)) for _ in range(3)]
    await asyncio.sleep(0)
    events.close()
    assert await asyncio.gather(*readers) == [[], [], []]
    assert await take(events, 1) == []


# -- over a socket


@asynccontextmanager
async def listening(gateway: Running, **headers: str) -> AsyncIterator[AsyncIterator[dict[str, str]]]:
    """Open the stream, and give its events."""
    async with gateway.client.stream("GET", "/events", headers=headers, timeout=10) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield _events(response)


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, str]]:
    event: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            event[name or "comment"] = value
        elif "data" in event:
            yield event
            event = {}
        else:
            event = {}


async def test_registry_and_health_changes_with_ids() -> None:
    async with A2APeer() as peer, running(health={"enable": True}) as gateway:
        async with listening(gateway) as events:
            await gateway.register(peer.at("/rpc"), "peer", **card_of(peer))
            async with asyncio.timeout(5):
                registered, checked = await anext(events), await anext(events)
        assert registered["event"] == "registry"
        assert '"change":"registered"' in registered["data"]
        assert checked["event"] == "health"
        assert '"routing":"in_service","previous_status":"UNKNOWN"' in checked["data"]
        await gateway.client.delete("/agents/peer")
        async with listening(gateway, **{"last-event-id": registered["id"]}) as events:
            async with asyncio.timeout(5):
                again, removed = await anext(events), await anext(events)
        assert again == checked
        assert '"change":"removed"' in removed["data"]
        async with listening(gateway, **{"last-event-id": "deadbeef-1"}) as events:
            async with asyncio.timeout(5):
                assert (await anext(events))["event"] == "resync"


async def test_readers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reader costs some time with every event: a thousand of one caller's would slow all calls down."""
    monkeypatch.setattr(routes, "MOST_READERS", 3)
    async with running() as gateway, AsyncExitStack() as feeds:
        attempts = [feeds.enter_async_context(gateway.client.stream("GET", "/events")) for _ in range(10)]
        answers = await asyncio.gather(*attempts)
        assert Counter(answer.status_code for answer in answers) == {200: 3, 503: 7}
        [refused, *_] = [answer for answer in answers if answer.status_code == 503]
        assert await refused.aread() == b'{"error":"too many readers of events"}'
        assert refused.headers["retry-after"] == "15"
        await feeds.aclose()

        async def readers() -> int:
            limits = (await gateway.client.get("/gateway")).json()["limits"]
            return int(next(one["used"] for one in limits if one["name"] == "readers of events"))

        async with asyncio.timeout(10):
            while await readers():  # noqa: ASYNC110 - counted there, not signalled here
                await asyncio.sleep(0.01)
        async with listening(gateway):
            assert await readers() == 1


async def test_a_feed_ends_with_its_token() -> None:
    """Contract 6.1: who opened it an hour ago with a token for a minute reads on no more."""
    auth = {"enable": True, "secret_env": "JWT_SECRET", "leeway_seconds": 0}
    async with running(environ={"JWT_SECRET": issuer.SECRET}, auth=auth) as gateway:
        short = issuer.bearer(issuer.token(issuer.SECRET, exp=time.time() + 1.5))
        async with asyncio.timeout(15):
            async with listening(gateway, **short) as events:
                assert [event async for event in events] == []
        assert (await gateway.client.get("/events", headers=short)).status_code == 401


async def test_the_drain_ends_open_feeds_at_once() -> None:
    """Contract 8: readers do not hold the process up."""
    loop = asyncio.get_running_loop()
    async with running(server={"port": 0, "drain_seconds": 5}) as gateway:
        async with listening(gateway) as events:
            began = loop.time()
            gateway.lifecycle.stop()
            async with asyncio.timeout(5):
                assert [event async for event in events] == []
            assert loop.time() - began < 2


async def test_the_feed_takes_only_get() -> None:
    async with running() as gateway:
        assert (await gateway.client.post("/events")).status_code == 405
