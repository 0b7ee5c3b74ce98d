"""An agent made with the official a2a-sdk 0.3.26, as a program for its own environment (requirements.txt).

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
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Part, TextPart
from a2a.utils import new_agent_text_message, new_task

TICK_SECONDS = 0.05


class Executor(AgentExecutor):
    def __init__(self) -> None:
        self._paused: dict[str, asyncio.Event] = {}
        self._slow: dict[str, TaskUpdater] = {}

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = context.get_user_input()
        if text.startswith("say "):
            await event_queue.enqueue_event(new_agent_text_message(text))
            return
        if text.startswith("go "):
            self._paused.pop(text.removeprefix("go ")).set()
            await event_queue.enqueue_event(new_agent_text_message("gone"))
            return
        task = new_task(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        parts = [Part(root=TextPart(text=text))]
        if text.startswith("slow "):
            self._slow[task.id] = updater
            await asyncio.Event().wait()
        if text.startswith("quiet "):
            await asyncio.sleep(float(text.removeprefix("quiet ")))
        if text.startswith("pause "):
            await updater.add_artifact([Part(root=TextPart(text="before"))], name="before")
            go = self._paused[task.id] = asyncio.Event()
            while not go.is_set():
                await updater.start_work()
                await asyncio.sleep(TICK_SECONDS)
        if text.startswith("fail "):
            await updater.failed(updater.new_agent_message(parts))
            return
        await updater.add_artifact(parts, name="echo")
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        # What goes into this queue is the answer to the cancellation only; streams hear what `execute` says.
        updater = self._slow.pop(context.task_id, None)
        await (updater or TaskUpdater(event_queue, context.task_id, context.context_id)).cancel()


def card(base: str) -> AgentCard:
    return AgentCard(
        name="SDK 0.3 echo",
        description="Echoes what it is sent.",
        version="1.2.3",
        url=base + "/",
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="echo", name="Echo", description="Echoes text.", tags=["test", "echo"])],
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0, help="of an earlier run, to come back as it")
    listener = socket.create_server(("127.0.0.1", parser.parse_args().port))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    handler = DefaultRequestHandler(
        agent_executor=Executor(),
        task_store=InMemoryTaskStore(),
        push_config_store=InMemoryPushNotificationConfigStore(),
    )
    application = A2AStarletteApplication(agent_card=card(base), http_handler=handler).build()
    server = uvicorn.Server(uvicorn.Config(application, log_level="warning"))
    server.config.timeout_graceful_shutdown = 1

    def stop_with_stdin() -> None:
        sys.stdin.buffer.read()
        server.should_exit = True

    threading.Thread(target=stop_with_stdin, daemon=True).start()
    print(f"ready {base}/", flush=True)
    server.run(sockets=[listener])


if __name__ == "__main__":
    main()
