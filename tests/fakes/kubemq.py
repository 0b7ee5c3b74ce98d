"""A plain HTTP agent as users of KubeMQ's connector write them: JSON-RPC by hand, no SDK, no published card.

It has the habits of a small Go server: `text/plain` as the type of its JSON, results with few members, errors
under HTTP 200, `404 page not found` for anything but its own path. It registers the minimum, says "1.0" in
`protocolVersions` (KubeMQ's own field) and speaks `message/send`, `tasks/get`, `tasks/cancel`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.fakes import reply
from tests.fakes.agent import Behaviour, Connection, FaultAgent, Received

HEADERS = (("Content-Type", "text/plain; charset=utf-8"), ("Date", "Thu, 01 Jan 2026 00:00:00 GMT"))
TASK_NOT_FOUND = (-32001, "task not found")
NOT_CANCELABLE = (-32002, "task is already finished")
UNKNOWN_METHOD = (-32601, "method not found")


class Refused(Exception):
    """What a method answers with instead of a result: (code, message)."""


class KubemqAgent(FaultAgent):
    """Serves at `/a2a`. `bare=True`: its results come without the JSON-RPC envelope, as some agents do it."""

    def __init__(self, agent_id: str = "kubemq-echo", *, bare: bool = False) -> None:
        super().__init__(path="/a2a")
        self.agent_id = agent_id
        self.tasks: dict[str, dict[str, Any]] = {}
        self._bare = bare
        self.always(Behaviour("kubemq", self._answer))

    @property
    def document(self) -> dict[str, Any]:
        """What it registers: KubeMQ's minimum."""
        return {"agent_id": self.agent_id, "name": "Echo", "url": self.url, "protocolVersions": ["1.0"]}

    async def _answer(self, connection: Connection, request: Received | None) -> None:
        assert request is not None
        if (request.method, request.target) != ("POST", self.path):
            await connection.send(reply.wire(404, HEADERS, b"404 page not found\n"))
            return
        call = request.json()
        try:
            method = METHODS.get(call["method"])
            if method is None:
                raise Refused(*UNKNOWN_METHOD)
            result = method(self, call.get("params") or {})
        except Refused as refused:
            code, message = refused.args
            await connection.send(
                reply.wire(200, HEADERS, reply.rpc(request, "error", {"code": code, "message": message}))
            )
            return
        content = json.dumps(result).encode() if self._bare else reply.rpc(request, "result", result)
        await connection.send(reply.wire(200, HEADERS, content + b"\n"))

    def send(self, params: dict[str, Any]) -> dict[str, Any]:
        """Completes at once with the texts as its artifact; `slow ...` stays at work."""
        texts = [part["text"] for part in params["message"]["parts"] if "text" in part]
        state = "working" if texts[0].startswith("slow ") else "completed"
        number = len(self.tasks) + 1
        task = {
            "kind": "task",
            "id": f"task-{number}",
            "contextId": f"context-{number}",
            "status": {"state": state},
            "artifacts": [
                {"artifactId": "echo", "parts": [{"kind": "text", "text": text} for text in texts]},
            ],
        }
        self.tasks[f"task-{number}"] = task
        return task

    def get(self, params: dict[str, Any]) -> dict[str, Any]:
        try:
            return self.tasks[params["id"]]
        except KeyError:
            raise Refused(*TASK_NOT_FOUND) from None

    def cancel(self, params: dict[str, Any]) -> dict[str, Any]:
        task = self.get(params)
        if task["status"]["state"] != "working":
            raise Refused(*NOT_CANCELABLE)
        task["status"] = {"state": "canceled"}
        return task


METHODS: dict[str, Callable[[KubemqAgent, dict[str, Any]], dict[str, Any]]] = {
    "message/send": KubemqAgent.send,
    "tasks/get": KubemqAgent.get,
    "tasks/cancel": KubemqAgent.cancel,
}
