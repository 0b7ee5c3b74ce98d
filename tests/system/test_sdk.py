"""Unmodified official SDK clients and agents: the same steps directly and through the gateway, the same results.

The programs are in `tests/fakes/sdk13` (a2a-sdk 1.3: protocol 1.0 and 0.3) and `tests/fakes/sdk03` (a2a-sdk
0.3.26, in an environment of its own).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.fakes.gateway import GatewayProcess
from tests.fakes.kubemq import KubemqAgent
from tests.fakes.program import Program, sdk03_agent, sdk03_client, sdk13_agent, sdk13_client

pytestmark = pytest.mark.asyncio(loop_scope="module")

Record = list[dict[str, Any]]
Client = Callable[..., Awaitable[Record]]  # (base URL, options of the program)

AGENTS: dict[str, Callable[[], AbstractAsyncContextManager[Program]]] = {
    "sdk13": sdk13_agent,
    "sdk13-only-v1": lambda: sdk13_agent("--only-v1"),
    "sdk03": sdk03_agent,
}
CLIENTS: dict[str, Client] = {"sdk13": sdk13_client, "sdk03": sdk03_client}

PAIRS = [
    pytest.param("sdk13", "sdk13", "1.0", id="1.3 speaks 1.0 to an agent of both"),
    pytest.param("sdk13", "sdk13-only-v1", "1.0", id="1.3 speaks 1.0 to an agent of 1.0 only"),
    pytest.param("sdk13", "sdk03", "0.3", id="1.3 speaks 0.3 to a 0.3 agent"),
    pytest.param("sdk03", "sdk03", "0.3", id="0.3.26 speaks to a 0.3 agent"),
    pytest.param("sdk03", "sdk13", "0.3", id="0.3.26 speaks to an agent of both"),
]

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[^\"]*")


def comparable(record: Record) -> Record:
    """The record without addresses, with ids numbered in order of their appearance and times blanked.

    Whether the agent streams is left out: see `test_clients_with_default_settings`.
    """
    text = json.dumps([step for step in record if step["step"] != "address"], sort_keys=True)
    text = STREAMING.sub("", text)
    numbers: dict[str, str] = {}
    text = UUID.sub(lambda found: numbers.setdefault(found.group(), f"id-{len(numbers) + 1}"), text)
    value: Record = json.loads(TIME.sub("time", text))
    return value


STREAMING = re.compile(r', "streaming": (true|false)')


def outcome(record: Record) -> dict[str, str]:
    """Per step: `ok`, or the error the SDK raised, with its code where the SDK gives no type of its own."""
    return {step["step"]: _raised(step["error"]) if "error" in step else "ok" for step in record}


def _raised(error: dict[str, str]) -> str:
    code = re.search(r"code=(-\d+)", error["message"])
    return code.group(1) if code else error["type"]


def by_name(record: Record) -> dict[str, Any]:
    return {step["step"]: step.get("result", step.get("error")) for step in record}


EXPECTED = {
    ("sdk13", "get_unknown"): "TaskNotFoundError",
    ("sdk13", "cancel_finished"): "TaskNotCancelableError",
    ("sdk03", "get_unknown"): "-32001",
    ("sdk03", "cancel_finished"): "-32002",
}
"""The errors that the steps are meant to end in; every other step succeeds."""
GONE = {"TaskNotFoundError", "InternalError"}  # what agents say of a push configuration that is not there


@dataclass
class Peers:
    """The agents, a gateway at which each is registered under its name here, and what clients got directly."""

    programs: dict[str, Program]
    gateway: GatewayProcess
    _records: dict[tuple[str, str], Record] = field(default_factory=dict)

    async def direct(self, client: str, agent: str) -> Record:
        if (client, agent) not in self._records:
            self._records[client, agent] = await CLIENTS[client](self.programs[agent].url)
        return self._records[client, agent]

    async def through(self, client: str, agent: str) -> Record:
        return await CLIENTS[client](self.gateway.base(agent))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def peers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Peers]:
    async with AsyncExitStack() as stack, GatewayProcess(tmp_path_factory.mktemp("gateway")) as gateway:
        started = await asyncio.gather(*(stack.enter_async_context(agent()) for agent in AGENTS.values()))
        programs = dict(zip(AGENTS, started, strict=True))
        for name, program in programs.items():
            await register(gateway, name, program.url)
        yield Peers(programs, gateway)


async def register(gateway: GatewayProcess, agent_id: str, base: str) -> None:
    """Registers an agent with the card it publishes; `url`, which 1.0 cards lack, is required (contract 5.1)."""
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(f"{base}.well-known/agent-card.json", headers={"A2A-Version": "1.0"})
    card = answer.json()
    url = card.get("url") or card["supportedInterfaces"][0]["url"]
    await gateway.register({**card, "agent_id": agent_id, "url": url})


@pytest.mark.parametrize(("client", "agent", "version"), PAIRS)
async def test_directly(client: str, agent: str, version: str, peers: Peers) -> None:
    """The peers themselves: what the gateway has to reproduce is really what we think it is."""
    record = await peers.direct(client, agent)
    for step, raised in outcome(record).items():
        if step == "push_get_deleted":
            assert raised in GONE
        else:
            assert raised == EXPECTED.get((client, step), "ok"), by_name(record)[step]
    assert version in json.dumps(by_name(record)["card"])
    done = json.dumps(by_name(record)["send"], ensure_ascii=False)
    assert "Grüße, 北京 🌍" in done
    assert "completed" in done.lower()


@pytest.mark.parametrize(("client", "agent"), [("sdk13", "sdk13"), ("sdk03", "sdk03")])
async def test_two_direct_runs_are_equal(client: str, agent: str, peers: Peers) -> None:
    """The comparison itself: what is left after `comparable` does not depend on luck."""
    again = await CLIENTS[client](peers.programs[agent].url)
    assert comparable(again) == comparable(await peers.direct(client, agent))


@pytest.mark.parametrize(("client", "agent", "version"), PAIRS)
async def test_through_the_gateway(client: str, agent: str, version: str, peers: Peers) -> None:
    """Contract 5.4, 2.4: the same steps, the same results, and every address is the gateway's."""
    before = calls(await peers.gateway.scrape(), agent)
    record = await peers.through(client, agent)
    scraped = await peers.gateway.scrape()
    assert comparable(record) == comparable(await peers.direct(client, agent))
    assert set(by_name(record)["address"]) == {peers.gateway.base(agent)}
    # it was the gateway that carried every step, and it had nothing of its own to say
    assert calls(scraped, agent) - before >= len(record) - len(["address", "card"])
    assert not re.search(rf'^kubemq_a2a_errors_total{{agent_id="{agent}"', scraped, re.MULTILINE)


