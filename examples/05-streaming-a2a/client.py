"""An official a2a-sdk client that reads a stream to its end, whatever happens on the way.

    pip install 'a2a-sdk>=1.3,<1.4'
    python examples/05-streaming-a2a/client.py [AGENT_ID [TEXT]]   # GATEWAY_URL=http://host:port for another one

`events` is the part to copy: when a stream breaks the work goes on, so it attaches to the task again; it does not
send the message a second time. With the gateway's demo agent: `client.py demo hello`.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.helpers import get_artifact_text, get_message_text, new_text_message
from a2a.types import GetTaskRequest, Role, SendMessageRequest, StreamResponse, SubscribeToTaskRequest, TaskState
from a2a.utils.errors import A2AError, TaskNotFoundError, UnsupportedOperationError

GATEWAY = os.environ.get("GATEWAY_URL", "http://127.0.0.1:9090")


async def events(client: Client, text: str) -> AsyncIterator[StreamResponse]:
    """The events of one message, over as many streams as it takes."""
    stream = client.send_message(SendMessageRequest(message=new_text_message(text, role=Role.ROLE_USER)))
    task_id = ""
    while True:
        try:
            async for event in stream:
                task_id = task_id or event.task.id
                yield event
            return
        except UnsupportedOperationError:
            if not task_id:
                raise
            # It has ended while nobody was listening.
            yield StreamResponse(task=await client.get_task(GetTaskRequest(id=task_id)))
            return
        except TaskNotFoundError:
            raise
        except A2AError as error:
            if not task_id:  # nothing has begun as far as we know: the error says whether to send again
                raise
            print(f"the stream was lost ({error}): attaching to the task again", flush=True)
            await asyncio.sleep(0.2)
            stream = client.subscribe(SubscribeToTaskRequest(id=task_id))


def told(event: StreamResponse) -> str:
    match event.WhichOneof("payload"):
        case "message":
            return f"message: {get_message_text(event.message)}"
        case "task":
            text = " ".join(get_artifact_text(artifact) for artifact in event.task.artifacts)
            return f"task {TaskState.Name(event.task.status.state)}: {text}"
        case "status_update":
            return f"status {TaskState.Name(event.status_update.status.state)}"
        case _:
            return f"artifact: {get_artifact_text(event.artifact_update.artifact)}"


async def main(agent_id: str, text: str) -> None:
    # The gateway sends a comment every `a2a.keepalive_seconds` (30); httpx's own limit would be 5 s of silence.
    async with httpx.AsyncClient(timeout=60) as http:
        card = await A2ACardResolver(http, f"{GATEWAY}/a2a/{agent_id}").get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http)).create(card)
        async for event in events(client, text):
            print(told(event), flush=True)


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv[1:]))
    try:
        asyncio.run(main(arguments.get(0, "sdk-words"), arguments.get(1, "one two three four five")))
    except A2AError as error:
        sys.exit(f"{type(error).__name__}: {error}")
