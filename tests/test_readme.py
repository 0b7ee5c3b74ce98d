"""README.md is true where a machine can tell."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway import demo
from gateway.demo import Demo, curl
from healthcheck.config import read_config
from tests.fakes.gateway import COMMAND
from tests.fakes.program import clean_environment
from tests.fakes.running import Running, running

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
GATEWAY = "http://127.0.0.1:9090"


@pytest.fixture
async def gateway() -> AsyncIterator[Running]:
    """A gateway with the demo agent, as `make run` starts it."""
    stop, registered = asyncio.Event(), asyncio.Event()
    async with running() as it:
        agent = asyncio.create_task(demo.serve(Demo("demo", it.api), stop, lambda _: registered.set()))
        async with asyncio.timeout(10):
            await registered.wait()
        yield it
        stop.set()
        await agent


def commands(word: str) -> list[str]:
    """The command lines of the blocks that begin with this word, without their comments."""
    blocks = "".join(re.findall(r"^```\n(.*?)^```", README, re.MULTILINE | re.DOTALL))
    return [line for line in blocks.splitlines() if line.startswith(f"{word} ")]


def test_the_command_is_the_one_that_make_run_prints() -> None:
    assert curl(Demo("demo", GATEWAY)) in README.splitlines()


@pytest.mark.parametrize("path", sorted({*re.findall(r"\]\((?!https?:)([^)#]+)", README)}))
def test_links_lead_somewhere(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("link", sorted({*re.findall(r"\]\(([^):]+#[^)]+)\)", README)}))
def test_anchors_are_headings(link: str) -> None:
    path, _, anchor = link.partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(), re.MULTILINE)
    assert anchor in {heading.lower().replace(" ", "-") for heading in headings}


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^make ([a-z-]+)", README, re.MULTILINE)) | set(
        re.findall(r"`make ([a-z-]+)`", README)
    )
    assert named
    assert named <= targets


async def test_the_curl_lines_work(gateway: Running) -> None:
    """In their order: a call of the demo agent, a registration, its heartbeat, a stream."""
    answers = []
    for line in commands("curl"):
        words = shlex.split(line)
        assert words[:2] in (["curl", "-s"], ["curl", "-sN"])
        assert words[3:5] == ["-H", "Content-Type: application/json"]
        assert words[5] == "-d"
        url = words[2].removeprefix(GATEWAY)
        answer = await gateway.client.post(url, content=words[6], headers={"content-type": "application/json"})
        assert answer.status_code == 200
        answers.append(answer)
    call, registration, heartbeat, stream = answers
    assert call.json()["result"]["artifacts"][0]["parts"][0]["text"] == "hello"
    assert registration.json()["agent_id"] == heartbeat.json()["agent_id"] == "my-agent"
    assert stream.headers["content-type"] == "text/event-stream"
    assert '"completed"' in stream.text


def test_the_file_to_check_is_one() -> None:
    (line,) = [line for line in commands("vitalgate") if line.startswith("vitalgate check ")]
    assert read_config((ROOT / line.split()[2]).read_text()).targets


@pytest.mark.parametrize("word", ["ping", "doctor"])
async def test_the_health_commands_find_the_demo_agent_healthy(word: str, gateway: Running) -> None:
    (line,) = [line for line in commands("vitalgate") if line.startswith(f"vitalgate {word} ")]
    words = shlex.split(line.replace(GATEWAY, gateway.api))[1:]
    process = await asyncio.create_subprocess_exec(
        str(COMMAND), *words, stdout=asyncio.subprocess.PIPE, env=clean_environment()
    )
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, out.decode()
    assert out
