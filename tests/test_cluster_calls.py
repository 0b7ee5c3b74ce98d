"""Calls that may be the trial, while the store that decides it is slow or gone (health contract 7)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.connection import Behaviour
from tests.fakes.running import Running, running
from tests.fakes.valkey import Valkey, own_valkey
from tests.system.test_nodes_health import answering, calls

__all__ = ["own_valkey"]

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


@asynccontextmanager
async def out_of_service(valkey: Valkey, then: Behaviour) -> AsyncIterator[tuple[Running, FaultAgent]]:
    """An agent that callers' calls have taken out, whose time for a trial call has come; then it does this."""
    health = {"enable": True, "interval_seconds": 60, "trial_seconds": 1}
    async with FaultAgent(path="/rpc") as agent, running(registry={"url": valkey.url}, health=health) as gateway:
        agent.always(answering(reply.reset()))
        await gateway.register(agent, "peer", protocolVersion="0.3.0")
        await gateway.client.post("/agents/peer/health/check")
        for _ in range(5):
            await gateway.call(PING, "peer")
        assert (await gateway.call(PING, "peer")).headers["x-gateway-error"] == "AGENT_OUT_OF_SERVICE"
        agent.always(answering(then))
        await asyncio.sleep(1.05)
        yield gateway, agent


async def test_the_store_is_asked_and_the_call_goes_on(own_valkey: Valkey) -> None:
    async with out_of_service(own_valkey, reply.result("pong")) as (gateway, agent):
        before = len(calls(agent))
        answer = await gateway.call(PING, "peer")
        assert answer.json()["result"] == "pong"
        assert len(calls(agent)) == before + 1
        shown = (await gateway.client.get("/agents/peer/health")).json()
        assert shown["last_transition"]["because"] == "trial"


async def test_a_call_waits_for_a_store_that_hangs_only_briefly(own_valkey: Valkey) -> None:
    """Then this node decides alone."""
    async with out_of_service(own_valkey, reply.result("pong")) as (gateway, _):
        own_valkey.freeze()
        began = time.monotonic()
        answer = await gateway.call(PING, "peer")
        assert time.monotonic() - began < 1.0
        assert answer.json()["result"] == "pong"
        own_valkey.thaw()


async def test_a_caller_who_leaves_meanwhile_holds_up_nobody(own_valkey: Valkey) -> None:
    """The right comes after the caller has left: the next call is the trial, and the agent sees only that."""
    async with out_of_service(own_valkey, reply.result("pong")) as (gateway, agent):
        before = len(calls(agent))
        own_valkey.freeze()
        async with httpx.AsyncClient(base_url=gateway.api, timeout=0.1, trust_env=False) as hasty:
            with pytest.raises(httpx.ReadTimeout):
                await hasty.post("/a2a/peer", content=PING, headers={"content-type": "application/json"})
        await asyncio.sleep(0.3)  # what it asked has been answered by silence
        assert len(calls(agent)) == before
        own_valkey.thaw()
        answer = await gateway.call(PING, "peer")
        if "x-gateway-error" in answer.headers:  # it asks once the step before is over
            await asyncio.sleep(1.1)
            answer = await gateway.call(PING, "peer")
        assert answer.json()["result"] == "pong"
        assert len(calls(agent)) == before + 1


async def test_others_are_refused_at_once_while_one_asks(own_valkey: Valkey) -> None:
    """Of those at a node one asks at a time: the others hear when to come again, and do not wait."""
    async with out_of_service(own_valkey, reply.result("pong")) as (gateway, agent):
        before = len(calls(agent))
        own_valkey.freeze()
        first = asyncio.create_task(gateway.call(PING, "peer"))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        refused = await gateway.call(PING, "peer")
        assert time.monotonic() - began < 0.2
        assert refused.headers["x-gateway-error"] == "AGENT_OUT_OF_SERVICE"
        assert int(refused.headers["retry-after"]) >= 1
        assert (await first).json()["result"] == "pong"
        assert len(calls(agent)) == before + 1
        own_valkey.thaw()
