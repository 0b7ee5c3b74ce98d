"""`GET /gateway`: settings in force, limits and their use, recent faults; passwords masked, settings by policy."""

from __future__ import annotations

from typing import Any

from gateway.app import VERSION
from gateway.proxy import RECENT_FAULTS
from gateway.settings import Settings, shown
from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.issuer import SECRET, bearer, token
from tests.fakes.running import Running, running

CALL = {"jsonrpc": "2.0", "id": 1, "method": "message/send"}
ENVIRON = {"JWT_SECRET": SECRET}
POLICY = [
    {"principals": ["alice"], "read": True},
    {"principals": ["root"], "read": True, "administer": True},
    {"principals": ["caller"], "call": ["*"]},
]


async def about(gateway: Running, **headers: str) -> dict[str, Any]:
    answer = await gateway.client.get("/gateway", headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    found: dict[str, Any] = answer.json()
    return found


async def test_what_it_is() -> None:
    async with running() as gateway:
        found = await about(gateway)
        assert (found["version"], found["phase"], found["status"]) == (VERSION, "serving", "HEALTHY")
        assert found["addresses"]["api"] == gateway.api
        assert found["caller"] == {"name": "anonymous", "authenticated": False}
        assert found["faults"] == []


async def test_every_setting_and_whether_somebody_has_set_it() -> None:
    async with running(limits={"streams": 7}) as gateway:
        settings = {one["name"]: one for one in (await about(gateway))["settings"]}
    assert settings.keys() == {
        f"{section}.{name}" for section, fields in shown(Settings()).items() for name in fields
    }
    assert settings["limits.streams"] == {"name": "limits.streams", "value": 7, "default": False}
    assert settings["log.level"] == {"name": "log.level", "value": "info", "default": True}


def test_passwords_are_masked() -> None:
    """Contract 8: no secret is shown; `shown` is what the document is made from."""
    url = "redis://user:hunter2@127.0.0.1:6379/0"
    assert "hunter2" not in str(shown(Settings(registry={"url": url})))


async def test_limits_and_their_use() -> None:
    async with FaultAgent() as agent, running(a2a={"max_agents": 3}, health={"enable": True}) as gateway:
        await gateway.register(agent)
        use = {one["name"]: one for one in (await about(gateway))["limits"]}
        assert use["agents"] == {"name": "agents", "setting": "a2a.max_agents", "used": 1, "limit": 3, "unit": ""}
        assert use["checks running"]["limit"] == 50
        assert use["memory"]["used"] > 10
        assert 0 < use["open files"]["used"] < use["open files"]["limit"]


async def test_recent_faults_are_bounded_and_the_newest_comes_first() -> None:
    async with FaultAgent() as agent, running() as gateway:
        await gateway.register(agent)
        agent.always(reply.json({"a": "b"}, status=500))
        for _ in range(RECENT_FAULTS + 5):
            await gateway.call(CALL)
        await gateway.call(CALL, "nobody")
        agent.always(reply.result({"kind": "message"}))
        await gateway.call(CALL)  # no fault
        faults = (await about(gateway))["faults"]
        assert len(faults) == RECENT_FAULTS
        assert (faults[0]["reason"], faults[0]["agent"]) == ("AGENT_NOT_FOUND", "nobody")
        assert (faults[1]["reason"], faults[1]["agent"]) == ("AGENT_HTTP_ERROR", "echo")
        assert faults[1]["caller"] == "anonymous"
        assert faults[1].keys() == {
            "time", "agent", "method", "reason", "outcome", "status", "duration_ms", "caller", "request_id",
        }  # fmt: skip


async def test_settings_are_for_those_who_administer_where_there_is_a_policy() -> None:
    """Contract 6.1: rules name principals, which are nobody else's business."""
    auth = {"enable": True, "secret_env": "JWT_SECRET", "policy": POLICY}
    async with running(auth=auth, environ=ENVIRON) as gateway:
        assert (await about(gateway, **bearer(token())))["settings"] is None
        assert (await about(gateway, **bearer(token(sub="root"))))["settings"]
        assert (await gateway.client.get("/gateway", headers=bearer(token(sub="caller")))).status_code == 403
        assert (await gateway.client.get("/gateway")).status_code == 401
    async with running(auth={"enable": True, "secret_env": "JWT_SECRET"}, environ=ENVIRON) as gateway:
        assert (await about(gateway, **bearer(token())))["settings"]
