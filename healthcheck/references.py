"""References between the targets of a file: resolved, without cycles, not too deep and not too many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from healthcheck.graph import MAX_DEPTH, MAX_PROJECTIONS, projections
from healthcheck.model import Dependency, Target
from healthcheck.rules import Reader
from healthcheck.strict_yaml import join

Make = Callable[[Mapping[str, Any], tuple[Dependency, ...]], Target]

_TOO_DEEP = f"dependencies deeper than {MAX_DEPTH} levels"


def walk(nodes: list[Any], path: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Every target and dependency entry, with its path."""
    for at, node in enumerate(nodes):
        if isinstance(node, dict):
            here = f"{path}[{at}]"
            yield node, here
            below = node.get("dependencies")
            if isinstance(below, list):
                yield from walk(below, join(here, "dependencies"))


class References:
    """Turns entries that obey the rules into targets; a node with an id becomes one shared target."""

    def __init__(self, reader: Reader, roots: list[dict[str, Any]], make: Make) -> None:
        self._reader = reader
        self._make = make
        self._roots = roots
        self._by_id = {node["id"]: node for node, _ in walk(roots, "targets") if "id" in node}
        self._built: dict[int, tuple[Target, int]] = {}
        self._open: set[int] = set()

    def build(self) -> tuple[Target, ...]:
        """The roots; mistakes are in the reader."""
        targets = []
        for at, node in enumerate(self._roots):
            built = self._target(node, f"targets[{at}]", 0)
            if built is not None:
                targets.append(built[0])
        known: dict[int, int] = {}
        if not self._reader.mistakes and sum(projections(one, known) for one in targets) > MAX_PROJECTIONS:
            self._reader.fail("targets", f"more than {MAX_PROJECTIONS} entries in the result")
        return tuple(targets)

    def _target(self, node: dict[str, Any], path: str, depth: int) -> tuple[Target, int] | None:
        """The target and how deep the graph is below it; None if a mistake was recorded."""
        if id(node) in self._built:
            return self._built[id(node)]
        if id(node) in self._open:
            self._reader.fail(path, "a cycle of dependencies")
            return None
        if depth > MAX_DEPTH:
            self._reader.fail(path.partition(".")[0], _TOO_DEEP)
            return None
        self._open.add(id(node))
        below, height = [], 0
        for at, entry in enumerate(node.get("dependencies", ())):
            here = f"{path}.dependencies[{at}]"
            found = self._dependency(entry, here, depth + 1)
            if found is not None:
                below.append(found[0])
                height = max(height, found[1] + 1)
        self._open.discard(id(node))
        if height > MAX_DEPTH:
            self._reader.fail(path, _TOO_DEEP)
            return None
        self._built[id(node)] = (self._make(node, tuple(below)), height)
        return self._built[id(node)]

    def _dependency(self, entry: dict[str, Any], path: str, depth: int) -> tuple[Dependency, int] | None:
        node: dict[str, Any] = entry
        if "ref" in entry:
            if entry["ref"] not in self._by_id:
                self._reader.fail(join(path, "ref"), "no target has this id")
                return None
            node = self._by_id[entry["ref"]]
        built = self._target(node, path, depth)
        if built is None:
            return None
        edge = Dependency(built[0], entry.get("critical", True), entry.get("relationship", "supporting"))
        return edge, built[1]
