"""Adapters http, api, gateway and router (health contract 4)."""

from __future__ import annotations

from typing import Any

import pytest

from healthcheck.model import Check, HttpOptions, Status, Target
from tests.fakes import reply
from tests.fakes.agent import Behaviour, FaultAgent
from tests.fakes.health_peer import check, codes, statuses

TYPES = ("http", "api", "gateway", "router")


async def judge(behaviour: Behaviour, *, type: str = "http", **options: Any) -> tuple[str, str | None]:
    async with FaultAgent() as agent:
        agent.always(behaviour)
        target = Target(type=type, endpoint=agent.at("/up?x=1"), timeout_ms=500, http=HttpOptions(**options))
        result = await check(target)
        assert len(agent.requests) == 1
        assert (agent.requests[0].method, agent.requests[0].target) == (options.get("method", "GET"), "/up?x=1")
    return result.status.value, codes(result).get("reachability")


@pytest.mark.parametrize("type", TYPES)
async def test_every_word_works(type: str) -> None:
    """Health contract 4: configuration, reachability and latency are what these types have."""
    async with FaultAgent() as agent:
        agent.always(reply.body(b"ok"))
        result = await check(Target(type=type, endpoint=agent.url))
    assert result.status is Status.HEALTHY
    assert list(statuses(result)) == ["configuration", "reachability", "latency"]


CASES: list[tuple[Behaviour, dict[str, Any], tuple[str, str | None]]] = [
    (reply.body(b"", status=204, headers=[]), {}, ("HEALTHY", None)),
    (reply.body(b"", status=500), {}, ("UNHEALTHY", "http_status")),
    (reply.body(b"", status=404), {"expected_status": (404, 410)}, ("HEALTHY", None)),
    (reply.body(b""), {"expected_status": (404,)}, ("UNHEALTHY", "http_status")),
    (reply.body(b"", status=401), {}, ("MISCONFIGURED", "http_auth")),
    (reply.body(b"", status=401), {"expected_status": (401,)}, ("HEALTHY", None)),
    (reply.redirect("/"), {"expected_status": (302,)}, ("HEALTHY", None)),
    (reply.body(b'{"status": "up"}'), {"body_contains": '"up"'}, ("HEALTHY", None)),
    (reply.body("Größe".encode()), {"body_contains": "Größe"}, ("HEALTHY", None)),
    (reply.body(b'{"status": "down"}'), {"body_contains": '"up"'}, ("UNHEALTHY", "http_body")),
    (reply.body(b"x" * 100), {"max_body_bytes": 10}, ("HEALTHY", None)),
    (reply.raw(reply.head(200, [("Content-Length", "99")])), {"method": "HEAD"}, ("HEALTHY", None)),
]


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        *((status, f"http_{status}") for status in (401, 403, 404, 429, 502, 503, 504)),
        (302, "redirect"),
        (304, "redirect"),
        (410, "http_4xx"),
        (500, "http_5xx"),
        (999, "http_other"),
    ],
)
async def test_the_reason_tells_which_status(status: int, wanted: str) -> None:
    """A proxy that answers for a missing agent (502 to 504) is told apart from an agent that fails."""
    async with FaultAgent() as agent:
        agent.always(reply.raw(reply.head(status, [("Content-Length", "0")])))
        result = await check(Target(type="http", endpoint=agent.url))
        assert result.checks[Check.REACHABILITY].reason == wanted


@pytest.mark.parametrize(("behaviour", "options", "wanted"), CASES, ids=range(len(CASES)))
async def test_cases(behaviour: Behaviour, options: dict[str, Any], wanted: tuple[str, str | None]) -> None:
    """Health contract 4: expected status, then the body."""
    assert await judge(behaviour, **options) == wanted


async def test_headers_and_the_bearer() -> None:
    """Health contract 4: own headers; the bearer of the named variable wins over a written one."""
    async with FaultAgent() as agent:
        agent.always(reply.body(b"ok"))
        options = HttpOptions(headers=(("X-Probe", "yes"), ("authorization", "Basic x")))
        await check(Target(type="http", endpoint=agent.url, http=options))
        await check(Target(type="http", endpoint=agent.url, http=options, bearer_env="T"), environ={"T": "tok"})
        first, second = agent.requests
        assert (first.header("x-probe"), first.header("authorization")) == ("yes", "Basic x")
        assert (second.header("x-probe"), second.header("authorization")) == ("yes", "Bearer tok")


async def test_a_header_of_the_file_replaces_ours_whatever_its_case() -> None:
    """Pitfall 26: exactly one of each name that must be single."""
    async with FaultAgent() as agent:
        agent.always(reply.body(b"ok"))
        options = HttpOptions(headers=(("user-agent", "mine"), ("ACCEPT-ENCODING", "gzip")))
        await check(Target(type="http", endpoint=agent.url, http=options))
        [request] = agent.requests
        assert (request.values("user-agent"), request.values("accept-encoding")) == (["mine"], ["gzip"])
