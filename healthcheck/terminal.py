"""Results for people: colours and a tree where the terminal has them, plain lines otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from healthcheck.explain import explain
from healthcheck.model import Check, DependencyResult, Finding, Measurement, Result, Status
from healthcheck.text import printable

_COLOURS = {
    Status.HEALTHY: "32",
    Status.DEGRADED: "33",
    Status.UNHEALTHY: "31",
    Status.UNREACHABLE: "31;1",
    Status.MISCONFIGURED: "35",
    Status.UNKNOWN: "36",
}


@dataclass(frozen=True, slots=True)
class Style:
    """`every`: healthy checks too; `explained`: steps, times, causes and remedies."""

    colours: bool = False
    tree: bool = False
    every: bool = False
    explained: bool = False


def style_for(stream: TextIO, environ: Mapping[str, str], *, every: bool, explained: bool) -> Style:
    """Colours and a tree only on a terminal that has them; both vanish in a pipe."""
    terminal = stream.isatty() and environ.get("TERM") != "dumb"
    unicode = (stream.encoding or "").lower().replace("-", "") == "utf8"
    return Style(terminal and not environ.get("NO_COLOR"), terminal and unicode, every, explained)


def render_terminal(results: Sequence[Result], style: Style) -> str:
    """The text, ending in a line break."""
    lines = []
    for result in results:
        lines += [_headline(result, style), *_below(result, style)]
    if len(results) > 1:
        lines.append(_totals(results))
    return "\n".join(lines) + "\n"


def _totals(results: Sequence[Result]) -> str:
    counts = {status: sum(result.status is status for result in results) for status in Status}
    shown = ", ".join(f"{count} {status.value}" for status, count in counts.items() if count)
    return f"{len(results)} targets: {shown}"


def _headline(result: Result, style: Style) -> str:
    target = result.target
    text = f"{_word(result.status, style)} {printable(target.label)} ({printable(target.type)})"
    return f"{text} {result.latency_ms:.1f} ms" if result.latency_ms is not None else text


def _word(status: Status, style: Style) -> str:
    return f"\x1b[{_COLOURS[status]}m{status.value}\x1b[0m" if style.colours else status.value


def _below(result: Result, style: Style) -> Iterator[str]:
    bar = "│ " if style.tree and result.dependencies else "  "
    explained: set[tuple[str | None, str | None]] = set()  # checks that share evidence share its explanation
    for check, finding in result.checks.items():
        if style.every or finding.status is not Status.HEALTHY:
            for line in _check(check, finding, style, (finding.code, finding.reason) not in explained):
                yield bar + line
            explained.add((finding.code, finding.reason))
    for at, one in enumerate(result.dependencies):
        last = at == len(result.dependencies) - 1
        first, rest = (("└─ ", "   ") if last else ("├─ ", "│  ")) if style.tree else ("  - ", "    ")
        yield f"{first}{_edge(one)}: {_headline(one.result, style)}"
        for line in _below(one.result, style):
            yield rest + line


def _edge(one: DependencyResult) -> str:
    return f"{one.relationship}, {'critical' if one.critical else 'optional'}"


def _check(check: Check, finding: Finding, style: Style, first: bool) -> Iterator[str]:
    # pad the bare word: colour codes have no width
    gap = " " * (len(Status.MISCONFIGURED) - len(finding.status.value))
    line = f"{check.value:<14} {_word(finding.status, style)}"
    if finding.code:
        line += f"{gap} {finding.code}: {finding.message}"
    yield f"{line} ({printable(finding.detail)})" if finding.detail else line
    if style.explained:
        yield from _details(finding, first)


def _details(finding: Finding, first: bool) -> Iterator[str]:
    explanation = explain(finding)
    if explanation is not None and first:
        yield f"    meaning:  {explanation.meaning}"
        yield f"    cause:    {explanation.cause}"
        yield f"    try:      {explanation.remedy}"
    if finding.measured is not None:
        yield from _measured(finding.measured)


def _measured(measured: Measurement) -> Iterator[str]:
    steps = ", ".join(f"{step} {status.value}" for step, status in measured.steps.items())
    yield f"    steps:    {steps}"
    times = ", ".join(f"{name} {value:.1f} ms" for name, value in measured.timings_ms.items())
    yield f"    timings:  {times}"
    if measured.certificate_expires_at:
        yield f"    certificate valid until {measured.certificate_expires_at}"
