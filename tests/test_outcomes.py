"""Every row of contract 2.4, provoked over sockets, in both dialects; and what each leaves in the metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway import outcomes
from tests.fakes import certs, reply
from tests.fakes.agent import Behaviour, FaultAgent
from tests.fakes.ports import refusing_port, stuck_port
from tests.fakes.running import Running, running

CALL = b'{"jsonrpc":"2.0","id":7,"method":"message/send","params":{"text":"\\u00e9 / \\/ "}}'
NOTIFICATION = b'{"jsonrpc":"2.0","method":"message/send","params":{}}'
A2A = {"A2A-Version": "1.0"}
T = 5.0  # long enough for a busy machine; calls to agents that hang bring their own
CAP = 65536

ANSWER = b'{"jsonrpc":"2.0", "id":7,"result":{"a":1.50,"b":"\\u00e9"}}'
HTML = b"<html>no</html>"


@pytest.fixture
async def agent() -> AsyncIterator[FaultAgent]:
    async with FaultAgent() as fake:
        yield fake


@pytest.fixture(params=["direct", "asgi"])
async def gateway(request: pytest.FixtureRequest) -> AsyncIterator[Running]:
    """Both ways into the core must behave alike."""
    server = {"fast_path": request.param == "direct"}
    settings = {"default_timeout_seconds": T, "agent_max_response_bytes": CAP, "agent_max_concurrency": 2}
    async with running(server=server, a2a=settings) as it:
        yield it


def with_timeout(body: bytes, seconds: float) -> bytes:
    """Give the call with a T of its own (contract 2.3)."""
    return body.replace(b'"params":{', b'"params":{"configuration":{"timeout":%g},' % seconds).replace(b",}", b"}")


@dataclass(frozen=True)
class Row:
    """What must come of a behaviour of the agent."""

    behaviour: Behaviour
    code: int
    message: str
    reason: str
    category: str
    executed: str
    retry: str
    extra: dict[str, str] = field(default_factory=dict)
    foreign: Any = None

    @property
    def call(self) -> bytes:
        """The call that provokes it: one to an agent that hangs is impatient."""
        hangs = self.behaviour.name in ("hang", "dribble") or self.reason == "AGENT_TIMEOUT"
        return with_timeout(CALL, 0.4) if hangs else CALL

    @property
    def label(self) -> str:
        return {"application": "application_error", "transport": "transport_error"}[self.category]


def invalid(behaviour: Behaviour, detail: str) -> Row:
    message = f"invalid response: {detail}"
    return Row(behaviour, -32004, message, "INVALID_RESPONSE", "application", "true", "no")


def lost(behaviour: Behaviour) -> Row:
    message = "agent unreachable: connection lost"
    return Row(behaviour, -32003, message, "CONNECTION_LOST", "transport", "false", "unsafe")


def garbled(behaviour: Behaviour) -> Row:
    message = "agent unreachable: protocol error"
    return Row(behaviour, -32003, message, "PROTOCOL_ERROR", "transport", "false", "unsafe")


def unavailable(status: int, retry: str, body: bytes = HTML, **extra: str) -> Row:
    headers = [("Retry-After", extra["retryAfter"])] if extra else []
    return Row(
        reply.body(body, status=status, headers=headers),
        -32003,
        f"agent unavailable: HTTP {status}",
        "AGENT_UNAVAILABLE",
        "transport",
        "false",
        retry,
        {"httpStatus": str(status)} | extra,
    )


def unavailable_raw(head: bytes, retry: str, *, close: bool) -> Row:
    behaviour = reply.close(head) if close else reply.hang(head)
    return replace(unavailable(503, retry), behaviour=behaviour)


def http_error(status: int, body: bytes, foreign: Any) -> Row:
    return Row(
        reply.body(body, status=status),
        -32603,
        f"agent returned HTTP {status}",
        "AGENT_HTTP_ERROR",
        "application",
        "true",
        "no",
        {"httpStatus": str(status)},
        foreign,
    )


def too_large(behaviour: Behaviour) -> Row:
    message = "agent response too large"
    return Row(behaviour, -32603, message, "RESPONSE_TOO_LARGE", "transport", "false", "no")


def timed_out(behaviour: Behaviour) -> Row:
    extra = {"timeoutSeconds": "0.4"}
    return Row(behaviour, -32001, "agent timeout: echo", "AGENT_TIMEOUT", "transport", "false", "unsafe", extra)


OTHER_ID = b'{"jsonrpc":"2.0","id":8,"result":1}'

ROWS = {
    "another id": invalid(reply.body(OTHER_ID), "another id"),
    "id as text": invalid(reply.body(b'{"jsonrpc":"2.0","id":"7","result":1}'), "another id"),
    "id as fraction": invalid(reply.body(b'{"jsonrpc":"2.0","id":7.0,"result":1}'), "another id"),
    "no id": invalid(reply.body(b'{"jsonrpc":"2.0","result":1}'), "no id"),
    "other version": invalid(reply.body(b'{"jsonrpc":"1.0","id":7,"result":1}'), 'jsonrpc is not "2.0"'),
    "empty": invalid(reply.body(b""), "empty body"),
    "204": invalid(reply.no_content(), "empty body"),
    "html": invalid(reply.body(HTML), "not JSON: invalid character (byte 0)"),
    "cut JSON": invalid(reply.until_close(ANSWER[:20]), "not JSON: it ends too early"),
    "NaN": invalid(reply.body(b'{"jsonrpc":"2.0","id":7,"result":NaN}'), "not JSON: invalid character (byte 33)"),
    "too deep": invalid(reply.body(b'{"jsonrpc":"2.0","id":7,"result":' + b"[" * 30000), "nested too deeply"),
    "unknown coding": invalid(reply.coded(ANSWER, "br"), "undecodable content coding"),
    "broken gzip": invalid(reply.coded(b"not gzip at all", "gzip"), "undecodable content coding"),
    "ndjson": invalid(
        reply.body(ANSWER + b"\n", headers=[("Content-Type", "application/x-ndjson")]), "application/x-ndjson"
    ),
    "101": invalid(reply.switching(), "unexpected protocol upgrade"),
    **{f"{status}": invalid(reply.redirect("http://127.0.0.1:1/", status=status), f"HTTP {status}")
       for status in (301, 302, 303, 307, 308)},
    "304": invalid(reply.raw(b"HTTP/1.1 304 Not Modified\r\n\r\n"), "HTTP 304"),
    "400 html": http_error(400, HTML, HTML.decode()),
    "404 empty": http_error(404, b"", ""),
    "401 JSON": http_error(401, b'{"detail": 1.50}', {"detail": 1.5}),
    "500 other id": http_error(500, OTHER_ID, json.loads(OTHER_ID)),
    "501": http_error(501, b"x", "x"),
    "429": unavailable(429, "safe", retryAfter="7"),
    "503": unavailable(503, "safe", retryAfter="Fri, 31 Dec 2027 23:59:59 GMT"),
    "503 with an envelope": unavailable(503, "safe", ANSWER),
    "502": unavailable(502, "unsafe"),
    "504": unavailable(504, "unsafe"),
    "banner": garbled(reply.banner()),
    "garbage": garbled(reply.raw(b"\x00\x01\x02\x03 garbage\r\n\r\n", close=True)),
    "two lengths": garbled(reply.two_lengths(ANSWER, 3)),
    "length and chunked": garbled(reply.length_and_chunked(ANSWER)),
    "huge header": garbled(reply.huge_header()),
    "close": lost(reply.close()),
    "reset": lost(reply.reset()),
    "reset in the head": lost(reply.reset(b"HTTP/1.1 200 OK\r\nContent-")),
    "closed in the head": lost(reply.close(b"HTTP/1.1 200 OK\r\nContent-")),
    "short body": lost(reply.short(ANSWER)),
    "cut chunks": lost(reply.chunked(ANSWER, end=False)),
    "hang": timed_out(reply.hang()),
    "503 cut short": unavailable_raw(b"HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\n", "safe", close=True),
    "503 hanging": unavailable_raw(b"HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\n", "safe", close=False),
    "hang in the body": timed_out(reply.hang(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")),
    "dribble": timed_out(reply.dribble(reply.wire(body=ANSWER), size=1, every=0.05)),
    "too large": too_large(reply.body(b'{"a":"' + b"x" * CAP + b'"}')),
    "announced too large": too_large(reply.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10737418240\r\n\r\n{")),
    "endless": too_large(reply.endless()),
    "bomb": too_large(reply.raw(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(reply.bomb(8 << 20))
        + reply.bomb(8 << 20)
    )),
}  # fmt: skip


def check_error(response: httpx.Response, row: Row, *, a2a: bool = False, id: Any = 7) -> None:
    """Hold a gateway-made error against its row, member by member."""
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-gateway-error"] == row.reason
    body = response.json()
    assert (body["jsonrpc"], body["id"]) == ("2.0", id)
    error = body["error"]
    assert error["code"] == (-32603 if a2a and row.code in (-32001, -32002, -32003, -32004) else row.code)
    assert error["message"] == row.message
    assert error["data"][0] == {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": row.reason,
        "domain": "vitalgate",
        "metadata": {
            "source": "gateway",
            "reason": row.reason,
            "agentId": "echo",
            "category": row.category,
            "executed": row.executed,
            "retry": row.retry,
            **row.extra,
        },
    }
    assert [entry["value"] for entry in error["data"][1:]] == ([] if row.foreign is None else [row.foreign])


async def check_counted(gateway: Running, row: Row, calls: int = 2) -> None:
    requests = await gateway.metric(
        "kubemq_a2a_requests_total", agent_id="echo", method="message/send", status=row.label
    )
    errors = await gateway.metric("kubemq_a2a_errors_total", agent_id="echo", error_code=str(row.code))
    durations = await gateway.metric("kubemq_a2a_request_duration_seconds_count", agent_id="echo")
    outcomes = await gateway.metric("vitalgate_calls_total", method="message/send", outcome=row.label)
    assert (requests, errors, durations, outcomes) == (calls,) * 4


@pytest.mark.parametrize("name", ROWS)
async def test_faulty_answers(name: str, gateway: Running, agent: FaultAgent) -> None:
    """Each row, in KubeMQ's and in A2A's dialect, and the slot is free again afterwards."""
    row = ROWS[name]
    await gateway.register(agent)
    agent.always(row.behaviour)
    for headers, a2a in (({}, False), (A2A, True)):
        response = await gateway.call(row.call, headers=headers)
        check_error(response, row, a2a=a2a)
        assert response.headers.get("retry-after") == row.extra.get("retryAfter")
    await check_counted(gateway, row)
    assert gateway.lifecycle.in_flight == 0
    agent.always(reply.body(ANSWER))
    assert (await gateway.call(CALL)).content == ANSWER


@pytest.mark.parametrize("name", ["html", "500 other id", "503", "close", "hang", "too large"])
async def test_notifications_are_answered_202_whatever_becomes_of_them(
    name: str, gateway: Running, agent: FaultAgent
) -> None:
    """Contract 2.1; the failure shows in the metrics. Bodies of 2xx are nobody's answer and are not judged."""
    await gateway.register(agent)
    agent.always(ROWS[name].behaviour)
    response = await gateway.call(with_timeout(NOTIFICATION, 0.4) if name == "hang" else NOTIFICATION)
    assert (response.status_code, response.content) == (202, b"")
    label = "success" if name == "html" else ROWS[name].label
    found = await gateway.metric("kubemq_a2a_requests_total", agent_id="echo", method="message/send", status=label)
    assert found == 1


