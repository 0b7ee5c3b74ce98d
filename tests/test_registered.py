"""Checks of registered agents, over sockets and the gateway's own connections (health contract 7)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.health_rules import HealthRules
from gateway.upstream import AddressGuard
from healthcheck.explain import explain
from healthcheck.model import Check, Status
from healthcheck.state import Routing
from tests.fakes import reply
from tests.fakes.agent import Behaviour, Connection, FaultAgent, Received
from tests.fakes.certs import Authority
from tests.fakes.health_peer import CARD_PATH, A2APeer, codes
from tests.fakes.kubemq import KubemqAgent
from tests.fakes.monitored import card_of, code_of, monitored
from tests.fakes.ports import refusing_port

BELOW = "/rpc/.well-known/agent-card.json"


def paths(agent: FaultAgent) -> list[tuple[str, str]]:
    return [(request.method, request.target) for request in agent.requests]


@pytest.mark.parametrize("version", ["1.0", "0.3.0"])
async def test_a_healthy_agent(version: str) -> None:
    """One read-only call to the registered URL, then the card: below the path, at the root; found, it is kept."""
    async with A2APeer(version) as peer, monitored() as it:
        watched = await it.register(peer.at("/rpc"), **card_of(peer))
        await it.checked()
        assert code_of(watched) == (Status.HEALTHY, None)
        assert watched.routing is Routing.IN_SERVICE
        assert paths(peer) == [("POST", "/rpc"), ("GET", BELOW), ("GET", CARD_PATH)]
        assert peer.requests[0].json()["method"] == ("GetTask" if version == "1.0" else "tasks/get")
        assert [request.header("a2a-version") for request in peer.requests] == [
            "1.0" if version == "1.0" else None
        ] * 3
        await it.checked()
        assert paths(peer)[3:] == [("POST", "/rpc"), ("GET", CARD_PATH)]
        assert len(peer.connections) == 1


async def test_the_tenant_goes_into_the_params() -> None:
    """Pitfall 125."""
    async with A2APeer() as peer, monitored() as it:
        peer.card["supportedInterfaces"][0]["tenant"] = "acme"
        await it.register(peer.at("/rpc"), **card_of(peer))
        await it.checked()
        assert peer.requests[0].json()["params"]["tenant"] == "acme"


@pytest.mark.parametrize(
    ("speaks", "first"), [("tasks/get", ["tasks/get"]), ("GetTask", ["tasks/get", "GetTask"])]
)
async def test_an_undeclared_agent_is_asked_in_both_ways(speaks: str, first: list[str]) -> None:
    """`tasks/get` first, then `GetTask`; the one that worked is asked for from then on."""
    async with A2APeer() as peer, monitored() as it:
        peer.card = b"no card"
        peer.rpc = {speaks: reply.error(-32001, "task not found")}
        watched = await it.register(peer.at("/rpc"))
        await it.checked()
        assert code_of(watched) == (Status.HEALTHY, None)
        assert [request.json()["method"] for request in peer.requests if request.body] == first
        await it.checked()
        assert [request.json()["method"] for request in peer.requests if request.body] == [*first, speaks]


@pytest.mark.parametrize("speaks", ["tasks/get", None])
async def test_an_agent_in_kubemqs_style(speaks: str | None) -> None:
    """No card, perhaps no look-up, bare mode words: in service or degraded, never out (issue: stay in service)."""
    async with KubemqAgent() as agent, monitored() as it:
        if speaks is None:
            agent.always(reply.error(-32601, "method not found"))
        watched = await it.register(agent.url, defaultInputModes=["text"], defaultOutputModes=["file", "data"])
        for _ in range(4):
            await it.checked()
        if speaks is None:
            assert code_of(watched) == (Status.DEGRADED, "a2a_rpc")
            assert watched.routing is Routing.DEGRADED
            assert watched.result is not None
            advice = explain(watched.result.checks[Check.PROTOCOL])
            assert advice is not None
            assert advice.remedy
        else:
            assert code_of(watched) == (Status.HEALTHY, None)


@pytest.mark.parametrize(
    ("answer", "expected", "code", "routing"),
    [
        (reply.result({"anything": 1}), Status.DEGRADED, "a2a_rpc", Routing.DEGRADED),
        (reply.error(-32603, "x"), Status.DEGRADED, "a2a_rpc", Routing.DEGRADED),
        (reply.error(-32009, "x"), Status.UNHEALTHY, "a2a_version", Routing.DEGRADED),
        (reply.body(b"<html>"), Status.UNHEALTHY, "a2a_protocol", Routing.DEGRADED),
        (reply.body(b"{}", status=401), Status.MISCONFIGURED, "a2a_auth", Routing.DEGRADED),
        (reply.body(b"{}", status=500), Status.UNHEALTHY, "a2a_http", Routing.DEGRADED),
        (reply.body(b"{}", status=429), Status.UNHEALTHY, "a2a_http", Routing.DEGRADED),
        (reply.redirect("/elsewhere"), Status.UNHEALTHY, "a2a_http", Routing.DEGRADED),
        (reply.body(b"{}", status=503), Status.UNHEALTHY, "a2a_http", Routing.OUT_OF_SERVICE),
        (reply.body(b"{}", status=502), Status.UNHEALTHY, "a2a_http", Routing.OUT_OF_SERVICE),
        (reply.reset(), Status.UNREACHABLE, "connection_lost", Routing.OUT_OF_SERVICE),
        (reply.close(), Status.UNREACHABLE, "connection_lost", Routing.OUT_OF_SERVICE),
        (reply.banner(), Status.UNKNOWN, "not_http", Routing.DEGRADED),
        (reply.short(b"{"), Status.UNKNOWN, "a2a_limit", Routing.DEGRADED),
    ],
    ids=lambda value: value.name if isinstance(value, Behaviour) else str(value),
)
async def test_what_three_checks_make_of_it(
    answer: Behaviour, expected: Status, code: str, routing: Routing
) -> None:
    """Only the unreachable and 502-504 leave the service; every other finding is degraded."""
    async with FaultAgent(path="/rpc") as agent, monitored() as it:
        agent.always(answer)
        watched = await it.register(agent.url, protocolVersion="0.3.0")
        for _ in range(3):
            await it.checked()
        assert code_of(watched) == (expected, code)
        assert watched.routing is routing


async def test_nothing_listens() -> None:
    with refusing_port() as port:
        async with monitored() as it:
            watched = await it.register(f"http://127.0.0.1:{port}/")
            for expected in (Routing.UNCHECKED, Routing.UNCHECKED, Routing.OUT_OF_SERVICE):
                await it.checked()
                assert code_of(watched) == (Status.UNREACHABLE, "connect_refused")
                assert watched.routing is expected


async def test_a_name_that_leads_where_we_must_not_go() -> None:
    """Contract 6.3: the address guard holds for probes; our own rule never evicts an agent."""
    async with FaultAgent() as agent, monitored(guard=AddressGuard(allow_loopback=False)) as it:
        watched = await it.register(f"http://localhost:{agent.port}/")
        for _ in range(4):
            await it.checked()
        assert code_of(watched) == (Status.MISCONFIGURED, "address_not_allowed")
        assert watched.routing is Routing.DEGRADED
        assert not agent.requests


# -- credentials


async def test_a_credential_is_shown_to_the_agent() -> None:
    """Contract 6.4: used for calls and health checks alike."""
    async with A2APeer() as peer, monitored(environ={"T": "s3cret"}, credentials={"peer": "T"}) as it:
        await it.register(peer.at("/rpc"), **card_of(peer))
        await it.checked()
        assert {request.header("authorization") for request in peer.requests} == {"Bearer s3cret"}


async def test_a_missing_variable() -> None:
    """Contract 6.4: the agent's health is MISCONFIGURED, and nothing is sent."""
    async with A2APeer() as peer, monitored(credentials={"peer": "T"}) as it:
        watched = await it.register(peer.at("/rpc"), **card_of(peer))
        for _ in range(4):
            await it.checked()
        assert code_of(watched) == (Status.MISCONFIGURED, "bearer_env")
        assert watched.routing is Routing.DEGRADED
        assert not peer.requests


