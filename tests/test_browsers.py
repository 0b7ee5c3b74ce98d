"""Web pages and proxies, over real sockets and through both doors: contract 1, 6.2; pitfall 116."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.fakes import issuer, reply
from tests.fakes.agent import FaultAgent
from tests.fakes.issuer import bearer, token
from tests.fakes.running import Running, running

DOORS = pytest.mark.parametrize("fast_path", [True, False], ids=["direct", "asgi"])
CALL = {"jsonrpc": "2.0", "id": 5, "method": "message/send", "params": {}}
EVIL = {"origin": "http://evil.example"}
SSE = [("Content-Type", "text/event-stream")]
ENDED = b'data: {"jsonrpc":"2.0","id":5,"result":{"kind":"message"}}\n\n'


def refused(answer: httpx.Response) -> bool:
    """Whether a call was refused for its origin, and the page could not even read why."""
    assert answer.status_code == 403, answer.text
    assert "access-control-allow-origin" not in answer.headers
    found = answer.json()["error"]
    if isinstance(found, str):
        return found == "origin not trusted"
    assert answer.headers["x-gateway-error"] == found["data"][0]["reason"] == "ORIGIN_NOT_TRUSTED"
    return bool(found["code"] == -32010)


def told(answer: httpx.Response, origin: str) -> bool:
    """Whether a page of this origin may read the answer."""
    return (
        answer.headers.get_list("access-control-allow-origin") == [origin]
        and "x-gateway-error" in answer.headers["access-control-expose-headers"]
        and "Origin" in answer.headers["vary"]
    )


@DOORS
async def test_other_pages_reach_nothing(fast_path: bool) -> None:
    async with FaultAgent() as agent, running(server={"fast_path": fast_path}) as gateway:
        await gateway.register(agent)
        for headers in (EVIL, EVIL | {"a2a-version": "1.0"}, {"origin": "null"}, {"origin": ""}, {"origin": "x"}):
            answer = await gateway.call(CALL, headers=headers)
            assert refused(answer)
            assert answer.json()["id"] == 5
            assert refused(await gateway.client.get("/a2a/echo/stream", headers=headers))
            for method, path in (
                ("GET", "/agents"),
                ("GET", "/live"),
                ("GET", "/a2a/echo/.well-known/agent-card.json"),
                ("GET", "/metrics"),
                ("POST", "/agents/register"),
                ("DELETE", "/agents/echo"),
                ("OPTIONS", "/agents"),
            ):
                assert refused(await gateway.client.request(method, path, headers=headers)), path
        asked = EVIL | {"access-control-request-method": "POST"}
        for path in ("/a2a/echo", "/agents/register"):
            assert refused(await gateway.client.request("OPTIONS", path, headers=asked))
        assert (await gateway.client.get("/agents/echo")).status_code == 200
        assert not agent.requests


@DOORS
async def test_the_gateways_own_pages(fast_path: bool) -> None:
    """Contract 6.2 `auto`."""
    async with FaultAgent() as agent, running(server={"fast_path": fast_path}) as gateway:
        await gateway.register(agent)
        own = {"origin": gateway.api}
        assert told(await gateway.call(CALL, headers=own), gateway.api)
        assert told(await gateway.call(CALL, "other", headers=own), gateway.api)
        assert told(await gateway.call(b"{", headers=own), gateway.api)
        assert told(await gateway.client.get("/agents", headers=own), gateway.api)
        assert told(await gateway.client.get("/nope", headers=own), gateway.api)
        assert told(await gateway.client.get("/%61", headers=own), gateway.api)
        assert refused(await gateway.call(CALL, headers={"origin": gateway.api.replace("127.0.0.1", "localhost")}))
        assert refused(await gateway.call(CALL, headers={"origin": gateway.api.replace("http", "https")}))
        assert refused(await gateway.call(CALL, headers={"origin": "http://127.0.0.1"}))
        silent = await gateway.call(CALL)
        assert "access-control-allow-origin" not in silent.headers
        agent.always(reply.body(ENDED, headers=SSE))
        stream = await gateway.client.post("/a2a/echo", json=CALL, headers=own)
        assert stream.headers["content-type"] == "text/event-stream"
        assert told(stream, gateway.api)
        pushed = await gateway.client.get("/a2a/echo/stream", headers=own)
        assert told(pushed, gateway.api)
        again = {"last-event-id": pushed.text.split("id: ")[1].split("\n")[0]}
        ended = await gateway.client.get("/a2a/echo/stream", headers=own | again)
        assert ended.status_code == 204
        assert told(ended, gateway.api)


async def test_a_rebound_name_reaches_nothing() -> None:
    """Contract 6.2, 1: Origin equals a hostile Host. The host check answers, on loopback at least."""
    async with FaultAgent() as agent, running() as gateway:
        await gateway.register(agent)
        name = f"evil.example:{gateway.port}"
        answer = await gateway.call(CALL, headers={"host": name, "origin": f"http://{name}"})
        assert answer.status_code == 421
        card = await gateway.client.get("/agents", headers={"host": name, "origin": f"http://{name}"})
        assert card.status_code == 421
        assert not agent.requests


async def test_a_rebound_name_is_not_trusted_where_hosts_are_not_checked() -> None:
    """With authentication on no host is checked on loopback either, but `auto` still vouches for none."""
    secret = {"JWT_SECRET": issuer.SECRET}
    async with running(environ=secret, auth={"enable": True, "secret_env": "JWT_SECRET"}) as gateway:
        name = f"evil.example:{gateway.port}"
        good = bearer(token())
        assert (await gateway.client.get("/agents", headers=good | {"host": name})).status_code == 200
        assert refused(
            await gateway.client.get("/agents", headers=good | {"host": name, "origin": f"http://{name}"})
        )
        assert told(await gateway.client.get("/agents", headers=good | {"origin": gateway.api}), gateway.api)


@DOORS
async def test_listed_origins(fast_path: bool) -> None:
    trusted = ["https://app.example.com", "null"]
    sections: dict[str, Any] = {"server": {"fast_path": fast_path}, "a2a": {"trusted_origins": trusted}}
    async with FaultAgent() as agent, running(**sections) as gateway:
        await gateway.register(agent)
        for origin in trusted:
            assert told(await gateway.call(CALL, headers={"origin": origin}), origin)
        for origin in (gateway.api, "http://app.example.com", "https://app.example.com:444"):
            assert refused(await gateway.call(CALL, headers={"origin": origin}))
        assert len(agent.requests) == 2


async def test_every_origin() -> None:
    async with running(a2a={"trusted_origins": ["*"]}) as gateway:
        assert told(await gateway.client.get("/agents", headers=EVIL), EVIL["origin"])
        assert (
            "access-control-allow-credentials" not in (await gateway.client.get("/agents", headers=EVIL)).headers
        )


async def preflight(gateway: Running, path: str, **headers: str) -> httpx.Response:
    asked = {"origin": gateway.api, "access-control-request-method": "POST"}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await gateway.client.request("OPTIONS", path, headers=asked | named)


async def test_a_page_is_told_beforehand_what_it_may_send() -> None:
    """Contract 6.2: preflights are answered without a token, which a browser does not send with them."""
    secret = {"JWT_SECRET": issuer.SECRET}
    async with running(environ=secret, auth={"enable": True, "secret_env": "JWT_SECRET"}) as gateway:
        for path in ("/a2a/echo", "/a2a/echo/", "/agents", "/agents/register", "/agents/echo"):
            answer = await preflight(gateway, path, access_control_request_headers="authorization, content-type")
            assert (answer.status_code, answer.content) == (204, b"")
            assert answer.headers["access-control-allow-origin"] == gateway.api
            assert answer.headers["access-control-allow-headers"] == "authorization, content-type"
            assert {"POST", "DELETE"} <= set(answer.headers["access-control-allow-methods"].split(", "))
            assert int(answer.headers["access-control-max-age"]) > 0
        odd = await preflight(gateway, "/agents", access_control_request_headers="a\tb;<script>")
        assert "access-control-allow-headers" not in odd.headers
        call = await gateway.call(CALL, headers={"origin": gateway.api})
        assert told(call, gateway.api)  # the page may read that its token is missing
        assert call.json()["error"]["data"][0]["reason"] == "UNAUTHENTICATED"
        rest = await gateway.client.get("/agents", headers={"origin": gateway.api})
        assert rest.status_code == 401
        assert told(rest, gateway.api)


async def test_images_and_scripts_of_other_sites_start_no_work() -> None:
    """A GET without Origin may come from any page; browsers say so, and the push stream is work."""
    async with FaultAgent() as agent, running() as gateway:
        await gateway.register(agent)
        agent.always(reply.body(ENDED, headers=SSE))
        for site in ("cross-site", "same-site"):
            assert refused(await gateway.client.get("/a2a/echo/stream", headers={"sec-fetch-site": site}))
        assert not agent.requests
        for site in ("same-origin", "none"):
            answer = await gateway.client.get("/a2a/echo/stream", headers={"sec-fetch-site": site})
            assert answer.status_code == 200
        own = {"origin": gateway.api, "sec-fetch-site": "same-origin"}
        assert (await gateway.client.get("/a2a/echo/stream", headers=own)).status_code == 200


# -- behind a proxy

FORWARDED = {"x-forwarded-proto": "https", "x-forwarded-host": "gw.example.com", "x-forwarded-for": "203.0.113.9"}
BEHIND: dict[str, Any] = {"trusted_proxies": ["127.0.0.1"], "allowed_hosts": ["gw.example.com"]}


@DOORS
async def test_behind_a_trusted_proxy_the_browsers_view_counts(fast_path: bool) -> None:
    async with FaultAgent() as agent, running(server={"fast_path": fast_path, **BEHIND}) as gateway:
        await gateway.register(agent)
        origin = "https://gw.example.com"
        assert told(await gateway.call(CALL, headers=FORWARDED | {"origin": origin}), origin)
        assert refused(await gateway.call(CALL, headers=FORWARDED | {"origin": "http://gw.example.com"}))
        assert refused(await gateway.call(CALL, headers=FORWARDED | {"origin": gateway.api}))
        assert "result" in (await gateway.call(CALL, headers=FORWARDED)).json()
        # The name that the proxy itself uses for the gateway does not matter; the one the sender used does.
        assert "result" in (await gateway.call(CALL, headers=FORWARDED | {"host": "pod-7.internal"})).json()
        evil = FORWARDED | {"x-forwarded-host": "evil.example"}
        assert (await gateway.call(CALL, headers=evil)).status_code == 421
        assert (await gateway.call(CALL, headers=evil | {"origin": "https://evil.example"})).status_code == 421
        card = await gateway.client.get("/a2a/echo/.well-known/agent-card.json", headers=FORWARDED)
        assert card.json()["url"] == "https://gw.example.com/a2a/echo"
        own = await gateway.client.get("/.well-known/agent-card.json", headers=FORWARDED)
        assert own.json()["url"].startswith("https://gw.example.com")
        assert not any(name.lower().startswith("x-forwarded") for name, _ in agent.requests[0].headers)
        agent.always(reply.result({"url": agent.url, "name": "x"}))
        getter = CALL | {"method": "agent/getAuthenticatedExtendedCard"}
        extended = await gateway.call(getter, headers=FORWARDED)
        assert extended.json()["result"]["url"] == "https://gw.example.com/a2a/echo"


@DOORS
async def test_anybody_else_is_not_believed(fast_path: bool) -> None:
    """Pitfall 116: spoofed X-Forwarded-* never enters a card."""
    server = {"fast_path": fast_path, "trusted_proxies": ["10.9.8.7"], "allowed_hosts": ["gw.example.com"]}
    async with FaultAgent() as agent, running(server=server) as gateway:
        await gateway.register(agent)
        assert refused(await gateway.call(CALL, headers=FORWARDED | {"origin": "https://gw.example.com"}))
        assert "result" in (await gateway.call(CALL, headers=FORWARDED)).json()
        evil = FORWARDED | {"x-forwarded-host": "evil.example"}
        assert "result" in (await gateway.call(CALL, headers=evil)).json()
        card = await gateway.client.get("/a2a/echo/.well-known/agent-card.json", headers=FORWARDED)
        assert card.json()["url"] == f"{gateway.api}/a2a/echo"
        agent.always(reply.result({"url": agent.url, "name": "x"}))
        getter = CALL | {"method": "agent/getAuthenticatedExtendedCard"}
        extended = await gateway.call(getter, headers=FORWARDED)
        assert extended.json()["result"]["url"] == f"{gateway.api}/a2a/echo"


# -- cards say how callers show who they are (5.4)

RICH = {
    "securitySchemes": {"own": {"type": "apiKey", "in": "header", "name": "X-Key"}},
    "security": [{"own": []}],
    "protocolVersion": "0.3.0",
}


@pytest.mark.parametrize(
    ("auth", "caller_credentials", "schemes"),
    [(True, False, {"vitalgate"}), (True, True, {"vitalgate"}), (False, True, {"own"}), (False, False, set())],
)
async def test_whose_security_schemes_a_card_shows(
    auth: bool, caller_credentials: bool, schemes: set[str]
) -> None:
    sections: dict[str, Any] = {"upstream": {"caller_credentials": caller_credentials}}
    sections |= {"auth": {"enable": True, "secret_env": "JWT_SECRET"}} if auth else {}
    async with running(environ={"JWT_SECRET": issuer.SECRET}, **sections) as gateway:
        document = {"agent_id": "echo", "name": "n", "url": "http://127.0.0.1:1/", **RICH}
        stored = await gateway.client.post("/agents/register", json=document, headers=bearer(token()))
        assert stored.json()["securitySchemes"] == RICH["securitySchemes"]
        card = (await gateway.client.get("/a2a/echo/.well-known/agent-card.json")).json()
        assert set(card.get("securitySchemes", {})) == schemes
        assert [set(one) for one in card.get("security", [])] == ([schemes] if schemes else [])
        if auth:
            assert card["securitySchemes"]["vitalgate"] == {
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "JWT",
            }
