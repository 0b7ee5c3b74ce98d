"""Several gateway processes over one Valkey: what one answers is true on all, and no outage reaches a call."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.cut import Cut
from tests.fakes.gateway import COMMAND, GatewayProcess
from tests.fakes.ports import refusing_port
from tests.fakes.program import clean_environment
from tests.fakes.valkey import Valkey, replicated

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
SOON = 1.0
"""Seconds in which every node must know what happened on another."""


@asynccontextmanager
async def gateways(
    folder: Path, *urls: str, prefix: str = "t.", **sections: dict[str, Any]
) -> AsyncIterator[list[GatewayProcess]]:
    """One process per URL, all of one cluster."""
    async with AsyncExitStack() as stack:
        nodes = []
        for number, url in enumerate(urls):
            home = folder / f"node-{number}"
            home.mkdir()
            settings = {**sections, "registry": {"url": url, "key_prefix": prefix}}
            nodes.append(await stack.enter_async_context(GatewayProcess(home, settings)))
        yield nodes


def card(agent_id: str, url: str = "http://127.0.0.1:9/", **members: Any) -> dict[str, Any]:
    return {"agent_id": agent_id, "name": agent_id, "url": url, **members}


async def until(condition: Callable[[], Awaitable[bool]], within: float = SOON) -> None:
    deadline = time.monotonic() + within
    while not await condition():
        assert time.monotonic() < deadline, "not so in time"
        await asyncio.sleep(0.02)


async def works(node: GatewayProcess, agent_id: str) -> bool:
    answer = await node.call(agent_id, PING)
    return answer.status_code == 200 and "result" in answer.json()


async def knows(node: GatewayProcess, agent_id: str) -> bool:
    return (await node.http.get(f"/agents/{agent_id}")).status_code == 200


async def beats(node: GatewayProcess, agent_id: str) -> bool:
    return (await node.http.post("/agents/heartbeat", json={"agent_id": agent_id})).status_code == 200


async def listed(node: GatewayProcess) -> list[str]:
    return [one["agent_id"] for one in (await node.http.get("/agents")).json()]


class Load:
    """Calls an agent through a node for as long as the block runs. None may fail."""

    def __init__(self, node: GatewayProcess, agent_id: str, callers: int = 4) -> None:
        self._node = node
        self._agent_id = agent_id
        self._callers = callers
        self.calls = 0
        self.failures: list[str] = []
        self.slowest = 0.0

    async def __aenter__(self) -> Load:
        self._tasks = [asyncio.create_task(self._call()) for _ in range(self._callers)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _call(self) -> None:
        while True:
            began = time.monotonic()
            try:
                answer = await self._node.call(self._agent_id, PING)
                if answer.status_code != 200 or "result" not in answer.json():
                    self.failures.append(answer.text)
            except httpx.HTTPError as error:
                self.failures.append(repr(error))
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.calls += 1
            await asyncio.sleep(0.005)


async def refused_at_once(node: GatewayProcess, path: str, document: dict[str, Any]) -> None:
    """503 with Retry-After and a clear word, within two seconds (pitfall 164)."""
    began = time.monotonic()
    answer = await node.http.post(path, json=document)
    assert time.monotonic() - began < 2
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    assert "store is not available" in answer.json()["error"]


# -- one registry


async def test_what_one_node_answers_is_true_on_the_other_at_once(
    shared_valkey: Valkey, prefix: str, tmp_path: Path
) -> None:
    """Read your writes: calls on both doors, streams, cards, REST, in the moment after the answer."""
    async with FaultAgent() as agent, gateways(tmp_path, *[shared_valkey.url] * 2, prefix=prefix) as (a, b):
        for number in range(20):
            one = f"peer-{number}"
            await a.register(card(one, agent.url))
            before = len(agent.requests)
            match number % 5:
                case 0:
                    assert await works(b, one)
                case 1:
                    chunked = httpx.AsyncByteStream  # no content-length: not through the direct door

                    class Body(chunked):  # type: ignore[misc, valid-type]
                        async def __aiter__(self) -> AsyncIterator[bytes]:
                            yield PING

                    headers = {"content-type": "application/json"}
                    answer = await b.http.post(f"/a2a/{one}", content=Body(), headers=headers)
                    assert "result" in answer.json()
                case 2:
                    url = f"/a2a/{one}/.well-known/agent-card.json"
                    assert (await b.http.get(url)).status_code == 200
                case 3:
                    agent.next(reply.result("no stream"))
                    assert "Agent not found" not in (await b.http.get(f"/a2a/{one}/stream")).text
                    assert len(agent.requests) > before
                case _:
                    assert await knows(b, one)
        began = time.monotonic()
        answer = await b.call("nobody", PING)
        assert answer.json()["error"]["message"] == "Agent not found" or "not found" in answer.text
        assert time.monotonic() - began < 1


async def test_changes_are_seen_everywhere_within_a_second(
    shared_valkey: Valkey, prefix: str, tmp_path: Path
) -> None:
    async with (
        FaultAgent() as old,
        FaultAgent() as new,
        gateways(tmp_path, *[shared_valkey.url] * 2, prefix=prefix, a2a={"agent_ttl_seconds": 2}) as (a, b),
    ):
        await a.register(card("peer", old.url))
        await until(lambda: works(b, "peer"))
        await a.register(card("peer", new.url))

        async def moved() -> bool:
            await b.call("peer", PING)
            return len(new.requests) > 0

        await until(moved)
        await b.http.post("/agents/deregister", json={"agent_id": "peer"})

        async def gone() -> bool:
            return not await knows(a, "peer")

        await until(gone)
        await a.register(card("beats", new.url))
        await a.register(card("silent", new.url))
        for _ in range(6):  # heartbeats at one node keep the agent alive on the other
            await asyncio.sleep(0.5)
            await a.http.post("/agents/heartbeat", json={"agent_id": "beats"})
        assert await listed(a) == await listed(b) == ["beats"]


async def test_calls_ask_the_store_nothing(own_valkey: Valkey, tmp_path: Path) -> None:
    async with FaultAgent() as agent, gateways(tmp_path, own_valkey.url) as (node,):
        await node.register(card("peer", agent.url))
        assert await works(node, "peer")
        before, began = own_valkey.do("INFO", "stats")["total_commands_processed"], time.monotonic()
        for _ in range(300):
            assert await works(node, "peer")
        commands = own_valkey.do("INFO", "stats")["total_commands_processed"] - before
        assert commands < 40 + 40 * (time.monotonic() - began), (
            "of scripts: the look each second, the node's lease"
        )


async def test_killing_a_node_loses_nothing(shared_valkey: Valkey, prefix: str, tmp_path: Path) -> None:
    """Issue: SIGKILL of a node under load loses no registration that was answered and no call on the others."""
    async with FaultAgent() as agent, gateways(tmp_path, *[shared_valkey.url] * 2, prefix=prefix) as (a, b):
        await b.register(card("peer", agent.url))
        answered: list[str] = []

        async def registering() -> None:
            with suppress(httpx.HTTPError):
                for number in range(100_000):
                    await a.register(card(f"new-{number}"))
                    answered.append(f"new-{number}")

        async with Load(b, "peer") as load:
            task = asyncio.create_task(registering())
            await until(lambda: asyncio.sleep(0, len(answered) >= 100), 20)
            await a.kill()
            await task
            await asyncio.sleep(0.5)
        assert load.failures == []
        assert load.calls > 20
        assert set(answered) <= set(await listed(b))


async def test_a_node_that_stood_still_knows_who_lives(shared_valkey: Valkey, prefix: str, tmp_path: Path) -> None:
    """SIGSTOP, or a machine that slept: here the lease seems over, the store knows better."""
    ttl = {"agent_ttl_seconds": 1.5}
    async with (
        FaultAgent() as agent,
        gateways(tmp_path, *[shared_valkey.url] * 2, prefix=prefix, a2a=ttl) as (a, b),
    ):
        await a.register(card("peer", agent.url))
        assert await works(b, "peer")
        os.kill(b.pid, signal.SIGSTOP)
        for _ in range(6):
            await asyncio.sleep(0.5)
            assert await beats(a, "peer")
        os.kill(b.pid, signal.SIGCONT)
        assert await works(b, "peer")
        assert await listed(b) == ["peer"]


# -- outages of the store


async def test_a_frozen_store_reaches_no_call(own_valkey: Valkey, tmp_path: Path) -> None:
    """Pitfall 164: ten seconds; the agents' leases would have ended meanwhile."""
    ttl = {"agent_ttl_seconds": 4}
    async with FaultAgent() as agent, gateways(tmp_path, *[own_valkey.url] * 2, a2a=ttl) as (a, b):
        await a.register(card("peer", agent.url))
        await until(lambda: works(b, "peer"))
        async with Load(a, "peer") as one, Load(b, "peer") as two:
            own_valkey.freeze()
            thawing = time.monotonic() + 10
            while time.monotonic() < thawing:
                await refused_at_once(a, "/agents/heartbeat", {"agent_id": "peer"})
                await refused_at_once(b, "/agents/register", card("late"))
                for node in (a, b):
                    assert await listed(node) == ["peer"]
                    assert (await node.http.get("/metrics")).status_code == 200
                    assert (await node.http.get("/ready")).status_code == 200
                await asyncio.sleep(1)
            own_valkey.thaw()

            await until(lambda: beats(b, "peer"), 5)
        for load in (one, two):
            assert load.failures == []
            assert load.calls > 200
        assert one.slowest < 1
        assert two.slowest < 1
        assert not await knows(a, "late"), "what was answered with 503 took effect"


