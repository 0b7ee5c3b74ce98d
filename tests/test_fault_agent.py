"""The scriptable agent does on the wire what its behaviours promise: every other test leans on it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.fakes import reply
from tests.fakes.agent import Behaviour, FaultAgent, raw_id
from tests.fakes.certs import Authority, Kind
from tests.fakes.ports import refusing_port, stuck_port

CALL = b'{"jsonrpc":"2.0","id":007,"method":"m"}'.replace(b"007", b"18446744073709551616")
REQUEST = b"POST /x?y=1 HTTP/1.1\r\nHost: h\r\nx-CASE: 1\r\nX-Case: 2\r\nContent-Length: %d\r\n\r\n%s" % (
    len(CALL),
    CALL,
)


@contextlib.asynccontextmanager
async def opened(
    agent: FaultAgent, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(agent.name, agent.port, ssl=tls, family=agent.family)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def asked(
    agent: FaultAgent, behaviour: Behaviour, request: bytes = REQUEST, *, until: bytes = b""
) -> tuple[bytes, str]:
    """Sends one request and reads what comes: (bytes, how it ended)."""
    agent.next(behaviour)
    got = b""
    async with opened(agent) as (reader, writer):
        try:
            writer.write(request)
            await writer.drain()
            while data := await reader.read(65536):
                got += data
                if behaviour.name not in CLOSING and until in got and got.endswith(ENDS):
                    return got, "open"
        except ConnectionResetError:
            return got, "rst"
    return got, "fin"


CLOSING = {
    "until_close", "http10", "short", "close", "close_after", "reset", "close_on_connect", "reset_on_connect",
    "reset_while_receiving",
}  # fmt: skip


ENDS = (b"}", b"]", b"\r\n\r\n", b"hi", b"HTTP/1.1 ", b"*")
"""How the answers end whose connection stays open."""
TYPE = b"Content-Type: application/json\r\n"

BARE = b"\r\n" + TYPE + b"\r\n{}"  # a body without any framing

ANSWERS: list[tuple[Callable[[], Behaviour], bytes, str]] = [
    (lambda: reply.body(b"<}", status=502, headers=[]), b"HTTP/1.1 502 Bad Gateway\r\nContent-L", "open"),
    (lambda: reply.json([1]), TYPE + b"Content-Length: 3\r\n\r\n[1]", "open"),
    (lambda: reply.result(1), b'{"jsonrpc":"2.0","id":18446744073709551616,"result":1}', "open"),
    (lambda: reply.error(-1, "no", data=[1], status=404), b'{"code":-1,"message":"no","data":[1]}}', "open"),
    (lambda: reply.echo(), b'"headers":[["Host","h"],["x-CASE","1"],["X-Case","2"]', "open"),
    (lambda: reply.with_id(b'"1"'), b'{"jsonrpc":"2.0","id":"1","result":{}}', "open"),
    (lambda: reply.with_id(None, "error"), b'{"jsonrpc":"2.0","error":{"code"', "open"),
    (lambda: reply.redirect("http://e/", status=307), b"307 Temporary Redirect\r\nLocation: http", "open"),
    (lambda: reply.no_content(), b"HTTP/1.1 204 No Content\r\n\r\n", "open"),
    (lambda: reply.raw(b"garbage*"), b"garbage*", "open"),
    (lambda: reply.chunked(b"x" * 9 + b"*", size=9), b"\r\n9\r\nxxxxxxxxx\r\n1\r\n*\r\n0\r\n\r\n", "open"),
    (lambda: reply.chunked(b"*", trailers=[("X-T", "1")]), b"0\r\nX-T: 1\r\n\r\n", "open"),
    (lambda: reply.chunked(b"ab", end=False), b"\r\n\r\n2\r\nab\r\n", "fin"),
    (lambda: reply.until_close(b"{}"), b"HTTP/1.1 200 OK" + BARE, "fin"),
    (lambda: reply.http10(b"{}"), b"HTTP/1.0 200 OK\r\n" + TYPE + b"Content-Length: 2\r\n\r\n{}", "fin"),
    (lambda: reply.http10(b"{}", length=False), b"HTTP/1.0 200 OK" + BARE, "fin"),
    (lambda: reply.short(b"{}", missing=3), b"Content-Length: 5\r\n\r\n{}", "fin"),
    (lambda: reply.excess(b"{}"), b"\r\n\r\n{}HTTP/1.1 ", "open"),
    (lambda: reply.two_lengths(b"{}"), b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "open"),
    (lambda: reply.length_and_chunked(b"{}"), b"Content-Length: 2\r\nTransfer-Encoding: chunked", "open"),
    (lambda: reply.interim(reply.json({}), headers=()), b" 103 Early Hints\r\n\r\nHTTP/1.1 200", "open"),
    (lambda: reply.switching(), b"HTTP/1.1 101 Switching Protocols\r\n", "open"),
    (lambda: reply.huge_header(2048), b"X-Huge: " + b"h" * 2048 + b"\r\n", "open"),
    (lambda: reply.many_headers(300), b"X-H299: v\r\n", "open"),
    (lambda: reply.coded(b"plain}", "br"), b"Content-Encoding: br\r\nContent-Length: 6", "open"),
    (lambda: reply.dribble(b"abc*", every=0.001, first=2), b"abc*", "open"),
    (lambda: reply.late(0.001, reply.json({})), b"\r\n\r\n{}", "open"),
    (lambda: reply.close(), b"", "fin"),
    (lambda: reply.close(b"HTTP/1.1 200"), b"HTTP/1.1 200", "fin"),
    (lambda: reply.close_after(reply.json({}), seconds=0.001), b"\r\n\r\n{}", "fin"),
    (lambda: reply.reset(), b"", "rst"),
    (lambda: reply.reset(b"HTTP/1.1 200 OK\r\nConte"), b"HTTP/1.1 200 OK\r\nConte", "rst"),
    (lambda: reply.close_on_connect(), b"", "fin or rst"),  # the request may meet the closed socket
    (lambda: reply.reset_on_connect(), b"", "rst"),
    (lambda: reply.reset_while_receiving(4), b"", "rst"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "expected", "end"), ANSWERS)
async def test_answers(make: Callable[[], Behaviour], expected: bytes, end: str) -> None:
    async with FaultAgent() as agent:
        got, how = await asked(agent, make(), until=expected)
    assert expected in got if expected else got == b""
    assert how in end


def test_every_behaviour_is_tried() -> None:
    tried = {make().name for make, _, _ in ANSWERS} | {"hang", "after", "endless", "banner", "deaf"}
    assert tried == set(reply.TABLE)


async def test_records_a_request_exactly() -> None:
    async with FaultAgent() as agent:
        await asked(agent, reply.json({}))
        request = await agent.received(1)
    assert request.raw == REQUEST
    assert (request.method, request.target, request.version) == ("POST", "/x?y=1", "HTTP/1.1")
    assert request.headers[1:3] == (("x-CASE", "1"), ("X-Case", "2"))
    assert request.values("x-case") == ["1", "2"]
    assert request.body == CALL
    assert (request.number, request.connection) == (1, 1)


async def test_reads_chunked_requests() -> None:
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    framed = b"3;a=b\r\n[1,\r\n2\r\n2]\r\n0\r\nX-T: 1\r\n\r\n"
    async with FaultAgent() as agent:
        await asked(agent, reply.json({}), head + framed)
    assert agent.requests[0].body == b"[1,2]"
    assert agent.requests[0].raw == head + framed


async def test_requests_on_one_connection_and_the_default_answer() -> None:
    async with FaultAgent() as agent:
        agent.next(reply.json({"first": 1}))
        async with opened(agent) as (reader, writer):
            writer.write(REQUEST + REQUEST)
            await reader.readuntil(b'{"first": 1}')
            await reader.readuntil(b'"connection":1}}')
            assert [request.connection for request in agent.requests] == [1, 1]
            assert agent.open_connections == 1
            writer.transport.abort()
            await agent.closed(1)
            assert agent.open_connections == 0


@pytest.mark.parametrize("behaviour", [reply.hang(), reply.after(asyncio.Event(), reply.json({}))])
async def test_silence_ends_when_the_peer_leaves(behaviour: Behaviour) -> None:
    async with FaultAgent() as agent:
        agent.next(behaviour)
        async with opened(agent) as (_, writer):
            writer.write(REQUEST)
            await agent.received(1)
            before = asyncio.get_running_loop().time()
            writer.transport.abort()
            assert await agent.closed(1) >= before
            await agent.all_closed()


async def test_after_answers_when_told() -> None:
    event = asyncio.Event()
    async with FaultAgent() as agent:
        agent.next(reply.after(event, reply.json({"go": 1})))
        async with opened(agent) as (reader, writer):
            writer.write(REQUEST)
            await agent.received(1)
            event.set()
            await reader.readuntil(b'{"go": 1}')


@pytest.mark.parametrize("framing", ["chunked", "close", "length"])
async def test_endless_stops_with_the_peer(framing: str) -> None:
    async with FaultAgent() as agent:
        agent.next(reply.endless(framing))  # type: ignore[arg-type]
        async with opened(agent) as (reader, writer):
            writer.write(REQUEST)
            assert len(await reader.readexactly(1 << 20)) == 1 << 20
            writer.transport.abort()
            await agent.closed(1)


async def test_banner_comes_before_any_request() -> None:
    async with FaultAgent() as agent:
        agent.always(reply.banner())
        async with opened(agent) as (reader, writer):
            assert await reader.readline() == b"SSH-2.0-OpenSSH_9.6\r\n"
            writer.transport.abort()
            await agent.closed(1)


async def test_deaf_stops_the_peers_writes() -> None:
    async with FaultAgent() as agent:
        agent.always(reply.deaf())
        async with opened(agent) as (_, writer):
            await agent.connected(1)
            writer.write(bytes(32 << 20))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(writer.drain(), 0.2)


async def test_waiting_in_vain_says_what_happened() -> None:
    async with FaultAgent() as agent:
        with pytest.raises(AssertionError, match=r"1 requests expected, 0 seen within 0\.01 s"):
            await agent.received(1, within=0.01)
        async with opened(agent) as (reader, writer):
            agent.next(reply.close())
            writer.write(REQUEST)
            await reader.read()
            with pytest.raises(AssertionError, match="closed by the agent"):
                await agent.closed(1)


async def test_a_broken_behaviour_fails_the_test() -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        async with FaultAgent() as agent:
            await asked(agent, reply.json(object()))


async def test_close_ends_what_runs() -> None:
    agent = await FaultAgent().__aenter__()
    agent.always(reply.hang())
    async with opened(agent) as (reader, writer):
        writer.write(REQUEST)
        await agent.received(1)
        await agent.close()
        assert await reader.read() == b""


async def test_ipv6() -> None:
    async with FaultAgent(host="::1", path="/a") as agent:
        assert agent.url == f"http://[::1]:{agent.port}/a"
        got, _ = await asked(agent, reply.json({}))
        assert got.endswith(b"{}")


VERDICTS: dict[Kind, str | None] = {
    "valid": None,
    "self-signed": "self-signed certificate",
    "expired": "certificate has expired",
    "wrong-name": "Hostname mismatch",
}


@pytest.mark.parametrize("kind", VERDICTS)
async def test_certificates(kind: Kind, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with FaultAgent(tls=authority.server(kind)) as agent:
        assert agent.url == f"https://localhost:{agent.port}/"
        if verdict := VERDICTS[kind]:
            with pytest.raises(ssl.SSLCertVerificationError, match=verdict):
                async with opened(agent, authority.client()):
                    pass
            return
        async with opened(agent, authority.client()) as (reader, writer):
            writer.write(REQUEST)
            await reader.readuntil(b"}}")
        await agent.closed(1)


async def test_client_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine, trust = authority.issue("client"), authority.client()
    trust.load_cert_chain(mine.certificate, mine.key)
    async with FaultAgent(tls=authority.server(client_required=True)) as agent:
        async with opened(agent, trust) as (reader, writer):
            writer.write(REQUEST)
            await reader.readuntil(b"}}")


async def test_ports_nobody_answers_on() -> None:
    with refusing_port() as port:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
    with stuck_port() as port:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), 0.2)


def test_codings() -> None:
    assert zlib.decompress(reply.gzip(b"x"), 31) == zlib.decompress(reply.deflate(b"x")) == b"x"
    assert zlib.decompress(reply.deflate(b"x", bare=True), -15) == b"x"
    packed = reply.bomb(8 << 20)
    assert len(packed) < 20_000
    assert zlib.decompress(packed, 31) == bytes(8 << 20)


def test_raw_ids() -> None:
    assert raw_id(b'{"id": 1.50 }') == b"1.50"
    assert raw_id(b'{"id":"\\u0031"}') == b'"\\u0031"'
    assert raw_id(b"[") == raw_id(b"{}") == raw_id(b"\xff") == b"null"
