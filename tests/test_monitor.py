"""Registry × health engine: what is checked when, and what a verdict does to routing (health contract 7)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from math import inf
from typing import Any

import pytest

from gateway.health_rules import HealthRules
from healthcheck.model import Status
from healthcheck.state import Evidence, Routing
from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.health_peer import A2APeer
from tests.fakes.monitored import SELDOM, Monitored, card_of, code_of, monitored
from tests.fakes.running import eventually

OFTEN = HealthRules(interval=0.2)
NOT_FOUND = reply.error(-32001, "task not found")


def healthy() -> FaultAgent:
    """An agent of 0.3 without a published card: one request per check."""
    agent = FaultAgent(path="/rpc")
    agent.always(NOT_FOUND)
    return agent


async def register(it: Monitored, agent: FaultAgent, agent_id: str = "peer") -> Any:
    return await it.register(agent.url, agent_id, protocolVersion="0.3.0")


def looks_up(agent: FaultAgent) -> int:
    return sum(request.method == "POST" for request in agent.requests)


async def test_the_first_check_comes_by_itself_and_then_again_and_again() -> None:
    """First check within 2 s of registration."""
    loop = asyncio.get_running_loop()
    async with healthy() as agent, monitored() as it:
        began = loop.time()
        watched = await register(it, agent)
        assert (watched.status, watched.routing) == (Status.UNKNOWN, Routing.UNCHECKED)
        await eventually(lambda: watched.result is not None)
        assert loop.time() - began < 2
        assert code_of(watched) == (Status.HEALTHY, None)
        assert watched.due > loop.time() + 2000
    async with healthy() as agent, monitored(OFTEN) as it:
        watched = await register(it, agent)
        await eventually(lambda: len(watched.history) >= 4)
        # On a busy machine a check may take longer than half of this short interval: DEGRADED by latency.
        assert {record.status for record in watched.history} <= {"HEALTHY", "DEGRADED"}


async def test_agents_of_an_earlier_run_are_checked_too() -> None:
    async with healthy() as agent, monitored() as it:
        await register(it, agent)
        first = it.monitor
        await first.close()
        it.monitor = type(first)(
            it.registry,
            first._engine.transport,
            it.metrics,
            it.events,
            HealthRules(0.3),
            environ={},
            credentials={},
        )
        it.monitor.start()
        await it.reaches(Routing.IN_SERVICE)
        await it.monitor.close()


async def test_requests_share_one_check() -> None:
    """POST .../check during a run shares it: 50 at once cause one probe."""
    async with healthy() as agent, monitored() as it:
        watched = await register(it, agent)
        await it.checked()
        before = looks_up(agent)
        gate = asyncio.Event()
        agent.always(reply.after(gate, NOT_FOUND))
        asked = [asyncio.create_task(it.monitor.check("peer")) for _ in range(25)]
        await agent.received(len(agent.requests) + 1)
        asked += [asyncio.create_task(it.monitor.check("peer")) for _ in range(25)]
        await asyncio.sleep(0)
        gate.set()
        assert await asyncio.gather(*asked) == [watched] * 50
        assert looks_up(agent) == before + 1


async def test_checks_of_nobody() -> None:
    async with monitored() as it:
        assert await it.monitor.check("nobody") is None
        assert it.monitor.find("nobody") is None
        assert it.monitor.admission("nobody").open


async def test_a_removed_agents_check_is_dropped() -> None:
    async with healthy() as agent, monitored() as it:
        agent.always(reply.hang())
        watched = await register(it, agent)
        asked = asyncio.create_task(it.monitor.check("peer"))
        await agent.received(1)
        await it.registry.deregister("peer", None)
        assert await asked is None
        await agent.closed(1, within=2)
        assert watched.result is None
        assert it.monitor.agents() == []
        await eventually(lambda: it.monitor.running == 0)


async def test_registering_again_with_the_same_url_keeps_the_state() -> None:
    async with healthy() as agent, monitored() as it:
        agent.always(reply.reset())
        watched = await register(it, agent)
        for _ in range(3):
            await it.checked()
        assert watched.routing is Routing.OUT_OF_SERVICE
        again = await it.register(agent.url, protocolVersion="0.3.0", version="2")
        assert again is watched
        assert again.routing is Routing.OUT_OF_SERVICE
        agent.always(NOT_FOUND)
        await it.checked()
        await it.checked()
        assert again.routing is Routing.IN_SERVICE


async def test_another_url_begins_anew() -> None:
    async with healthy() as agent, healthy() as other, monitored() as it:
        agent.always(reply.reset())
        watched = await register(it, agent)
        for _ in range(3):
            await it.checked()
        again = await register(it, other)
        assert again is not watched
        assert again.routing is Routing.UNCHECKED
        assert again.admission.open
        await eventually(lambda: again.result is not None)
        assert again.routing is Routing.IN_SERVICE


async def test_a_result_of_an_older_registration_never_counts() -> None:
    """The agent registers again while its check runs: the check begins anew, its waiters get the new result."""
    async with healthy() as agent, monitored() as it:
        gate = asyncio.Event()
        agent.next(reply.after(gate, reply.error(-32009, "old")))
        watched = await register(it, agent)
        asked = asyncio.create_task(it.monitor.check("peer"))
        await agent.received(1)
        await it.register(agent.url, protocolVersion="0.3.0", version="2")
        gate.set()
        assert await asked is watched
        assert code_of(watched) == (Status.HEALTHY, None)
        assert [record.status for record in watched.history] == ["HEALTHY"]


async def test_hanging_agents_do_not_delay_the_others() -> None:
    """Known failing agents get at most half of the places."""
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(monitored(HealthRules(0.3, concurrency=4)))
        hanging = await stack.enter_async_context(healthy())
        good = await stack.enter_async_context(healthy())
        hanging.always(reply.hang())
        stuck = [await it.register(hanging.at(f"/{n}"), f"stuck-{n}", protocolVersion="0.3.0") for n in range(6)]
        await eventually(lambda: all(one.evidence is Evidence.DOWN for one in stuck), 15)
        watched = await register(it, good, "good")
        await eventually(lambda: len(watched.history) >= 6, 4)
        assert it.monitor.running <= 4


async def test_concurrency_is_bounded() -> None:
    async with healthy() as agent, monitored(HealthRules(3600.0, concurrency=3)) as it:
        gate = asyncio.Event()
        agent.always(reply.after(gate, NOT_FOUND))
        for number in range(10):
            await it.register(agent.at(f"/{number}"), f"a-{number}", protocolVersion="0.3.0")
        await agent.received(3)
        for number in range(10):
            it.monitor._schedule.hurry(it.monitor._agents[f"a-{number}"], 0.0)
        it.monitor._turn()
        await asyncio.sleep(0.05)
        assert len(agent.requests) == 3
        assert it.monitor.running == 3
        gate.set()
        await eventually(lambda: all(one.result is not None for one in it.monitor.agents()))


async def test_three_down_and_two_up() -> None:
    """Out after three unreachable runs, back after two others; each move is logged, counted, published."""
    async with healthy() as agent, monitored() as it:
        watched = await register(it, agent)
        await it.checked()
        agent.always(reply.reset())
        for expected in (Routing.IN_SERVICE, Routing.IN_SERVICE, Routing.OUT_OF_SERVICE):
            await it.checked()
            assert watched.status is Status.UNREACHABLE  # the raw result is never damped
            assert watched.routing is expected
        assert not watched.admission.open
        assert watched.last_transition is not None
        assert (watched.last_transition.after, watched.last_transition.because) == ("out_of_service", "check")
        agent.always(NOT_FOUND)
        await it.checked()
        assert (watched.status, watched.routing) == (Status.HEALTHY, Routing.OUT_OF_SERVICE)
        await it.checked()
        assert watched.routing is Routing.IN_SERVICE
        assert watched.admission.open
        moves = it.metrics.cells("peer").transitions
        assert moves == {
            ("unchecked", "in_service"): 1,
            ("in_service", "out_of_service"): 1,
            ("out_of_service", "in_service"): 1,
        }
        await asyncio.sleep(0)
        told = [(event["previous_routing"], event["routing"]) for event in it.named("health")]
        assert [pair for pair in told if pair[0] != pair[1]] == list(moves)
        assert watched.consecutive == 2


async def test_failing_calls_take_it_out_and_have_it_checked() -> None:
    """Passive evidence acts at once; the agent is looked at, and a trial call brings it back."""
    async with healthy() as agent, monitored(HealthRules(3600.0, trial=0.1)) as it:
        watched = await register(it, agent)
        await it.checked()
        before = looks_up(agent)
        loop = asyncio.get_running_loop()
        for _ in range(5):
            watched.admission.record(True, loop.time())
        assert watched.routing is Routing.OUT_OF_SERVICE
        assert watched.last_transition is not None
        assert watched.last_transition.because == "calls"
        await eventually(lambda: looks_up(agent) > before)
        await asyncio.sleep(0.11)
        trial = watched.admission.enter(loop.time())
        assert trial
        watched.admission.record(False, loop.time(), trial)
        assert watched.routing is Routing.IN_SERVICE
        assert watched.last_transition.because == "trial"


async def test_observing() -> None:
    async with healthy() as agent, monitored(HealthRules(3600.0, enforce=False)) as it:
        agent.always(reply.reset())
        watched = await register(it, agent)
        for _ in range(3):
            await it.checked()
        assert watched.routing is Routing.OUT_OF_SERVICE
        assert watched.admission.open


async def test_evict_on_unhealthy() -> None:
    async with healthy() as agent, monitored(HealthRules(3600.0, evict_unhealthy=True)) as it:
        agent.always(reply.error(-32009, "x"))
        watched = await register(it, agent)
        for _ in range(3):
            await it.checked()
        assert watched.routing is Routing.OUT_OF_SERVICE


async def test_the_history_holds_a_hundred() -> None:
    async with healthy() as agent, monitored() as it:
        watched = await register(it, agent)
        for _ in range(103):
            await it.checked()
        assert len(watched.history) == 100
        assert watched.consecutive == 103
        record = watched.history[-1]
        assert record.latency_ms is not None
        assert record.first_byte_ms is not None
        assert 0 < record.first_byte_ms <= record.latency_ms <= record.duration_ms


async def test_a_fault_of_ours_stops_neither_the_agents_nor_the_others_checks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Pitfall 123: whatever one agent's check raises, checking goes on, its own included."""
    async with healthy() as agent, healthy() as other, monitored(OFTEN) as it:
        watched = await register(it, agent)
        fine = await register(it, other, "other")
        engine = it.monitor._engine
        run = engine.run

        async def broken(targets: Any, done: Any = None) -> Any:
            if targets[0].id == "peer":
                raise RecursionError
            return await run(targets, done)

        engine.run = broken  # type: ignore[method-assign]
        caplog.set_level(logging.ERROR)
        await eventually(lambda: "of agent peer failed" in caplog.text and len(fine.history) > 2)
        engine.run = run  # type: ignore[method-assign]
        await eventually(lambda: watched.result is not None)
        assert it.monitor.running <= 2


