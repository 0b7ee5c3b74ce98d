"""Who may call, over real sockets and through both doors: contract 2.6, 6.1, 6.4, 6.5; pitfalls 105, 135-149."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.fakes import issuer, reply
from tests.fakes.agent import FaultAgent
from tests.fakes.issuer import SECRET, bearer, token
from tests.fakes.raw import exchange
from tests.fakes.running import Running, eventually, running

AUTH = {"enable": True, "secret_env": "JWT_SECRET"}
ENVIRON = {"JWT_SECRET": SECRET}
CALL = {"jsonrpc": "2.0", "id": 5, "method": "message/send", "params": {}}
V1 = {"a2a-version": "1.0"}
#: The way in: straight from the connection, or over ASGI.
DOORS = pytest.mark.parametrize("fast_path", [True, False], ids=["direct", "asgi"])
BAD = {
    "none": {},
    "expired": bearer(token(exp=1)),
    "unsigned": bearer(issuer.forged(json.dumps(issuer.claims()).encode(), {"alg": "none"}, SECRET, "none")),
    "of another": bearer(token("another secret of 32 bytes or even more")),
    "no token": bearer("x"),
    "no principal": bearer(token(sub=None)),
    "another scheme": {"authorization": f"Basic {token()}"},
    "huge": bearer("x" * 20_000),
    "dots": bearer("." * 5_000),
}


@asynccontextmanager
async def secured(
    *, fast_path: bool = True, auth: Mapping[str, Any] | None = None, **sections: Mapping[str, Any]
) -> AsyncIterator[tuple[Running, FaultAgent]]:
    """A gateway with authentication, and an agent of alice's."""
    sections["server"] = {"fast_path": fast_path, **sections.get("server", {})}
    async with (
        FaultAgent() as agent,
        running(environ=ENVIRON, auth={**AUTH, **(auth or {})}, **sections) as gateway,
    ):
        card = {"agent_id": "echo", "name": "echo", "url": agent.url}
        answer = await gateway.client.post("/agents/register", json=card, headers=bearer(token()))
        assert answer.status_code == 200, answer.text
        yield gateway, agent


def error(answer: httpx.Response) -> dict[str, Any]:
    assert answer.headers["content-type"] == "application/json"
    found = answer.json()["error"]
    assert found["data"][0]["domain"] == "vitalgate"
    assert answer.headers["x-gateway-error"] == found["data"][0]["reason"]
    return {"code": found["code"], "reason": found["data"][0]["reason"], "message": found["message"]}


UNAUTHENTICATED = {"code": -32010, "reason": "UNAUTHENTICATED", "message": "invalid token"}


# -- 2.6: no good token


@DOORS
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_a_bad_token_is_refused_in_both_dialects(bad: dict[str, str], fast_path: bool) -> None:
    async with secured(fast_path=fast_path) as (gateway, agent):
        kubemq = await gateway.call(CALL, headers=bad)
        a2a = await gateway.call(CALL, headers=bad | V1)
        query = await gateway.client.post("/a2a/echo?A2A-Version=1.0", json=CALL, headers=bad)
        v1 = await gateway.call(CALL | {"method": "SendMessage"}, headers=bad)
        assert [it.status_code for it in (kubemq, a2a, query, v1)] == [200, 401, 401, 401]
        challenge = 'Bearer realm="vitalgate"' + (', error="invalid_token"' if bad else "")
        for answer in (kubemq, a2a, query, v1):
            assert error(answer) == UNAUTHENTICATED
            assert answer.json()["id"] == 5
            assert answer.headers["www-authenticate"] == challenge
        rest = await gateway.client.get("/agents", headers=bad)
        assert (rest.status_code, rest.json()) == (401, {"error": "invalid token"})
        assert rest.headers["www-authenticate"] == challenge
        assert not agent.requests


async def test_a_known_token_takes_the_direct_way() -> None:
    """Performance: only the first call with a token goes over ASGI, where it can be verified at leisure."""
    async with secured() as (gateway, _):
        good, other = bearer(token(n=1)), bearer(token(n=2))  # neither is the one that has registered the agent
        for headers in (good, good, other, other, other, BAD["expired"]):
            await gateway.call(CALL, headers=headers)
        page = (await gateway.client.get("/metrics", headers=good)).text
        assert 'vitalgate_requests_by_path_total{path="direct"} 3\n' in page
        assert 'vitalgate_requests_by_path_total{path="asgi"} 3\n' in page


