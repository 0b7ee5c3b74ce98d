"""Order, hidden gates, omissions, aggregation, retries, slots and budgets (health contract 2 and 5).

The peer is an httpx transport in this process: the engine takes its transport from outside, and the golden
tables below need a thousand runs. Real sockets are in the tests of the adapters and of the network.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx
import pytest

from healthcheck.engine import Engine
from healthcheck.exchange import KnownFailure
from healthcheck.model import (
    A2AFunctional,
    A2AOptions,
    Check,
    Dependency,
    HttpOptions,
    Result,
    Status,
    Target,
    worst,
)
from tests.fakes.health_peer import card_10, codes, statuses

ENDPOINT = "http://peer.test/rpc"
CHECKS = [check.value for check in Check if check is not Check.DEPENDENCY]


class Peer(httpx.AsyncBaseTransport):
    """An agent in this process that breaks in the way named."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.requests: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.host == "well.test":
            return httpx.Response(200)
        if request.method == "GET":
            self.requests.append("card")
            return self._card()
        call = json.loads(await request.aread())
        self.requests.append(call["method"])
        if self.fails == "authentication":
            return httpx.Response(401)
        if call["method"] == "GetTask":
            code = -32603 if self.fails == "protocol" else -32001
            return self._rpc(call, error={"code": code, "message": "m"})
        state = "TASK_STATE_FAILED" if self.fails == "functional" else "TASK_STATE_COMPLETED"
        return self._rpc(call, result={"task": {"id": "t", "status": {"state": state}}})

    def _card(self) -> httpx.Response:
        if self.fails == "reachability":
            raise httpx.ConnectError("nobody there")
        return httpx.Response(200, json=card_10(ENDPOINT))

    @staticmethod
    def _rpc(call: dict[str, Any], **answer: Any) -> httpx.Response:
        return httpx.Response(200, json={"jsonrpc": "2.0", "id": call["id"], **answer})


def a2a(checks: Sequence[str] | None, fails: str = "", **more: Any) -> Target:
    skill = "absent" if fails == "capability" else "echo"
    return Target(
        type="a2a",
        endpoint=ENDPOINT,
        checks=None if checks is None else tuple(Check(name) for name in checks),
        bearer_env="UNSET" if fails == "configuration" else None,
        latency_ms=0.0 if fails == "latency" else None,
        a2a=A2AOptions(required_skills=(skill,), functional=A2AFunctional("hello")),
        **more,
    )


async def check(target: Target, transport: httpx.AsyncBaseTransport, **options: Any) -> Result:
    [result] = await Engine(transport, environ={}, **options).run([target])
    return result


# What one requested check shows, by the check that fails. "-" is a check that is reported HEALTHY, a letter one
# that is not: D(egraded) U(nhealthy) R (unreachable) M(isconfigured). What is not named is not in the result.
GOLDEN: dict[str, dict[str, str]] = {
    "": {
        "configuration": "configuration -",
        "reachability": "reachability -",
        "authentication": "authentication -",
        "protocol": "protocol -",
        "capability": "capability -",
        "functional": "functional -",
        "latency": "latency -",
    },
    "configuration": dict.fromkeys(CHECKS, "configuration M"),
    "reachability": {
        "configuration": "configuration -",
        **dict.fromkeys(CHECKS[1:], "reachability R"),
    },
    "authentication": {
        "configuration": "configuration -",
        "reachability": "reachability -",
        "authentication": "authentication M",
        "protocol": "protocol M",
        "capability": "authentication M",
        "functional": "authentication M",
        "latency": "latency -",
    },
    "protocol": {
        "configuration": "configuration -",
        "reachability": "reachability -",
        "authentication": "authentication -",
        "protocol": "protocol U",
        "capability": "capability -",
        "functional": "functional -",
        "latency": "latency -",
    },
    "capability": {
        "configuration": "configuration -",
        "reachability": "reachability -",
        "authentication": "authentication -",
        "protocol": "protocol -",
        "capability": "capability U",
        "functional": "functional -",
        "latency": "latency -",
    },
    "functional": {
        "configuration": "configuration -",
        "reachability": "reachability -",
        "authentication": "authentication -",
        "protocol": "protocol -",
        "capability": "capability -",
        "functional": "functional U",
        "latency": "latency -",
    },
    "latency": {
        "configuration": "configuration -",
        "reachability": "reachability -",
        "authentication": "authentication -",
        "protocol": "protocol -",
        "capability": "capability -",
        "functional": "functional -",
        "latency": "latency D",
    },
}
LETTERS = {"-": "HEALTHY", "D": "DEGRADED", "U": "UNHEALTHY", "R": "UNREACHABLE", "M": "MISCONFIGURED"}


