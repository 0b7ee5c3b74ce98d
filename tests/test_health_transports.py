"""The engine over transports that are not its own: httpx's, and the gateway's pool (health contract 6 and 7)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx
import pytest

from gateway.upstream.transport import PoolTransport
from healthcheck.exchange import KnownFailure
from healthcheck.model import A2AFunctional, A2AOptions, Check, Status, Target
from tests.fakes import reply
from tests.fakes.health_peer import A2APeer, AgentPeer, check, codes, statuses
from tests.fakes.ports import refusing_port, stuck_port
from tests.fakes.wire import wired

Open = Callable[[], AbstractAsyncContextManager[httpx.AsyncBaseTransport]]


@asynccontextmanager
async def _pool() -> AsyncIterator[httpx.AsyncBaseTransport]:
    async with wired() as wire:
        yield PoolTransport(wire.upstream)


@asynccontextmanager
async def _httpx() -> AsyncIterator[httpx.AsyncBaseTransport]:
    async with httpx.AsyncHTTPTransport() as transport:
        yield transport


EACH = pytest.mark.parametrize("opened", [_pool, _httpx], ids=["pool", "httpx"])


def a2a(endpoint: str, **more: object) -> Target:
    return Target(type="a2a", endpoint=endpoint, **{"timeout_ms": 400, **more})  # type: ignore[arg-type]


@EACH
async def test_a_healthy_agent(opened: Open) -> None:
    """Health contract 6: `steps` and `timings_ms` hold what is known, and nothing invented."""
    options = A2AOptions(functional=A2AFunctional("hello"))
    every = tuple(one for one in Check if one is not Check.DEPENDENCY)
    async with A2APeer() as peer, opened() as transport:
        result = await check(a2a(peer.base, checks=every, a2a=options, timeout_ms=5000), transport=transport)
        assert result.status is Status.HEALTHY, codes(result)
        measured = result.checks[Check.REACHABILITY].measured
        assert measured is not None
        assert measured.steps == {"http": Status.HEALTHY}
        assert list(measured.timings_ms) == ["first_byte", "total"]
        assert measured.certificate_expires_at is None
        assert sum(peer.counts.values()) == 3
        assert {request.header("accept-encoding") for request in peer.requests} == {"identity"}
        assert {request.header("cookie") for request in peer.requests} == {None}


@EACH
async def test_the_target_is_sent_as_it_was_written(opened: Open) -> None:
    """Pitfall 33: probes ask for what traffic asks for; httpx alone would shorten the path."""
    async with AgentPeer() as peer, opened() as transport:
        await check(Target(type="http", endpoint=peer.at("/a/../b//./c?")), transport=transport)
        assert [request.target for request in peer.requests] == ["/a/../b//./c?"]


@EACH
async def test_what_goes_wrong(opened: Open) -> None:
    """Health contract 2: the same statuses, whatever the transport can tell."""
    with refusing_port() as refused, stuck_port() as stuck:
        async with A2APeer() as peer, opened() as transport:
            for endpoint in (
                f"http://127.0.0.1:{refused}/",
                f"http://127.0.0.1:{stuck}/",
                "http://no-such.invalid/",
            ):
                result = await check(a2a(endpoint), transport=transport)
                assert result.status is Status.UNREACHABLE, endpoint
                assert list(statuses(result)) == ["configuration", "reachability"]
            for behaviour, wanted in (
                (reply.hang(), Status.UNREACHABLE),
                (reply.reset(), Status.UNREACHABLE),
                (reply.hang(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"), Status.UNKNOWN),
                (reply.dribble(reply.wire(body=b"x" * 99), every=0.05, first=60), Status.UNKNOWN),
                (reply.short(b"{"), Status.UNKNOWN),
                (reply.endless(), Status.UNKNOWN),
            ):
                peer.paths["/.well-known/agent-card.json"] = behaviour
                result = await check(a2a(peer.base), transport=transport)
                assert result.status is wanted, behaviour.name
            await peer.all_closed()


async def test_a_transport_that_knows_better() -> None:
    """A foreign transport may name the code itself, as the exception or as its cause."""

    async def fail(request: httpx.Request) -> httpx.Response:
        try:
            raise KnownFailure("tls_certificate", "certificate_expired")
        except KnownFailure as known:
            raise httpx.ConnectError("anything") from known

    result = await check(a2a("http://x.test/"), transport=httpx.MockTransport(fail))
    assert codes(result) == {"reachability": "tls_certificate"}
    assert result.checks[Check.REACHABILITY].reason == "certificate_expired"