@DOORS
async def test_a_forced_dialect_decides_the_status(fast_path: bool) -> None:
    for dialect, status in (("kubemq", 200), ("a2a", 401)):
        async with secured(fast_path=fast_path, a2a={"dialect": dialect}) as (gateway, _):
            for headers in ({}, V1):
                assert (await gateway.call(CALL, headers=headers)).status_code == status


@DOORS
async def test_several_authorization_headers_are_none(fast_path: bool) -> None:
    """Pitfall 145; also once the token is remembered."""
    async with secured(fast_path=fast_path) as (gateway, agent):
        good = bearer(token())
        assert (await gateway.call(CALL, headers=good)).json()["id"] == 5
        assert len(agent.requests) == 1
        for second in (good["authorization"], "Basic x", ""):
            pairs = [*good.items(), ("Authorization", second), ("content-type", "application/json")]
            answer = await gateway.client.post("/a2a/echo", json=CALL, headers=httpx.Headers(pairs))
            assert error(answer) == UNAUTHENTICATED
        assert len(agent.requests) == 1


@DOORS
async def test_tokens_elsewhere_do_not_count(fast_path: bool) -> None:
    """Pitfall 145: not in the query, a cookie, another header, a trailer."""
    async with secured(fast_path=fast_path) as (gateway, agent):
        good = token()
        for query in (f"access_token={good}", f"token={good}", f"Authorization=Bearer%20{good}"):
            assert error(await gateway.client.post(f"/a2a/echo?{query}", json=CALL)) == UNAUTHENTICATED
        for name in (
            "cookie",
            "x-authorization",
            "proxy-authorization",
            "x-agent-authorization",
            "authorization_",
        ):
            assert error(await gateway.call(CALL, headers={name: f"Bearer {good}"})) == UNAUTHENTICATED
        body = json.dumps(CALL).encode()
        sent = (
            b"POST /a2a/echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Content-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\nAuthorization: Bearer %b\r\n\r\n"
        ) % (len(body), body, good.encode())
        assert b'"UNAUTHENTICATED"' in await exchange(gateway.port, sent)
        assert not agent.requests


@DOORS
@pytest.mark.parametrize(
    ("body", "id"),
    [
        (CALL | {"id": "x"}, "x"),
        (b'{"jsonrpc":"2.0","id":18446744073709551616,"method":"m"}', 18446744073709551616),
        (CALL | {"id": None}, None),
        (b'{"jsonrpc":"2.0","method":"m"}', None),
        (b"", None),
        (b"{bad", None),
        (b"[]", None),
        (b'{"jsonrpc":"1.0","id":3,"method":"m"}', 3),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', None),
        (b"[" * 50_000, None),
        (json.dumps(CALL | {"params": {"x": "y" * 66_000}}).encode(), None),
    ],
)
async def test_the_id_of_a_refused_call_is_echoed_if_it_can_be_read(body: Any, id: Any, fast_path: bool) -> None:
    """Pitfall 147: at most 64 KiB are read; a notification is refused like any call."""
    async with secured(fast_path=fast_path) as (gateway, agent):
        answer = await gateway.call(body)
        assert error(answer) == UNAUTHENTICATED
        assert answer.json()["id"] == id
        assert not agent.requests


@DOORS
async def test_nothing_is_told_before_the_token(fast_path: bool) -> None:
    """Pitfall 147: not whether there is such an agent, nor what else is wrong with the call."""
    async with secured(fast_path=fast_path) as (gateway, agent):
        known = await gateway.call(CALL)
        for other in (
            await gateway.call(CALL, "other"),
            await gateway.call(CALL | {"jsonrpc": 5}),
            await gateway.call(CALL, headers={"content-type": "text/plain"}),
            await gateway.call(CALL, headers={"via": "1.1 vitalgate"}),
            await gateway.call(CALL | {"method": "message/stream"}),
        ):
            assert (other.status_code, error(other), other.json()["id"]) == (200, error(known), 5)
        for path in ("/a2a/Bad_Id", "/a2a/..%2f", "/a2a", "/a2a/", "/a2a/echo/more"):
            assert error(await gateway.client.post(path, json=CALL)) == UNAUTHENTICATED
        stream = await gateway.client.get("/a2a/echo/stream")
        assert (error(stream), stream.json()["id"]) == (UNAUTHENTICATED, None)
        assert not agent.requests


