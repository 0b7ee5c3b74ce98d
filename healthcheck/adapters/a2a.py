"""Adapter `a2a`: an A2A agent over JSON-RPC, protocol 1.0 or 0.3 (health contract 3)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from healthcheck.card import TEXT_PLAIN, Card, CardFault, Interface, read_card, read_json
from healthcheck.exchange import MIB, Ask, Evidence, Reply
from healthcheck.model import PASSED, Check, Finding, Status, Target, fault
from healthcheck.rpc import (
    Answer,
    Call,
    Malformed,
    Task,
    get_task,
    read_answer,
    read_sent,
    read_task,
    send_message,
    version_headers,
)
from healthcheck.url import Url, UrlError, parse_url

WELL_KNOWN = "/.well-known/agent-card.json"

TASK_NOT_FOUND = -32001
VERSION_NOT_SUPPORTED = -32009
_RPC_REASONS = {
    -32601: "method_not_found",
    -32700: "parse_error",
    -32600: "invalid_request",
    -32602: "invalid_params",
    -32603: "internal_error",
}

# the request was let in, so these say nothing against the credential
_ACCEPTED = frozenset({"a2a_rpc", "a2a_version", "a2a_protocol"})

_TASK_STATES: Mapping[str, Finding] = {
    "completed": PASSED,
    "failed": fault("a2a_functional", "task_failed"),
    "rejected": fault("a2a_functional", "task_rejected"),
    "canceled": fault("a2a_functional", "task_canceled"),
    "auth-required": fault("a2a_auth", "task_auth_required"),
    "submitted": fault("a2a_pending"),
    "working": fault("a2a_pending"),
    "input-required": fault("a2a_pending", "task_input_required"),
    "unspecified": fault("a2a_pending"),
}


def configuration(target: Target, endpoint: Url) -> Finding | None:
    """A `card_url` must be absolute and on the endpoint's own origin."""
    if target.a2a.card_url is None:
        return None
    try:
        card_url = parse_url(target.a2a.card_url)
    except UrlError as error:
        return fault("a2a_origin", error.reason, subject="a2a.card_url")
    if card_url.origin != endpoint.origin:
        return fault("a2a_origin", "card_url_origin", subject="a2a.card_url")
    return None


