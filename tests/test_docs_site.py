"""The documentation site: built strictly, nothing from elsewhere, with every name of the code in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import click
import pytest

from gateway.cli import cli
from gateway.faults import FAULTS
from gateway.settings_sources import field_names
from tests.fakes.browser import CHROMIUM, chromium
from tests.fakes.program import ROOT
from tests.fakes.running import running

DIAGRAMS = (ROOT / "docs" / "site" / "node_modules" / "mermaid").exists()
SEARCH = (ROOT / "docs" / "site" / "node_modules" / "iframe-worker").exists()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make docs` builds it: a link or an anchor that leads nowhere fails."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [Path(sys.executable).with_name("mkdocs"), "build", "--strict", "--site-dir", folder],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=50,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def text(site: Path, page: str) -> str:
    """What a reader sees of a page."""
    html = (site / page).read_text()
    return unescape(re.sub(r"<[^>]+>", "", html))


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page.read_text()):
            if 'rel="canonical"' not in tag:
                assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", tag), f"{page.name}: {tag}"


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
async def test_a_browser_asks_nobody_else_and_draws_the_diagrams(site: Path) -> None:
    async with chromium() as browser:
        page = await browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.goto((site / "streaming.html").as_uri())
        if DIAGRAMS:
            await page.wait_for_function("document.querySelectorAll('div.mermaid').length >= 2")
        assert asked
        assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.skipif(CHROMIUM is None or not SEARCH, reason="no Chromium, or `make docs` found no node")
async def test_the_search_works_without_a_server(site: Path) -> None:
    """The README has readers open the page from their disk."""
    async with chromium() as browser:
        page = await browser.new_page(viewport={"width": 1280, "height": 900})
        await page.goto((site / "guides" / "cluster.html").as_uri())
        await page.get_by_role("textbox", name="Search").press_sequentially("heartbeat")
        await page.locator(".md-search-result__link", has_text="heartbeat").first.wait_for()


def test_every_setting_is_in_the_reference(site: Path) -> None:
    page = text(site, "reference/settings.html")
    assert [name for name in field_names() if name not in page] == []


def test_every_error_is_in_the_reference(site: Path) -> None:
    page = text(site, "reference/errors.html")
    assert [reason for reason in FAULTS if reason not in page] == []


async def test_every_metric_and_route_is_in_the_reference(site: Path) -> None:
    async with running(health={"enable": True}) as gateway:
        metrics = (await gateway.client.get("/metrics")).text
        document = (await gateway.client.get("/schema")).json()
    page = text(site, "reference/metrics.html")
    names = [name for name in re.findall(r"^# TYPE (\w+)", metrics, re.MULTILINE) if not name.endswith("_created")]
    assert len(names) > 20
    assert [name for name in names if name not in page] == []
    page = text(site, "reference/rest.html")
    routes = [f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item]
    assert len(routes) > 10
    assert [route for route in routes if route not in page] == []


def test_every_command_and_option_is_in_the_reference(site: Path) -> None:
    page = text(site, "reference/commands.html")

    def walk(words: str, command: click.Command) -> None:
        assert words in page
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                walk(f"{words} {name}", child)
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.opts[0] in page, f"{words} {parameter.opts[0]}"

    walk("vitalgate", cli)


def test_every_decision_is_in_the_navigation(site: Path) -> None:
    home = (site / "index.html").read_text()
    for path in (ROOT / "docs" / "decisions").glob("0*.md"):
        assert f"decisions/{path.stem}.html" in home


PAGES = [
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "docs" / "guides").glob("*.md"),
    ROOT / "README.md",
    ROOT / "deploy" / "README.md",
]
NO_SETTINGS = {"registry.client", "registry.db", "auth.bearer_env"}
"""What looks like a setting and is none: a module, a file, a member of health files."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_setting_that_is_named_exists(page: Path) -> None:
    names = {*field_names()}
    sections = "|".join({name.partition(".")[0] for name in names})
    found = {*re.findall(rf"`((?:{sections})\.[a-z_]+)\b(?![./])", page.read_text())}
    files = {name for name in found if name.endswith((".py", ".md"))}
    assert found - names - NO_SETTINGS - files == set()
