"""Which pages may call, and what proxies are believed: contract 6.2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.headers import Headers
from gateway.hosts import HostCheck
from gateway.origins import Origins, cors, is_preflight, origin_in, preflight
from gateway.proxies import Sent, TrustedProxies


def trusts(
    origin: str,
    host: str = "127.0.0.1:9090",
    *,
    scheme: str = "http",
    trusted: tuple[str, ...] = ("auto",),
    bind: str = "127.0.0.1",
    allowed: tuple[str, ...] = (),
    public: str | None = None,
) -> bool:
    hosts = HostCheck(bind, allowed, public)
    origins = Origins(trusted, hosts, public)
    first = origins.trusts(origin.encode(), Sent(scheme, host.encode(), "10.0.0.1"))
    assert origins.trusts(origin.encode(), Sent(scheme, host.encode(), "10.0.0.1")) is first  # remembered
    return first


@pytest.mark.parametrize(
    ("origin", "host", "verdict"),
    [
        ("http://127.0.0.1:9090", "127.0.0.1:9090", True),
        ("http://localhost:9090", "localhost:9090", True),
        ("http://LOCALHOST:9090", "localhost:9090", True),
        ("http://localhost", "localhost:80", True),
        ("http://localhost:80", "localhost", True),
        ("http://[::1]:9090", "[::1]:9090", True),
        ("http://localhost:9091", "localhost:9090", False),
        ("http://localhost", "localhost:9090", False),
        ("https://localhost:9090", "localhost:9090", False),
        ("http://127.0.0.1:9090", "localhost:9090", False),
        ("http://localhost:9090/", "localhost:9090", False),
        ("http://localhost:9090.evil.example", "localhost:9090", False),
        ("http://evil.example", "localhost:9090", False),
        ("null", "localhost:9090", False),
        ("", "localhost:9090", False),
        ("localhost:9090", "localhost:9090", False),
        ("file://", "localhost:9090", False),
        ("http://localhost:9090, http://localhost:9090", "localhost:9090", False),
        ("http://user@localhost:9090", "localhost:9090", False),
        ("chrome-extension://abc", "localhost:9090", False),
    ],
)
def test_auto_means_scheme_host_and_port(origin: str, host: str, verdict: bool) -> None:
    assert trusts(origin, host) is verdict


def test_a_rebound_name_is_not_the_gateway() -> None:
    """DNS rebinding: page and request agree about a name that somebody has pointed at us."""
    assert not trusts("http://evil.example", "evil.example")
    assert not trusts("http://evil.example:9090", "evil.example:9090", bind="0.0.0.0")
    assert trusts("http://gw.example", "gw.example", bind="0.0.0.0", allowed=("gw.example",))


def test_an_address_cannot_be_rebound() -> None:
    assert trusts("http://10.1.2.3:9090", "10.1.2.3:9090", bind="0.0.0.0")
    assert not trusts("http://10.1.2.3:9090", "10.1.2.4:9090", bind="0.0.0.0")


def test_the_public_url_is_the_gateway_whatever_the_request_looks_like() -> None:
    public = "https://agents.example.com/base"
    assert trusts("https://agents.example.com", "internal:9090", bind="0.0.0.0", public=public)
    assert trusts("https://agents.example.com:443", "internal:9090", bind="0.0.0.0", public=public)
    assert not trusts("http://agents.example.com", "internal:9090", bind="0.0.0.0", public=public)
    assert not trusts("https://agents.example.com.evil", "internal:9090", bind="0.0.0.0", public=public)


def test_listed_origins_null_and_everybody() -> None:
    listed = ("https://app.example.com", "null")
    assert trusts("https://app.example.com", trusted=listed)
    assert trusts("https://APP.example.com:443", trusted=listed)
    assert trusts("null", trusted=listed)
    assert not trusts("http://127.0.0.1:9090", trusted=listed)
    assert not trusts("https://x.app.example.com", trusted=listed)
    assert trusts("https://anything.example", trusted=("*",))
    assert not trusts("http://127.0.0.1:9090", trusted=())


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_text_is_judged(origin: str, host: str) -> None:
    assert isinstance(trusts(origin, host), bool)


def test_what_is_remembered_is_bounded() -> None:
    origins = Origins(("auto",), HostCheck("127.0.0.1", (), None), None)
    for number in range(3000):
        assert not origins.trusts(b"http://evil-%d" % number, Sent("http", b"localhost", ""))
    assert len(origins._known) <= 1024


def test_several_origins_are_none_that_is_trusted() -> None:
    headers: Headers = [(b"origin", b"http://localhost"), (b"origin", b"http://localhost")]
    assert origin_in(headers) == b"http://localhost, http://localhost"
    assert origin_in([(b"host", b"x")]) is None


def test_cors() -> None:
    assert (b"access-control-allow-origin", b"http://a") in cors(b"http://a")
    assert not any(name == b"access-control-allow-credentials" for name, _ in cors(b"http://a"))
    asked: Headers = [(b"access-control-request-method", b"POST"), (b"access-control-request-headers", b"a, b")]
    assert is_preflight("OPTIONS", asked)
    assert not is_preflight("POST", asked)
    assert not is_preflight("OPTIONS", [])
    assert dict(preflight(b"http://a", asked))[b"access-control-allow-headers"] == b"a, b"
    assert b"access-control-allow-headers" not in dict(
        preflight(b"http://a", [(b"access-control-request-headers", b"a;\xff")])
    )


# -- proxies

FORWARDED: Headers = [
    (b"host", b"internal:9090"),
    (b"x-forwarded-proto", b"https"),
    (b"x-forwarded-host", b"gw.example.com"),
    (b"x-forwarded-for", b"203.0.113.9"),
]


def sent(headers: Headers, peer: str = "10.0.0.2", proxies: tuple[str, ...] = ("10.0.0.0/24",)) -> Sent:
    return TrustedProxies(proxies).sent(headers, peer)


def test_only_trusted_proxies_are_believed() -> None:
    assert sent(FORWARDED) == Sent("https", b"gw.example.com", "203.0.113.9")
    assert sent(FORWARDED, peer="10.0.1.2") == Sent("http", b"internal:9090", "10.0.1.2")
    assert sent(FORWARDED, proxies=()) == Sent("http", b"internal:9090", "10.0.0.2")
    assert sent(FORWARDED, peer="::ffff:10.0.0.2").scheme == "https"
    assert sent(FORWARDED, peer="").scheme == "http"
    assert sent(FORWARDED, peer="unix").scheme == "http"


def test_what_the_proxy_added_counts_and_not_what_came_before() -> None:
    spoofed: Headers = [
        (b"host", b"internal"),
        (b"x-forwarded-proto", b"https"),
        (b"x-forwarded-proto", b"http"),
        (b"x-forwarded-host", b"evil.example, gw.example.com"),
        (b"x-forwarded-for", b"1.1.1.1, 203.0.113.9, 10.0.0.7"),
    ]
    assert sent(spoofed) == Sent("http", b"gw.example.com", "203.0.113.9")


@pytest.mark.parametrize(
    ("value", "client"),
    [
        (b"", "10.0.0.2"),
        (b"unknown", "10.0.0.2"),
        (b"10.0.0.3", "10.0.0.2"),
        (b"::1", "::1"),
        (b"\xff", "10.0.0.2"),
    ],
)
def test_clients_that_cannot_be_told(value: bytes, client: str) -> None:
    assert sent([(b"host", b"h"), (b"x-forwarded-for", value)]).client == client


def test_nonsense_from_a_proxy() -> None:
    headers: Headers = [(b"host", b"h"), (b"x-forwarded-proto", b"gopher"), (b"x-forwarded-host", b"")]
    assert sent(headers) == Sent("http", b"h", "10.0.0.2")
