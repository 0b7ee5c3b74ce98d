"""The rules of a proxied call over sockets: contract 1, 2.1, 2.2, 2.3 and 2.5."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.upstream.content_length import read_length
from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.raw import FIN_WAIT_1, exchange, open_raw, tcp_state
from tests.fakes.running import JSON, Running, eventually, running

CALL = b'{"jsonrpc":"2.0","id":7,"method":"message/send","params":{}}'
ANSWER = b'{"jsonrpc":"2.0","id":7,"result":{}}'
REQUEST = (
    b"POST /a2a/echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(CALL), CALL)
)
READ = b'{"jsonrpc":"2.0","id":7,"method":"tasks/get","params":{"id":"t"}}'


@pytest.fixture
async def agent() -> AsyncIterator[FaultAgent]:
    async with FaultAgent() as fake:
        fake.always(reply.body(ANSWER))
        yield fake


@pytest.fixture(params=["direct", "asgi"])
async def gateway(request: pytest.FixtureRequest) -> AsyncIterator[Running]:
    """Both ways into the core must behave alike."""
    server = {"fast_path": request.param == "direct"}
    async with running(server=server, a2a={"agent_max_concurrency": 100, "max_request_bytes": 100_000}) as it:
        yield it


# --- 2.1: the request ---


async def test_the_body_goes_through_byte_for_byte(gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.1; pitfall 4: escapes, spaces, duplicate keys inside params, key order."""
    await gateway.register(agent)
    body = (
        b' {"params" : {"a":"\\u00e9\\/","b":1.50,"b":2e0,"c":1e400,"d":18446744073709551616},\r\n\t'
        b'"method":"x/y" , "id":7,"extra":[{"id":1}],"jsonrpc":"2.0"}  '
    )
    assert (await gateway.call(body)).content == ANSWER
    assert (await agent.received(1)).body == body