def golden(fails: str, asked: Sequence[str]) -> dict[str, str]:
    """The cells of all that was asked, in the fixed order; the summary of the dependencies comes last."""
    cells = dict(GOLDEN[fails][name].split() for name in asked if name != "dependency")
    if fails == "configuration":
        cells["configuration"] = "M"  # the one gate that the summary has
    elif "dependency" in asked and cells.get("reachability") != "R":
        cells["dependency"] = "-"
    return {name: LETTERS[cells[name]] for name in [*CHECKS, "dependency"] if name in cells}


@pytest.mark.parametrize("fails", GOLDEN)
async def test_every_failing_check_against_every_set_of_requested_checks(fails: str) -> None:
    """Health contract 2: 8 x 255 combinations, each asked in reverse order, against the table above."""
    below = Dependency(Target(type="http", endpoint="http://well.test/"))
    for size in range(1, len(CHECKS) + 2):
        for asked in itertools.combinations([*CHECKS, "dependency"], size):
            peer = Peer(fails)
            result = await check(a2a(asked[::-1], fails, dependencies=(below,)), peer)
            wanted = golden(fails, asked)
            assert list(statuses(result).items()) == list(wanted.items()), (fails, asked)
            assert result.status is worst(Status(status) for status in wanted.values())
            assert max(map(peer.requests.count, peer.requests), default=0) <= 1, "one request of each kind"


async def test_defaults_and_no_checks() -> None:
    """Health contract 2: functional only when asked for; `checks: []` runs nothing and is UNKNOWN."""
    assert list(statuses(await check(a2a(None), Peer()))) == [
        "configuration",
        "reachability",
        "authentication",
        "protocol",
        "capability",
        "latency",
    ]
    peer = Peer()
    result = await check(a2a([]), peer)
    assert (result.status, statuses(result), peer.requests) == (Status.UNKNOWN, {}, [])
    result = await check(a2a([], dependencies=(Dependency(Target(type="nonsense", endpoint="http://x/")),)), peer)
    assert (result.status, statuses(result)) == (Status.UNKNOWN, {}), "no summary either"
    assert result.dependencies[0].result.status is Status.MISCONFIGURED


async def test_a_configuration_fault_sends_nothing() -> None:
    """Health contract 2: no network, whatever was asked for."""
    peer = Peer("configuration")
    await check(a2a(CHECKS, "configuration"), peer)
    assert peer.requests == []


def test_severities() -> None:
    """Health contract 1: the exit codes, and the worst of nothing."""
    assert [(status.severity, status.value) for status in Status] == [
        (0, "HEALTHY"),
        (1, "DEGRADED"),
        (2, "UNHEALTHY"),
        (3, "UNREACHABLE"),
        (4, "MISCONFIGURED"),
        (5, "UNKNOWN"),
    ]
    assert worst([]) is Status.UNKNOWN
    assert worst([Status.UNREACHABLE, Status.DEGRADED]) is Status.UNREACHABLE


# -- dependencies


async def _web(request: httpx.Request) -> httpx.Response:
    if request.url.host == "down.test":
        raise httpx.ConnectError("nobody there")
    return httpx.Response(500 if request.url.host == "broken.test" else 200)


