"""Adapter a2a against peers on real sockets (health contract 3; pitfalls 19, 124-126, 128, 130, 131, 133, 148)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from healthcheck.model import A2AFunctional, A2AOptions, Check, Status, Target
from tests.fakes import reply
from tests.fakes.agent import Behaviour
from tests.fakes.health_peer import CARD_PATH, A2APeer, check, codes, statuses

V10, V03 = "1.0", "0.3.0"
VERSIONS = pytest.mark.parametrize("version", [V10, V03])
GET = {V10: "GetTask", V03: "tasks/get"}
SEND = {V10: "SendMessage", V03: "message/send"}
TOKEN = {"TOKEN": "s3cret-token"}
EVERY = tuple(one for one in Check if one is not Check.DEPENDENCY)


def target(peer: A2APeer, *, checks: tuple[Check, ...] | None = None, **more: Any) -> Target:
    named = {name: more.pop(name) for name in ("bearer_env", "timeout_ms") if name in more}
    options = A2AOptions(**{"protocol_version": peer.version, **more})
    return Target(type="a2a", endpoint=peer.base, a2a=options, checks=checks, **{"timeout_ms": 1000, **named})


async def judge(peer: A2APeer, environ: dict[str, str] | None = None, **more: Any) -> dict[str, str]:
    """Check → "STATUS code" of those that are not healthy; at most one request of each kind was sent."""
    before = peer.counts
    result = await check(target(peer, **more), environ=environ)
    assert max((peer.counts - before).values(), default=0) <= 1, "one card fetch and one passive RPC"
    return {
        name.value: f"{finding.status.value} {finding.code}"
        for name, finding in result.checks.items()
        if finding.status is not Status.HEALTHY
    }


def both(text: str) -> dict[str, str]:
    return {"authentication": text, "protocol": text}


@VERSIONS
async def test_a_good_agent(version: str) -> None:
    """Health contract 3: what is sent, and that -32001 proves readiness."""
    async with A2APeer(version) as peer:
        result = await check(target(peer, required_skills=("echo",), required_capabilities=("streaming",)))
        assert (result.status, codes(result)) == (Status.HEALTHY, {})
        card, call = peer.requests
        assert (card.method, card.target) == ("GET", CARD_PATH)
        wanted = "1.0" if version == V10 else None
        assert (card.header("a2a-version"), call.header("a2a-version")) == (wanted, wanted)
        body = call.json()
        assert (body["jsonrpc"], body["method"], list(body["params"])) == ("2.0", GET[version], ["id"])
        assert len(body["params"]["id"]) == len(body["id"]) == 36
        assert call.header("content-type") == "application/json"
        await check(target(peer))
        assert peer.requests[3].json()["params"]["id"] != body["params"]["id"], "a fresh id for every run"


PASSING: dict[str, tuple[Behaviour | None, dict[str, str]]] = {
    "error": (reply.error(-32001, data=[{"@type": "x", "metadata": {}}]), {}),
    "version": (reply.error(-32009), {"protocol": "UNHEALTHY a2a_version"}),
    "method": (reply.error(-32601), {"protocol": "UNHEALTHY a2a_rpc"}),
    "internal": (reply.error(-32603), {"protocol": "UNHEALTHY a2a_rpc"}),
    "null result": (reply.result(None), {"protocol": "UNHEALTHY a2a_protocol"}),
    "foreign result": (
        reply.result({"id": "other", "status": {"state": "working"}}),
        {"protocol": "UNHEALTHY a2a_protocol"},
    ),
    "other id": (reply.with_id(b'"other"', "error"), {"protocol": "UNHEALTHY a2a_protocol"}),
    "not found, but of no call": (
        reply.body(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"m"}}'),
        {"protocol": "UNHEALTHY a2a_protocol"},
    ),
    "no id": (reply.with_id(None, "result"), {"protocol": "UNHEALTHY a2a_protocol"}),
    "not JSON": (
        reply.body(b"<html>hello</html>", headers=[("Content-Type", "text/html")]),
        {"protocol": "UNHEALTHY a2a_protocol"},
    ),
    "empty": (reply.body(b""), {"protocol": "UNHEALTHY a2a_protocol"}),
    "no envelope": (reply.json({"ok": True}), {"protocol": "UNHEALTHY a2a_protocol"}),
    "401": (reply.body(b"", status=401), both("MISCONFIGURED a2a_auth")),
    "403": (reply.error(-32001, status=403), both("MISCONFIGURED a2a_auth")),
    "404 and -32001": (reply.error(-32001, status=404), both("UNHEALTHY a2a_http")),
    "500": (reply.body(b"oops", status=500), both("UNHEALTHY a2a_http")),
    "redirect": (reply.redirect("http://127.0.0.1:1/"), both("UNHEALTHY a2a_http")),
    "too large": (reply.endless(), both("UNKNOWN a2a_limit")),
    "cut off": (reply.short(b'{"jsonrpc"'), both("UNKNOWN a2a_limit")),
    "silent": (reply.hang(), both("UNREACHABLE deadline")),
    "half": (reply.hang(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{"), both("UNKNOWN deadline_partial")),
    "reset": (reply.reset(), both("UNREACHABLE connection_lost")),
    "gateway header": (
        reply.error(-32001, headers=[*reply.JSON, ("X-Gateway-Error", "AGENT_TIMEOUT")]),
        both("UNKNOWN a2a_gateway"),
    ),
    "gateway data": (
        reply.error(-32001, data=[{"@type": "t", "metadata": {"source": "gateway"}}]),
        both("UNKNOWN a2a_gateway"),
    ),
    "gateway 502": (
        reply.error(-32003, status=502, headers=[("x-gateway-error", "X")]),
        both("UNKNOWN a2a_gateway"),
    ),
}


@VERSIONS
@pytest.mark.parametrize("case", PASSING)
async def test_what_the_passive_call_may_bring(version: str, case: str) -> None:
    """Health contract 3, codes; pitfalls 19 and 124: a gateway's own -32001 is not readiness."""
    behaviour, wanted = PASSING[case]
    assert behaviour is not None
    async with A2APeer(version) as peer:
        peer.rpc[GET[version]] = behaviour
        assert await judge(peer, timeout_ms=300, checks=EVERY[:4]) == wanted


