"""Minutes of the soak (`tests/benchmarks/soak.py`): bounded load with faults leaves the gateway as it was."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.benchmarks import soak


def found(**last: float) -> dict[str, Any]:
    """A soak of sixteen equal looks, but for the last quarter."""
    usual = {"seconds": 0.0, "anon_mb": 60.0, "files": 100, "threads": 6, "tasks": 10, "streams": 5}
    samples = [dict(usual) for _ in range(13)] + [usual | last for _ in range(4)]
    return {"wrong": [], "samples": samples, "after": usual | {"streams": 0}}


def test_what_is_flat_and_what_is_not() -> None:
    assert soak.complaints(found()) == []
    assert soak.complaints(found(anon_mb=62.0)) == []
    for name, value in {"anon_mb": 64.0, "files": 130, "threads": 9, "tasks": 20}.items():
        (problem,) = soak.complaints(found(**{name: value}))
        assert problem.startswith(f"{name} grows")


def test_what_is_left_and_what_was_wrong() -> None:
    left = found()
    left["after"] |= {"files": 130, "streams": 1}
    left["wrong"] = ["a wrong answer"]
    assert [problem.partition(":")[0] for problem in soak.complaints(left)] == [
        "unexpected",
        "files",
        "1 streams are left",
    ]


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="load and gateway need a core each")
def test_a_soak_leaves_nothing() -> None:
    """Memory, open files, threads and tasks are flat; every answer was one that was to be expected."""
    assert soak.complaints(soak.run(180.0)) == []