WEB = httpx.MockTransport(_web)

WITH_STATUS: dict[Status, Target] = {
    Status.HEALTHY: Target(type="http", endpoint="http://up.test/"),
    Status.DEGRADED: Target(type="http", endpoint="http://up.test/", latency_ms=0.0),
    Status.UNHEALTHY: Target(type="http", endpoint="http://broken.test/"),
    Status.UNREACHABLE: Target(type="http", endpoint="http://down.test/"),
    Status.MISCONFIGURED: Target(type="http", endpoint="http://up.test/", bearer_env="UNSET"),
    Status.UNKNOWN: Target(type="http", endpoint="http://up.test/", checks=()),
}

# dependency's status → what it makes of a healthy parent: (critical, optional)
AGGREGATION = {
    Status.HEALTHY: (Status.HEALTHY, Status.HEALTHY),
    Status.DEGRADED: (Status.DEGRADED, Status.HEALTHY),
    Status.UNHEALTHY: (Status.UNHEALTHY, Status.DEGRADED),
    Status.UNREACHABLE: (Status.UNHEALTHY, Status.DEGRADED),
    Status.MISCONFIGURED: (Status.UNHEALTHY, Status.DEGRADED),
    Status.UNKNOWN: (Status.UNKNOWN, Status.DEGRADED),
}


def web(*dependencies: Dependency, **more: Any) -> Target:
    return Target(type="http", endpoint="http://up.test/", dependencies=dependencies, **more)


@pytest.mark.parametrize("critical", [True, False])
@pytest.mark.parametrize("status", AGGREGATION)
async def test_every_dependency_status_critical_and_optional(status: Status, critical: bool) -> None:
    """Health contract 5, aggregation; the summary stands under `dependency` when asked for or not HEALTHY."""
    effect = AGGREGATION[status][0 if critical else 1]
    below = Dependency(WITH_STATUS[status], critical)
    for checks in (None, (Check.REACHABILITY, Check.DEPENDENCY)):
        result = await check(web(below, checks=checks), WEB)
        assert result.dependencies[0].result.status is status
        assert result.status is effect
        if checks or effect is not Status.HEALTHY:
            assert statuses(result)["dependency"] == effect.value
        else:
            assert "dependency" not in statuses(result)


@pytest.mark.parametrize("first", AGGREGATION)
@pytest.mark.parametrize("second", AGGREGATION)
async def test_several_dependencies_count_by_the_worst_effect(first: Status, second: Status) -> None:
    """Health contract 5: an optional and a critical one together."""
    target = web(Dependency(WITH_STATUS[first], True), Dependency(WITH_STATUS[second], False))
    effects = (AGGREGATION[first][0], AGGREGATION[second][1])
    assert (await check(target, WEB)).status is worst(effects)


async def test_dependencies_run_even_if_the_target_is_out_of_reach() -> None:
    """Health contract 4: always and independently; the parent's own omissions take the summary with them."""
    below = Dependency(WITH_STATUS[Status.UNKNOWN])
    down = Target(type="agent", endpoint="http://down.test/", dependencies=(below,))
    result = await check(down, WEB)
    assert statuses(result) == {"configuration": "HEALTHY", "reachability": "UNREACHABLE"}
    assert result.dependencies[0].result.status is Status.UNKNOWN
    assert result.status is Status.UNKNOWN
    wrong = Target(type="agent", endpoint="http://u@up.test/", dependencies=(below,))
    assert list(statuses(await check(wrong, WEB))) == ["configuration"]


async def test_the_summary_alone_needs_no_network_of_the_target() -> None:
    """Health contract 2: `dependency` is a summary entry, so nothing but configuration is its gate."""
    below = Dependency(WITH_STATUS[Status.HEALTHY])
    target = Target(type="http", endpoint="http://down.test/", checks=(Check.DEPENDENCY,), dependencies=(below,))
    result = await check(target, WEB)
    assert (result.status, statuses(result)) == (Status.HEALTHY, {"dependency": "HEALTHY"})


