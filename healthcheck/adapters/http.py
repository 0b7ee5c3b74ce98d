"""Adapters `http`, `api`, `gateway` and `router`: one request, one expected status (health contract 4)."""

from __future__ import annotations

from collections.abc import Mapping

from healthcheck.exchange import Ask, Evidence, Reply
from healthcheck.model import PASSED, Check, Finding, HttpOptions, Target, fault
from healthcheck.url import Url


class HttpSession:
    """A HEAD or a GET, judged at reachability: the only check of its own that these types have."""

    def __init__(
        self, target: Target, endpoint: Url, bearer: str | None, evidence: Mapping[str, Evidence]
    ) -> None:
        self._options = target.http
        self._endpoint = endpoint
        self._bearer = bearer
        self._evidence = evidence

    def ask(self, check: Check) -> Ask:
        """The one request."""
        headers = dict(self._options.headers)
        if self._bearer:
            headers = {name: value for name, value in headers.items() if name.lower() != "authorization"}
            headers["Authorization"] = f"Bearer {self._bearer}"
        return Ask(
            "response",
            self._options.method,
            self._endpoint,
            headers,
            limit=self._options.max_body_bytes,
            cut_code="http_limit",
        )

    def judge(self, check: Check) -> Finding:
        """Status first, then the body."""
        evidence = self._evidence["response"]
        if evidence.reply is None:
            return evidence.failure or fault("adapter_fault")
        return _judge_status(evidence.reply, self._options) or _judge_body(evidence.reply, self._options)


def _judge_status(reply: Reply, options: HttpOptions) -> Finding | None:
    expected = reply.status in options.expected_status if options.expected_status else reply.is_success
    if expected:
        return None
    if reply.status in {401, 403}:
        return fault("http_auth", reply.status_reason)
    return fault("http_status", None if reply.is_success else reply.status_reason)


def _judge_body(reply: Reply, options: HttpOptions) -> Finding:
    wanted = options.body_contains
    if wanted is None or (reply.body is not None and wanted.encode() in reply.body):
        return PASSED
    return fault("http_limit", "too_large") if reply.truncated else fault("http_body")
