"""Unmodified official SDK clients and agents: the same steps directly and through the gateway, the same results.

The programs are in `tests/fakes/sdk13` (a2a-sdk 1.3: protocol 1.0 and 0.3) and `tests/fakes/sdk03` (a2a-sdk
0.3.26, in an environment of its own).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.gateway import GatewayProcess
from tests.fakes.kubemq import KubemqAgent
from tests.fakes.program import Program, sdk03_agent, sdk03_client, sdk13_agent, sdk13_client

Record = list[dict[str, Any]]
Client = Callable[[str], Awaitable[Record]]

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
    """The record without addresses, with ids numbered in order of their appearance and times blanked."""
    text = json.dumps([step for step in record if step["step"] != "address"], sort_keys=True)
    numbers: dict[str, str] = {}
    text = UUID.sub(lambda found: numbers.setdefault(found.group(), f"id-{len(numbers) + 1}"), text)
    value: Record = json.loads(TIME.sub("time", text))
    return value


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


@pytest.mark.parametrize(("client", "agent", "version"), PAIRS)
async def test_directly(client: str, agent: str, version: str) -> None:
    """The peers themselves: what the gateway has to reproduce is really what we think it is."""
    async with AGENTS[agent]() as program:
        record = await CLIENTS[client](program.url)
    for step, raised in outcome(record).items():
        if step == "push_get_deleted":
            assert raised in GONE
        else:
            assert raised == EXPECTED.get((client, step), "ok"), by_name(record)[step]
    assert version in json.dumps(by_name(record)["card"])
    done = json.dumps(by_name(record)["send"], ensure_ascii=False)
    assert "Grüße, 北京 🌍" in done
    assert "ompleted" in done.replace("COMPLETED", "completed")


async def test_two_direct_runs_are_equal() -> None:
    """The comparison itself: what is left after `comparable` does not depend on luck."""
    async with sdk13_agent() as program:
        assert comparable(await sdk13_client(program.url)) == comparable(await sdk13_client(program.url))
    async with sdk03_agent() as program:
        assert comparable(await sdk03_client(program.url)) == comparable(await sdk03_client(program.url))


async def published(base: str) -> dict[str, Any]:
    """The card that an agent publishes, as an operator would fetch it to register it."""
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(f"{base}.well-known/agent-card.json", headers={"A2A-Version": "1.0"})
    card: dict[str, Any] = answer.json()
    return card


async def register(gateway: GatewayProcess, agent_id: str, base: str) -> None:
    """Registers an agent with its own card; `url` is where a 1.0 card has it (contract 5.1 requires it)."""
    card = await published(base)
    url = card.get("url") or card["supportedInterfaces"][0]["url"]
    await gateway.register({**card, "agent_id": agent_id, "url": url})


@pytest.mark.parametrize(("client", "agent", "version"), PAIRS)
async def test_through_the_gateway(client: str, agent: str, version: str, tmp_path: Path) -> None:
    """Contract 5.4, 2.4: the same steps, the same results, and every address is the gateway's."""
    async with AGENTS[agent]() as program, GatewayProcess(tmp_path) as gateway:
        await register(gateway, "peer", program.url)
        direct, through = await asyncio.gather(CLIENTS[client](program.url), CLIENTS[client](gateway.base("peer")))
        scraped = await gateway.scrape()
    assert comparable(through) == comparable(direct)
    assert set(by_name(through)["address"]) == {gateway.base("peer")}
    # so it was the gateway that carried them, and it had nothing of its own to say
    calls = [float(n) for n in re.findall(r'^kubemq_a2a_requests_total{agent_id="peer".*} (\S+)$', scraped, re.M)]
    assert sum(calls) >= len(through) - 2
    assert not re.search(r'^kubemq_a2a_errors_total{agent_id="peer"', scraped, re.M)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("slash", ["", "/"])
async def test_base_urls_with_and_without_slash(client: str, slash: str, tmp_path: Path) -> None:
    """Contract 1: SDK clients use both forms of `/a2a/{agent_id}`; a KubeMQ agent is taken for 0.3 (5.4)."""
    async with KubemqAgent() as agent, GatewayProcess(tmp_path) as gateway:
        await gateway.register(agent.document)
        record = await CLIENTS[client](gateway.base("kubemq-echo") + slash)
    assert by_name(record)["address"] == [gateway.base("kubemq-echo")]
    raised = outcome(record)
    assert {raised[step] for step in ("send", "get", "send_slow", "get_working", "cancel")} == {"ok"}
    assert raised["get_unknown"] == EXPECTED[client, "get_unknown"]
    assert raised["cancel_finished"] == EXPECTED[client, "cancel_finished"]
    assert agent.requests[0].header("x-kubemq-caller-id") == "anonymous"
    assert {request.target for request in agent.requests} == {"/a2a"}


async def test_results_without_an_envelope(tmp_path: Path) -> None:
    """Contract 2.4: a 2xx JSON value without `jsonrpc` becomes the result, verbatim."""
    async with KubemqAgent(bare=True) as agent, GatewayProcess(tmp_path) as gateway:
        await gateway.register(agent.document)
        record = await sdk03_client(gateway.base("kubemq-echo"))
    assert outcome(record)["send"] == "ok"
    assert by_name(record)["get"]["id"] == "task-1"