async def _same_task(version: str, **task: Any) -> dict[str, str]:
    """The answer to the look-up is a task with the id that was asked for."""

    async def run(connection: Any, request: Any) -> None:
        value = {"id": request.json()["params"]["id"], **task}
        await connection.send(reply.wire(200, reply.JSON, reply.rpc(request, "result", value)))

    async with A2APeer(version) as peer:
        peer.rpc[GET[version]] = Behaviour("task", run)
        return await judge(peer)


async def test_a_valid_task_is_accepted_too() -> None:
    """Health contract 3: names and protobuf numbers both count; `contextId` may be absent."""
    wrong = {"protocol": "UNHEALTHY a2a_protocol"}
    assert await _same_task(V10, status={"state": "TASK_STATE_WORKING"}) == {}
    assert await _same_task(V10, status={"state": 3}) == {}
    assert await _same_task(V10, status={}) == {}
    assert await _same_task(V10, status={"state": 99}) == wrong
    assert await _same_task(V10, status={"state": "working"}) == wrong
    assert await _same_task(V03, status={"state": "working"}, kind="task") == {}
    assert await _same_task(V03, status={"state": "unknown"}) == {}
    assert await _same_task(V03, status={"state": 3}) == wrong
    assert await _same_task(V03, status={"state": "working"}, kind="message") == wrong
    assert await _same_task(V03) == wrong


CARDS: dict[str, tuple[Any, dict[str, str]]] = {
    "401": (reply.body(b"", status=401), both("MISCONFIGURED a2a_auth")),
    "404": (reply.body(b"", status=404), both("UNHEALTHY a2a_http")),
    "500": (reply.body(b"", status=500), both("UNHEALTHY a2a_http")),
    "503": (reply.body(b"", status=503), both("UNHEALTHY a2a_http")),
    "302": (reply.redirect("/elsewhere"), both("UNHEALTHY a2a_http")),
    "html": (reply.body(b"<html>", headers=[("Content-Type", "text/html")]), both("UNHEALTHY a2a_card")),
    "list": (reply.body(b"[]"), both("UNHEALTHY a2a_card")),
    "endless": (reply.endless(), {"reachability": "UNKNOWN a2a_limit"}),
    "bomb": (reply.coded(reply.bomb(8 << 20)), {"reachability": "UNKNOWN a2a_limit"}),
    "cut": (reply.short(b'{"name":'), {"reachability": "UNKNOWN a2a_limit"}),
    "unknown coding": (reply.coded(b"{}", "br"), both("UNHEALTHY a2a_card")),
    "reset": (reply.reset(), {"reachability": "UNREACHABLE connection_lost"}),
    "dribble": (
        reply.dribble(reply.wire(body=b" " * 200), every=0.05, first=60),
        {"reachability": "UNKNOWN deadline_partial"},
    ),
}


