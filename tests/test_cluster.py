"""Health shared by several nodes over a real Valkey: who checks, what all know, who may try."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from gateway import verdicts
from gateway.admission import Asking
from gateway.health_rules import HealthRules
from gateway.watched import Watched
from healthcheck.model import Status
from healthcheck.state import Routing, may_try
from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.clustered import ClusterNode, Nodes
from tests.fakes.cut import Cut
from tests.fakes.running import eventually
from tests.fakes.valkey import Valkey, own_valkey, shared_valkey

__all__ = ["own_valkey", "shared_valkey"]

NOT_FOUND = reply.error(-32001, "task not found")
OUT, IN = Routing.OUT_OF_SERVICE, Routing.IN_SERVICE
V03 = {"protocolVersion": "0.3.0"}


def healthy() -> FaultAgent:
    agent = FaultAgent(path="/rpc")
    agent.always(NOT_FOUND)
    return agent


def probes(agent: FaultAgent) -> int:
    return sum(request.method == "POST" for request in agent.requests)


async def on_all(nodes: Nodes, condition: Callable[[Watched], object], agent_id: str = "peer") -> list[Watched]:
    """Wait until something is so at every node."""
    found = [await node.knows(agent_id) for node in nodes.all]
    await eventually(lambda: all(condition(one) for one in found))
    return found


async def two(nodes: Nodes, agent: FaultAgent) -> tuple[ClusterNode, ClusterNode]:
    """Two nodes that know the agent to be in service: the one that checks it, and the other."""
    await nodes.start(2)
    await nodes.all[0].register(agent.url, **V03)
    await on_all(nodes, lambda one: one.routing is IN)
    return nodes.owner(), nodes.other()


def fail(node: ClusterNode, times: int = 1) -> None:
    """Calls of this node's callers fail."""
    for _ in range(times):
        node.known().admission.record(True, asyncio.get_running_loop().time())


def transitions(node: ClusterNode) -> dict[tuple[str, str], int]:
    return node.metrics.cells("peer").transitions


# -- verdicts


async def test_one_node_checks_and_all_know(shared_valkey: Valkey) -> None:
    """Each agent is checked by exactly one node; result, history, transition, counters, events are the same."""
    async with healthy() as agent, Nodes(shared_valkey.url) as nodes:
        await nodes.start(3)
        await nodes.all[0].register(agent.url, **V03)
        first, *others = await on_all(nodes, lambda one: one.result is not None)
        assert probes(agent) == 1
        assert (first.status, first.routing) == (Status.HEALTHY, IN)
        for other in others:
            assert other.result is not None
            assert other.result.checks == (first.result and first.result.checks)
            assert list(other.history) == list(first.history)
            assert other.last_transition == first.last_transition
            assert (other.checked_at, other.consecutive) == (first.checked_at, 1)
            assert not other.checked_here or not first.checked_here
        for node in nodes.all:
            await eventually(lambda node=node: len(node.events()) == 1)  # type: ignore[misc]
            assert transitions(node) == {("unchecked", "in_service"): 1}
        assert len({json.dumps(node.events()) for node in nodes.all}) == 1


async def test_agents_are_shared_out(shared_valkey: Valkey) -> None:
    """The agent counts probes: of many agents each is asked by one node, and every node has some."""
    rules = HealthRules(interval=0.5)
    async with healthy() as agent, Nodes(shared_valkey.url, rules) as nodes:
        await nodes.start(3)
        for number in range(30):
            await nodes.all[0].register(f"{agent.url}?{number}", f"agent-{number}", **V03)
        for number in range(30):
            await on_all(nodes, lambda one: len(one.history) >= 3, f"agent-{number}")
        asked: dict[str, set[str]] = {}
        for node in nodes.all:
            for watched in node.monitor.agents():
                if watched.checked_here:
                    asked.setdefault(watched.agent.agent_id, set()).add(node.id)
        assert len(asked) == 30
        assert all(len(by) == 1 for by in asked.values())
        assert len(Counter(node for by in asked.values() for node in by)) == 3
        assert sum(node.monitor.share for node in nodes.all) == 30