async def test_a_large_body_of_a_stranger_is_not_taken_in() -> None:
    """Contract 2.1: announced as large, it is refused unread."""
    async with secured() as (gateway, _):
        head = b"POST /a2a/echo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        answer = await exchange(gateway.port, head + b"Content-Length: 9000000\r\nExpect: 100-continue\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b'"id":null' in answer
        assert b"100 Continue" not in answer


# -- contract 1: what is public

PUBLIC = [
    "/live",
    "/ready",
    "/health",
    "/schema",
    "/",
    "/.well-known/agent-card.json",
    "/.well-known/agent.json",
    "/a2a/echo/.well-known/agent-card.json",
    "/a2a/echo/.well-known/agent.json",
    "/a2a/.well-known/agent-card.json",
    "/a2a/echo",
    "/a2a/echo/",
]
PRIVATE = [
    ("GET", "/agents"),
    ("GET", "/agents/"),
    ("GET", "/agents/echo"),
    ("GET", "/agents/register"),
    ("GET", "/agents/echo/health"),
    ("GET", "/agents/echo/health/history"),
    ("GET", "/health/agents"),
    ("GET", "/events"),
    ("GET", "/nodes"),
    ("GET", "/metrics"),
    ("GET", "/nope"),
    ("GET", "/live/x"),
    ("GET", "/livex"),
    ("GET", "/x/live"),
    ("GET", "/schema/openapi.json"),
    ("GET", "/a2a/echo/x"),
    ("GET", "/a2a/echo/stream"),
    ("GET", "/a2a/echo/.well-known/agent-card.json/x"),
    ("GET", "/agents/.well-known/agent-card.json"),
    ("HEAD", "/agents"),
    ("DELETE", "/agents/echo"),
    ("DELETE", "/live"),
    ("POST", "/live"),
    ("POST", "/schema"),
    ("POST", "/.well-known/agent-card.json"),
    ("POST", "/agents/register"),
    ("POST", "/agents/heartbeat"),
    ("POST", "/agents/deregister"),
    ("POST", "/agents/echo/health/check"),
    ("PUT", "/agents/echo"),
    ("OPTIONS", "/agents"),
    ("PATCH", "/agents"),
]


async def test_public_routes_are_exactly_those_of_the_contract() -> None:
    async with secured() as (gateway, _):
        for path in PUBLIC:
            for method in ("GET", "HEAD"):
                answer = await gateway.client.request(method, path)
                assert answer.status_code not in (401, 403), path
        for method, path in PRIVATE:
            answer = await gateway.client.request(method, path)
            if not (method == "GET" and path == "/a2a/echo/stream"):
                assert answer.status_code == 401, (method, path)
                assert method == "HEAD" or answer.json() == {"error": "invalid token"}
        for path in ("/%61gents", "//agents", "/agents%2fecho", "/live/../agents", "/agents/%2e%2e/live"):
            answer = await exchange(
                gateway.port, b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path.encode()
            )
            assert answer.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 401 ")), path
        assert (await gateway.client.get("/agents", headers=bearer(token()))).status_code == 200
        assert (await gateway.client.get("/metrics", headers=bearer(token()))).status_code == 200


# -- 2.2: who the agent hears of


@DOORS
async def test_the_agent_hears_who_calls_and_nothing_of_the_token(fast_path: bool) -> None:
    """Pitfalls 148, 149: on calls and on streams, remembered or not, whatever the caller sends."""
    spoofed = {
        "X-KubeMQ-Caller-ID": "root",
        "x-kubemq-caller-id ": "root",
        "X_KubeMQ_Caller_ID": "root",
        "x-kubemq-caller_id": "root",
        "Connection": "X-KubeMQ-Caller-ID, keep-alive",
        "Cookie": "session=1",
        "Proxy-Authorization": "Basic x",
        "X-Forwarded-User": "root",
        "X-API-Key": "the agent's own",
    }
    del spoofed["x-kubemq-caller-id "]
    async with secured(fast_path=fast_path) as (gateway, agent):
        good = token()
        for method in ("message/send", "message/send", "message/stream"):
            answer = await gateway.call(CALL | {"method": method}, headers=spoofed | bearer(good))
            assert answer.json()["id"] == 5
        push = await gateway.client.get("/a2a/echo/stream", headers=spoofed | bearer(good))
        assert push.status_code == 200
        assert len(agent.requests) == 4
        for request in agent.requests:
            names = [name.lower().replace("_", "-") for name, _ in request.headers]
            assert names.count("x-kubemq-caller-id") == 1
            assert request.header("x-kubemq-caller-id") == "alice"
            assert not {"authorization", "cookie", "proxy-authorization", "x-forwarded-user"} & set(names)
            assert request.header("x-api-key") == "the agent's own"
            assert good.encode() not in request.raw