@pytest.mark.parametrize("case", CARDS)
async def test_what_the_card_fetch_may_bring(case: str) -> None:
    """Pitfalls 128, 130, 133: an HTTP error still proves reachability; a fault fails both checks, no RPC."""
    behaviour, wanted = CARDS[case]
    async with A2APeer() as peer:
        peer.paths[CARD_PATH] = behaviour
        assert await judge(peer, timeout_ms=400, checks=EVERY[:5]) == wanted
        assert [request.method for request in peer.requests] == ["GET"]


async def test_the_card_cap_is_exact() -> None:
    """Pitfall 130: 1 MiB is read, one byte more is not."""
    async with A2APeer() as peer:
        text = json.dumps(peer.card).encode()
        peer.card = text + b" " * ((1 << 20) - len(text))
        assert await judge(peer) == {}
        peer.card += b" "
        assert await judge(peer) == {"reachability": "UNKNOWN a2a_limit"}


@VERSIONS
async def test_a_card_of_another_origin(version: str) -> None:
    """Health contract 3: scheme, host and effective port of the endpoint; nothing is sent elsewhere."""
    async with A2APeer(version) as peer, A2APeer(version) as other:
        elsewhere = [
            other.base,
            peer.base.replace("http:", "https:"),
            peer.base.replace("127.0.0.1", "localhost"),
            "http://169.254.169.254/latest/meta-data/",
        ]
        for url in elsewhere:
            peer.card = type(peer.card)(peer.card)
            if version == V10:
                peer.card["supportedInterfaces"][0]["url"] = url
            else:
                peer.card["url"] = url
            found = await judge(peer, TOKEN, bearer_env="TOKEN", checks=EVERY)
            assert found == both("MISCONFIGURED a2a_origin")
        for url in ("not a url", "http://u:p@h/", "http://h/#f"):
            if version == V10:
                peer.card["supportedInterfaces"][0]["url"] = url
            else:
                peer.card["url"] = url
            assert await judge(peer) == both("UNHEALTHY a2a_card")
        assert len(other.connections) == 0
        assert {request.method for request in peer.requests} == {"GET"}


@VERSIONS
async def test_the_version_asked_is_the_version_probed(version: str) -> None:
    """Required: no silent downgrade; pitfall 125."""
    other = V03 if version == V10 else V10
    async with A2APeer(other) as peer:
        wanted = "UNHEALTHY a2a_card" if version == V10 else "UNHEALTHY a2a_version"
        assert await judge(peer, protocol_version=version) == both(wanted)
        assert len(peer.requests) == 1


async def test_the_tenant_goes_into_the_params() -> None:
    """Health contract 3: of the chosen interface, on both calls."""
    async with A2APeer() as peer:
        peer.card["supportedInterfaces"][0]["tenant"] = "blue"
        assert await judge(peer, checks=EVERY, functional=A2AFunctional("hi")) == {}
        assert [request.json()["params"]["tenant"] for request in peer.requests[1:]] == ["blue", "blue"]


# -- credentials


@VERSIONS
async def test_the_bearer_comes_from_the_named_variable(version: str) -> None:
    """Required: bearer only from the named variable; pitfall 126: no credential, no call."""
    async with A2APeer(version) as peer:
        peer.card["securitySchemes"] = {"b": {"type": "http", "scheme": "bearer"}}
        peer.card["securityRequirements" if version == V10 else "security"] = [{"b": []}]
        assert await judge(peer) == both("MISCONFIGURED a2a_auth")
        assert [request.method for request in peer.requests] == ["GET"]
        assert await judge(peer, TOKEN, bearer_env="TOKEN") == {}
        assert [request.header("authorization") for request in peer.requests[1:]] == ["Bearer s3cret-token"] * 2
        peer.card["securitySchemes"] = {"b": {"type": "apiKey", "in": "header", "name": "X"}}
        assert await judge(peer, TOKEN, bearer_env="TOKEN") == both("MISCONFIGURED a2a_auth")


