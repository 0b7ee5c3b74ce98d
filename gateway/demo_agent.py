"""The demo agent: an A2A agent of both protocol versions that answers every message with its own text.

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
        part = {"kind": "text", "text": self.text}
        return {"kind": "task", **self._common("completed", part)}

    def as_v1(self) -> Json:
        """A task as protocol 1.0 writes it."""
        return self._common("TASK_STATE_COMPLETED", {"text": self.text})

    def _common(self, state: str, part: Json) -> Json:
        return {
            "id": self.task_id,
            "contextId": self.context_id,
            "status": {"state": state, "timestamp": self.finished},
            "artifacts": [{"artifactId": f"{self.task_id}-echo", "name": "echo", "parts": [part]}],
        }


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
        "capabilities": {"streaming": False, "pushNotifications": False},
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
        }

    def answer(self, body: bytes) -> bytes:
        """The answer to one request (JSON-RPC 2.0; a batch is refused)."""
        try:
            request = json.loads(body)
        except (ValueError, RecursionError):
            return _write(None, error=RpcError(-32700, "not JSON").as_json())
        if not isinstance(request, dict) or not isinstance(request.get("method"), str):
            return _write(None, error=RpcError(-32600, "not a JSON-RPC request").as_json())
        try:
            return _write(request.get("id"), result=self._call(request["method"], request.get("params")))
        except RpcError as error:
            return _write(request.get("id"), error=error.as_json())

    def _call(self, method: str, params: object) -> Json:
        if method not in self._methods:
            raise RpcError(-32601, "the demo agent does not know this method")
        if not isinstance(params, dict):
            raise RpcError(-32602, "params must be an object")
        return self._methods[method](params)

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


def as_asgi(agent: EchoAgent, agent_card: Json) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """An ASGI application: the card at its well-known path, JSON-RPC at ``/``."""
    card_bytes = json.dumps(agent_card).encode()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        match scope["method"], scope["path"]:
            case "GET", path if path == CARD_PATH:
                await _reply(send, 200, card_bytes)
            case "POST", "/":
                body = await _body(receive)
                await (_reply(send, 413, b"") if body is None else _reply(send, 200, agent.answer(body)))
            case _:
                await _reply(send, 404, b'{"error":"not found"}')

    return app


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None if it is too large."""
    body, more = bytearray(), True
    while more and len(body) <= _LARGEST_BODY:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(body) if len(body) <= _LARGEST_BODY else None


async def _reply(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
