"""The examples of docs/agent-cards.md are what the gateway does (contract 5.4)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gateway.cards import served_card
from registry.card import read_card

PAGE = (Path(__file__).parent.parent / "docs" / "agent-cards.md").read_text()
BLOCKS = {
    (kind, name): json.loads(text)
    for kind, name, text in re.findall(r"^```json (\w+) (\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
}


@pytest.mark.parametrize("name", ["minimum", "both", "v1"])
def test_a_registered_card_is_served_as_the_page_says(name: str) -> None:
    registered = BLOCKS["registered", name]
    agent = read_card(json.dumps(registered).encode(), owner=None, registered_at="2027-01-15T08:00:00.000000Z")
    served = served_card(json.loads(agent.card), "https://gw.example/a2a/echo-01")
    assert served == BLOCKS["served", name]


def test_every_example_of_the_page_is_tested() -> None:
    assert len(BLOCKS) == len(re.findall(r"^```json", PAGE, re.MULTILINE)) == 6
