"""One adapter per type word. An adapter does no I/O: it says what to ask and judges what came.

The engine owns the evidence: it sends an `Ask` once per target run, whatever number of checks need it and
however it ends, and keeps what came under the ask's key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from healthcheck.adapters import a2a, agent, http
from healthcheck.exchange import Ask, Evidence
from healthcheck.model import Check, Finding, Target
from healthcheck.url import Url


class Session(Protocol):
    """One run against one target."""

    def ask(self, check: Check) -> Ask | None:
        """What must be asked before `check` can be judged; None if what is known suffices."""

    def judge(self, check: Check) -> Finding:
        """The finding for a check, from the evidence gathered so far."""


def _nothing_wrong(target: Target, endpoint: Url) -> Finding | None:
    """For types with no rules but those of the configuration file."""
    return None


@dataclass(frozen=True, slots=True)
class Adapter:
    """`checks`: those it has, beside configuration, latency and dependency, which every type has.

    `configuration` judges the options without I/O; `open` starts a run with the endpoint, the bearer token
    (or None) and the evidence that the engine will fill.
    """

    checks: tuple[Check, ...]
    defaults: tuple[Check, ...]
    configuration: Callable[[Target, Url], Finding | None]
    open: Callable[[Target, Url, str | None, Mapping[str, Evidence]], Session]


_PASSIVE = (Check.REACHABILITY, Check.AUTHENTICATION, Check.PROTOCOL, Check.CAPABILITY)
_EVERY = (Check.CONFIGURATION, Check.LATENCY, Check.DEPENDENCY)
_FULL = (*_PASSIVE, Check.FUNCTIONAL)
_ALWAYS = (Check.CONFIGURATION, Check.LATENCY)

_A2A = Adapter((*_FULL, *_EVERY), (*_PASSIVE, *_ALWAYS), a2a.configuration, a2a.A2ASession)
_AGENT = Adapter((*_FULL, *_EVERY), (*_PASSIVE, *_EVERY), _nothing_wrong, agent.AgentSession)
_HTTP = Adapter((Check.REACHABILITY, *_EVERY), (Check.REACHABILITY, *_ALWAYS), _nothing_wrong, http.HttpSession)

ADAPTERS: Mapping[str, Adapter] = {
    "a2a": _A2A,
    "agent": _AGENT,
    "multi-agent": _AGENT,
    "http": _HTTP,
    "api": _HTTP,
    "gateway": _HTTP,
    "router": _HTTP,
}
"""Other type words parse and give MISCONFIGURED (health contract 4)."""
