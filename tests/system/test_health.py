"""Real SDK agents behind a running gateway: what their health shows and does to calls (health contract 7)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.gateway import GatewayProcess
from tests.fakes.kubemq import KubemqAgent
from tests.fakes.program import Program, sdk03_agent, sdk13_agent
from tests.fakes.sdks import register

#: Checks every second, trial calls after one: what takes a minute and a half with the defaults takes seconds.
QUICK = {"health": {"enable": True, "interval_seconds": 1, "trial_seconds": 1}}
CALLS: dict[str, dict[str, Any]] = {
    "sdk13": {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "SendMessage",
        "params": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}},
    },
    "sdk03": {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "message/send",
        "params": {
            "message": {
                "kind": "message",
                "messageId": "m",
                "role": "user",
                "parts": [{"kind": "text", "text": "hello"}],
            }
        },
    },
}
STARTS: dict[str, Callable[..., Program]] = {"sdk13": sdk13_agent, "sdk03": sdk03_agent}


async def health(gateway: GatewayProcess, agent_id: str) -> dict[str, Any]:
    answer = await gateway.http.get(f"/agents/{agent_id}/health")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def reaches(gateway: GatewayProcess, agent_id: str, routing: str, within: float = 15) -> dict[str, Any]:
    """Wait for a routing state, by asking."""
    shown: dict[str, Any] = {}
    async with asyncio.timeout(within):
        while shown.get("routing") != routing:
            shown = await health(gateway, agent_id)
            await asyncio.sleep(0.02)
    return shown


def reason(answer: httpx.Response) -> str | None:
    return answer.headers.get("x-gateway-error")


@pytest.mark.parametrize("sdk", ["sdk13", "sdk03"])
async def test_an_agent_that_dies_and_comes_back(tmp_path: Path, sdk: str) -> None:
    """Killed: out of service, refused in under 5 ms with `Retry-After`. Restarted: back, and served."""
    async with GatewayProcess(tmp_path, QUICK) as gateway:
        async with STARTS[sdk]() as agent:
            url = agent.url
            await register(gateway, "echo", url)
            shown = await reaches(gateway, "echo", "in_service")
            assert shown["status"] == "HEALTHY", shown
            assert "result" in (await gateway.call("echo", CALLS[sdk])).json()
        port = url.rstrip("/").rpartition(":")[2]
        await reaches(gateway, "echo", "out_of_service")
        took = []
        for _ in range(15):
            began = time.perf_counter()
            answer = await gateway.call("echo", CALLS[sdk])
            took.append(time.perf_counter() - began)
            if reason(answer) == "AGENT_OUT_OF_SERVICE":
                assert int(answer.headers["retry-after"]) >= 1
        assert reason(answer) == "AGENT_OUT_OF_SERVICE"
        assert sorted(took)[7] < 0.005
        history = (await gateway.http.get("/agents/echo/health/history")).json()["results"]
        assert history[0]["status"] == "UNREACHABLE"
        async with STARTS[sdk]("--port", port):
            await reaches(gateway, "echo", "in_service")
            assert "result" in (await gateway.call("echo", CALLS[sdk])).json()
        changed = [event for event in gateway.records() if event.get("event") == "agent routing changed"]
        assert [(event["from"], event["to"]) for event in changed][:3] == [
            ("unchecked", "in_service"),
            ("in_service", "out_of_service"),
            ("out_of_service", "in_service"),
        ]


async def test_five_failed_calls_are_enough(tmp_path: Path) -> None:
    """With checks an hour apart, calls alone take it out, and a trial call brings it back."""
    seldom = {"health": {"enable": True, "interval_seconds": 3600, "trial_seconds": 0.5}}
    async with GatewayProcess(tmp_path, seldom) as gateway:
        async with sdk13_agent() as agent:
            url = agent.url
            await register(gateway, "echo", url)
            await gateway.http.post("/agents/echo/health/check")
        answers = [await gateway.call("echo", CALLS["sdk13"]) for _ in range(6)]
        assert [reason(answer) for answer in answers] == ["AGENT_UNREACHABLE"] * 5 + ["AGENT_OUT_OF_SERVICE"]
        assert (await health(gateway, "echo"))["last_transition"]["because"] == "calls"
        async with sdk13_agent("--port", url.rstrip("/").rpartition(":")[2]):
            async with asyncio.timeout(15):
                while "result" not in (answer := await gateway.call("echo", CALLS["sdk13"])).json():
                    assert reason(answer) in ("AGENT_OUT_OF_SERVICE", "AGENT_UNREACHABLE")
                    await asyncio.sleep(0.1)
            assert (await health(gateway, "echo"))["routing"] == "in_service"


async def test_each_kind_of_trouble_has_its_state_message_and_metric(tmp_path: Path) -> None:
    """SDK agents of every version, one in KubeMQ's style, one of the wrong version, one with another card."""
    async with GatewayProcess(tmp_path, QUICK) as gateway:
        async with (
            sdk13_agent() as new,
            sdk13_agent("--only-v1") as only,
            sdk03_agent() as old,
            KubemqAgent() as kube,
        ):
            for name, agent in (("new", new), ("only", only), ("old", old), ("wrong", only), ("drifted", old)):
                await register(gateway, name, agent.url)
            card = (await gateway.http.get("/agents/only")).json()
            minimum = {"agent_id": "minimum", "name": card["name"], "url": card["url"]}
            await gateway.register(minimum)
            await gateway.register(kube.document)
            wrong = (await gateway.http.get("/agents/wrong")).json()
            interfaces = [{**wrong["supportedInterfaces"][0], "protocolVersion": "0.3.0"}]
            await gateway.register({**wrong, "supportedInterfaces": interfaces})
            drifted = (await gateway.http.get("/agents/drifted")).json()
            await gateway.register({**drifted, "version": "0.0.1", "skills": []})
            expected = {
                "new": ("HEALTHY", "in_service", None),
                "only": ("HEALTHY", "in_service", None),
                "old": ("HEALTHY", "in_service", None),
                "minimum": ("HEALTHY", "in_service", None),
                "kubemq-echo": ("HEALTHY", "in_service", None),
                "drifted": ("DEGRADED", "degraded", "card_drift"),
            }
            for agent_id in [*expected, "wrong"]:
                answer = await gateway.http.post(f"/agents/{agent_id}/health/check")
                assert answer.status_code == 200
            listed = {one["agent_id"]: one for one in (await gateway.http.get("/health/agents")).json()["agents"]}
            for agent_id, (status, routing, code) in expected.items():
                line = listed[agent_id]
                assert (line["status"], line["routing"], line["code"]) == (status, routing, code), agent_id
            assert listed["wrong"]["routing"] == "degraded"
            assert listed["wrong"]["code"] in ("a2a_version", "a2a_rpc", "a2a_http")
            shown = await health(gateway, "drifted")
            assert shown["drift"] == ["version", "skills"]
            assert shown["checks"]["capability"]["message"] == (
                "the published card differs from the registered one"
            )
            page = await gateway.scrape()
            assert 'vitalgate_agent_health{agent_id="drifted",status="DEGRADED"} 1\n' in page
            assert 'vitalgate_agent_routing{agent_id="drifted",state="degraded"} 1\n' in page
