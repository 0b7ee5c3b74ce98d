"""Large bodies one after the other need no new memory."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

ROUNDS = 500
PROGRAM = """
import resource, sys
from gateway.heap import keep_house
if sys.argv[1] == "kept":
    keep_house()
for _ in range({rounds}):  # three bodies at a time, which are then forgotten
    bodies = [b"x" * 300_000 for _ in range(3)]
    del bodies
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


def faults(how: str) -> int:
    """How often such a process had to get a page."""
    command = [sys.executable, "-c", PROGRAM.format(rounds=ROUNDS), how]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_large_bodies_do_not_make_the_heap_grow_and_shrink() -> None:
    """Performance: page faults were a quarter of the CPU time of 100 KB requests."""
    assert faults("kept") < faults("as it comes") / 3
