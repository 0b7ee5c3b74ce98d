"""Calls and health together: what is refused, what counts against an agent, trial calls (contract 2.4, 6.4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.fakes import reply
from tests.fakes.agent import Behaviour
from tests.fakes.health_peer import A2APeer
from tests.fakes.running import Running, eventually, running

CALL = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {}}
#: No checks but the first, so that calls alone decide.
SELDOM = {"enable": True, "interval_seconds": 3600, "trial_seconds": 0.5}


def timed(seconds: float) -> dict[str, Any]:
    return CALL | {"params": {"configuration": {"timeout": seconds}}}


class Agent(A2APeer):
    """Passes its checks; `says` is what it does with calls."""

    def __init__(self) -> None:
        super().__init__("0.3.0")

    async def __aenter__(self) -> Agent:
        await super().__aenter__()
        self.card = b"none"
        return self

    def says(self, behaviour: Behaviour) -> None:
        self.rpc |= {"message/send": behaviour, "message/stream": behaviour}

    @property
    def calls(self) -> int:
        return sum(b'"message/' in request.body for request in self.requests)

    async def called(self, number: int) -> None:
        """Return when so many calls have come."""
        await eventually(lambda: self.calls >= number)


@asynccontextmanager
async def watched(a2a: dict[str, Any] | None = None, **health: Any) -> AsyncIterator[tuple[Running, Agent]]:
    """A gateway and an agent that has passed its first check."""
    async with Agent() as agent, running(health=SELDOM | health, a2a=a2a or {}) as gateway:
        await gateway.register(agent.at("/rpc"), protocolVersion="0.3.0")
        assert (await state(gateway, check=True))["routing"] == "in_service"
        yield gateway, agent


async def state(gateway: Running, *, check: bool = False) -> dict[str, Any]:
    if check:
        answer = await gateway.client.post("/agents/echo/health/check")
    else:
        answer = await gateway.client.get("/agents/echo/health")
    assert answer.status_code == 200
    return dict(answer.json())


def reason(answer: httpx.Response) -> str | None:
    return answer.headers.get("x-gateway-error")


async def fail(gateway: Running, agent: Agent, times: int = 5) -> None:
    agent.says(reply.reset())
    for _ in range(times):
        await gateway.call(CALL)


async def test_refused_at_once_with_retry_after() -> None:
    """Contract 2.4, AGENT_OUT_OF_SERVICE: -32003, safe, with the time to the next trial; in under 5 ms."""
    async with watched(trial_seconds=10) as (gateway, agent):
        await fail(gateway, agent)
        before = agent.calls
        loop, times = asyncio.get_running_loop(), []
        for _ in range(20):
            began = loop.time()
            answer = await gateway.call(CALL)
            times.append(loop.time() - began)
        assert sorted(times)[10] < 0.005
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["message"]) == (
            200,
            -32003,
            "agent unavailable: unhealthy",
        )
        assert reason(answer) == "AGENT_OUT_OF_SERVICE"
        metadata = error["data"][0]["metadata"]
        assert (metadata["retry"], metadata["executed"], metadata["category"]) == ("safe", "false", "transport")
        assert 1 <= int(answer.headers["retry-after"]) <= 10
        assert metadata["retryAfter"] == answer.headers["retry-after"]
        a2a = await gateway.call(CALL, headers={"a2a-version": "1.0"})
        assert a2a.json()["error"]["code"] == -32603
        assert agent.calls == before
        shown = await state(gateway)
        assert shown["routing"] == "out_of_service"
        assert shown["last_transition"]["because"] == "calls"
        assert 0 < shown["next_trial_seconds"] <= 10
        assert await gateway.metric("vitalgate_agent_routing", agent_id="echo", state="out_of_service") == 1
        assert (await gateway.metric("kubemq_a2a_errors_total", agent_id="echo", error_code="-32003") or 0) >= 20


@pytest.mark.parametrize(
    ("behaviour", "body"),
    [
        (reply.reset(), CALL),
        (reply.close(), CALL),
        (reply.raw(b"SSH-2.0\r\n\r\n", close=True), CALL),
        (reply.body(b"{}", status=503), CALL),
        (reply.body(b"{}", status=502), CALL),
        (reply.body(b"{}", status=504), CALL),
    ],
    ids=["reset", "close", "no-http", "503", "502", "504"],
)
async def test_what_counts_against_an_agent(behaviour: Behaviour, body: dict[str, Any]) -> None:
    async with watched() as (gateway, agent):
        agent.says(behaviour)
        for _ in range(4):
            await gateway.call(body)
        assert (await state(gateway))["routing"] == "in_service"
        await gateway.call(body)
        assert (await state(gateway))["routing"] == "out_of_service"


@pytest.mark.parametrize(
    ("behaviour", "body", "answered"),
    [
        (reply.error(-32000, "no"), CALL, True),
        (reply.body(b"{}", status=500), CALL, True),
        (reply.body(b"{}", status=401), CALL, True),
        (reply.body(b"{}", status=429), CALL, True),
        (reply.body(b"not json"), CALL, True),
        (reply.redirect("/x"), CALL, True),
        (reply.hang(), timed(0.02), False),
        (reply.reset(), {"jsonrpc": "2.0", "method": 1}, False),
        (reply.reset(), CALL | {"params": []}, False),
    ],
    ids=["application", "500", "401", "429", "invalid", "redirect", "tiny-timeout", "bad-request", "bad-params"],
)
async def test_what_does_not(behaviour: Behaviour, body: dict[str, Any], answered: bool) -> None:
    """Health contract 7: nor a caller's tiny timeout, nor its bad request, nor an application error."""
    async with watched() as (gateway, agent):
        agent.says(behaviour)
        for _ in range(25):
            await gateway.call(body)
        shown = await state(gateway)
        assert shown["routing"] == "in_service"
        assert shown["passive"]["failures"] == 0
        assert shown["passive"]["calls"] == (25 if answered else 0)


