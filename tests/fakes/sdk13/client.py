"""The steps of a client made with the official a2a-sdk 1.3, as a program: `python client.py BASE`.

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
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.helpers import new_text_message
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import A2AError
from google.protobuf.json_format import MessageToDict

TEXT = "Grüße, 北京 🌍 \u2028 \x7f"
HOOK = "http://127.0.0.1:9/hook"


class Steps:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._done = ""
        self._slow = ""

    async def _send(self, text: str, **configuration: Any) -> dict[str, Any]:
        message = new_text_message(text, role=Role.ROLE_USER)
        request = SendMessageRequest(message=message, configuration=SendMessageConfiguration(**configuration))
        answers = [MessageToDict(event) async for event in self._client.send_message(request)]
        [answer] = answers
        return answer

    async def send(self) -> Any:
        answer = await self._send(TEXT)
        self._done = answer["task"]["id"]
        return answer

    async def send_for_a_message(self) -> Any:
        return await self._send("say " + TEXT)

    async def send_what_fails(self) -> Any:
        return await self._send("fail " + TEXT)

    async def get(self) -> Any:
        return MessageToDict(await self._client.get_task(GetTaskRequest(id=self._done)))

    async def get_unknown(self) -> Any:
        return MessageToDict(await self._client.get_task(GetTaskRequest(id="no-such-task")))

    async def send_slow(self) -> Any:
        answer = await self._send("slow " + TEXT, return_immediately=True)
        self._slow = answer["task"]["id"]
        return sorted(answer["task"])  # its state is a matter of luck

    async def get_working(self) -> Any:
        for _ in range(200):
            task = MessageToDict(await self._client.get_task(GetTaskRequest(id=self._slow)))
            if task["status"]["state"] == "TASK_STATE_WORKING":
                return task
            await asyncio.sleep(0.02)
        raise TimeoutError("the slow task does not start")

    async def cancel(self) -> Any:
        return MessageToDict(await self._client.cancel_task(CancelTaskRequest(id=self._slow)))

    async def cancel_finished(self) -> Any:
        return MessageToDict(await self._client.cancel_task(CancelTaskRequest(id=self._done)))

    async def push_set(self) -> Any:
        config = TaskPushNotificationConfig(task_id=self._done, id="hook", url=HOOK, token="t")
        return MessageToDict(await self._client.create_task_push_notification_config(config))

    async def push_get(self) -> Any:
        request = GetTaskPushNotificationConfigRequest(task_id=self._done, id="hook")
        return MessageToDict(await self._client.get_task_push_notification_config(request))

    async def push_list(self) -> Any:
        request = ListTaskPushNotificationConfigsRequest(task_id=self._done)
        return MessageToDict(await self._client.list_task_push_notification_configs(request))

    async def push_delete(self) -> Any:
        request = DeleteTaskPushNotificationConfigRequest(task_id=self._done, id="hook")
        return await self._client.delete_task_push_notification_config(request)

    async def push_get_deleted(self) -> Any:
        return await self.push_get()


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
    Steps.push_list,
    Steps.push_delete,
    Steps.push_get_deleted,
]


async def record(name: str, step: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
    try:
        return {"step": name, "result": await step()}
    except A2AError as error:
        return {"step": name, "error": {"type": type(error).__name__, "message": str(error)}}


def described(card: AgentCard) -> dict[str, Any]:
    """The card without its addresses, which must differ."""
    value = MessageToDict(card)
    for interface in value["supportedInterfaces"]:
        del interface["url"]
    return value


async def run(base: str) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(timeout=20, trust_env=False) as http:
        card = await A2ACardResolver(http, base).get_agent_card()
        client = ClientFactory(ClientConfig(streaming=False, httpx_client=http)).create(card)
        steps = Steps(client)
        first = [
            {"step": "address", "result": [interface.url for interface in card.supported_interfaces]},
            {"step": "card", "result": described(card)},
        ]
        return first + [await record(step.__name__, step.__get__(steps)) for step in STEPS]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(sys.argv[1]))))