async def test_a_node_with_an_id_runs_once_and_anonymous_ones_each_time() -> None:
    """Health contract 5: shared within a run, not between runs."""
    seen: list[str] = []

    async def count(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.host)
        return httpx.Response(200)

    named = Target(type="http", endpoint="http://named.test/", id="db")
    anonymous = Target(type="http", endpoint="http://anonymous.test/")
    below = (Dependency(named), Dependency(anonymous))
    engine = Engine(httpx.MockTransport(count), environ={})
    roots = [named, web(*below), web(*below, Dependency(named, False, "path"))]
    results = await engine.run(roots)
    assert (seen.count("named.test"), seen.count("anonymous.test")) == (1, 2)
    assert results[1].dependencies[0].result is results[0]
    assert results[2].dependencies[2].relationship == "path"
    await engine.run([named])
    assert seen.count("named.test") == 2


# -- attempts


def flaky(
    fails: int, error: Callable[[], BaseException] = lambda: httpx.ConnectError("down")
) -> tuple[Any, list[str]]:
    seen: list[str] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.method)
        if len(seen) <= fails:
            raise error()
        return httpx.Response(200)

    return httpx.MockTransport(answer), seen


async def test_retries_only_while_unreachable() -> None:
    """Health contract 2: `retries` further attempts, default none."""
    for retries, fails, wanted, requests in [
        (0, 1, "UNREACHABLE", 1),
        (1, 1, "HEALTHY", 2),
        (2, 3, "UNREACHABLE", 3),
        (3, 3, "HEALTHY", 4),
    ]:
        transport, seen = flaky(fails)
        target = Target(type="http", endpoint="http://x.test/", retries=retries, retry_delay_ms=0)
        result = await check(target, transport)
        assert (statuses(result)["reachability"], len(seen)) == (wanted, requests)


async def test_attempts_and_delays_come_out_of_the_budget() -> None:
    """Health contract 2: `budget_ms` is for all attempts of a target together, the delays between them too."""
    now = 0.0

    async def costly(request: httpx.Request) -> httpx.Response:
        nonlocal now
        now += 30.0
        seen.append(now)
        raise httpx.ConnectError("down")

    seen: list[float] = []
    engine = Engine(httpx.MockTransport(costly), environ={}, run_seconds=1000, clock=lambda: now)
    target = Target(type="http", endpoint="http://x.test/", retries=3, retry_delay_ms=0)
    [result] = await engine.run([target])
    assert (statuses(result)["reachability"], seen) == ("UNREACHABLE", [30.0, 60.0])

    transport, methods = flaky(9)
    engine = Engine(transport, environ={}, clock=lambda: 0.0)  # attempts cost nothing, delays 20 ms each
    target = Target(type="http", endpoint="http://x.test/", retries=3, retry_delay_ms=20, budget_ms=50)
    await engine.run([target])
    assert len(methods) == 3


async def test_no_retry_once_a_byte_has_come() -> None:
    """Health contract 2: also if the transport calls what happened afterwards unreachable."""
    sent = 0

    async def broken() -> AsyncIterator[bytes]:
        yield b"a"
        raise KnownFailure("connection_lost")

    async def answer(request: httpx.Request) -> httpx.Response:
        nonlocal sent
        sent += 1
        return httpx.Response(200, content=broken())

    target = Target(type="http", endpoint="http://x.test/", retries=3, retry_delay_ms=0)
    result = await check(target, httpx.MockTransport(answer))
    assert (codes(result), sent) == ({"reachability": "connection_lost"}, 1)


