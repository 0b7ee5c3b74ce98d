"""Prints a pip constraint for every dependency of vitalgate: exactly its lower bound (pitfall 183)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
_BOUND = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?>=([0-9.]+)")


def constraints() -> list[str]:
    """Give `name==version` for each; one without a lower bound is a mistake."""
    found = []
    for requirement in tomllib.loads(PROJECT.read_text())["project"]["dependencies"]:
        bound = _BOUND.fullmatch(requirement)
        if bound is None:
            raise SystemExit(f"{requirement}: must have a lower bound, and nothing else")
        found.append(f"{bound[1]}=={bound[2]}")
    names = [one.partition("==")[0] for one in found]
    if len(set(names)) < len(names):
        raise SystemExit("a dependency stands twice: two bounds cannot both be the lower one")
    return found


if __name__ == "__main__":
    print("\n".join(constraints()))
