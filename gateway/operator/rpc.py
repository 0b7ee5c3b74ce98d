"""Pure: A2A as `send` and `stream` speak it, in 0.3 and 1.0: requests, and what people read in answers."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.card_protocols import V0_3, V1_0, declared, objects

_METHODS: Final = {
    (V0_3, False): "message/send",
    (V0_3, True): "message/stream",
    (V1_0, False): "SendMessage",
    (V1_0, True): "SendStreamingMessage",
}
#: States in which a task has ended without success.
FAILED: Final = frozenset({"failed", "rejected", "canceled"})


@dataclass(frozen=True, slots=True)
class Speech:
    """How an agent is spoken to: V0_3 or V1_0, and what 1.0 calls the tenant."""

    protocol: str
    tenant: str | None = None


def speech_of(card: object) -> Speech:
    """What a served card says (contract 5.4); an agent that declares nothing is spoken to in 0.3."""
    found = declared(card) if isinstance(card, dict) else {}
    protocol = next(iter(found), V0_3)
    return Speech(protocol, found[protocol].tenant if protocol in found else None)


@dataclass(frozen=True, slots=True)
class Told:
    """What somebody says to an agent, and which conversation or task it belongs to."""

    text: str
    context_id: str | None = None
    task_id: str | None = None


def request(speech: Speech, told: Told, *, stream: bool) -> tuple[dict[str, str], bytes]:
    """Make a request: its headers and body."""
    modern = speech.protocol == V1_0
    message: dict[str, Any] = {"messageId": str(uuid.uuid4())}
    if modern:
        message |= {"role": "ROLE_USER", "parts": [{"text": told.text}]}
    else:
        message |= {"kind": "message", "role": "user", "parts": [{"kind": "text", "text": told.text}]}
    message |= {"contextId": told.context_id} if told.context_id else {}
    message |= {"taskId": told.task_id} if told.task_id else {}
    params: dict[str, Any] = {"message": message}
    if speech.tenant is not None:
        params["tenant"] = speech.tenant
    envelope = {"jsonrpc": "2.0", "id": str(uuid.uuid4()), "method": _METHODS[speech.protocol, stream]}
    headers = {
        "Content-Type": "application/json",
        "Accept": "text/event-stream, application/json" if stream else "application/json",
    }
    if modern:
        headers["A2A-Version"] = V1_0
    return headers, json.dumps({**envelope, "params": params}).encode()


@dataclass(frozen=True, slots=True)
class Said:
    """What people read in a result or an event.

    Attributes:
        text: The agent's answer: artifacts and messages.
        state: State of the task, as 0.3 writes it; empty if nothing is said of it.
        note: What the agent says of the state.
        task_id: The task.
        context_id: The conversation.
        artifact: Which artifact the text belongs to.
        more: The text goes on where the last one of the same artifact ended.
    """

    text: str = ""
    state: str = ""
    note: str = ""
    task_id: str = ""
    context_id: str = ""
    artifact: str = ""
    more: bool = False


def said(result: object) -> Said:
    """Read a result or an event of either protocol; what is neither is shown as it is."""
    if not isinstance(result, dict):
        return Said(_as_json(result))
    for member, read in _READERS.items():
        if isinstance(result.get(member), dict):  # 1.0 names the kind by a member
            return read(result[member])
    reader = _KINDS.get(str(result.get("kind")))
    if reader is not None:
        return reader(result)
    if isinstance(result.get("status"), dict) and "id" in result:
        return _task(result)
    return Said(_text(result.get("parts")) or _as_json(result))


def _task(task: Mapping[str, Any]) -> Said:
    texts = [_text(one.get("parts")) for one in objects(task.get("artifacts"))]
    state, note = _status(task.get("status"))
    text = "\n".join(text for text in texts if text)
    return Said(text, state, note, _word(task.get("id")), _word(task.get("contextId")))


def _message(message: Mapping[str, Any]) -> Said:
    ids = _word(message.get("taskId")), _word(message.get("contextId"))
    return Said(_text(message.get("parts")), "", "", *ids, artifact=_word(message.get("messageId")))


def _status_update(update: Mapping[str, Any]) -> Said:
    state, note = _status(update.get("status"))
    return Said("", state, note, _word(update.get("taskId")), _word(update.get("contextId")))


def _artifact_update(update: Mapping[str, Any]) -> Said:
    artifact = update.get("artifact")
    found: Mapping[str, Any] = artifact if isinstance(artifact, dict) else {}
    return Said(
        _text(found.get("parts")),
        task_id=_word(update.get("taskId")),
        context_id=_word(update.get("contextId")),
        artifact=_word(found.get("artifactId")),
        more=update.get("append") is True,
    )


_READERS: Final = {
    "task": _task,
    "message": _message,
    "statusUpdate": _status_update,
    "artifactUpdate": _artifact_update,
}
_KINDS: Final = {
    "task": _task,
    "message": _message,
    "status-update": _status_update,
    "artifact-update": _artifact_update,
}


def _status(status: object) -> tuple[str, str]:
    """The state in 0.3's words, and the text of the message beside it."""
    members: Mapping[str, Any] = status if isinstance(status, dict) else {}
    message = members.get("message")
    note = _text(message.get("parts")) if isinstance(message, dict) else ""
    return _word(members.get("state")).removeprefix("TASK_STATE_").lower().replace("_", "-"), note


def _text(parts: object) -> str:
    return "\n".join(text for part in objects(parts) for text in _part(part))


def _part(part: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(part.get("text"), str):
        yield part["text"]
    elif "data" in part:
        yield _as_json(part["data"])
    else:
        file = part.get("file")
        found = file if isinstance(file, dict) else part
        named = [_word(found.get(name)) for name in ("name", "filename", "mimeType", "mediaType", "uri", "url")]
        yield f"[file: {' '.join(name for name in named if name) or 'without a name'}]"


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
