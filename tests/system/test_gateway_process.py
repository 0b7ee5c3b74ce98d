"""`GatewayProcess` runs the installed command: it starts, says where, stops when told, shows why it failed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.gateway import GatewayProcess


async def test_serves_a_call_and_ends_on_sigterm(tmp_path: Path) -> None:
    """Contract 8: SIGTERM ends the process with exit code 0 when nothing is in flight."""
    async with FaultAgent() as agent, GatewayProcess(tmp_path) as gateway:
        agent.next(reply.result("pong"))
        stored = await gateway.register({"agent_id": "peer", "name": "Peer", "url": agent.url})
        assert stored["agent_id"] == "peer"
        answer = await gateway.call("peer", b'{"jsonrpc":"2.0","id":7,"method":"ping"}', x_mark="m")
        assert answer.json() == {"jsonrpc": "2.0", "id": 7, "result": "pong"}
        assert agent.requests[0].header("x-mark") == "m"
        assert await gateway.stop() == 0
        assert gateway.events("listening")[0]["api"] == gateway.api


async def test_starts_again_with_what_it_kept(tmp_path: Path) -> None:
    """Contract 5, done when: SIGKILL loses no registration that was answered (SQLite in `folder`)."""
    store = {"registry": {"url": f"sqlite:///{tmp_path / 'registry.db'}"}}
    async with GatewayProcess(tmp_path, store) as gateway:
        await gateway.register({"agent_id": "peer", "name": "Peer", "url": "http://127.0.0.1:9/"})
        await gateway.kill()
        await gateway.http.aclose()
        await gateway.start()
        assert (await gateway.http.get("/agents/peer")).status_code == 200
        assert await gateway.stop(signal.SIGINT) == 0


async def test_a_failing_start_shows_what_the_gateway_said(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"ended with [1-9]\d*:\n(.|\n)*no_such_section"):
        async with GatewayProcess(tmp_path, {"no_such_section": {"x": 1}}):
            pass
