"""GET /a2a/{agent_id}/stream, for browsers' EventSource: contract 3.6."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.fakes import reply
from tests.fakes.agent import Behaviour, FaultAgent
from tests.fakes.running import Running, eventually, running
from tests.fakes.stream_client import Headers, Stream, calling, opened, request
from tests.fakes.stream_reply import sse

A2A = b'{"jsonrpc":"2.0","id":"x","result":{"kind":"status-update","status":{"state":"working"},"final":false}}'
FAILED = b'{"jsonrpc":"2.0","id":"x","result":{"kind":"status-update","status":{"state":"failed"},"final":true}}'
DONE = b'event: task.done\nid: 9\ndata: {"ok":1}\n\n'
PATH = "/a2a/echo/stream"


def interface(*versions: str) -> dict[str, Any]:
    """The part of a card that says which protocols the agent speaks (contract 5.4)."""
    binding = {"url": "http://127.0.0.1:1/", "protocolBinding": "JSONRPC"}
    return {"supportedInterfaces": [{**binding, "protocolVersion": version} for version in versions]}


@pytest.fixture
async def agent() -> AsyncIterator[FaultAgent]:
    async with FaultAgent() as fake:
        yield fake


@pytest.fixture
async def gateway(agent: FaultAgent) -> AsyncIterator[Running]:
    async with running(a2a={"agent_max_concurrency": 1}) as it:
        await it.register(agent)
        yield it


async def answer(gateway: Running, path: str = PATH, headers: Headers = ()) -> tuple[Stream, bytes]:
    async with calling(gateway.port, request(None, path=path, headers=headers)) as stream:
        async with asyncio.timeout(5):
            await stream.head()
            return stream, await stream.body()


# --- what the agent is sent ---

ONLY_V1 = interface("1.0")
REQUESTS: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "new work": ("", {}, "message/stream", {}),
    "a task": ("?taskId=task-1", {}, "tasks/resubscribe", {"id": "task-1"}),
    "a task with an odd name": (
        "?x=y&taskId=%22%0A%C3%A9%2F%26&taskId=b",
        {},
        "tasks/resubscribe",
        {"id": '"\né/&'},
    ),
    "a task without a name": ("?taskId=", {}, "tasks/resubscribe", {"id": ""}),
    "no task": ("?mytaskId=5&taskid=6", {}, "message/stream", {}),
    "1.0 only": ("", ONLY_V1, "SendStreamingMessage", {}),
    "1.0 only, a task": ("?taskId=t", ONLY_V1, "SubscribeToTask", {"id": "t"}),
    "both": ("", interface("1.0", "0.3"), "message/stream", {}),
    "KubeMQ's own field is no declaration": ("", {"protocolVersions": ["1.0"]}, "message/stream", {}),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_what_the_agent_is_sent(name: str, gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.6, 5.4: one POST whose id is the stream's; 1.0's methods for agents known to speak only that."""
    query, card, method, params = REQUESTS[name]
    await gateway.register(agent, **card)
    agent.next(sse(DONE))
    headers = [("Accept", "text/event-stream"), ("X-Own", "1"), ("Content-Type", "text/plain"), ("Cookie", "a=b")]
    async with opened(gateway.port, None, path=PATH + query, headers=headers) as stream:
        [event] = await stream.rest()
    sent = await agent.received(1)
    assert (sent.method, sent.target) == ("POST", "/")
    assert sent.json() == {
        "jsonrpc": "2.0",
        "id": event.json()["stream_id"],
        "method": method,
        "params": params,
    }
    assert sent.values("accept") == ["text/event-stream, application/json"]
    assert sent.values("content-type") == ["application/json"]
    assert sent.values("a2a-version") == (["1.0"] if method[0] == "S" else [])
    assert (sent.values("x-own"), sent.values("cookie")) == (["1"], [])


# --- what the caller gets ---


