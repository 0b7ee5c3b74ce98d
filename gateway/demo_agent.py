"""The demo agent: an A2A agent of both protocol versions that answers every message with its own text.

A message is answered with the finished task, or with the events of its life as a stream.
``EchoAgent`` turns the bytes of a request into the bytes of an answer and knows nothing of sockets;
``as_asgi`` puts it on the wire.
"""

from __future__ import annotations

import json
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

CARD_PATH = "/.well-known/agent-card.json"
_LARGEST_BODY = 1024 * 1024  # bytes
_KEPT_TASKS = 1000

Json = dict[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class RpcError(Exception):
    """A JSON-RPC error answer; A2A's codes start at -32001."""

    def __init__(self, code: int, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason

    def as_json(self) -> Json:
        """The ``error`` member; with an A2A reason also the ErrorInfo that protocol 1.0 asks for."""
        error: Json = {"code": self.code, "message": str(self)}
        if self.reason is not None:
            kind = "type.googleapis.com/google.rpc.ErrorInfo"
            error["data"] = [{"@type": kind, "reason": self.reason, "domain": "a2a-protocol.org"}]
        return error


@dataclass(frozen=True, slots=True)
class Task:
    """A finished piece of work; there is no other kind here."""

    task_id: str
    context_id: str
    text: str
    finished: str

    def as_v03(self) -> Json:
        """A task as protocol 0.3 writes it."""
        return {
            "kind": "task",
            **self._names("id"),
            **self._status("completed"),
            "artifacts": [self._artifact_v03()],
        }

    def as_v1(self) -> Json:
        """A task as protocol 1.0 writes it."""
        return {**self._names("id"), **self._status("TASK_STATE_COMPLETED"), "artifacts": [self._artifact_v1()]}

    def events_v03(self) -> list[Json]:
        """How the task came about, as the events of a stream of protocol 0.3; only the last one is final."""
        names = self._names("taskId")
        return [
            {"kind": "task", **self._names("id"), **self._status("submitted")},
            {"kind": "status-update", **names, **self._status("working"), "final": False},
            {"kind": "artifact-update", **names, "artifact": self._artifact_v03(), "lastChunk": True},
            {"kind": "status-update", **names, **self._status("completed"), "final": True},
        ]

    def events_v1(self) -> list[Json]:
        """The same in protocol 1.0; the stream ends with the terminal state."""
        names = self._names("taskId")
        return [
            {"task": {**self._names("id"), **self._status("TASK_STATE_SUBMITTED")}},
            {"statusUpdate": {**names, **self._status("TASK_STATE_WORKING")}},
            {"artifactUpdate": {**names, "artifact": self._artifact_v1(), "lastChunk": True}},
            {"statusUpdate": {**names, **self._status("TASK_STATE_COMPLETED")}},
        ]

    def _names(self, name: str) -> Json:
        return {name: self.task_id, "contextId": self.context_id}

    def _status(self, state: str) -> Json:
        return {"status": {"state": state, "timestamp": self.finished}}

    def _artifact_v03(self) -> Json:
        return self._artifact({"kind": "text", "text": self.text})

    def _artifact_v1(self) -> Json:
        return self._artifact({"text": self.text})

    def _artifact(self, part: Json) -> Json:
        return {"artifactId": f"{self.task_id}-echo", "name": "echo", "parts": [part]}


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back under HTTP 200: one JSON-RPC response, or several as events."""

    content_type: bytes
    body: bytes


def card(url: str, version: str) -> Json:
    """The agent card, readable for clients of 0.3 and of 1.0."""
    return {
        "name": "Demo agent",
        "description": "Answers every message with its own text.",
        "version": version,
        "url": url,
        "preferredTransport": "JSONRPC",
        "protocolVersion": "0.3.0",
        "supportedInterfaces": [
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        ],
        "capabilities": {"streaming": True, "pushNotifications": False},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [
            {"id": "echo", "name": "Echo", "description": "Says what it was told.", "tags": ["echo", "demo"]}
        ],
    }


class EchoAgent:
    """Answers JSON-RPC requests. Keeps its last thousand tasks."""

    def __init__(self) -> None:
        self._tasks: OrderedDict[str, Task] = OrderedDict()
        self._methods: dict[str, Callable[[Json], Json]] = {
            "message/send": lambda params: self._send(params).as_v03(),
            "SendMessage": lambda params: {"task": self._send(params).as_v1()},
            "tasks/get": lambda params: self._find(params).as_v03(),
            "GetTask": lambda params: self._find(params).as_v1(),
            "tasks/cancel": self._cancel,
            "CancelTask": self._cancel,
            "tasks/resubscribe": self._subscribe,
            "SubscribeToTask": self._subscribe,
        }
        self._streams: dict[str, Callable[[Json], list[Json]]] = {
            "message/stream": lambda params: self._send(params).events_v03(),
            "SendStreamingMessage": lambda params: self._send(params).events_v1(),
        }

    def answer(self, body: bytes) -> Answer:
        """The answer to one request (JSON-RPC 2.0; a batch is refused). Errors are never streams."""
        try:
            request = json.loads(body)
        except (ValueError, RecursionError):
            return _one(None, error=RpcError(-32700, "not JSON").as_json())
        if not isinstance(request, dict) or not isinstance(request.get("method"), str):
            return _one(None, error=RpcError(-32600, "not a JSON-RPC request").as_json())
        try:
            return self._call(request["method"], request.get("params"), request.get("id"))
        except RpcError as error:
            return _one(request.get("id"), error=error.as_json())

    def _call(self, method: str, params: object, request_id: object) -> Answer:
        if method not in self._methods and method not in self._streams:
            raise RpcError(-32601, "the demo agent does not know this method")
        if not isinstance(params, dict):
            raise RpcError(-32602, "params must be an object")
        if method in self._methods:
            return _one(request_id, result=self._methods[method](params))
        events = (b"data: %b\n\n" % _write(request_id, result=event) for event in self._streams[method](params))
        return Answer(b"text/event-stream", b"".join(events))

    def _send(self, params: Json) -> Task:
        message = params.get("message")
        if not isinstance(message, dict) or not isinstance(message.get("parts"), list):
            raise RpcError(-32602, "params.message must be a message with parts")
        if message.get("taskId"):
            self._find({"id": message["taskId"]})
            raise RpcError(-32004, "this task has ended", "UNSUPPORTED_OPERATION")
        task = Task(str(uuid.uuid4()), _context(message), _text(message["parts"]), _now())
        self._tasks[task.task_id] = task
        if len(self._tasks) > _KEPT_TASKS:
            self._tasks.popitem(last=False)
        return task

    def _find(self, params: Json) -> Task:
        task = self._tasks.get(str(params.get("id")))
        if task is None:
            raise RpcError(-32001, "no such task", "TASK_NOT_FOUND")
        return task

    def _cancel(self, params: Json) -> Json:
        self._find(params)
        raise RpcError(-32002, "this task has ended", "TASK_NOT_CANCELABLE")

    def _subscribe(self, params: Json) -> Json:
        self._find(params)
        raise RpcError(-32004, "this task has ended", "UNSUPPORTED_OPERATION")


def _one(request_id: object, **outcome: Json) -> Answer:
    return Answer(b"application/json", _write(request_id, **outcome))


def _write(request_id: object, **outcome: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, **outcome}).encode()


def _context(message: Json) -> str:
    context = message.get("contextId")
    return context if isinstance(context, str) and context else str(uuid.uuid4())


def _text(parts: list[Any]) -> str:
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


_NOT_FOUND = Answer(b"application/json", b'{"error":"not found"}')
_TOO_LARGE = Answer(b"application/json", b'{"error":"request body too large"}')


def as_asgi(agent: EchoAgent, agent_card: Json) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """An ASGI application: the card at its well-known path, JSON-RPC at ``/``."""
    shown = Answer(b"application/json", json.dumps(agent_card).encode())

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        match scope["method"], scope["path"]:
            case "GET", path if path == CARD_PATH:
                await _reply(send, 200, shown)
            case "POST", "/":
                body = await _body(receive)
                await (_reply(send, 413, _TOO_LARGE) if body is None else _reply(send, 200, agent.answer(body)))
            case _:
                await _reply(send, 404, _NOT_FOUND)

    return app


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None if it is too large."""
    body, more = bytearray(), True
    while more and len(body) <= _LARGEST_BODY:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(body) if len(body) <= _LARGEST_BODY else None


async def _reply(send: Send, status: int, answer: Answer) -> None:
    headers = [(b"content-type", answer.content_type), (b"content-length", b"%d" % len(answer.body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
