"""Pure: the tables that the bench prints."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from tests.benchmarks.targets import Judgement, Results

#: Number -> heading and how it is written, in the order of the columns.
COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "cpu_us": ("CPU us/call", "{:.1f}".format),
    "event_us": ("CPU us/event", "{:.1f}".format),
    "units": ("units", "{:.2f}".format),
    "rps": ("calls/s", "{:,.0f}".format),
    "events_s": ("events/s", "{:,.0f}".format),
    "p50_us": ("p50 us", "{:,.0f}".format),
    "p99_us": ("p99 us", "{:,.0f}".format),
    "added_p50_us": ("added p50 us", "{:,.0f}".format),
    "start_s": ("start s", "{:.2f}".format),
    "start_cpu_s": ("start CPU s", "{:.2f}".format),
    "heartbeats_core": ("heartbeats, core", "{:.1%}".format),
    "idle_core": ("idle, core", "{:.1%}".format),
    "commands": ("commands", "{:.1f}".format),
    "help_s": ("help s", "{:.2f}".format),
    "scrape_cpu_ms": ("scrape CPU ms", "{:.1f}".format),
    "scrape_ms": ("scrape ms", "{:.1f}".format),
    "stall_ms": ("stall ms", "{:.1f}".format),
    "stream_kb": ("KB/stream", "{:.1f}".format),
    "open_us": ("CPU us/opening", "{:.0f}".format),
    "core": ("core", "{:.1%}".format),
    "growth": ("growth", "{:.3f}".format),
    "left": ("left open", "{:.0f}".format),
    "beside": ("x CPU alone", "{:.2f}".format),
    "beside_p99": ("x p99 alone", "{:.2f}".format),
    "busy": ("busy", "{:.0%}".format),
    "pss_mb": ("PSS MB", "{:.1f}".format),
    "waited": ("waited", "{:.0%}".format),
}


def measurements(results: Results, about: Mapping[str, str]) -> str:
    """Per case: one line per subject, medians over the repeats."""
    return "\n\n".join(f"{case}: {about.get(case, '')}\n{_case(subjects)}" for case, subjects in results.items())


def verdicts(judgements: Sequence[Judgement]) -> str:
    """The table of targets."""
    rows = [["target", "first", "goal", "stretch", "median", "min-max", "verdict"]]
    for one in judgements:
        target = one.target
        spread = f"{_number(min(one.values))}-{_number(max(one.values))}" if one.values else "-"
        steps = [_number(target.first), _number(target.goal), _number(target.stretch)]
        rows.append([target.what, *steps, _number(one.median), spread, one.verdict])
    return table(rows)


def renewed(page: str, blocks: Mapping[str, str]) -> str:
    """A page with these texts between its marks, `<!-- bench: NAME -->` and `<!-- end of bench -->`.

    Raises:
        ValueError: The page lacks a mark.
    """
    for name, text in blocks.items():
        begin, end = f"<!-- bench: {name} -->\n", "<!-- end of bench -->"
        before, mark, rest = page.partition(begin)
        _, closing, after = rest.partition(end)
        if not (mark and closing):
            raise ValueError(f"no {begin.strip()} ... {end} in the page")
        page = f"{before}{begin}```text\n{text}\n```\n{end}{after}"
    return page


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns of equal width, the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _case(subjects: Mapping[str, Sequence[Mapping[str, float] | None]]) -> str:
    counted = {name: [one for one in repeats if one is not None] for name, repeats in subjects.items()}
    names = [name for name in COLUMNS if any(name in one for ones in counted.values() for one in ones)]
    cost = "event_us" if "event_us" in names else "cpu_us"
    envoy = _median(counted.get("envoy", []), cost)
    rows = [["", *(COLUMNS[name][0] for name in names), *(["x Envoy"] if envoy else [])]]
    for subject, ones in counted.items():
        if not ones:
            rows.append([f"  {subject}: INVALID", *[""] * (len(rows[0]) - 1)])
            continue
        cells = [_cell(name, _median(ones, name)) for name in names]
        cpu = _median(ones, cost)
        ratio = [f"{cpu / envoy:.2f}" if cpu is not None else "-"] if envoy else []
        rows.append([f"  {subject}", *cells, *ratio])
    return table(rows)


def _median(ones: Sequence[Mapping[str, float]], name: str) -> float | None:
    values = [one[name] for one in ones if name in one]
    return median(values) if values else None


def _cell(name: str, value: float | None) -> str:
    return "-" if value is None else COLUMNS[name][1](value)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
