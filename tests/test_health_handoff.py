"""The six gates of a handoff, and what the answer says (health contract 8)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from healthcheck.card import V03, V10
from healthcheck.cli import handoff
from healthcheck.handoff import EXIT_CODES, GATES, Question, Trace, judge
from healthcheck.handoff_remedies import REMEDIES
from healthcheck.url import Origin
from tests.fakes import reply
from tests.fakes.agent import Behaviour
from tests.fakes.certs import Authority
from tests.fakes.health_peer import A2APeer, card_03, card_10

URL = "https://agent.example/rpc"
HOME = Origin("https", "agent.example", 443)
AWAY = Origin("https", "other.example", 443)
BEARER = {
    "securityRequirements": [{"schemes": {"b": {}}}],
    "securitySchemes": {"b": {"type": "http", "scheme": "bearer"}},
}
ENV = {"TOKEN": "s3cret-token"}


def card(url: str = URL, **members: Any) -> dict[str, Any]:
    return {**card_10(url), **BEARER, **members}


def walk(document: Any, environ: Mapping[str, str] = ENV, **more: Any) -> Trace:
    """The trace of a dry run with a bound credential of the card's own origin, unless told otherwise."""
    question = Question(**{"skill": "echo", "origins": (HOME,), "credential": (HOME, "TOKEN"), **more})
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return judge(question, body, environ)[0]


def stop(trace: Trace) -> str:
    """`ready`, or the gate and the reason."""
    last = trace.gates[-1]
    assert [gate.name for gate in trace.gates] == list(GATES[: len(trace.gates)]), (
        "in order, the first failure stops"
    )
    assert all(gate.reason is None for gate in trace.gates[:-1])
    assert trace.sends == 0
    assert trace.artifact == "none"
    if last.reason is None:
        assert (last.name, trace.final_state) == ("request", "ready")
        return "ready"
    assert trace.final_state == last.reason
    return f"{len(trace.gates)} {last.reason}"


def skill(**members: Any) -> list[dict[str, Any]]:
    return [{"id": "echo", "name": "Echo", **members}]