@pytest.mark.parametrize("value", [None, "", "two words", "new\nline", "t\u00f6ken"])
async def test_a_variable_that_cannot_be_used(value: str | None) -> None:
    """Health contract 2: unset → configuration MISCONFIGURED, no network; nor anything a header cannot hold."""
    async with A2APeer() as peer:
        environ = {} if value is None else {"TOKEN": value}
        found = await judge(peer, environ, bearer_env="TOKEN")
        assert found == {"configuration": "MISCONFIGURED bearer_env"}
        assert len(peer.connections) == 0


async def test_configuration_faults() -> None:
    """Health contract 2: userinfo or fragment in the endpoint, a card_url on another origin: no network."""
    async with A2APeer() as peer:
        for endpoint in ("http://u:p@h/", "http://h/#x", "ftp://h/", "nonsense", ""):
            result = await check(Target(type="a2a", endpoint=endpoint))
            assert codes(result) == {"configuration": "endpoint_invalid"}
            assert statuses(result) == {"configuration": "MISCONFIGURED"}
        for card_url in (
            "http://127.0.0.1:1/card",
            "/card",
            peer.at("/card#x"),
            peer.at("/").replace("//", "//u@"),
        ):
            assert await judge(peer, card_url=card_url) == {"configuration": "MISCONFIGURED a2a_origin"}
        assert len(peer.connections) == 0


async def test_card_url() -> None:
    """Health contract 3: a card elsewhere on the same origin, asked for exactly there (pitfall 128)."""
    async with A2APeer() as peer:
        peer.paths["/agents/one.json"] = reply.body(json.dumps(peer.card).encode())
        peer.paths[CARD_PATH] = reply.body(b"", status=404)
        assert await judge(peer, card_url=peer.at("/agents/one.json?v=1")) == {}
        assert peer.requests[0].target == "/agents/one.json?v=1"


# -- capability


async def test_required_skills_and_capabilities() -> None:
    """Health contract 3: `a2a_required`."""
    async with A2APeer() as peer:
        assert await judge(peer, required_skills=("echo",), required_capabilities=("streaming",)) == {}
        missing = {"capability": "UNHEALTHY a2a_required"}
        assert await judge(peer, required_skills=("echo", "translate")) == missing
        assert await judge(peer, required_capabilities=("pushNotifications",)) == missing
        peer.card["capabilities"]["pushNotifications"] = False
        assert await judge(peer, required_capabilities=("pushNotifications",)) == missing
        del peer.card["skills"]
        assert await judge(peer) == {}
        assert await judge(peer, required_skills=("echo",)) == missing


# -- functional


def task(version: str, state: Any, **more: Any) -> Behaviour:
    value = {"id": "t1", "status": {"state": state}, **more}
    return reply.result({"task": value} if version == V10 else {**value, "kind": "task"})


def message(version: str, role: Any, parts: Any) -> Behaviour:
    value = {"messageId": "m1", "role": role, "parts": parts}
    return reply.result({"message": value} if version == V10 else {**value, "kind": "message"})


def state(version: str, word: str) -> str:
    return f"TASK_STATE_{word.upper().replace('-', '_')}" if version == V10 else word


STATES = {
    "completed": None,
    "failed": "UNHEALTHY a2a_functional",
    "rejected": "UNHEALTHY a2a_functional",
    "canceled": "UNHEALTHY a2a_functional",
    "auth-required": "MISCONFIGURED a2a_auth",
    "submitted": "UNKNOWN a2a_pending",
    "working": "UNKNOWN a2a_pending",
    "input-required": "UNKNOWN a2a_pending",
}
NUMBERS = {
    1: "submitted",
    2: "working",
    3: "completed",
    4: "failed",
    5: "canceled",
    6: "input-required",
    7: "rejected",
    8: "auth-required",
}


async def functional(peer: A2APeer, behaviour: Behaviour | None = None) -> str | None:
    if behaviour is not None:
        peer.rpc[SEND[peer.version]] = behaviour
    found = await judge(peer, checks=(Check.FUNCTIONAL,), functional=A2AFunctional("ping"))
    assert set(found) <= {"functional"}
    return found.get("functional")


