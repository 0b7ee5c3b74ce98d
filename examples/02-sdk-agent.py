"""An agent made with the official a2a-sdk that registers itself at the gateway and stays registered.

    pip install vitalgate 'a2a-sdk[http-server]>=1.3,<1.4'
    make run                                # in another terminal: a gateway on 127.0.0.1:9090
    python examples/02-sdk-agent.py         # GATEWAY_URL=http://host:port for another one

`Membership` is what keeps it registered: it sends heartbeats, registers again when the gateway does not know the
agent any more, and keeps trying while the gateway is away. Ctrl-C deregisters. See docs/agents.md.
Then call it: `python examples/03-sdk-client.py sdk-echo hello`.
"""

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
AGENT_ID = "sdk-echo"


class Echo(AgentExecutor):
    """The agent's work: the text of the message becomes the artifact of the task."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.add_artifact([new_text_part(context.get_user_input())], name="echo")
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def agent_card(url: str) -> AgentCard:
    return AgentCard(
        name="SDK echo",
        description="Answers every message with its own text.",
        version="1.0.0",
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0"),
            AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="0.3"),
        ],
        capabilities=AgentCapabilities(),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="echo", name="Echo", description="Says what it was told.", tags=["text"])],
    )


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    card = agent_card(url)
    handler = DefaultRequestHandler(agent_executor=Echo(), task_store=InMemoryTaskStore(), agent_card=card)

    # The gateway finds the agent at the card's first JSON-RPC interface. `told` gets every change.
    membership = Membership(GATEWAY, card, agent_id=AGENT_ID, told=lambda change: print(change, flush=True))
    routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True)]
    config = uvicorn.Config(Starlette(routes=routes, lifespan=membership.lifespan), log_level="warning")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
