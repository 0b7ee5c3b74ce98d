"""Getting a connection, or saying why not: contract 2.4 and 6.3, pitfalls 38, 44, 48, 58."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.upstream import Failure, FailureKind, Upstream
from gateway.upstream.addresses import AddressGuard
from gateway.upstream.failures import connect_failure, lost_failure, tls_failure
from gateway.upstream.resolver import AddressInfo, Resolver
from gateway.upstream.tls import client_context
from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.certs import Authority, Kind
from tests.fakes.ports import refusing_port, stuck_port
from tests.fakes.wire import settled, until, wired


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def failed(failure: Failure | None) -> tuple[FailureKind, str, bool]:
    assert failure is not None
    return failure.kind, failure.what, failure.connecting


# No connection


async def test_a_closed_port() -> None:
    with refusing_port() as port:
        async with wired() as wire:
            exchange = await wire.call(f"http://127.0.0.1:{port}/")
    assert failed(exchange.failure) == (FailureKind.REFUSED, "connection refused", True)


async def test_a_closed_port_on_every_address_of_a_name() -> None:
    with refusing_port() as port:
        async with wired() as wire:
            exchange = await wire.call(f"http://localhost:{port}/")
    assert failed(exchange.failure) == (FailureKind.REFUSED, "connection refused", True)


@pytest.mark.parametrize("host", ["nope.invalid", "-", "xn--a"])
async def test_a_name_that_does_not_resolve(host: str) -> None:
    async with wired() as wire:
        exchange = await wire.call(f"http://{host}/")
    assert failed(exchange.failure) == (FailureKind.DNS, "DNS failure", True)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (socket.gaierror(socket.EAI_NONAME, "x"), FailureKind.DNS),
        (UnicodeError("label too long"), FailureKind.DNS),
        (OSError(errno.EMFILE, "x"), FailureKind.LOCAL),
    ],
)
async def test_what_a_resolver_may_raise(error: Exception, kind: FailureKind) -> None:
    async def resolve(host: str, port: int) -> list[AddressInfo]:
        raise error

    async with wired(resolve=resolve) as wire:
        exchange = await wire.call("http://agent.test/")
    assert failed(exchange.failure)[0::2] == (kind, True)


async def test_a_resolver_without_an_answer() -> None:
    async def resolve(host: str, port: int) -> list[AddressInfo]:
        return []

    async with wired(resolve=resolve) as wire:
        assert failed((await wire.call("http://agent.test/")).failure)[0] is FailureKind.DNS


async def test_a_fault_of_ours_is_told_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def resolve(host: str, port: int) -> list[AddressInfo]:
        raise ZeroDivisionError

    async with wired(resolve=resolve) as wire:
        exchange = await wire.call("http://agent.test/")
    assert failed(exchange.failure) == (FailureKind.INTERNAL, "internal error", True)
    assert "ZeroDivisionError" in caplog.text


async def test_an_agent_that_does_not_take_the_connection() -> None:
    """Timeout while connecting: safe to send again (contract 2.4)."""
    with stuck_port() as port:
        async with wired() as wire:
            exchange = await wire.call(f"http://127.0.0.1:{port}/", seconds=0.2)
            assert failed(exchange.failure) == (FailureKind.TIMEOUT, "timeout", True)
            await settled()
            assert wire.left == (0, 0, 0)


async def test_a_slow_address_does_not_hold_up_a_good_one() -> None:
    """Several addresses: the next is tried beside a slow one."""
    async with FaultAgent() as agent:

        async def resolve(host: str, port: int) -> list[AddressInfo]:
            tcp = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
            return [(*tcp, ("127.0.0.1", stuck)), (*tcp, ("127.0.0.1", agent.port))]

        with stuck_port() as stuck:
            async with wired(resolve=resolve) as wire:
                assert (await wire.call("http://agent.test/", seconds=2.0)).failure is None


@contextmanager
def descriptors(most: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_pitfall_58_no_descriptor_left_is_not_the_agents_fault() -> None:
    async with FaultAgent() as agent, wired() as wire:
        with socket.socket() as probe:
            lowest = probe.fileno()
        with descriptors(lowest):
            exchange = await wire.call(agent.url)
        assert failed(exchange.failure) == (FailureKind.LOCAL, "no file descriptor left", True)
        assert (await wire.call(agent.url)).failure is None


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ECONNREFUSED, FailureKind.REFUSED),
        (errno.EHOSTUNREACH, FailureKind.UNROUTABLE),
        (errno.ENETUNREACH, FailureKind.UNROUTABLE),
        (errno.EHOSTDOWN, FailureKind.UNROUTABLE),
        (errno.ETIMEDOUT, FailureKind.UNROUTABLE),
        (errno.ECONNRESET, FailureKind.LOST),
        (errno.EMFILE, FailureKind.LOCAL),
        (errno.ENFILE, FailureKind.LOCAL),
        (errno.EADDRNOTAVAIL, FailureKind.LOCAL),
        (None, FailureKind.UNROUTABLE),
        (9999, FailureKind.UNROUTABLE),
    ],
)
def test_connect_errors(number: int | None, kind: FailureKind) -> None:
    """Pitfall 38: by errno, never by text."""
    error = OSError("several things") if number is None else OSError(number, "text")
    failure = connect_failure(error)
    assert (failure.kind, failure.connecting) == (kind, True)
    assert failure.what not in ("several things", "text")


# Connections that end before a request


async def test_an_agent_that_closes_before_it_is_asked() -> None:
    """Contract 2.3: not written at all, so it goes on a fresh connection, once."""
    async with FaultAgent() as agent, wired() as wire:
        agent.next(reply.close_on_connect())
        exchange = await wire.call(agent.url)
        assert exchange.failure is None or not exchange.failure.connecting  # it may be seen too late
        agent.always(reply.close_on_connect())
        before = len(agent.connections)
        failure = (await wire.call(agent.url)).failure
        assert failure is not None
        assert failure.kind is FailureKind.LOST
        assert len(agent.connections) - before <= 2
        assert len(agent.requests) <= 1


@pytest.mark.parametrize("behaviour", [reply.close_on_connect(), reply.reset_on_connect()])
async def test_accept_then_close_or_reset(behaviour: Any) -> None:
    """Pitfall 38: lost, whether the request was written or not."""
    async with FaultAgent() as agent, wired() as wire:
        agent.always(behaviour)
        failure = (await wire.call(agent.url)).failure
        assert failure is not None
        assert (failure.kind, failure.what) == (FailureKind.LOST, "connection lost")
        await settled()
        assert wire.left == (0, 0, 0)


async def test_a_banner_is_a_protocol_error() -> None:
    """Pitfall 38: SSH banner."""
    async with FaultAgent() as agent, wired() as wire:
        agent.always(reply.banner())
        failure = (await wire.call(agent.url)).failure
        assert failure is not None
        assert (failure.kind, failure.what) == (FailureKind.PROTOCOL, "protocol error")
        await agent.all_closed()


async def test_a_reset_while_the_request_is_being_written() -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.always(reply.reset_while_receiving())
        failure = (await wire.call(agent.url, b"x" * 5_000_000, repeatable=True)).failure
        assert failed(failure) == (FailureKind.LOST, "connection lost", False)
        assert len(agent.connections) == 1


# TLS


async def test_tls_with_a_private_authority(authority: Authority) -> None:
    """Contract 2.2: verified; SNI and Host of the URL; the connection is reused."""
    async with FaultAgent(tls=authority.server()) as agent, wired(ca_file=str(authority.ca_file)) as wire:
        pool = wire.pool(agent.url)
        for _ in range(3):
            exchange = await wire.call(pool)
            assert (exchange.failure, exchange.status) == (None, 200)
        assert len(agent.connections) == 1
        assert agent.requests[0].header("host") == agent.authority


async def test_tls_large_bodies(authority: Authority) -> None:
    async with FaultAgent(tls=authority.server()) as agent, wired(ca_file=str(authority.ca_file)) as wire:
        agent.always(reply.body(b"y" * 900_000))
        pool = wire.pool(agent.url)
        sent = b"head" + b"x" * 900_000
        for body in (sent[4:], memoryview(sent)[4:]):
            exchange = await wire.call(pool, body)
            assert (exchange.failure, len(exchange.body)) == (None, 900_000)
            assert agent.requests[-1].body == body
        assert len(agent.connections) == 1


async def test_tls_by_address(authority: Authority) -> None:
    async with (
        FaultAgent(tls=authority.server(), name="127.0.0.1") as agent,
        wired(ca_file=str(authority.ca_file)) as wire,
    ):
        assert (await wire.call(agent.url)).failure is None


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("self-signed", "TLS failure: self-signed certificate"),
        ("expired", "TLS failure: certificate expired"),
        ("wrong-name", "TLS failure: certificate is for another name"),
    ],
)
async def test_bad_certificates(authority: Authority, kind: Kind, what: str) -> None:
    """Pitfall 38."""
    async with FaultAgent(tls=authority.server(kind)) as agent, wired(ca_file=str(authority.ca_file)) as wire:
        exchange = await wire.call(agent.url)
        assert failed(exchange.failure) == (FailureKind.TLS, what, True)
        await settled()
        assert wire.left == (0, 0, 0)


async def test_an_unknown_authority(authority: Authority) -> None:
    async with FaultAgent(tls=authority.server()) as agent, wired() as wire:
        exchange = await wire.call(agent.url)
        assert failed(exchange.failure) == (
            FailureKind.TLS,
            "TLS failure: unknown certificate authority",
            True,
        )


@pytest.mark.parametrize("kind", ["self-signed", "expired", "wrong-name"])
async def test_verification_can_be_skipped(authority: Authority, kind: Kind) -> None:
    """Contract 4, `agent_tls_skip_verify`."""
    async with FaultAgent(tls=authority.server(kind)) as agent, wired(tls_skip_verify=True) as wire:
        assert (await wire.call(agent.url)).failure is None


async def test_tls_to_a_plain_port() -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.always(reply.banner(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
        exchange = await wire.call(agent.url.replace("http:", "https:"))
        assert failed(exchange.failure) == (
            FailureKind.TLS,
            "TLS failure: the agent does not speak TLS",
            True,
        )


async def test_plain_to_a_tls_port(authority: Authority) -> None:
    async with FaultAgent(tls=authority.server()) as agent, wired() as wire:
        exchange = await wire.call(agent.url.replace("https:", "http:"))
        assert exchange.failure is not None
        assert exchange.failure.kind in (FailureKind.PROTOCOL, FailureKind.LOST)


@pytest.mark.parametrize("behaviour", [reply.close_on_connect(), reply.reset_on_connect()])
async def test_a_connection_that_ends_in_the_handshake(behaviour: Any) -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.always(behaviour)
        exchange = await wire.call(agent.url.replace("http:", "https:"))
        assert failed(exchange.failure)[0::2] == (FailureKind.TLS, True)


async def test_client_certificates(authority: Authority) -> None:
    """Contract 2.2, `upstream.client_cert`."""
    files = authority.issue("client")
    server = authority.server(client_required=True)
    tls = {"ca_file": str(authority.ca_file)}
    async with FaultAgent(tls=server) as agent:
        async with wired(**tls, client_cert=str(files.certificate), client_key=str(files.key)) as wire:
            assert (await wire.call(agent.url)).failure is None
        async with wired(**tls) as wire:
            exchange = await wire.call(agent.url)
            assert exchange.failure is not None
            assert exchange.failure.kind in (FailureKind.TLS, FailureKind.LOST)
        assert len(agent.requests) == 1


def refuse_clients(listener: socket.socket, tls: ssl.SSLContext) -> None:
    """Accepts until the listener is closed. Blocking sockets, because asyncio's servers send no alert."""
    while True:
        try:
            accepted = listener.accept()[0]
        except OSError:
            return
        with tls.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False) as secure:
            with suppress(OSError):
                secure.do_handshake()
            with suppress(OSError):  # with bytes unread, closing would reset, and the alert be lost
                while os.read(secure.fileno(), 4096):
                    pass


