"""Results as text: json, yaml, junit and prometheus here, for people in `terminal.py` (health contract 6)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from xml.etree import ElementTree

from healthcheck.document import document
from healthcheck.model import Finding, Result, Status
from healthcheck.text import printable


def render_json(results: Sequence[Result]) -> str:
    """The result document, in ASCII: nothing in a name can disturb a terminal or a log."""
    return json.dumps(document(results), indent=2) + "\n"


def render_yaml(results: Sequence[Result]) -> str:
    """The same in YAML."""
    import yaml

    return yaml.safe_dump(document(results), sort_keys=False, allow_unicode=False)


def nodes(results: Sequence[Result], path: str = "") -> Iterator[tuple[str, Result]]:
    """Every result with its place in the tree, such as `0` and `0.1`; depth first."""
    for at, result in enumerate(results):
        here = f"{path}.{at}" if path else str(at)
        yield here, result
        yield from nodes([one.result for one in result.dependencies], here)


# -- JUnit


def render_junit(results: Sequence[Result]) -> str:
    """One suite per target: UNKNOWN is an error, DEGRADED passes with a note, the rest are failures."""
    root = ElementTree.Element("testsuites", name="vitalgate")
    totals = [_suite(root, path, result) for path, result in nodes(results)]
    for name, values in zip(("tests", "failures", "errors"), zip(*totals, strict=True), strict=True):
        root.set(name, str(sum(values)))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(root: ElementTree.Element, path: str, result: Result) -> tuple[int, int, int]:
    label = f"{path} {printable(result.target.label)} ({printable(result.target.type)})"
    suite = ElementTree.SubElement(root, "testsuite", name=label)
    # a target without any check is an error of its own, so that no run is green by being empty
    cases: list[tuple[str, Finding]] = [(check.value, finding) for check, finding in result.checks.items()]
    if not cases:
        cases = [("target", Finding(result.status))]
    counts = [_case(suite, label, name, finding, result) for name, finding in cases]
    failures, errors = counts.count("failure"), counts.count("error")
    for name, value in (("tests", len(cases)), ("failures", failures), ("errors", errors)):
        suite.set(name, str(value))
    return len(cases), failures, errors


def _case(suite: ElementTree.Element, label: str, name: str, finding: Finding, result: Result) -> str:
    seconds = (result.latency_ms or 0) / 1000 if name == "latency" else 0.0
    case = ElementTree.SubElement(suite, "testcase", classname=label, name=name, time=f"{seconds:.3f}")
    text = describe(finding)
    if finding.status.passing:
        if finding.status is Status.DEGRADED:
            ElementTree.SubElement(case, "system-out").text = text
        return "passed"
    kind = "error" if finding.status is Status.UNKNOWN else "failure"
    attributes = {"type": finding.code or finding.status.value, "message": text}
    ElementTree.SubElement(case, kind, attributes)
    return kind


def describe(finding: Finding) -> str:
    """Status, code, message, reason and what it concerns in one line."""
    words = finding.status.value
    if finding.code:
        words += f" {finding.code}: {finding.message}"
    return f"{words} ({printable(finding.detail)})" if finding.detail else words


# -- Prometheus

_HELP = {
    "vitalgate_check_target_status": "1 for the status that the target has, 0 for the others.",
    "vitalgate_check_target_severity": "0 HEALTHY to 5 UNKNOWN.",
    "vitalgate_check_target_latency_seconds": "Time of the last successful reachability attempt.",
    "vitalgate_check_severity": "0 HEALTHY to 5 UNKNOWN, of one check.",
    "vitalgate_check_certificate_expiry_timestamp_seconds": "End of the peer's TLS certificate.",
}


def render_prometheus(results: Sequence[Result]) -> str:
    """Text exposition for a textfile collector; `path` tells the targets apart."""
    samples: dict[str, list[str]] = {name: [] for name in _HELP}
    for path, result in nodes(results):
        target = result.target
        labels = {"path": path, "id": target.id or "", "name": target.label, "type": target.type}
        for status in Status:
            value = int(status is result.status)
            _add(samples, "vitalgate_check_target_status", {**labels, "status": status.value}, value)
        _add(samples, "vitalgate_check_target_severity", labels, result.status.severity)
        if result.latency_ms is not None:
            _add(samples, "vitalgate_check_target_latency_seconds", labels, result.latency_ms / 1000)
        for check, finding in result.checks.items():
            one = {**labels, "check": check.value}
            _add(samples, "vitalgate_check_severity", one, finding.status.severity)
            if finding.measured and finding.measured.certificate_expires_at:
                ends = datetime.fromisoformat(finding.measured.certificate_expires_at).timestamp()
                _add(samples, "vitalgate_check_certificate_expiry_timestamp_seconds", labels, ends)
    lines = []
    for name, found in samples.items():
        if found:
            lines += [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} gauge", *found]
    return "\n".join(lines) + "\n"


def _add(samples: dict[str, list[str]], name: str, labels: Mapping[str, str], value: float) -> None:
    shown = ",".join(f'{key}="{_label(text)}"' for key, text in labels.items())
    samples[name].append(f"{name}{{{shown}}} {round(value, 6):.15g}")


def _label(text: str) -> str:
    return printable(text).replace("\\", r"\\").replace('"', r"\"")


RENDERERS: Mapping[str, Callable[[Sequence[Result]], str]] = {
    "json": render_json,
    "yaml": render_yaml,
    "junit": render_junit,
    "prometheus": render_prometheus,
}
