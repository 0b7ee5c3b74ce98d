"""One request and its answer over real sockets: contract 2.2-2.4, pitfalls 20, 22, 29, 30, 34, 38, 40, 41, 79."""

from __future__ import annotations

import asyncio
import os
import socket
import tracemalloc
import zlib
from collections.abc import Callable

import pytest

from gateway.upstream import Exchange, FailureKind
from tests.fakes import reply
from tests.fakes.agent import Behaviour, FaultAgent
from tests.fakes.wire import BODY, CAP, settled, until, wired

DATA = b'{"jsonrpc":"2.0","id":1,"result":{"text":"hello"}}'
OK = b"HTTP/1.1 200 OK\r\n"
PROTOCOL, LOST = FailureKind.PROTOCOL, FailureKind.LOST


# Answers that are accepted; True where the connection may be used again


@pytest.mark.parametrize(
    ("behaviour", "reused"),
    [
        (reply.body(DATA), True),
        (reply.chunked(DATA, size=7), True),
        (reply.chunked(DATA, trailers=[("X-Trailer", "t"), ("Authorization", "x")]), True),
        (reply.dribble(reply.wire(200, [], DATA), every=0.001), True),
        (reply.interim(reply.body(DATA)), True),
        (reply.interim(reply.body(DATA), (103,) * 10), True),
        (reply.http10(DATA, keep_alive=True), True),
        (reply.http10(DATA), False),
        (reply.http10(DATA, length=False), False),
        (reply.until_close(DATA), False),
        (reply.body(DATA, headers=[("Connection", "close")]), False),
        (reply.excess(DATA), False),
        (reply.excess(DATA, b"garbage"), False),
        (reply.excess(DATA, reply.wire(200, [], b"a second answer")), False),
        (reply.coded(reply.gzip(DATA)), True),
        (reply.coded(reply.gzip(DATA), "x-gzip"), True),
        (reply.coded(reply.gzip(DATA), "GZip"), True),
        (reply.coded(reply.gzip(DATA[:9]) + reply.gzip(DATA[9:])), True),
        (reply.coded(reply.gzip(DATA) + b"\0" * 8), True),
        (reply.coded(reply.deflate(DATA), "deflate"), True),
        (reply.coded(reply.deflate(DATA, bare=True), "deflate"), True),
        (reply.coded(DATA, "identity"), True),
    ],
    ids=lambda value: value.name if isinstance(value, Behaviour) else None,
)
async def test_accepted(behaviour: Behaviour, reused: bool) -> None:
    """Contract 2.3, 2.4; pitfalls 22, 29, 30: the decoded body, and whether the connection stays."""
    async with FaultAgent() as agent, wired() as wire:
        pool = wire.pool(agent.url)
        agent.next(behaviour)
        exchange = await wire.call(pool)
        assert (exchange.failure, exchange.status, exchange.body) == (None, 200, DATA)
        await settled()
        assert wire.left == ((1, 1, 0) if reused else (0, 0, 0))
        again = await wire.call(pool)
        assert again.failure is None
        assert len(agent.connections) == (1 if reused else 2)


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_without_a_body(status: int) -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.raw(reply.head(status, [("Content-Encoding", "br")])))
        exchange = await wire.call(agent.url)
        assert (exchange.failure, exchange.status, exchange.body) == (None, status, b"")
        assert wire.left == (1, 1, 0)


async def test_a_coded_answer_may_be_empty() -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.coded(b"", "gzip"), reply.coded(b"", "br"))
        pool = wire.pool(agent.url)
        for _ in range(2):
            exchange = await wire.call(pool)
            assert (exchange.failure, exchange.body) == (None, b"")


async def test_a_coded_answer_in_single_bytes() -> None:
    async with FaultAgent() as agent, wired() as wire:
        for coding, data in (
            ("gzip", reply.gzip(DATA)),
            ("deflate", reply.deflate(DATA)),
            ("deflate", reply.deflate(DATA, bare=True)),
        ):
            answer = reply.wire(200, [("Content-Encoding", coding)], data)
            agent.next(reply.dribble(answer, every=0.0, first=len(answer) - len(data)))
            exchange = await wire.call(agent.url)
            assert (exchange.failure, exchange.body) == (None, DATA)


