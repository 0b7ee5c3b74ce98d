"""docs/agents.md is true: its program runs, its figures are the client's."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from registry import client, client_gateway
from registry.client import State
from tests.fakes.running import running

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "agents.md").read_text()


async def test_the_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    async with running() as gateway:
        known = list[int]()

        async def serve() -> None:
            known.append((await gateway.client.get("/agents/my-agent")).status_code)

        names: dict[str, object] = {"serve": serve}
        exec(found[1].replace("http://127.0.0.1:9090", gateway.api), names)
        async with asyncio.timeout(10):
            await names["main"]()  # type: ignore[operator]
        assert known == [200]
        assert (await gateway.client.get("/agents/my-agent")).status_code == 404
    assert capsys.readouterr().out == "registered\n"


def test_every_state_is_described() -> None:
    table = PAGE[PAGE.index("## What it does") :]
    assert {state.value for state in State} <= set(re.findall(r"`(\w+)`", table))


def test_the_figures_are_the_clients() -> None:
    assert (client.BEATS_PER_TTL, client.LONGEST_INTERVAL, client.LONGEST_REFUSED_PAUSE) == (3, 60, 60)
    assert (client.FIRST_PAUSE, client.LONGEST_PAUSE) == (0.1, 10)
    assert (client_gateway.ANSWER_SECONDS, client_gateway.LONGEST_WAIT) == (10, 60)
    assert client_gateway.ANSWER_BYTES == 1024 * 1024


@pytest.mark.parametrize("link", sorted({*re.findall(r"\]\((?!https?:)([^)]+)", PAGE)}))
def test_links_lead_somewhere(link: str) -> None:
    path, _, anchor = link.partition("#")
    text = (DOCS / path).read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    assert not anchor or anchor in {heading.lower().replace(" ", "-") for heading in headings}