BEARER = {
    "securitySchemes": {"b": {"type": "http", "scheme": "bearer"}},
    "security": [{"b": []}],
}
KEY = {
    "securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": "X-Key"}},
    "security": [{"k": []}],
}


@pytest.mark.parametrize("card", [BEARER, KEY], ids=["bearer", "key"])
async def test_a_card_that_asks_for_a_credential_gets_no_call_without(card: dict[str, Any]) -> None:
    """Pitfall 126: MISCONFIGURED and no RPC; that the agent is there is shown by its card."""
    async with A2APeer("0.3.0") as peer, monitored() as it:
        watched = await it.register(peer.at("/rpc"), **card_of(peer, **card))
        await it.checked()
        assert code_of(watched) == (Status.MISCONFIGURED, "a2a_auth")
        assert {request.method for request in peer.requests} == {"GET"}
        await peer.close()
        for _ in range(3):
            await it.checked()
        assert watched.routing is Routing.OUT_OF_SERVICE


# -- the registered card


@pytest.mark.parametrize(
    ("card", "code"),
    [
        ({}, None),
        ({"version": " "}, "a2a_card"),
        ({"skills": [{"id": "a", "name": "A"}, {"id": "a", "name": "B"}]}, "a2a_card"),
        ({"skills": [{"id": " ", "name": "A"}]}, "a2a_card"),
        ({"skills": [{"id": "a", "name": "A", "tags": []}]}, None),
        ({"defaultInputModes": ["text", "file", "data", "text/plain; charset=utf-8"]}, None),
        ({"defaultInputModes": ["rubbish"]}, "a2a_card"),
        ({"capabilities": {"streaming": "yes"}}, "a2a_card"),
        ({"capabilities": {"extensions": [{"uri": "urn:x", "required": True}]}}, "a2a_version"),
        (
            {"supportedInterfaces": [{"url": "x", "protocolBinding": "GRPC", "protocolVersion": "1.0"}]},
            "a2a_version",
        ),
        ({"description": ""}, None),
    ],
    ids=str,
)
async def test_only_what_the_registrant_sent_is_judged(card: dict[str, Any], code: str | None) -> None:
    async with KubemqAgent() as agent, monitored() as it:
        watched = await it.register(agent.url, **card)
        await it.checked()
        assert code_of(watched) == (Status.UNHEALTHY if code else Status.HEALTHY, code)
        assert watched.routing is (Routing.DEGRADED if code else Routing.IN_SERVICE)


