"""What the network may do to a probe (health contract 2, normalisation; pitfalls 34, 38, 130, 133)."""

from __future__ import annotations

import asyncio
import json
import socket
import time
import tracemalloc
from typing import Any

import pytest

from healthcheck.model import Finding, HttpOptions, Status, Target
from tests.fakes import reply
from tests.fakes.agent import Behaviour, FaultAgent
from tests.fakes.certs import Authority, Kind
from tests.fakes.health_peer import CARD_PATH, A2APeer, check
from tests.fakes.ports import refusing_port, stuck_port

OK = reply.body(b"fine")


def target(endpoint: str, **more: Any) -> Target:
    return Target(type="http", endpoint=endpoint, **{"timeout_ms": 400, **more})


async def probe(endpoint: str, *, ca_file: str | None = None, **more: Any) -> Finding:
    """The reachability finding."""
    result = await check(target(endpoint, **more), ca_file=ca_file)
    return next(finding for name, finding in result.checks.items() if name == "reachability")


async def against(behaviour: Behaviour, **more: Any) -> Finding:
    async with FaultAgent() as agent:
        agent.always(behaviour)
        if behaviour.when == "connect":
            agent.next(behaviour)
        return await probe(agent.url, **more)


def verdict(finding: Finding) -> tuple[str, str | None]:
    return finding.status.value, finding.code


async def test_refused() -> None:
    """Health contract 2: UNREACHABLE, and the step that failed is named."""
    with refusing_port() as port:
        finding = await probe(f"http://127.0.0.1:{port}/")
    assert verdict(finding) == ("UNREACHABLE", "connect_refused")
    assert finding.measured is not None
    assert finding.measured.steps == {"tcp": Status.UNREACHABLE}


async def test_refused_on_every_address_of_a_name() -> None:
    """Pitfall 38: a name with two addresses is refused, not "several errors"."""
    with refusing_port() as port:
        finding = await probe(f"http://localhost:{port}/")
    assert verdict(finding) == ("UNREACHABLE", "connect_refused")
    assert finding.measured is not None
    assert finding.measured.steps["dns"] is Status.HEALTHY


async def test_unknown_name() -> None:
    """Health contract 2: DNS → UNREACHABLE."""
    finding = await probe("http://no-such-host.invalid/")
    assert verdict(finding) == ("UNREACHABLE", "dns_failed")
    assert finding.measured is not None
    assert finding.measured.steps == {"dns": Status.UNREACHABLE}


async def test_a_resolver_that_hangs_does_not_outlast_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Required: a total deadline around every attempt; the process does not wait for the resolver's thread."""
    import threading

    release = threading.Event()
    real = socket.getaddrinfo

    def slow(host: str, *args: Any, **more: Any) -> Any:
        if host == "slow.test":
            release.wait(10)
            raise socket.gaierror(-2, "no")
        return real(host, *args, **more)

    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda *args, **more: slow(*args, **more) if not more.get("flags") else real(*args, **more),
    )
    began = time.monotonic()
    finding = await probe("http://slow.test/")
    assert verdict(finding) == ("UNREACHABLE", "deadline")
    assert finding.measured is not None
    assert finding.measured.steps == {"dns": Status.UNREACHABLE}
    assert time.monotonic() - began < 2
    release.set()


async def test_black_hole() -> None:
    """Required: a connect that neither succeeds nor fails is UNREACHABLE at the deadline."""
    with stuck_port() as port:
        began = time.monotonic()
        finding = await probe(f"http://127.0.0.1:{port}/")
    assert verdict(finding) == ("UNREACHABLE", "deadline")
    assert time.monotonic() - began < 2
    assert finding.measured is not None
    assert finding.measured.steps == {"tcp": Status.UNREACHABLE}


@pytest.mark.parametrize(
    ("behaviour", "wanted"),
    [
        (reply.hang(), ("UNREACHABLE", "deadline")),
        (reply.hang(b"HTTP/1.1 2"), ("UNKNOWN", "deadline_partial")),
        (reply.hang(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), ("UNKNOWN", "deadline_partial")),
        (reply.deaf(), ("UNREACHABLE", "deadline")),
        (reply.close(), ("UNREACHABLE", "connection_lost")),
        (reply.reset(), ("UNREACHABLE", "connection_lost")),
        (reply.close_on_connect(), ("UNREACHABLE", "connection_lost")),
        (reply.reset_on_connect(), ("UNREACHABLE", "connection_lost")),
        (reply.reset(b"HTTP/1.1 200 OK\r\nCont"), ("UNKNOWN", "interrupted")),
        (reply.short(b"cut"), ("UNKNOWN", "http_limit")),
        (reply.chunked(b"cut off here", end=False), ("UNKNOWN", "http_limit")),
        (reply.banner(), ("UNKNOWN", "deadline_partial")),
        (reply.raw(b"\x00\x01\x02 not http at all\r\n\r\n"), ("UNKNOWN", "not_http")),
        (reply.two_lengths(b"{}"), ("UNKNOWN", "not_http")),
        (reply.huge_header(), ("UNKNOWN", "not_http")),
        (reply.switching(), ("UNKNOWN", "not_http")),
        (reply.interim(OK), ("HEALTHY", None)),
        (reply.http10(b"fine", length=False), ("HEALTHY", None)),
        (reply.redirect("http://169.254.169.254/"), ("UNHEALTHY", "http_status")),
    ],
    ids=lambda value: value.name if isinstance(value, Behaviour) else "",
)
async def test_what_a_peer_may_do(behaviour: Behaviour, wanted: tuple[str, str | None]) -> None:
    """Health contract 2: no byte → UNREACHABLE; a break or the deadline after a byte → UNKNOWN."""
    assert verdict(await against(behaviour)) == wanted


