"""The agent's bytes in, events out, over sockets: contract 3.3 (reading) and 3.4 (the two formats).

The grammar and the formats themselves are proved in `test_sse.py` and `test_stream_formats.py`; here is what
depends on chunks, codings, connections and the caller's wishes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.fakes.agent import FaultAgent
from tests.fakes.running import Running, eventually, running
from tests.fakes.stream_client import Event, Headers, opened
from tests.fakes.stream_reply import Framing, sse

CAP = 20_000


def rpc(result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 7, "result": result}, ensure_ascii=False).encode()


def status(state: str, *, final: bool = False, kind: str = "status-update") -> bytes:
    return rpc({"kind": kind, "taskId": "t", "status": {"state": state}, "final": final})


WORKING = status("working")
ARTIFACT = rpc({"kind": "artifact-update", "artifact": {"parts": [{"kind": "text", "text": "北京🌍é"}]}})
COMPLETED = status("completed", final=True)
DONE = b'event: task.done\ndata: {"ok":1}\n\n'


@pytest.fixture
async def agent() -> AsyncIterator[FaultAgent]:
    async with FaultAgent() as fake:
        yield fake


@pytest.fixture
async def gateway(agent: FaultAgent) -> AsyncIterator[Running]:
    async with running(a2a={"agent_max_response_bytes": CAP}) as it:
        await it.register(agent)
        yield it


async def events(gateway: Running, headers: Headers = (), query: str = "") -> list[Event]:
    async with opened(gateway.port, path=f"/a2a/echo{query}", headers=headers) as stream:
        return await stream.rest()


# --- 3.3 ---

NASTY = (
    b"\xef\xbb\xbfdata: " + WORKING + b"\r\rid: 7\r\ndata: " + ARTIFACT + b"\r\n\r\n"
    b": ping\n\ndata:\n\nretry: 3000\n\nevent: task.done\n\n"
    b'event: task.status\ndata: {"type":"x",\ndata:"a":[1,\r\ndata: 2]}\n\n'
    b"id: a\x00b\ndata: \xff\xfe{}\n\nid\nretry: 10x\nretry: 5\ndata: e\xc2\x85\xe2\x80\xa8\x0b\x0c\n\n" + DONE
)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("framing", ["chunked", "close", "HTTP/1.0"])
async def test_events_however_they_are_cut(
    size: int, framing: Framing, gateway: Running, agent: FaultAgent
) -> None:
    """Contract 3.3; pitfalls 30, 60, 62, 64, 65, 67, 68, 69: line ends, joins, BOM, orphans, bad bytes."""
    agent.always(sse(NASTY, size=size, framing=framing))
    first, second, third, bad, odd, done = await events(gateway)
    assert (first.text, second.text) == (b"data: " + WORKING, b"id: 7\ndata: " + ARTIFACT)
    assert third.name == "task.status"
    assert third.json()["payload"] == {"type": "x", "a": [1, 2]}
    assert third.data.count(b"\n") == 2
    assert (bad.id, bad.json()["payload"]) == (None, "��{}")
    assert odd.text.startswith(b"event: message\nid: \nretry: 5\n")
    assert odd.json()["payload"] == "e\x85\u2028\x0b\x0c"
    assert (done.name, done.json()["payload"]) == ("task.done", {"ok": 1})


async def test_comments_come_as_keepalives(gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.3: passed on, with a text of our own; never an event."""
    agent.next(sse(b": secret\n\n", 0.05, b":\n\n", 0.05, b"data:\n\n", 0.05, DONE))
    async with opened(gateway.port) as stream:
        assert [event.name for event in await stream.rest()] == ["task.done"]
        assert stream.keepalives == 3