async def test_a_refused_client_certificate_is_a_tls_failure(authority: Authority) -> None:
    """With TLS 1.3 the refusal comes when the request has been written; the agent has not processed it."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = authority.server(client_required=True)
    thread = threading.Thread(target=refuse_clients, args=(listener, server))
    thread.start()
    try:
        async with wired(ca_file=str(authority.ca_file)) as wire:
            exchange = await wire.call(f"https://localhost:{listener.getsockname()[1]}/")
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)
    assert failed(exchange.failure) == (FailureKind.TLS, "TLS failure: client certificate required", False)


async def test_a_tls_agent_that_closes_while_idle(authority: Authority) -> None:
    async with FaultAgent(tls=authority.server()) as agent, wired(ca_file=str(authority.ca_file)) as wire:
        agent.always(reply.close_after(reply.body(b"{}"), seconds=0.001))
        pool = wire.pool(agent.url)
        for number in range(5):
            assert (await wire.call(pool)).failure is None
            await until(lambda peer=agent.connections[number]: peer.lost)
            wire.heard()
        assert len(agent.requests) == 5


async def test_a_cut_tls_stream_is_not_a_complete_body(authority: Authority) -> None:
    """A body that ends with the connection needs TLS's own end: else anyone on the way could shorten it."""
    async with FaultAgent(tls=authority.server()) as agent, wired(ca_file=str(authority.ca_file)) as wire:
        agent.next(reply.reset(reply.head(200) + b"half"))
        exchange = await wire.call(agent.url)
        assert failed(exchange.failure)[0] is FailureKind.LOST
        agent.next(reply.until_close(b"whole"))
        exchange = await wire.call(agent.url)
        assert (exchange.failure, exchange.body) == (None, b"whole")