# -- self-doubt


async def fleet(stack: AsyncExitStack, it: Monitored, size: int) -> list[FaultAgent]:
    agents = [await stack.enter_async_context(healthy()) for _ in range(size)]
    for number, agent in enumerate(agents):
        await register(it, agent, f"a-{number}")
        await it.checked(f"a-{number}")
    return agents


async def everybody(it: Monitored) -> None:
    for watched in it.monitor.agents():
        await it.checked(watched.agent.agent_id)


def out(it: Monitored) -> list[str]:
    return [one.agent.agent_id for one in it.monitor.agents() if one.routing is Routing.OUT_OF_SERVICE]


async def test_a_checker_that_is_cut_off_takes_nobody_out(caplog: pytest.LogCaptureFixture) -> None:
    """More than half of at least four agents fail: one loud line, a metric, and nothing more is taken out."""
    caplog.set_level(logging.WARNING)
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(monitored())
        agents = await fleet(stack, it, 6)
        for agent in agents:
            agent.always(reply.reset())
        for _ in range(5):
            await everybody(it)
        assert it.monitor.suspects_itself
        assert out(it) == []
        assert {one.status for one in it.monitor.agents()} == {Status.UNREACHABLE}
        assert caplog.text.count("suspects its own network") == 1
        loop = asyncio.get_running_loop()
        for one in it.monitor.agents():  # nor do calls take anybody out
            for _ in range(6):
                one.admission.record(True, loop.time())
        assert out(it) == []
        for agent in agents:
            agent.always(NOT_FOUND)
        for one in it.monitor.agents():
            one.admission.record(False, loop.time())
        await everybody(it)
        assert not it.monitor.suspects_itself
        assert "trusts its health checks again" in caplog.text
        await asyncio.sleep(0)
        assert [event["suspects_itself"] for event in it.named("suspicion")] == [True, False]


