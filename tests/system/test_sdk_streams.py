"""Streams of unmodified official SDK clients: the same directly and through the gateway (contract 3, 5.4).

Each stream is read to its end, left and taken up again, cancelled, failed; see `Steps` in
`tests/fakes/sdk13/streams.py`. JavaScript clients are run where there is a `node`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from tests.fakes.agent import Behaviour, Connection, FaultAgent, Received
from tests.fakes.answers import chunk, head, rpc
from tests.fakes.program import NODE, js_client, sdk03_streams, sdk13_streams
from tests.fakes.sdks import Client, Peers, by_name, comparable, outcome, peers_at
from tests.fakes.stream_reply import SSE

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLIENTS: dict[str, Client] = {
    "sdk13": sdk13_streams,
    "sdk03": sdk03_streams,
    "js13": partial(js_client, "sdk13"),
    "js03": partial(js_client, "sdk03"),
}
NEEDS_NODE = pytest.mark.skipif(NODE is None, reason="there is no node: JavaScript SDK clients are not run")

PAIRS = [
    pytest.param("sdk13", "sdk13", id="Python 1.3 speaks 1.0 to an agent of both"),
    pytest.param("sdk13", "sdk13-only-v1", id="Python 1.3 speaks 1.0 to an agent of 1.0"),
    pytest.param("sdk13", "sdk03", id="Python 1.3 speaks 0.3 to a 0.3 agent"),
    pytest.param("sdk03", "sdk03", id="Python 0.3.26 speaks to a 0.3 agent"),
    pytest.param("sdk03", "sdk13", id="Python 0.3.26 speaks to an agent of both"),
    pytest.param("js13", "sdk13", id="JavaScript 1.3 speaks 1.0 to an agent of both", marks=NEEDS_NODE),
    pytest.param("js13", "sdk13-only-v1", id="JavaScript 1.3 speaks 1.0 to an agent of 1.0", marks=NEEDS_NODE),
    pytest.param("js13", "sdk03", id="JavaScript 1.3 speaks 0.3 to a 0.3 agent", marks=NEEDS_NODE),
    pytest.param("js03", "sdk03", id="JavaScript 0.3.14 speaks to a 0.3 agent", marks=NEEDS_NODE),
    pytest.param("js03", "sdk13", id="JavaScript 0.3.14 speaks to an agent of both", marks=NEEDS_NODE),
]

FAIL = {"get_unknown", "resubscribe_finished", "resubscribe_unknown"}
"""The steps that are meant to raise; every other step succeeds."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def peers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Peers]:
    async with peers_at(tmp_path_factory.mktemp("gateway"), CLIENTS, a2a={"keepalive_seconds": 0.4}) as peers:
        yield peers


def text(events: Any) -> str:
    return json.dumps(events, ensure_ascii=False).lower()


@pytest.mark.parametrize(("client", "agent"), PAIRS)
async def test_directly(client: str, agent: str, peers: Peers) -> None:
    """The peers themselves: what the gateway has to reproduce is really what we think it is."""
    record = await peers.direct(client, agent)
    assert {step for step, raised in outcome(record).items() if raised != "ok"} == FAIL & set(by_name(record))
    steps = by_name(record)
    submitted, working, artifact, completed = map(text, steps["stream"])
    assert "submitted" in submitted
    assert "working" in working
    assert "grüße, 北京 🌍" in artifact
    assert "completed" in completed
    assert len(steps["stream_of_a_message"]) == 1
    assert "failed" in text(steps["stream_of_what_fails"][-1])
    assert "before" in text(steps["leave"][-1])
    assert "completed" in text(steps["resubscribe"][-1])
    assert "before" not in text(steps["resubscribe"][-2])  # the artifact that came after it was taken up again
    assert "canceled" in text(steps["cancel_while_streaming"]["events"][-1])
    assert "canceled" in text(steps["cancel_while_streaming"]["answer"])


