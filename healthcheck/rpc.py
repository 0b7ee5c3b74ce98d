"""The two JSON-RPC calls that the engine makes, in both protocol versions, and their answers (pure)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from healthcheck.card import TEXT_PLAIN, V10, CardFault, read_json

MAX_TEXT = 64 * 1024
_GET = {True: "GetTask", False: "tasks/get"}
_SEND = {True: "SendMessage", False: "message/send"}

# protobuf numbers of 1.0's TaskState, in order; 0.3's words are the same ones ("unknown" is its unspecified)
_STATES = (
    "unspecified",
    "submitted",
    "working",
    "completed",
    "failed",
    "canceled",
    "input-required",
    "rejected",
    "auth-required",
)
_STATES_10 = {f"TASK_STATE_{word.upper().replace('-', '_')}": word for word in _STATES}
_STATES_03 = {**{word: word for word in _STATES[1:]}, "unknown": "unspecified"}
_AGENT_ROLES = ("ROLE_AGENT", 2)


@dataclass(frozen=True, slots=True)
class Call:
    """A JSON-RPC request ready to send; `task_id` is set for a task look-up."""

    id: str
    headers: Mapping[str, str]
    body: bytes
    task_id: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A valid JSON-RPC response: a result, or the code of an error and whether a gateway made it."""

    result: Any = None
    error: int | None = None
    from_gateway: bool = False
    correlated: bool = True


class Malformed(Exception):
    """Not a valid answer to the call; `reason` says in which way."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Task:
    """A task in an answer: its id, its state (0.3's word for it), and whether an artifact holds text."""

    id: str
    state: str
    has_text: bool


@dataclass(frozen=True, slots=True)
class Message:
    """A message in place of a task."""

    from_agent: bool
    has_text: bool


def version_headers(version: str) -> dict[str, str]:
    """1.0 announces itself in a header, on card fetches too; 0.3 sends none."""
    return {"A2A-Version": "1.0"} if version == V10 else {}


def get_task(version: str, tenant: str | None) -> Call:
    """Ask for a task that cannot exist: read-only, so it may be sent to any agent at any time."""
    task_id = str(uuid.uuid4())
    return _call(version, _GET[version == V10], {"id": task_id}, tenant, task_id)


def send_message(version: str, text: str, tenant: str | None) -> Call:
    """A blocking send of one text part with a fresh message id and no history."""
    message: dict[str, Any] = {"messageId": str(uuid.uuid4())}
    configuration: dict[str, Any] = {"acceptedOutputModes": [TEXT_PLAIN], "historyLength": 0}
    if version == V10:
        message |= {"role": "ROLE_USER", "parts": [{"text": text}]}
        configuration["returnImmediately"] = False
    else:
        message |= {"kind": "message", "role": "user", "parts": [{"kind": "text", "text": text}]}
        configuration["blocking"] = True
    params = {"message": message, "configuration": configuration}
    return _call(version, _SEND[version == V10], params, tenant, None)


def _call(version: str, method: str, params: dict[str, Any], tenant: str | None, task_id: str | None) -> Call:
    if tenant is not None:
        params = {"tenant": tenant, **params}
    request_id = str(uuid.uuid4())
    envelope = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json",
        **version_headers(version),
    }
    return Call(request_id, headers, json.dumps(envelope).encode(), task_id)


def read_answer(body: bytes | None, call: Call) -> Answer:
    """The answer to this very call, or `Malformed`. An error may have the id null, as JSON-RPC allows."""
    try:
        envelope = read_json(body)
    except CardFault as error:
        raise Malformed("not_json") from error
    if not isinstance(envelope, dict) or envelope.get("jsonrpc") != "2.0":
        raise Malformed("envelope")
    if ("result" in envelope) == ("error" in envelope):
        raise Malformed("envelope")
    correlated = envelope.get("id") == call.id
    if "error" in envelope:
        if not correlated and envelope.get("id") is not None:
            raise Malformed("other_id")
        return _read_error(envelope["error"], correlated)
    if not correlated:
        raise Malformed("other_id")
    return Answer(result=envelope["result"])