class A2ASession:
    """One card fetch, one read-only RPC, and one real message if that was asked for."""

    def __init__(
        self, target: Target, endpoint: Url, bearer: str | None, evidence: Mapping[str, Evidence]
    ) -> None:
        self._options = target.a2a
        self._endpoint = endpoint
        self._bearer = bearer
        self._evidence = evidence

    def ask(self, check: Check) -> Ask | None:
        """The card first; an RPC only if the card allows one."""
        if check is Check.REACHABILITY:
            return self._card_ask()
        if isinstance(self._checked, Finding) or check is Check.CAPABILITY:
            return None
        if check is not Check.FUNCTIONAL:
            return self._rpc_ask("rpc", self._look_up, passive=True)
        return self._rpc_ask("send", self._message, passive=False) if self._takes_text else None

    def judge(self, check: Check) -> Finding:
        """A fault of the card fails authentication and protocol alike."""
        if check is Check.REACHABILITY:
            return self._judge_reachability()
        if isinstance(self._checked, Finding):
            return self._checked
        if check is Check.CAPABILITY:
            return self._judge_capability(self._checked[0])
        if check is Check.FUNCTIONAL:
            return self._judge_functional()
        verdict = self._rpc_verdict
        return PASSED if check is Check.AUTHENTICATION and verdict.code in _ACCEPTED else verdict

    # the card

    def _card_ask(self) -> Ask:
        url = parse_url(self._options.card_url) if self._options.card_url else None
        headers = {"Accept": "application/json", **version_headers(self._options.protocol_version)}
        return Ask(
            "card",
            "GET",
            url or Url(self._endpoint.origin, WELL_KNOWN),
            {**headers, **self._credential},
            limit=MIB,
            cut_code="a2a_limit",
        )

    @property
    def _credential(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._bearer}"} if self._bearer else {}

    def _judge_reachability(self) -> Finding:
        evidence = self._evidence["card"]
        if evidence.reply is None:
            return evidence.failure or fault("adapter_fault")
        return fault("a2a_limit", "too_large") if evidence.reply.truncated else PASSED

    @cached_property
    def _checked(self) -> tuple[Card, Interface, Url] | Finding:
        """The card, the interface to call and its address; or what is wrong with the card."""
        reply = self._evidence["card"].reply
        if reply is None:
            return self._judge_reachability()
        refused = judge_http(reply)
        if refused is not None:
            return refused
        try:
            return self._check_card(reply)
        except CardFault as error:
            return fault(error.code, error.reason)

    def _check_card(self, reply: Reply) -> tuple[Card, Interface, Url] | Finding:
        version = self._options.protocol_version
        card = read_card(read_json(reply.body), version)
        interface = card.select(version)
        try:
            url = parse_url(interface.url)
        except UrlError as error:
            return fault("a2a_card", error.reason)
        if url.origin != self._endpoint.origin:
            return fault("a2a_origin", "card_origin")
        if not card.is_public and not card.takes_bearer:
            return fault("a2a_auth", "security_unsupported")
        if not card.is_public and self._bearer is None:
            return fault("a2a_auth", "credential_missing")
        return card, interface, url

    # the read-only call

    @cached_property
    def _look_up(self) -> Call:
        return get_task(self._options.protocol_version, self._interface.tenant)

    @property
    def _interface(self) -> Interface:
        assert not isinstance(self._checked, Finding)  # noqa: S101 -- asked only after the card was accepted
        return self._checked[1]

    def _rpc_ask(self, key: str, call: Call, *, passive: bool) -> Ask:
        assert not isinstance(self._checked, Finding)  # noqa: S101 -- as above
        return Ask(
            key,
            "POST",
            self._checked[2],
            {**call.headers, **self._credential},
            call.body,
            limit=MIB,
            passive=passive,
            cut_code="a2a_limit",
        )

    @cached_property
    def _rpc_verdict(self) -> Finding:
        answer = judge_answer(self._evidence["rpc"], self._look_up)
        if isinstance(answer, Finding):
            return answer
        if answer.error is not None:
            return _judge_look_up_error(answer)
        try:
            task = read_task(answer.result, self._options.protocol_version)
        except Malformed as error:
            return fault("a2a_protocol", error.reason)
        return PASSED if task.id == self._look_up.task_id else fault("a2a_protocol", "other_task")

    # what was required

    def _judge_capability(self, card: Card) -> Finding:
        offered = {skill.id for skill in card.skills}
        for skill in self._options.required_skills:
            if skill not in offered:
                return fault("a2a_required", "skill_missing", subject=skill)
        for name in self._options.required_capabilities:
            if name not in card.capabilities:
                return fault("a2a_required", "capability_missing", subject=name)
        return PASSED

    # the real message

    @cached_property
    def _message(self) -> Call:
        functional = self._options.functional
        text = functional.text if functional else ""
        return send_message(self._options.protocol_version, text, self._interface.tenant)

    @property
    def _takes_text(self) -> bool:
        assert not isinstance(self._checked, Finding)  # noqa: S101 -- as above
        card = self._checked[0]
        return TEXT_PLAIN in card.input_modes and TEXT_PLAIN in card.output_modes

    def _judge_functional(self) -> Finding:
        if not self._takes_text:
            return fault("a2a_functional", "no_text_modes", status=Status.MISCONFIGURED)
        answer = judge_answer(self._evidence["send"], self._message)
        if isinstance(answer, Finding):
            return answer
        if answer.error is not None:
            return judge_error(answer)
        try:
            sent = read_sent(answer.result, self._options.protocol_version)
        except Malformed as error:
            return fault("a2a_protocol", error.reason)
        if isinstance(sent, Task):
            return _TASK_STATES[sent.state]
        if not sent.from_agent:
            return fault("a2a_protocol", "message")
        return PASSED if sent.has_text else fault("a2a_functional", "no_text")


def judge_http(reply: Reply) -> Finding | None:
    """What the HTTP status alone says; None for a 2xx answer of the agent's own."""
    if reply.status in {401, 403}:
        return fault("a2a_auth", reply.status_reason)
    if "x-gateway-error" in reply.headers:
        return fault("a2a_gateway")
    if not reply.is_success:
        return fault("a2a_http", reply.status_reason)
    return None


def judge_answer(evidence: Evidence, call: Call) -> Answer | Finding:
    """The JSON-RPC answer in the evidence, or the finding that stands in its place."""
    reply = evidence.reply
    if reply is None:
        return evidence.failure or fault("adapter_fault")
    refused = judge_http(reply)
    if refused is not None:
        return refused
    if reply.truncated:
        return fault("a2a_limit", "too_large")
    try:
        answer = read_answer(reply.body, call)
    except Malformed as error:
        return fault("a2a_protocol", error.reason)
    return fault("a2a_gateway") if answer.from_gateway else answer


def _judge_look_up_error(answer: Answer) -> Finding:
    """Task not found is what a ready agent says about a task that cannot exist."""
    if answer.error != TASK_NOT_FOUND:
        return judge_error(answer)
    return PASSED if answer.correlated else fault("a2a_protocol", "other_id")


def judge_error(answer: Answer) -> Finding:
    """The finding for a JSON-RPC error that is not the expected one."""
    if answer.error == VERSION_NOT_SUPPORTED:
        return fault("a2a_version", "version_not_supported")
    return fault("a2a_rpc", _RPC_REASONS.get(answer.error or 0, "rpc_error"))
