"""Pure: what became of a forwarded call: the agent's answer, or the fault instead (contract 2.4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec

from gateway import faults, jsonrpc
from gateway.faults import FAULTS, SAFE, UNAVAILABLE_RETRY, UNSAFE, Fault
from gateway.headers import NDJSON, Outbound, read_answer
from gateway.metrics import APPLICATION_ERROR, PROTOCOL_ERROR, SUCCESS, TRANSPORT_ERROR
from gateway.upstream import Exchange, Failure, FailureKind

_STATUS: Final = {
    faults.TRANSPORT: TRANSPORT_ERROR,
    faults.APPLICATION: APPLICATION_ERROR,
    faults.PROTOCOL: PROTOCOL_ERROR,
    faults.INTERNAL: TRANSPORT_ERROR,
}
_REASONS: Final = {
    FailureKind.DNS: "AGENT_UNREACHABLE",
    FailureKind.REFUSED: "AGENT_UNREACHABLE",
    FailureKind.UNROUTABLE: "AGENT_UNREACHABLE",
    FailureKind.TLS: "AGENT_UNREACHABLE",
    FailureKind.ADDRESS_NOT_ALLOWED: "ADDRESS_NOT_ALLOWED",
    FailureKind.PROTOCOL: "PROTOCOL_ERROR",
    FailureKind.LOST: "CONNECTION_LOST",
    FailureKind.TIMEOUT: "AGENT_TIMEOUT",
    FailureKind.TOO_LARGE: "RESPONSE_TOO_LARGE",
    FailureKind.UNDECODABLE: "INVALID_RESPONSE",
    FailureKind.UPGRADED: "INVALID_RESPONSE",
    FailureKind.LOCAL: "GATEWAY_OVERLOADED",
    FailureKind.CANCELLED: "GATEWAY_SHUTDOWN",
    FailureKind.INTERNAL: "INTERNAL",
}


class Outcome(msgspec.Struct, gc=False):
    """How a call ended.

    Attributes:
        status: The label for metrics and logs (contract 7).
        body: The bytes for the caller, if the agent's answer is passed on.
        fault: Otherwise, why not.
        detail: Fills the fault's message.
        metadata: Further members of the error's ErrorInfo.
        foreign: The agent's body, to be quoted in the error.
    """

    status: str
    body: bytes | memoryview | None = None
    fault: Fault | None = None
    detail: str = ""
    metadata: dict[str, str] = {}
    foreign: bytes | None = None


def failed(
    fault: Fault, detail: str = "", metadata: dict[str, str] | None = None, foreign: bytes | None = None
) -> Outcome:
    """Give the outcome for a fault."""
    return Outcome(_STATUS[fault.category], None, fault, detail, metadata or {}, foreign)


def of_failure(failure: Failure, agent_id: str, timeout: float) -> Outcome:
    """Give the outcome of an exchange that brought no answer; `timeout` is T in seconds."""
    fault = FAULTS[_REASONS[failure.kind]]
    if failure.kind is FailureKind.TIMEOUT:
        fault = replace(fault, retry=SAFE) if failure.connecting else fault
        return failed(fault, agent_id, {"timeoutSeconds": f"{timeout:g}"})
    if failure.kind is FailureKind.LOST and failure.connecting:
        fault = FAULTS["AGENT_UNREACHABLE"]
    elif failure.kind is FailureKind.CANCELLED and not failure.connecting:
        fault = replace(fault, retry=UNSAFE)  # the agent may be at work on it
    return failed(fault, failure.what)


def is_told_by_status(status: int, failure: Failure) -> bool:
    """Tell whether the status alone decides: the body could not be had, but nobody needs it.

    "Not now" holds whatever the body; any other 4xx or 5xx has at least been said in full by its head.
    """
    if status in UNAVAILABLE_RETRY:
        return failure.kind is not FailureKind.CANCELLED
    return status >= 400 and failure.kind in (FailureKind.UNDECODABLE, FailureKind.TOO_LARGE)


def read_head(exchange: Exchange) -> Outbound:
    """Sort the headers of an agent's answer, once for each head that comes again."""
    known = exchange.known
    if known is None:
        return read_answer(exchange.headers)
    if known.note is None:
        known.note = read_answer(exchange.headers)
    answer: Outbound = known.note
    return answer


def of_answer(status: int, body: bytes | memoryview, answer: Outbound, id: bytes | None) -> Outcome:
    """Judge an agent's answer to the request with this raw id (None: a notification)."""
    if 200 <= status < 300:
        return Outcome(SUCCESS, b"") if id is None else _of_success(body, answer, id)
    if status in UNAVAILABLE_RETRY:
        return _unavailable(status, answer)
    if status < 400:
        return failed(FAULTS["INVALID_RESPONSE"], f"HTTP {status}")
    body = bytes(body)
    if id is not None and jsonrpc.is_response(body, id):
        return Outcome(APPLICATION_ERROR, body)
    return failed(FAULTS["AGENT_HTTP_ERROR"], str(status), {"httpStatus": str(status)}, body)


def _of_success(body: bytes | memoryview, answer: Outbound, id: bytes) -> Outcome:
    if answer.kind == NDJSON:
        return failed(FAULTS["INVALID_RESPONSE"], "application/x-ndjson")
    verdict = jsonrpc.judge(body, id)
    if verdict.body is None:
        return failed(FAULTS["INVALID_RESPONSE"], verdict.problem)
    return Outcome(APPLICATION_ERROR if verdict.is_error else SUCCESS, verdict.body)


def _unavailable(status: int, answer: Outbound) -> Outcome:
    metadata = {"httpStatus": str(status)}
    if answer.retry_after is not None:
        metadata["retryAfter"] = answer.retry_after.decode("latin-1")
    return failed(replace(FAULTS["AGENT_UNAVAILABLE"], retry=UNAVAILABLE_RETRY[status]), str(status), metadata)
