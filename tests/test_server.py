"""The server on the wire, by raw sockets: each point where uvicorn alone does not do what a gateway needs."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import socket
import struct
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.protocol import Caller
from gateway.server import BindError, ServerLimits, bind
from tests.tiny_gateway import Served, served

HOST = b"Host: gateway\r\n"
GET = b"GET /echo HTTP/1.1\r\n" + HOST + b"\r\n"


@pytest.fixture(scope="module")
def running() -> Iterator[Served]:
    with served() as running:
        yield running


@pytest.fixture(scope="module")
def running_hasty() -> Iterator[Served]:
    with served(ServerLimits(request_timeout_seconds=0.5)) as running:
        yield running


@pytest.fixture
def server(running: Served) -> Served:
    running.forget()
    return running


@pytest.fixture
def hasty(running_hasty: Served) -> Served:
    """A server that gives a request half a second."""
    running_hasty.forget()
    return running_hasty


@contextlib.contextmanager
def connected(running: Served, *, port: int = 0) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port or running.port), timeout=10) as caller:
        caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield caller


def post(path: bytes, body: bytes = b"", *headers: bytes, version: bytes = b"1.1") -> bytes:
    lines = [b"POST %s HTTP/%s" % (path, version), b"Host: gateway", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join([*lines, b"", body])


def read_all(caller: socket.socket) -> bytes:
    """Everything up to the end of the connection, which must come."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while data := caller.recv(1 << 20):
            got += data
    return got


def read_answer(caller: socket.socket) -> tuple[bytes, bytes]:
    """One answer that has a length: (head, body)."""
    got = b""
    while b"\r\n\r\n" not in got:
        data = caller.recv(65536)
        assert data, got
        got += data
    head, _, body = got.partition(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    while len(body) < length:
        body += caller.recv(65536)
    assert len(body) == length
    return head, body


def echoed(caller: socket.socket) -> dict[str, Any]:
    head, body = read_answer(caller)
    assert head.startswith(b"HTTP/1.1 200"), head
    return json.loads(body)


def ask(running: Served, request: bytes) -> bytes:
    """Send a request and read until the connection ends, which must come."""
    with connected(running) as caller:
        with contextlib.suppress(ConnectionError):
            caller.sendall(request)
        return read_all(caller)


def reset(caller: socket.socket) -> None:
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    caller.close()


# ---- requests that must work


def test_keep_alive_serves_one_request_after_another(server: Served) -> None:
    with connected(server) as caller:
        for size in (0, 10, 100_000, 3_000_000):
            caller.sendall(post(b"/echo?a=b%2F", b"x" * size, b"X-Odd:  \xe9 "))
            got = echoed(caller)
            assert (got["size"], got["raw_path"], got["query"]) == (size, "/echo", "a=b%2F")
            assert ["x-odd", "é"] in got["headers"]


def test_chunked_upload_in_odd_pieces(server: Served) -> None:
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (b"a", b"bc" * 40_000, b"d")) + b"0\r\n\r\n"
    with connected(server) as caller:
        caller.sendall(b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(body), 7_001):
            caller.sendall(body[at : at + 7_001])
        assert echoed(caller)["size"] == 80_002


@pytest.mark.parametrize("target", [b"http://other/echo?q", b"/echo?q#x"])
def test_request_target_in_other_forms(server: Served, target: bytes) -> None:
    with connected(server) as caller:
        caller.sendall(b"GET %s HTTP/1.1\r\n%s\r\n" % (target, HOST))
        got = echoed(caller)
        assert (got["raw_path"], got["query"]) == ("/echo", "q")


UPGRADES = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk",
    "websocket": b"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13",
}