@pytest.mark.parametrize("id", ["0", '""', '"1"', "null", "-5", "18446744073709551616", '"007"', '"\\u00e9"'])
async def test_ids_come_back_with_type_and_digits(id: str, gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.1 rule 7; pitfalls 1, 2: in answers and in gateway-made errors."""
    await gateway.register(agent)
    agent.always(reply.echo())
    call = f'{{"jsonrpc":"2.0","id":{id},"method":"m"}}'.encode()
    assert f'"id":{id}'.encode() in (await gateway.call(call)).content.replace(b'"id": ', b'"id":')
    assert f'"id":{id}'.encode() in (await gateway.call(call, "unknown-agent")).content


BAD_REQUESTS: dict[str, tuple[bytes, int, Any, str]] = {
    "not JSON": (b"{bad", -32700, None, "PARSE_ERROR"),
    "empty": (b"", -32700, None, "PARSE_ERROR"),
    "BOM": (b"\xef\xbb\xbf" + CALL, -32700, None, "PARSE_ERROR"),
    "not UTF-8": (CALL[:-3] + b'{"a":"\xff"}}', -32700, None, "PARSE_ERROR"),
    "NaN": (CALL[:-2] + b'"a":NaN}}', -32700, None, "PARSE_ERROR"),
    "deep": (CALL[:-2] + b'"a":' + b"[" * 40_000 + b"]" * 40_000 + b"}}", -32700, None, "PARSE_ERROR"),
    "batch": (b"[" + CALL + b"]", -32600, None, "INVALID_REQUEST"),
    "scalar": (b"5", -32600, None, "INVALID_REQUEST"),
    "two ids": (CALL[:-1] + b',"\\u0069d":8}', -32600, None, "INVALID_REQUEST"),
    "two methods": (CALL[:-1] + b',"method":"x"}', -32600, 7, "INVALID_REQUEST"),
    "no version": (b'{"id":120,"method":"x"}', -32600, 120, "INVALID_REQUEST"),
    "empty method": (CALL.replace(b"message/send", b""), -32600, 7, "INVALID_REQUEST"),
    "id true": (CALL.replace(b":7", b":true"), -32600, None, "INVALID_REQUEST"),
    "id 1.0": (CALL.replace(b":7", b":1.0"), -32600, None, "INVALID_REQUEST"),
    "params list": (CALL.replace(b"{}", b"[]"), -32602, 7, "INVALID_PARAMS"),
    "timeout 0": (CALL.replace(b"{}", b'{"configuration":{"timeout":0}}'), -32602, 7, "INVALID_PARAMS"),
    "timeout text": (CALL.replace(b"{}", b'{"configuration":{"timeout":"5"}}'), -32602, 7, "INVALID_PARAMS"),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
async def test_bad_requests_are_answered_and_never_forwarded(
    name: str, gateway: Running, agent: FaultAgent
) -> None:
    """Contract 2.1 rules 3 to 9: the same in both dialects, HTTP 200, counted under no agent."""
    body, code, id, reason = BAD_REQUESTS[name]
    await gateway.register(agent)
    for headers in ({}, {"A2A-Version": "1.0"}):
        response = await gateway.call(body, headers=headers)
        error = response.json()["error"]
        assert (response.status_code, response.json()["id"], error["code"]) == (200, id, code)
        assert response.headers["x-gateway-error"] == reason
        assert error["data"][0]["metadata"]["category"] == "protocol"
    assert agent.requests == []
    assert await gateway.metric("kubemq_a2a_errors_total", agent_id="unknown", error_code=str(code)) == 2
    assert await gateway.metric("vitalgate_calls_total", method="unknown", outcome="protocol_error") in (2, None)


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        ("application/json; charset=utf-8", True),
        ("Application/JSON", True),
        ("application/json ;x=y", True),
        ("application/json-rpc", False),
        ("text/plain", False),
        (None, False),
    ],
)
async def test_content_type(value: str | None, accepted: bool, gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.1 rule 1 comes first: even a body that is too large or no JSON is not looked at (pitfall 11)."""
    await gateway.register(agent)
    headers = {} if value is None else {"content-type": value}
    good = await gateway.client.post("/a2a/echo", content=CALL, headers=headers)
    bad = await gateway.client.post("/a2a/echo", content=b"x" * 200_000, headers=headers)
    if accepted:
        assert good.content == ANSWER
        assert (await agent.received(1)).values("content-type") == [value]
        assert bad.status_code == 413
        return
    for response in (good, bad):
        assert response.json()["error"]["code"] == -32700
        assert response.headers["x-gateway-error"] == "CONTENT_TYPE"
    assert agent.requests == []


async def _pieces(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * 10_000


@pytest.mark.parametrize("chunked", [False, True])
async def test_large_bodies(chunked: bool, gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.1 rule 2; pitfall 49: 413 with a JSON-RPC error, also when chunked; the limit is exact."""
    await gateway.register(agent)
    content: Any = _pieces(30) if chunked else b"x" * 100_001
    response = await gateway.client.post(
        "/a2a/echo", content=content, headers={"content-type": "application/json"}
    )
    assert response.status_code == 413
    assert response.json()["error"]["code"] == -32600
    assert response.headers["x-gateway-error"] == "REQUEST_TOO_LARGE"
    padded = CALL + b" " * (100_000 - len(CALL))
    assert (await gateway.call(padded)).content == ANSWER
    assert (await agent.received(1)).body == padded


async def test_expect_continue(gateway: Running, agent: FaultAgent) -> None:
    """Pitfall 28: answered at once, not forwarded; an announced body over the limit is refused unread."""
    await gateway.register(agent)
    head = (
        b"POST /a2a/echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
    )
    reader, writer = await open_raw(gateway.port)
    writer.write(head + b"Content-Length: %d\r\n\r\n" % len(CALL))
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(CALL)
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
    assert (await agent.received(1)).values("expect") == []
    writer.close()
    answer = await exchange(gateway.port, head + b"Content-Length: 200000\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "segment",
    [
        *["Foo", "-ab", "ab-", "a", "a" * 129, "a_b", "a.b", "..", "%2e%2e", "%252e%252e", "foo%00", "%ff"],
        *["x%2Fstream", "x/stream", "foo%0a", "%66oo", "foo//", "/foo", "x/y/z"],
    ],
)
async def test_malformed_agent_ids(segment: str, gateway: Running, agent: FaultAgent) -> None:
    """Contract 1 and 2.1 rule 10; pitfalls 50, 52: read raw, refused with the caller's id."""
    await gateway.register(agent, "foo")
    await gateway.register(agent, "stream")
    answer = await exchange(
        gateway.port,
        b"POST /a2a/%b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (segment.encode(), len(CALL), CALL),
    )
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert json.loads(body)["error"]["code"] == -32600
    assert json.loads(body)["id"] == 7
    assert b"x-gateway-error: INVALID_AGENT_ID" in head
    assert agent.requests == []


@pytest.mark.parametrize("path", ["/a2a", "/a2a/"])
async def test_empty_agent_id(path: str, gateway: Running) -> None:
    """Contract 1."""
    response = await gateway.client.post(path, content=CALL, headers={"content-type": "application/json"})
    assert response.json()["error"]["code"] == -32600
    assert response.json()["error"]["message"] == "empty agent id"
    assert response.json()["id"] == 7
    unreadable = await gateway.client.post(path, content=b"{", headers={"content-type": "application/json"})
    assert unreadable.json()["error"]["code"] == -32700


async def test_a_trailing_slash_is_the_same_and_never_a_redirect(gateway: Running, agent: FaultAgent) -> None:
    """Contract 1."""
    await gateway.register(agent)
    headers = {"content-type": "application/json"}
    assert (await gateway.client.post("/a2a/echo/", content=CALL, headers=headers)).content == ANSWER


@pytest.mark.parametrize("fast_path", [True, False])
async def test_the_way_in_is_a_setting_and_is_counted(fast_path: bool, agent: FaultAgent) -> None:
    """`server.fast_path`; what is no plain call takes the other way in any case."""
    async with running(server={"fast_path": fast_path}) as gateway:
        await gateway.register(agent)
        await gateway.call(CALL)
        await gateway.client.post("/a2a/echo", content=_pieces(1), headers=JSON)
        direct = await gateway.metric("vitalgate_requests_by_path_total", path="direct")
        asgi = await gateway.metric("vitalgate_requests_by_path_total", path="asgi")
        assert (direct, asgi) == ((1, 1) if fast_path else (0, 2))


# --- 2.2: what the agent receives ---


async def test_what_the_agent_receives(gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.2: the whole request as it stands on the wire (pitfalls 23, 24, 25, 26, 33, 54, 149)."""
    await gateway.register(agent.at("/base/?k=v%2F1"))
    head = b"\r\n".join(
        [
            b"POST /a2a/echo?A2A-Version=0.3&x=y HTTP/1.1",
            b"Host: localhost:%d" % gateway.port,
            b"Content-Type: application/json; charset=utf-8",
            b"Accept: application/json",
            b"Accept: text/event-stream",
            b"X-Trace: 1",
            b"X-Trace: 2",
            b"X-API-Key: agents-own",
            b"X-A2A-Extensions: c",
            b"A2A-Extensions: a, b",
            b"X-KubeMQ-Caller-ID: root",
            b"x-kubemq-caller-id: root2",
            b"X_KubeMQ_Caller_ID: root3",
            b"Authorization: Bearer gateway-token",
            b"Cookie: a=b",
            b"Proxy-Authorization: x",
            b"X-Forwarded-For: 1.2.3.4",
            b"Forwarded: for=1.2.3.4",
            b"X-Agent-Authorization: Bearer agent-token",
            b"X-Stream-Format: envelope",
            b"Connection: close, X-Hop, X-KubeMQ-Caller-ID",
            b"X-Hop: 1",
            b"TE: trailers",
            b"Keep-Alive: 5",
            b"Accept-Encoding: gzip, br",
            b"User-Agent: me",
            b"X-Request-ID: mine-1",
            b"Via: 1.0 front",
            b"Transfer-Encoding: chunked",
            b"",
            b"%x" % len(CALL),
            CALL,
            b"0",
            b"Authorization: Bearer trailer",
            b"",
            b"",
        ]
    )
    answer = await exchange(gateway.port, head)
    assert b"x-request-id: mine-1" in answer
    seen = await agent.received(1)
    assert (seen.method, seen.target, seen.body) == ("POST", "/base/?k=v%2F1", CALL)
    names = sorted({name.lower() for name, _ in seen.headers})
    assert names == sorted(
        [
            *["host", "user-agent", "accept-encoding", "content-type", "content-length", "accept", "x-trace"],
            *["x-api-key", "x-a2a-extensions", "a2a-extensions", "a2a-version", "x-kubemq-caller-id", "via"],
            *["x-request-id"],
        ]
    )
    assert seen.values("host") == [agent.authority]
    assert seen.values("accept") == ["application/json", "text/event-stream"]
    assert seen.values("x-trace") == ["1", "2"]
    assert seen.values("x-kubemq-caller-id") == ["anonymous"]
    assert seen.values("accept-encoding") == ["identity"]
    assert seen.values("content-length") == [str(len(CALL))]
    assert seen.values("a2a-version") == ["0.3"]
    assert seen.header("user-agent").startswith("vitalgate/")  # type: ignore[union-attr]
    assert seen.header("via").startswith("1.0 front, 1.1 vitalgate-")  # type: ignore[union-attr]
    assert seen.values("content-type") == ["application/json; charset=utf-8"]


@pytest.mark.parametrize(
    ("method", "sent", "received"),
    [
        ("SendMessage", None, ["1.0"]),
        ("SendMessage", "1.1", ["1.1"]),
        ("message/send", None, []),
        ("message/send", "0.3", ["0.3"]),
        ("Unknown", None, []),
    ],
)
async def test_version_header(
    method: str, sent: str | None, received: list[str], gateway: Running, agent: FaultAgent
) -> None:
    """Contract 2.2: as the caller sent it; added as 1.0 for the methods of 1.0."""
    await gateway.register(agent)
    headers = {} if sent is None else {"A2A-Version": sent}
    await gateway.call(CALL.replace(b"message/send", method.encode()), headers=headers)
    assert (await agent.received(1)).values("a2a-version") == received


async def test_a_pascal_case_method_speaks_a2a(gateway: Running) -> None:
    """Contract, introduction: the dialect decides the codes of gateway-made errors."""
    response = await gateway.call(CALL.replace(b"message/send", b"GetTask"), "nobody")
    assert response.json()["error"]["code"] == -32603


@pytest.mark.parametrize(("dialect", "code"), [("kubemq", -32002), ("a2a", -32603)])
async def test_the_dialect_can_be_forced(dialect: str, code: int) -> None:
    async with running(a2a={"dialect": dialect}) as gateway:
        for headers in ({}, {"A2A-Version": "1.0"}):
            assert (await gateway.call(CALL, "nobody", headers)).json()["error"]["code"] == code


async def test_a_loop_is_refused(gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.2, `Via`: an agent whose url is the gateway's own."""
    await gateway.register(f"{gateway.api}/a2a/loop", "loop")
    response = await gateway.call(CALL, "loop")
    error = response.json()["error"]
    assert error["code"] == -32603
    assert error["data"][0]["reason"] == "LOOP_DETECTED"


async def test_request_ids_are_made_and_unique(gateway: Running, agent: FaultAgent) -> None:
    await gateway.register(agent)
    made = {(await gateway.call(CALL)).headers["x-request-id"] for _ in range(3)}
    assert len(made) == 3
    assert (await agent.received(3)).header("x-request-id") in made


@pytest.mark.parametrize("url", ["", "/", "/a2a/v1", "/a2a/v1/", "/a2a?k=v%2F1", "?q"])
async def test_urls_are_called_as_registered(url: str, gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.2; pitfall 33."""
    await gateway.register(f"http://{agent.authority}{url}")
    await gateway.call(CALL)
    expected = url if url.startswith("/") else f"/{url}"
    assert (await agent.received(1)).target == expected


async def test_ipv6_agents(gateway: Running) -> None:
    """Pitfall 48."""
    async with FaultAgent(host="::1") as agent:
        agent.always(reply.body(ANSWER))
        await gateway.register(f"http://[::1]:{agent.port}/x")
        assert (await gateway.call(CALL)).content == ANSWER
        assert (await agent.received(1)).values("host") == [f"[::1]:{agent.port}"]


# --- 2.5: what the caller receives ---


async def test_what_the_caller_receives(gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.5; pitfalls 22, 23, 26."""
    passed = [
        ("A2A-Version", "1.0"),
        ("X-A2A-Extensions", "a"),
        ("X-Two", "1"),
        ("X-Two", "2"),
        ("Retry-After", "3"),
    ]
    dropped = [
        *[("Set-Cookie", "a=b"), ("Server", "agent"), ("X-Powered-By", "p"), ("X-Accel-Buffering", "yes")],
        *[("X-Sendfile", "/etc/passwd"), ("X-Gateway-Error", "FAKE"), ("Connection", "X-Hop"), ("X-Hop", "1")],
        *[("Keep-Alive", "timeout=5"), ("X-Request-ID", "agents"), ("Proxy-Authenticate", "x")],
    ]
    await gateway.register(agent)
    agent.always(reply.body(ANSWER, headers=passed + dropped))
    response = await gateway.call(CALL, headers={"X-Request-ID": "mine"})
    assert response.content == ANSWER
    headers = response.headers.multi_items()
    assert [value for name, value in headers if name == "x-two"] == ["1", "2"]
    assert sorted({name for name, _ in headers}) == sorted(
        [
            *["a2a-version", "x-a2a-extensions", "x-two", "retry-after", "x-request-id"],
            *["content-type", "content-length", "date"],
        ]
    )
    assert response.headers["x-request-id"] == "mine"


# --- 2.3: time and limits ---


async def test_the_callers_timeout_counts_and_is_capped(agent: FaultAgent) -> None:
    """Contract 2.3: T of the call, else the default, capped silently."""
    async with running(a2a={"default_timeout_seconds": 0.3, "max_timeout_seconds": 0.6}) as gateway:
        await gateway.register(agent)
        agent.always(reply.hang())
        for timeout, expected in ((None, "0.3"), (0.1, "0.1"), (9.5, "0.6")):
            params = b"{}" if timeout is None else b'{"configuration":{"timeout":%f}}' % timeout
            loop = asyncio.get_running_loop()
            begun = loop.time()
            response = await gateway.call(CALL.replace(b"{}", params))
            assert float(expected) <= loop.time() - begun < float(expected) + 2
            assert response.json()["error"]["data"][0]["metadata"]["timeoutSeconds"] == expected
        assert len(agent.requests) == 3


async def test_101_parallel_calls_at_limit_100(gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.3: one is refused at once, 100 are answered."""
    await gateway.register(agent)
    go = asyncio.Event()
    agent.always(reply.after(go, reply.body(ANSWER)))
    calls = [asyncio.create_task(gateway.call(CALL)) for _ in range(100)]
    await agent.received(100)
    busy = await gateway.call(CALL)
    assert busy.json()["error"]["message"] == "server busy: concurrency limit reached"
    go.set()
    answers = await asyncio.gather(*calls)
    assert [answer.content for answer in answers] == [ANSWER] * 100
    assert (await gateway.call(CALL)).content == ANSWER


async def test_leaving_and_returning_brings_no_new_slots(agent: FaultAgent) -> None:
    """Contract 2.3: the limit holds for the agent, whatever becomes of its registration."""
    async with running(a2a={"agent_max_concurrency": 1}) as gateway:
        await gateway.register(agent)
        agent.always(reply.hang())
        flying = asyncio.create_task(gateway.call(CALL))
        await agent.received(1)
        assert (await gateway.client.delete("/agents/echo")).status_code == 200
        await gateway.register(agent)
        assert (await gateway.call(CALL)).headers["x-gateway-error"] == "SERVER_BUSY"
        flying.cancel()
        await asyncio.gather(flying, return_exceptions=True)
        await agent.all_closed()
        agent.always(reply.body(ANSWER))
        assert (await gateway.call(CALL)).content == ANSWER


async def test_a_busy_agent_starves_no_other(gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.3; pitfall 42: limits are per agent."""
    await gateway.register(agent, "slow")
    agent.always(reply.hang())
    calls = [asyncio.create_task(gateway.call(CALL, "slow")) for _ in range(100)]
    await agent.received(100)
    async with FaultAgent() as other:
        other.always(reply.body(ANSWER))
        await gateway.register(other, "quick")
        assert (await gateway.call(CALL, "quick")).content == ANSWER
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def _leave(port: int, agent: FaultAgent, how: str) -> asyncio.StreamWriter:
    before = len(agent.requests)
    _, writer = await open_raw(port)
    writer.write(REQUEST)
    await agent.received(before + 1)
    if how == "reset":
        writer.transport.abort()
    elif how == "half-close":
        writer.write_eof()
    else:
        writer.close()
    return writer


@pytest.mark.parametrize("how", ["close", "half-close", "reset"])
async def test_a_caller_that_leaves_closes_the_upstream(how: str, gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.3; pitfall 57: within 2 s, slot free, status `cancelled`, no error counted."""
    await gateway.register(agent)
    agent.always(reply.hang())
    loop = asyncio.get_running_loop()
    begun = loop.time()
    writer = await _leave(gateway.port, agent, how)
    await agent.all_closed()
    writer.close()
    assert loop.time() - begun < 2
    assert gateway.lifecycle.in_flight == 0
    status = {"agent_id": "echo", "method": "message/send", "status": "cancelled"}
    assert await gateway.metric("kubemq_a2a_requests_total", **status) == 1
    assert "kubemq_a2a_errors_total{" not in (await gateway.client.get("/metrics")).text


async def test_500_cancelled_calls_leave_nothing_behind(gateway: Running, agent: FaultAgent) -> None:
    """No slot, no connection, no task, no descriptor."""
    await gateway.register(agent)
    agent.always(reply.hang())
    tasks = len(asyncio.all_tasks())
    for wave in range(1, 6):
        callers = [await open_raw(gateway.port) for _ in range(100)]
        for _, writer in callers:
            writer.write(REQUEST)
        await agent.received(100 * wave)
        for _, writer in callers:
            writer.transport.abort()
        await agent.all_closed()
    await eventually(lambda: not gateway.lifecycle.in_flight)
    agent.always(reply.body(ANSWER))
    answers = await asyncio.gather(*(gateway.call(CALL) for _ in range(100)))
    assert [answer.content for answer in answers] == [ANSWER] * 100
    assert await gateway.metric("vitalgate_upstream_connections", state="active") == 0
    await gateway.client.aclose()
    await eventually(lambda: len(asyncio.all_tasks()) <= tasks)


async def test_connections_are_reused(gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.3: idle connections are reused."""
    await gateway.register(agent)
    for _ in range(5):
        assert (await gateway.call(CALL)).content == ANSWER
    assert len(agent.connections) == 1


@pytest.mark.parametrize(("body", "seen"), [(READ, 2), (CALL, 1)])
async def test_only_reads_are_sent_again(body: bytes, seen: int, gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.3; pitfalls 40, 41: a request written on a reused connection that closed without a byte."""
    await gateway.register(agent)
    assert (await gateway.call(CALL)).content == ANSWER
    agent.next(reply.close())
    response = await gateway.call(body)
    assert len(agent.requests) == 1 + seen
    if seen == 2:
        assert response.content == ANSWER
    else:
        assert response.headers["x-gateway-error"] == "CONNECTION_LOST"
        assert response.json()["error"]["data"][0]["metadata"]["retry"] == "unsafe"


async def test_reads_are_not_sent_again_on_a_fresh_connection(gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.3: nothing else is ever sent twice."""
    await gateway.register(agent)
    agent.always(reply.close())
    assert (await gateway.call(READ)).headers["x-gateway-error"] == "CONNECTION_LOST"
    assert len(agent.requests) == 1


async def test_a_caller_that_does_not_read_is_cut_off(agent: FaultAgent) -> None:
    """Contract 2.3: a call is over within T + buffer, however slowly the caller reads."""
    settings = {"gateway_timeout_buffer_seconds": 1, "agent_max_response_bytes": 40_000_000}
    big = b'{"jsonrpc":"2.0","id":7,"result":"' + b"x" * 30_000_000 + b'"}'
    async with running(a2a=settings) as gateway:
        await gateway.register(agent)
        agent.always(reply.body(big))
        with socket.create_connection(("127.0.0.1", gateway.port)) as slow:
            slow.sendall(REQUEST)
            await agent.received(1)
            ports = (gateway.port, slow.getsockname()[1])
            await eventually(lambda: tcp_state(*ports) == FIN_WAIT_1)  # given up, with most of it unsent
            assert sum(map(len, iter(lambda: slow.recv(1 << 20), b""))) < len(big)
        assert (await gateway.call(CALL)).content == big


# --- 1: doors ---


async def test_hostile_hosts_get_421(gateway: Running, agent: FaultAgent) -> None:
    """Contract 1: DNS rebinding from a browser, on calls and on REST."""
    await gateway.register(agent)
    headers = {"host": "evil.example"}
    response = await gateway.call(CALL, headers=headers)
    assert response.status_code == 421
    assert response.json()["error"]["data"][0]["reason"] == "HOST_NOT_ALLOWED"
    assert (await gateway.client.get("/agents", headers=headers)).status_code == 421
    assert agent.requests == []


async def test_disabled_means_404() -> None:
    """Contract 4: `a2a.enable: false`."""
    async with running(a2a={"enable": False}) as gateway:
        for path in ("/a2a/echo", "/a2a", "/agents/register"):
            assert (await gateway.client.post(path, content=CALL)).status_code == 404
        assert (await gateway.client.get("/agents")).status_code == 404
        assert (await gateway.client.get("/ready")).status_code == 200


@pytest.mark.parametrize(
    "path", ["/%61gents", "//agents", "/agents/%2e%2e", "/agents/x%2F..%2Fy", "/agents/a%00b"]
)
async def test_encoded_paths_never_reach_a_handler(path: str, gateway: Running) -> None:
    """Contract 1; pitfall 50."""
    answer = await exchange(
        gateway.port, b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path.encode()
    )
    assert answer.startswith(b"HTTP/1.1 404")
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"error": "not found"}


async def test_other_methods_on_a_call_path(gateway: Running, agent: FaultAgent) -> None:
    """Contract 1; pitfall 59."""
    await gateway.register(agent)
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        response = await gateway.client.request(method, "/a2a/echo")
        assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert (await gateway.client.post("/nope")).status_code in (404, 405)


async def test_shutdown_is_said_while_calls_in_flight_finish(agent: FaultAgent) -> None:
    """Contract 8: new calls are refused with GATEWAY_SHUTDOWN (retry safe), the running one is answered."""
    async with running(server={"drain_seconds": 10}) as gateway:
        await gateway.register(agent)
        go = asyncio.Event()
        agent.always(reply.after(go, reply.body(ANSWER)))
        flying = asyncio.create_task(gateway.call(CALL))
        await agent.received(1)
        gateway.lifecycle.stop()
        await eventually(lambda: gateway.lifecycle.refusing)
        assert (await gateway.client.get("/ready")).status_code == 503
        refused = await gateway.call(CALL)
        error = refused.json()["error"]
        assert (error["code"], error["data"][0]["reason"]) == (-32003, "GATEWAY_SHUTDOWN")
        assert error["data"][0]["metadata"]["retry"] == "safe"
        go.set()
        assert (await flying).content == ANSWER


async def test_what_is_left_after_the_drain_is_told(agent: FaultAgent) -> None:
    """Contract 8: a call that outlives the drain ends in GATEWAY_SHUTDOWN, not in a torn connection."""
    async with running(server={"drain_seconds": 0.2}) as gateway:
        await gateway.register(agent)
        agent.always(reply.hang())
        flying = asyncio.create_task(gateway.call(CALL))
        await agent.received(1)
        gateway.lifecycle.stop()
        error = (await flying).json()["error"]
        assert error["data"][0]["reason"] == "GATEWAY_SHUTDOWN"
        assert error["data"][0]["metadata"]["retry"] == "unsafe"


async def test_each_call_is_one_log_line_without_its_body(gateway: Running, agent: FaultAgent) -> None:
    """Contract 8 and 6.5."""
    await gateway.register(agent)
    secret = CALL.replace(b"{}", b'{"password":"hunter2"}')
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await gateway.call(
        secret, headers={"X-Request-ID": "r1", "traceparent": trace, "Authorization": "Bearer t0ken"}
    )
    await gateway.call(CALL, "nobody", {"X-Request-ID": "r2"})
    gateway.lifecycle.stop()
    await gateway.tasks[0]
    await eventually(lambda: '"request_id":"r2"' in gateway.log.read_text())  # written by a thread, in batches
    lines = {line["request_id"]: line for line in gateway.lines() if line["event"] == "call"}
    assert lines["r1"]["agent"] == "echo"
    assert lines["r1"]["method"] == "message/send"
    assert lines["r1"]["outcome"] == "success"
    assert lines["r1"]["status"] == 200
    assert lines["r1"]["caller"] == "anonymous"
    assert lines["r1"]["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert lines["r1"]["bytes_in"] == len(secret)
    assert lines["r1"]["bytes_out"] == len(ANSWER)
    assert (lines["r2"]["outcome"], lines["r2"]["reason"]) == ("protocol_error", "AGENT_NOT_FOUND")
    assert lines["r2"]["agent"] == "nobody"  # as it was called, registered or not: whose client is wrong
    text = gateway.log.read_text()
    assert "hunter2" not in text
    assert "t0ken" not in text


# --- lengths with many digits ---


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
async def test_a_length_with_thousands_of_zeros(version: bytes, gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.1: leading zeros are legal in a Content-Length; no 500 and no traceback on any way in."""
    await gateway.register(agent)
    head = REQUEST.replace(b"HTTP/1.1", b"HTTP/" + version).replace(b"Length: ", b"Length: " + b"0" * 5000)
    got = await exchange(gateway.port, head.replace(b"Host:", b"Connection: close\r\nHost:"))
    assert b" 200 " in got.partition(b"\r\n")[0]
    assert got.endswith(ANSWER)


async def test_a_length_with_thousands_of_zeros_for_the_registry(gateway: Running) -> None:
    """Contract 5: the same at the other routes."""
    document = b'{"agent_id":"zeros","name":"n","url":"http://127.0.0.1:1/"}'
    got = await exchange(
        gateway.port,
        b"POST /agents/register HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nContent-Length: "
        + b"0" * 5000
        + b"%d\r\n\r\n" % len(document)
        + document,
    )
    assert b" 500 " not in got.partition(b"\r\n")[0]
    assert "Traceback" not in gateway.log.read_text()


async def test_an_agents_length_with_thousands_of_zeros(gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.3: an answer is judged by what it means."""
    await gateway.register(agent)
    lines = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " + b"0" * 5000
    agent.next(reply.raw(lines + b"%d\r\n\r\n" % len(ANSWER) + ANSWER, close=True))
    assert (await gateway.call(CALL)).content == ANSWER
    assert "Traceback" not in gateway.log.read_text()


@pytest.mark.parametrize(
    ("value", "length"),
    [
        (b"0", 0),
        (b"000", 0),
        (b"0" * 5000 + b"7", 7),
        (b" 12\t", 12),
        (b"9" * 19, 10**19 - 1),
        (b"1" + b"0" * 19, 1 << 64),
        (b"9" * 5000, 1 << 64),
        *((other, None) for other in (b"", b"-1", b"+1", b"1_0", b"1, 1", b"1.0", "\u0661".encode())),
    ],
)
def test_how_a_length_is_read(value: bytes, length: int | None) -> None:
    """Contract 2.1 rule 2: what is beyond every limit need not be exact."""
    assert read_length(value) == length
