"""The values of a health check: statuses, checks, targets and results (health contract 1, 2 and 6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from healthcheck.codes import CODES
from healthcheck.url import authority_of


class Status(StrEnum):
    """What a check, or a target, was found to be; declared from best to worst (health contract 1)."""

    HEALTHY = "HEALTHY"
    DEGRADED = "DEGRADED"
    UNHEALTHY = "UNHEALTHY"
    UNREACHABLE = "UNREACHABLE"
    MISCONFIGURED = "MISCONFIGURED"
    UNKNOWN = "UNKNOWN"

    @property
    def severity(self) -> int:
        """0 (works) to 5 (indeterminate); also the exit code of the process."""
        return _SEVERITY[self]

    @property
    def passing(self) -> bool:
        """HEALTHY and DEGRADED let the checks that depend on this one go on."""
        return self.severity <= 1


_SEVERITY = {status: severity for severity, status in enumerate(Status)}


def worst(statuses: Iterable[Status]) -> Status:
    """The most severe of these; the worst of nothing is UNKNOWN."""
    return max(statuses, key=_SEVERITY.__getitem__, default=Status.UNKNOWN)


class Check(StrEnum):
    """The checks of one target, declared in the order in which they run (health contract 2)."""

    CONFIGURATION = "configuration"
    REACHABILITY = "reachability"
    AUTHENTICATION = "authentication"
    PROTOCOL = "protocol"
    CAPABILITY = "capability"
    FUNCTIONAL = "functional"
    LATENCY = "latency"
    DEPENDENCY = "dependency"


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one exchange showed of the network: `steps` (dns, tcp, tls, http), milliseconds, certificate."""

    steps: Mapping[str, Status] = field(default_factory=dict)
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    certificate_expires_at: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check.

    `code` is the stable word that scripts rely on; `reason` narrows it down; `subject` is a word of the
    user's own configuration (a skill, a variable name). Nothing here ever comes from a response.
    """

    status: Status
    code: str | None = None
    reason: str | None = None
    subject: str | None = None
    measured: Measurement | None = None

    @property
    def message(self) -> str | None:
        """The engine's own sentence for the code; never a text from outside."""
        return CODES[self.code].message if self.code else None

    @property
    def detail(self) -> str | None:
        """The reason and what it concerns, for people; made printable where it is shown."""
        return ": ".join(word for word in (self.reason, self.subject) if word) or None


PASSED = Finding(Status.HEALTHY)


def fault(
    code: str, reason: str | None = None, *, status: Status | None = None, subject: str | None = None
) -> Finding:
    """A finding for `code`, with the status that the table of codes gives it unless told otherwise."""
    return Finding(status or Status(CODES[code].status), code, reason, subject)


@dataclass(frozen=True, slots=True)
class A2AFunctional:
    """One real message that the user declared safe to send (health contract 3)."""

    text: str


@dataclass(frozen=True, slots=True)
class A2AOptions:
    """Options of adapter `a2a` (health contract 3)."""

    protocol_version: str = "1.0"
    card_url: str | None = None
    required_skills: tuple[str, ...] = ()
    required_capabilities: tuple[str, ...] = ()
    functional: A2AFunctional | None = None


@dataclass(frozen=True, slots=True)
class AgentFunctional:
    """The safe POST of adapter `agent`; `downstream` names the peer that must do the work."""

    text: str
    downstream: str | None = None


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Options of adapters `agent` and `multi-agent` (health contract 4)."""

    required_capabilities: tuple[str, ...] = ()
    functional: AgentFunctional | None = None


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Options of adapters `http`, `api`, `gateway` and `router` (health contract 4)."""

    method: str = "GET"
    expected_status: tuple[int, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body_contains: str | None = None
    max_body_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One thing to check. Times are milliseconds; `checks` is None for the adapter's defaults."""

    type: str
    endpoint: str
    id: str | None = None
    name: str | None = None
    bearer_env: str | None = None
    checks: tuple[Check, ...] | None = None
    timeout_ms: int = 5000
    check_timeouts_ms: Mapping[Check, int] = field(default_factory=dict)
    retries: int = 0
    retry_delay_ms: int = 100
    budget_ms: int = 60_000
    latency_ms: float | None = None
    a2a: A2AOptions = A2AOptions()
    agent: AgentOptions = AgentOptions()
    http: HttpOptions = HttpOptions()
    dependencies: tuple[Dependency, ...] = ()

    @property
    def label(self) -> str:
        """The name shown in results: the name, else the id, else the endpoint's host and port."""
        return self.name or self.id or authority_of(self.endpoint) or self.type


@dataclass(frozen=True, slots=True)
class Dependency:
    """What a target needs in order to work, and what it means when that is missing."""

    target: Target
    critical: bool = True
    relationship: str = "supporting"


@dataclass(frozen=True, slots=True)
class Result:
    """The verdict about one target and, below it, about its dependencies."""

    target: Target
    status: Status
    checks: Mapping[Check, Finding]
    latency_ms: float | None = None
    dependencies: tuple[DependencyResult, ...] = ()


@dataclass(frozen=True, slots=True)
class DependencyResult:
    """A dependency's verdict and how it counts for the parent."""

    result: Result
    critical: bool
    relationship: str
