"""A streaming agent made with the official a2a-sdk: it says the message's words, one after the other.

    pip install vitalgate 'a2a-sdk[http-server]>=1.3,<1.4'
    make run                                    # in another terminal: a gateway on 127.0.0.1:9090
    python examples/05-streaming-a2a/agent.py   # GATEWAY_URL=http://host:port for another one

PAUSE_SECONDS is the time between words. Then: `python examples/05-streaming-a2a/client.py`.
"""

import asyncio
import os
import socket

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette

from registry.client import Membership

GATEWAY = os.environ.get("GATEWAY_URL", "http://127.0.0.1:9090")
PAUSE_SECONDS = float(os.environ.get("PAUSE_SECONDS", "0.5"))
AGENT_ID = "sdk-words"


class Words(AgentExecutor):
    """The agent's work: every word is a piece of the same artifact, and an event of the stream."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        words = context.get_user_input().split()
        for number, word in enumerate(words):
            await asyncio.sleep(PAUSE_SECONDS)
            part = new_text_part(word if number == 0 else f" {word}")
            await updater.add_artifact(
                [part],
                artifact_id="words",
                name="words",
                append=number > 0,
                last_chunk=number == len(words) - 1,
            )
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def agent_card(url: str) -> AgentCard:
    return AgentCard(
        name="SDK words",
        description="Says every message word by word.",
        version="1.0.0",
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0"),
            AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="0.3"),
        ],
        capabilities=AgentCapabilities(streaming=True),  # without it SDK clients do not ask for streams
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="words", name="Words", description="Says what it was told.", tags=["text"])],
    )


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    card = agent_card(url)
    handler = DefaultRequestHandler(agent_executor=Words(), task_store=InMemoryTaskStore(), agent_card=card)

    membership = Membership(GATEWAY, card, agent_id=AGENT_ID, told=lambda change: print(change, flush=True))
    routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True)]
    config = uvicorn.Config(
        Starlette(routes=routes, lifespan=membership.lifespan), log_level="warning", timeout_graceful_shutdown=1
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
