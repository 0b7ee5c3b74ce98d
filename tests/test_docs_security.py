"""docs/security.md says what the program does (contract 6)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from gateway.keys import ALGORITHMS
from gateway.settings import load
from gateway.settings_sources import field_names
from tests.fakes import issuer
from tests.fakes.issuer import bearer, token
from tests.fakes.running import eventually, running

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "security.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_examples_are_right_files(number: int, tmp_path: Path) -> None:
    file = tmp_path / "it.yaml"
    file.write_text(BLOCKS[number])
    settings = load(str(file), {"HOME": "/"}).settings
    assert settings.auth.enable
    assert set(yaml.safe_load(BLOCKS[number])["auth"]) == settings.auth.model_fields_set


def test_every_setting_it_names_is_there() -> None:
    sections = "a2a|auth|limits|log|metrics|registry|server|upstream"
    named = set(re.findall(rf"`((?:{sections})\.\w+)[:`]", PAGE))
    assert len(named) > 20
    assert named <= set(field_names())


def test_every_setting_of_auth_is_on_the_page() -> None:
    for name in field_names():
        if name.startswith("auth."):
            field = name.removeprefix("auth.")
            assert name in PAGE or f"  {field}:" in PAGE, name


def test_the_example_of_the_example_is_right() -> None:
    settings = load(str(ROOT / "examples" / "07-security" / "gateway.yaml"), {"HOME": "/"}).settings
    assert settings.auth.policy is not None


def test_all_algorithms_are_named() -> None:
    for name in ALGORITHMS:
        family = name.removesuffix("384").removesuffix("512").removesuffix("256")
        assert family in PAGE


async def test_the_audit_line_is_one() -> None:
    (shown,) = (json.loads(line) for line in re.findall(r'^\{"time".*\}$', PAGE, re.MULTILINE))
    auth = {"enable": True, "secret_env": "JWT_SECRET"}
    async with running(environ={"JWT_SECRET": issuer.SECRET}, auth=auth) as gateway:
        card = {"agent_id": "team-a-1", "name": "n", "url": "http://127.0.0.1:1/"}
        for who in ("owner", "ci"):
            await gateway.client.post("/agents/register", json=card, headers=bearer(token(sub=who)))
        await eventually(lambda: '"ci"' in gateway.log.read_text())
        (real,) = (line for line in gateway.lines() if line.get("caller") == "ci" and line["event"] == "audit")
    assert {**real, "time": shown["time"], "client": shown["client"]} == shown


def test_links_lead_somewhere() -> None:
    for file in ("SECURITY.md", "docs/security.md", "examples/07-security/README.md"):
        text = (ROOT / file).read_text()
        headings = {
            re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
        }
        for target in re.findall(r"\]\(([^)]+)\)", text):
            path, _, anchor = target.partition("#")
            if not path:
                assert anchor in headings, anchor
            elif "://" not in path:
                assert (ROOT / file).parent.joinpath(path).exists(), target
