"""Heads that come again are not parsed again: pure, and over sockets, where nothing else may show it.

Contract 2.2, 2.3; pitfalls of two readers that disagree on where a message ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.upstream import Exchange
from gateway.upstream.known_head import CHANCES, HEADS, UNCOPIED, KnownHead, KnownHeads, learn
from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.connection import Connection, Received
from tests.fakes.raw import exchange, open_raw
from tests.fakes.running import Running, running
from tests.fakes.wire import wired

HEAD = (
    b"POST /a2a/echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n"
)
BODY = b'{"jsonrpc":"2.0","id":%d,"method":"message/send","params":{"text":"%b"}}'


def message(body: bytes, more: bytes = b"") -> bytes:
    return HEAD % (len(body), more) + body


def known(body: bytes = b"hello", more: bytes = b"X-Last: 1\r\n") -> KnownHead[str]:
    head = learn(message(body, more), len(body), "told")
    assert head is not None
    assert head.told == "told"
    return head


# --- pure ---


@pytest.mark.parametrize("body", [b"hello", b"", b"x", b"x" * 12_345, b"\r\n\r\n"])
def test_the_same_head_with_any_length(body: bytes) -> None:
    assert known().body(message(body, b"X-Last: 1\r\n")) == body


def test_a_long_body_is_not_copied() -> None:
    data = message(b"x" * UNCOPIED, b"X-Last: 1\r\n")
    body = known().body(data)
    assert isinstance(body, memoryview)
    assert body.obj is data


OTHERS = {
    "another path": message(b"hello", b"X-Last: 1\r\n").replace(b"echo", b"etho"),
    "another value behind the length": message(b"hello", b"X-Last: 2\r\n"),
    "a header more": message(b"hello", b"X-Last: 1\r\nX: 1\r\n"),
    "cut": message(b"hello", b"X-Last: 1\r\n")[:-1],
    "a byte more": message(b"hello", b"X-Last: 1\r\n") + b"!",
    "another request behind": message(b"hello", b"X-Last: 1\r\n") * 2,
    "only the head": message(b"hello", b"X-Last: 1\r\n")[:-5],
    "half a head": message(b"hello", b"X-Last: 1\r\n")[:40],
    "no digits": message(b"hello", b"X-Last: 1\r\n").replace(b": 5", b": "),
    "a sign": message(b"hello", b"X-Last: 1\r\n").replace(b": 5", b": +5"),
    "a blank": message(b"hello", b"X-Last: 1\r\n").replace(b": 5", b": 5 "),
    "two lengths in one": message(b"hello", b"X-Last: 1\r\n").replace(b": 5", b": 5, 5"),
    "other digits": message(b"hello", b"X-Last: 1\r\n").replace(b": 5", b": \xd9\xa5"),
    "nine digits": message(b"hello", b"X-Last: 1\r\n").replace(b": 5", b": 000000005"),
    "nothing": b"",
}


@pytest.mark.parametrize("name", OTHERS)
def test_anything_else_is_the_parsers(name: str) -> None:
    assert known().body(OTHERS[name]) is None


FIRST = message(b"0123456789" * 20 + b"\r\n\r\n" + b"x" * 100)
#: A body with a blank line in it and a second request behind it, cut so that the lengths seem to fit.
TWO = FIRST + b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

UNFIT: dict[str, tuple[bytes, int]] = {
    "no body": (message(b""), 0),
    "less than the length": (message(b"hello")[:-1], 4),
    "two requests": (message(b"hello") * 2, 5),
    "a request behind a blank line": (TWO, 304),
    "blank lines before": (b"\r\n\r\n" + message(b"hello"), 5),
    "two lengths": (message(b"hello", b"Content-Length: 5\r\n"), 5),
    "two lengths that differ": (message(b"hello", b"content-length: 6\r\n"), 5),
    "no length": (b"HTTP/1.1 200 OK\r\n\r\nhello", 5),
    "the length in another header": (b"HTTP/1.1 200 OK\r\nX: Content-Length: 5\r\n\r\nhello", 5),
    "the length folded": (b"HTTP/1.1 200 OK\r\nX: 1\r\n Content-Length: 5\r\n\r\nhello", 5),
    "bare line ends": (b"HTTP/1.1 200 OK\nContent-Length: 5\r\nX: 1\r\n\r\nhello", 5),
    "an interim answer": (b"HTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 5),
    "a long head": (message(b"hello", b"X: %b\r\n" % (b"x" * 4096)), 5),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_cannot_come_again_is_not_learned(name: str) -> None:
    data, size = UNFIT[name]
    assert learn(data, size, "told") is None


# --- callers ---


@pytest.fixture
async def agent() -> AsyncIterator[FaultAgent]:
    async with FaultAgent() as fake:
        yield fake


@pytest.fixture
async def gateway(agent: FaultAgent) -> AsyncIterator[Running]:
    async with running(a2a={"max_request_bytes": 3000}) as it:
        await it.register(agent)
        yield it


async def answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return head, await reader.readexactly(length)


async def test_every_request_of_a_connection_is_a_call_of_its_own(gateway: Running, agent: FaultAgent) -> None:
    """Same head, other bodies and lengths: bodies untouched, ids and request ids each their own."""
    reader, writer = await open_raw(gateway.port)
    seen, bodies = set(), [BODY % (number, b"x" * (number * 31)) for number in range(20)]
    for number, body in enumerate(bodies):
        writer.write(message(body))
        head, got = await answer(reader)
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b'"id":%d' % number in got.replace(b'"id": ', b'"id":')
        seen.add(head.partition(b"x-request-id: ")[2].partition(b"\r\n")[0])
    writer.close()
    assert len(seen) == len(bodies)
    assert [request.body for request in agent.requests] == bodies
    assert await gateway.metric("vitalgate_requests_by_path_total", path="direct") == len(bodies)


async def test_a_known_head_in_pieces_is_still_one_request(gateway: Running, agent: FaultAgent) -> None:
    reader, writer = await open_raw(gateway.port)
    data = message(BODY % (1, b"text"))
    for cut in (0, 1, 30, len(data) - 60, len(data) - 1):
        writer.write(data[:cut])
        await writer.drain()
        await asyncio.sleep(0.02 if cut else 0)  # so that the pieces are read one by one
        writer.write(data[cut:])
        assert (await answer(reader))[0].startswith(b"HTTP/1.1 200 ")
    writer.close()
    assert {request.body for request in agent.requests} == {BODY % (1, b"text")}
    assert len(agent.requests) == 5


async def test_what_comes_behind_a_known_head_is_dropped_as_ever(gateway: Running, agent: FaultAgent) -> None:
    """Pipelined: the first is answered, the connection is closed, the agent never sees the second."""
    data = message(BODY % (1, b"text"))
    reader, writer = await open_raw(gateway.port)
    writer.write(data)
    await answer(reader)
    writer.write(data + data)
    assert (await answer(reader))[0].startswith(b"HTTP/1.1 200 ")
    assert await reader.read() == b""
    writer.close()
    assert len(agent.requests) == 2


async def test_a_request_hidden_in_a_body_stays_a_body(gateway: Running, agent: FaultAgent) -> None:
    """What is learned ends where the parser says that the head ends, whatever the body looks like."""
    hidden = BODY % (1, b"POST /a2a/echo HTTP/1.1 " + b"x" * 100)
    hidden += b"\r\n\r\n" * 20  # blank lines behind the JSON are legal
    reader, writer = await open_raw(gateway.port)
    for _ in range(3):
        writer.write(message(hidden))
        assert (await answer(reader))[0].startswith(b"HTTP/1.1 200 ")
    writer.close()
    assert [request.body for request in agent.requests] == [hidden] * 3
    got = await exchange(gateway.port, message(hidden) + b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert got.count(b"HTTP/1.1 200 OK\r\n") == 1


async def test_a_known_head_is_no_pass(gateway: Running, agent: FaultAgent) -> None:
    """Too large a body, a lost agent, another head in between: each is judged as if it came first."""
    reader, writer = await open_raw(gateway.port)
    small = message(BODY % (1, b"text"))
    writer.write(small)
    await answer(reader)
    large = message(BODY % (2, b"x" * 3000))
    writer.write(large)
    head, body = await answer(reader)
    assert b"x-gateway-error: REQUEST_TOO_LARGE" in head, body
    writer.write(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (await answer(reader))[0].startswith(b"HTTP/1.1 200 ")
    await gateway.client.delete("/agents/echo")
    writer.write(small)
    assert b"x-gateway-error: AGENT_NOT_FOUND" in (await answer(reader))[0]
    writer.close()
    assert len(agent.requests) == 1


# --- agents ---


@reply.behaviour
async def padded(connection: Connection, request: Received, length: int, cut: int | None = None) -> None:
    """An answer of any length, all with the same head; cut in two, if asked."""
    text = b'{"jsonrpc":"2.0","id":1,"result":"%b"}' % (b"x" * length)
    data = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-A: 1\r\nContent-Length: %d\r\n\r\n%b" % (
        len(text),
        text,
    )
    await connection.send(data[:cut])
    if cut is not None:
        await asyncio.sleep(0.02)
        await connection.send(data[cut:])


async def test_answers_with_the_same_head_and_other_lengths(gateway: Running, agent: FaultAgent) -> None:
    lengths = [10, 10, 11, 1000, 0, 99_000, 10]
    for length in lengths:
        agent.next(padded(length))
    for length in lengths:
        response = await gateway.call(BODY % (1, b""))
        assert response.json()["result"] == "x" * length
        assert response.headers["x-a"] == "1"
    assert len(agent.connections) == 1


async def test_long_bodies_both_ways(agent: FaultAgent) -> None:
    """Contract 2.3: bytes are bytes, also of a read that is sent again on another connection, and of a failure."""
    long = BODY.replace(b"message/send", b"tasks/get") % (1, b"x" * 150_000)
    async with running() as gateway:
        await gateway.register(agent)
        reader, writer = await open_raw(gateway.port)
        failed = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"%b"}}' % (b"y" * 90_000)
        for script, expected in (
            ([padded(120_000)], b"x" * 120_000),
            ([reply.close(), padded(70_000)], b"x" * 70_000),
            ([reply.body(failed, status=400)], failed),
            ([reply.body(failed[:-1])], b"INVALID_RESPONSE"),
            ([reply.body(b"y" * 90_000, status=500)], b"y" * 65_536),
        ):
            for _ in range(2):  # the second answer has a known head
                agent.next(*script)
                writer.write(message(long))
                _, got = await asyncio.wait_for(answer(reader), 10)
                assert expected in got
        writer.close()
        assert {request.body for request in agent.requests} == {long}
        assert await gateway.metric("vitalgate_requests_by_path_total", path="direct") == 10


@pytest.mark.parametrize("size", [10, UNCOPIED])
async def test_a_known_answer_may_be_taken_in_pieces(size: int, agent: FaultAgent) -> None:
    """Who asks for a body piece by piece gets it so, though another has had the same head whole."""
    pieces: list[bytes] = []

    def in_pieces(exchange: Exchange) -> None:
        exchange.consume = pieces.append

    async with wired() as wire:
        pool = wire.pool(agent.url)
        agent.always(padded(size))
        whole = [(await wire.call(pool)).body for _ in range(2)]
        assert (await wire.call(pool, on_head=in_pieces)).failure is None
        assert b"".join(pieces) == bytes(whole[0]) == bytes(whole[1])
        assert {type(piece) for piece in pieces} == {bytes}


async def test_answers_in_pieces_after_a_known_head(gateway: Running, agent: FaultAgent) -> None:
    for cut in (None, None, 1, 20, 90, 100):
        agent.next(padded(50, cut))
        assert (await gateway.call(BODY % (1, b""))).json()["result"] == "x" * 50
    assert len(agent.connections) == 1


async def test_what_follows_a_known_answer_costs_the_connection(gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.3, the reuse rule: excess bytes belong to no answer."""
    text = b'{"jsonrpc":"2.0","id":1,"result":{}}'
    data = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)
    for extra in (b"", b"", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""):
        agent.next(reply.raw(data + extra))
        assert (await gateway.call(BODY % (1, b""))).content == text
    assert len(agent.connections) == 2


