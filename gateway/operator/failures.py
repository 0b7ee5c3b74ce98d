"""What ends a command without success: its exit code, and lines that say who must act. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.faults import NO, SAFE, UNSAFE
from gateway.remedies import REMEDIES

ERROR, USAGE, NOT_FOUND, AUTH, CONNECTION, TIMEOUT = 1, 2, 3, 4, 5, 6
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
"""Whoever read the output has gone: what a program gets that SIGPIPE ends."""

#: Exit codes of the gateway's own errors; ERROR where there is none.
EXITS: Final[Mapping[str, int]] = {
    "UNAUTHENTICATED": AUTH,
    "FORBIDDEN": AUTH,
    "AGENT_NOT_FOUND": NOT_FOUND,
    "AGENT_UNREACHABLE": CONNECTION,
    "CONNECTION_LOST": CONNECTION,
    "STREAM_BROKEN": CONNECTION,
    "AGENT_TIMEOUT": TIMEOUT,
    "STREAM_IDLE": TIMEOUT,
}

_RETRIES: Final = {
    SAFE: "Sending it again is safe.",
    UNSAFE: "It may have been executed: sending it again may do it twice.",
    NO: "Sending the same again would fail again.",
}
_UNAUTHENTICATED: Final = "give a token that the gateway accepts: --token-file, or VITALGATE_TOKEN"


class Failed(Exception):
    """A command has no success.

    Attributes:
        code: Its exit code.
        lines: What to say on standard error; foreign text in it is made harmless where it is written.
    """

    def __init__(self, code: int, *lines: str) -> None:
        super().__init__(*lines)
        self.code = code
        self.lines = lines


def of_rpc_error(error: object, agent_id: str) -> Failed:
    """Explain the `error` member of a JSON-RPC answer: the gateway's own, or the agent's."""
    members: Mapping[str, Any] = error if isinstance(error, dict) else {}
    message = str(members.get("message", "no message"))
    told = _told_by_gateway(members.get("data"))
    if told is None:
        return Failed(
            ERROR,
            f"the agent answered with error {members.get('code')}: {message}",
            f"it comes from {agent_id} itself: the request, or the agent, must change",
        )
    reason = str(told.get("reason", ""))
    remedy, retry = REMEDIES.get(reason), _RETRIES.get(str(told.get("retry")))
    return Failed(
        EXITS.get(reason, ERROR),
        f"the gateway says: {message} ({reason})",
        *([f"what to do ({remedy.acts}): {remedy.action}"] if remedy else []),
        *([retry] if retry else []),
    )


def _told_by_gateway(data: object) -> Mapping[str, Any] | None:
    """The metadata of the gateway's ErrorInfo, if there is one (contract 2.4)."""
    for entry in data if isinstance(data, list) else ():
        metadata = entry.get("metadata") if isinstance(entry, dict) else None
        if isinstance(metadata, dict) and entry.get("domain") == "vitalgate":
            return metadata
    return None


#: What a status of a REST route means: exit code, and what to do.
_STATUSES: Final[Mapping[int, tuple[int, str]]] = {
    401: (AUTH, _UNAUTHENTICATED),
    403: (AUTH, "it belongs to somebody else, or the gateway's operator must allow it: auth.policy"),
    404: (NOT_FOUND, ""),
    409: (ERROR, "take agents out, or have a2a.max_agents raised"),
    421: (ERROR, REMEDIES["HOST_NOT_ALLOWED"].action),
    429: (ERROR, "wait; limits.requests_per_second and registrations_per_minute say how often"),
    500: (ERROR, "the gateway's operator must look at its log"),
    503: (ERROR, "try again later; if it stays so, the gateway's operator must look at its store and its log"),
}


def of_status(status: int, document: object, url: str, about: str = "") -> Failed:
    """Explain the answer of a REST route that is no success; `about`: what is meant if it is not found."""
    if not isinstance(document, dict) or not isinstance(document.get("error"), str):
        return Failed(
            ERROR, f"HTTP {status} from {url}: that is no vitalgate gateway, or a proxy before it (--url)"
        )
    if status == 404 and about:
        return Failed(NOT_FOUND, f"{document['error']}: {about}", "vitalgate agents list shows who is there")
    code, advice = _STATUSES.get(status, (ERROR, ""))
    details = document.get("details")
    found = [one for one in details if isinstance(one, dict)] if isinstance(details, list) else []
    lines = [_violation(one) for one in found]
    return Failed(code, document["error"], *lines, *([advice] if advice else []))


def _violation(detail: Mapping[str, Any]) -> str:
    field, message = str(detail.get("field") or ""), str(detail.get("message", ""))
    return f"  {field}: {message}" if field else f"  {message}"
