"""An agent made with the official a2a-sdk 1.3, as a program: speaks 1.0, and 0.3 on the same URL.

    python agent.py [--only-v1]     (1.0 alone)

Prints `ready http://127.0.0.1:PORT/` (the base of its card) and runs until its standard input ends or SIGTERM.
The text of a message decides what it does: `slow ...` works until it is cancelled, `fail ...` fails,
`say ...` answers with a message instead of a task, `pause ...` says again and again that it is at work until
`go TASK` is sent, `quiet SECONDS` says nothing for that long, anything else completes with the text as its
artifact.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import threading

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Role
from starlette.applications import Starlette

PATH = "/rpc/v1"


TICK_SECONDS = 0.05


class Executor(AgentExecutor):
    def __init__(self) -> None:
        self._paused: dict[str, asyncio.Event] = {}

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = context.get_user_input()
        if text.startswith("say "):
            await event_queue.enqueue_event(new_text_message(text, role=Role.ROLE_AGENT))
            return
        if text.startswith("go "):
            self._paused.pop(text.removeprefix("go ")).set()
            await event_queue.enqueue_event(new_text_message("gone", role=Role.ROLE_AGENT))
            return
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        if text.startswith("slow "):
            await asyncio.Event().wait()
        if text.startswith("quiet "):
            await asyncio.sleep(float(text.removeprefix("quiet ")))
        if text.startswith("pause "):
            await updater.add_artifact([new_text_part("before")], name="before")
            go = self._paused[task.id] = asyncio.Event()
            while not go.is_set():
                await updater.start_work()
                await asyncio.sleep(TICK_SECONDS)
        if text.startswith("fail "):
            await updater.failed(updater.new_agent_message([new_text_part(text)]))
            return
        await updater.add_artifact([new_text_part(text)], name="echo")
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(base: str, *, only_v1: bool) -> AgentCard:
    return AgentCard(
        name="SDK 1.3 echo",
        description="Echoes what it is sent.",
        version="1.2.3",
        supported_interfaces=[
            AgentInterface(url=base + PATH, protocol_binding="JSONRPC", protocol_version=version)
            for version in (["1.0"] if only_v1 else ["1.0", "0.3"])
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="echo", name="Echo", description="Echoes text.", tags=["test", "echo"])],
    )


def application(base: str, *, only_v1: bool) -> Starlette:
    shown = card(base, only_v1=only_v1)
    handler = DefaultRequestHandler(
        agent_executor=Executor(),
        task_store=InMemoryTaskStore(),
        agent_card=shown,
        push_config_store=InMemoryPushNotificationConfigStore(),
    )
    routes = create_jsonrpc_routes(handler, PATH, enable_v0_3_compat=not only_v1)
    return Starlette(routes=[*create_agent_card_routes(shown), *routes])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only-v1", action="store_true")
    parser.add_argument("--port", type=int, default=0, help="of an earlier run, to come back as it")
    options = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", options.port))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(application(base, only_v1=options.only_v1), log_level="warning"))
    server.config.timeout_graceful_shutdown = 1

    def stop_with_stdin() -> None:
        sys.stdin.buffer.read()
        server.should_exit = True

    threading.Thread(target=stop_with_stdin, daemon=True).start()
    print(f"ready {base}/", flush=True)
    server.run(sockets=[listener])


if __name__ == "__main__":
    main()