CASES: list[tuple[Any, dict[str, Any], str]] = [
    (card(), {}, "ready"),
    # 1 card
    (b"", {}, "1 card-malformed"),
    (b"[]", {}, "1 card-malformed"),
    (b"<html>", {}, "1 card-malformed"),
    (b'{"x": NaN}', {}, "1 card-malformed"),
    (card(name=""), {}, "1 card-malformed"),
    (card(supportedInterfaces=[]), {}, "1 card-malformed"),
    ({}, {}, "1 card-malformed"),
    # 2 endpoint
    (
        card("http://agent.example/rpc"),
        {"origins": (Origin("http", "agent.example", 80),)},
        "2 endpoint-not-https",
    ),
    (card("http://agent.example/rpc"), {"policy": "advertised"}, "2 endpoint-not-https"),
    (card("https://user@agent.example/rpc"), {}, "2 endpoint-userinfo"),
    (card("https://agent.example/rpc#x"), {}, "2 endpoint-fragment"),
    (card("https://agent.example.evil.test/rpc"), {}, "2 endpoint-not-allowed"),
    (card("https://agent.example@evil.test/"), {}, "2 endpoint-userinfo"),
    (card("https://agent.example:8443/rpc"), {}, "2 endpoint-not-allowed"),
    (card("https://AGENT.example:443/rpc"), {}, "ready"),
    (card("nonsense"), {}, "2 endpoint-malformed"),
    (card(), {"origins": ()}, "2 endpoint-not-allowed"),
    (card(), {"origins": (AWAY, HOME)}, "ready"),
    # a card whose endpoint origin differs: the three outcomes that differ
    (card("https://other.example/rpc"), {}, "2 endpoint-not-allowed"),
    (card("https://other.example/rpc"), {"policy": "advertised"}, "4 credential-origin"),
    (card("https://other.example/rpc"), {"policy": "advertised", "scope": "broad"}, "ready"),
    # 3 contract
    (card_03(URL), {}, "3 protocol-version"),
    (card(), {"version": V03}, "3 protocol-version"),
    (
        {**card_03(URL), "security": [{"b": []}], "securitySchemes": BEARER["securitySchemes"]},
        {"version": V03},
        "ready",
    ),
    (
        {name: value for name, value in card_03(URL).items() if name != "protocolVersion"},
        {"version": V03},
        "3 protocol-version",
    ),
    (
        card(supportedInterfaces=[{"url": URL, "protocolBinding": "GRPC", "protocolVersion": "1.0"}]),
        {},
        "3 transport",
    ),
    (card(), {"skill": "translate"}, "3 skill-not-advertised"),
    (card(), {"skill": "ECHO"}, "3 skill-not-advertised"),
    (card(skills=[]), {}, "3 skill-not-advertised"),
    (card(capabilities={"extensions": [{"uri": "urn:x", "required": True}]}), {}, "3 extension-required"),
    # an image-only skill stops until text/plain is added
    (card(skills=skill(inputModes=["image/png"])), {}, "3 input-mode"),
    (card(skills=skill(inputModes=["image/png", "text/plain"])), {}, "ready"),
    (card(skills=skill(outputModes=["image/png"])), {}, "3 output-mode"),
    (card(skills=skill(outputModes=["image/png", "Text/Plain;charset=utf-8"])), {}, "ready"),
    (card(defaultInputModes=["image/png"]), {}, "3 input-mode"),
    (card(defaultInputModes=["image/png"], skills=skill(inputModes=["text/plain"])), {}, "ready"),
    (card(skills=skill(inputModes=["image/png"])), {"input_mode": "image/png"}, "ready"),
    # 4 credential
    (card(), {"credential": None}, "4 credential-missing"),
    (card(), {"credential": None, "public": True}, "4 credential-missing"),
    (card(), {"credential": (HOME, "UNSET")}, "4 credential-missing"),
    (card(), {"credential": (HOME, "UNSET"), "scope": "broad"}, "4 credential-missing"),
    (card(), {"credential": (AWAY, "TOKEN")}, "4 credential-origin"),
    (card(), {"credential": (AWAY, "TOKEN"), "scope": "broad"}, "ready"),
    (card_10(URL), {}, "4 security-missing"),
    (card_10(URL), {"credential": None}, "4 security-missing"),
    (card_10(URL), {"credential": None, "public": True}, "ready"),
    (card_10(URL), {"credential": (HOME, "UNSET"), "public": True}, "4 credential-missing"),
    (card(securitySchemes={"b": {"apiKeySecurityScheme": {}}}), {}, "4 security-unsupported"),
    (
        card(securitySchemes={"b": {"apiKeySecurityScheme": {}}}),
        {"public": True, "credential": None},
        "4 security-unsupported",
    ),
    # 5 request
    (card(), {"text": "hello"}, "ready"),
    (card(), {"text": "  "}, "5 request-invalid"),
    (card(), {"text": "é" * 32768}, "ready"),
    (card(), {"text": "é" * 32769}, "5 request-invalid"),
    (card(), {"text": "\udcff"}, "5 request-invalid"),
]


@pytest.mark.parametrize(("document", "options", "wanted"), CASES, ids=range(len(CASES)))
def test_gates_one_to_five(document: Any, options: dict[str, Any], wanted: str) -> None:
    """Health contract 8: six gates in order, the first failure stops, nothing is sent."""
    assert stop(walk(document, **options)) == wanted


def test_exposure_is_said() -> None:
    """Health contract 8: a broad credential for an endpoint of another origin is exposed; its own is not."""
    assert not walk(card()).credential_exposed
    assert not walk(card(), scope="broad").credential_exposed
    assert walk(card(), scope="broad", credential=(AWAY, "TOKEN")).credential_exposed
    assert not walk(card(), credential=(AWAY, "TOKEN")).credential_exposed, "stopped: nothing goes anywhere"
    public = {"policy": "advertised", "public": True, "scope": "broad", "credential": (AWAY, "TOKEN")}
    assert not walk(card_10(URL), **public).credential_exposed, "a card that asks for none is sent none"


