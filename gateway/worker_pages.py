"""Pure: one Prometheus page made of the pages of several workers (contract 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def merged(pages: Mapping[int, str | None], restarts: Mapping[int, int]) -> str:
    """Put the samples of all workers under one head per metric, each with a label `worker`.

    Args:
        pages: The page of each worker; None if it gave none in time.
        restarts: How often each was started again.
    """
    heads: dict[str, str] = {}
    samples: dict[str, list[str]] = {}
    for worker, page in pages.items():
        if page is not None:
            _collect(page, f'worker="{worker}"', heads, samples)
    parts = [
        *_own("worker_up", "gauge", "Whether it serves.", {n: int(page is not None) for n, page in pages.items()}),
        *_own("worker_restarts_total", "counter", "How often the worker was started again.", restarts),
    ]
    for family, head in heads.items():
        parts.append(head)
        parts += samples[family]
    return "".join(parts)


def _collect(page: str, label: str, heads: dict[str, str], samples: dict[str, list[str]]) -> None:
    """Sort the lines of a page under the metric whose HELP and TYPE stand above them."""
    lines: list[str] = []
    for line in page.splitlines(keepends=True):
        if line.startswith("# HELP "):
            family = line.split(" ", 3)[2]
            lines = samples.setdefault(family, [])
            new = family not in heads
            if new:
                heads[family] = line
        elif line.startswith("#"):
            if new:
                heads[family] += line
        elif line.strip():
            lines.append(_labelled(line, label))


def _labelled(sample: str, label: str) -> str:
    name, brace, rest = sample.partition("{")
    if brace and " " not in name:
        return f"{name}{{{label}{rest if rest.startswith('}') else ',' + rest}"
    name, _, value = sample.partition(" ")
    return f"{name}{{{label}}} {value}"


def _own(name: str, kind: str, text: str, values: Mapping[int, int]) -> Sequence[str]:
    name = f"vitalgate_{name}"
    lines = [f'{name}{{worker="{worker}"}} {value}\n' for worker, value in values.items()]
    return [f"# HELP {name} {text}\n# TYPE {name} {kind}\n", *lines]
