"""Adapter `a2a` for agents that are known from a registration (health contract 7).

The read-only call goes where traffic goes, to the registered URL, and comes first. Two cards are judged: the
registered one, by the members that it has, and the published one, if there is one. Any valid JSON-RPC answer
proves the way to the agent, so that agents in KubeMQ's style, which may know no `tasks/get`, are not failures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from healthcheck.adapters import Adapter
from healthcheck.adapters.a2a import WELL_KNOWN, judge_answer, judge_error, judge_http
from healthcheck.card import V03, V10, VERSIONS, Card, CardFault, read_card, read_json
from healthcheck.drift import BARE_MODES, addresses, drift, same_path
from healthcheck.exchange import MIB, Ask, Evidence
from healthcheck.model import PASSED, Check, Finding, Status, Target, fault
from healthcheck.rpc import Call, Malformed, get_task, read_task, version_headers
from healthcheck.url import Url

LOOK_AGAIN: Final = 10
"""Runs after which a card that was not there is looked for again."""

TASK_NOT_FOUND: Final = -32001
_ADMITTED: Final = frozenset({"a2a_rpc", "a2a_version", "a2a_protocol"})
_ASK_AGAIN: Final = frozenset({"a2a_rpc", "a2a_version", "a2a_http"})
_MEMBERS: Final = {"version": "0", "description": "", "capabilities": {}}
_PROTOCOLS: Final = ("url", "protocolVersion", "preferredTransport", "supportedInterfaces", "additionalInterfaces")
_GONE: Final = frozenset({501})
#: A published card of at most this many bytes is kept for people to see.
_KEPT_BYTES: Final = 32 * 1024


@dataclass(slots=True)
class Notes:
    """What one run learns for the next ones: kept per registration, by whoever starts the runs.

    Attributes:
        place: Request target under which the card was found.
        absent: Runs since it was looked for in vain.
        version: The protocol version in which the agent has answered.
        card: What the published card says of addresses and protocols.
        drift: The members in which it differs from the registered one.
        published: The published card as it came, for people to see; None if it is large.
    """

    place: str | None = None
    absent: int = LOOK_AGAIN
    version: str | None = None
    card: Mapping[str, Any] | None = None
    drift: tuple[str, ...] = ()
    published: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredTarget(Target):
    """An agent as it is registered.

    Attributes:
        card: The registered members.
        read: The same as the engine reads it, or what is wrong with it (`read_registered`).
        speaks: Protocol version → tenant, the preferred one first; empty for an agent that declares none.
        verified: False if certificates are not verified.
        notes: What earlier runs have learned.
    """

    card: Mapping[str, Any]
    read: Card | Finding
    speaks: Mapping[str, str | None] = field(default_factory=dict)
    verified: bool = True
    notes: Notes = field(default_factory=Notes)


def read_registered(card: Mapping[str, Any]) -> Card | Finding:
    """Read a registered card: only the members that its registrant sent can be at fault."""
    try:
        return read_card(_completed(card), _version_of(card))
    except CardFault as error:
        return fault(error.code, error.reason)


class RegisteredSession:
    """One look-up, in a second version only where none is declared, and the card."""

    def __init__(
        self, target: Target, endpoint: Url, bearer: str | None, evidence: Mapping[str, Evidence]
    ) -> None:
        if not isinstance(target, RegisteredTarget):
            raise TypeError("not a registered agent")
        self._target = target
        self._notes = target.notes
        self._endpoint = endpoint
        self._bearer = bearer
        self._evidence = evidence
        self._versions = self._versions_to_ask()
        self._calls = [get_task(version, target.speaks.get(version)) for version in self._versions]
        self._places = self._where_to_look()

    def _versions_to_ask(self) -> list[str]:
        """The declared version alone; else the one that worked before, 0.3 at first, and then the other."""
        declared = list(self._target.speaks)
        if declared:
            return declared[:1]
        first = self._notes.version or V03
        return [first, *(version for version in reversed(VERSIONS) if version != first)]

    def _where_to_look(self) -> list[str]:
        if self._notes.place is not None:
            return [self._notes.place]
        self._notes.absent += 1
        if self._notes.absent <= LOOK_AGAIN:
            return []
        below = self._endpoint.target.partition("?")[0].rstrip("/") + WELL_KNOWN
        return list(dict.fromkeys((below, WELL_KNOWN)))

    # what to ask

    def ask(self, check: Check) -> Ask | None:
        """Ask for the task first; for the card once the way is known to be open."""
        if check is Check.REACHABILITY:
            return self._rpc_ask(0) if self._barred is None else self._card_ask(0)
        if check is Check.AUTHENTICATION:
            return self._rpc_ask(1) if self._needs_second else None
        if check is Check.PROTOCOL:
            return self._card_ask(0) if self._answered and self._places else None
        return self._card_ask(1) if len(self._places) > 1 and self._found(0) is None else None

    def _rpc_ask(self, number: int) -> Ask:
        call = self._calls[number]
        return Ask(
            f"rpc{number}",
            "POST",
            self._endpoint,
            {**call.headers, **self._credential},
            call.body,
            cut_code="a2a_limit",
        )

    def _card_ask(self, number: int) -> Ask:
        target = self._places[number] if self._places else WELL_KNOWN
        version = next(iter(self._target.speaks), self._notes.version or V10)
        headers = {"Accept": "application/json", **version_headers(version), **self._credential}
        return Ask(f"card{number}", "GET", Url(self._endpoint.origin, target), headers, limit=MIB)

    @property
    def _credential(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._bearer}"} if self._bearer else {}

    @property
    def _needs_second(self) -> bool:
        return len(self._calls) > 1 and self._barred is None and self._verdict(0).code in _ASK_AGAIN

    @property
    def _answered(self) -> bool:
        """Whether the call got through to an agent: otherwise its card is of no interest in this run."""
        return self._barred is None and self._look_up.status is not Status.UNREACHABLE

    # what came of it

    def judge(self, check: Check) -> Finding:
        """Give the finding, with the times of the request that was made for it."""
        finding = _JUDGES[check](self)
        key = {Check.AUTHENTICATION: "rpc1", Check.PROTOCOL: "card0", Check.CAPABILITY: "card1"}.get(check)
        evidence = self._evidence.get(key) if key is not None else None
        return finding if evidence is None else replace(finding, measured=evidence.measured)

    def _judge_reachability(self) -> Finding:
        evidence = self._evidence["rpc0" if self._barred is None else "card0"]
        if evidence.reply is None:
            return evidence.failure or fault("adapter_fault")
        unverified = self._endpoint.origin.scheme == "https" and not self._target.verified
        return fault("tls_unverified") if unverified else PASSED

    def _judge_authentication(self) -> Finding:
        if self._barred is not None:
            return self._barred
        verdict = self._look_up
        return PASSED if verdict.status.passing or verdict.code in _ADMITTED else verdict

    def _judge_protocol(self) -> Finding:
        """The look-up, and the registered card; the more severe finding counts."""
        found = [self._barred or self._look_up, self._registered_fault or PASSED]
        return max(found, key=lambda finding: finding.status.severity)

    def _judge_capability(self) -> Finding:
        """The published card."""
        document = next((found for at in range(len(self._places)) if (found := self._found(at))), None)
        if document is None:
            return self._no_card()
        self._notes.card = {member: document[member] for member in _PROTOCOLS if member in document}
        self._notes.drift = drift(self._target.card, document, self._endpoint)
        try:
            read_card(document, _version_of(document))
        except CardFault as error:
            return fault(error.code, error.reason)
        return fault("card_drift", subject=", ".join(self._notes.drift)) if self._notes.drift else PASSED

    # the call

    @cached_property
    def _look_up(self) -> Finding:
        """The better of the answers; notes the version in which the agent has answered well."""
        verdicts = [
            self._verdict(number) for number in range(len(self._calls)) if f"rpc{number}" in self._evidence
        ]
        best = min(range(len(verdicts)), key=lambda number: verdicts[number].status.severity)
        if verdicts[best] is PASSED:
            self._notes.version = self._versions[best]
        return verdicts[best]

    def _verdict(self, number: int) -> Finding:
        return _judge_look_up(self._evidence[f"rpc{number}"], self._calls[number])

    # the cards

    @property
    def _registered_fault(self) -> Finding | None:
        card = self._target.read
        if isinstance(card, Finding):
            return card
        if card.required_extensions:
            return fault("a2a_version", "extension_required")
        declared = self._target.card.get("supportedInterfaces") or self._target.card.get("protocolVersion")
        return fault("a2a_version", "transport") if declared and not self._target.speaks else None

    @cached_property
    def _barred(self) -> Finding | None:
        """Why no call may be made: the registered card asks for a credential that there is not."""
        card = self._target.read
        if isinstance(card, Finding) or card.is_public:
            return None
        if not card.takes_bearer:
            return fault("a2a_auth", "security_unsupported")
        return fault("a2a_auth", "credential_missing") if self._bearer is None else None

    def _found(self, number: int) -> Mapping[str, Any] | None:
        """The document at a place, if it is this agent's card."""
        evidence = self._evidence.get(f"card{number}")
        reply = evidence.reply if evidence is not None else None
        if reply is None or reply.truncated or not reply.is_success:
            return None
        try:
            document = read_json(reply.body)
        except CardFault:
            return None
        if not isinstance(document, dict) or not self._is_own(document):
            return None
        self._notes.place, self._notes.absent = self._places[number], 0
        body = reply.body or b""
        self._notes.published = body if len(body) <= _KEPT_BYTES else None
        return document

    def _is_own(self, card: Mapping[str, Any]) -> bool:
        return any(same_path(url, self._endpoint) for url in addresses(card))

    def _no_card(self) -> Finding:
        """None is no fault; one that was there, and cannot be had because its server fails, is a small one."""
        if not self._places:
            return PASSED
        failing = [found for at in range(len(self._places)) if (found := self._failure(at)) is not None]
        if failing and self._notes.card is not None:
            return replace(failing[0], status=Status.DEGRADED)
        if not failing:
            self._notes.place, self._notes.absent, self._notes.card, self._notes.drift = None, 0, None, ()
            self._notes.published = None
        return PASSED

    def _failure(self, number: int) -> Finding | None:
        evidence = self._evidence.get(f"card{number}")
        if evidence is None or evidence.reply is None:
            return evidence.failure if evidence is not None else None
        status = evidence.reply.status
        return judge_http(evidence.reply) if status >= 500 and status not in _GONE else None