VERBATIM = {
    "result": (reply.body(ANSWER), ANSWER, "success"),
    "text/plain": (reply.body(ANSWER, headers=[("Content-Type", "text/plain")]), ANSWER, "success"),
    "neither": (reply.body(b'{"id":7,"jsonrpc":"2.0"}'), b'{"id":7,"jsonrpc":"2.0"}', "success"),
    "201": (reply.body(ANSWER, status=201), ANSWER, "success"),
    "chunked": (reply.chunked(ANSWER, size=9), ANSWER, "success"),
    "until close": (reply.until_close(ANSWER), ANSWER, "success"),
    "HTTP/1.0": (reply.http10(ANSWER), ANSWER, "success"),
    "gzip": (reply.coded(reply.gzip(ANSWER), "gzip"), ANSWER, "success"),
    "deflate": (reply.coded(reply.deflate(ANSWER), "deflate"), ANSWER, "success"),
    "103 first": (reply.interim(reply.body(ANSWER)), ANSWER, "success"),
    "exactly the cap": (
        reply.body(ANSWER[:-1] + b" " * (CAP - len(ANSWER)) + b"}"),
        ANSWER[:-1] + b" " * (CAP - len(ANSWER)) + b"}",
        "success",
    ),
    "error": (
        reply.body(b'{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Task not found"}}'),
        b'{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Task not found"}}',
        "application_error",
    ),
    "error under 500": (
        reply.body(b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m","data":{"k":1}}}', status=500),
        b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m","data":{"k":1}}}',
        "application_error",
    ),
    "result under 404": (reply.body(ANSWER, status=404), ANSWER, "application_error"),
    "error with id null": (
        reply.body(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}'),
        b'{"jsonrpc":"2.0","id":7,"error":{"code":-32700,"message":"m"}}',
        "application_error",
    ),
    "no envelope": (
        reply.body(b'{"Output": 1.50}'),
        b'{"jsonrpc":"2.0","id":7,"result":{"Output": 1.50}}',
        "success",
    ),
    "null": (reply.body(b"null"), b'{"jsonrpc":"2.0","id":7,"result":null}', "success"),
}


@pytest.mark.parametrize("name", VERBATIM)
async def test_answers_that_pass(name: str, gateway: Running, agent: FaultAgent) -> None:
    """The agent's bytes, verbatim, with one correct framing and without the gateway's mark."""
    behaviour, expected, status = VERBATIM[name]
    await gateway.register(agent)
    agent.always(behaviour)
    for headers in ({}, A2A):
        response = await gateway.call(CALL, headers=headers)
        assert (response.status_code, response.content) == (200, expected)
        assert response.headers["content-type"] == "application/json"
        assert response.headers["content-length"] == str(len(expected))
        assert "x-gateway-error" not in response.headers
        assert "content-encoding" not in response.headers
        assert "transfer-encoding" not in response.headers
    found = await gateway.metric(
        "kubemq_a2a_requests_total", agent_id="echo", method="message/send", status=status
    )
    assert found == 2
    assert await gateway.metric("kubemq_a2a_errors_total", agent_id="echo", error_code="-32004") is None


# --- no connection ---


def unreachable(what: str) -> Row:
    message = f"agent unreachable: {what}"
    return Row(reply.hang(), -32003, message, "AGENT_UNREACHABLE", "transport", "false", "safe")


async def check_both(gateway: Running, row: Row) -> None:
    check_error(await gateway.call(row.call), row)
    check_error(await gateway.call(row.call, headers=A2A), row, a2a=True)
    await check_counted(gateway, row)


async def test_refused(gateway: Running) -> None:
    with refusing_port() as port:
        await gateway.register(f"http://127.0.0.1:{port}/")
        await check_both(gateway, unreachable("connection refused"))


@pytest.mark.parametrize("host", ["nope.invalid", "xn--nxasmq6b.invalid"])
async def test_no_such_name(host: str, gateway: Running) -> None:
    """Pitfall 38. `.invalid` never resolves (RFC 6761)."""
    await gateway.register(f"http://{host}/")
    await check_both(gateway, unreachable("DNS failure"))


async def test_no_answer_to_the_connect(gateway: Running) -> None:
    """The deadline passes while connecting: the agent has seen nothing, so sending again is safe."""
    with stuck_port() as port:
        await gateway.register(f"http://127.0.0.1:{port}/")
        row = timed_out(reply.hang())
        await check_both(gateway, Row(*[*_positional(row)[:6], "safe", row.extra]))


def _positional(row: Row) -> list[Any]:
    return [row.behaviour, row.code, row.message, row.reason, row.category, row.executed, row.retry, row.extra]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> certs.Authority:
    return certs.Authority(Path(tmp_path_factory.mktemp("certs")))


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("self-signed", "TLS failure: self-signed certificate"),
        ("expired", "TLS failure: certificate expired"),
        ("wrong-name", "TLS failure: certificate is for another name"),
    ],
)
async def test_certificates_are_verified(kind: Any, what: str, authority: certs.Authority) -> None:
    """Contract 2.2: TLS verified, `upstream.ca_file` for private authorities (pitfall 38)."""
    async with running(upstream={"ca_file": str(authority.ca_file)}) as gateway:
        async with FaultAgent(tls=authority.server(kind)) as agent:
            agent.always(reply.body(ANSWER))
            await gateway.register(agent)
            check_error(await gateway.call(CALL), unreachable(what))
            assert agent.requests == []