@DOORS
async def test_principals_stay_apart_in_the_header(fast_path: bool) -> None:
    """Contract 2.2: one header line, visible ASCII, and two principals never become one."""
    principals = [
        "a\r\nX-Evil: 1",
        "a%0D%0AX-Evil:%201",
        "a b",
        "a%20b",
        "a\tb",
        "ä",
        "%C3%A4",
        "Ä",
        "a",
        "A",
        " a",
        "a ",
    ]
    async with secured(fast_path=fast_path) as (gateway, agent):
        for principal in principals:
            for _ in range(2):
                assert "result" in (await gateway.call(CALL, headers=bearer(token(sub=principal)))).json()
        seen = [request.header("x-kubemq-caller-id") for request in agent.requests]
        assert len(set(seen)) == len(principals)
        assert all(name and name.isascii() and name.isprintable() and " " not in name for name in seen)
        assert not any(request.header("x-evil") for request in agent.requests)


# -- ownership: contract 5.1, 5.2


async def test_agents_belong_to_who_registered_them() -> None:
    """Pitfall 105."""
    async with secured() as (gateway, agent):
        alice, bob = bearer(token()), bearer(token(sub="bob"))
        card = {"agent_id": "echo", "name": "stolen", "url": "http://127.0.0.1:1/"}
        for path, document in (
            ("/agents/register", card),
            ("/agents/heartbeat", {"agent_id": "echo"}),
            ("/agents/deregister", {"agent_id": "echo"}),
        ):
            answer = await gateway.client.post(path, json=document, headers=bob)
            assert (answer.status_code, answer.json()) == (
                403,
                {"error": "the agent belongs to another principal"},
            )
        assert (await gateway.client.delete("/agents/echo", headers=bob)).status_code == 403
        shown = (await gateway.client.get("/agents/echo", headers=bob)).json()
        assert (shown["name"], shown["registered_by"]) == ("echo", "alice")
        assert "result" in (await gateway.call(CALL, headers=bob)).json()
        assert len(agent.requests) == 1
        for path, document in (
            ("/agents/register", card),
            ("/agents/heartbeat", card),
            ("/agents/deregister", card),
        ):
            assert (await gateway.client.post(path, json=document, headers=alice)).status_code == 200


async def test_an_agent_of_nobody_is_claimed_by_registering_and_that_is_logged(tmp_path: Any) -> None:
    store = {"url": f"sqlite:///{tmp_path}/registry.db"}
    card = {"agent_id": "echo", "name": "echo", "url": "http://127.0.0.1:1/"}
    async with running(registry=store) as gateway:
        assert (await gateway.client.post("/agents/register", json=card)).status_code == 200
    async with running(registry=store, environ=ENVIRON, auth=AUTH) as gateway:
        alice, bob = bearer(token()), bearer(token(sub="bob"))
        beat = await gateway.client.post("/agents/heartbeat", json=card, headers=alice)
        assert beat.status_code == 200
        shown = (await gateway.client.get("/agents/echo", headers=alice)).json()
        assert shown["registered_by"] == "anonymous"  # a heartbeat claims nothing
        assert (await gateway.client.post("/agents/register", json=card, headers=bob)).json()[
            "registered_by"
        ] == "bob"
        assert (await gateway.client.post("/agents/heartbeat", json=card, headers=alice)).status_code == 403
        await eventually(lambda: "had no owner" in gateway.log.read_text())
        claims = [line for line in gateway.lines() if "had no owner" in line["event"]]
    assert [line["event"] for line in claims] == ["agent echo, which had no owner, now belongs to 'bob'"]


# -- the policy

POLICY = [
    {"principals": ["alice"], "register": ["*"], "call": ["*"], "read": True},
    {"principals": ["caller-*"], "call": ["echo"]},
    {"scopes": ["registry"], "register": ["team-*"]},
    {"principals": ["root"], "administer": True},
]