async def test_headers_keep_order_and_multiplicity() -> None:
    """Pitfall 26; names in lower case, values without the space around them, interim headers gone."""
    head = OK + b"X-B: 2\r\nx-a:  1 \t\r\nX-B: 3\r\nEmpty:\r\nContent-Length: 2\r\n\r\n{}"
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.interim(reply.raw(head)))
        exchange = await wire.call(agent.url)
    assert exchange.headers == [
        (b"x-b", b"2"),
        (b"x-a", b"1"),
        (b"x-b", b"3"),
        (b"empty", b""),
        (b"content-length", b"2"),
    ]


async def test_what_the_agent_receives() -> None:
    """Contract 2.2, pitfalls 4, 25, 33: head and body exactly as given, in one piece."""
    body = b'{ "a":\t"\\u00e9", "a":1 }'
    async with FaultAgent() as agent, wired() as wire:
        exchange = await wire.call(agent.at("/a2a?k=v%2F1"), body)
        request = await agent.received(1)
    assert exchange.failure is None
    assert (request.target, request.body) == ("/a2a?k=v%2F1", body)
    assert request.header("host") == agent.authority


@pytest.mark.parametrize("size", [262_144, 262_145, 5_000_000])
async def test_large_requests(size: int) -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.always(reply.body(DATA))
        pool = wire.pool(agent.url)
        for number in (1, 2):
            exchange = await wire.call(pool, b"x" * size)
            assert exchange.failure is None
            assert len((await agent.received(number)).body) == size
        assert len(agent.connections) == 1


async def test_large_responses() -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.always(reply.body(b"x" * 3_000_000))
        exchange = await wire.call(agent.url, cap=3_000_000)
        assert (exchange.failure, len(exchange.body)) == (None, 3_000_000)
        assert wire.left == (1, 1, 0)