async def test_half_of_the_agents_may_really_be_down() -> None:
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(monitored())
        agents = await fleet(stack, it, 6)
        for agent in agents[:3]:
            agent.always(reply.reset())
        for _ in range(3):
            await everybody(it)
        assert not it.monitor.suspects_itself
        assert out(it) == ["a-0", "a-1", "a-2"]
        agents[3].always(reply.reset())
        for _ in range(4):
            await everybody(it)
        assert it.monitor.suspects_itself
        assert out(it) == ["a-0", "a-1", "a-2"]  # nothing more; those stay


async def test_three_agents_are_too_few_for_doubt() -> None:
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(monitored())
        for agent in await fleet(stack, it, 3):
            agent.always(reply.reset())
        for _ in range(3):
            await everybody(it)
        assert len(out(it)) == 3


async def test_failing_calls_take_out_half_of_the_agents_at_most() -> None:
    """Before any check has failed: our own network may be gone, and calls are many."""
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(monitored())
        await fleet(stack, it, 6)
        loop = asyncio.get_running_loop()
        for one in it.monitor.agents():
            for _ in range(30):
                one.admission.record(True, loop.time())
        assert len(out(it)) == 3
        assert it.monitor.suspects_itself


async def test_before_one_is_taken_out_others_are_asked() -> None:
    """A sudden cut shows first at the few agents that are checked first: the others are witnesses."""
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(monitored(SELDOM))
        agents = await fleet(stack, it, 6)
        for agent in agents:
            agent.always(reply.reset())
        await it.checked("a-0")
        assert [one.evidence for one in it.monitor.agents()].count(Evidence.DOWN) == 1
        await it.checked("a-0")  # the second failure
        await eventually(lambda: all(one.evidence is Evidence.DOWN for one in it.monitor.agents()))
        await it.checked("a-0")
        assert out(it) == []
        assert it.monitor.suspects_itself