@DOORS
async def test_who_may_call(fast_path: bool) -> None:
    async with secured(fast_path=fast_path, auth={"policy": POLICY}) as (gateway, agent):
        allowed, denied = bearer(token(sub="caller-1")), bearer(token(sub="nobody"))
        for _ in range(2):
            assert "result" in (await gateway.call(CALL, headers=allowed)).json()
            for agent_id, who in (("echo", denied), ("other", denied), ("other", allowed)):
                kubemq = await gateway.call(CALL, agent_id, headers=who)
                a2a = await gateway.call(CALL, agent_id, headers=who | V1)
                assert (kubemq.status_code, a2a.status_code) == (200, 403)
                for answer in (kubemq, a2a):
                    assert error(answer) == {
                        "code": -32010,
                        "reason": "FORBIDDEN",
                        "message": "forbidden: the policy does not let you call this agent",
                    }
                    assert answer.json()["id"] == 5
        stream = await gateway.client.get("/a2a/echo/stream", headers=denied)
        assert error(stream)["reason"] == "FORBIDDEN"
        notified = await gateway.call(b'{"jsonrpc":"2.0","method":"m"}', headers=denied)
        assert (notified.status_code, notified.content) == (202, b"")
        assert len(agent.requests) == 2


async def test_who_may_register_read_and_administer() -> None:
    async with secured(auth={"policy": POLICY}) as (gateway, agent):

        async def status(method: str, path: str, who: dict[str, str], **document: Any) -> int:
            answer = await gateway.client.request(method, path, json=document or None, headers=who)
            if answer.status_code == 403:
                assert set(answer.json()) == {"error"}
            return answer.status_code

        scoped, nobody = bearer(token(sub="ci", scope="x registry")), bearer(token(sub="nobody"))
        root, reader = bearer(token(sub="root")), bearer(token())
        card = {"name": "n", "url": agent.url}
        assert await status("POST", "/agents/register", scoped, agent_id="team-1", **card) == 200
        assert await status("POST", "/agents/heartbeat", scoped, agent_id="team-1") == 200
        assert await status("POST", "/agents/register", scoped, agent_id="other", **card) == 403
        assert await status("POST", "/agents/register", nobody, agent_id="team-2", **card) == 403
        assert await status("POST", "/agents/heartbeat", nobody, agent_id="team-1") == 403
        assert await status("DELETE", "/agents/team-1", nobody) == 403
        for path in ("/agents", "/agents/echo", "/events", "/health/agents", "/agents/echo/health", "/metrics"):
            for who in (scoped, nobody, root):
                assert await status("GET", path, who) == 403, path
        assert await status("POST", "/agents/echo/health/check", nobody) == 403
        assert await status("GET", "/agents", reader) == 200
        assert await status("DELETE", "/agents/team-1", reader) == 403  # of another
        assert await status("DELETE", "/agents/team-1", root) == 200
        assert await status("DELETE", "/agents/team-1", root) == 404
        page = (await gateway.client.get("/metrics", headers=reader)).text
        assert 'kubemq_a2a_registry_operations_total{op="register",status="forbidden"} 2.0' in page
        assert 'kubemq_a2a_registry_operations_total{op="heartbeat",status="forbidden"} 1.0' in page


# -- credentials that callers bring for agents (6.4)

OWN = {"X-Agent-Authorization": "Bearer of-the-agent"}


@DOORS
async def test_a_credential_of_the_caller_becomes_the_agents_authorization(fast_path: bool) -> None:
    async with secured(fast_path=fast_path, upstream={"caller_credentials": True}) as (gateway, agent):
        good = bearer(token())
        for method in ("message/send", "message/stream"):
            for _ in range(2):
                assert "result" in (await gateway.call(CALL | {"method": method}, headers=good | OWN)).json()
        await gateway.call(CALL, headers=good)
        seen = [request.header("authorization") for request in agent.requests]
        assert seen == ["Bearer of-the-agent"] * 4 + [None]
        assert not any(request.header("x-agent-authorization") for request in agent.requests)


@DOORS
async def test_without_the_setting_it_is_dropped(fast_path: bool) -> None:
    async with secured(fast_path=fast_path) as (gateway, agent):
        assert "result" in (await gateway.call(CALL, headers=bearer(token()) | OWN)).json()
        assert (agent.requests[0].header("authorization"), agent.requests[0].header("x-agent-authorization")) == (
            None,
            None,
        )