# Answers that are not accepted


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (reply.raw(b"SSH-2.0-OpenSSH_9.6\r\n"), PROTOCOL),
        (reply.raw(b"\x15\x03\x01\x00\x02\x02\x46"), PROTOCOL),
        (reply.raw(b"GET / HTTP/1.1\r\n\r\n"), PROTOCOL),
        (reply.raw(b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n"), PROTOCOL),
        (reply.raw(b"HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n"), PROTOCOL),
        (reply.raw(b"HTTP/1.1 1000 OK\r\nContent-Length: 0\r\n\r\n"), PROTOCOL),
        (reply.raw(b"HTTP/1.1 200 OK\nContent-Length: 0\n\n"), PROTOCOL),
        (reply.raw(OK + b"A: b\r\n c\r\nContent-Length: 0\r\n\r\n"), PROTOCOL),
        (reply.two_lengths(DATA), PROTOCOL),
        (reply.length_and_chunked(DATA), PROTOCOL),
        (reply.raw(OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"), PROTOCOL),
        (reply.raw(OK + b"Transfer-Encoding: gzip\r\n\r\n{}", close=True), PROTOCOL),
        (reply.raw(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n"), PROTOCOL),
        (reply.raw(OK + b"Content-Length: 99999999999999999999\r\n\r\n{}"), PROTOCOL),
        (reply.raw(OK + b"Content-Length: -1\r\n\r\n{}"), PROTOCOL),
        (reply.huge_header(10 << 20), PROTOCOL),
        (reply.huge_header(10 << 20, end=False), PROTOCOL),
        (reply.many_headers(), PROTOCOL),
        (reply.interim(reply.body(DATA), (100,) * 100), PROTOCOL),
        (reply.raw(OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"x" * 200_000), PROTOCOL),
        (reply.raw(OK + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 200_000), PROTOCOL),
        (reply.switching(), FailureKind.UPGRADED),
        (reply.raw(reply.head(101) + b"x"), FailureKind.UPGRADED),
        (reply.short(DATA), LOST),
        (reply.chunked(DATA, end=False), LOST),
        (reply.close(), LOST),
        (reply.close(b"HTTP/1.1 200"), LOST),
        (reply.close(b"HTTP/1.1 103 Early Hints\r\n\r\n"), LOST),
        (reply.reset(), LOST),
        (reply.reset(OK + b"Content-Length: 9\r\n\r\n{"), LOST),
        (reply.reset(OK + b"\r\n{"), LOST),  # a body that ends with the connection, which broke
        (reply.coded(DATA, "br"), FailureKind.UNDECODABLE),
        (reply.coded(DATA, "gzip"), FailureKind.UNDECODABLE),
        (reply.coded(DATA, "deflate"), FailureKind.UNDECODABLE),
        (reply.coded(reply.gzip(DATA)[:-4], "gzip"), FailureKind.UNDECODABLE),
        (reply.coded(reply.gzip(DATA) + b"junk", "gzip"), FailureKind.UNDECODABLE),
        (reply.coded(reply.deflate(DATA) + b"junk", "deflate"), FailureKind.UNDECODABLE),
        (reply.coded(reply.gzip(reply.gzip(DATA)), "gzip, gzip"), FailureKind.UNDECODABLE),
        (reply.coded(b"x", "deflate"), FailureKind.UNDECODABLE),
    ],
    ids=lambda value: value.name if isinstance(value, Behaviour) else None,
)
async def test_not_accepted(behaviour: Behaviour, kind: FailureKind) -> None:
    """Contract 2.4; pitfalls 29, 30, 38, 41, 92. The connection is closed, and nothing is sent twice."""
    async with FaultAgent() as agent, wired() as wire:
        agent.always(behaviour)
        exchange = await wire.call(agent.url, repeatable=True)
        assert exchange.failure is not None
        assert (exchange.failure.kind, exchange.failure.connecting) == (kind, False)
        await settled()
        assert wire.left == (0, 0, 0)
        assert len(agent.requests) == 1


@pytest.mark.parametrize("apart", [True, False])
async def test_what_came_before_a_break_does_not_depend_on_how_it_was_cut(apart: bool) -> None:
    """Head and break in one read or in two: the same status, the same pieces, the same failure."""
    head = reply.head(503, [("Transfer-Encoding", "chunked")])
    rest = reply.chunk(b"piece") + b"zz\r\n"
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.dribble(head + rest, size=1 if apart else 1000, every=0.0))
        consumer = Consumer()
        exchange = await wire.call(agent.url, on_head=consumer.on_head)
        assert exchange.failure is not None
        assert (exchange.failure.kind, exchange.status, consumer.all) == (PROTOCOL, 503, b"piece")


# The cap (pitfall 20)


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize(
    "make",
    [
        reply.body,
        lambda data: reply.chunked(data, size=1000),
        reply.until_close,
        lambda data: reply.coded(reply.gzip(data)),
        lambda data: reply.dribble(reply.wire(200, [], data), size=4000, every=0.0),
    ],
    ids=["length", "chunked", "close", "gzip", "dribble"],
)
async def test_the_cap_is_exact(make: Callable[[bytes], Behaviour], over: int) -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.next(make(b"x" * (20_000 + over)))
        exchange = await wire.call(agent.url, cap=20_000)
        if over:
            assert exchange.failure is not None
            assert exchange.failure.kind is FailureKind.TOO_LARGE
            assert wire.left[1] == 0
        else:
            assert (exchange.failure, len(exchange.body)) == (None, 20_000)


@pytest.mark.parametrize("framing", ["chunked", "close", "length"])
async def test_endless_bodies_are_cut_off(framing: str) -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.endless(framing))  # type: ignore[arg-type]
        exchange = await wire.call(agent.url)
        assert exchange.failure is not None
        assert exchange.failure.kind is FailureKind.TOO_LARGE
        await agent.closed(1)


async def test_an_announced_length_over_the_cap_fails_at_once() -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.hang(OK + b"Content-Length: 1000001\r\n\r\n"))
        exchange = await wire.call(agent.url, cap=1_000_000)
        assert exchange.failure is not None
        assert exchange.failure.kind is FailureKind.TOO_LARGE


async def test_a_bomb_stops_at_the_cap_in_bounded_memory() -> None:
    bomb = reply.bomb(100 << 20)
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.coded(bomb))
        tracemalloc.start()
        try:
            exchange = await wire.call(agent.url, cap=1 << 20)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert exchange.failure is not None
        assert exchange.failure.kind is FailureKind.TOO_LARGE
        assert peak < 8 << 20


