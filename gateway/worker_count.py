"""How many processes `vitalgate serve --workers` means, and whether the settings allow for them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from gateway.settings import Settings

MOST: Final = 256
_CPU_MAX: Final = Path("/sys/fs/cgroup/cpu.max")
_NUMBER: Final = re.compile(r"[0-9]{1,3}")


def worker_count(text: str, settings: Settings) -> int:
    """Read the option.

    Raises:
        ValueError: it is no number of workers, or these settings allow for one only; the text says what to do.
    """
    count = _cores() if text == "auto" else int(text) if _NUMBER.fullmatch(text) else 0
    if not 1 <= count <= MOST:
        raise ValueError(f"must be a number from 1 to {MOST}, or auto")
    store = settings.registry.url.partition(":")[0]
    if count > 1 and store in ("memory", "sqlite"):
        raise ValueError(
            f"several processes cannot share a registry in {'memory' if store == 'memory' else 'a SQLite file'}: "
            "set registry.url to redis://HOST:PORT (Redis or Valkey), or leave --workers out"
        )
    if count > 1 and not settings.metrics.port:
        raise ValueError("the metrics of several processes need a port of their own: set metrics.port")
    return count


def _cores() -> int:
    """The cores that this process may use; a container is often allowed fewer than it sees."""
    seen = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        allowed = quota(_CPU_MAX.read_text())
    except OSError:  # no cgroup v2
        allowed = seen
    return min(seen, allowed, MOST)


def quota(text: str) -> int:
    """Read cgroup v2's `cpu.max`, microseconds per period: the whole cores it allows for, at least one."""
    allowed, _, period = text.strip().partition(" ")
    if allowed == "max":
        return MOST
    return max(1, -(-int(allowed) // int(period or 100_000)))
