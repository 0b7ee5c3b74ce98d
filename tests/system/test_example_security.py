"""The example with a key set and a policy does what its README says (contract 6.1)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml

from tests.fakes.agent import FaultAgent
from tests.fakes.gateway import COMMAND, GatewayProcess
from tests.fakes.program import ROOT, clean_environment, run
from tests.system.test_examples import PYTHON, running, sections

SECURITY = ROOT / "examples" / "07-security"


def told(lines: list[str]) -> tuple[str, dict[str, Any]]:
    """The HTTP status and the body of an answer."""
    *body, status = lines
    return status, json.loads("\n".join(body))


async def test_who_may_do_what(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    settings = yaml.safe_load((SECURITY / "gateway.yaml").read_text())
    async with (
        running(PYTHON, SECURITY / "idp.py", "--port", "0", "--key", key) as (lines, _),
        FaultAgent() as agent,
    ):
        settings["auth"]["jwks_url"] = await lines.reach(1, 20)
        assert key.stat().st_mode & 0o777 == 0o600
        async with GatewayProcess(tmp_path, settings) as gateway:
            path = f"{COMMAND.parent}{os.pathsep}{clean_environment()['PATH']}"
            places = {"GATEWAY_URL": gateway.api, "AGENT_URL": agent.url, "KEY": str(key)}
            environment = {**places, "CONFIG": str(SECURITY / "gateway.yaml"), "PATH": path}
            shown = sections(await run([SECURITY / "try.sh"], environment=environment))
        answers = list(shown.values())
        assert told(answers[0])[0] == "200"
        assert told(answers[0])[1]["registered_by"] == "ci"
        assert told(answers[1]) == ("403", {"error": "not allowed to register this agent"})
        assert told(answers[2]) == ("403", {"error": "not allowed to register this agent"})
        assert "result" in told(answers[3])[1]
        for answer, reason in ((answers[4], "FORBIDDEN"), (answers[5], "UNAUTHENTICATED")):
            status, body = told(answer)
            assert (status, body["error"]["code"]) == ("200", -32010)
            assert body["error"]["data"][0]["reason"] == reason
        assert "vitalgate" in json.loads("\n".join(answers[6]))["securitySchemes"]
        assert told(answers[7]) == ("200", {"ok": True})
        called = [request for request in agent.requests if request.method == "POST"]
        assert {request.header("x-kubemq-caller-id") for request in called[:1]} == {"alice"}
