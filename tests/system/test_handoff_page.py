"""The handoff inspector really hands a task to agents made with the official SDKs, over TLS and behind a token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from click.testing import CliRunner
from playwright.async_api import expect

from healthcheck.cli import handoff
from tests.fakes.browser import CHROMIUM, chromium
from tests.fakes.certs import Authority
from tests.fakes.gateway import GatewayProcess
from tests.fakes.handoff_page import Inspector, inspector
from tests.fakes.program import FAKES, SDK03, SDK13, Program
from tests.fakes.sdks import UUID

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: the console is not tried in a browser"),
]

TOKEN = "sdk-token"
PYTHONS = {"sdk13": SDK13, "sdk03": SDK03}


async def published(url: str, authority: Authority) -> dict[str, Any]:
    async with httpx.AsyncClient(verify=authority.client(), trust_env=False) as http:
        place = httpx.URL(url).join("/.well-known/agent-card.json")
        card: dict[str, Any] = (await http.get(place, headers={"A2A-Version": "1.0"})).json()
        return card


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("handoff-sdk-ca"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> AsyncIterator[Inspector]:
    """The page of a gateway process at which both agents are registered."""
    folder = tmp_path_factory.mktemp("handoff-sdk")
    files = authority.issue()
    options = ["--certificate", str(files.certificate), "--key", str(files.key), "--token", TOKEN]
    agents = {sdk: Program(python, FAKES / "health_sdk.py", sdk, *options) for sdk, python in PYTHONS.items()}
    settings: dict[str, dict[str, Any]] = {
        "upstream": {
            "ca_file": str(authority.ca_file),
            "credentials": {sdk: {"bearer_env": "SDK_TOKEN"} for sdk in agents},
        },
        "health": {"enable": True},
    }
    async with (
        agents["sdk13"],
        agents["sdk03"],
        GatewayProcess(folder, settings, environment={"SDK_TOKEN": TOKEN}) as gateway,
        chromium() as browser,
    ):
        for sdk, agent in agents.items():
            await gateway.register({**await published(agent.url, authority), "agent_id": sdk, "url": agent.url})
            checked = await gateway.http.post(f"/agents/{sdk}/health/check")
            assert checked.json()["status"] == "HEALTHY", checked.text
        async with inspector(browser, gateway.api) as it:
            yield it


@pytest.mark.parametrize(("sdk", "version"), [("sdk13", "1.0"), ("sdk13", "0.3.0"), ("sdk03", "0.3.0")])
async def test_a_task_is_handed_to_a_real_agent(
    page: Inspector, authority: Authority, tmp_path: Path, sdk: str, version: str
) -> None:
    """Health contract 8, gate 6: completed, with the agent's own text as the accepted artifact; as the command."""
    await page.page.reload()
    await page.input("Card from").select_option("own")
    await page.input("Registered agent").fill(sdk)
    await expect(page.page.get_by_text("As the agent publishes it.")).to_be_visible()
    file = tmp_path / "card.json"
    file.write_text(await page.input("Agent card").input_value())
    await expect(page.input("Credential scope")).to_have_value("bound")
    await page.input("Protocol version").select_option(version)
    await page.input("Task").fill("Translate: good morning")
    await page.input("Peer's answer").select_option("send")
    await page.press("Send the task")
    await expect(page.button("Pause")).to_be_visible()
    await page.end()
    assert await page.gates() == ["pass"] * 6
    await page.shows(final_state="completed", sends="1", credential_exposed="no", stopping_gate="none")
    await expect(page.page.get_by_role("figure")).to_have_text("Accepted text artifactTranslate: good morning")
    _, text = await page.saved("Export trace")
    assert json.loads(text)["model"]["simulated"] is False
    assert TOKEN not in text
    origin = await page.input("Destination").input_value()
    wanted = await command(
        *("--card", str(file), "--skill", "echo", "--origin", origin, "--credential", f"{origin}=SDK_TOKEN"),
        *("--protocol-version", version, "--ca-file", str(authority.ca_file), "--send", "Translate: good morning"),
    )
    assert comparable(json.loads(text)["model"]["trace"]) == comparable(wanted)


async def command(*arguments: str) -> dict[str, Any]:
    """What `vitalgate handoff --format json` prints."""
    outcome = await asyncio.to_thread(
        CliRunner().invoke, handoff, [*arguments, "--format", "json"], env={"SDK_TOKEN": TOKEN}
    )
    trace: dict[str, Any] = json.loads(outcome.stdout)
    return trace


def comparable(trace: dict[str, Any]) -> Any:
    """Without fresh ids, and without the place where each of the two keeps the token."""
    text = UUID.sub("id", json.dumps(trace))
    return json.loads(text.replace("upstream.credentials", "SDK_TOKEN"))


async def test_a_failing_task_and_one_that_takes_too_long(page: Inspector) -> None:
    await page.page.reload()
    await page.input("Card from").select_option("own")
    await page.input("Registered agent").fill("sdk13")
    await expect(page.page.get_by_text("As the agent publishes it.")).to_be_visible()
    await page.input("Peer's answer").select_option("send")
    for text, deadline, state in (("fail now", "30000", "peer-failed"), ("slow one", "1000", "timeout-unknown")):
        await page.input("Task").fill(text)
        await page.input("Deadline").select_option(deadline)
        await page.press("Send the task")
        await expect(page.button("Pause")).to_be_visible(timeout=20_000)
        await page.end()
        await page.shows(final_state=state, sends="1")