async def test_no_retry_after_an_answer_nor_of_other_failures() -> None:
    """Health contract 2: only UNREACHABLE, only if no response byte came."""
    for answer in (httpx.Response(500), httpx.Response(401)):
        seen: list[int] = []

        async def once(
            request: httpx.Request, answer: httpx.Response = answer, seen: list[int] = seen
        ) -> httpx.Response:
            seen.append(1)
            return answer

        target = Target(type="http", endpoint="http://x.test/", retries=3, retry_delay_ms=0)
        await check(target, httpx.MockTransport(once))
        assert len(seen) == 1


async def test_active_checks_never_retry() -> None:
    """Health contract 2: a message that may have been received is not sent again."""

    class Lost(Peer):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            response = await super().handle_async_request(request)
            if self.requests[-1] == "SendMessage":
                raise httpx.ConnectError("gone")
            return response

    peer = Lost()
    result = await check(a2a(["functional"], retries=3, retry_delay_ms=0), peer)
    assert statuses(result) == {"functional": "UNREACHABLE"}
    assert peer.requests == ["card", "GetTask", "SendMessage"]


async def test_a_failed_passive_rpc_is_shared_too() -> None:
    """Required: one card fetch and one passive RPC per target run, also when they fail."""

    class Lost(Peer):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            response = await super().handle_async_request(request)
            if self.requests[-1] == "GetTask":
                raise httpx.ReadError("gone")
            return response

    peer = Lost()
    result = await check(a2a(CHECKS), peer)
    assert statuses(result)["authentication"] == statuses(result)["protocol"] == "UNREACHABLE"
    assert peer.requests == ["card", "GetTask"]
    assert "capability" not in statuses(result)


async def test_at_most_so_many_probes_at_once() -> None:
    """Health contract 2: 16 over all targets of a run, and over several runs of one engine."""
    running, most = 0, 0

    async def slow(request: httpx.Request) -> httpx.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1
        return httpx.Response(200)

    engine = Engine(httpx.MockTransport(slow), environ={})
    targets = [Target(type="http", endpoint="http://x.test/") for _ in range(100)]
    runs = await asyncio.gather(engine.run(targets), engine.run(targets))
    assert {result.status for run in runs for result in run} == {Status.HEALTHY}
    assert most == 16


async def test_waiting_for_a_slot_is_not_the_peers_fault() -> None:
    """Health contract 2: UNKNOWN "not probed" when the run ends first."""
    release = asyncio.Event()

    async def stuck(request: httpx.Request) -> httpx.Response:
        await release.wait()
        return httpx.Response(200)

    engine = Engine(httpx.MockTransport(stuck), environ={}, concurrency=1, run_seconds=0.05)
    targets = [Target(type="http", endpoint="http://x.test/") for _ in range(3)]
    results = await engine.run(targets)
    assert [codes(result)["reachability"] for result in results] == [
        "budget_exhausted",
        "not_probed",
        "not_probed",
    ]
    assert {result.status for result in results} == {Status.UNKNOWN}
    assert results[0].checks[Check.REACHABILITY].reason == "run_ended", "no fault of the target's own budget"
    assert engine.slots._value == 1, "every slot is given back"


async def test_waiting_for_a_slot_does_not_eat_the_deadline() -> None:
    """Health contract 2: three probes of 50 ms one after another, each within its own 120 ms."""

    async def slow(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0.05)
        return httpx.Response(200)

    engine = Engine(httpx.MockTransport(slow), environ={}, concurrency=1)
    targets = [Target(type="http", endpoint="http://x.test/", timeout_ms=120, budget_ms=120) for _ in range(4)]
    assert {result.status for result in await engine.run(targets)} == {Status.HEALTHY}