async def test_tiny_chunks_do_not_multiply_memory() -> None:
    data = reply.chunk(b"ab") * 100_000
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.raw(reply.head(200, [("Transfer-Encoding", "chunked")]) + data + reply.LAST_CHUNK))
        exchange = await wire.call(agent.url)
        assert (exchange.failure, exchange.body) == (None, b"ab" * 100_000)


# Time


async def test_a_dribbling_agent_cannot_stretch_the_deadline() -> None:
    """Contract 2.3, pitfall 34."""
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.dribble(OK + b"Content-Length: 100\r\n\r\n" + b"x" * 100, every=0.1, first=40))
        loop = asyncio.get_running_loop()
        start = loop.time()
        exchange = await wire.call(agent.url, seconds=0.5)
        assert exchange.failure is not None
        assert (exchange.failure.kind, exchange.failure.connecting) == (FailureKind.TIMEOUT, False)
        assert 0.49 <= loop.time() - start <= 0.6
        await agent.closed(1)


async def test_deadlines_are_independent_and_exact() -> None:
    """Also when they are not in order, and one timer watches all of them."""
    async with FaultAgent() as agent, wired() as wire:
        agent.always(reply.hang())
        pool, loop = wire.pool(agent.url), asyncio.get_running_loop()
        start = loop.time()

        async def one(seconds: float) -> float:
            exchange = await wire.call(pool, seconds=seconds)
            assert exchange.failure is not None
            return loop.time() - start - seconds

        late = await asyncio.gather(*(one(seconds) for seconds in (0.4, 0.1, 0.3, 0.101, 0.2, 0.11)))
        assert all(-0.005 <= seconds <= 0.09 for seconds in late), late


async def test_the_deadline_can_be_moved_and_taken_away() -> None:
    """Contract 3.1: bounded by T until the headers, then only by what the relay does."""
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.dribble(OK + b"Content-Length: 4\r\n\r\nabcd", every=0.1, first=38))
        exchange = await wire.call(agent.url, seconds=0.15, on_head=lambda exchange: exchange.set_deadline(None))
        assert (exchange.failure, exchange.body) == (None, b"abcd")
        agent.next(reply.hang(OK + b"Content-Length: 4\r\n\r\n"))
        sent = wire.start(wire.pool(agent.url), seconds=60.0)
        sent.exchange.set_deadline(asyncio.get_running_loop().time() + 0.1)
        failure = (await sent.end(within=1.0)).failure
        assert failure is not None
        assert failure.kind is FailureKind.TIMEOUT


async def test_a_deadline_that_has_passed_sends_nothing() -> None:
    async with FaultAgent() as agent, wired() as wire:
        pool = wire.pool(agent.url)
        await wire.call(pool)
        exchange = await wire.call(pool, seconds=-1.0)
        assert exchange.failure is not None
        assert (exchange.failure.kind, exchange.failure.connecting) == (FailureKind.TIMEOUT, True)
        await settled()
        assert len(agent.requests) == 1


async def test_without_a_deadline() -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.late(0.2, reply.body(DATA)))
        assert (await wire.call(agent.url, seconds=None)).failure is None


# Reuse (contract 2.3, pitfalls 40 and 41)


async def test_connections_are_reused_last_in_first_out() -> None:
    async with FaultAgent() as agent, wired() as wire:
        pool = wire.pool(agent.url)
        await asyncio.gather(*(wire.call(pool) for _ in range(3)))
        assert wire.left == (3, 3, 0)
        agent.requests.clear()
        for _ in range(4):
            assert (await wire.call(pool)).failure is None
        assert len({request.connection for request in agent.requests}) == 1


async def test_pitfall_40_an_agent_that_closes_while_announcing_keep_alive() -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.always(reply.close_after(reply.body(DATA), seconds=0.002))
        pool = wire.pool(agent.url)
        for number in range(20):
            assert (await wire.call(pool)).failure is None
            await until(lambda peer=agent.connections[number]: peer.lost)
            wire.heard()
        assert len(agent.requests) == 20