# -- the published card


async def test_where_a_card_is_looked_for() -> None:
    """Pitfall 128: below the registered path, then at the root; HTML, 4xx and 501 mean that there is none."""
    for nothing in (reply.body(b"<html>"), reply.body(b"{}", status=405), reply.body(b"{}", status=501)):
        async with A2APeer() as peer, monitored() as it:
            peer.paths[BELOW] = nothing
            peer.paths[CARD_PATH] = nothing
            watched = await it.register(peer.at("/rpc"), **card_of(peer))
            await it.checked()
            assert code_of(watched) == (Status.HEALTHY, None)
            await it.checked()
            assert [method for method, _ in paths(peer)] == ["POST", "GET", "GET", "POST"]


async def test_a_card_below_the_path_wins() -> None:
    async with A2APeer() as peer, monitored() as it:
        peer.paths[BELOW] = reply.json(peer.card)
        peer.paths[CARD_PATH] = reply.json({**peer.card, "name": "somebody else"})
        watched = await it.register(peer.at("/rpc"), **card_of(peer))
        await it.checked()
        assert watched.drift == ()
        assert paths(peer)[-1] == ("GET", BELOW)


async def test_the_card_of_another_agent_is_none() -> None:
    """Many agents behind one origin: only a card with an address of the registered path is this agent's."""
    async with A2APeer() as peer, monitored() as it:
        peer.card["supportedInterfaces"][0]["url"] = peer.at("/other")
        peer.card["name"] = "another"
        watched = await it.register(peer.at("/rpc"), version="9")
        await it.checked()
        assert code_of(watched) == (Status.HEALTHY, None)
        assert watched.drift == ()


async def test_drift_is_named_without_contents() -> None:
    """Health contract 7: field by field; a document never holds what a response held."""
    async with A2APeer() as peer, monitored() as it:
        watched = await it.register(peer.at("/rpc"), **card_of(peer, skills=[], version="0.9"))
        peer.card["description"] = "SECRET"
        await it.checked()
        assert code_of(watched) == (Status.DEGRADED, "card_drift")
        assert watched.routing is Routing.DEGRADED
        assert watched.drift == ("version", "skills")
        assert watched.result is not None
        finding = watched.result.checks[Check.CAPABILITY]
        assert (finding.message, finding.subject) == (
            "the published card differs from the registered one",
            "version, skills",
        )
        assert "SECRET" not in repr(watched.result.checks)
        peer.card["version"], peer.card["skills"] = "0.9", []
        await it.checked()
        assert watched.drift == ()
        assert code_of(watched) == (Status.HEALTHY, None)


