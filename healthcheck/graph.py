"""What dependencies mean for those that need them: pure rules (health contract 5)."""

from __future__ import annotations

from collections.abc import Iterable

from healthcheck.model import PASSED, DependencyResult, Finding, Status, Target, fault, worst

MAX_DEPTH = 64
MAX_PROJECTIONS = 10_000

_CRITICAL = {
    Status.HEALTHY: Status.HEALTHY,
    Status.DEGRADED: Status.DEGRADED,
    Status.UNHEALTHY: Status.UNHEALTHY,
    Status.UNREACHABLE: Status.UNHEALTHY,
    Status.MISCONFIGURED: Status.UNHEALTHY,
    Status.UNKNOWN: Status.UNKNOWN,
}
_CODES = {
    Status.DEGRADED: "dependency_degraded",
    Status.UNHEALTHY: "dependency_failed",
    Status.UNKNOWN: "dependency_unknown",
}


def effect(status: Status, *, critical: bool) -> Status:
    """What a dependency's status does to its parent; an optional one can at most degrade it."""
    if critical:
        return _CRITICAL[status]
    return Status.HEALTHY if status.passing else Status.DEGRADED


def summarise(dependencies: Iterable[DependencyResult]) -> Finding:
    """The `dependency` entry: the worst effect, HEALTHY where nothing is needed."""
    found = worst([Status.HEALTHY, *(effect(one.result.status, critical=one.critical) for one in dependencies)])
    return PASSED if found is Status.HEALTHY else fault(_CODES[found], status=found)


def projections(target: Target, known: dict[int, int]) -> int:
    """How many entries the target makes in the result document; `known` keeps what was counted.

    The graph must be without cycles and at most `MAX_DEPTH` deep.
    """
    if id(target) not in known:
        known[id(target)] = 1 + sum(projections(one.target, known) for one in target.dependencies)
    return known[id(target)]
