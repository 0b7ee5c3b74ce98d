"""Pure: an agent's event → the bytes for the caller, in one of two formats chosen per event (contract 3.4, 3.5).

**A2A** events (`"jsonrpc":"2.0"` with `result` or `error`) pass with their data bytes untouched. **Envelope**
events (KubeMQ's) hold the agent's whole data as `payload`. What an A2A event means:

| A2A event | type in the envelope | as A2A | in the envelope |
|---|---|---|---|
| `error` other than null | `error` | final, failed | terminal, failed |
| message (0.3 `kind: message`, 1.0 `result.message`) | `done` | final | terminal |
| status or task, state completed | `done` | final (not with `final: false`) | terminal |
| status or task, state failed, rejected, canceled | `error` | the same, failed | terminal, failed |
| status or task, any other state, `final: true` | `status_update` | final | final |
| status or task, any other state | `status_update` | goes on | goes on |
| artifact | `artifact` | goes on | goes on |
| any other result | as of any other data | goes on | by the type |

A state is 0.3's word or 1.0's name or number. A status or task is told by 0.3's `kind`, by 1.0's member name, or,
with neither, by its own members. Terminal: both sides close now. Final: they close when nothing follows for 2 s.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Final, NoReturn

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gateway.sse import Event

KEEPALIVE: Final = b": keepalive\n\n"


class Ending(Enum):
    """What an event says about the end of its stream.

    Attributes:
        NONE: Nothing.
        FINAL: The agent should close; after 2 s without a further event the gateway does.
        TERMINAL: Nothing may follow; both sides are closed.
    """

    NONE = "none"
    FINAL = "final"
    TERMINAL = "terminal"


_NONE: Final = Ending.NONE
_FINAL: Final = Ending.FINAL
_TERMINAL: Final = Ending.TERMINAL

_NAMES: Final = {
    "status_update": b"task.status",
    "artifact": b"task.artifact",
    "done": b"task.done",
    "error": b"task.error",
}
_TYPES: Final = {name: type for type, name in _NAMES.items()}
#: Type → the event line and what follows the stream id.
_HEADS: Final = {type: (b"event: " + name + b"\n", b'"' + type.encode() + b'"') for type, name in _NAMES.items()}
_ENDS: Final = {"done": _TERMINAL, "error": _TERMINAL}
_STATES: Final[dict[str | int, str]] = {
    "completed": "done",
    "failed": "error",
    "canceled": "error",
    "rejected": "error",
    "TASK_STATE_COMPLETED": "done",
    "TASK_STATE_FAILED": "error",
    "TASK_STATE_CANCELED": "error",
    "TASK_STATE_REJECTED": "error",
    3: "done",
    4: "error",
    5: "error",
    7: "error",
}


class Writer:
    """Writes the events of one stream.

    Args:
        stream_id: Stands in every envelope.
        envelope: True: A2A events go into the envelope too.
        number_ids: True for GET: every event carries `id: <stream_id>:<n>` in place of the agent's own id.

    Attributes:
        a2a: Whether the agent's latest event was an A2A event; None before any.
        ending: What the latest event written says about the end.
        failed: Whether the latest event that ends the stream reports a failure.
    """

    __slots__ = ("_count", "_envelope", "_head", "_id_head", "a2a", "ending", "failed")

    def __init__(self, stream_id: str, *, envelope: bool, number_ids: bool = False) -> None:
        self.a2a: bool | None = None
        self.ending = _NONE
        self.failed = False
        self._envelope = envelope
        self._head = b'data: {"stream_id":' + json.dumps(stream_id).encode() + b',"type":'
        self._id_head = f"id: {stream_id}:".encode() if number_ids else None
        self._count = 0

    def write(self, event: Event) -> bytes:
        """Give the whole event as the caller gets it."""
        seen = _read(event.data)
        type: str | None = None
        if seen is not None and seen.jsonrpc == "2.0" and (seen.result is not UNSET or seen.error is not UNSET):
            self.a2a = True
            type, ending = _judge(seen)
            if not self._envelope:
                self._note(ending, type)
                if event.name is None and event.id is None and event.retry is None and self._id_head is None:
                    return b"data: %b\n\n" % _lines(event.data)
                return self._fields(event, event.name) + b"data: " + _lines(event.data) + b"\n\n"
        else:
            self.a2a, ending = False, _NONE
        if type is None:
            type = _type(event.name, seen)
        self._note(_ENDS.get(type, ending), type)
        payload = event.data if seen is not None else _encode(event.data.decode(errors="replace"))
        return self._enveloped(type, payload, self._fields(event, None))

    def error(self, code: int, message: str, data: list[Any], id_raw: bytes) -> bytes:
        """Give the event with which the gateway itself ends the stream (contract 3.5, last paragraph).

        It has the form of the agent's latest event. Before any event: JSON-RPC, or the envelope where it was asked
        for and on GET.

        Args:
            code: JSON-RPC error code.
            message: Text for people.
            data: `error.data`, anything that JSON holds.
            id_raw: JSON text of the request's id.
        """
        a2a = self._id_head is None if self.a2a is None else self.a2a
        fields = self._fields(Event(b""), None)
        self._note(_TERMINAL, "error")
        problem = {"code": code, "message": message, "data": data}
        if self._envelope or not a2a:
            return self._enveloped("error", _encode(problem), fields)
        body = _encode({"jsonrpc": "2.0", "id": Raw(id_raw), "error": problem})
        return b"event: task.error\n" + fields + b"data: " + _lines(body) + b"\n\n"

    def _note(self, ending: Ending, type: str | None) -> None:
        self.ending = ending
        if ending is not _NONE:
            self.failed = type == "error"

    def _enveloped(self, type: str, payload: bytes, fields: bytes) -> bytes:
        known = _HEADS.get(type)
        event, text = known if known else (b"event: message\n", json.dumps(type).encode())
        return b"".join((event, fields, self._head, text, b',"payload":', _lines(payload), b"}\n\n"))

    def _fields(self, event: Event, name: bytes | None) -> bytes:
        """Give the lines beside data. Neither a name nor an id can begin a line of its own (pitfall 94)."""
        fields = b""
        if name is not None:
            fields = b"event: " + name.translate(None, _BREAKING) + b"\n"
        if self._id_head is not None:
            self._count += 1
            fields += b"%b%d\n" % (self._id_head, self._count)
        elif event.id is not None:
            fields += b"id: " + event.id.translate(None, _BREAKING) + b"\n"
        if event.retry is not None:
            fields += b"retry: " + event.retry + b"\n"
        return fields


_BREAKING: Final = b"\r\n\0"


def _lines(data: bytes) -> bytes:
    """Give data as the rest of its first line and further lines with their own prefix."""
    if b"\n" in data or b"\r" in data:
        return data.replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    return data


def _type(name: bytes | None, seen: _Seen | None) -> str:
    known = _TYPES.get(name) if name else None
    if known is not None:
        return known
    if seen is not None and seen.type and isinstance(seen.type, str):
        return seen.type
    return name.decode(errors="replace") if name else "message"


# --- what an event says, in one decode that skips the rest ---


class _Opaque(msgspec.Struct, gc=False):
    """An object of which nothing is read."""


class _Status(msgspec.Struct, gc=False):
    state: Any = None


class _Held(msgspec.Struct, gc=False):
    """A 1.0 task or status update."""

    status: _Status | list[Any] | str | int | float | bool | None = None


class _Result(msgspec.Struct, gc=False):
    """0.3 objects say their kind; in 1.0 the member's name says it."""

    kind: Any = None
    final: Any = None
    status: _Status | list[Any] | str | int | float | bool | None = None
    artifact: _Opaque | list[Any] | str | int | float | bool | None = None
    message: _Opaque | list[Any] | str | int | float | bool | None = None
    task: _Held | list[Any] | str | int | float | bool | None = None
    statusUpdate: _Held | list[Any] | str | int | float | bool | None = None
    artifactUpdate: _Opaque | list[Any] | str | int | float | bool | None = None


