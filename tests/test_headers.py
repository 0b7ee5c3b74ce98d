"""Which headers go on and which stop: contract 2.2 and 2.5, without a socket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.headers import RequestHeaders, caller_line, is_json, read_answer


def lines(*headers: tuple[bytes, bytes], also: tuple[str, ...] = ()) -> list[bytes]:
    return RequestHeaders(also).read(list(headers)).lines


@pytest.mark.parametrize(
    "name",
    [
        *b"accept accept-language a2a-extensions x-a2a-extensions x-api-key x-trace traceparent".split(),
        *b"tracestate baggage last-event-id a2a-anything".split(),
    ],
)
def test_forwarded(name: bytes) -> None:
    """Contract 2.2 row 1, multiplicity kept (pitfall 26)."""
    assert lines((name, b"1"), (name, b"2")) == [name + b": 1\r\n", name + b": 2\r\n"]


@pytest.mark.parametrize(
    "name",
    [
        *b"authorization cookie proxy-authorization x-forwarded-for x-forwarded-host x-real-ip forwarded".split(),
        *b"keep-alive te trailer transfer-encoding upgrade proxy-connection proxy-x expect host".split(),
        *b"content-length accept-encoding x-kubemq-caller-id x_kubemq_caller_id x-kubemq_caller-id".split(),
        *b"x-agent-authorization x-stream-format x-a_b user-agent content-encoding origin referer".split(),
    ],
)
@pytest.mark.parametrize("also", [False, True])
def test_never_forwarded(name: bytes, also: bool) -> None:
    """Contract 2.2 rows 2-4: also when `a2a.forward_headers` names them (but not what no row forbids)."""
    if also and name in (b"origin", b"referer"):
        return
    assert lines((name, b"1"), also=(name.decode().title(),) if also else ()) == []


def test_more_headers_by_setting() -> None:
    """Contract 2.2: `a2a.forward_headers` adds names."""
    assert lines((b"origin", b"o"), also=("Origin",)) == [b"origin: o\r\n"]


def test_connection_removes_what_it_names() -> None:
    """Contract 2.2: hop-by-hop by `Connection`, in any case (pitfall 23); the version too."""
    inbound = RequestHeaders().read(
        [
            (b"connection", b"close, X-Hop, a2a-version"),
            (b"x-hop", b"1"),
            (b"x-stay", b"1"),
            (b"a2a-version", b"1.0"),
        ]
    )
    assert inbound.lines == [b"x-stay: 1\r\n"]
    assert inbound.version is None


def test_what_the_gateway_reads() -> None:
    """The first of each singleton counts; a request id must be usable in a header and a log line."""
    inbound = RequestHeaders().read(
        [
            (b"content-type", b"application/json"),
            (b"content-type", b"text/plain"),
            (b"a2a-version", b"0.3"),
            (b"x-request-id", b"with space"),
            (b"x-request-id", b"ok-1"),
            (b"via", b"1.1 a"),
            (b"via", b"1.1 b"),
            (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ]
    )
    assert inbound.content_type == b"application/json"
    assert inbound.version == b"0.3"
    assert inbound.request_id == b"ok-1"
    assert inbound.via == [b"1.1 a", b"1.1 b"]
    assert inbound.traceparent.startswith(b"00-0af7")


@pytest.mark.parametrize("name", [b"a2a-version", b"x-thing", b"x-a2a-extensions", b"retry-after"])
def test_passed_back(name: bytes) -> None:
    """Contract 2.5."""
    assert read_answer([(name, b"v"), (name, b"w")]).lines == [name + b": v\r\n", name + b": w\r\n"]


@pytest.mark.parametrize(
    "name",
    [
        *b"set-cookie server connection keep-alive transfer-encoding content-length content-encoding".split(),
        *b"x-powered-by x-accel-buffering x-accel-redirect x-sendfile x-gateway-error x-request-id".split(),
        *b"trailer date upgrade proxy-authenticate www-authenticate".split(),
        *b"x-gateway_error x_request-id x-a_b a2a_version a2a-x_y".split(),
    ],
)
def test_never_passed_back(name: bytes) -> None:
    """Contract 2.5 and 2.4 (`X-Gateway-Error` is the gateway's alone, also spelled as CGI reads it)."""
    assert read_answer([(name, b"v")]).lines == []


def test_the_agents_connection_removes_what_it_names() -> None:
    """Pitfall 23, on the way back."""
    answer = read_answer([(b"x-hop", b"1"), (b"connection", b"X-Hop"), (b"x-stay", b"1")])
    assert answer.lines == [b"x-stay: 1\r\n"]


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (b"application/json", True),
        (b"application/json; charset=utf-8", True),
        (b"Application/JSON", True),
        (b" application/json ;x=y", True),
        (b"application/json; charset=bogus", True),
        (b"application/json-rpc", False),
        (b"text/plain", False),
        (b"", False),
        (None, False),
    ],
)
def test_content_types(value: bytes | None, verdict: bool) -> None:
    """Contract 2.1 rule 1; pitfall 11."""
    assert is_json(value) is verdict


@given(st.text(st.characters(), min_size=1), st.text(st.characters(), min_size=1))
def test_two_principals_never_become_one(one: str, other: str) -> None:
    """Contract 2.2: only visible ASCII reaches the wire, and the encoding is reversible."""
    written = caller_line(one)
    assert written.endswith(b"\r\n")
    assert all(0x20 < byte < 0x7F for byte in written.removeprefix(b"X-KubeMQ-Caller-ID: ").removesuffix(b"\r\n"))
    assert (written == caller_line(other)) == (one == other)


def test_a_flood_of_names_is_judged_but_not_remembered() -> None:
    """The table that learns is bounded."""
    rules = RequestHeaders()
    for number in range(3000):
        assert rules.read([(b"x-%d" % number, b"v")]).lines == [b"x-%d: v\r\n" % number]
    assert len(rules._table) <= 1024
