"""docs/configuration.md says of every setting what the program does: contract 4."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from gateway.reload import RELOADED
from gateway.settings import Settings, load
from gateway.settings_model import KUBEMQ_VARIABLES
from gateway.settings_sources import field_names, variable

PAGE = (Path(__file__).parent.parent / "docs" / "configuration.md").read_text()


def rows() -> dict[str, list[str]]:
    """The cells of each row of the tables, by setting."""
    found: dict[str, list[str]] = {}
    for section, table in re.findall(r"^### `(\w+)`.*\n\n((?:\|.*\n)+)", PAGE, re.MULTILINE):
        for line in table.splitlines()[2:]:
            name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
            found[f"{section}.{name.strip('`')}"] = cells
    return found


def test_every_setting_stands_there_in_order() -> None:
    assert list(rows()) == list(field_names())


def test_defaults_and_variables_are_right() -> None:
    kubemq = {target: name for name, target in KUBEMQ_VARIABLES.items()}
    for name, (default, variables, meaning) in rows().items():
        section, field = name.split(".")
        if name != "registry.url":
            assert json.loads(default.strip("`")) == json.loads(
                json.dumps(getattr(getattr(Settings(), section), field))
            )
        names = [variable(name)] + ([kubemq[name]] if name in kubemq else [])
        assert re.findall(r"`(\w+)`", variables) == names
        assert meaning


def test_the_example_is_a_right_file(tmp_path: Path) -> None:
    """Every YAML block of the page is one that the program takes."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        file = tmp_path / "it.yaml"
        file.write_text(block)
        settings = load(str(file), {"HOME": "/"}).settings
        for section, values in yaml.safe_load(block).items():
            assert values.keys() <= getattr(settings, section).model_fields_set


def test_what_a_reload_changes_is_listed() -> None:
    """Contract 8."""
    section = PAGE.split("\n## Changing settings while it runs\n")[1].split("\n## ")[0]
    listed = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+\.\w+)`", "".join(listed))) == sorted(RELOADED)