async def test_a_check_that_is_asked_for_runs_where_it_is_asked(shared_valkey: Valkey) -> None:
    """`POST .../health/check` at a node that does not check the agent: its verdict is everybody's."""
    async with healthy() as agent, Nodes(shared_valkey.url) as nodes:
        owner, other = await two(nodes, agent)
        agent.always(reply.error(-32009, "version"))
        found = await other.monitor.check("peer")
        assert found is not None
        assert (found.status, found.checked_here) == (Status.UNHEALTHY, True)
        await on_all(nodes, lambda one: one.status is Status.UNHEALTHY)
        assert owner.known().consecutive == 1
        assert len(owner.known().history) == len(other.known().history) == 2
        assert other.monitor.share == 0  # it was asked once
        assert owner.monitor.share == 1


async def test_checks_that_end_at_once_are_in_all_histories(shared_valkey: Valkey) -> None:
    """Asked for at both nodes in the same moment: each is told of both runs, in one order."""
    async with healthy() as agent, Nodes(shared_valkey.url) as nodes:
        owner, other = await two(nodes, agent)
        for _ in range(5):
            await asyncio.gather(owner.monitor.check("peer"), other.monitor.check("peer"))
        await on_all(nodes, lambda one: len(one.history) == 11)
        assert list(owner.known().history) == list(other.known().history)
        assert owner.known().checked_at == other.known().checked_at


async def test_taken_out_by_checks_everywhere(shared_valkey: Valkey) -> None:
    async with healthy() as agent, Nodes(shared_valkey.url) as nodes:
        owner, other = await two(nodes, agent)
        agent.always(reply.reset())
        for node in (owner, other, owner):  # counted together, whoever checks
            await node.monitor.check("peer")
            runs = len(node.known().history)
            await on_all(nodes, lambda one, runs=runs: len(one.history) == runs)  # type: ignore[misc]
        await on_all(nodes, lambda one: one.routing is OUT and not one.admission.open)
        assert transitions(owner) == transitions(other)
        assert owner.known().last_transition == other.known().last_transition
        state, same = owner.known().admission.state, other.known().admission.state
        assert state.trial_at == pytest.approx(same.trial_at, abs=0.05)


# -- calls


async def test_three_failures_here_and_two_there(shared_valkey: Valkey) -> None:
    """Passive evidence is judged over all nodes; it acts on both, and counts once on each."""
    async with healthy() as agent, Nodes(shared_valkey.url) as nodes:
        owner, other = await two(nodes, agent)
        fail(owner, 3)
        fail(other, 2)
        found = await on_all(nodes, lambda one: one.routing is OUT)
        assert {one.last_transition and one.last_transition.because for one in found} == {"calls"}
        for node in nodes.all:
            assert transitions(node)["in_service", "out_of_service"] == 1
        # what led to this verdict does not lead to the next
        assert {one.admission.traffic.totals().row for one in found} == {0}


async def test_an_answer_at_another_node_breaks_the_row(shared_valkey: Valkey) -> None:
    async with healthy() as agent, Nodes(shared_valkey.url) as nodes:
        owner, other = await two(nodes, agent)
        now = asyncio.get_running_loop().time
        fail(owner, 4)
        await eventually(lambda: other.known().admission.traffic.totals().row == 4)
        other.known().admission.record(False, now())
        await eventually(lambda: owner.known().admission.traffic.totals().row == 0)
        fail(owner, 4)
        await eventually(lambda: other.known().admission.traffic.totals().row == 4)
        assert owner.known().routing is other.known().routing is IN


async def test_more_than_half_of_twenty_over_nodes(shared_valkey: Valkey) -> None:
    """Calls that did not fail count, too, also those from before the first failure anywhere."""
    async with healthy() as agent, Nodes(shared_valkey.url) as nodes:
        owner, other = await two(nodes, agent)
        now = asyncio.get_running_loop().time
        for _ in range(9):
            other.known().admission.record(False, now())
        for _ in range(10):
            fail(owner)
            owner.known().admission.record(None, now())
            if owner.known().admission.traffic.row == 4:
                owner.known().admission.record(False, now())
        totals = owner.known().admission.traffic.totals
        await eventually(lambda: totals().calls == 21)
        assert totals().failures == 10
        assert owner.known().routing is IN
        fail(owner)
        fail(owner)  # 12 of 23
        assert owner.known().routing is OUT
        await on_all(nodes, lambda one: one.routing is OUT)


