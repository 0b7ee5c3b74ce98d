"""Whatever arrives on the socket, nothing breaks inside: no 500, no traceback (contract 2.1, 2.6, 6)."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.headers import Headers
from tests.fakes.beside import Beside
from tests.fakes.issuer import bearer, token

METHODS = st.sampled_from(b"GET POST HEAD DELETE OPTIONS PUT PATCH".split())
PATHS = st.sampled_from(
    b"""
    /a2a/echo /a2a/ /a2a /a2a/echo/stream /a2a/echo/.well-known/agent-card.json /agents /agents/echo
    /agents/register /agents/heartbeat /agents/deregister /agents/echo/health /health/agents
    /.well-known/agent-card.json /schema /live /metrics /nope
    """.split()
)
ODD_PATHS = st.binary(max_size=20).map(lambda tail: b"/a2a/" + bytes(it for it in tail if 0x20 < it < 0x7F))
QUERIES = st.sampled_from([b"", *b"?A2A-Version=1.0 ?format=envelope ?view=x ?limit=0 ?%ff=% ?taskId=%00".split()])
NAMES = st.sampled_from(
    b"""
    Authorization X-Agent-Authorization Origin Content-Type A2A-Version X-Request-ID Via Connection
    X-Forwarded-For X-Forwarded-Host X-Forwarded-Proto X-KubeMQ-Caller-ID Cookie traceparent
    Access-Control-Request-Method Access-Control-Request-Headers If-None-Match If-Modified-Since
    Last-Event-ID X-Stream-Format Sec-Fetch-Site Accept X_Odd X-Any
    """.split()
)
KNOWN = st.sampled_from(
    [
        *(b"Bearer x", b"Bearer " + token().encode(), b""),
        *b"application/json text/plain http://evil.example null 1.0 close envelope cross-site * 127.0.0.1".split(),
    ]
)
ODD = st.binary(max_size=40).map(lambda raw: bytes(it for it in raw if it >= 0x20 and it != 0x7F))
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
MEMBERS = st.sampled_from(["jsonrpc", "id", "method", "params", "agent_id", "name", "url", "skills"])
CALLS = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "id": JSON, "method": st.text(max_size=12) | JSON}, optional={"params": JSON}
)
BODIES = (
    st.binary(max_size=60)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(MEMBERS, JSON).map(lambda value: json.dumps(value).encode())
    | CALLS.map(lambda value: json.dumps(value).encode())
)
INSIDE = re.compile(rb'"INTERNAL"|internal error|Traceback', re.IGNORECASE)


@pytest.fixture(scope="module", params=[False, True], ids=["open", "authenticated"])
def gateway(request: pytest.FixtureRequest) -> Iterator[tuple[Beside, str]]:
    sections = {"auth": {"enable": True, "secret_env": "JWT_SECRET"}} if request.param else {}
    beside = Beside(
        upstream={"caller_credentials": True},
        a2a={"trusted_origins": ["auto", "null"], "default_timeout_seconds": 0.2, "max_timeout_seconds": 0.2},
        server={"trusted_proxies": ["127.0.0.1"], "request_timeout_seconds": 1},
        **sections,
    )
    with beside as base:
        card = {"agent_id": "echo", "name": "echo", "url": "http://127.0.0.1:1/"}
        httpx.post(
            f"{base}/agents/register", json=card, headers=bearer(token()), trust_env=False
        ).raise_for_status()
        yield beside, base


def answer(base: str, request: bytes) -> bytes:
    address = urlsplit(base)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=5) as connection:
        connection.sendall(request)
        pieces = []
        while piece := connection.recv(65536):
            pieces.append(piece)
    return b"".join(pieces)


def check(base: str, method: bytes, target: bytes, headers: Headers, body: bytes) -> None:
    lines = b"".join(b"%b: %b\r\n" % pair for pair in headers)
    head = b"%b %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n%b\r\n"
    said = answer(base, head % (method, target, len(body), lines) + body)
    assert re.match(rb"HTTP/1\.1 [234]\d\d ", said), said[:200]
    assert not INSIDE.search(said), said[:500]


REQUESTS = (
    METHODS,
    st.tuples(PATHS | ODD_PATHS, QUERIES).map(b"".join),
    st.lists(st.tuples(NAMES, KNOWN | ODD), max_size=6),
    BODIES,
)
UNHURRIED = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@given(*REQUESTS)
@settings(max_examples=150, **UNHURRIED)
def test_any_request(
    gateway: tuple[Beside, str], method: bytes, target: bytes, headers: Headers, body: bytes
) -> None:
    check(gateway[1], method, target, headers, body)


@pytest.mark.long
@pytest.mark.timeout(900)
@given(*REQUESTS)
@settings(max_examples=5000, **UNHURRIED)
def test_any_request_for_long(
    gateway: tuple[Beside, str], method: bytes, target: bytes, headers: Headers, body: bytes
) -> None:
    check(gateway[1], method, target, headers, body)


def test_nothing_was_broken(gateway: tuple[Beside, str]) -> None:
    """Last in this file: what the log says of the requests above."""
    beside, base = gateway
    assert httpx.get(f"{base}/live", trust_env=False).status_code == 200
    assert not INSIDE.search(beside.log.read_bytes())
