"""The result document and its other forms (health contract 6); hostile names stay harmless everywhere."""

from __future__ import annotations

import calendar
import io
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from healthcheck.codes import CODES
from healthcheck.document import document, schema
from healthcheck.explain import CODES_EXPLAINED, explain
from healthcheck.model import (
    Check,
    Dependency,
    DependencyResult,
    Finding,
    Measurement,
    Result,
    Status,
    Target,
    fault,
)
from healthcheck.reasons import REASONS
from healthcheck.report import RENDERERS, render_json, render_junit, render_prometheus, render_yaml
from healthcheck.terminal import Style, render_terminal, style_for

ROOT = Path(__file__).parent.parent
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "health-result.schema.json").read_text())
EVIL = "\x1b]0;owned\x07\x1b[31m\r\nHEALTHY \u202egnp\u2028\x9b<&\"'\\ \ud800"

MEASURED = Measurement(
    {"dns": Status.HEALTHY, "tcp": Status.HEALTHY, "tls": Status.HEALTHY, "http": Status.HEALTHY},
    {"dns": 0.5, "connect": 1.25, "tls": 3.0, "first_byte": 9.0, "total": 9.5},
    "2031-02-03T04:05:06Z",
)


def result(
    status: Status = Status.HEALTHY, *below: DependencyResult, name: str = "front", **checks: Finding
) -> Result:
    target = Target(type="a2a", endpoint="http://h/", id=None if name == "front" else "db", name=name)
    return Result(target, status, {Check(check): one for check, one in checks.items()}, 9.5, below)


GOOD = result(configuration=Finding(Status.HEALTHY), reachability=Finding(Status.HEALTHY, measured=MEASURED))
BAD = result(
    Status.UNKNOWN,
    DependencyResult(result(Status.DEGRADED, name="db", latency=fault("latency")), False, "path"),
    DependencyResult(result(Status.UNKNOWN, name=EVIL), True, "supporting"),
    authentication=fault("a2a_auth", "credential_missing"),
    protocol=fault("a2a_rpc", "method_not_found"),
    functional=fault("a2a_pending"),
    dependency=fault("dependency_unknown"),
)


def test_one_root_is_the_document_itself() -> None:
    """Health contract 6: members, their order, and what is ours beside `steps`."""
    assert document([GOOD]) == {
        "spec_version": "v1",
        "target": {"name": "front", "type": "a2a"},
        "status": "HEALTHY",
        "latency_ms": 9.5,
        "checks": {
            "configuration": {"status": "HEALTHY"},
            "reachability": {
                "status": "HEALTHY",
                "steps": dict.fromkeys(("dns", "tcp", "tls", "http"), "HEALTHY"),
                "timings_ms": {"dns": 0.5, "connect": 1.25, "tls": 3.0, "first_byte": 9.0, "total": 9.5},
                "certificate_expires_at": "2031-02-03T04:05:06Z",
            },
        },
        "dependencies": [],
    }


def test_several_roots_dependencies_codes_and_messages() -> None:
    """Health contract 6."""
    value = document([GOOD, BAD])
    assert list(value) == ["spec_version", "results"]
    first, second = value["results"]
    assert "spec_version" not in first
    assert second["checks"]["protocol"] == {
        "code": "a2a_rpc",
        "status": "UNHEALTHY",
        "message": CODES["a2a_rpc"].message,
        "reason": "method_not_found",
    }
    below = second["dependencies"]
    assert [(one["critical"], one["relationship"]) for one in below] == [(False, "path"), (True, "supporting")]
    assert below[0]["target"] == {"id": "db", "name": "db", "type": "a2a"}


def test_what_a_finding_concerns_is_said_everywhere() -> None:
    """With three required skills, each format says which one is missing; it is a word of the user's own."""
    found = fault("a2a_required", "skill_missing", subject="trans\x1blate")
    results = [Result(Target(type="a2a", endpoint="http://h/"), Status.UNHEALTHY, {Check.CAPABILITY: found})]
    value = document(results)["checks"]["capability"]
    assert (value["reason"], value["subject"]) == ("skill_missing", "trans\x1blate")
    jsonschema.validate(document(results), SCHEMA)
    for text in (render_terminal(results, Style()), RENDERERS["junit"](results)):
        assert r"(skill_missing: trans\x1blate)" in text