async def test_a_cut_between_one_node_and_the_store(own_valkey: Valkey, tmp_path: Path) -> None:
    async with FaultAgent() as agent, Cut(own_valkey.port) as wire:
        async with gateways(tmp_path, own_valkey.url, wire.url) as (a, b):
            await a.register(card("peer", agent.url))
            await until(lambda: works(b, "peer"))
            async with Load(b, "peer") as load:
                wire.cut()
                await refused_at_once(b, "/agents/heartbeat", {"agent_id": "peer"})
                await a.register(card("meanwhile", agent.url))
                await a.http.post("/agents/heartbeat", json={"agent_id": "peer"})
                await asyncio.sleep(2)
                wire.drop()
                wire.mend()
                await until(lambda: works(b, "meanwhile"), 5)
            assert load.failures == []


async def test_an_emptied_store_is_filled_again(own_valkey: Valkey, tmp_path: Path) -> None:
    async with FaultAgent() as agent, gateways(tmp_path, *[own_valkey.url] * 2) as (a, b):
        for number in range(30):
            await a.register(card(f"peer-{number:02}", agent.url))
        await until(lambda: works(b, "peer-29"))
        async with Load(b, "peer-00") as load:
            own_valkey.restart()
            await asyncio.sleep(0.1)
            await until(lambda: asyncio.sleep(0, own_valkey.do("ZCARD", "t.leases") == 30), 6)
            for node in (a, b):
                await until(lambda node=node: beats(node, "peer-07"), 5)  # type: ignore[misc]
                assert len(await listed(node)) == 30
        assert load.failures == []