async def test_pitfall_44_one_tls_context(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[ssl.SSLContext] = []
    original = ssl.create_default_context

    def build() -> ssl.SSLContext:
        built.append(original())
        return built[-1]

    monkeypatch.setattr(ssl, "create_default_context", build)
    server = authority.server()
    async with FaultAgent(tls=server) as agent, wired(ca_file=str(authority.ca_file)) as wire:
        for _ in range(3):
            assert (await wire.call(agent.url)).failure is None  # a pool and a connection each
        assert len(agent.connections) == 3
    assert len(built) == 1


def test_tls_files_that_cannot_be_used(tmp_path: Path, authority: Authority) -> None:
    """The error names the setting, at start."""
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")
    guard = AddressGuard()
    with pytest.raises(ValueError, match=r"^upstream\.ca_file: no such file"):
        Upstream(guard=guard, ca_file=str(tmp_path / "none"))
    with pytest.raises(ValueError, match=r"^upstream\.ca_file: not a usable PEM file"):
        Upstream(guard=guard, ca_file=str(junk))
    with pytest.raises(ValueError, match=r"^upstream\.client_cert or upstream\.client_key: not a usable"):
        Upstream(guard=guard, client_cert=str(authority.issue("client").certificate), client_key=str(junk))


def test_the_tls_context_verifies_by_default() -> None:
    context = client_context()
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_tls_texts_are_ours() -> None:
    """Contract 2.4: what callers read never comes from an exception."""
    error = ssl.SSLError(1, "[SSL: WHATEVER] secret path /etc/key")
    assert tls_failure(error).what == "TLS failure: handshake failed"
    assert tls_failure(ValueError("secret")).what == "TLS failure: handshake failed"
    assert tls_failure(OSError(errno.EMFILE, "x")).kind is FailureKind.LOCAL
    assert lost_failure(error).kind is FailureKind.LOST
    assert lost_failure(None).kind is FailureKind.LOST


# Leaving while connecting


async def test_cancelled_while_connecting() -> None:
    with stuck_port() as port:
        async with wired() as wire:
            sent = wire.start(wire.pool(f"http://127.0.0.1:{port}/"))
            await until(lambda: wire.upstream.connecting == 1)
            await settled()
            sent.exchange.cancel()
            await settled()
            assert wire.left == (0, 0, 0)
            assert not sent.ended.done()


async def test_cancelled_in_the_handshake() -> None:
    async with FaultAgent() as agent, wired() as wire:
        agent.always(reply.hang())  # it waits for a request, and gets a ClientHello
        sent = wire.start(wire.pool(agent.url.replace("http:", "https:")))
        peer = await agent.connected(1)
        await until(lambda: bool(peer._buffer))
        left = asyncio.get_running_loop().time()
        sent.exchange.cancel()
        assert await agent.closed(1) - left < 0.5
        await settled()
        assert wire.left == (0, 0, 0)


async def test_a_deadline_in_the_handshake() -> None:
    async with FaultAgent() as agent, wired() as wire:
        exchange = await wire.call(agent.url.replace("http:", "https:"), seconds=0.1)
        assert failed(exchange.failure) == (FailureKind.TIMEOUT, "timeout", True)
        await agent.closed(1)


async def test_cancelled_tls_exchanges_close_at_once(authority: Authority) -> None:
    async with FaultAgent(tls=authority.server()) as agent, wired(ca_file=str(authority.ca_file)) as wire:
        agent.always(reply.hang())
        sent = wire.start(wire.pool(agent.url))
        await agent.received(1)
        left = asyncio.get_running_loop().time()
        sent.exchange.cancel()
        assert await agent.closed(1) - left < 0.5


async def test_cancelled_while_resolving() -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def resolve(host: str, port: int) -> list[AddressInfo]:
        asked.set()
        await go.wait()
        return []

    async with wired(resolve=resolve) as wire:
        sent = wire.start(wire.pool("http://agent.test/"))
        await asked.wait()
        sent.exchange.cancel()
        await settled()
        assert wire.left == (0, 0, 0)
        assert not sent.ended.done()


# The resolver


class SlowLookUps:
    """Stands in for the C library: look-ups wait until they may go on; counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.asked: list[str] = []
        monkeypatch.setattr("gateway.upstream.resolver.socket.getaddrinfo", self._look_up)

    def _look_up(self, host: str, port: int, **_: Any) -> list[AddressInfo]:
        self.asked.append(host)
        self.go.wait(5)
        if host == "bad.test":
            raise socket.gaierror(socket.EAI_NONAME, "x")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]


async def test_look_ups_of_one_host_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, resolver = SlowLookUps(monkeypatch), Resolver()
    tasks = [asyncio.ensure_future(resolver(host, 80)) for host in ("a.test", "a.test", "bad.test", "a.test")]
    await until(lambda: len(slow.asked) == 2)
    tasks[0].cancel()  # the others still get their answer
    slow.go.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(slow.asked) == ["a.test", "bad.test"]
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1] == results[3] == [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80))]
    assert isinstance(results[2], socket.gaierror)
    assert await resolver("a.test", 80)
    assert len(slow.asked) == 3  # nothing is cached


async def test_look_ups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.upstream.resolver._MOST", 2)
    slow, resolver = SlowLookUps(monkeypatch), Resolver()
    tasks = [asyncio.ensure_future(resolver(f"{number}.test", 80)) for number in range(5)]
    await until(lambda: len(slow.asked) == 2)
    await settled()
    assert len(slow.asked) == 2
    slow.go.set()
    await asyncio.gather(*tasks)
    assert len(slow.asked) == 5


async def test_look_ups_that_hang_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names whose servers do not answer must not keep other agents from being found; threads stay bounded."""
    monkeypatch.setattr("gateway.upstream.resolver._MOST", 2)
    monkeypatch.setattr("gateway.upstream.resolver._HANGING", 3)
    monkeypatch.setattr("gateway.upstream.resolver._PROMPT_SECONDS", 0.02)
    slow, resolver = SlowLookUps(monkeypatch), Resolver()
    tasks = [asyncio.ensure_future(resolver(f"{number}.test", 80)) for number in range(8)]
    await until(lambda: len(slow.asked) == 5)
    for task in tasks[:4]:
        task.cancel()  # their callers have timed out, and their threads hang on
    await asyncio.sleep(0.1)
    assert len(slow.asked) == 5  # 3 that hang, 2 at a time
    slow.go.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(result, list) for result in results] == [False] * 4 + [True] * 4
    await asyncio.gather(*(resolver(f"{number}.test", 80) for number in range(5)))  # every place is free again


async def test_no_thread_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shortage of ours, told as such, and nothing is kept."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with wired() as wire:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            exchange = await wire.call("http://localhost:1/")
        assert failed(exchange.failure) == (FailureKind.LOCAL, "no thread left", True)
        await settled()
        with refusing_port() as port:
            assert failed((await wire.call(f"http://localhost:{port}/")).failure)[0] is FailureKind.REFUSED


def test_a_hanging_look_up_does_not_hold_up_the_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract 8: the loop may be closed while the C library still waits for an answer."""
    slow = SlowLookUps(monkeypatch)

    async def ask() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await Resolver()("a.test", 80)

    asyncio.run(ask())
    threads = [thread for thread in threading.enumerate() if thread.name == "resolver"]
    assert [thread.daemon for thread in threads] == [True]
    slow.go.set()
    threads[0].join(5)
    assert not threads[0].is_alive()
