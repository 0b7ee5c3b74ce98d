"""Every command in the documentation is run, or says why not; `tests/fakes/documented.py` tells how."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.documented import Block, Page, blocks
from tests.fakes.program import ROOT

PAGES = sorted(
    path
    for path in [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"), ROOT / "deploy" / "README.md"]
    if "node_modules" not in path.parts
)
MARKED = [page for page in PAGES if any(block.kind == "run" for block in blocks(page))]
ELSEWHERE = {"docs/commands.md": "tests/test_docs_commands.py"}
"""Pages whose commands a test of their own runs."""
KINDS = {"run", "file", "output", "not run"}


def marked(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.kind in KINDS]


@pytest.mark.parametrize("page", MARKED, ids=lambda page: f"{page.parent.name}/{page.stem}")
async def test_the_commands_of_a_page(page: Path, tmp_path: Path) -> None:
    async with Page(tmp_path) as running:
        for block in marked(page):
            await running.do(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_is_run_or_says_why_not(page: Path) -> None:
    if (test := ELSEWHERE.get(str(page.relative_to(ROOT)))) is not None:
        assert page.name in (ROOT / test).read_text()
        return
    for block in blocks(page):
        if block.is_shell:
            assert block.kind in KINDS, f"{block.place} has no mark"
        if block.kind == "not run":
            assert len(block.option) > 10, f"{block.place} gives no reason"


def test_the_shortest_way_in_is_run() -> None:
    assert {"start", "client", "secure", "observe"} <= {page.stem for page in MARKED}