@pytest.mark.parametrize("piece", [100_000, 1, 40, 230])
@pytest.mark.parametrize("upgrade", UPGRADES)
def test_offer_to_upgrade_does_not_lose_the_body(server: Served, upgrade: str, piece: int) -> None:
    """Java's HttpClient offers h2c with every plain request."""
    request = post(b"/echo", b"hello", UPGRADES[upgrade])
    with connected(server) as caller:
        for _ in range(2):  # and the connection stays in step
            for at in range(0, len(request), piece):
                caller.sendall(request[at : at + piece])
            got = echoed(caller)
            assert (got["method"], got["body"]) == ("POST", "hello")
            assert "upgrade" not in dict(got["headers"])


def test_offer_to_upgrade_with_a_chunked_body(server: Served) -> None:
    head = post(b"/echo", b"", UPGRADES["h2c"]).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    with connected(server) as caller:
        caller.sendall(head + b"5\r\nhello\r\n0\r\n\r\n")
        assert echoed(caller)["body"] == "hello"


def test_trailers_never_become_headers(server: Served) -> None:
    with connected(server) as caller:
        for trailer in (b"Authorization: Bearer stolen\r\nHost: evil\r\n", b""):
            caller.sendall(b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n")
            caller.sendall(b"2\r\nhi\r\n0\r\n" + trailer + b"\r\n")
            got = echoed(caller)
            assert got["headers"] == [["host", "gateway"], ["transfer-encoding", "chunked"]]
            assert got["body"] == "hi"


def test_expect_continue_is_answered_when_the_body_is_wanted(server: Served) -> None:
    """Pitfall 28."""
    with connected(server) as caller:
        caller.sendall(b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        assert caller.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        caller.sendall(b"hello")
        assert echoed(caller)["body"] == "hello"
        assert caller.recv(1) == b""


def test_expect_continue_over_the_limit_is_refused_without_asking_for_the_body(server: Served) -> None:
    """Pitfall 28: and since the caller may send the body nevertheless, this connection ends."""
    head = b"POST /early HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999\r\nExpect: 100-continue\r\n\r\n"
    got = ask(server, head)
    assert got.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in got


@pytest.mark.parametrize("path", [b"/early", b"/early-close"])
def test_early_answer_reaches_a_caller_that_uploads_on(server: Served, path: bytes) -> None:
    with connected(server) as caller:
        caller.sendall(post(path, b"x" * 30_000_000))
        head, body = read_answer(caller)
        assert head.startswith(b"HTTP/1.1 413")
        assert body == b"too large"
        if path == b"/early-close":
            assert caller.recv(1) == b""
        else:  # the connection is still in step
            caller.sendall(GET)
            assert echoed(caller)["method"] == "GET"


# ---- HTTP/1.0


@pytest.mark.parametrize("headers", [b"", b"Connection: keep-alive\r\n", b"Connection: close\r\n", HOST])
def test_http10_gets_no_chunks(server: Served, headers: bytes) -> None:
    got = ask(server, b"GET /pieces HTTP/1.0\r\n" + headers + b"\r\n")
    head, _, body = got.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert body == b"onetwo"


def test_http10_answer_with_a_length_and_head(server: Served) -> None:
    assert ask(server, post(b"/echo", b"hi", version=b"1.0")).endswith(b'"body": "hi"}')
    head, _, body = ask(server, b"HEAD /echo HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")
    assert b"content-length" in head
    assert body == b""


# ---- a second request before the first is answered


def test_pipelined_request_is_dropped_and_the_connection_closed(server: Served) -> None:
    got = ask(server, post(b"/echo", b"first") + post(b"/echo", b"second"))
    assert got.count(b"HTTP/1.1 ") == 1
    assert b"first" in got
    assert b"connection: close" in got


def test_caller_who_pipelined_is_still_seen_leaving(server: Served) -> None:
    with connected(server) as caller:
        caller.sendall(post(b"/hang"))
        assert server.seen() == "waiting"
        caller.sendall(GET)
        caller.sendall(GET * 1000)
    assert server.seen() == "lost"


@pytest.mark.parametrize("junk", [b"\x16\x03\x01\x00\xff", b"no http at all\r\n\r\n", b"GET"])
def test_junk_behind_a_request_does_not_spoil_its_answer(server: Served, junk: bytes) -> None:
    got = ask(server, post(b"/echo", b"first") + junk)
    assert got.count(b"HTTP/1.1 ") == 1
    assert got.startswith(b"HTTP/1.1 200")


def test_data_behind_the_last_request_does_not_spoil_its_answer(server: Served) -> None:
    for upgrade in (b"", b"Upgrade: h2c\r\n"):
        last = post(b"/echo", b"first", upgrade + b"Connection: close, Upgrade")
        got = ask(server, last + GET)
        assert got.count(b"HTTP/1.1 ") == 1
        assert got.startswith(b"HTTP/1.1 200")


# ---- requests that are refused

BAD = {
    "both lengths (pitfall 157)": (
        b"POST /echo HTTP/1.1\r\nHost: g\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\nGET /echo HTTP/1.1\r\nHost: g\r\n\r\n"
    ),
    "two lengths": b"POST /echo HTTP/1.1\r\nHost: g\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nxxx",
    "no host": b"GET /echo HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /echo HTTP/1.1\r\nHost: g\r\nHost: h\r\n\r\n",
    "the same host twice": b"GET /echo HTTP/1.1\r\nHost: g\r\nhost: g\r\n\r\n",
    "two hosts in 1.0": b"GET /echo HTTP/1.0\r\nHost: g\r\nHost: h\r\n\r\n",
    "folded header": b"GET /echo HTTP/1.1\r\nHost: g\r\nX: a\r\n b\r\n\r\n",
    "space before colon": b"GET /echo HTTP/1.1\r\nHost: g\r\nX : a\r\n\r\n",
    "raw non-ASCII path": b"GET /\xc3\xa9 HTTP/1.1\r\nHost: g\r\n\r\n",
    "line feeds only": b"GET /echo HTTP/1.1\nHost: g\n\n",
    "length with a sign": b"POST /echo HTTP/1.1\r\nHost: g\r\nContent-Length: +2\r\n\r\nxx",
    "two lengths in one": b"POST /echo HTTP/1.1\r\nHost: g\r\nContent-Length: 2, 2\r\n\r\nxx",
    "unknown coding": b"POST /echo HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "no resource": b"OPTIONS * HTTP/1.1\r\nHost: g\r\n\r\n",
    "HTTP/2 at once": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "unknown verb": b"FROB / HTTP/1.1\r\nHost: g\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "bad chunk": b"POST /early HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
}


@pytest.mark.parametrize("name", BAD)
def test_bad_request_gets_one_400_and_the_end(server: Served, name: str) -> None:
    got = ask(server, BAD[name])
    assert got.startswith(b"HTTP/1.1 400 "), got
    assert got.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in got


@pytest.mark.parametrize("version", [b"0.9", b"2.0"])
def test_other_versions_are_refused(server: Served, version: bytes) -> None:
    assert ask(server, b"GET /echo HTTP/%s\r\n%s\r\n" % (version, HOST)).startswith(b"HTTP/1.1 505 ")


def test_forward_proxying_is_refused(server: Served) -> None:
    assert ask(server, b"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n").startswith(b"HTTP/1.1 501 ")


def test_broken_body_ends_the_request_that_waits_for_it(server: Served) -> None:
    with connected(server) as caller:
        caller.sendall(b"POST /echo HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        time.sleep(0.05)  # the handler waits; with or without that, the outcome is the same
        caller.sendall(b"zz\r\n")
        assert read_all(caller).startswith(b"HTTP/1.1 400 ")
    assert server.seen() == "disconnect"


def test_broken_body_under_a_begun_answer_cuts_it_visibly(server: Served) -> None:
    with connected(server) as caller:
        caller.sendall(b"POST /stream HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        assert server.seen() == "waiting"
        caller.sendall(b"zz\r\n")
        got = read_all(caller)
        assert got.endswith(b"first\r\n")
        assert got.count(b"HTTP/1.1 ") == 1
    assert server.seen() == "lost"


def test_broken_body_behind_a_complete_answer_adds_nothing_to_it(server: Served) -> None:
    with connected(server) as caller:
        caller.sendall(b"POST /early HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        assert read_answer(caller)[1] == b"too large"
        caller.sendall(b"zz\r\n")
        assert read_all(caller) == b""


TOO_LARGE = {
    "one long line": b"X-Long: " + b"x" * 300_000,
    "20,000 headers": b"\r\n".join(b"X-%d: 1" % number for number in range(20_000)),
    "101 headers": b"\r\n".join(b"X-%d: 1" % number for number in range(100)),
    "33 KiB in one segment": b"X-Long: " + b"x" * 33 * 1024,
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_too_large_a_head_gets_431_and_the_end(server: Served, name: str) -> None:
    got = ask(server, b"GET /echo HTTP/1.1\r\n" + HOST + TOO_LARGE[name] + b"\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 431 "), got
    assert b"connection: close" in got


def test_too_long_a_line_in_pieces_is_cut_off_before_its_end(server: Served) -> None:
    sent = 0
    with connected(server) as caller:
        caller.sendall(b"GET /echo HTTP/1.1\r\n" + HOST + b"X-Long: ")
        caller.settimeout(0.02)
        got = b""
        while not got and sent < 300_000:
            caller.sendall(b"x" * 1000)
            sent += 1000
            with contextlib.suppress(TimeoutError):
                got = caller.recv(1000)
        assert got.startswith(b"HTTP/1.1 431 ")
        assert sent < 40_000


def test_too_long_a_target_is_refused(server: Served) -> None:
    assert ask(server, b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 431 ")


def test_large_body_behind_a_small_head_is_not_mistaken_for_it(server: Served) -> None:
    for headers in ((), (UPGRADES["h2c"],)):
        with connected(server) as caller:
            caller.sendall(post(b"/echo", b"x" * 200_000, *headers))
            assert echoed(caller)["size"] == 200_000


CHUNKED = b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"


@pytest.mark.parametrize(
    ("first", "endless"),
    [
        (CHUNKED + b"0\r\nX: ", b"x" * 10_000),
        (CHUNKED + b"0\r\n", b"X: y\r\n" * 2_000),
        (CHUNKED + b"1;", b"x" * 10_000),
        (b"", b"\r\n" * 5_000),
    ],
    ids=["one trailer", "trailers", "chunk extension", "empty lines"],
)
def test_endless_bytes_that_are_no_body_are_cut_off(server: Served, first: bytes, endless: bytes) -> None:
    got = ask(server, first + endless * 60)
    assert got.startswith(b"HTTP/1.1 431 "), got
    if first:
        assert server.seen() == "disconnect"


# ---- requests that do not arrive


@pytest.mark.parametrize(
    ("first", "drip"),
    [
        (b"GET /echo HTTP/1.1\r\n", b"X-A: b\r\n"),
        (b"G", b""),
        (post(b"/hang", b"")[:-1], b""),
    ],
)
def test_head_that_dribbles_in_is_cut_off_while_others_are_served(
    hasty: Served, first: bytes, drip: bytes
) -> None:
    began = time.monotonic()
    with connected(hasty) as slow, connected(hasty) as other:
        slow.sendall(first)
        slow.settimeout(0.05)
        got = b""
        while not got and time.monotonic() - began < 5:
            slow.sendall(drip)
            other.sendall(GET)
            assert echoed(other)["method"] == "GET"
            with contextlib.suppress(TimeoutError):
                got = slow.recv(1000)
        assert got.startswith(b"HTTP/1.1 408 ")
        assert 0.4 < time.monotonic() - began < 2
        slow.settimeout(5)
        assert read_all(slow) == b""


def test_body_that_dribbles_in_is_cut_off_and_its_handler_told(hasty: Served) -> None:
    """Contract 2.1, point 2."""
    began = time.monotonic()
    with connected(hasty) as slow:
        slow.sendall(b"POST /told HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n")
        slow.settimeout(0.05)
        got = b""
        while not got and time.monotonic() - began < 5:
            slow.sendall(b"x")
            with contextlib.suppress(TimeoutError):
                got = slow.recv(1000)
        assert got.startswith(b"HTTP/1.1 408 ")
        # At once, although the caller is still there.
        assert [hasty.seen(0.5), hasty.seen(0.5)] == ["lost", "disconnect"]


def test_body_that_never_ends_after_an_early_answer_is_cut_off(hasty: Served) -> None:
    with connected(hasty) as slow:
        slow.sendall(b"POST /early HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\nx")
        began = time.monotonic()
        assert read_all(slow).startswith(b"HTTP/1.1 413 ")
        assert time.monotonic() - began < 2


def test_handler_at_work_is_not_cut_off(hasty: Served) -> None:
    with connected(hasty) as waiting, connected(hasty) as streaming:
        waiting.sendall(post(b"/hang"))
        streaming.sendall(b"POST /stream HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\nx")
        assert [hasty.seen(), hasty.seen()] == ["waiting", "waiting"]
        streaming.recv(1000)
        for caller in (waiting, streaming):
            caller.settimeout(0.8)
            with pytest.raises(TimeoutError):
                caller.recv(1)
    assert [hasty.seen(), hasty.seen()] == ["lost", "lost"]


def test_idle_connection_outlives_the_request_timeout(hasty: Served) -> None:
    with connected(hasty) as caller:
        for _ in range(2):
            caller.sendall(GET)
            assert echoed(caller)["method"] == "GET"
            time.sleep(0.8)  # longer than a request may take, and that is all there is to wait for


def test_connection_without_requests_is_closed_in_the_end(hasty: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.protocol.KEEP_ALIVE_SECONDS", 0.3)
    with connected(hasty) as used, connected(hasty) as unused:
        used.sendall(GET)
        echoed(used)
        assert used.recv(1) == b""
        assert unused.recv(1) == b""


def test_answer_that_nobody_takes_is_dropped(hasty: Served) -> None:
    with connected(hasty) as caller:
        caller.sendall(post(b"/big-once"))
        assert hasty.seen() == "answered"
        time.sleep(1.5)  # the caller takes nothing for longer than it may
        assert len(read_all(caller)) < 20_000_000


def test_slow_reader_gets_everything(hasty: Served) -> None:
    with connected(hasty) as caller:
        caller.sendall(post(b"/big-once", b"", b"Connection: close"))
        assert hasty.seen() == "answered"
        size = 0
        began = time.monotonic()
        while data := caller.recv(400_000):
            size += len(data)
            time.sleep(0.02)
        assert size > 20_000_000
        assert time.monotonic() - began > 0.8


# ---- callers who leave

LEAVING = {"close": socket.socket.close, "half-close": lambda s: s.shutdown(socket.SHUT_WR), "reset": reset}


@pytest.mark.parametrize("how", LEAVING)
@pytest.mark.parametrize("request_bytes", [post(b"/hang"), post(b"/hang", b"x" * 500_000), post(b"/stream")])
def test_handler_hears_at_once_that_its_caller_left(server: Served, request_bytes: bytes, how: str) -> None:
    """Contract 2.3, pitfalls 57, 85, 86: before the first byte and while a response is being sent."""
    with connected(server) as caller:
        caller.sendall(request_bytes)
        assert server.seen() == "waiting"
        began = time.monotonic()
        LEAVING[how](caller)
        assert server.seen() == "lost"
        assert time.monotonic() - began < 0.5
    with connected(server) as other:  # once only: nothing else was said before this answer
        other.sendall(GET)
        echoed(other)
    assert server.tiny.seen.empty()


def test_nobody_is_told_when_an_answered_caller_leaves(server: Served) -> None:
    for leave in LEAVING.values():
        with connected(server) as caller:
            caller.sendall(post(b"/watched"))
            read_answer(caller)
            leave(caller)
        with connected(server) as other:
            other.sendall(GET)
            echoed(other)
    assert server.tiny.seen.empty()


def test_stalled_caller_can_be_cut_off(server: Served) -> None:
    with connected(server) as caller:
        caller.sendall(post(b"/big"))
        assert server.seen() == "lost"
        assert len(read_all(caller)) < 100_000_000


def test_connection_is_freed_without_the_garbage_collector(hasty: Served) -> None:
    gc.collect()
    gc.disable()
    try:
        with connected(hasty) as caller:
            caller.sendall(GET)
            echoed(caller)
            client = caller.getsockname()
            [alive] = [weakref.ref(c) for c in gc.get_objects() if isinstance(c, Caller) and c.client == client]
            time.sleep(0.2)  # four sweeps have looked at it
        for _ in range(500):
            if alive() is None:
                break
            time.sleep(0.02)
        assert alive() is None
    finally:
        gc.enable()


# ---- handlers that fail


def test_crash_before_the_answer_is_a_500_and_logged(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    assert ask(server, post(b"/crash")).startswith(b"HTTP/1.1 500 ")
    assert "as told" in caplog.text


def test_crash_within_the_answer_leaves_it_visibly_cut(server: Served) -> None:
    got = ask(server, post(b"/crash-later"))
    assert b"half" in got
    assert not got.endswith(b"0\r\n\r\n")


def test_handler_that_forgets_to_answer_is_a_500(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    assert ask(server, post(b"/nothing")).startswith(b"HTTP/1.1 500 ")
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


# ---- listeners


def test_application_can_tell_its_two_listeners_apart(server: Served) -> None:
    for port in (server.port, server.metrics_port):
        with connected(server, port=port) as caller:
            caller.sendall(GET)
            assert echoed(caller)["port"] == port


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_bind_listens(host: str) -> None:
    with bind(host, 0) as listener:
        family = socket.AF_INET6 if host == "::1" else socket.AF_INET
        assert listener.family == family
        socket.create_connection(listener.getsockname()[:2]).close()


def test_bind_prefers_ipv4_for_a_name_that_has_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Curl lines and agents say 127.0.0.1 where the settings say localhost."""
    both = socket.getaddrinfo("::1", 0, type=socket.SOCK_STREAM) + socket.getaddrinfo(
        "127.0.0.1", 0, type=socket.SOCK_STREAM
    )
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    with bind("localhost", 0) as listener:
        assert listener.family == socket.AF_INET


def test_bind_to_every_address_takes_both_families() -> None:
    with bind("::", 0) as listener:
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, listener.getsockname()[1])).close()


def test_bind_says_in_one_line_what_is_wrong() -> None:
    """Issue 2: a port in use is one clear line."""
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(BindError) as caught:
            bind("127.0.0.1", port)
    assert str(caught.value) == f"cannot listen on 127.0.0.1:{port}: address already in use"


@pytest.mark.parametrize(
    ("host", "port", "text"),
    [
        ("no-such-host.invalid", 0, "cannot listen on no-such-host.invalid:0: "),
        ("192.0.2.1", 80, "cannot listen on 192.0.2.1:80: cannot assign requested address"),
        ("127.0.0.1", 99999, "cannot listen on 127.0.0.1:99999: "),
        ("x" * 70 + ".y", 1, "cannot listen on xxx"),
        ("2001:db8::1", 80, "cannot listen on [2001:db8::1]:80: "),
    ],
)
def test_bind_to_an_impossible_address(host: str, port: int, text: str) -> None:
    with pytest.raises(BindError) as caught:
        bind(host, port)
    assert str(caught.value).startswith(text)
    assert "\n" not in str(caught.value)
