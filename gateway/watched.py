"""One registered agent as the health engine sees it: target, last result, history."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from hashlib import blake2b
from math import inf
from typing import Any, Final

import msgspec

from gateway import cards
from gateway.admission import Admission
from gateway.card_protocols import V0_3, V1_0, declared
from healthcheck.adapters.registered import Notes, RegisteredTarget, read_registered
from healthcheck.card import V03, V10
from healthcheck.model import Check, Finding, Result, Status
from healthcheck.state import Evidence, Routing
from registry.agent import Agent

HISTORY: Final = 100

_VERSIONS: Final = {V1_0: V10, V0_3: V03}
#: What checks look at; the rest of a card is not kept a second time.
_LOOKED_AT: Final = (
    "name",
    "version",
    "description",
    "url",
    "capabilities",
    "skills",
    "defaultInputModes",
    "defaultOutputModes",
    "protocolVersion",
    "preferredTransport",
    "supportedInterfaces",
    "additionalInterfaces",
    "security",
    "securityRequirements",
    "securitySchemes",
)


class Record(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One entry of the history; times in milliseconds. `ran` gives the order where several nodes check."""

    at: str
    status: str
    routing: str
    latency_ms: float | None
    first_byte_ms: float | None
    duration_ms: float
    code: str | None = None
    reason: str | None = None
    ran: int = 0


class Transition(msgspec.Struct, frozen=True, gc=False):
    """A change of the effective routing state."""

    at: str
    before: str
    after: str
    because: str


class Versions:
    """Tells what is known of an agent here from what other nodes know; see `gateway.verdicts`.

    Attributes:
        moved: When its routing changed last: microseconds of the cluster's time, as all of these.
        stamp: When anything about its routing changed last.
        turned: When it went out of service or came back last.
        ran: When the last run of the checks ended.
        own: This node has come to it itself.
    """

    __slots__ = ("_agent", "_digests", "moved", "own", "ran", "stamp", "turned")

    def __init__(self) -> None:
        self.moved = self.stamp = self.turned = self.ran = 0
        self.own = False
        self._agent: Agent | None = None
        self._digests = (b"", b"")

    def digests(self, agent: Agent) -> tuple[bytes, bytes]:
        """Give what tells this registration from others: digests of its URL and its card."""
        if agent is not self._agent:
            self._agent = agent
            self._digests = _digest(agent.url.encode()), _digest(agent.card)
        return self._digests


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=8).digest()


