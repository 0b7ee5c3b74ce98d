"""The connections of the gateway as an httpx transport; what contract 2.2, 2.3 and 6.3 demand holds here too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from gateway.upstream import AddressGuard
from gateway.upstream.transport import PoolTransport
from tests.fakes import reply
from tests.fakes.agent import Behaviour, FaultAgent
from tests.fakes.ports import refusing_port, stuck_port
from tests.fakes.wire import Wire, settled, wired

DATA = b'{"name":"agent"}'


@asynccontextmanager
async def client(timeout: Any = 5.0, **settings: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Wire]]:
    async with wired(**settings) as wire:
        async with httpx.AsyncClient(transport=PoolTransport(wire.upstream), timeout=timeout) as http:
            yield http, wire


async def test_a_get() -> None:
    async with FaultAgent() as agent, client() as (http, wire):
        agent.always(reply.body(DATA, headers=[("Content-Type", "application/json"), ("X-A", "1"), ("X-A", "2")]))
        url = agent.at("/.well-known/agent-card.json?q=%2F")
        response = await http.get(url, headers={"X-Key": "k"})
        assert (response.status_code, response.content, response.json()) == (200, DATA, {"name": "agent"})
        assert response.headers.get_list("x-a") == ["1", "2"]
        assert response.http_version == "HTTP/1.1"
        request = await agent.received(1)
        assert (request.method, request.target) == ("GET", "/.well-known/agent-card.json?q=%2F")
        assert request.header("host") == agent.authority
        assert request.header("accept-encoding") == "identity"
        assert request.header("content-length") is None
        assert request.header("x-key") == "k"
        await http.get(url)
        assert (len(agent.connections), wire.left) == (1, (1, 1, 0))


async def stream_of(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


@pytest.mark.parametrize("body", [b"{}", b"", b"x" * 100_000])
async def test_bodies_have_one_length(body: bytes) -> None:
    """Pitfall 24: whatever httpx would send, one Content-Length."""
    async with FaultAgent() as agent, client() as (http, _):
        await http.post(agent.url, content=body)
        await http.post(agent.url, content=stream_of(body[:1], body[1:]))
        await http.post(agent.url, content=body, headers={"Transfer-Encoding": "chunked"})
        for request in agent.requests:
            assert request.body == body
            assert request.header("content-length") == str(len(body))
            assert request.header("transfer-encoding") is None


@pytest.mark.parametrize("method", ["HEAD", "DELETE", "OPTIONS", "PUT", "PROPFIND"])
async def test_any_method(method: str) -> None:
    async with FaultAgent() as agent, client() as (http, _):
        answer = reply.head(200, [("Content-Length", "5"), ("X-Seen", method)])
        agent.always(reply.raw(answer if method == "HEAD" else answer + b"hello"))
        for _ in range(2):
            response = await http.request(method, agent.url)
            assert response.headers["x-seen"] == method
            assert response.content == (b"" if method == "HEAD" else b"hello")


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_codings_are_undone_once(coding: str) -> None:
    """Pitfall 22."""
    coded = reply.gzip(DATA) if coding == "gzip" else reply.deflate(DATA)
    async with FaultAgent() as agent, client() as (http, _):
        agent.next(reply.coded(coded, coding))
        response = await http.get(agent.url)
        assert response.content == DATA
        assert "content-encoding" not in response.headers


async def test_redirects_and_cookies_are_the_clients_matter() -> None:
    async with FaultAgent() as agent, client() as (http, _):
        agent.next(reply.redirect("http://169.254.169.254/"))
        response = await http.get(agent.url)
        assert (response.status_code, len(agent.requests)) == (302, 1)


async def test_streamed_with_back_pressure() -> None:
    async with FaultAgent() as agent, client() as (http, wire):
        agent.next(reply.body(b"x" * 20_000_000))
        async with http.stream("GET", agent.url) as response:
            pieces = response.aiter_raw()
            size = len(await anext(pieces))
            await asyncio.sleep(0.05)
            waiting = response.stream._stream._size  # type: ignore[union-attr]
            assert waiting < 1_000_000
            async for piece in pieces:
                size += len(piece)
        assert size == 20_000_000
        assert wire.left == (1, 1, 0)


async def test_leaving_early_closes_the_connection() -> None:
    async with FaultAgent() as agent, client() as (http, wire):
        agent.next(reply.endless())
        async with http.stream("GET", agent.url) as response:
            async for _ in response.aiter_raw():
                break
        await agent.closed(1)
        await settled()
        assert wire.left == (0, 0, 0)


async def test_a_cancelled_request_closes_the_connection() -> None:
    async with FaultAgent() as agent, client() as (http, wire):
        agent.next(reply.hang())
        task = asyncio.ensure_future(http.get(agent.url))
        await agent.received(1)
        task.cancel()
        await agent.closed(1)
        await settled()
        assert wire.left == (0, 0, 0)


@pytest.mark.parametrize(
    ("behaviour", "error", "text"),
    [
        (reply.close(), httpx.ReadError, "connection lost"),
        (reply.short(DATA), httpx.ReadError, "connection lost"),
        (reply.raw(b"SSH-2.0\r\n"), httpx.RemoteProtocolError, "protocol error"),
        (reply.switching(), httpx.RemoteProtocolError, "unexpected protocol upgrade"),
        (reply.coded(DATA, "br"), httpx.RemoteProtocolError, "undecodable content coding"),
        (reply.hang(), httpx.ReadTimeout, "timeout"),
        (reply.dribble(reply.wire(200, [], DATA), every=0.1, first=30), httpx.ReadTimeout, "timeout"),
    ],
    ids=lambda value: value.name if isinstance(value, Behaviour) else None,
)
async def test_failures(behaviour: Behaviour, error: type[Exception], text: str) -> None:
    """The read timeout is a total: dribbling does not stretch it (pitfall 34)."""
    async with FaultAgent() as agent, client(timeout=0.3) as (http, _):
        agent.always(behaviour)
        with pytest.raises(error, match=f"^{text}$") as caught:
            await http.get(agent.url)
        assert type(caught.value) is error


async def test_failures_to_connect() -> None:
    async with client(timeout=0.2) as (http, _):
        with refusing_port() as port, pytest.raises(httpx.ConnectError, match=r"^connection refused$"):
            await http.get(f"http://127.0.0.1:{port}/")
        with stuck_port() as port, pytest.raises(httpx.ConnectTimeout, match=r"^timeout$"):
            await http.get(f"http://127.0.0.1:{port}/")


async def test_the_guard_holds() -> None:
    """Contract 6.3."""
    async with client(guard=AddressGuard()) as (http, _):
        for host in ("127.0.0.1", "169.254.169.254", "2130706433"):
            with pytest.raises(httpx.ConnectError, match=r"^address not allowed$"):
                await http.get(f"http://{host}:1/")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:99999/", "http://a%31/", "http://[fe80::1%25eth0]/", "ftp://h/"]
)
async def test_urls_of_which_parsers_disagree(url: str) -> None:
    """Pitfall 154: one parser for the guard and the call; its refusal is an `httpx.TransportError`."""
    async with client() as (http, _):
        with pytest.raises((httpx.TransportError, httpx.InvalidURL)):
            await http.get(url)


@pytest.mark.parametrize(
    "headers", [[(b"X-A", b"1\r\nX-B: 2")], [(b"X-A: 1\r\nX", b"2")], [(b"X A", b"1")], [(b"X", b"a\0")]]
)
async def test_headers_cannot_break_the_framing(headers: list[tuple[bytes, bytes]]) -> None:
    async with FaultAgent() as agent, client() as (http, _):
        with pytest.raises(httpx.LocalProtocolError):
            await http.get(agent.url, headers=headers)
        assert not agent.requests


async def test_without_a_timeout() -> None:
    async with FaultAgent() as agent, client(timeout=None) as (http, _):
        agent.next(reply.late(0.1, reply.body(DATA)))
        assert (await http.get(agent.url)).content == DATA


async def test_the_number_of_pools_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.upstream.transport._MOST_POOLS", 2)
    async with FaultAgent() as a, FaultAgent() as b, FaultAgent() as c, client() as (http, wire):
        for agent in (a, b, c, a, b, c):
            await http.get(agent.url)
        await settled()
        assert wire.left == (2, 2, 0)
