"""README.md is true where a machine can tell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.demo import Demo, curl

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_command_is_the_one_that_make_run_prints() -> None:
    assert curl(Demo("demo", "http://127.0.0.1:9090")) in README.splitlines()


@pytest.mark.parametrize("path", sorted({*re.findall(r"\]\((?!https?:)([^)#]+)", README)}))
def test_links_lead_somewhere(path: str) -> None:
    assert (ROOT / path).exists()


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make ([a-z-]+)", README, re.MULTILINE)) <= targets
