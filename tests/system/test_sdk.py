"""Unmodified official SDK clients and agents: the same steps directly and through the gateway, the same results.

The programs are in `tests/fakes/sdk13` (a2a-sdk 1.3: protocol 1.0 and 0.3) and `tests/fakes/sdk03` (a2a-sdk
0.3.26, in an environment of its own). Streams: `test_sdk_streams.py`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.fakes.kubemq import KubemqAgent
from tests.fakes.program import sdk03_client, sdk13_client
from tests.fakes.sdks import Client, Peers, by_name, comparable, outcome, peers_at

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLIENTS: dict[str, Client] = {"sdk13": sdk13_client, "sdk03": sdk03_client}

PAIRS = [
    pytest.param("sdk13", "sdk13", "1.0", id="1.3 speaks 1.0 to an agent of both"),
    pytest.param("sdk13", "sdk13-only-v1", "1.0", id="1.3 speaks 1.0 to an agent of 1.0 only"),
    pytest.param("sdk13", "sdk03", "0.3", id="1.3 speaks 0.3 to a 0.3 agent"),
    pytest.param("sdk03", "sdk03", "0.3", id="0.3.26 speaks to a 0.3 agent"),
    pytest.param("sdk03", "sdk13", "0.3", id="0.3.26 speaks to an agent of both"),
]

EXPECTED = {
    ("sdk13", "get_unknown"): "TaskNotFoundError",
    ("sdk13", "cancel_finished"): "TaskNotCancelableError",
    ("sdk03", "get_unknown"): "-32001",
    ("sdk03", "cancel_finished"): "-32002",
}
"""The errors that the steps are meant to end in; every other step succeeds."""
GONE = {"TaskNotFoundError", "InternalError"}  # what agents say of a push configuration that is not there


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def peers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Peers]:
    async with peers_at(tmp_path_factory.mktemp("gateway"), CLIENTS) as peers:
        yield peers


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
    before = await peers.calls(agent)
    record = await peers.through(client, agent)
    assert comparable(record) == comparable(await peers.direct(client, agent))
    assert set(by_name(record)["address"]) == {peers.gateway.base(agent)}
    # it was the gateway that carried every step, and it had nothing of its own to say
    assert await peers.calls(agent) - before >= len(record) - len(["address", "card"])
    assert await peers.errors(agent) == []


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