@DOORS
async def test_the_token_for_the_gateway_is_not_passed_on(fast_path: bool) -> None:
    async with secured(fast_path=fast_path, upstream={"caller_credentials": True}) as (gateway, agent):
        good = token()
        for value in (f"Bearer {good}", f"bearer  {good}", good, f"Token {good}"):
            answer = await gateway.call(CALL, headers=bearer(good) | {"X-Agent-Authorization": value})
            assert error(answer)["reason"] == "FORBIDDEN"
        pairs = [*bearer(good).items(), *OWN.items(), ("X-Agent-Authorization", "Bearer two")]
        twice = await gateway.client.post("/a2a/echo", json=CALL, headers=httpx.Headers(pairs))
        assert error(twice)["reason"] == "FORBIDDEN"
        assert not agent.requests


@DOORS
async def test_with_authentication_off_authorization_is_the_agents_too(fast_path: bool) -> None:
    async with (
        FaultAgent() as agent,
        running(server={"fast_path": fast_path}, upstream={"caller_credentials": True}) as gateway,
    ):
        await gateway.register(agent)
        await gateway.call(CALL, headers={"Authorization": "Basic eDp5"})
        await gateway.call(CALL, headers={"Authorization": "Basic eDp5"} | OWN)
        await gateway.call(CALL, headers={"Authorization": "Basic eDp5", "Connection": "authorization"})
        await gateway.call(CALL)
        seen = [request.header("authorization") for request in agent.requests]
        assert seen == ["Basic eDp5", "Bearer of-the-agent", None, None]


@DOORS
async def test_a_credential_of_the_caller_goes_before_a_configured_one(fast_path: bool) -> None:
    upstream = {
        "caller_credentials": True,
        "credentials": {"echo": {"bearer_env": "ECHO_TOKEN"}, "more": {"bearer_env": "NOT_SET"}},
    }
    async with (
        FaultAgent() as agent,
        running(
            server={"fast_path": fast_path}, upstream=upstream, environ={"ECHO_TOKEN": "configured"}
        ) as gateway,
    ):
        await gateway.register(agent)
        await gateway.register(agent, "more")
        await gateway.call(CALL)
        await gateway.call(CALL, headers=OWN)
        await gateway.call(CALL, "more", headers=OWN)
        missing = await gateway.call(CALL, "more")
        assert error(missing)["reason"] == "CREDENTIAL_MISSING"
        shown = [[value for name, value in it.headers if name.lower() == "authorization"] for it in agent.requests]
        assert shown == [["Bearer configured"], ["Bearer of-the-agent"], ["Bearer of-the-agent"]]


@DOORS
@pytest.mark.parametrize("status", [401, 403])
async def test_the_agents_own_refusal_goes_back_as_it_is(status: int, fast_path: bool) -> None:
    headers = [
        ("Content-Type", "application/problem+json"),
        ("WWW-Authenticate", 'Bearer realm="agent"'),
        ("WWW-Authenticate", "Basic"),
        ("Set-Cookie", "a=b"),
    ]
    async with secured(fast_path=fast_path, upstream={"caller_credentials": True}) as (gateway, agent):
        good = bearer(token())
        agent.always(reply.body(b'{"why":"no"}', status=status, headers=headers))
        for method in ("message/send", "message/stream"):
            answer = await gateway.call(CALL | {"method": method}, headers=good | OWN)
            assert (answer.status_code, answer.content) == (status, b'{"why":"no"}')
            assert answer.headers.get_list("www-authenticate") == ['Bearer realm="agent"', "Basic"]
            assert answer.headers["content-type"] == "application/problem+json"
            assert not {"x-gateway-error", "set-cookie"} & set(answer.headers)
        without = await gateway.call(CALL, headers=good)
        assert (without.status_code, error(without)["reason"]) == (200, "AGENT_HTTP_ERROR")
        assert "www-authenticate" not in without.headers
        quiet = await gateway.call(b'{"jsonrpc":"2.0","method":"m"}', headers=good | OWN)
        assert quiet.status_code == 202


# -- limits: contract 6.5


