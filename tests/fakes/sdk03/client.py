"""The steps of a client made with the official a2a-sdk 0.3.26, as a program: `python client.py BASE`.

Resolves the card at BASE, makes the client that the card asks for, goes through the steps, and prints what
came back as a JSON list of `{"step", "result"}` or `{"step", "error"}`. Nothing in it knows of a gateway.
It asks for whole answers; `streams.py` asks for streams.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory, create_text_message_object
from a2a.client.errors import A2AClientError, A2AClientJSONRPCError
from a2a.types import (
    GetTaskPushNotificationConfigParams,
    MessageSendConfiguration,
    PushNotificationConfig,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
)
from pydantic import BaseModel

TEXT = "Grüße, 北京 🌍 \u2028 \x7f"
HOOK = "http://127.0.0.1:9/hook"


def plain(value: BaseModel) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


class Steps:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._done = ""
        self._slow = ""

    async def _send(self, text: str, **configuration: Any) -> Any:
        answers = [
            event
            async for event in self._client.send_message(
                create_text_message_object(content=text),
                configuration=MessageSendConfiguration(**configuration),
            )
        ]
        [answer] = answers
        return plain(answer[0] if isinstance(answer, tuple) else answer)

    async def send(self) -> Any:
        answer = await self._send(TEXT)
        self._done = answer["id"]
        return answer

    async def send_for_a_message(self) -> Any:
        return await self._send("say " + TEXT)

    async def send_what_fails(self) -> Any:
        return await self._send("fail " + TEXT)

    async def get(self) -> Any:
        return plain(await self._client.get_task(TaskQueryParams(id=self._done)))

    async def get_unknown(self) -> Any:
        return plain(await self._client.get_task(TaskQueryParams(id="no-such-task")))

    async def send_slow(self) -> Any:
        answer = await self._send("slow " + TEXT, blocking=False)
        self._slow = answer["id"]
        return sorted(answer)  # its state is a matter of luck

    async def get_working(self) -> Any:
        for _ in range(200):
            task = plain(await self._client.get_task(TaskQueryParams(id=self._slow)))
            if task["status"]["state"] == "working":
                return task
            await asyncio.sleep(0.02)
        raise TimeoutError("the slow task does not start")

    async def cancel(self) -> Any:
        return plain(await self._client.cancel_task(TaskIdParams(id=self._slow)))

    async def cancel_finished(self) -> Any:
        return plain(await self._client.cancel_task(TaskIdParams(id=self._done)))

    async def push_set(self) -> Any:
        config = PushNotificationConfig(id="hook", url=HOOK, token="t")
        wanted = TaskPushNotificationConfig(task_id=self._done, push_notification_config=config)
        return plain(await self._client.set_task_callback(wanted))

    async def push_get(self) -> Any:
        wanted = GetTaskPushNotificationConfigParams(id=self._done, push_notification_config_id="hook")
        return plain(await self._client.get_task_callback(wanted))


STEPS = [
    Steps.send,
    Steps.send_for_a_message,
    Steps.send_what_fails,
    Steps.get,
    Steps.get_unknown,
    Steps.send_slow,
    Steps.get_working,
    Steps.cancel,
    Steps.cancel_finished,
    Steps.push_set,
    Steps.push_get,
]


async def record(name: str, step: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
    try:
        return {"step": name, "result": await step()}
    except A2AClientJSONRPCError as error:
        return {"step": name, "error": {"type": type(error.error).__name__, "message": str(error)}}
    except A2AClientError as error:
        return {"step": name, "error": {"type": type(error).__name__, "message": str(error)}}


async def run(base: str) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(timeout=20, trust_env=False) as http:
        card = await A2ACardResolver(http, base).get_agent_card()
        client = ClientFactory(ClientConfig(streaming=False, httpx_client=http)).create(card)
        steps = Steps(client)
        described = plain(card)
        del described["url"]
        for interface in described.get("additionalInterfaces", []):
            del interface["url"]
        first = [{"step": "address", "result": [card.url]}, {"step": "card", "result": described}]
        return first + [await record(step.__name__, step.__get__(steps)) for step in STEPS]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(sys.argv[1]))))