def test_the_published_schema_is_the_codes_and_takes_the_documents() -> None:
    """docs/schemas is held against the code."""
    assert json.loads(json.dumps(schema())) == SCHEMA
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for results in ([GOOD], [BAD], [GOOD, BAD], []):
        jsonschema.validate(json.loads(render_json(results)), SCHEMA)
        assert yaml.safe_load(render_yaml([GOOD, BAD])) == json.loads(render_json([GOOD, BAD]))
    for broken in ({}, {"spec_version": "v2", "results": []}, {**document([GOOD]), "status": "FINE"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, SCHEMA)


def control_free(text: str) -> bool:
    """Nothing that a terminal or a log acts on, but line breaks of our own."""
    return all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize("name", RENDERERS)
def test_hostile_names_do_not_get_through(name: str) -> None:
    """Required: terminal control characters and newlines in names are neutralised."""
    text = RENDERERS[name]([BAD])
    assert control_free(text)
    assert "\u202e" not in text
    text.encode("ascii" if name in {"json", "yaml"} else "utf-8")


def test_hostile_names_on_a_terminal() -> None:
    """The same for people; colours are our own and nothing else is."""
    for style in (Style(), Style(colours=True, tree=True, every=True, explained=True)):
        text = render_terminal([BAD], style)
        assert control_free(re.sub(r"\x1b\[[0-9;]+m", "", text))
        assert r"\x1b[31m\r\nHEALTHY \u202egnp\u2028\x9b<&" in text
        assert bool(re.search(r"\x1b\[", text)) is style.colours


# -- JUnit and Prometheus


def test_junit() -> None:
    """DEGRADED passes with a note, UNKNOWN is an error, the rest are failures; an empty target is an error."""
    root = ElementTree.fromstring(render_junit([GOOD, BAD]))
    assert dict(root.attrib) == {"name": "vitalgate", "tests": "8", "failures": "2", "errors": "3"}
    cases = {(one.get("classname", "").split()[0], one.get("name")): one for one in root.iter("testcase")}
    kinds = {key: [child.tag for child in one] for key, one in cases.items()}
    assert kinds["0", "configuration"] == []
    assert kinds["1", "authentication"] == ["failure"]
    assert kinds["1", "functional"] == ["error"]
    assert kinds["1.0", "latency"] == ["system-out"]
    assert kinds["1.1", "target"] == ["error"]
    failure = cases["1", "protocol"].find("failure")
    assert failure is not None
    assert (failure.get("type"), failure.get("message")) == (
        "a2a_rpc",
        "UNHEALTHY a2a_rpc: the agent answered with a JSON-RPC error (method_not_found)",
    )


def test_prometheus() -> None:
    """Readable by the official parser; one-hot statuses; no series twice."""
    families = {one.name: one for one in text_string_to_metric_families(render_prometheus([GOOD, BAD]))}
    hot = [one for one in families["vitalgate_check_target_status"].samples if one.value == 1]
    assert {(one.labels["path"], one.labels["status"]) for one in hot} == {
        ("0", "HEALTHY"),
        ("1", "UNKNOWN"),
        ("1.0", "DEGRADED"),
        ("1.1", "UNKNOWN"),
    }
    [expiry] = families["vitalgate_check_certificate_expiry_timestamp_seconds"].samples
    assert expiry.value == calendar.timegm((2031, 2, 3, 4, 5, 6))
    [severity] = [one for one in families["vitalgate_check_severity"].samples if one.labels["check"] == "protocol"]
    assert severity.value == 2
    for family in families.values():
        keys = [tuple(sorted(one.labels.items())) for one in family.samples]
        assert len(keys) == len(set(keys))


def test_names_come_back_from_prometheus_as_they_are_shown() -> None:
    """Text format: backslash, quote and line break of a label are escaped."""
    name = 'back\\slash "quoted"\nline\x1b'
    text = render_prometheus([result(Status.HEALTHY, name=name)])
    names = {one.labels["name"] for family in text_string_to_metric_families(text) for one in family.samples}
    assert names == {r'back\slash "quoted"\nline\x1b'}


# -- for people


class Terminal(io.StringIO):
    def __init__(self, encoding: str, terminal: bool) -> None:
        super().__init__()
        self._encoding, self._terminal = encoding, terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize(
    ("encoding", "terminal", "environ", "wanted"),
    [
        ("utf-8", True, {}, (True, True)),
        ("UTF-8", False, {}, (False, False)),
        ("utf-8", True, {"NO_COLOR": "1"}, (False, True)),
        ("utf-8", True, {"TERM": "dumb"}, (False, False)),
        ("ascii", True, {}, (True, False)),
    ],
)
def test_colours_and_tree_vanish_in_a_pipe(
    encoding: str, terminal: bool, environ: dict[str, str], wanted: tuple[bool, bool]
) -> None:
    """Health contract 6: where the terminal has them, plain otherwise."""
    style = style_for(Terminal(encoding, terminal), environ, every=True, explained=False)
    assert (style.colours, style.tree) == wanted


def test_the_tree() -> None:
    """A tree on a terminal, indentation elsewhere; healthy checks only where asked for."""
    lines = render_terminal([BAD], Style(tree=True)).splitlines()
    assert lines[0] == "UNKNOWN front (a2a) 9.5 ms"
    assert lines[1].startswith("│ authentication MISCONFIGURED a2a_auth:")
    assert any(line.startswith("├─ path, optional: DEGRADED db (a2a)") for line in lines)
    assert any(line.startswith("└─ supporting, critical: UNKNOWN ") for line in lines)
    plain = render_terminal([GOOD, BAD], Style())
    assert not set("│├└─") & set(plain)
    assert "configuration" not in plain
    assert plain.endswith("2 targets: 1 HEALTHY, 1 UNKNOWN\n")


def test_doctor_explains() -> None:
    """Required: meaning, cause, what to try next; -32601 and -32009 are version mismatches."""
    text = render_terminal([BAD], Style(every=True, explained=True))
    assert "-32601" in text
    assert "--protocol-version" in text
    for code, reason in (("a2a_rpc", "method_not_found"), ("a2a_version", "version_not_supported")):
        explanation = explain(fault(code, reason))
        assert explanation is not None
        assert explanation.meaning.startswith("Version mismatch")
    timed = render_terminal([GOOD], Style(every=True, explained=True))
    assert "dns 0.5 ms, connect 1.2 ms, tls 3.0 ms, first_byte 9.0 ms, total 9.5 ms" in timed
    assert "certificate valid until 2031-02-03T04:05:06Z" in timed


def test_every_code_is_explained_and_documented() -> None:
    """Each code has a message, an explanation, and a row in docs/health.md."""
    assert set(CODES_EXPLAINED) == set(CODES)
    assert {code for code, _ in REASONS} <= set(CODES)
    page = (ROOT / "docs" / "health.md").read_text()
    for code in CODES:
        assert f"| `{code}` |" in page, code
    for code, reason in REASONS:
        rows = [line for line in page.splitlines() if line.startswith(f"| `{code}` ") and f"`{reason}`" in line]
        assert len(rows) == 1, (code, reason)
        assert REASONS[code, reason].remedy in rows[0]
    for explanation in [*CODES_EXPLAINED.values(), *REASONS.values()]:
        assert all(text.endswith((".", "?")) and len(text) < 130 for text in explanation), explanation


def test_every_reason_that_the_code_uses_is_spelled_alike() -> None:
    """An explanation whose reason no code produces would never be shown."""
    sources = "".join(
        path.read_text() for path in (ROOT / "healthcheck").rglob("*.py") if path.name != "reasons.py"
    )
    produced = set(re.findall(r'"([a-z0-9_]+)"', sources))
    produced |= {f"http_{status}" for status in (404, 429, 502, 503, 504)} | {
        f"{member}_blank" for member in ("name", "version")
    }
    assert {reason for _, reason in REASONS} <= produced


def test_a_dependency_by_value() -> None:
    """A target's label never shows more of an endpoint than host and port."""
    secret: dict[str, Any] = {"type": "http", "endpoint": "http://user:secret@h/"}
    assert Target(**secret, dependencies=(Dependency(Target(**secret)),)).label == "http"