@DOORS
async def test_requests_per_second_and_caller(fast_path: bool) -> None:
    async with secured(fast_path=fast_path, limits={"requests_per_second": 0.01}) as (gateway, agent):
        bob = bearer(token(sub="bob"))
        assert "result" in (await gateway.call(CALL, headers=bob)).json()
        for headers in ({}, V1):
            answer = await gateway.call(CALL, headers=bob | headers)
            assert (answer.status_code, answer.json()["id"]) == (200, 5)
            assert error(answer) == {
                "code": -32603 if headers else -32003,
                "reason": "RATE_LIMITED",
                "message": "rate limit exceeded",
            }
            info = answer.json()["error"]["data"][0]["metadata"]
            assert 1 <= int(answer.headers["retry-after"]) <= 100
            assert (info["retry"], info["retryAfter"]) == ("safe", answer.headers["retry-after"])
        rest = await gateway.client.get("/agents", headers=bob)
        assert (rest.status_code, rest.json()) == (429, {"error": "rate limit exceeded"})
        assert 1 <= int(rest.headers["retry-after"]) <= 100
        quiet = await gateway.call(b'{"jsonrpc":"2.0","method":"m"}', headers=bob)
        assert (quiet.status_code, quiet.content) == (202, b"")
        assert "result" in (await gateway.call(CALL, headers=bearer(token(sub="carol")))).json()
        assert (await gateway.client.get("/live")).status_code == 200
        assert len(agent.requests) == 2


async def test_registrations_per_minute_and_caller() -> None:
    async with secured(limits={"registrations_per_minute": 2}) as (gateway, agent):
        card = {"agent_id": "echo", "name": "n", "url": agent.url}
        statuses = [
            (await gateway.client.post("/agents/register", json=card, headers=bearer(token()))).status_code
            for _ in range(3)
        ]
        assert statuses == [200, 429, 429]  # one has been used up already
        other = {**card, "agent_id": "other"}
        bob = bearer(token(sub="bob"))
        assert (await gateway.client.post("/agents/register", json=other, headers=bob)).status_code == 200
        beat = await gateway.client.post("/agents/heartbeat", json=card, headers=bearer(token()))
        assert beat.status_code == 200


async def test_connections_per_client() -> None:
    async with running(limits={"connections_per_client": 3}) as gateway:
        await gateway.client.get("/live")  # one, kept
        held = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(2)]
        answer = await exchange(gateway.port, b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"connection: close" in answer
        assert (await gateway.client.get("/live")).status_code == 200
        held[0][1].close()
        await held[0][1].wait_closed()
        for _ in range(100):
            answer = await exchange(
                gateway.port, b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )
            if answer.startswith(b"HTTP/1.1 200 "):
                break
        assert answer.startswith(b"HTTP/1.1 200 ")
        held[1][1].close()


async def test_proxies_that_are_trusted_have_as_many_connections_as_they_like() -> None:
    async with running(
        limits={"connections_per_client": 1}, server={"trusted_proxies": ["127.0.0.0/8"]}
    ) as gateway:
        held = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(5)]
        assert (await gateway.client.get("/live")).status_code == 200
        for _, writer in held:
            writer.close()


SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
STREAM = CALL | {"method": "message/stream"}


@DOORS
async def test_open_streams_in_all(fast_path: bool) -> None:
    async with FaultAgent() as agent, running(server={"fast_path": fast_path}, limits={"streams": 1}) as gateway:
        await gateway.register(agent)
        agent.always(reply.hang(SSE))
        async with gateway.client.stream("POST", "/a2a/echo", json=STREAM) as first:
            assert first.headers["content-type"] == "text/event-stream"
            second = await gateway.call(STREAM)
            assert error(second)["reason"] == "GATEWAY_OVERLOADED"
            assert second.json()["error"]["data"][0]["metadata"]["retry"] == "safe"
            assert error(await gateway.client.get("/a2a/echo/stream"))["reason"] == "GATEWAY_OVERLOADED"
            assert len(agent.requests) == 1
            late = await gateway.call(CALL)  # only its answer shows that it is a stream
            assert error(late)["reason"] == "GATEWAY_OVERLOADED"
            assert late.json()["error"]["data"][0]["metadata"]["retry"] == "unsafe"
            await agent.closed(2)
        await agent.all_closed()
        async with gateway.client.stream("POST", "/a2a/echo", json=STREAM) as again:
            assert again.headers["content-type"] == "text/event-stream"


# -- keys of an identity provider, through the whole gateway


