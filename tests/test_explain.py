"""`vitalgate explain`: every error has a cause and a remedy (contract 2.4)."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from gateway.cli import cli
from gateway.faults import FAULTS
from gateway.remedies import AGENT, CALLER, OPERATOR, REMEDIES
from gateway.settings_sources import field_names
from healthcheck.explain import CODES_EXPLAINED


def explained(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["explain", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_every_error_has_words() -> None:
    assert list(REMEDIES) == list(FAULTS)
    for remedy in REMEDIES.values():
        assert remedy.acts in {CALLER, AGENT, OPERATOR}
        assert remedy.cause.endswith(".")
        assert remedy.action.endswith((".", ")."))


def test_settings_and_methods_in_the_words_exist() -> None:
    fields = {*field_names()}
    sections = {name.partition(".")[0] for name in fields}
    for reason, remedy in REMEDIES.items():
        for name in re.findall(r"`([a-z0-9]+\.[a-z_]+)(?::[^`]*)?`", f"{remedy.cause} {remedy.action}"):
            if name.partition(".")[0] in sections:
                assert name in fields, reason


@pytest.mark.parametrize("reason", FAULTS)
def test_an_error_is_explained(reason: str) -> None:
    text = explained(reason.lower())
    assert text.startswith(f"{reason} ({FAULTS[reason].code})")
    assert REMEDIES[reason].cause in text
    assert REMEDIES[reason].action in text


def test_a_code_of_the_health_checks_is_explained() -> None:
    assert CODES_EXPLAINED["connect_refused"].remedy in explained("connect_refused")


def test_the_errors_of_a_code_are_explained() -> None:
    assert "PARSE_ERROR (-32700)" in explained("-32700")
    shutdown = explained("-32003")
    for reason in ("AGENT_UNREACHABLE", "GATEWAY_SHUTDOWN"):
        assert f"{reason} (-32003)" in shutdown


def test_a_wrong_option() -> None:
    result = CliRunner().invoke(cli, ["explain", "--nonsense"])
    assert result.exit_code == 2
    assert "no such name" in result.output


def test_without_a_name_all_are_listed() -> None:
    assert explained().split() == [*FAULTS, *CODES_EXPLAINED]


def test_an_unknown_name() -> None:
    result = CliRunner().invoke(cli, ["explain", "nonsense"])
    assert result.exit_code == 2
    assert "no such name" in result.output
