"""docs/commands.md is true: its examples are run at a gateway with the demo agent, its tables compared."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import click
import pytest

from gateway import demo
from gateway.operator import commands, endpoint, failures
from gateway.settings_sources import OPERATOR_VARIABLES
from tests.fakes.operating import Done, vitalgate
from tests.fakes.ports import refusing_port
from tests.fakes.running import Running, running

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "commands.md").read_text()
CARD = {"agent_id": "weather", "name": "Weather", "url": "http://127.0.0.1:8000/"}
ROOTS = {name: getattr(commands, name) for name in ("agents", "send", "stream", "nodes", "reload", "completion")}


@pytest.fixture
async def gateway() -> AsyncIterator[Running]:
    """A gateway with the demo agent, once it has been checked."""
    stop, registered = asyncio.Event(), asyncio.Event()
    async with running(health={"enable": True, "interval_seconds": 3600}) as it:
        agent = asyncio.create_task(demo.serve(demo.Demo("demo", it.api), stop, lambda _: registered.set()))
        async with asyncio.timeout(10):
            await registered.wait()
        await it.client.post("/agents/demo/health/check")
        yield it
        stop.set()
        await agent


def examples() -> Iterator[tuple[str, str, int]]:
    """Each command line of the page, with what it prints and its exit code."""
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        for text in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, printed = text.partition("\n")
            code = re.search(r"^\[(\d+)\]\n", printed, re.MULTILINE)
            yield line, printed[: code.start()] if code else printed, int(code[1]) if code else 0


def squeezed(text: str) -> str:
    """Columns are as wide as their widest cell, which differs."""
    return "\n".join(re.sub(r" {2,}", "  ", line).rstrip() for line in text.splitlines())


def matches(shown: str, done: Done) -> bool:
    """Whether the page shows what was printed: first its output, then its errors; `…` stands for anything."""
    pattern = ".+".join(map(re.escape, squeezed(shown).split("…")))
    return any(re.fullmatch(pattern, squeezed(text)) for text in (done.out, done.err, done.out + done.err))


async def run(line: str, url: str, folder: Path) -> Done:
    given = ""
    if " | " in line:
        echo, line = line.split(" | ")
        given = shlex.split(echo)[1] + "\n"
    words = shlex.split(line)
    assert words[0] == "vitalgate"
    card = folder / "card.json"
    card.write_text(json.dumps(CARD))
    return await vitalgate(*(str(card) if word == card.name else word for word in words[1:]), url=url, given=given)


async def test_the_examples_print_what_the_page_shows(gateway: Running, tmp_path: Path) -> None:
    found = list(examples())
    assert len(found) >= 10
    for line, shown, code in found:
        if "send away" in line:
            with refusing_port() as port:
                await gateway.register(f"http://127.0.0.1:{port}/", "away")
                done = await run(line, gateway.api, tmp_path)
        else:
            done = await run(line, gateway.api, tmp_path)
        assert done.code == code, (line, done)
        if "stream" in line:  # states stand on standard error, between the text
            assert [one for one in shown.splitlines() if one not in done.err.splitlines()] == done.out.splitlines()
        elif shown:
            assert matches(shown, done), (line, shown, done)
        else:
            assert done.out == "", line


def paths(command: click.Command, name: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        for below, one in command.commands.items():
            yield from paths(one, f"{name} {below}")
    else:
        yield name


def test_every_command_is_in_the_table() -> None:
    table = PAGE.split("\n## ")[0]
    listed = {
        re.match(r"[a-z ]+[a-z]", row) for row in re.findall(r"^\| `vitalgate ([^`]+)` \|", table, re.MULTILINE)
    }
    named = {found[0] for found in listed if found}
    named = {"completion" if name.startswith("completion") else name for name in named}
    assert named == {name for root, command in ROOTS.items() for name in paths(command, root)}


def test_every_option_that_is_named_exists() -> None:
    known = {
        option
        for root in ROOTS.values()
        for command in (root.commands.values() if isinstance(root, click.Group) else [root])
        for parameter in command.params
        for option in parameter.opts
    }
    named = set(re.findall(r"`(--[a-z-]+)`", PAGE))
    assert named <= known | {"--demo"}
    assert {"--url", "--token", "--token-file", "--ca-file", "--timeout", "--json"} <= named


def test_variables_and_the_default_address() -> None:
    """Contract 4: a gateway passes over them."""
    named = set(re.findall(r"`(VITALGATE_[A-Z_]+)`", PAGE))
    assert named == set(OPERATOR_VARIABLES)
    assert named == {endpoint.URL_VARIABLE, endpoint.TOKEN_VARIABLE, endpoint.TOKEN_FILE_VARIABLE}
    assert f"| `--url` | `VITALGATE_URL` | `{endpoint.DEFAULT_URL}` |" in PAGE


def test_exit_codes() -> None:
    table = PAGE.split("| exit code | means |")[1].split("\n\n")[0]
    shown = {int(code): text for code, text in re.findall(r"^\| (\d+) \| (\w+)", table, re.MULTILINE)}
    words = {"error": failures.ERROR, "usage": failures.USAGE, "not": failures.NOT_FOUND}
    words |= {"authentication": failures.AUTH, "connection": failures.CONNECTION, "timeout": failures.TIMEOUT}
    assert {code: text for code, text in shown.items() if 0 < code < 100} == {
        code: text for text, code in words.items()
    }
    assert {failures.INTERRUPTED, failures.BROKEN_PIPE} <= shown.keys()


def test_timeouts() -> None:
    times = (commands._REST_SECONDS, commands._CHECK_SECONDS, commands._CALL_SECONDS)
    assert "{:g} s; `check` {:g} s, `send` {:g} s".format(*times) in PAGE


@pytest.mark.parametrize("path", sorted({*re.findall(r"\]\((?!https?:)([^)#]+)", PAGE)}))
def test_links_lead_somewhere(path: str) -> None:
    assert (DOCS / path).exists()