def _read_error(error: Any, correlated: bool) -> Answer:
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        raise Malformed("envelope")
    code = error.get("code")
    if not isinstance(code, int) or isinstance(code, bool):
        raise Malformed("envelope")
    return Answer(error=code, from_gateway=_made_by_gateway(error.get("data")), correlated=correlated)


def _made_by_gateway(data: Any) -> bool:
    """An `ErrorInfo` whose metadata says `source: gateway` is a gateway's own error."""
    for entry in data if isinstance(data, list) else [data]:
        metadata = entry.get("metadata") if isinstance(entry, dict) else None
        if isinstance(metadata, dict) and metadata.get("source") == "gateway":
            return True
    return False


def read_task(value: Any, version: str) -> Task:
    """A task as a result; raises `Malformed`."""
    if not isinstance(value, dict) or value.get("kind", "task") != "task":
        raise Malformed("task")
    task_id, status = value.get("id"), value.get("status")
    if not isinstance(task_id, str) or not task_id or not isinstance(status, dict):
        raise Malformed("task")
    return Task(task_id, _state(status.get("state"), version), _artifacts_text(value.get("artifacts")))


def read_sent(value: Any, version: str) -> Task | Message:
    """The result of a send: exactly one of a task or a message; raises `Malformed`."""
    if not isinstance(value, dict):
        raise Malformed("send_result")
    if version == V10:
        present = [name for name in ("task", "message") if value.get(name) is not None]
        if len(present) != 1:
            raise Malformed("send_result")
        kind: Any = present[0]
        value = value[kind]
    else:
        kind = value.get("kind")
    if kind == "task":
        return read_task(value, version)
    if kind == "message":
        return _read_message(value, version)
    raise Malformed("send_result")


def _read_message(value: Any, version: str) -> Message:
    if not isinstance(value, dict) or not isinstance(value.get("messageId"), str):
        raise Malformed("message")
    role = value.get("role")
    by_agent = role in _AGENT_ROLES if version == V10 else role == "agent"
    return Message(by_agent, _parts_text(value.get("parts"), "message"))


def _state(value: Any, version: str) -> str:
    if version == V10 and isinstance(value, int) and not isinstance(value, bool):
        if 0 <= value < len(_STATES):
            return _STATES[value]
        raise Malformed("task")
    if value is None and version == V10:
        return "unspecified"  # ProtoJSON omits the zero value
    words = _STATES_10 if version == V10 else _STATES_03
    if not isinstance(value, str) or value not in words:
        raise Malformed("task")
    return words[value]


def _artifacts_text(artifacts: Any) -> bool:
    if artifacts is None:
        return False
    if not isinstance(artifacts, list) or not all(isinstance(one, dict) for one in artifacts):
        raise Malformed("task")
    found = [_parts_text(one.get("parts"), "task") for one in artifacts]  # every one is looked at: it may raise
    return any(found)


def _parts_text(parts: Any, reason: str) -> bool:
    """Whether a part holds text; absent parts are none."""
    if parts is None:
        return False
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise Malformed(reason)
    return any(_text(part) for part in parts)


def _text(part: Mapping[str, Any]) -> str:
    """The text of a part; empty for a blank one and for other kinds."""
    text = part.get("text")
    told = isinstance(text, str) and text.strip() and part.get("kind", "text") == "text"
    return str(text) if told else ""


def artifact_text(result: Any, version: str) -> str:
    """The texts of all artifacts, a line each, of a result that `read_sent` has taken for a task."""
    task = result["task"] if version == V10 else result
    parts = [part for artifact in task.get("artifacts") or [] for part in artifact.get("parts") or []]
    return "\n".join(text for text in map(_text, parts) if text)