@VERSIONS
async def test_the_message_that_is_sent(version: str) -> None:
    """Health contract 3: one blocking send, a text part, a fresh message id, no history."""
    async with A2APeer(version) as peer:
        for _ in range(2):
            assert await functional(peer) is None
        sent = [
            one.json() for one in peer.requests if one.method == "POST" and one.json()["method"] == SEND[version]
        ]
        assert len(sent) == 2
        first, second = (one["params"]["message"] for one in sent)
        assert first["messageId"] != second["messageId"]
        configuration = sent[0]["params"]["configuration"]
        assert configuration["historyLength"] == 0
        if version == V10:
            assert (first["role"], first["parts"]) == ("ROLE_USER", [{"text": "ping"}])
            assert configuration["returnImmediately"] is False
        else:
            assert (first["role"], first["parts"]) == ("user", [{"kind": "text", "text": "ping"}])
            assert (first["kind"], configuration["blocking"]) == ("message", True)


@VERSIONS
async def test_what_the_message_may_bring(version: str) -> None:
    """Health contract 3, functional: every state and form."""
    agent, user = ("ROLE_AGENT", "ROLE_USER") if version == V10 else ("agent", "user")
    part = {"text": "pong"} if version == V10 else {"kind": "text", "text": "pong"}
    data = {"data": {}} if version == V10 else {"kind": "data", "data": {}}
    async with A2APeer(version) as peer:
        for word, wanted in STATES.items():
            assert await functional(peer, task(version, state(version, word))) == wanted, word
        if version == V10:
            for number, word in NUMBERS.items():
                assert await functional(peer, task(version, number)) == STATES[word], word
            assert await functional(peer, task(version, 0)) == "UNKNOWN a2a_pending"
            assert await functional(peer, message(version, 2, [part])) is None
        assert await functional(peer, message(version, agent, [part])) is None
        assert await functional(peer, message(version, agent, [data])) == "UNHEALTHY a2a_functional"
        assert await functional(peer, message(version, user, [part])) == "UNHEALTHY a2a_protocol"
        done = {"id": "t", "status": {"state": state(version, "completed")}}
        malformed = [
            reply.result({}),
            reply.result(None),
            reply.result({"task": done, "message": {}}),
            task(version, "no such state"),
            task(version, state(version, "completed"), artifacts={}),
            reply.with_id(b"1"),
        ]
        for behaviour in malformed:
            assert await functional(peer, behaviour) == "UNHEALTHY a2a_protocol"
        assert await functional(peer, reply.error(-32602)) == "UNHEALTHY a2a_rpc"
        assert await functional(peer, reply.error(-32009)) == "UNHEALTHY a2a_version"
        assert await functional(peer, reply.body(b"", status=403)) == "MISCONFIGURED a2a_auth"
        gateway = reply.error(-32001, headers=[("X-Gateway-Error", "AGENT_TIMEOUT")])
        assert await functional(peer, gateway) == "UNKNOWN a2a_gateway"


async def test_a_card_that_takes_no_text_is_sent_none() -> None:
    """Health contract 3: needs text/plain in and out, otherwise MISCONFIGURED and nothing is sent."""
    async with A2APeer() as peer:
        for member in ("defaultInputModes", "defaultOutputModes"):
            peer.card[member] = ["image/png"]
            assert await functional(peer) == "MISCONFIGURED a2a_functional"
            peer.card[member] = ["IMAGE/png", "Text/Plain; charset=utf-8"]
            assert await functional(peer) is None
        sent = [one for one in peer.requests if one.method == "POST" and one.json()["method"] == "SendMessage"]
        assert len(sent) == 2


async def test_nothing_of_a_hostile_answer_is_kept() -> None:
    """Health contract 2: never a byte of a response in a result (terminal escapes, new lines, secrets)."""
    poison = "\x1b[31mPOISON\r\n\u202e"
    async with A2APeer() as peer:
        peer.card["name"] = peer.card["skills"][0]["id"] = poison
        peer.rpc["GetTask"] = reply.error(-32000, poison, data=[poison], headers=[*reply.JSON, ("X-P", "POISON")])
        result = await check(target(peer, required_skills=("echo",)), environ=TOKEN)
        assert "POISON" not in repr(result)
        assert "s3cret" not in repr(result)
        assert result.status is Status.UNHEALTHY
