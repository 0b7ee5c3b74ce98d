"""Gate 6 of a handoff: what the answer says, and what it does not (health contract 8, table); pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from healthcheck.exchange import Evidence
from healthcheck.handoff import Dispatch, Gate, Shown, Trace
from healthcheck.rpc import Call, Malformed, Task, artifact_text, read_answer, read_sent

_TASK_ID = re.compile(r"[!-~]{1,256}")


@dataclass(frozen=True, slots=True)
class _Outcome:
    state: str
    reason: str | None = None
    artifact: str = "none"
    task_id: str | None = None
    sends: int = 1


_OF_TASK = {
    "working": "working-not-complete",
    "submitted": "working-not-complete",
    "failed": "peer-failed",
    "rejected": "peer-failed",
    "canceled": "peer-failed",
    "input-required": "needs-input",
    "auth-required": "needs-auth",
    "unspecified": "unsupported-form",
}
_KEEP_ID = frozenset({"working-not-complete", "needs-input", "needs-auth"})
_NOT_SENT = frozenset(
    {
        "dns_failed",
        "connect_refused",
        "connect_failed",
        "tls_failed",
        "tls_certificate",
        "address_not_allowed",
        "not_probed",
    }
)
_UNKNOWN = frozenset({"connection_lost", "interrupted", "cancelled", "adapter_fault"})


def settle(trace: Trace, dispatch: Dispatch, evidence: Evidence | None, version: str) -> Trace:
    """The trace with gate 6: what the evidence says; None if the deadline passed."""
    outcome = _interpret(dispatch.call, evidence, version)
    looked_at: Shown = {"status": evidence.reply.status if evidence and evidence.reply else None}
    gate = Gate("response", outcome.reason, looked_at)
    return replace(
        trace,
        gates=(*trace.gates, gate),
        sends=outcome.sends,
        final_state=outcome.state,
        artifact=outcome.artifact,
        task_id=outcome.task_id,
    )


def accepted_text(trace: Trace, dispatch: Dispatch, evidence: Evidence | None, version: str) -> str | None:
    """The text that the trace has accepted, for whoever shows the peer's words; None if it accepted none."""
    if trace.artifact != "accepted" or evidence is None or evidence.reply is None:
        return None
    return artifact_text(read_answer(evidence.reply.body, dispatch.call).result, version)


def _interpret(call: Call, evidence: Evidence | None, version: str) -> _Outcome:
    if evidence is None:
        return _Outcome("timeout-unknown", "deadline")
    if evidence.reply is None:
        return _broken(evidence)
    reply = evidence.reply
    if not reply.is_success:
        return _Outcome("response-rejected", "http-status")
    if reply.truncated:
        return _Outcome("response-rejected", "too-large")
    try:
        answer = read_answer(reply.body, call)
    except Malformed as error:
        return _Outcome("response-rejected", error.reason.replace("_", "-"))
    if answer.error is not None:
        known = answer.correlated
        return _Outcome("unsupported-form" if known else "response-rejected", "rpc-error" if known else "other-id")
    try:
        sent = read_sent(answer.result, version)
    except Malformed as error:
        return _Outcome("unsupported-form", error.reason.replace("_", "-"))
    return _of_task(sent) if isinstance(sent, Task) else _Outcome("unsupported-form", "message")


def _broken(evidence: Evidence) -> _Outcome:
    """No reply: certain that nothing was sent, certain that it was no answer, or not certain at all."""
    code = evidence.failure.code if evidence.failure else None
    if code in _NOT_SENT:
        return _Outcome("unreachable", (code or "").replace("_", "-"), sends=0)
    if code in _UNKNOWN:
        return _Outcome("connection-unknown", "connection-lost")
    return _Outcome("response-rejected", "not-http" if code == "not_http" else "cut-off")


def _of_task(task: Task) -> _Outcome:
    if task.state == "completed":
        return (
            _Outcome("completed", artifact="accepted")
            if task.has_text
            else _Outcome("completed-no-text", "no-text")
        )
    state = _OF_TASK[task.state]
    # the id is the peer's text: kept only if it is harmless
    kept = task.id if state in _KEEP_ID and _TASK_ID.fullmatch(task.id) else None
    return _Outcome(state, f"task-{task.state}", task_id=kept)