async def test_a_failover(tmp_path: Path) -> None:
    """Pitfall 166: calls go on; registrations are refused for the moment, or done, never a 500."""
    with replicated() as (sentinel, master, _replica):
        async with FaultAgent() as agent, gateways(tmp_path, *[sentinel.url] * 2) as (a, b):
            await a.register(card("peer", agent.url))
            await until(lambda: works(b, "peer"))
            async with Load(a, "peer") as load:
                master.kill()
                seen = set()

                async def again() -> bool:
                    answer = await b.http.post("/agents/register", json=card("after", agent.url))
                    seen.add(answer.status_code)
                    return answer.status_code == 200

                await until(again, 20)
                await until(lambda: works(a, "after"), 5)
            assert load.failures == []
            assert seen <= {200, 503}


# -- starts


def start(folder: Path, url: str) -> subprocess.CompletedProcess[str]:
    file = folder / "vitalgate.yaml"
    file.write_text(json.dumps({"registry": {"url": url}, "server": {"port": 0}, "metrics": {"port": 0}}))
    return subprocess.run(
        [COMMAND, "serve", "--config", file],
        env={**clean_environment(), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=20,
    )


def test_no_store_at_the_start_is_one_line_and_3(tmp_path: Path) -> None:
    """A gateway that cannot know its agents does not start; whoever runs it tries again."""
    with refusing_port() as port:
        result = start(tmp_path, f"redis://user:hunter2@127.0.0.1:{port}/1")
    assert result.returncode == 3
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"vitalgate: registry store redis://user:***@127.0.0.1:{port}/1: no connection (")
    assert "hunter2" not in line


def test_a_wrong_password_at_the_start_is_one_line_and_3(tmp_path: Path) -> None:
    with Valkey("--requirepass", "right-horse") as server:
        result = start(tmp_path, f"redis://:hunter2@127.0.0.1:{server.port}")
    assert result.returncode == 3
    (line,) = result.stderr.splitlines()
    assert line.endswith("user or password are refused: set them in registry.url")
    assert "hunter2" not in line