def calls(scraped: str, agent: str) -> float:
    """How many calls to an agent the metrics count."""
    series = rf'^kubemq_a2a_requests_total{{agent_id="{agent}",.*}} (\S+)$'
    return sum(float(count) for count in re.findall(series, scraped, re.MULTILINE))


@pytest.mark.parametrize("client", CLIENTS)
async def test_clients_with_default_settings(client: str, peers: Peers) -> None:
    """Clients stream by default if the card says so: until the gateway relays streams, its cards say no."""
    record = await CLIENTS[client](peers.gateway.base("sdk13"), "--defaults")
    assert not by_name(record)["card"]["capabilities"].get("streaming")
    assert outcome(record) == outcome(await peers.direct(client, "sdk13"))


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("slash", ["", "/"])
async def test_base_urls_with_and_without_slash(client: str, slash: str, peers: Peers) -> None:
    """Contract 1: SDK clients use both forms of `/a2a/{agent_id}`; a KubeMQ agent is taken for 0.3 (5.4)."""
    async with KubemqAgent() as agent:
        await peers.gateway.register(agent.document)
        record = await CLIENTS[client](peers.gateway.base("kubemq-echo") + slash)
    assert by_name(record)["address"] == [peers.gateway.base("kubemq-echo")]
    raised = outcome(record)
    assert {raised[step] for step in ("send", "get", "send_slow", "get_working", "cancel")} == {"ok"}
    assert raised["get_unknown"] == EXPECTED[client, "get_unknown"]
    assert raised["cancel_finished"] == EXPECTED[client, "cancel_finished"]
    assert agent.requests[0].header("x-kubemq-caller-id") == "anonymous"
    assert {request.target for request in agent.requests} == {"/a2a"}


async def test_results_without_an_envelope(peers: Peers) -> None:
    """Contract 2.4: a 2xx JSON value without `jsonrpc` becomes the result, verbatim."""
    async with KubemqAgent("bare", bare=True) as agent:
        await peers.gateway.register(agent.document)
        record = await sdk03_client(peers.gateway.base("bare"))
    assert outcome(record)["send"] == "ok"
    assert by_name(record)["get"]["id"] == "task-1"