async def test_a_private_authority_and_a_client_certificate(authority: certs.Authority) -> None:
    mine = authority.issue("client")
    upstream = {
        "ca_file": str(authority.ca_file),
        "client_cert": str(mine.certificate),
        "client_key": str(mine.key),
    }
    async with running(upstream=upstream) as gateway:
        async with FaultAgent(tls=authority.server("valid", client_required=True)) as agent:
            agent.always(reply.body(ANSWER))
            await gateway.register(agent)
            assert (await gateway.call(CALL)).content == ANSWER


async def test_skip_verify_is_for_development(authority: certs.Authority) -> None:
    """Contract 4: `a2a.agent_tls_skip_verify`."""
    async with running(a2a={"agent_tls_skip_verify": True}) as gateway:
        async with FaultAgent(tls=authority.server("expired")) as agent:
            agent.always(reply.body(ANSWER))
            await gateway.register(agent)
            assert (await gateway.call(CALL)).content == ANSWER


async def test_tls_to_a_plain_port(gateway: Running, agent: FaultAgent) -> None:
    agent.always(reply.banner())
    await gateway.register(agent.url.replace("http:", "https:"))
    check_error(await gateway.call(CALL), unreachable("TLS failure: the agent does not speak TLS"))


# --- the gateway's own refusals ---