@pytest.mark.parametrize(
    ("change", "code"),
    [({"version": ""}, "a2a_card"), ({"capabilities": []}, "a2a_card"), ({"skills": {}}, "a2a_card")],
    ids=str,
)
async def test_a_published_card_that_breaks_a_rule(change: dict[str, Any], code: str) -> None:
    """Pitfall 131: judged, never an exception, and never a reason to evict."""
    async with A2APeer() as peer, monitored() as it:
        peer.card.update(change)
        watched = await it.register(peer.at("/rpc"))
        await it.checked()
        assert code_of(watched) == (Status.UNHEALTHY, code)
        assert watched.routing is Routing.DEGRADED


async def test_a_card_that_is_there_no_more_and_one_that_cannot_be_had() -> None:
    async with A2APeer() as peer, monitored() as it:
        watched = await it.register(peer.at("/rpc"), **card_of(peer, version="0.9"))
        await it.checked()
        assert watched.drift == ("version",)
        peer.paths[CARD_PATH] = reply.body(b"{}", status=500)
        await it.checked()
        assert code_of(watched) == (Status.DEGRADED, "a2a_http")
        peer.paths[CARD_PATH] = reply.body(b"{}", status=404)
        await it.checked()
        assert code_of(watched) == (Status.HEALTHY, None)
        assert watched.drift == ()
        asked = len(peer.requests)
        for _ in range(10):
            await it.checked()
        assert len(peer.requests) == asked + 10
        del peer.paths[CARD_PATH]
        await it.checked()  # after ten runs it is looked for again
        assert watched.drift == ("version",)


async def test_the_size_of_a_card_is_bounded() -> None:
    """Pitfall 130: what is too large to be read is taken for something else."""
    async with A2APeer() as peer, monitored() as it:
        peer.card["description"] = "x" * (1 << 20)
        watched = await it.register(peer.at("/rpc"), name="peer", version="0.9")
        await it.checked()
        assert code_of(watched) == (Status.HEALTHY, None)


# -- TLS


async def test_an_agent_behind_tls(tmp_path: Path) -> None:
    """Its certificate's end is known; with `agent_tls_skip_verify` the check says so (contract 4)."""
    authority = Authority(tmp_path)
    async with A2APeer(tls=authority.server()) as peer:
        async with monitored(ca_file=str(authority.ca_file)) as it:
            watched = await it.register(peer.at("/rpc"), **card_of(peer))
            await it.checked()
            assert code_of(watched) == (Status.HEALTHY, None)
            assert watched.result is not None
            measured = watched.result.checks[Check.REACHABILITY].measured
            assert measured is not None
            assert measured.certificate_expires_at is not None
        async with monitored() as it:
            watched = await it.register(peer.at("/rpc"), **card_of(peer))
            await it.checked()
            assert watched.result is not None
            assert codes(watched.result) == {"reachability": "tls_certificate"}
            assert watched.result.checks[Check.REACHABILITY].reason == "certificate_untrusted"
        async with monitored(HealthRules(3600.0, verified=False), tls_skip_verify=True) as it:
            watched = await it.register(peer.at("/rpc"), **card_of(peer))
            await it.checked()
            assert code_of(watched) == (Status.DEGRADED, "tls_unverified")


async def test_a_hanging_agent_is_unreachable_and_a_slow_one_degraded() -> None:
    """Pitfall 119: half of the deadline is slow, all of it is unreachable."""
    async with FaultAgent(path="/rpc") as agent, monitored(HealthRules(1.0)) as it:
        agent.always(reply.late(0.6, reply.error(-32001, "task not found")))
        watched = await it.register(agent.url, protocolVersion="0.3.0")
        await it.checked()
        assert code_of(watched) == (Status.DEGRADED, "latency")
        agent.always(reply.hang())
        await it.checked()
        assert code_of(watched) == (Status.UNREACHABLE, "deadline")


async def test_an_answer_for_another_request() -> None:
    """Pitfall 124: an id that is not the request's proves nothing."""

    async def foreign(connection: Connection, request: Received | None) -> None:
        error = {"code": -32001, "message": "task not found"}
        body = json.dumps({"jsonrpc": "2.0", "id": "another", "error": error}).encode()
        await connection.send(reply.wire(200, reply.JSON, body))

    async with FaultAgent(path="/rpc") as agent, monitored() as it:
        agent.always(Behaviour("foreign", foreign))
        watched = await it.register(agent.url, protocolVersion="0.3.0")
        await it.checked()
        assert code_of(watched) == (Status.UNHEALTHY, "a2a_protocol")