async def test_callers_who_leave_and_busy_slots_do_not_count() -> None:
    async with watched({"agent_max_concurrency": 1}) as (gateway, agent):
        agent.says(reply.hang())
        for number in range(8):
            call = asyncio.create_task(gateway.call(CALL))
            await agent.called(number + 1)
            assert reason(await gateway.call(CALL)) == "SERVER_BUSY"
            call.cancel()
            await agent.closed(len(agent.connections))
        shown = await state(gateway)
        assert shown["routing"] == "in_service"
        assert shown["passive"] == {"window_seconds": 30, "calls": 0, "failures": 0, "failures_in_a_row": 0}


async def test_more_than_half_of_many() -> None:
    """Scattered failures: more than half of at least 20 in the window."""
    async with watched() as (gateway, agent):
        for number in range(21):
            agent.says(reply.echo() if number % 4 == 3 else reply.reset())
            await gateway.call(CALL)
            out = (await state(gateway))["routing"] == "out_of_service"
            assert out is (number >= 20), number


async def test_one_trial_at_a_time_brings_it_back() -> None:
    """Exactly one call goes through; with its answer all others do."""
    async with watched(trial_seconds=0.3) as (gateway, agent):
        await fail(gateway, agent)
        gate = asyncio.Event()
        agent.says(reply.after(gate, reply.echo()))
        await asyncio.sleep(0.35)
        assert (await state(gateway))["next_trial_seconds"] == 0
        before = agent.calls
        trial = asyncio.create_task(gateway.call(CALL))
        await agent.called(before + 1)
        assert 0 < (await state(gateway))["next_trial_seconds"] <= 0.3
        others = await asyncio.gather(*(gateway.call(CALL) for _ in range(10)))
        assert {reason(answer) for answer in others} == {"AGENT_OUT_OF_SERVICE"}
        gate.set()
        assert reason(await trial) is None
        assert (await state(gateway))["routing"] == "in_service"
        assert reason(await gateway.call(CALL)) is None