@DOORS
async def test_a_provider_that_rotates_and_dies(fast_path: bool) -> None:
    """Contract 6.1: a call whose key is unknown goes on when the keys are there; known ones never wait."""
    old, new = issuer.rsa_key(0), issuer.rsa_key(1)
    async with FaultAgent() as idp, FaultAgent() as agent:
        ready = asyncio.Event()
        idp.next(reply.after(ready, issuer.published(issuer.jwk(old, "old"))))
        auth = {"enable": True, "jwks_url": idp.url, "audience": ["gw"]}
        async with running(server={"fast_path": fast_path}, auth=auth) as gateway:
            good = bearer(token(old, "RS256", "old", aud="gw"))
            early = asyncio.ensure_future(gateway.client.get("/agents", headers=good))
            await idp.received(1)
            assert not early.done()
            assert (await gateway.client.get("/live")).status_code == 200
            ready.set()
            assert (await early).status_code == 200
            card = {"agent_id": "echo", "name": "n", "url": agent.url}
            assert (await gateway.client.post("/agents/register", json=card, headers=good)).status_code == 200
            await idp.close()
            for number in range(5):
                more = bearer(token(old, "RS256", "old", aud="gw", n=number))
                assert "result" in (await gateway.call(CALL, headers=more)).json()
                unknown = bearer(token(new, "RS256", "new", aud="gw", n=number))
                assert error(await gateway.call(CALL, headers=unknown)) == UNAUTHENTICATED
            assert error(await gateway.call(CALL, headers=bearer(token(old, "RS256", "old")))) == UNAUTHENTICATED
            confused = issuer.forged(
                json.dumps(issuer.claims(aud="gw")).encode(),
                {"alg": "HS256", "kid": "old"},
                issuer.public_pem(old),
                "HS256",
            )
            assert error(await gateway.call(CALL, headers=bearer(confused))) == UNAUTHENTICATED


# -- audit


@DOORS
async def test_who_did_what_to_which_agent(fast_path: bool) -> None:
    """One line for every registration, deregistration, refused call and denial, whatever log.level says."""
    sections = {"log": {"level": "error"}, "a2a": {"trusted_origins": []}}
    async with secured(fast_path=fast_path, auth={"policy": POLICY}, **sections) as (gateway, agent):
        alice, nobody = bearer(token()), bearer(token(sub="nobody"))
        card = {"agent_id": "team-1", "name": "n", "url": agent.url}
        await gateway.client.post("/agents/register", json=card, headers=bearer(token(sub="x", scope="registry")))
        await gateway.client.post("/agents/register", json=card, headers=nobody)
        await gateway.client.post("/agents/heartbeat", json={"agent_id": "echo"}, headers=nobody)
        await gateway.client.post("/agents/heartbeat", json={"agent_id": "echo"}, headers=alice)
        await gateway.client.post("/agents/register", json={"agent_id": "echo"}, headers=alice)
        await gateway.client.post("/agents/register", content=b"{", headers=alice)
        await gateway.client.delete("/agents/team-1", headers=alice)
        await gateway.client.get("/agents", headers=nobody)
        await gateway.client.get("/agents")
        await gateway.call(CALL)
        await gateway.call(CALL, headers=nobody)
        await gateway.call(CALL, headers=alice | {"origin": "http://evil.example"})
        await gateway.call(CALL, headers=alice)
        await gateway.client.delete("/agents/echo", headers=alice)
        await eventually(lambda: gateway.log.read_text().count('"deregister"') == 2)
        lines = [line for line in gateway.lines() if line["event"] == "audit"]
    assert {line["client"] for line in lines} == {"127.0.0.1"}
    shown = [
        (line["action"], line["caller"], line["agent"], line["outcome"], line.get("reason", "")) for line in lines
    ]
    not_his = "the agent belongs to another principal"
    assert shown == [
        ("register", "alice", "echo", "ok", ""),
        ("register", "x", "team-1", "ok", ""),
        ("register", "nobody", "team-1", "refused", "not allowed to register this agent"),
        ("heartbeat", "nobody", "echo", "refused", "not allowed to register this agent"),
        ("register", "alice", "echo", "invalid", "invalid agent card"),
        ("register", "alice", "", "invalid", shown[5][4]),
        ("deregister", "alice", "team-1", "refused", not_his),
        ("GET /agents", "nobody", "", "refused", "FORBIDDEN"),
        ("GET /agents", "anonymous", "", "refused", "UNAUTHENTICATED"),
        ("call", "anonymous", "echo", "refused", "UNAUTHENTICATED"),
        ("call", "nobody", "echo", "refused", "FORBIDDEN"),
        ("call", "anonymous", "echo", "refused", "ORIGIN_NOT_TRUSTED"),
        ("deregister", "alice", "echo", "ok", ""),
    ]
