"""Adapters `agent` and `multi-agent`: an endpoint that serves a health document (health contract 4)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from healthcheck.card import CardFault, media_type, read_json
from healthcheck.exchange import Ask, Evidence, Reply
from healthcheck.model import PASSED, Check, Finding, Status, Target, fault
from healthcheck.url import Url

MAX_DOCUMENT = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Document:
    live: bool
    ready: bool
    capabilities: frozenset[str]
    dependencies: tuple[str, ...]


class AgentSession:
    """A HEAD, one GET shared by three checks, and one safe POST if that was asked for."""

    def __init__(
        self, target: Target, endpoint: Url, bearer: str | None, evidence: Mapping[str, Evidence]
    ) -> None:
        self._options = target.agent
        self._endpoint = endpoint
        self._bearer = bearer
        self._evidence = evidence
        self._configured = {
            name for one in target.dependencies for name in (one.target.name, one.target.id) if name
        }

    def ask(self, check: Check) -> Ask | None:
        """Which of the three requests the check needs."""
        if check is Check.REACHABILITY:
            return self._request("head", "HEAD")
        if check is Check.FUNCTIONAL:
            return self._request("task", "POST", self._task_body())
        return self._request("document", "GET")

    def judge(self, check: Check) -> Finding:
        """Reachability takes any answer; the others judge the document."""
        if check is Check.REACHABILITY:
            return self._evidence["head"].failure or PASSED
        if check is Check.FUNCTIONAL:
            return self._judge_task()
        document = self._document
        if isinstance(document, Finding):
            accepted = check is Check.AUTHENTICATION and document.code == "agent_document"
            return PASSED if accepted else document
        if check is Check.PROTOCOL:
            return _judge_readiness(document)
        return self._judge_capability(document) if check is Check.CAPABILITY else PASSED

    def _request(self, key: str, method: str, body: bytes = b"") -> Ask:
        headers = {"Accept": "application/json"}
        if body:
            headers["Content-Type"] = "application/json"
        if self._bearer:
            headers["Authorization"] = f"Bearer {self._bearer}"
        return Ask(
            key, method, self._endpoint, headers, body, MAX_DOCUMENT, method != "POST", cut_code="agent_limit"
        )

    @cached_property
    def _document(self) -> _Document | Finding:
        reply = _accepted(self._evidence["document"])
        if isinstance(reply, Finding):
            return reply
        try:
            return _read_document(reply)
        except CardFault as error:
            return fault("agent_document", error.reason)
        except ValueError:
            return fault("agent_document", "content_type")

    def _judge_capability(self, document: _Document) -> Finding:
        for name in self._options.required_capabilities:
            if name not in document.capabilities:
                return fault("agent_required", "capability_missing", subject=name)
        if not set(document.dependencies) <= self._configured:
            return fault("agent_required", "dependency_not_configured", status=Status.UNKNOWN)
        return PASSED

    def _task_body(self) -> bytes:
        functional = self._options.functional
        task: dict[str, Any] = {"safe": True, "text": functional.text if functional else ""}
        if functional and functional.downstream:
            task["downstream"] = functional.downstream
        return json.dumps(task).encode()

    def _judge_task(self) -> Finding:
        reply = _accepted(self._evidence["task"])
        if isinstance(reply, Finding):
            return reply
        try:
            answer = read_json(reply.body)
        except CardFault:
            return fault("agent_pending", "json")
        if not isinstance(answer, dict) or answer.get("completed") is not True:
            return fault("agent_pending")
        return self._judge_completed(answer)

    def _judge_completed(self, answer: Mapping[str, Any]) -> Finding:
        functional = self._options.functional
        wanted = functional.downstream if functional else None
        named = answer.get("downstream")
        if answer.get("success") is False:
            return fault("agent_task", "task_failed")
        if wanted and isinstance(named, str) and named != wanted:
            return fault("agent_task", "other_peer")
        if answer.get("success") is not True or (wanted and named != wanted):
            return fault("agent_pending")
        return PASSED


def _accepted(evidence: Evidence) -> Reply | Finding:
    """The reply if its status is a success and it is whole; else the finding for it."""
    reply = evidence.reply
    if reply is None:
        return evidence.failure or fault("adapter_fault")
    if reply.status in {401, 403}:
        return fault("agent_auth", reply.status_reason)
    if not reply.is_success:
        return fault("agent_http", reply.status_reason)
    return fault("agent_limit", "too_large") if reply.truncated else reply


def _judge_readiness(document: _Document) -> Finding:
    if not document.live:
        return fault("agent_readiness", "not_live")
    return PASSED if document.ready else fault("agent_readiness", "not_ready")


def _read_document(reply: Reply) -> _Document:
    """All six members, or `CardFault`; ValueError for a content type that is not JSON's."""
    if media_type(reply.headers.get("content-type")) != "application/json":
        raise ValueError("content type")
    document = read_json(reply.body)
    if not isinstance(document, dict) or document.get("version") != "v1":
        raise CardFault("agent_document", "document_members")
    name, live, ready = (document.get(member) for member in ("name", "live", "ready"))
    if not isinstance(name, str) or not name.strip():
        raise CardFault("agent_document", "document_members")
    if not isinstance(live, bool) or not isinstance(ready, bool):
        raise CardFault("agent_document", "document_members")
    capabilities, dependencies = (_names(document, member) for member in ("capabilities", "dependencies"))
    return _Document(live, ready, frozenset(capabilities), dependencies)


def _names(document: Mapping[str, Any], member: str) -> tuple[str, ...]:
    names = document.get(member)
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        raise CardFault("agent_document", "document_members")
    if len(set(names)) != len(names):
        raise CardFault("agent_document", "document_duplicates")
    return tuple(names)