async def test_calls_that_do_not_fail_say_nothing(shared_valkey: Valkey) -> None:
    """Zero commands per call."""
    async with healthy() as agent, Nodes(shared_valkey.url) as nodes:
        owner, other = await two(nodes, agent)
        await eventually(lambda: not owner.cluster._outbox)
        before = owner.store.link.commands, other.store.link.commands
        now = asyncio.get_running_loop().time()
        for _ in range(10_000):
            owner.known().admission.record(False, now)
        sent = owner.store.link.commands - before[0], other.store.link.commands - before[1]
        assert max(sent) <= 3  # what both do all the time


# -- trial calls


async def ask(node: ClusterNode) -> int:
    """Ask for a trial call as a call does: its number, or -1 or 0 if it may not."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[int] = loop.create_future()
    try:
        return node.known().admission.enter(loop.time(), answer.set_result)
    except Asking:
        return await answer


async def out_of_service(nodes: Nodes, agent: FaultAgent) -> tuple[ClusterNode, ClusterNode]:
    """Two nodes that have taken the agent out, and whose time for a trial call has come."""
    agent.always(NOT_FOUND)
    owner, other = await two(nodes, agent)
    agent.always(reply.hang())  # the check that follows says nothing meanwhile
    fail(owner, 5)
    loop = asyncio.get_running_loop()
    await on_all(nodes, lambda one: one.routing is OUT and one.admission.state.trial_at <= loop.time())
    return owner, other


AT_ONCE = HealthRules(interval=3600, trial=0.2)


async def test_one_trial_call_at_a_time(shared_valkey: Valkey) -> None:
    """Hammered at both nodes, one call is let through; the next when its back-off is over."""
    async with healthy() as agent, Nodes(shared_valkey.url, AT_ONCE) as nodes:
        owner, other = await out_of_service(nodes, agent)
        asked = await asyncio.gather(*(ask(node) for _ in range(20) for node in (owner, other)))
        assert sum(number > 0 for number in asked) == 1
        holder = owner if owner.known().admission.state.trying else other
        rest = other if holder is owner else owner
        wait = holder.known().admission.state.trial_wait
        await eventually(lambda: rest.known().admission.state.trial_at > asyncio.get_running_loop().time())
        await asyncio.sleep(wait * 1.5)  # it is still under way
        assert await ask(rest) <= 0
        number = max(asked)
        holder.known().admission.record(True, asyncio.get_running_loop().time(), number)
        await on_all(nodes, lambda one: one.admission.state.trial_wait == 2 * wait)
        assert await ask(rest) == 0


async def test_a_trial_call_that_passes_ends_it_everywhere(shared_valkey: Valkey) -> None:
    async with healthy() as agent, Nodes(shared_valkey.url, AT_ONCE) as nodes:
        owner, other = await out_of_service(nodes, agent)
        number = await ask(other)
        assert number > 0
        other.known().admission.record(False, asyncio.get_running_loop().time(), number)
        found = await on_all(nodes, lambda one: one.routing is not OUT and one.admission.open)
        assert owner.known().last_transition == other.known().last_transition
        assert found[0].last_transition is not None
        assert found[0].last_transition.because == "trial"


async def test_a_trial_call_that_was_not_sent_is_given_back(shared_valkey: Valkey) -> None:
    """No slot was free, or the caller left: the next call may try, at either node."""
    async with healthy() as agent, Nodes(shared_valkey.url, AT_ONCE) as nodes:
        owner, other = await out_of_service(nodes, agent)
        now = asyncio.get_running_loop().time
        for node in (owner, other, owner):
            await eventually(lambda node=node: may_try(node.known().admission.state, now()))  # type: ignore[misc]
            number = await ask(node)
            assert number > 0
            node.known().admission.unused(number, now())
            stamp = node.known().versions.stamp
            await on_all(nodes, lambda one, stamp=stamp: one.versions.stamp == stamp)  # type: ignore[misc]


async def test_the_right_of_a_node_that_died_ends(own_valkey: Valkey) -> None:
    async with healthy() as agent, Nodes(own_valkey.url, AT_ONCE, prefix="p.") as nodes:
        owner, _ = await out_of_service(nodes, agent)
        own_valkey.do("SET", "p.trial/peer", "a-node-that-is-gone")
        assert await ask(owner) > 0


async def test_the_right_goes_with_the_registration(own_valkey: Valkey) -> None:
    """The agent registers anew with another URL while a trial call is under way, and fails again."""
    async with healthy() as agent, healthy() as new, Nodes(own_valkey.url, AT_ONCE, prefix="p.") as nodes:
        owner, other = await out_of_service(nodes, agent)
        assert await ask(other) > 0
        assert own_valkey.do("EXISTS", "p.trial/peer")
        await owner.register(new.url, **V03)
        await eventually(lambda: all(node.known().routing is IN for node in nodes.all))
        await eventually(lambda: not own_valkey.do("EXISTS", "p.trial/peer"))


async def test_who_is_behind_may_not_try(own_valkey: Valkey) -> None:
    """A node that has not heard yet that the agent was taken out anew, with a longer wait, must hear it first."""
    async with healthy() as agent, Nodes(own_valkey.url, AT_ONCE, prefix="p.") as nodes:
        owner, _ = await out_of_service(nodes, agent)
        header, _, rest = own_valkey.do("HGET", "p.health", "peer").partition(b" ")
        own_valkey.do("HSET", "p.health", "peer", b"%d %b" % (int(header) + 1, rest))
        assert await ask(owner) == -1


# -- nodes that come and go


async def test_a_node_that_joins_later_knows_at_once(shared_valkey: Valkey) -> None:
    """Status, routing, when the next trial is due, drift, and the last result in its history."""
    async with healthy() as agent, Nodes(shared_valkey.url) as nodes:
        owner, _ = await two(nodes, agent)
        agent.always(reply.reset())
        for _ in range(3):
            await owner.monitor.check("peer")
        await on_all(nodes, lambda one: one.routing is OUT)
        asked = probes(agent)
        [late] = await nodes.start(1)
        watched = late.known()
        known = owner.known()
        assert (watched.status, watched.routing, watched.admission.open) == (Status.UNREACHABLE, OUT, False)
        assert watched.admission.state.trial_at == pytest.approx(known.admission.state.trial_at, abs=0.05)
        assert (watched.consecutive, watched.last_transition) == (known.consecutive, known.last_transition)
        assert list(watched.history) == list(known.history)[-1:]
        assert probes(agent) == asked
        assert late.events() == []  # nothing has happened
        assert transitions(late) == {}


async def test_a_node_that_ends_gives_its_share_back_at_once(shared_valkey: Valkey) -> None:
    """SIGTERM: no lease has to run out."""
    async with healthy() as agent, Nodes(shared_valkey.url, HealthRules(interval=1)) as nodes:
        owner, other = await two(nodes, agent)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await owner.stop()
        await eventually(lambda: other.cluster.mine("peer"))
        assert loop.time() - began < 3
        await eventually(lambda: other.known().checked_here)
        assert [live.node.id for live in other.members.live()] == [other.id]


async def test_a_node_whose_lease_runs_out_is_missed(own_valkey: Valkey) -> None:
    async with healthy() as agent, Nodes(own_valkey.url, HealthRules(interval=1), prefix="p.") as nodes:
        [node] = await nodes.start(1)
        ghost = {"id": "ghost", "started_at": "2026-01-01T00:00:00Z"}
        seconds, micros = own_valkey.do("TIME")
        own_valkey.do("HSET", "p.nodes", "ghost", json.dumps(ghost))
        own_valkey.do("ZADD", "p.nodes/leases", (int(seconds) + 3) * 1_000_000 + int(micros), "ghost")
        own_valkey.do("PUBLISH", "p.nodes", "ghost")
        await eventually(lambda: len(node.members.live()) == 2)
        ids = [f"agent-{number}" for number in range(20)]
        theirs = next(one for one in ids if not node.cluster.mine(one))
        await node.register(agent.url, theirs, **V03)
        await asyncio.sleep(0.3)
        assert probes(agent) == 0
        await eventually(lambda: node.known(theirs).checked_here, within=10)
        assert node.cluster.mine(theirs)
        assert own_valkey.do("HGET", "p.nodes", "ghost") is None


async def test_old_verdicts_go_with_the_agent(own_valkey: Valkey) -> None:
    """Registered anew with another URL, or gone: nothing that is kept of the old one says anything of the new."""
    async with healthy() as agent, healthy() as new, Nodes(own_valkey.url, prefix="p.") as nodes:
        owner, other = await two(nodes, agent)
        agent.always(reply.reset())
        for _ in range(3):
            await owner.monitor.check("peer")
        await on_all(nodes, lambda one: one.routing is OUT)
        new.always(reply.hang())
        await other.register(new.url, **V03)
        await eventually(lambda: owner.known().agent.url == new.url)
        [late] = await nodes.start(1)
        for node in (owner, other, late):
            assert (node.known().routing, node.known().result, node.known().admission.open) == (
                Routing.UNCHECKED,
                None,
                True,
            )
        new.always(NOT_FOUND)
        for node in nodes.all:
            node.monitor._drop(node.known())
        await nodes.owner().monitor.check("peer")
        await on_all(nodes, lambda one: one.routing is IN)
        await other.registry.deregister("peer", None)
        await eventually(lambda: all(node.monitor.known("peer") is None for node in nodes.all))
        await eventually(lambda: own_valkey.do("HLEN", "p.health") == 0)


async def test_a_report_of_a_registration_not_heard_of_yet_is_kept(shared_valkey: Valkey) -> None:
    async with healthy() as agent, Nodes(shared_valkey.url) as nodes:
        owner, other = await two(nodes, agent)
        known = other.known()
        other.monitor._agents.pop("peer")
        await owner.monitor.check("peer")
        await eventually(lambda: "peer" in other.cluster._early)
        other.monitor._changed("registered", "peer")
        assert other.known() is not known
        assert list(other.known().history) == [owner.known().history[-1]]
        assert other.known().routing is IN


async def test_what_is_kept_of_agents_that_are_gone_is_swept(own_valkey: Valkey) -> None:
    """The node that should have removed it was killed."""
    async with Nodes(own_valkey.url, prefix="p.") as nodes:
        own_valkey.do("HSET", "p.health", "gone", b"1 1 ab\nx", "long-gone", b"nonsense")
        await nodes.start(1)
        await eventually(lambda: own_valkey.do("HLEN", "p.health") == 0)


async def test_moves_that_were_missed_leave_the_last_one(own_valkey: Valkey) -> None:
    """In service, out, and in service again while a node was deaf: what happened last is the same at both."""
    async with healthy() as agent, Cut(own_valkey.port) as wire, Nodes(own_valkey.url, prefix="p.") as nodes:
        await nodes.start(1)
        await nodes.start(1, url=wire.url)
        near, far = nodes.all
        await near.register(agent.url, **V03)
        await on_all(nodes, lambda one: one.routing is IN)
        wire.cut()
        fail(near, 5)
        await near.monitor.check("peer")
        await near.monitor.check("peer")
        assert near.known().routing is IN
        wire.mend()
        last = near.known().last_transition
        await eventually(lambda: far.known().last_transition == last)
        assert far.known().routing is IN


async def test_what_nobody_cared_for_is_not_believed(own_valkey: Valkey) -> None:
    """All nodes were down for long: what was found before is no evidence of now."""
    async with healthy() as agent, Nodes(own_valkey.url, HealthRules(interval=1), prefix="p.") as nodes:
        await two(nodes, agent)
        header, _, payload = own_valkey.do("HGET", "p.health", "peer").partition(b"\n")
        for node in nodes.all:
            node.monitor._schedule.forget(node.known())
        told = verdicts.read_news(payload)
        report = told.report
        assert report is not None
        past = msgspec.structs.replace(report, stamp=report.stamp - 120_000_000, moved=report.moved - 120_000_000)
        long_ago = verdicts.encode(msgspec.structs.replace(told, report=past))
        own_valkey.do("HSET", "p.health", "peer", header + b"\n" + long_ago)
        agent.always(reply.hang())
        [late] = await nodes.start(1)
        assert late.known().result is None


# -- outages


async def test_without_the_store_every_node_decides_alone(own_valkey: Valkey) -> None:
    """Checks and calls go on, a trial call asks nobody; afterwards all agree again."""
    async with (
        healthy() as agent,
        Nodes(own_valkey.url, HealthRules(interval=3600, trial=0.1), prefix="p.") as nodes,
    ):
        owner, other = await two(nodes, agent)
        own_valkey.kill()
        agent.always(reply.hang())
        fail(other, 5)
        assert other.known().routing is OUT
        assert owner.known().routing is IN
        await eventually(lambda: not other.members.connected, within=10)
        assert len(other.members.live()) == 2  # the last that was known
        assert owner.cluster.mine("peer")
        assert not other.cluster.mine("peer")
        assert await ask(other) > 0
        own_valkey.start()
        await on_all(nodes, lambda one: one.routing is OUT)
        await eventually(lambda: own_valkey.do("HLEN", "p.health") == 1)


async def test_a_node_that_was_cut_off_comes_to_what_the_others_found(own_valkey: Valkey) -> None:
    async with (
        healthy() as agent,
        Cut(own_valkey.port) as wire,
        Nodes(own_valkey.url, prefix="p.") as nodes,
    ):
        await nodes.start(1)
        await nodes.start(1, url=wire.url)
        near, far = nodes.all
        await near.register(agent.url, **V03)
        await on_all(nodes, lambda one: one.routing is IN)
        wire.cut()
        wire.drop()
        await eventually(lambda: not far.members.connected, within=10)
        agent.always(reply.error(-32009, "version"))
        fail(far, 5)  # alone, it takes the agent out
        await near.monitor.check("peer")
        assert (near.known().routing, far.known().routing) == (Routing.DEGRADED, OUT)
        wire.mend()
        await on_all(nodes, lambda one: one.routing is Routing.DEGRADED and len(one.history) >= 2)
        assert far.known().admission.open


async def test_what_was_said_while_nobody_listened_is_made_good(own_valkey: Valkey) -> None:
    """Pitfalls 159, 161: all subscriptions are cut, and a verdict is told before they are back."""
    async with healthy() as agent, Nodes(own_valkey.url, prefix="p.") as nodes:
        owner, _ = await two(nodes, agent)
        agent.always(reply.error(-32009, "version"))
        heard = [node.cluster._behind for node in nodes.all]
        assert heard == [False, False]
        own_valkey.do("CLIENT", "KILL", "TYPE", "pubsub")
        await owner.monitor.check("peer")
        await on_all(nodes, lambda one: one.status is Status.UNHEALTHY and len(one.history) == 2)


async def test_a_node_that_had_a_wrong_idea_of_the_time_takes_all_over_again(shared_valkey: Valkey) -> None:
    """When the next trial call is due is a moment of the cluster's time."""
    async with healthy() as agent, Nodes(shared_valkey.url) as nodes:
        owner, other = await two(nodes, agent)
        agent.always(reply.hang())
        fail(owner, 5)
        await on_all(nodes, lambda one: one.routing is OUT)
        state = other.known().admission.state
        other.known().admission.state = replace(state, trial_at=state.trial_at + 3600)
        for callback in other.store.link._jumped:
            callback()
        right = pytest.approx(state.trial_at, abs=0.1)
        await eventually(lambda: other.known().admission.state.trial_at == right)