@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_everything_in_the_envelope(version: str, gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.6, 3.4: A2A events too; ids of our own, `<stream_id>:<n>`; the head of 3.2."""
    agent.next(sse(b"id: 1\ndata: " + A2A + b"\n\ndata: " + FAILED + b"\n\n", end="hang"))
    async with opened(gateway.port, None, path=PATH, version=version) as stream:
        assert stream.header("cache-control") == "no-cache, no-transform"
        assert stream.header("x-accel-buffering") == "no"
        first, last = await stream.rest()
    assert (first.name, last.name) == ("task.status", "task.error")
    assert first.data.endswith(b'"payload":' + A2A + b"}")
    stream_id = first.json()["stream_id"]
    assert (first.id, last.id) == (f"{stream_id}:1", f"{stream_id}:2")
    await agent.closed(1)


async def test_as_the_agent_sent_it(gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.6: `?format=auto`."""
    agent.next(sse(b"event: e\nid: 1\ndata: " + A2A + b"\n\n", DONE))
    async with opened(gateway.port, None, path=f"{PATH}?format=auto") as stream:
        first, done = await stream.rest()
    assert (first.name, first.data) == ("e", A2A)
    stream_id = done.json()["stream_id"]
    assert (first.id, done.id) == (f"{stream_id}:1", f"{stream_id}:2")


async def test_errors_of_an_open_stream(gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.5: in the envelope before any event too, with an id, so that EventSource stops (3.6)."""
    agent.next(sse(end="close"))
    async with opened(gateway.port, None, path=PATH) as stream:
        [error] = await stream.rest()
    assert (error.name, error.reason) == ("task.error", "STREAM_BROKEN")
    assert error.id == f"{error.json()['stream_id']}:1"


async def test_keepalives_and_idle_limit(agent: FaultAgent) -> None:
    """Contract 3.5: as for any stream."""
    async with running(a2a={"keepalive_seconds": 0.1, "max_sse_idle_seconds": 0.4}) as gateway:
        await gateway.register(agent)
        agent.next(sse(end="hang"))
        async with opened(gateway.port, None, path=PATH) as stream:
            [error] = await stream.rest()
            assert stream.keepalives >= 3
        assert error.reason == "STREAM_IDLE"
        await agent.closed(1)


# --- failures before it opens ---

FAILURES: dict[str, tuple[str, Behaviour, str, int]] = {
    "unknown agent": ("/a2a/nobody/stream", reply.hang(), "AGENT_NOT_FOUND", -32002),
    "malformed id": ("/a2a/Echo/stream", reply.hang(), "INVALID_AGENT_ID", -32600),
    "encoded slash": ("/a2a/x%2Fecho/stream", reply.hang(), "INVALID_AGENT_ID", -32600),
    "two segments": ("/a2a/x/echo/stream", reply.hang(), "INVALID_AGENT_ID", -32600),
    "NUL": ("/a2a/echo%00/stream", reply.hang(), "INVALID_AGENT_ID", -32600),
    "silence": (PATH, reply.hang(), "AGENT_TIMEOUT", -32001),
    "reset": (PATH, reply.reset(), "CONNECTION_LOST", -32003),
    "503": (PATH, reply.body(b"busy", status=503), "AGENT_UNAVAILABLE", -32003),
    "404": (PATH, reply.body(b"", status=404), "AGENT_HTTP_ERROR", -32603),
    "HTML": (PATH, reply.body(b"<html>"), "INVALID_RESPONSE", -32004),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_failures_before_it_opens(name: str, agent: FaultAgent) -> None:
    """Contract 3.6: the JSON-RPC errors of 2.4 with id null; pitfalls 50, 52."""
    path, behaviour, reason, code = FAILURES[name]
    agent.always(behaviour)
    limits = {"agent_max_concurrency": 1, "default_timeout_seconds": 0.3 if name == "silence" else 30}
    async with running(a2a=limits) as gateway:
        await gateway.register(agent)
        for _ in range(2):  # one more than there are slots
            stream, body = await answer(gateway, path)
            assert (stream.status, stream.header("content-type")) == (200, "application/json")
            assert stream.header("x-gateway-error") == reason
            value = json.loads(body)
            assert (list(value), value["id"]) == (["jsonrpc", "id", "error"], None)
            assert value["error"]["code"] == code
        await eventually(lambda: not gateway.lifecycle.in_flight)
        assert await gateway.metric("kubemq_a2a_sse_streams_active") == 0


async def test_busy_and_shutting_down(agent: FaultAgent) -> None:
    """Contract 2.3, 8: pushed streams hold slots, and are refused like any call."""
    async with running(a2a={"agent_max_concurrency": 1}, server={"drain_seconds": 5}) as gateway:
        await gateway.register(agent)
        go = asyncio.Event()
        agent.next(sse(go, DONE))
        async with opened(gateway.port, None, path=PATH) as stream:
            assert (await answer(gateway))[0].header("x-gateway-error") == "SERVER_BUSY"
            gateway.lifecycle.stop()
            await eventually(lambda: gateway.lifecycle.refusing)
            assert (await answer(gateway))[0].header("x-gateway-error") == "GATEWAY_SHUTDOWN"
            go.set()
            assert [event.name for event in await stream.rest()] == ["task.done"]


@pytest.mark.parametrize(
    "text",
    ['{"jsonrpc":"2.0","id":ID,"error":{"code":-32001,"message":"m"}}', '{"jsonrpc":"2.0","id":ID,"result":{}}'],
)
async def test_an_answer_that_is_no_stream(text: str, gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.4: the agent's own answer goes back as it is; it is no event-stream, so EventSource stops."""
    sent: list[bytes] = []

    async def echo(connection: Any, received: Any) -> None:
        sent.append(text.encode().replace(b"ID", received.id))
        await connection.send(reply.wire(200, [("Content-Type", "application/json")], sent[0]))

    agent.next(Behaviour("echo", echo))
    stream, body = await answer(gateway)
    assert (stream.header("content-type"), body) == ("application/json", sent[0])


# --- EventSource comes back ---


async def test_a_stream_that_has_ended_is_not_begun_again(gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.6: `Last-Event-ID` of an ended stream gets 204, which stops EventSource."""
    agent.always(sse(DONE))
    async with opened(gateway.port, None, path=PATH) as stream:
        [event] = await stream.rest()
    assert event.id is not None
    for _ in range(2):
        async with calling(gateway.port, request(None, path=PATH, headers=[("Last-Event-ID", event.id)])) as again:
            await again.head()
            assert (again.status, again.header("content-type")) == (204, None)
    assert len(agent.requests) == 1
    assert await gateway.metric("kubemq_a2a_sse_streams_active") == 0


async def test_so_does_one_of_an_earlier_process(gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.6: a gateway that was started again has no open streams of the one before."""
    agent.always(sse(DONE))
    async with running() as other:
        await other.register(agent)
        async with opened(other.port, None, path=PATH) as stream:
            [event] = await stream.rest()
    assert event.id is not None
    async with calling(gateway.port, request(None, path=PATH, headers=[("Last-Event-ID", event.id)])) as again:
        await again.head()
        assert again.status == 204


@pytest.mark.parametrize("id", ["7", "", "s-1", "x:1", "s-12ab-1:1x", "task-s-12ab-1:1"])
async def test_other_ids_go_on_to_the_agent(id: str, gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.2; pitfall 69: ids that are the agent's own business."""
    agent.next(sse(DONE))
    async with opened(gateway.port, None, path=PATH, headers=[("Last-Event-ID", id)]) as stream:
        await stream.rest()
    assert (await agent.received(1)).values("last-event-id") == [id]


# --- leaving, doors ---


@pytest.mark.parametrize("how", ["close", "half-close", "reset"])
async def test_a_browser_that_leaves(how: str, gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.5, 3.7: upstream closed, slot free, `stream_cancel` names the stream."""
    agent.next(sse(DONE.replace(b"done", b"status"), end="hang"))
    async with opened(gateway.port, None, path=PATH) as stream:
        stream_id = (await stream.event()).json()["stream_id"]
        assert re.fullmatch(r"s-[0-9a-f]+-[0-9a-f]+", stream_id)
        stream.leave(how)
        await agent.closed(1)
    note = (await agent.received(2)).json()
    assert (note["method"], note["params"]) == ("stream_cancel", {"stream_id": stream_id})
    await eventually(lambda: not gateway.lifecycle.in_flight)
    labels = {"agent_id": "echo", "method": "message/stream", "status": "cancelled"}
    assert await gateway.metric("kubemq_a2a_requests_total", **labels) == 1


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "PATCH", "TRACE"])
async def test_other_methods(method: str, gateway: Running, agent: FaultAgent) -> None:
    """Pitfall 59: 405 with Allow, also where no such agent is; nothing is begun."""
    for path in (PATH, "/a2a/nobody/stream"):
        response = await gateway.client.request(method, path)
        assert (response.status_code, response.headers["allow"]) == (405, "GET")
    assert (await gateway.client.request(method, f"{PATH}/")).status_code == 404
    assert agent.requests == []


async def test_options(gateway: Running) -> None:
    """Pitfall 59."""
    response = await gateway.client.options(PATH)
    assert (response.status_code, response.headers["allow"]) == (204, "GET, OPTIONS")


async def test_doors(gateway: Running, agent: FaultAgent) -> None:
    """Contract 1: host check, an agent called `stream`, `a2a.enable: false`."""
    refused = await gateway.client.get(PATH, headers={"host": "evil.example"})
    assert refused.status_code == 421
    assert (await gateway.client.get(f"{PATH}/")).status_code == 404
    assert (await gateway.client.get("/a2a//stream")).status_code == 404
    agent.always(sse(DONE))
    await gateway.register(agent, "stream")
    assert (await gateway.client.get("/a2a/stream")).status_code == 405
    async with opened(gateway.port, None, path="/a2a/stream/stream") as stream:
        assert len(await stream.rest()) == 1
    async with running(a2a={"enable": False}) as closed:
        assert (await closed.client.get(PATH)).status_code == 404


async def test_a_stream_under_a_common_client(gateway: Running, agent: FaultAgent) -> None:
    """The framing is one that an ordinary HTTP client takes."""
    agent.next(sse(b"data: " + A2A + b"\n\n", DONE))
    async with gateway.client.stream("GET", PATH) as response:
        assert isinstance(response, httpx.Response)
        lines = [line async for line in response.aiter_lines()]
    assert [line for line in lines if line.startswith("event")] == ["event: task.status", "event: task.done"]
