"""The streams of a client made with the official a2a-sdk 1.3, as a program: `python streams.py BASE [SECONDS]`.

Like `client.py`, with the SDK's default settings, which ask for streams and wait 5 s for a byte. With SECONDS it
waits that long, and the one step is a stream that is silent for three times as long.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.helpers import new_text_message
from a2a.types import CancelTaskRequest, Role, SendMessageRequest, SubscribeToTaskRequest
from client import record
from google.protobuf.json_format import MessageToDict

Events = list[dict[str, Any]]

TEXT = "Grüße, 北京 🌍 \x7f"  # with U+2028 the SDK itself fails: it takes that for the end of a line


def asked(text: str) -> SendMessageRequest:
    return SendMessageRequest(message=new_text_message(text, role=Role.ROLE_USER))


def is_working(event: dict[str, Any]) -> bool:
    state = event.get("statusUpdate", {}).get("status", {}).get("state")
    return bool(state == "TASK_STATE_WORKING")


class Steps:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._task = ""

    async def _stream(self, text: str) -> Events:
        return [MessageToDict(event) async for event in self._client.send_message(asked(text))]

    async def _subscribe(self, task: str) -> Events:
        request = SubscribeToTaskRequest(id=task)
        return [MessageToDict(event) async for event in self._client.subscribe(request)]

    async def stream(self) -> Events:
        return await self._stream(TEXT)

    async def stream_of_a_message(self) -> Events:
        return await self._stream("say " + TEXT)

    async def stream_of_what_fails(self) -> Events:
        return await self._stream("fail " + TEXT)

    async def leave(self) -> Events:
        seen: Events = []
        events = self._client.send_message(asked("pause " + TEXT))
        async for event in events:
            seen.append(MessageToDict(event))
            if "artifactUpdate" in seen[-1]:
                break
        await events.aclose()  # type: ignore[attr-defined]
        self._task = seen[0]["task"]["id"]
        return seen

    async def resubscribe(self) -> Events:
        seen: Events = []
        async for event in self._client.subscribe(SubscribeToTaskRequest(id=self._task)):
            if not seen:
                await self._stream(f"go {self._task}")
            seen.append(MessageToDict(event))
        return [event for event in seen if not is_working(event)]  # how many of those there are is luck

    async def resubscribe_finished(self) -> Events:
        return await self._subscribe(self._task)

    async def resubscribe_unknown(self) -> Events:
        return await self._subscribe("no-such-task")

    async def cancel_while_streaming(self) -> dict[str, Any]:
        seen: Events = []
        answer: dict[str, Any] = {}
        async for event in self._client.send_message(asked("slow " + TEXT)):
            seen.append(MessageToDict(event))
            if is_working(seen[-1]):
                request = CancelTaskRequest(id=seen[0]["task"]["id"])
                answer = MessageToDict(await self._client.cancel_task(request))
        return {"events": seen, "answer": answer}


STEPS = [
    Steps.stream,
    Steps.stream_of_a_message,
    Steps.stream_of_what_fails,
    Steps.leave,
    Steps.resubscribe,
    Steps.resubscribe_finished,
    Steps.resubscribe_unknown,
    Steps.cancel_while_streaming,
]


async def silence(base: str, seconds: float) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(timeout=seconds, trust_env=False) as http:
        card = await A2ACardResolver(http, base).get_agent_card()
        steps = Steps(ClientFactory(ClientConfig(httpx_client=http)).create(card))
        return [await record("silence", lambda: steps._stream(f"quiet {3 * seconds}"))]


async def run(base: str) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(trust_env=False) as http:
        card = await A2ACardResolver(http, base).get_agent_card()
    client = ClientFactory(ClientConfig()).create(card)
    steps = Steps(client)
    return [await record(step.__name__, step.__get__(steps)) for step in STEPS]


if __name__ == "__main__":
    base, *seconds = sys.argv[1:]
    print(json.dumps(asyncio.run(silence(base, float(seconds[0])) if seconds else run(base))))
