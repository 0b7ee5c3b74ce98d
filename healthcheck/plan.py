"""Which checks run, in which order, and which failures leave out which others (health contract 2); pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from healthcheck.model import Check, Target

if TYPE_CHECKING:
    from healthcheck.adapters import Adapter

_BEFORE_ALL = frozenset({Check.CONFIGURATION})
_CONNECTED = frozenset({Check.CONFIGURATION, Check.REACHABILITY})
_ADMITTED = frozenset({Check.CONFIGURATION, Check.REACHABILITY, Check.AUTHENTICATION})

OMITTED_AFTER: Mapping[Check, frozenset[Check]] = {
    Check.CONFIGURATION: frozenset(),
    Check.REACHABILITY: _BEFORE_ALL,
    Check.AUTHENTICATION: _CONNECTED,
    Check.PROTOCOL: _CONNECTED,
    Check.CAPABILITY: _ADMITTED,
    Check.FUNCTIONAL: _ADMITTED,
    Check.LATENCY: _CONNECTED,
    Check.DEPENDENCY: _CONNECTED,
}
"""A check is left out, not recorded, when one of these failed."""

_GATES = {**OMITTED_AFTER, Check.DEPENDENCY: _BEFORE_ALL}
"""What runs before a check even if it was not asked for; the dependencies' summary needs no network."""

_WITHOUT_ADAPTER = frozenset({Check.CONFIGURATION})


def requested(target: Target, adapter: Adapter | None) -> frozenset[Check]:
    """The checks that the user asked for, or the adapter's defaults."""
    if target.checks is not None:
        return frozenset(target.checks)
    return frozenset(adapter.defaults) if adapter else _WITHOUT_ADAPTER


def planned(wanted: frozenset[Check], adapter: Adapter | None) -> list[Check]:
    """All that runs for `wanted`, hidden gates included, in the fixed order; the summary comes later."""
    available = frozenset(adapter.checks) if adapter else _WITHOUT_ADAPTER
    needed = {gate for check in wanted for gate in (check, *_GATES[check])}
    return [
        check
        for check in Check
        if check is not Check.DEPENDENCY
        and check in needed
        and (check in available or check is Check.CONFIGURATION)
    ]