async def test_a_trial_that_fails_doubles_the_wait() -> None:
    async with watched(trial_seconds=0.6) as (gateway, agent):
        await fail(gateway, agent)
        await asyncio.sleep(0.65)
        assert reason(await gateway.call(CALL)) == "CONNECTION_LOST"
        refused = await gateway.call(CALL)
        assert reason(refused) == "AGENT_OUT_OF_SERVICE"
        assert refused.headers["retry-after"] == "2"  # 1.2 s, in whole seconds


async def test_a_trial_whose_caller_leaves_blocks_nobody() -> None:
    async with watched(trial_seconds=0.2) as (gateway, agent):
        await fail(gateway, agent)
        agent.says(reply.hang())
        await asyncio.sleep(0.25)
        before = agent.calls
        trial = asyncio.create_task(gateway.call(CALL))
        await agent.called(before + 1)
        trial.cancel()
        agent.says(reply.echo())
        await asyncio.sleep(0.5)
        assert reason(await gateway.call(CALL)) is None
        assert (await state(gateway))["routing"] == "in_service"


async def test_a_trial_that_finds_no_slot_is_given_back() -> None:
    """It never went out, so the next call is the trial."""
    async with watched({"agent_max_concurrency": 1}, trial_seconds=0.2) as (gateway, agent):
        gate = asyncio.Event()
        agent.says(reply.after(gate, reply.echo()))
        slow = asyncio.create_task(gateway.call(CALL))
        await agent.called(1)
        agent.rpc["tasks/get"] = reply.reset()
        for _ in range(3):
            await state(gateway, check=True)
        assert (await state(gateway))["routing"] == "out_of_service"
        await asyncio.sleep(0.25)
        assert reason(await gateway.call(CALL)) == "SERVER_BUSY"
        gate.set()
        await slow
        assert (await state(gateway))["routing"] == "out_of_service"  # it began before
        assert reason(await gateway.call(CALL)) is None
        assert (await state(gateway))["routing"] == "in_service"


async def test_a_stream_is_a_trial_as_soon_as_it_opens() -> None:
    """The others need not wait for its end."""
    async with watched(trial_seconds=0.2) as (gateway, agent):
        await fail(gateway, agent)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        agent.says(reply.hang(head))
        await asyncio.sleep(0.25)
        body = CALL | {"method": "message/stream"}
        async with gateway.client.stream("POST", "/a2a/echo", json=body) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            assert (await state(gateway))["routing"] == "in_service"


async def test_two_checks_bring_it_back() -> None:
    async with watched(trial_seconds=100) as (gateway, agent):
        await fail(gateway, agent)
        states = [(await state(gateway, check=True))["routing"] for _ in range(2)]
        assert states[-1] == "in_service"
        agent.says(reply.echo())
        assert reason(await gateway.call(CALL)) is None


async def test_observing_refuses_nobody() -> None:
    async with watched(routing="observe", trial_seconds=100) as (gateway, agent):
        await fail(gateway, agent, 6)
        assert (await state(gateway))["routing"] == "out_of_service"
        assert reason(await gateway.call(CALL)) == "CONNECTION_LOST"


async def test_notifications_to_an_agent_out_of_service() -> None:
    """Contract 2.1: 202, whatever becomes of them."""
    async with watched(trial_seconds=100) as (gateway, agent):
        await fail(gateway, agent)
        answer = await gateway.call({"jsonrpc": "2.0", "method": "message/send", "params": {}})
        assert (answer.status_code, answer.content) == (202, b"")


async def test_health_off() -> None:
    """`health.enable: false`: no checks, no refusals, no views."""
    async with Agent() as agent, running(health={"enable": False}) as gateway:
        await gateway.register(agent.at("/rpc"))
        await fail(gateway, agent, 8)
        assert reason(await gateway.call(CALL)) == "CONNECTION_LOST"
        assert len(agent.requests) == 9
        assert (await gateway.client.get("/agents/echo/health")).status_code == 404
        assert "health" not in (await gateway.client.get("/agents/echo")).json()
        assert (await gateway.client.get("/agents?health=HEALTHY")).status_code == 400