def test_the_request_is_shown_and_holds_nothing_invented() -> None:
    """Health contract 8, gate 5: fresh ids, no skill field; the trace holds no token and no text of the card."""
    first, second = (walk(card(name="\x1b[31mPOISON"), text="hello") for _ in range(2))
    assert first.request is not None
    assert second.request is not None
    assert first.request["method"] == "SendMessage"
    assert first.request["id"] != second.request["id"]
    assert first.request["params"]["message"]["messageId"] != second.request["params"]["message"]["messageId"]
    assert first.request["params"]["message"]["parts"] == [{"text": "hello"}]
    assert "skill" not in json.dumps(first.request)
    assert "s3cret" not in repr(first)
    assert "POISON" not in repr(first)
    assert first.destination == URL


# -- gate 6, from the outside


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("handoff-ca"))


@pytest.fixture(params=[V10, V03])
async def peer(request: pytest.FixtureRequest, authority: Authority) -> AsyncIterator[A2APeer]:
    async with A2APeer(request.param, tls=authority.server()) as running:
        yield running


async def hand_off(peer: A2APeer, authority: Authority, *more: str, send: str | None = "hello") -> dict[str, Any]:
    """The command, in a thread of its own, with the peer's card fetched from it."""
    arguments = [
        *("--card", peer.at("/.well-known/agent-card.json"), "--skill", "echo", "--public"),
        *("--origin", peer.at("").rstrip("/"), "--protocol-version", peer.version, "--format", "json"),
        *("--ca-file", str(authority.ca_file), *more),
        *(("--send", send) if send is not None else ()),
    ]
    outcome = await asyncio.to_thread(CliRunner().invoke, handoff, arguments, env={"TOKEN": "s3cret-token"})
    assert outcome.stderr == "", outcome.stderr
    trace: dict[str, Any] = json.loads(outcome.stdout)
    assert outcome.exit_code == EXIT_CODES.get(trace["final_state"], 4)
    assert "POISON" not in outcome.stdout
    return trace


def sends(peer: A2APeer) -> int:
    return sum(request.method == "POST" for request in peer.requests)


def method(peer: A2APeer) -> str:
    return "SendMessage" if peer.version == V10 else "message/send"


def task(peer: A2APeer, word: str, *, text: bool = False, id: str = "task-7") -> Behaviour:
    state = f"TASK_STATE_{word.upper().replace('-', '_')}" if peer.version == V10 else word
    part = {"text": "POISON\x1b[31m"} if peer.version == V10 else {"kind": "text", "text": "POISON"}
    value = {
        "id": id,
        "contextId": "c",
        "status": {"state": state},
        "artifacts": [{"artifactId": "a", "parts": [part] if text else []}],
    }
    return reply.result({"task": value} if peer.version == V10 else {**value, "kind": "task"})


def message(peer: A2APeer) -> Behaviour:
    role, part = (
        ("ROLE_AGENT", {"text": "hi"}) if peer.version == V10 else ("agent", {"kind": "text", "text": "hi"})
    )
    value = {"messageId": "m", "role": role, "parts": [part]}
    return reply.result({"message": value} if peer.version == V10 else {**value, "kind": "message"})