class _Seen(msgspec.Struct, gc=False):
    jsonrpc: Any = None
    result: _Result | list[Any] | str | int | float | bool | UnsetType | None = UNSET
    error: Any = UNSET
    type: Any = None


# Every JSON type is allowed everywhere: a member of an unexpected type is merely not what we look for.
_decode = msgspec.json.Decoder[Any](_Seen | list[Any] | str | int | float | bool | None).decode
_encode = msgspec.json.Encoder().encode
_NO_MEMBERS: Final = _Seen()


def _read(data: bytes) -> _Seen | None:
    """Give what we look for in a JSON text; None if it is not JSON, or nested too deeply to tell."""
    try:
        value = _decode(data)
    except RecursionError:
        return None
    except msgspec.DecodeError as error:
        # Two things are legal and refused: a lone surrogate, and a number out of range where we read a value.
        legal = b"\\u" in data or isinstance(error, msgspec.ValidationError)
        return _read_slowly(data) if legal else None
    return value if isinstance(value, _Seen) else _NO_MEMBERS


def _read_slowly(data: bytes) -> _Seen | None:
    try:
        value = _parse(data.decode())
        return msgspec.convert(value, _Seen) if isinstance(value, dict) else _NO_MEMBERS
    except (ValueError, RecursionError):
        return None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _integer(digits: str) -> int | float:
    """Give a number whatever its length: `int` refuses texts of thousands of digits."""
    return int(digits) if len(digits) < 20 else float(digits)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Give an object whose names msgspec can compare: it refuses lone surrogates there, too."""
    return {name.encode(errors="replace").decode(): value for name, value in pairs}


_parse = json.JSONDecoder(parse_int=_integer, parse_constant=_no_constant, object_pairs_hook=_members).decode


def _judge(seen: _Seen) -> tuple[str | None, Ending]:
    """Give an A2A event's type in the envelope and its ending as an A2A event: the table at the top."""
    if seen.error is not UNSET and seen.error is not None:
        return "error", _FINAL
    result = seen.result
    if not isinstance(result, _Result):
        return None, _NONE
    kind, status = _kind(result)
    if kind != "status":
        return _KINDS[kind]
    state = status.state if isinstance(status, _Status) else None
    type = _STATES.get(state) if isinstance(state, str | int) else None
    ends = result.final is True or (type is not None and result.final is not False)
    return type or "status_update", _FINAL if ends else _NONE


_KINDS: Final[dict[str, tuple[str | None, Ending]]] = {
    "artifact": ("artifact", _NONE),
    "message": ("done", _FINAL),
    "other": (None, _NONE),
}
_KINDS_OF_03: Final = {
    "status-update": "status",
    "task": "status",
    "artifact-update": "artifact",
    "message": "message",
}


def _kind(result: _Result) -> tuple[str, Any]:
    """Tell status (a task's or an update's; with it), artifact, message and other."""
    if isinstance(result.kind, str):
        return _KINDS_OF_03.get(result.kind, "other"), result.status
    for held in (result.statusUpdate, result.task):
        if isinstance(held, _Held):
            return "status", held.status
    if isinstance(result.artifactUpdate, _Opaque):
        return "artifact", None
    if isinstance(result.message, _Opaque):
        return "message", None
    if isinstance(result.status, _Status):
        return "status", result.status
    return ("artifact" if isinstance(result.artifact, _Opaque) else "other"), None