async def test_witnesses_that_are_well_convict() -> None:
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(monitored(SELDOM))
        agents = await fleet(stack, it, 6)
        agents[0].always(reply.reset())
        asked = [looks_up(agent) for agent in agents]
        await it.checked("a-0")
        await it.checked("a-0")
        await eventually(lambda: [looks_up(agent) for agent in agents[1:]] == [n + 1 for n in asked[1:]])
        await it.checked("a-0")
        assert out(it) == ["a-0"]


# -- the end


async def test_closing_leaves_nothing_behind() -> None:
    before = asyncio.all_tasks()
    async with healthy() as agent, monitored() as it:
        agent.always(reply.hang())
        for number in range(5):
            await it.register(agent.at(f"/{number}"), f"a-{number}", protocolVersion="0.3.0")
        asked = asyncio.create_task(it.monitor.check("a-0"))
        await agent.received(1)
    await asked
    assert {task for task in asyncio.all_tasks() - before if not task.done()} == set()


async def test_a_peer_with_a_card_costs_two_requests_a_run() -> None:
    async with A2APeer() as peer, monitored() as it:
        await it.register(peer.at("/rpc"), **card_of(peer))
        await it.checked()
        before = len(peer.requests)
        for _ in range(10):
            await it.checked()
        assert len(peer.requests) == before + 20


def test_the_deadline_of_a_request_follows_the_interval() -> None:
    assert [HealthRules(interval).probe_seconds for interval in (0.1, 1, 5, 30, 300)] == [1, 1, 5, 10, 10]
    assert inf > HealthRules().probe_seconds