# the table of the contract, row by row: answer → final state, artifact, task id kept
ROWS: dict[str, tuple[Any, tuple[str, str, str | None]]] = {
    "completed with text": (lambda peer: task(peer, "completed", text=True), ("completed", "accepted", None)),
    "completed without text": (lambda peer: task(peer, "completed"), ("completed-no-text", "none", None)),
    "working": (lambda peer: task(peer, "working", text=True), ("working-not-complete", "none", "task-7")),
    "submitted": (lambda peer: task(peer, "submitted"), ("working-not-complete", "none", "task-7")),
    "failed": (lambda peer: task(peer, "failed", text=True), ("peer-failed", "none", None)),
    "rejected": (lambda peer: task(peer, "rejected"), ("peer-failed", "none", None)),
    "canceled": (lambda peer: task(peer, "canceled"), ("peer-failed", "none", None)),
    "input required": (lambda peer: task(peer, "input-required"), ("needs-input", "none", "task-7")),
    "auth required": (lambda peer: task(peer, "auth-required"), ("needs-auth", "none", "task-7")),
    "a hostile task id": (
        lambda peer: task(peer, "working", id="\x1b[31mPOISON"),
        ("working-not-complete", "none", None),
    ),
    "an id with any visible character": (
        lambda peer: task(peer, "working", id="tasks/7?a=b#c"),
        ("working-not-complete", "none", "tasks/7?a=b#c"),
    ),
    "direct message": (message, ("unsupported-form", "none", None)),
    "other result": (lambda peer: reply.result({"x": 1}), ("unsupported-form", "none", None)),
    "null result": (lambda peer: reply.result(None), ("unsupported-form", "none", None)),
    "error": (lambda peer: reply.error(-32602, "POISON"), ("unsupported-form", "none", None)),
    "other id": (lambda peer: reply.with_id(b'"other"'), ("response-rejected", "none", None)),
    "no id": (lambda peer: reply.with_id(None), ("response-rejected", "none", None)),
    "malformed": (
        lambda peer: reply.body(b'{"jsonrpc": "2.0", "id": POISON'),
        ("response-rejected", "none", None),
    ),
    "html": (lambda peer: reply.body(b"<html>"), ("response-rejected", "none", None)),
    "401": (lambda peer: reply.body(b"", status=401), ("response-rejected", "none", None)),
    "500": (lambda peer: reply.error(-32603, status=500), ("response-rejected", "none", None)),
    "redirect": (lambda peer: reply.redirect("https://evil.test/"), ("response-rejected", "none", None)),
    "too large": (lambda peer: reply.endless(), ("response-rejected", "none", None)),
    "cut off": (lambda peer: reply.short(b"{"), ("response-rejected", "none", None)),
    "connection lost": (lambda peer: reply.close(), ("connection-unknown", "none", None)),
    "deadline": (lambda peer: reply.hang(), ("timeout-unknown", "none", None)),
    "deadline in the body": (
        lambda peer: reply.dribble(reply.wire(body=b"x" * 99), every=0.05, first=50),
        ("timeout-unknown", "none", None),
    ),
}


@pytest.mark.parametrize("row", ROWS)
async def test_the_table_row_by_row(peer: A2APeer, authority: Authority, row: str) -> None:
    """Health contract 8, gate 6: final state, artifact, sends; no retry, no cancel, no polling."""
    behaviour, wanted = ROWS[row]
    peer.rpc[method(peer)] = behaviour(peer)
    trace = await hand_off(peer, authority, *(("--deadline-ms", "300") if row.startswith("deadline") else ()))
    assert (trace["final_state"], trace["artifact"], trace["task_id"]) == wanted
    assert trace["sends"] == sends(peer) == 1
    assert peer.requests[-1].json() == trace["request"]
    assert [gate["result"] for gate in trace["gates"]][:5] == ["pass"] * 5
    assert (trace["gates"][5]["result"] == "pass") is (wanted[0] == "completed")


async def test_a_dry_run_sends_nothing(peer: A2APeer, authority: Authority) -> None:
    """Health contract 8: dry run without --send; stopped gates send nothing either."""
    trace = await hand_off(peer, authority, send=None)
    assert (trace["final_state"], trace["sends"], sends(peer)) == ("ready", 0, 0)
    assert trace["request"]["method"] == method(peer)
    assert trace["gates"][5] == {"gate": "response", "result": "not reached"}
    trace = await hand_off(peer, authority, "--skill", "translate")
    assert (trace["final_state"], trace["sends"], sends(peer)) == ("skill-not-advertised", 0, 0)


@pytest.mark.parametrize(
    ("deadline", "wanted"), [(100, "timeout-unknown"), (200, "completed"), (300, "completed")]
)
async def test_deadlines_against_a_peer_of_150_ms(authority: Authority, deadline: int, wanted: str) -> None:
    """Required: 100 ms is timeout-unknown, 200 and 300 permit interpretation."""
    async with A2APeer(tls=authority.server()) as peer:
        peer.rpc["SendMessage"] = reply.late(0.15, task(peer, "completed", text=True))
        states = {
            (await hand_off(peer, authority, "--deadline-ms", str(deadline)))["final_state"] for _ in range(3)
        }
    if wanted == "completed":
        assert wanted in states, "50 ms are enough at least once in three tries, on a busy machine too"
    else:
        assert states == {wanted}