async def test_a_store_that_was_emptied_gets_it_all_back(own_valkey: Valkey) -> None:
    async with healthy() as agent, Nodes(own_valkey.url, prefix="p.") as nodes:
        owner, _ = await two(nodes, agent)
        own_valkey.do("FLUSHALL")
        await eventually(lambda: own_valkey.do("HLEN", "p.health") == 1, within=15)
        await eventually(lambda: own_valkey.do("HLEN", "p.nodes") == 2)
        assert owner is nodes.owner()


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\x93\x01\xa1x\x91\xc4\x01x", b"\x92\x09\xa1x"])
async def test_messages_that_cannot_be_read_do_no_harm(
    shared_valkey: Valkey, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A newer version's, or somebody else's; each node says so once."""
    async with healthy() as agent, Nodes(shared_valkey.url, prefix=f"{secrets.token_hex(4)}.") as nodes:
        owner, _ = await two(nodes, agent)
        for _ in range(3):
            shared_valkey.do("PUBLISH", owner.store.link.key("health"), data)
        shared_valkey.do("PUBLISH", owner.store.link.key("nodes"), data)
        agent.always(reply.error(-32009, "version"))
        await owner.monitor.check("peer")
        await on_all(nodes, lambda one: one.status is Status.UNHEALTHY)
        told = [one for one in caplog.records if "could not be read" in one.message]
        assert len(told) == (0 if data.startswith(b"\x92\x09") else 2)  # that one names its format


async def test_keys_of_another_program_are_told(own_valkey: Valkey, caplog: pytest.LogCaptureFixture) -> None:
    """The registry works on; without a word, every node would check every agent."""
    caplog.set_level(logging.INFO)
    for name in ("nodes", "health"):
        own_valkey.do("SET", f"p.{name}", "another's")
    async with healthy() as agent, Nodes(own_valkey.url, prefix="p.") as nodes:
        [node] = await nodes.start()
        await node.register(agent.url)
        await eventually(lambda: "lease of this node has run out" in caplog.text)
        own_valkey.do("DEL", "p.health")
        await eventually(lambda: own_valkey.do("HLEN", "p.health") == 1)
        assert "another program has a key" in caplog.text