async def test_budget_and_timeouts() -> None:
    """Health contract 2: `check_timeouts_ms` before `timeout_ms`; the budget covers all attempts."""

    async def silent(request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def code(**options: Any) -> str | None:
        target = Target(type="http", endpoint="http://x.test/", **options)
        found = (await check(target, httpx.MockTransport(silent))).checks[Check.REACHABILITY]
        assert found.reason is None
        return found.code

    async with asyncio.timeout(2):
        assert await code(timeout_ms=20) == "deadline"
        assert await code(check_timeouts_ms={Check.REACHABILITY: 20}) == "deadline"
        assert await code(timeout_ms=20, check_timeouts_ms={Check.LATENCY: 5000}) == "deadline"
        assert await code(timeout_ms=5000, budget_ms=20) == "budget_exhausted"
        # a retry for which no time is left does not hide what the first attempt found
        assert await code(timeout_ms=30, budget_ms=50, retries=3, retry_delay_ms=0) == "deadline"
        assert await code(timeout_ms=20, retries=3, retry_delay_ms=60_000, budget_ms=40) == "deadline"


async def test_latency_is_strictly_above_the_threshold() -> None:
    """Health contract 2 and pitfall 119: slow is DEGRADED, not UNHEALTHY; equal is not slow."""
    ticks = itertools.count()

    def clock() -> float:
        return next(ticks) / 1000

    transport, _ = flaky(0)
    measured = (await check(Target(type="http", endpoint="http://x.test/"), transport, clock=clock)).latency_ms
    assert measured is not None
    for threshold, wanted in [(measured, "HEALTHY"), (measured - 0.5, "DEGRADED")]:
        target = Target(type="http", endpoint="http://x.test/", latency_ms=threshold)
        result = await check(target, transport, clock=clock)
        assert (result.latency_ms, statuses(result)["latency"]) == (measured, wanted)
        assert result.status.value == wanted


# -- faults of our own


@pytest.mark.parametrize(
    "error",
    [
        UnicodeError("idna"),
        RecursionError(),
        TypeError("x"),
        ExceptionGroup("g", [ValueError("x")]),
        httpx.InvalidURL("x"),
        KeyError("secret"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_no_exception_stops_the_engine(error: Exception) -> None:
    """Pitfall 123: whatever a probe raises is a finding of that target, and the others are judged."""

    async def odd(request: httpx.Request) -> httpx.Response:
        if request.url.host == "odd.test":
            raise error
        return httpx.Response(200)

    targets = [Target(type="http", endpoint=f"http://{host}.test/") for host in ("odd", "even")]
    odd_one, even = await Engine(httpx.MockTransport(odd), environ={}).run(targets)
    assert odd_one.status in {Status.UNKNOWN, Status.UNREACHABLE}
    assert even.status is Status.HEALTHY


async def test_a_stray_cancellation_is_unknown_and_a_real_one_stops_the_run() -> None:
    """Health contract 2: cancelled → UNKNOWN; pitfall 123: CancelledError inside a probe."""
    transport, _ = flaky(1, asyncio.CancelledError)
    result = await check(Target(type="http", endpoint="http://x.test/"), transport)
    assert (result.status, codes(result)) == (Status.UNKNOWN, {"reachability": "cancelled"})
    started, forever = asyncio.Event(), asyncio.Event()

    async def silent(request: httpx.Request) -> httpx.Response:
        started.set()
        await forever.wait()
        return httpx.Response(200)

    engine = Engine(httpx.MockTransport(silent), environ={}, concurrency=1)
    run = asyncio.create_task(engine.run([Target(type="http", endpoint="http://x.test/")]))
    await started.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert engine.slots._value == 1


async def test_unknown_types_and_checks_of_other_types() -> None:
    """Health contract 4: other type words give MISCONFIGURED; so does a check that the type lacks."""
    transport, seen = flaky(0)
    result = await check(Target(type="mainframe", endpoint="http://x.test/"), transport)
    assert (statuses(result), codes(result)) == (
        {"configuration": "MISCONFIGURED"},
        {"configuration": "type_unsupported"},
    )
    target = Target(type="http", endpoint="http://x.test/", checks=(Check.PROTOCOL,), http=HttpOptions())
    assert codes(await check(target, transport)) == {"configuration": "check_unsupported"}
    assert seen == []