async def test_the_credential_goes_where_the_gates_allow(authority: Authority) -> None:
    """Health contract 8: the token is sent once, to the endpoint, and shown nowhere."""
    async with A2APeer(tls=authority.server()) as peer:
        peer.card.update(BEARER)
        own = peer.at("").rstrip("/")
        trace = await hand_off(peer, authority, "--credential", f"{own}=TOKEN")
        assert (trace["final_state"], trace["credential_exposed"]) == ("completed-no-text", False)
        assert "s3cret" not in json.dumps(trace)
        assert [request.header("authorization") for request in peer.requests] == [None, "Bearer s3cret-token"]
        broad = ("--credential", "https://away.example=TOKEN", "--credential-scope", "broad")
        assert (await hand_off(peer, authority, *broad))["credential_exposed"] is True
        bound = ("--credential", "https://away.example=TOKEN")
        trace = await hand_off(peer, authority, *bound)
        assert (trace["final_state"], trace["sends"], sends(peer)) == ("credential-origin", 0, 2)


async def test_nobody_there(authority: Authority, tmp_path: Path) -> None:
    """A connection that could not be made sent nothing; a card that cannot be fetched stops at gate 1."""
    async with A2APeer(tls=authority.server()) as peer:
        path = tmp_path / "card.json"
        path.write_text(json.dumps(peer.card))
        base = peer.at("").rstrip("/")
    arguments = [
        "--card",
        str(path),
        "--skill",
        "echo",
        "--public",
        "--origin",
        base,
        "--send",
        "x",
        "--format",
        "json",
    ]
    outcome = await asyncio.to_thread(CliRunner().invoke, handoff, arguments)
    trace = json.loads(outcome.stdout)
    assert (trace["final_state"], trace["sends"], outcome.exit_code) == ("unreachable", 0, 3)
    arguments[1] = f"{base}/card.json"
    outcome = await asyncio.to_thread(CliRunner().invoke, handoff, arguments)
    assert (json.loads(outcome.stdout)["final_state"], outcome.exit_code) == ("card-unreachable", 4)


async def test_for_people(authority: Authority) -> None:
    """Without --format: the gates, what was looked at, and the request that was not sent."""
    async with A2APeer(tls=authority.server()) as peer:
        base = peer.at("").rstrip("/")
        arguments = ["--card", peer.at("/.well-known/agent-card.json"), "--skill", "echo", "--public"]
        outcome = await asyncio.to_thread(
            CliRunner().invoke, handoff, [*arguments, "--origin", base, "--ca-file", str(authority.ca_file)]
        )
    lines = outcome.stdout.splitlines()
    assert [line for line in lines if line[:1].isdigit()] == [
        "1 card       pass",
        "2 endpoint   pass",
        "3 contract   pass",
        "4 credential pass",
        "5 request    pass",
        "6 response   not reached",
    ]
    assert "sends: 0" in lines
    assert f"destination: {peer.base}" in lines
    assert lines[-1].startswith('request, not sent: {"jsonrpc": "2.0"')


def test_every_stop_has_a_remedy_and_a_place_in_the_docs() -> None:
    """For people: the next thing to try; the table of reasons in docs/handoff.md is complete."""
    page = (Path(__file__).parent.parent / "docs" / "handoff.md").read_text()
    reasons = {wanted.partition(" ")[2] for _, _, wanted in CASES} - {""}
    fetching = {"card-unreachable", "card-http-status", "card-too-large", "card-url"}
    assert set(REMEDIES) == reasons | fetching
    assert all(f"`{reason}`" in page for reason in REMEDIES)


def test_the_remedy_is_shown(tmp_path: Path) -> None:
    """A reader who meets the default policy for the first time learns how to allow an origin."""
    file = tmp_path / "card.json"
    file.write_text(json.dumps(card_10(URL)))
    outcome = CliRunner().invoke(handoff, ["--card", str(file), "--skill", "echo"])
    lines = outcome.stdout.splitlines()
    assert "2 endpoint   stop: endpoint-not-allowed" in lines
    assert "    try: If you trust this origin, allow it with --origin." in lines