@pytest.mark.parametrize("first", [0, len(reply.wire(body=b"x" * 50)) - 50], ids=["head", "body"])
async def test_dribbling_ends_at_the_deadline(first: int) -> None:
    """Pitfall 34: the deadline is total; it does not start again at every byte."""
    began = time.monotonic()
    finding = await against(reply.dribble(reply.wire(body=b"x" * 50), every=0.05, first=first))
    assert verdict(finding) == ("UNKNOWN", "deadline_partial")
    assert 0.3 < time.monotonic() - began < 1.5


async def test_an_attempt_that_ends_closes_its_connection() -> None:
    """No socket is left behind, whatever ended the attempt."""
    async with FaultAgent() as agent:
        for behaviour in (reply.hang(), reply.endless(), OK):
            agent.always(behaviour)
            await probe(agent.url, http=HttpOptions(max_body_bytes=1000))
            await agent.all_closed()


async def test_the_cap_is_kept_while_reading() -> None:
    """Pitfall 20: an endless body and a gzip bomb end at the cap; exact at the edge."""
    options = HttpOptions(body_contains="needle", max_body_bytes=1000)
    for behaviour in (
        reply.endless(),
        reply.endless("close"),
        reply.endless("length"),
        reply.coded(reply.bomb(10 << 20)),
        reply.body(b"x" * 995 + b"needle"),
    ):
        assert verdict(await against(behaviour, http=options)) == ("UNKNOWN", "http_limit"), behaviour.name
    assert verdict(await against(reply.body(b"x" * 994 + b"needle"), http=options)) == ("HEALTHY", None)
    packed = reply.coded(reply.gzip(b"the needle"))
    assert verdict(await against(packed, http=options)) == ("HEALTHY", None)
    for coding, data, wanted in (
        ("gzip", b"no gzip", ("http_body", None)),
        ("br", b"needle", ("http_body", None)),
        ("gzip", reply.gzip(b"x" * 200 + b"needle")[:15], ("http_limit", "cut_off")),
        ("gzip", reply.bomb(10 << 20), ("http_limit", "too_large")),
        ("gzip", b"", ("http_body", None)),
    ):
        finding = await against(reply.coded(data, coding), http=options)
        assert (finding.code, finding.reason) == wanted, coding


