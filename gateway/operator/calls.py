"""`vitalgate send` and `vitalgate stream`: one message to an agent, through the gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.operator import output
from gateway.operator.client import Answer, Client, decoded, run
from gateway.operator.endpoint import Endpoint
from gateway.operator.failures import CONNECTION, ERROR, NOT_FOUND, Failed, of_rpc_error, of_status
from gateway.operator.rpc import FAILED, Said, Speech, Told, request, said, speech_of
from gateway.sse import Event, EventReader, EventTooLarge

LARGEST_EVENT: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Order:
    """What to send, to whom, and how to show the answer.

    Attributes:
        agent_id: The agent.
        told: What it is told.
        headers: Further request headers.
        protocol: V0_3 or V1_0; None: what the agent's served card says.
        as_json: Documents instead of text.
        seconds: Deadline of the whole command; None: there is none.
    """

    agent_id: str
    told: Told
    headers: Mapping[str, str] = field(default_factory=dict)
    protocol: str | None = None
    as_json: bool = False
    seconds: float | None = None


def send(endpoint: Endpoint, order: Order) -> int:
    """Send a message and show the answer; the exit code."""

    async def main() -> int:
        async with Client(endpoint) as client:
            headers, body = request(await _speech(client, order), order.told, stream=False)
            answer = await client.send("POST", f"a2a/{order.agent_id}", {**headers, **order.headers}, body=body)
            return _show_answer(answer, order, endpoint)

    return run(main(), order.seconds, endpoint.url)


def stream(endpoint: Endpoint, order: Order) -> int:
    """Send a message and show the events of the answer as they come; the exit code."""

    async def main() -> int:
        async with Client(endpoint) as client:
            headers, body = request(await _speech(client, order), order.told, stream=True)
            path, headers = f"a2a/{order.agent_id}", {**headers, **order.headers}
            async with client.open("POST", path, headers, body) as (streams, answer, pieces):
                if not streams:
                    return _show_answer(answer, order, endpoint)
                return await _follow(pieces, order)

    return run(main(), order.seconds, endpoint.url)


async def _speech(client: Client, order: Order) -> Speech:
    """How to speak to the agent: as its served card says, which is public (contract 5.4)."""
    answer = await client.send("GET", f"a2a/{order.agent_id}/.well-known/agent-card.json", {})
    document = answer.document()
    if answer.status == 404 and isinstance(document, dict) and "error" in document:
        raise Failed(NOT_FOUND, f"agent not found: {order.agent_id}", "vitalgate agents list shows who is there")
    if answer.status != 200 or not isinstance(document, dict):
        raise of_status(answer.status, document, client.url)
    found = speech_of(document)
    if order.protocol is None or order.protocol == found.protocol:
        return found
    return Speech(order.protocol)


# -- one answer


def _show_answer(answer: Answer, order: Order, endpoint: Endpoint) -> int:
    document = answer.document()
    if not isinstance(document, dict) or "jsonrpc" not in document:
        raise of_status(answer.status, document, endpoint.url)
    if order.as_json:
        output.write_document(answer.body)
    if document.get("error") is not None:
        raise of_rpc_error(document["error"], order.agent_id)
    found = said(document.get("result"))
    if not order.as_json:
        if found.text:
            output.write(output.lines_of(found.text).removesuffix("\n") + "\n")
        _tell_state(found)
    return ERROR if found.state in FAILED else 0


def _tell_state(found: Said) -> None:
    """Say on standard error what became of the task, where the text alone does not tell."""
    if found.state in ("", "completed") and not output.on_terminal():
        return
    words = [f"task {found.task_id}" if found.task_id else "", found.state, found.note]
    context = f"context {found.context_id}" if found.context_id else ""
    line = " · ".join(word for word in (*words, context) if word)
    if line:
        output.say(line)


# -- a stream


async def _follow(pieces: AsyncIterator[bytes], order: Order) -> int:
    shown = _Shown(order)
    reader = EventReader(LARGEST_EVENT)
    try:
        async for piece in pieces:
            for event in reader.feed(piece):
                if isinstance(event, Event):
                    shown.take(event)
    except EventTooLarge:
        raise Failed(ERROR, f"an event is larger than {LARGEST_EVENT >> 20} MiB") from None
    finally:
        shown.end_line()
    if not shown.events:
        raise Failed(CONNECTION, "the stream ended without an event", "it may have been executed")
    return ERROR if shown.state in FAILED else 0


class _Shown:
    """Writes the events of a stream: text to standard output, states to standard error."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._open_line = False
        self._artifact = ""
        self.state = ""
        self.events = 0

    def take(self, event: Event) -> None:
        """Show an event; of an error event, its explanation is raised."""
        self.events += 1
        document = decoded(event.data)
        if self._order.as_json:
            output.write_document(event.data if document is not None else json.dumps(event.data.decode()).encode())
        if not isinstance(document, dict):
            self._text(Said(event.data.decode()))
        elif "jsonrpc" in document:
            self._result(document)
        else:
            self._envelope(document)

    def end_line(self) -> None:
        """End a line that text may still have been added to."""
        if self._open_line and not self._order.as_json:
            output.write("\n")
        self._open_line = False

    def _result(self, document: Mapping[str, Any]) -> None:
        if document.get("error") is not None:
            raise of_rpc_error(document["error"], self._order.agent_id)
        self._said(said(document.get("result")))

    def _envelope(self, document: Mapping[str, Any]) -> None:
        """KubeMQ's envelope (contract 3.4); what an agent says in it has no fixed form."""
        kind, payload = document.get("type"), document.get("payload")
        if kind == "error":
            error = payload.get("error", payload) if isinstance(payload, dict) else {"message": str(payload)}
            raise of_rpc_error(error, self._order.agent_id)
        found = said(payload)
        if kind == "status_update" and not found.state:
            self._said(Said(state=found.text))
        elif kind != "done" or payload not in (None, {}, ""):
            self._said(found)

    def _said(self, found: Said) -> None:
        if found.state:
            self.state = found.state
            self._state(found)
        if found.text:
            self._text(found)

    def _state(self, found: Said) -> None:
        if not self._order.as_json:
            self.end_line()
            output.say(": ".join(word for word in (found.state, found.note) if word))

    def _text(self, found: Said) -> None:
        if self._order.as_json:
            return
        if not (found.more and found.artifact == self._artifact):
            self.end_line()
        text = output.lines_of(found.text)
        output.write(text)
        self._open_line, self._artifact = not text.endswith("\n"), found.artifact
