"""The KubeMQ-style agent answers as its kind does: other tests compare the gateway with it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.fakes.kubemq import KubemqAgent

TEXT = {"message": {"parts": [{"kind": "text", "text": "hello"}]}}
SLOW = {"message": {"parts": [{"kind": "text", "text": "slow hello"}]}}


async def ask(agent: KubemqAgent, method: str, params: dict[str, Any], id: Any = 7) -> httpx.Response:
    body = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    async with httpx.AsyncClient(trust_env=False) as http:
        return await http.post(agent.url, json=body)


async def test_send_and_get() -> None:
    async with KubemqAgent() as agent:
        sent = await ask(agent, "message/send", TEXT)
        assert sent.headers["content-type"] == "text/plain; charset=utf-8"
        assert sent.json()["id"] == 7
        assert sent.json()["result"]["artifacts"][0]["parts"][0]["text"] == "hello"
        got = await ask(agent, "tasks/get", {"id": "task-1"}, "x")
        assert got.json() == {"jsonrpc": "2.0", "id": "x", "result": sent.json()["result"]}


async def test_cancel() -> None:
    async with KubemqAgent() as agent:
        await ask(agent, "message/send", SLOW)
        canceled = await ask(agent, "tasks/cancel", {"id": "task-1"})
        assert canceled.json()["result"]["status"] == {"state": "canceled"}
        again = await ask(agent, "tasks/cancel", {"id": "task-1"})
        assert again.json()["error"]["code"] == -32002


@pytest.mark.parametrize(
    ("method", "params", "code"), [("tasks/get", {"id": "none"}, -32001), ("tasks/nothing", {}, -32601)]
)
async def test_errors_come_under_200(method: str, params: dict[str, Any], code: int) -> None:
    async with KubemqAgent() as agent:
        answer = await ask(agent, method, params)
    assert (answer.status_code, answer.json()["error"]["code"]) == (200, code)


async def test_bare_results_have_no_envelope() -> None:
    async with KubemqAgent(bare=True) as agent:
        answer = await ask(agent, "message/send", TEXT)
    assert answer.json()["kind"] == "task"
    assert "jsonrpc" not in answer.json()


async def test_publishes_no_card() -> None:
    async with KubemqAgent() as agent, httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(agent.at("/.well-known/agent-card.json"))
    assert (answer.status_code, answer.text) == (404, "404 page not found\n")
    assert agent.document == {
        "agent_id": "kubemq-echo",
        "name": "Echo",
        "url": agent.url,
        "protocolVersions": ["1.0"],
    }
