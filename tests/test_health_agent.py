"""Adapters agent and multi-agent (health contract 4)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from healthcheck.model import AgentFunctional, AgentOptions, Check, Dependency, Status, Target
from tests.fakes import reply
from tests.fakes.agent import Behaviour
from tests.fakes.health_peer import DOCUMENT, AgentPeer, check, codes, statuses


def target(peer: AgentPeer, **more: Any) -> Target:
    options = {name: more.pop(name) for name in ("required_capabilities", "functional") if name in more}
    return Target(type="agent", endpoint=peer.base, timeout_ms=1000, agent=AgentOptions(**options), **more)


async def judge(peer: AgentPeer, environ: dict[str, str] | None = None, **more: Any) -> dict[str, str]:
    result = await check(target(peer, **more), environ=environ)
    return {
        name.value: f"{finding.status.value} {finding.code}"
        for name, finding in result.checks.items()
        if finding.status is not Status.HEALTHY
    }


async def test_a_good_runtime() -> None:
    """Health contract 4: HEAD for reachability, one GET shared by three checks, nothing else."""
    async with AgentPeer() as peer:
        result = await check(target(peer, bearer_env="T"), environ={"T": "token"})
        assert list(statuses(result)) == [check.value for check in Check if check is not Check.FUNCTIONAL]
        assert result.status is Status.HEALTHY
        assert peer.counts == Counter({"HEAD /health": 1, "GET /health": 1})
        assert {request.header("authorization") for request in peer.requests} == {"Bearer token"}


BROKEN = "UNHEALTHY agent_document"
DOCUMENTS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"extra": [1], "more": None}, {}),
    ({"version": "v2"}, {"protocol": BROKEN, "capability": BROKEN}),
    ({"version": 1}, {"protocol": BROKEN, "capability": BROKEN}),
    ({"name": " "}, {"protocol": BROKEN, "capability": BROKEN}),
    ({"live": "yes"}, {"protocol": BROKEN, "capability": BROKEN}),
    ({"ready": None}, {"protocol": BROKEN, "capability": BROKEN}),
    ({"capabilities": "answer"}, {"protocol": BROKEN, "capability": BROKEN}),
    ({"capabilities": ["a", "a"]}, {"protocol": BROKEN, "capability": BROKEN}),
    ({"capabilities": [""]}, {"protocol": BROKEN, "capability": BROKEN}),
    ({"dependencies": [1]}, {"protocol": BROKEN, "capability": BROKEN}),
    ({"live": False}, {"protocol": "UNHEALTHY agent_readiness"}),
    ({"ready": False}, {"protocol": "UNHEALTHY agent_readiness"}),
    ({"capabilities": []}, {"capability": "UNHEALTHY agent_required"}),
    ({"dependencies": ["stranger"]}, {"capability": "UNKNOWN agent_required"}),
]


@pytest.mark.parametrize(("change", "wanted"), DOCUMENTS, ids=range(len(DOCUMENTS)))
async def test_documents(change: dict[str, Any], wanted: dict[str, str]) -> None:
    """Health contract 4: all six members required, names non-empty, lists unique, more fields ignored."""
    async with AgentPeer() as peer:
        peer.document.update(change)
        assert await judge(peer, required_capabilities=("answer",)) == wanted


@pytest.mark.parametrize("member", DOCUMENT)
async def test_every_member_is_required(member: str) -> None:
    """Health contract 4."""
    async with AgentPeer() as peer:
        del peer.document[member]
        assert await judge(peer) == {"protocol": BROKEN, "capability": BROKEN}


REPLIES: list[tuple[Behaviour, dict[str, str]]] = [
    (reply.json(DOCUMENT, headers=[("Content-Type", "application/json; charset=utf-8")]), {}),
    (reply.json(DOCUMENT, headers=[("Content-Type", "text/plain")]), {"protocol": BROKEN, "capability": BROKEN}),
    (reply.json(DOCUMENT, headers=[]), {"protocol": BROKEN, "capability": BROKEN}),
    (reply.body(b"{}"), {"protocol": BROKEN, "capability": BROKEN}),
    (reply.body(b"<html>"), {"protocol": BROKEN, "capability": BROKEN}),
    (reply.body(b"[]"), {"protocol": BROKEN, "capability": BROKEN}),
    (reply.body(b"", status=401), dict.fromkeys(("authentication", "protocol"), "MISCONFIGURED agent_auth")),
    (reply.body(b"", status=403), dict.fromkeys(("authentication", "protocol"), "MISCONFIGURED agent_auth")),
    (reply.body(b"", status=503), dict.fromkeys(("authentication", "protocol"), "UNHEALTHY agent_http")),
    (reply.redirect("/elsewhere"), dict.fromkeys(("authentication", "protocol"), "UNHEALTHY agent_http")),
    (reply.endless(), dict.fromkeys(("authentication", "protocol"), "UNKNOWN agent_limit")),
    (reply.short(b"{"), dict.fromkeys(("authentication", "protocol"), "UNKNOWN agent_limit")),
    (reply.hang(), dict.fromkeys(("authentication", "protocol"), "UNREACHABLE deadline")),
]


@pytest.mark.parametrize(("behaviour", "wanted"), REPLIES, ids=range(len(REPLIES)))
async def test_replies(behaviour: Behaviour, wanted: dict[str, str]) -> None:
    """Health contract 4: statuses and codes; at most 64 KiB."""
    async with AgentPeer() as peer:
        peer.methods["GET"] = behaviour
        assert await judge(peer) == wanted
        assert peer.counts["GET /health"] == 1


async def test_any_status_proves_reachability() -> None:
    """Health contract 4: HEAD; a server without HEAD is reachable all the same."""
    async with AgentPeer() as peer:
        for status in (200, 302, 401, 405, 500):
            peer.methods["HEAD"] = reply.raw(reply.head(status, [("Content-Length", "0")]))
            assert await judge(peer) == {}
        peer.methods["HEAD"] = reply.reset()
        assert await judge(peer) == {"reachability": "UNREACHABLE connection_lost"}


async def test_advertised_dependencies_match_by_name() -> None:
    """Health contract 4: configured inline nodes or resolved references, by name (or id)."""
    async with AgentPeer() as peer, AgentPeer() as below:
        peer.document["dependencies"] = ["planner", "db"]
        nodes = (
            Dependency(target(below, name="planner")),
            Dependency(target(below, id="db", name="the database"), critical=False),
        )
        assert await judge(peer, dependencies=nodes) == {}
        assert await judge(peer, dependencies=nodes[:1]) == {"capability": "UNKNOWN agent_required"}


# -- functional


async def run_task(peer: AgentPeer, answer: Any, downstream: str | None = None) -> str | None:
    peer.task = answer
    found = await judge(peer, checks=(Check.FUNCTIONAL,), functional=AgentFunctional("do it", downstream))
    assert set(found) <= {"functional"}
    return found.get("functional")


async def test_the_safe_post() -> None:
    """Health contract 4: one POST of JSON `safe`, `text` and, if given, `downstream`."""
    async with AgentPeer() as peer:
        assert await run_task(peer, {"completed": True, "success": True}) is None
        assert peer.requests[-1].json() == {"safe": True, "text": "do it"}
        assert peer.requests[-1].header("content-type") == "application/json"
        good = {"completed": True, "success": True, "downstream": "peer"}
        assert await run_task(peer, good, "peer") is None
        assert peer.requests[-1].json() == {"safe": True, "text": "do it", "downstream": "peer"}
        assert peer.counts["POST /health"] == 2


PENDING, TASK = "UNKNOWN agent_pending", "UNHEALTHY agent_task"
ANSWERS: list[tuple[Any, str | None, str | None]] = [
    ({"completed": True, "success": False}, None, TASK),
    ({"completed": False, "success": False}, None, PENDING),
    ({"completed": True}, None, PENDING),
    ({"completed": 1, "success": 1}, None, PENDING),
    ({"success": True}, None, PENDING),
    ([], None, PENDING),
    ({"completed": True, "success": True}, "peer", PENDING),
    ({"completed": True, "success": True, "downstream": "other"}, "peer", TASK),
    ({"completed": True, "success": False, "downstream": "peer"}, "peer", TASK),
]


@pytest.mark.parametrize(("answer", "downstream", "wanted"), ANSWERS, ids=range(len(ANSWERS)))
async def test_answers_to_the_post(answer: Any, downstream: str | None, wanted: str | None) -> None:
    """Health contract 4: success false or another peer → UNHEALTHY; anything incomplete → UNKNOWN."""
    async with AgentPeer() as peer:
        assert await run_task(peer, answer, downstream) == wanted


async def test_a_failed_post_is_not_repeated() -> None:
    """Health contract 4: no polling, no retry."""
    async with AgentPeer() as peer:
        for behaviour, wanted in [
            (reply.reset(), "UNREACHABLE connection_lost"),
            (reply.body(b"", status=401), "MISCONFIGURED agent_auth"),
            (reply.body(b"", status=500), "UNHEALTHY agent_http"),
            (reply.body(b"not json"), PENDING),
        ]:
            peer.methods["POST"] = behaviour
            before = peer.counts["POST /health"]
            found = await judge(
                peer, checks=(Check.FUNCTIONAL,), functional=AgentFunctional("x"), retries=3, retry_delay_ms=0
            )
            assert (found, peer.counts["POST /health"] - before) == ({"functional": wanted}, 1)


async def test_multi_agent_is_the_same_with_another_word() -> None:
    """Health contract 4: a graph of runtimes, each with its own credential."""
    async with AgentPeer() as root, AgentPeer() as below:
        root.document["dependencies"] = ["worker"]
        node = target(below, name="worker", bearer_env="BELOW")
        peak = Target(type="multi-agent", endpoint=root.base, bearer_env="ROOT", dependencies=(Dependency(node),))
        result = await check(peak, environ={"ROOT": "root-token", "BELOW": "below-token"})
        assert (result.status, codes(result)) == (Status.HEALTHY, {})
        assert {request.header("authorization") for request in root.requests} == {"Bearer root-token"}
        assert {request.header("authorization") for request in below.requests} == {"Bearer below-token"}
        below.document["ready"] = False
        result = await check(peak, environ={"ROOT": "root-token", "BELOW": "below-token"})
        assert (result.status, codes(result)) == (Status.UNHEALTHY, {"dependency": "dependency_failed"})