async def test_a_close_that_the_loop_has_not_seen_yet() -> None:
    """The kernel knows: the request is not written, and goes on a fresh connection (contract 2.3)."""
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.body(DATA))
        pool = wire.pool(agent.url)
        first = wire.start(pool)
        await first.end()
        peer = agent.connections[0]
        peer.reset()
        await until(lambda: peer.lost)  # the very turn in which the agent's socket is closed
        wire.heard()
        exchange = await wire.call(pool)
        assert exchange.failure is None
        assert len(agent.requests) == 2


@pytest.mark.parametrize("repeatable", [True, False])
@pytest.mark.parametrize("behaviour", [reply.close(), reply.reset()], ids=["close", "reset"])
async def test_written_on_a_reused_connection_that_closes_without_a_byte(
    behaviour: Behaviour, repeatable: bool
) -> None:
    """Contract 2.3: again, once, on a fresh connection, if the method only reads; otherwise lost."""
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.body(DATA), behaviour, behaviour, behaviour)
        pool = wire.pool(agent.url)
        await wire.call(pool)
        exchange = await wire.call(pool, repeatable=repeatable)
        assert exchange.failure is not None
        assert (exchange.failure.kind, exchange.failure.connecting) == (LOST, False)
        assert len(agent.requests) == (3 if repeatable else 2)


async def test_a_repeated_request_gets_its_answer() -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.body(DATA), reply.close())
        agent.always(reply.body(DATA))
        pool = wire.pool(agent.url)
        await wire.call(pool)
        exchange = await wire.call(pool, repeatable=True)
        assert (exchange.failure, exchange.body) == (None, DATA)
        assert [request.connection for request in agent.requests] == [1, 1, 2]
        assert agent.requests[1].raw == agent.requests[2].raw


async def test_a_repeated_request_that_finds_nobody_was_written_all_the_same() -> None:
    agent = FaultAgent()
    async with agent, wired() as wire:
        pool = wire.pool(agent.url)
        await wire.call(pool)

        async def leave(connection, request) -> None:  # type: ignore[no-untyped-def]
            agent._server.close()  # type: ignore[union-attr]
            connection.close()

        agent.next(Behaviour("leave", leave))
        exchange = await wire.call(pool, repeatable=True)
        assert exchange.failure is not None
        assert (exchange.failure.kind, exchange.failure.connecting) == (FailureKind.REFUSED, False)


async def test_pitfall_41_not_again_after_the_first_byte() -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.body(DATA), reply.close(b"H"))
        pool = wire.pool(agent.url)
        await wire.call(pool)
        exchange = await wire.call(pool, repeatable=True)
        assert exchange.failure is not None
        assert exchange.failure.kind is LOST
        assert len(agent.requests) == 2


async def test_a_connection_that_speaks_while_idle_is_dropped() -> None:
    async with FaultAgent() as agent, wired() as wire:
        pool = wire.pool(agent.url)
        await wire.call(pool)
        descriptor = agent.connections[0].transport.get_extra_info("socket").fileno()
        os.write(descriptor, reply.wire(200, [], b"poison"))  # past the loop, which writes when it likes
        wire.heard()
        exchange = await wire.call(pool)
        assert exchange.failure is None
        assert b"poison" not in exchange.body
        assert [request.connection for request in agent.requests] == [1, 2]


async def test_idle_connections_are_dropped_on_eof() -> None:
    async with FaultAgent() as agent, wired() as wire:
        await wire.call(agent.url)
        assert wire.left == (1, 1, 0)
        agent.connections[0].close()
        await agent.all_closed()
        await asyncio.sleep(0.02)
        assert wire.left == (0, 0, 0)