class Watched:
    """What is kept of one agent.

    Attributes:
        agent: Its registration; a check that was begun for another one does not count.
        result: The last one, never damped; None before the first.
        evidence: What that result meant for routing.
        checked: When it came (seconds of the loop's clock).
        checked_here: It was this node that checked.
        consecutive: Results in a row with the present status.
        down_since: When the first of the runs that now find it down ended; infinite if none does.
        due: When the next check is to begin.
        waiting: Set while somebody waits for a check, or one runs.
        task: The running check.
        versions: For comparing with what other nodes know.
    """

    __slots__ = (
        "admission",
        "agent",
        "checked",
        "checked_at",
        "checked_here",
        "consecutive",
        "down_since",
        "due",
        "evidence",
        "history",
        "last_transition",
        "notes",
        "queued",
        "result",
        "target",
        "task",
        "versions",
        "waiting",
    )

    def __init__(self, agent: Agent, admission: Admission) -> None:
        self.agent = agent
        self.admission = admission
        self.target: RegisteredTarget | None = None
        self.notes = Notes()
        self.result: Result | None = None
        self.evidence: Evidence | None = None
        self.checked = -inf
        self.checked_at: str | None = None
        self.checked_here = False
        self.consecutive = 0
        self.down_since = inf
        self.due = inf
        self.queued = False
        self.history: deque[Record] = deque(maxlen=HISTORY)
        self.last_transition: Transition | None = None
        self.waiting: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] | None = None
        self.versions = Versions()

    @property
    def status(self) -> Status:
        """The raw status; UNKNOWN before the first check."""
        return Status.UNKNOWN if self.result is None else self.result.status

    @property
    def routing(self) -> Routing:
        """The effective state."""
        return self.admission.state.routing

    @property
    def failing(self) -> bool:
        """Whether it is looked at sooner, and counts when the checker doubts itself."""
        traffic = self.admission.traffic
        by_calls = traffic.calls > 0 and traffic.failing
        return by_calls or self.evidence is Evidence.DOWN or self.routing is Routing.OUT_OF_SERVICE

    @property
    def drift(self) -> tuple[str, ...]:
        """Members in which the published card differs from the registered one."""
        return self.notes.drift

    @property
    def code(self) -> str | None:
        """Code of the most severe finding of the last result."""
        found = self._worst
        return None if found is None else found.code

    @property
    def _worst(self) -> Finding | None:
        found = self.result.checks.values() if self.result is not None else ()
        return max(found, key=lambda one: one.status.severity, default=None)

    def replace(self, agent: Agent) -> None:
        """Follow a registration with the same URL: what is known of its routing stays."""
        self.agent = agent
        self.target, self.notes = None, Notes()

    def retarget(self, bearer_env: str | None, probe_seconds: float) -> bool:
        """Check it by these from the next check on; see `target_of`. True if it will be shown another token."""
        if self.target is None:
            return False
        before = self.target.bearer_env
        self.target = replace(self.target, bearer_env=bearer_env, **_times(probe_seconds))
        return before != bearer_env

    def take(self, result: Result, evidence: Evidence, now: float, at: str) -> None:
        """Take a result that ended at `now` (the loop's clock), which is `at` for people."""
        same = self.result is not None and self.result.status is result.status
        self.consecutive = self.consecutive + 1 if same else 1
        self.result, self.evidence = result, evidence
        self.checked, self.checked_at, self.checked_here = now, at, True
        if evidence is not Evidence.DOWN:
            self.down_since = inf
        elif self.down_since == inf:
            self.down_since = now

    def release(self) -> None:
        """Tell those who wait for a check that there will be none, or that it is over."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def remember(self, seconds: float) -> None:
        """Add the last result to the history, with what routing has made of it; the check took `seconds`."""
        result, found = self.result, self._worst
        if result is None:
            return
        reached = result.checks.get(Check.REACHABILITY)
        measured = None if reached is None else reached.measured
        self.history.append(
            Record(
                self.checked_at or "",
                result.status.value,
                self.routing.value,
                result.latency_ms,
                None if measured is None else measured.timings_ms.get("first_byte"),
                round(seconds * 1000, 3),
                None if found is None else found.code,
                None if found is None else found.reason,
            )
        )


def target_of(
    agent: Agent, *, bearer_env: str | None, verified: bool, probe_seconds: float, notes: Notes
) -> RegisteredTarget:
    """Translate a registration into a target; probes go where traffic goes (health contract 7).

    Args:
        agent: The registration.
        bearer_env: The variable with the agent's token, if one is configured.
        verified: False if certificates are not verified.
        probe_seconds: Deadline of one request; half of it is slow.
        notes: What earlier runs have learned.
    """
    card: dict[str, Any] = cards.parse_card(agent.card)
    speaks = {_VERSIONS[family]: interface.tenant for family, interface in declared(card).items()}
    kept: dict[str, Any] = {member: card[member] for member in _LOOKED_AT if member in card}
    return RegisteredTarget(
        type="a2a",
        endpoint=agent.url,
        id=agent.agent_id,
        name=card["name"],
        bearer_env=bearer_env,
        **_times(probe_seconds),
        card=kept,
        read=read_registered(kept),
        speaks=speaks,
        verified=verified,
        notes=notes,
    )


def _times(probe_seconds: float) -> dict[str, Any]:
    return {
        "timeout_ms": round(probe_seconds * 1000),
        "budget_ms": round(probe_seconds * 2000),
        "latency_ms": probe_seconds * 500,
    }