async def test_a_compressed_bomb_is_never_held_whole() -> None:
    """Pitfall 20: 64 MiB of zeros in 64 KiB take no more memory than the limit."""
    bomb = reply.coded(reply.bomb(64 << 20))
    tracemalloc.start()
    try:
        finding = await against(bomb, http=HttpOptions(body_contains="x"), timeout_ms=5000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert verdict(finding) == ("UNKNOWN", "http_limit")
    assert peak < 16 << 20


# -- TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


async def over_tls(authority: Authority, kind: Kind, *, trusted: bool = True, name: str = "localhost") -> Finding:
    async with FaultAgent(tls=authority.server(kind), name=name) as agent:
        agent.always(OK)
        return await probe(agent.url, ca_file=str(authority.ca_file) if trusted else None, timeout_ms=5000)


async def test_tls_with_a_good_certificate(authority: Authority) -> None:
    """Health contract 6: steps, timings and the end of the certificate stand beside the finding."""
    finding = await over_tls(authority, "valid")
    assert verdict(finding) == ("HEALTHY", None)
    assert finding.measured is not None
    assert list(finding.measured.steps) == ["dns", "tcp", "tls", "http"]
    assert set(finding.measured.steps.values()) == {Status.HEALTHY}
    assert list(finding.measured.timings_ms) == ["dns", "connect", "tls", "first_byte", "total"]
    expires = finding.measured.certificate_expires_at
    assert expires is not None
    left = time.mktime(time.strptime(expires, "%Y-%m-%dT%H:%M:%SZ")) - time.time()
    assert 0 < left < 3 * 86400


@pytest.mark.parametrize(
    ("kind", "trusted", "reason"),
    [
        ("expired", True, "certificate_expired"),
        ("self-signed", True, "certificate_untrusted"),
        ("valid", False, "certificate_untrusted"),
        ("wrong-name", True, "certificate_name"),
    ],
)
async def test_bad_certificates(authority: Authority, kind: Kind, trusted: bool, reason: str) -> None:
    """Health contract 2: a TLS failure is UNREACHABLE; the reason says which."""
    finding = await over_tls(authority, kind, trusted=trusted)
    assert (*verdict(finding), finding.reason) == ("UNREACHABLE", "tls_certificate", reason)
    assert finding.measured is not None
    assert finding.measured.steps["tls"] is Status.UNREACHABLE
    assert "http" not in finding.measured.steps


async def test_an_address_in_the_certificate(authority: Authority) -> None:
    """A certificate made out to the IP address serves an endpoint given by it."""
    assert verdict(await over_tls(authority, "valid", name="127.0.0.1")) == ("HEALTHY", None)


async def test_tls_to_a_plain_port_and_a_hang_in_the_handshake() -> None:
    """Pitfall 38: TLS to a peer that speaks none, or never answers."""
    async with FaultAgent() as agent:
        agent.next(reply.banner(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
        finding = await probe(agent.url.replace("http:", "https:"))
        assert verdict(finding) == ("UNREACHABLE", "tls_failed")
        agent.next(reply.deaf())
        finding = await probe(agent.url.replace("http:", "https:"))
        assert verdict(finding) == ("UNREACHABLE", "deadline")
        agent.next(reply.reset_on_connect())
        finding = await probe(agent.url.replace("http:", "https:"))
        assert verdict(finding) == ("UNREACHABLE", "tls_failed")


# -- what is not sent


async def test_no_proxy_no_cookies_no_redirects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Required: no environment proxies, no cookies, no redirects."""
    async with FaultAgent() as agent, FaultAgent() as other:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, other.url)
        agent.always(reply.redirect(other.url))
        agent.next(reply.body(b"", headers=[("Set-Cookie", "session=1; Path=/")]))
        for _ in range(2):
            await probe(agent.url)
        assert len(agent.requests) == 2
        assert [request.header("cookie") for request in agent.requests] == [None, None]
        assert len(other.requests) == len(other.connections) == 0
        first = agent.requests[0]
        assert first.values("host") == [agent.authority]
        assert first.header("accept-encoding") == "identity"
        assert first.header("authorization") is None


async def test_the_exchanges_of_a_run_share_nothing() -> None:
    """Required: no cookies; and each attempt stands for itself, on a connection of its own."""
    async with A2APeer() as peer:
        card = json.dumps(peer.card).encode()
        peer.paths[CARD_PATH] = reply.body(card, headers=[("Set-Cookie", "session=1; Path=/")])
        assert (await check(Target(type="a2a", endpoint=peer.base))).status is Status.HEALTHY
        assert [request.header("cookie") for request in peer.requests] == [None, None]
        assert len(peer.connections) == 2


async def test_the_target_is_sent_as_it_was_written() -> None:
    """Pitfall 33: path and query as given, `/` only for an empty path."""
    async with FaultAgent() as agent:
        agent.always(OK)
        paths = ["/a2a/v1", "/a2a/v1/", "/a2a?k=v%2F1", "/a%2Fb", "/x;y=1,2:3@", "//a/../b/./c?", "/a|b?[1]"]
        for path in [*paths, ""]:
            await probe(agent.at(path))
        assert [request.target for request in agent.requests] == [*paths, "/"]


async def test_ipv6() -> None:
    """Pitfall 48: a literal in brackets, in the Host header too."""
    try:
        async with FaultAgent(host="::1") as agent:
            agent.always(OK)
            assert verdict(await probe(agent.url)) == ("HEALTHY", None)
            assert agent.requests[0].header("host") == f"[::1]:{agent.port}"
    except OSError:
        pytest.skip("no IPv6 on this machine")


async def test_a_retry_after_a_refusal_and_none_after_a_byte() -> None:
    """Health contract 2: attempts are repeated only while no response byte came."""
    async with FaultAgent() as agent:
        agent.next(reply.close(), reply.reset())
        agent.always(OK)
        assert verdict(await probe(agent.url, retries=2, retry_delay_ms=0)) == ("HEALTHY", None)
        assert len(agent.requests) == 3
        agent.next(reply.close(b"HTTP/1.1 200 OK\r\n"))
        assert verdict(await probe(agent.url, retries=2, retry_delay_ms=0)) == ("UNKNOWN", "not_http")
        assert len(agent.requests) == 4


def test_the_end_of_a_run_does_not_wait_for_connections() -> None:
    """A run against a peer that hangs ends with its deadline, the event loop's shutdown included."""

    async def main() -> None:
        with stuck_port() as port:
            await probe(f"http://127.0.0.1:{port}/")

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < 2
