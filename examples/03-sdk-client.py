"""An unmodified official a2a-sdk client that talks to an agent through the gateway.

    pip install 'a2a-sdk>=1.3,<1.4'
    make run                                            # in another terminal: a gateway with its demo agent
    python examples/03-sdk-client.py [AGENT_ID [TEXT]]  # GATEWAY_URL=http://host:port for another one

The only thing that is special is the base URL: `<gateway>/a2a/<agent_id>`. The card found there points at the
gateway, so everything the client does next goes through it.
"""

import asyncio
import os
import sys

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.helpers import get_artifact_text, get_message_text, new_text_message
from a2a.types import GetTaskRequest, Role, SendMessageRequest, TaskState
from a2a.utils.errors import A2AError

GATEWAY = os.environ.get("GATEWAY_URL", "http://127.0.0.1:9090")


async def main(agent_id: str, text: str) -> None:
    # A call lasts as long as the agent's task does: httpx's own default of 5 s would cut it short.
    async with httpx.AsyncClient(timeout=300) as http:
        card = await A2ACardResolver(http, f"{GATEWAY}/a2a/{agent_id}").get_agent_card()
        interface = card.supported_interfaces[0]
        print(f"{card.name}: protocol {interface.protocol_version} at {interface.url}")

        client = ClientFactory(ClientConfig(streaming=False, httpx_client=http)).create(card)
        request = SendMessageRequest(message=new_text_message(text, role=Role.ROLE_USER))
        async for answer in client.send_message(request):
            if answer.HasField("message"):
                print(f"message: {get_message_text(answer.message)}")
                continue
            task = await client.get_task(GetTaskRequest(id=answer.task.id))
            print(f"task {TaskState.Name(task.status.state)}: {get_artifact_text(task.artifacts[0])}")


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv[1:]))
    try:
        asyncio.run(main(arguments.get(0, "demo"), arguments.get(1, "hello")))
    except A2AError as error:
        sys.exit(f"{type(error).__name__}: {error}")