async def test_address_not_allowed() -> None:
    """Contract 6.3: a name is judged at connect time, after resolution."""
    async with running(upstream={"deny_hosts": ["127.0.0.0/8", "::1/128"]}) as gateway:
        async with FaultAgent() as agent:
            await gateway.register(f"http://localhost:{agent.port}/")
            row = Row(
                reply.hang(),
                -32003,
                "agent unreachable: address not allowed",
                "ADDRESS_NOT_ALLOWED",
                "transport",
                "false",
                "no",
            )
            await check_both(gateway, row)
            assert agent.requests == []


async def test_credential_missing_and_credential_sent(agent: FaultAgent) -> None:
    """Contract 6.4: the gateway's credential for an agent, from a variable that may be unset."""
    settings = {"credentials": {"echo": {"bearer_env": "ECHO_TOKEN"}}}
    agent.always(reply.body(ANSWER))
    row = Row(
        reply.hang(),
        -32003,
        "agent unreachable: credential not available",
        "CREDENTIAL_MISSING",
        "transport",
        "false",
        "no",
    )
    for unusable in (None, "", " ", "a b", "a\r\nX-Evil: 1", "a\n", "\udcff", "é"):
        environ = {} if unusable is None else {"ECHO_TOKEN": unusable}
        async with running(upstream=settings, environ=environ, health={"enable": False}) as gateway:
            await gateway.register(agent)
            check_error(await gateway.call(CALL), row)
            check_error(await gateway.call(CALL, headers=A2A), row, a2a=True)
            assert agent.requests == []
    async with running(upstream=settings, environ={"ECHO_TOKEN": "s3cret"}) as gateway:
        await gateway.register(agent)
        assert (await gateway.call(CALL, headers={"Authorization": "Bearer mine"})).content == ANSWER
        assert (await agent.received(1)).values("authorization") == ["Bearer s3cret"]
        assert "s3cret" not in gateway.log.read_text()


