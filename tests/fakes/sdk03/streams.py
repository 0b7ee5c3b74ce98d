"""The streams of a client made with the official a2a-sdk 0.3.26, as a program: `python streams.py BASE [SECONDS]`.

Like `client.py`, with the SDK's default settings, which ask for streams and wait 5 s for a byte. With SECONDS it
waits that long, and the one step is a stream that is silent for three times as long.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx
from a2a.client import (
    A2ACardResolver,
    Client,
    ClientConfig,
    ClientEvent,
    ClientFactory,
    create_text_message_object,
)
from a2a.types import Message, TaskIdParams
from client import plain, record

Events = list[dict[str, Any]]

TEXT = "Grüße, 北京 🌍 \x7f"


def told(event: ClientEvent | Message) -> dict[str, Any]:
    """What came, without the task that the SDK keeps up to date by itself."""
    if isinstance(event, Message):
        return plain(event)  # type: ignore[no-any-return]
    task, update = event
    return plain(update or task)  # type: ignore[no-any-return]


def is_working(event: dict[str, Any]) -> bool:
    return bool(event["kind"] == "status-update" and event["status"]["state"] == "working")


class Steps:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._task = ""

    async def _stream(self, text: str) -> Events:
        message = create_text_message_object(content=text)
        return [told(event) async for event in self._client.send_message(message)]

    async def _subscribe(self, task: str) -> Events:
        return [told(event) async for event in self._client.resubscribe(TaskIdParams(id=task))]

    async def stream(self) -> Events:
        return await self._stream(TEXT)

    async def stream_of_a_message(self) -> Events:
        return await self._stream("say " + TEXT)

    async def stream_of_what_fails(self) -> Events:
        return await self._stream("fail " + TEXT)

    async def leave(self) -> Events:
        seen: Events = []
        events = self._client.send_message(create_text_message_object(content="pause " + TEXT))
        async for event in events:
            seen.append(told(event))
            if seen[-1]["kind"] == "artifact-update":
                break
        await events.aclose()  # type: ignore[attr-defined]
        self._task = seen[0]["id"]
        return seen

    async def resubscribe(self) -> Events:
        seen: Events = []
        async for event in self._client.resubscribe(TaskIdParams(id=self._task)):
            if not seen:
                await self._stream(f"go {self._task}")
            seen.append(told(event))
        return [event for event in seen if not is_working(event)]  # how many of those there are is luck

    async def resubscribe_finished(self) -> Events:
        return await self._subscribe(self._task)

    async def resubscribe_unknown(self) -> Events:
        return await self._subscribe("no-such-task")

    async def cancel_while_streaming(self) -> dict[str, Any]:
        seen: Events = []
        answer: dict[str, Any] = {}
        async for event in self._client.send_message(create_text_message_object(content="slow " + TEXT)):
            seen.append(told(event))
            if is_working(seen[-1]):
                answer = plain(await self._client.cancel_task(TaskIdParams(id=seen[0]["id"])))
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
    steps = Steps(ClientFactory(ClientConfig()).create(card))
    return [await record(step.__name__, step.__get__(steps)) for step in STEPS]


if __name__ == "__main__":
    base, *seconds = sys.argv[1:]
    print(json.dumps(asyncio.run(silence(base, float(seconds[0])) if seconds else run(base))))