@pytest.mark.parametrize(("client", "agent"), PAIRS)
async def test_through_the_gateway(client: str, agent: str, peers: Peers) -> None:
    """Contract 3.2, 3.4, 3.5: every event and every error as the agent sent it, and the same ends."""
    before = await peers.calls(agent)
    record = await peers.through(client, agent)
    assert comparable(without_addresses(record)) == comparable(
        without_addresses(await peers.direct(client, agent))
    )
    if client.startswith("js"):
        assert set(by_name(record)["card"]["addresses"]) == {peers.gateway.base(agent)}
    # it was the gateway that carried every step, and it had nothing of its own to say
    assert await peers.calls(agent) - before >= len(record) - 1
    assert await peers.errors(agent) == []


def without_addresses(record: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**step, "result": {**step["result"], "addresses": None}} if step["step"] == "card" else step
        for step in record
    ]


@pytest.mark.parametrize("client", ["sdk13", "sdk03"])
async def test_no_stream_is_left_open(client: str, peers: Peers) -> None:
    """Contract 3.5: also the stream that the client left is closed."""
    await peers.through(client, "sdk13")
    async with asyncio.timeout(5):
        while "\nkubemq_a2a_sse_streams_active 0.0\n" not in await peers.gateway.scrape():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def breaking(connection: Connection, request: Received | None) -> None:
    """Says that it is at work, in the version it is asked in, and breaks down."""
    assert request is not None
    names = {"taskId": "t", "contextId": "c"}
    if "/" in request.json()["method"]:
        event = {"kind": "status-update", **names, "status": {"state": "working"}, "final": False}
    else:
        event = {"statusUpdate": {**names, "status": {"state": "TASK_STATE_WORKING"}}}
    await connection.send(head(200, [*SSE, ("Transfer-Encoding", "chunked")]))
    await connection.send(chunk(b"data: " + rpc(request, "result", event) + b"\n\n"))
    connection.close()


def silent(client: Any, seconds: str) -> Client:
    """A Python client whose one stream waits so long for a byte."""
    return lambda base: client(base, seconds)


@pytest.mark.parametrize(
    "client",
    [
        pytest.param(silent(sdk13_streams, "60"), id="Python 1.3"),
        pytest.param(silent(sdk03_streams, "60"), id="Python 0.3.26"),
        pytest.param(CLIENTS["js13"], id="JavaScript 1.3", marks=NEEDS_NODE),
        pytest.param(CLIENTS["js03"], id="JavaScript 0.3.14", marks=NEEDS_NODE),
    ],
)
@pytest.mark.parametrize("versions", [["1.0", "0.3"], ["0.3"]], ids=["both", "0.3"])
async def test_a_broken_stream_raises(client: Any, versions: list[str], peers: Peers) -> None:
    """Contract 3.5: no SDK takes a stream that broke on the way for one that ended."""
    async with FaultAgent() as agent:
        agent.always(Behaviour("breaking", breaking))
        card = {"agent_id": "breaking", "name": "Breaks", "url": agent.url, "protocolVersions": versions}
        await peers.gateway.register({**card, "capabilities": {"streaming": True}})
        steps = by_name(await client(peers.gateway.base("breaking")))
    assert "agent stream broken: connection lost" in steps.get("silence", steps.get("stream"))["message"]


@pytest.mark.parametrize("client", [sdk13_streams, sdk03_streams])
async def test_keepalives_keep_a_python_client(client: Any, peers: Peers) -> None:
    """Contract 3.5: a client that gives up after so many seconds without a byte hears from the gateway sooner."""
    patience = "2"
    direct, through = await asyncio.gather(
        client(peers.programs["sdk13"].url, patience), client(peers.gateway.base("sdk13"), patience)
    )
    assert outcome(direct) == {"silence": "A2AClientTimeoutError"}
    assert outcome(through) == {"silence": "ok"}
    assert "completed" in text(by_name(through)["silence"][-1])