def _judge_look_up(evidence: Evidence, call: Call) -> Finding:
    answer = judge_answer(evidence, call)
    if isinstance(answer, Finding):
        return answer
    if answer.error == TASK_NOT_FOUND:
        return PASSED
    if answer.error is None:
        return _judge_result(answer.result, call)
    found = judge_error(answer)
    return replace(found, status=Status.DEGRADED) if found.code == "a2a_rpc" else found


def _judge_result(result: Any, call: Call) -> Finding:
    """A foreign result proves the way as well, but is not what was asked for."""
    try:
        known = read_task(result, V10 if "A2A-Version" in call.headers else V03).id == call.task_id
    except Malformed:
        known = False
    return PASSED if known else fault("a2a_rpc", "foreign_result", status=Status.DEGRADED)


def _version_of(card: Mapping[str, Any]) -> str:
    return V10 if card.get("supportedInterfaces") else V03


def _completed(card: Mapping[str, Any]) -> dict[str, Any]:
    """The registered card with what its registrant did not send, so that only what was sent can be at fault."""
    modes = {
        member: [BARE_MODES.get(mode, mode) for mode in card[member]]
        for member in ("defaultInputModes", "defaultOutputModes")
        if isinstance(card.get(member), list)
    }
    return {**_MEMBERS, **card, **modes}


_JUDGES: Final = {
    Check.REACHABILITY: RegisteredSession._judge_reachability,
    Check.AUTHENTICATION: RegisteredSession._judge_authentication,
    Check.PROTOCOL: RegisteredSession._judge_protocol,
    Check.CAPABILITY: RegisteredSession._judge_capability,
}
_CHECKS: Final = (Check.REACHABILITY, Check.AUTHENTICATION, Check.PROTOCOL, Check.CAPABILITY)
_ALWAYS: Final = (Check.CONFIGURATION, Check.LATENCY)

REGISTERED: Final[Mapping[str, Adapter]] = {
    "a2a": Adapter((*_CHECKS, *_ALWAYS), (*_CHECKS, *_ALWAYS), lambda target, endpoint: None, RegisteredSession)
}
"""For `Engine(adapters=...)`."""