async def test_a_client_of_several_agents(gateway: Running, agent: FaultAgent) -> None:
    """Their heads take turns on one connection: each is answered by its own agent."""
    names = [f"agent-{number:02d}" for number in range(HEADS + 4)]
    for name in names:
        await gateway.register(agent.at(f"/{name}"), name)
    reader, writer = await open_raw(gateway.port)
    for some in (names[:5], names):
        for _ in range(3):
            for name in some:
                writer.write(message(BODY % (1, b"x")).replace(b"/a2a/echo", b"/a2a/" + name.encode()))
                assert (await answer(reader))[0].startswith(b"HTTP/1.1 200 ")
                assert agent.requests[-1].target == f"/{name}"
    writer.close()


def test_as_many_heads_are_known_as_are_said_in_turns() -> None:
    heads: KnownHeads[int] = KnownHeads()
    said = [message(b"hello").replace(b"echo", b"%04d" % number) for number in range(HEADS)]
    for number, data in enumerate(said):
        assert heads.read(data) is None
        heads.learn(data, 5, number)
    for _ in range(2):
        assert [heads.read(data) for data in said] == [(number, b"hello") for number in range(HEADS)]
    heads.forget()
    assert heads.read(said[0]) is None


def test_heads_that_are_all_different_are_given_up() -> None:
    heads: KnownHeads[int] = KnownHeads()
    said = [message(b"hello", b"X: %d\r\n" % number) for number in range(CHANCES + 1)]
    for number, data in enumerate(said):
        assert heads.read(data) is None
        heads.learn(data, 5, number)
    assert heads.read(said[-1]) is None  # not learned any more
    assert heads.read(said[-2]) == (CHANCES - 1, b"hello")
    heads.learn(said[-1], 5, CHANCES)  # one has come again: from now on they are looked at
    assert heads.read(said[-1]) == (CHANCES, b"hello")


async def test_heads_that_never_come_again_are_not_looked_at_forever(gateway: Running, agent: FaultAgent) -> None:
    """A date or a trace id in every head: after some chances the work is not done any more, and all goes on."""
    reader, writer = await open_raw(gateway.port)
    for number in range(2 * CHANCES):
        writer.write(
            message(BODY % (number, b""), b"traceparent: 00-%032x-%016x-01\r\n" % (number + 1, number + 1))
        )
        assert (await answer(reader))[0].startswith(b"HTTP/1.1 200 ")
    writer.close()
    traces = [dict(request.headers)["traceparent"] for request in agent.requests]
    assert len(set(traces)) == 2 * CHANCES