async def test_idle_connections_are_dropped_by_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract 2.3 (4 s; shortened here)."""
    monkeypatch.setattr("gateway.upstream.pool.IDLE_SECONDS", 0.3)
    monkeypatch.setattr("gateway.upstream.pool._SWEEP_SECONDS", 0.05)
    async with FaultAgent() as agent, wired() as wire:
        loop = asyncio.get_running_loop()
        await wire.call(agent.url)
        start = loop.time()
        assert 0.2 <= await agent.closed(1) - start <= 0.6
        await settled()
        assert wire.left == (0, 0, 0)


async def test_an_old_connection_is_not_used_even_before_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.upstream.pool.IDLE_SECONDS", 0.05)
    async with FaultAgent() as agent, wired() as wire:
        pool = wire.pool(agent.url)
        await wire.call(pool)
        await asyncio.sleep(0.06)
        await wire.call(pool)
        assert [request.connection for request in agent.requests] == [1, 2]


async def test_an_answer_before_the_whole_request_was_written() -> None:
    """It is accepted, and the connection closed: an agent that refuses a large body early (contract 2.3)."""
    early = reply.wire(413, [], b"too large")

    async def answer(connection, request) -> None:  # type: ignore[no-untyped-def]
        await connection.read(1)
        connection.transport.pause_reading()
        await connection.send(early)
        await connection.peer_gone.wait()

    async with FaultAgent() as agent, wired() as wire:
        agent.next(Behaviour("early", answer, "connect"))
        exchange = await wire.call(agent.url, b"x" * 20_000_000)
        assert (exchange.failure, exchange.status, exchange.body) == (None, 413, b"too large")
        await settled()
        assert wire.left == (0, 0, 0)


async def test_a_closed_pool_lets_running_exchanges_end() -> None:
    async with FaultAgent() as agent, wired() as wire:
        go = asyncio.Event()
        agent.next(reply.body(DATA), reply.body(DATA), reply.after(go, reply.body(DATA)))
        pool = wire.pool(agent.url)
        await asyncio.gather(wire.call(pool), wire.call(pool))
        running = wire.start(pool)
        await agent.received(3)
        pool.close()
        await settled()
        assert wire.left == (1, 0, 0)
        go.set()
        assert (await running.end()).failure is None
        await agent.all_closed()
        assert wire.left == (0, 0, 0)


async def test_closing_everything_fails_what_runs() -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.always(reply.hang())
        pool = wire.pool(agent.url)
        sent = [wire.start(pool) for _ in range(3)]
        await agent.received(3)
        sent.append(wire.start(pool))  # still connecting
        await wire.upstream.aclose()
        failures = [(await one.end()).failure for one in sent]
        assert [failure.kind for failure in failures if failure] == [FailureKind.CANCELLED] * 4
        assert [failure.connecting for failure in failures if failure] == [False] * 3 + [True]
        assert wire.left == (0, 0, 0)


# Bodies that are consumed as they come


class Consumer:
    """Takes a body piece by piece; `want` can be awaited."""

    def __init__(self, pause_at: int | None = None) -> None:
        self.pieces: list[bytes] = []
        self.size = 0
        self.exchange: Exchange | None = None
        self._pause_at = pause_at
        self._grown = asyncio.Event()

    def on_head(self, exchange: Exchange) -> None:
        self.exchange = exchange
        exchange.consume = self.consume

    def consume(self, data: bytes) -> None:
        self.pieces.append(data)
        self.size += len(data)
        if self._pause_at is not None and self.size >= self._pause_at:
            assert self.exchange is not None
            self.exchange.pause()
        self._grown.set()

    @property
    def all(self) -> bytes:
        return b"".join(self.pieces)

    async def want(self, data: bytes) -> None:
        async with asyncio.timeout(5):
            while data not in self.all:
                self._grown.clear()
                await self._grown.wait()


@pytest.mark.parametrize("make", [reply.body, lambda data: reply.chunked(data, size=5), reply.until_close])
async def test_consumed_bodies(make: Callable[[bytes], Behaviour]) -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.next(make(DATA * 10))
        consumer = Consumer()
        exchange = await wire.call(agent.url, on_head=consumer.on_head, cap=5)
        assert (exchange.failure, exchange.body, consumer.all) == (None, b"", DATA * 10)
        assert exchange.status == 200


async def test_pieces_come_at_once() -> None:
    async with FaultAgent() as agent, wired() as wire:
        consumer, steps = Consumer(), [asyncio.Event(), asyncio.Event()]

        async def answer(connection, request) -> None:  # type: ignore[no-untyped-def]
            await connection.send(reply.head(200, [("Transfer-Encoding", "chunked")]))
            for number, step in enumerate(steps):
                await connection.send(reply.chunk(b"event %d" % number))
                await step.wait()
            await connection.send(reply.LAST_CHUNK)

        agent.next(Behaviour("paced", answer))
        sent = wire.start(wire.pool(agent.url), on_head=consumer.on_head)
        for number, step in enumerate(steps):
            await consumer.want(b"event %d" % number)
            step.set()
        assert (await sent.end()).failure is None
        assert wire.left == (1, 1, 0)


async def test_pitfall_79_compressed_streams_are_decoded_in_time() -> None:
    """A sync flush per event: each event is there before the next one is made."""
    async with FaultAgent() as agent, wired() as wire:
        consumer, steps = Consumer(), [asyncio.Event() for _ in range(3)]

        async def answer(connection, request) -> None:  # type: ignore[no-untyped-def]
            await connection.send(reply.head(200, [("Content-Encoding", "gzip")]))
            packer = zlib.compressobj(wbits=31)
            for number, step in enumerate(steps):
                event = b"data: %d\n\n" % number
                await connection.send(packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH))
                await step.wait()
            await connection.send(packer.flush())
            connection.close()

        agent.next(Behaviour("paced", answer))
        sent = wire.start(wire.pool(agent.url), on_head=consumer.on_head)
        for number, step in enumerate(steps):
            await consumer.want(b"data: %d\n\n" % number)
            step.set()
        assert (await sent.end()).failure is None


async def test_a_broken_stream_fails_after_its_pieces() -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.chunked(DATA, end=False))
        consumer = Consumer()
        exchange = await wire.call(agent.url, on_head=consumer.on_head)
        assert consumer.all == DATA
        assert exchange.failure is not None
        assert exchange.failure.kind is LOST


async def test_back_pressure_stops_the_agent() -> None:
    """Contract 3.5: what is paused costs bounded memory, and goes on when it is wanted again."""
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.body(b"x" * 30_000_000))
        consumer = Consumer(pause_at=1)
        sent = wire.start(wire.pool(agent.url), on_head=consumer.on_head)
        await consumer.want(b"x")
        await asyncio.sleep(0.05)
        assert consumer.size <= 600_000
        assert not sent.ended.done()
        consumer._pause_at = None
        sent.exchange.resume()
        assert (await sent.end()).failure is None
        assert consumer.size == 30_000_000
        assert wire.left == (1, 1, 0)


async def test_back_pressure_stops_a_bomb() -> None:
    """A paused reader holds the coded bytes, not what they would become."""
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.coded(reply.bomb(50 << 20)))
        consumer = Consumer(pause_at=1)
        sent = wire.start(wire.pool(agent.url), on_head=consumer.on_head)
        await consumer.want(b"\0")
        await asyncio.sleep(0.05)
        assert consumer.size <= 65_536
        assert not sent.ended.done()
        steps = 0
        while not sent.ended.done():
            sent.exchange.resume()
            steps += 1
            await asyncio.sleep(0)
        assert (await sent.end()).failure is None
        assert consumer.size == 50 << 20
        assert steps > 100
        assert wire.left == (1, 1, 0)


async def test_what_is_held_while_paused_outlives_the_connection() -> None:
    """The answer was whole when the agent closed: it is handed over all the same."""
    data = bytes(1_000_000)
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.close_after(reply.coded(reply.gzip(data))))
        consumer = Consumer(pause_at=1)
        sent = wire.start(wire.pool(agent.url), on_head=consumer.on_head)
        await consumer.want(b"\0")
        consumer._pause_at = None
        await until(lambda: agent.connections[0].lost)
        await asyncio.sleep(0.02)
        assert not sent.ended.done()
        sent.exchange.resume()
        assert (await sent.end()).failure is None
        assert consumer.size == len(data)
        await settled()
        assert wire.left == (0, 0, 0)


async def test_what_follows_a_whole_answer_while_paused_is_dropped() -> None:
    data = bytes(1_000_000)
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.coded(reply.gzip(data)))
        consumer = Consumer(pause_at=1)
        sent = wire.start(wire.pool(agent.url), on_head=consumer.on_head)
        await consumer.want(b"\0")
        await agent.connections[0].send(reply.wire(200, [], b"poison"))
        consumer._pause_at = None
        sent.exchange.resume()
        assert (await sent.end()).failure is None
        assert consumer.all == data
        await settled()
        assert (await wire.call(agent.url)).failure is None
        assert b"poison" not in consumer.all


async def test_small_writes_are_not_held_back() -> None:
    """TCP_NODELAY, which both loops set by themselves."""
    async with FaultAgent() as agent, wired() as wire:
        await wire.call(agent.url)
        (connection,) = wire.upstream.connections
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_an_answer_that_ends_while_paused_leaves_the_connection_usable() -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.body(DATA))
        consumer = Consumer(pause_at=1)
        pool = wire.pool(agent.url)
        assert (await wire.call(pool, on_head=consumer.on_head)).failure is None
        assert (await wire.call(pool)).failure is None
        assert len(agent.connections) == 1


# Leaving (contract 2.3, pitfall 57)


async def test_cancelled_while_waiting() -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.always(reply.hang())
        loop = asyncio.get_running_loop()
        sent = wire.start(wire.pool(agent.url))
        await agent.received(1)
        left = loop.time()
        sent.exchange.cancel()
        sent.exchange.cancel()
        assert await agent.closed(1) - left < 0.5
        await settled()
        assert wire.left == (0, 0, 0)
        assert not sent.ended.done()


async def test_cancelled_within_the_body() -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.always(reply.endless())
        consumer = Consumer()
        sent = wire.start(wire.pool(agent.url), on_head=consumer.on_head)
        await consumer.want(b"[0]")
        sent.exchange.cancel()
        seen = len(consumer.pieces)
        await agent.closed(1)
        assert len(consumer.pieces) == seen
        assert not sent.ended.done()


@pytest.mark.parametrize("when", ["on_head", "consume"])
async def test_cancelled_from_a_callback(when: str) -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.body(DATA))

        def on_head(exchange: Exchange) -> None:
            if when == "on_head":
                exchange.cancel()
            else:
                exchange.consume = lambda _: exchange.cancel()

        sent = wire.start(wire.pool(agent.url), on_head=on_head)
        await agent.closed(1)
        assert not sent.ended.done()


async def test_cancelled_before_it_started_and_after_it_ended() -> None:
    async with FaultAgent() as agent, wired() as wire:
        pool = wire.pool(agent.url)
        unsent = wire.exchange(pool)
        unsent.exchange.cancel()
        pool.start(unsent.exchange)
        exchange = await wire.call(pool)
        exchange.cancel()
        assert len(agent.requests) == 1
        assert wire.left == (1, 1, 0)


async def test_five_hundred_cancelled_calls_leave_nothing() -> None:
    """Contract 2.3: 500 cancelled calls leave no connection, timer or task behind."""
    async with FaultAgent() as agent, wired() as wire:
        agent.always(reply.hang())
        pool = wire.pool(agent.url)
        for number in range(10):
            sent = [wire.start(pool) for _ in range(50)]
            for _ in range(number):  # in various stages
                await asyncio.sleep(0.001)
            for one in sent:
                one.exchange.cancel()
        await agent.all_closed()
        await settled()
        assert wire.left == (0, 0, 0)
        assert not wire.upstream.deadlines._running
        assert not wire.upstream._dials


async def test_a_finished_exchange_is_free_at_once() -> None:
    """No reference cycle keeps bodies alive until the collector runs."""
    import gc
    import weakref

    class Holder:
        def __init__(self) -> None:
            self.ended = asyncio.get_running_loop().create_future()
            self.exchange: Exchange | None = None

        def done(self, exchange: Exchange) -> None:
            self.ended.set_result(None)

    async with FaultAgent() as agent, wired() as wire:
        pool = wire.pool(agent.url)
        holder = Holder()
        deadline = asyncio.get_running_loop().time() + 5
        holder.exchange = Exchange(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(BODY),
            BODY,
            deadline=deadline,
            cap=CAP,
            repeatable=False,
            done=holder.done,
        )
        pool.start(holder.exchange)
        await holder.ended
        await settled()
        gc.disable()
        try:
            gone = weakref.ref(holder)
            del holder
            assert gone() is None
        finally:
            gc.enable()