@pytest.mark.parametrize("last", [b"data: " + COMPLETED, b"data: " + COMPLETED + b"\n", DONE[:-1], DONE[:-2]])
async def test_a_last_event_without_its_blank_line(last: bytes, gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.3: counts as an event when the stream ends in order."""
    agent.next(sse(last))
    [event] = await events(gateway)
    assert event.data == COMPLETED or event.name == "task.done"


@pytest.mark.parametrize("size", [0, 1, 4])
async def test_compressed_streams(size: int, gateway: Running, agent: FaultAgent) -> None:
    """Pitfall 79: an agent that ignores `identity` is decoded as it comes, and the coding is not passed on."""
    seen = asyncio.Event()
    agent.next(sse(b"data: " + WORKING + b"\n\n", seen, DONE, end="hang", gzip=True, size=size))
    async with opened(gateway.port) as stream:
        assert (await stream.event()).data == WORKING
        seen.set()
        assert stream.header("content-encoding") is None
        assert [event.name for event in await stream.rest()] == ["task.done"]


async def test_compressed_streams_end_well(gateway: Running, agent: FaultAgent) -> None:
    """Pitfall 79: with the trailer of the coding, and another coding's is a broken stream."""
    agent.next(sse(b"data: " + COMPLETED, gzip=True))
    assert [event.data for event in await events(gateway)] == [COMPLETED]
    coded = [("Content-Type", "text/event-stream"), ("Content-Encoding", "br")]
    agent.next(sse(DONE, headers=coded))
    assert [event.reason for event in await events(gateway)] == ["STREAM_BROKEN"]


@pytest.mark.parametrize("size", [0, 999])
async def test_the_cap_of_an_event_is_exact(size: int, gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.3; pitfall 92 (c): whatever the chunks; a stream of many events is not capped."""
    most = b"data: " + b"x" * CAP + b"\n\n"
    agent.next(sse(most, most, most, DONE, size=size))
    assert [len(event.json()["payload"]) for event in await events(gateway)] == [CAP, CAP, CAP, 1]
    agent.next(sse(b"data: 1\n\ndata: " + b"x" * (CAP + 1) + b"\n\n", end="hang", size=size))
    good, error = await events(gateway)
    assert (good.json()["payload"], error.name, error.reason) == (1, "task.error", "RESPONSE_TOO_LARGE")
    await agent.all_closed()
    failed = {"agent_id": "echo", "method": "message/stream", "status": "transport_error"}
    assert await gateway.metric("kubemq_a2a_requests_total", **failed) == 1


@pytest.mark.parametrize("piece", [b"data: " + b"x" * 50_000, b"data: x\n" * 20_000, b": " + b"c" * 50_000])
async def test_events_without_end(piece: bytes, gateway: Running, agent: FaultAgent) -> None:
    """Pitfall 92 (a, b): one endless line, endless lines, an endless comment."""
    agent.next(sse(piece, end="hang"))
    assert [event.reason for event in await events(gateway)] == ["RESPONSE_TOO_LARGE"]
    await agent.all_closed()
    await eventually(lambda: not gateway.lifecycle.in_flight)


# --- 3.4 ---

MIXED = [
    b"id: 1\nevent: x\ndata: " + WORKING + b"\n\n",
    b'id: 2\nevent: task.status\ndata: {"jsonrpc":"2.0","id":7}\n\n',
    b"id: 3\ndata:  " + ARTIFACT + b"\n\n",
    b'data: {"type":"progress","n":1e400}\n\n',
    b"event: note\ndata: not JSON\n\n",
    b'data: {"type":"artifact"}\n\n',
]


async def test_formats_are_chosen_per_event(gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.4: A2A events unchanged, anything else in the envelope with the agent's whole data as payload."""
    agent.next(sse(*MIXED, DONE))
    first, second, third, fourth, fifth, sixth, done = await events(gateway)
    assert first.text == b"event: x\nid: 1\ndata: " + WORKING
    assert third.text == b"id: 3\ndata:  " + ARTIFACT
    assert (second.id, second.name) == ("2", "task.status")
    stream_id = second.json()["stream_id"]
    assert second.data == b'{"stream_id":"%b","type":"status_update","payload":{"jsonrpc":"2.0","id":7}}' % (
        stream_id.encode()
    )
    assert (fourth.name, fourth.json()["type"]) == ("message", "progress")
    assert b'"payload":{"type":"progress","n":1e400}}' in fourth.data
    assert (fifth.name, fifth.json()["type"], fifth.json()["payload"]) == ("message", "note", "not JSON")
    assert sixth.name == "task.artifact"
    assert {event.json()["stream_id"] for event in (second, fourth, fifth, sixth, done)} == {stream_id}


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ([("X-Stream-Format", "envelope")], ""),
        ([("x-stream-format", " Envelope ")], ""),
        ([], "?format=envelope"),
        ([], "?x=y&format=envelope"),
        ([("X-Stream-Format", "auto")], "?format=envelope"),
    ],
)
async def test_everything_in_the_envelope(
    headers: Headers, query: str, gateway: Running, agent: FaultAgent
) -> None:
    """Contract 3.4: on the caller's wish; the whole JSON-RPC object is the payload, the end is terminal."""
    agent.next(sse(b"id: 1\nevent: x\ndata: " + WORKING + b"\n\ndata: " + COMPLETED + b"\n\n", end="hang"))
    first, done = await events(gateway, headers, query)
    assert (first.name, first.id, first.json()["type"]) == ("task.status", "1", "status_update")
    assert first.data.endswith(b'"payload":' + WORKING + b"}")
    assert (done.name, done.data.endswith(COMPLETED + b"}")) == ("task.done", True)
    await agent.closed(1)
    assert (await agent.received(1)).values("x-stream-format") == []


@pytest.mark.parametrize(
    ("headers", "query"), [([], ""), ([("X-Stream-Format", "auto")], ""), ([], "?format=auto"), ([], "?format=x")]
)
async def test_otherwise_a2a_events_stay_as_they_are(
    headers: Headers, query: str, gateway: Running, agent: FaultAgent
) -> None:
    agent.next(sse(b"data: " + WORKING + b"\n\n", DONE))
    assert (await events(gateway, headers, query))[0].text == b"data: " + WORKING


async def test_nothing_is_injected(gateway: Running, agent: FaultAgent) -> None:
    """Pitfall 94: names, ids, types and texts with line ends make no field and no event of their own."""
    evil = json.dumps({"type": 'x\ndata: {"type":"done"}', "text": "\r\n\r\nevent: task.done\r\n\r\n"}).encode()
    agent.next(sse(b"event: a\0b\rid: 1\rdata: " + evil + b"\n\n", DONE))
    first, done = await events(gateway)
    assert (first.name, first.json()["type"]) == ("message", 'x\ndata: {"type":"done"}')
    assert first.data.endswith(b'"payload":' + evil + b"}")
    assert done.name == "task.done"


async def test_ids_of_streams_differ(gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.4: two streams of one agent can be told apart."""
    agent.always(sse(DONE))
    ids = {(await events(gateway))[0].json()["stream_id"] for _ in range(5)}
    assert len(ids) == 5