async def test_server_busy(gateway: Running, agent: FaultAgent) -> None:
    """Contract 2.3: refused at once, never queued; nothing was forwarded, so only the error is counted."""
    await gateway.register(agent)
    agent.always(reply.hang())
    waiting = [asyncio.create_task(gateway.call(with_timeout(CALL, 2))) for _ in range(2)]
    await agent.received(2)
    row = Row(
        reply.hang(),
        -32603,
        "server busy: concurrency limit reached",
        "SERVER_BUSY",
        "transport",
        "false",
        "safe",
    )
    check_error(await gateway.call(CALL), row)
    check_error(await gateway.call(CALL, headers=A2A), row, a2a=True)
    assert await gateway.metric("kubemq_a2a_errors_total", agent_id="echo", error_code="-32603") == 2
    for response in await asyncio.gather(*waiting):
        assert response.headers["x-gateway-error"] == "AGENT_TIMEOUT"


async def test_agent_not_found(gateway: Running) -> None:
    """The id is echoed, and an id that nobody registered makes no series (contract 7)."""
    for headers, code in (({}, -32002), (A2A, -32603)):
        response = await gateway.call(CALL, "nobody", headers)
        error = response.json()["error"]
        assert (response.status_code, response.json()["id"]) == (200, 7)
        assert (error["code"], error["message"]) == (code, "agent not found: nobody")
        metadata = error["data"][0]["metadata"]
        assert (metadata["category"], metadata["executed"], metadata["retry"]) == ("protocol", "false", "no")
        assert metadata["agentId"] == "nobody"
    assert await gateway.metric("kubemq_a2a_errors_total", agent_id="unknown", error_code="-32002") == 2
    assert "nobody" not in (await gateway.client.get("/metrics")).text


async def test_a_fault_of_our_own_is_an_internal_error_and_frees_the_slot(
    gateway: Running, agent: FaultAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contract 2.4, last row: provoked by breaking the reader of answers."""

    def broken(*_: Any) -> None:
        raise RuntimeError("broken on purpose")

    await gateway.register(agent)
    agent.always(reply.body(ANSWER))
    with monkeypatch.context() as patch:
        patch.setattr(outcomes, "of_answer", broken)
        row = Row(reply.hang(), -32603, "internal error", "INTERNAL", "internal", "false", "no")
        check_error(await gateway.call(CALL), row)
    assert gateway.lifecycle.in_flight == 0
    assert (await gateway.call(CALL)).content == ANSWER
    assert "broken on purpose" not in (await gateway.client.get("/metrics")).text
