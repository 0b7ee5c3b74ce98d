"""The reference stack: an A2A proxy as it is usually written, a Litestar handler with an httpx client.

It does the least that a gateway must do (parse, look up, forward, time out, check the answer, report
errors as JSON-RPC), with logging off, so that the comparison is with a fair specimen of its kind.

Run as a program: reference.py PORT JSON-OBJECT-OF-AGENT-URLS
"""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from litestar import Litestar, Request, Response, post
from litestar.datastructures import State
from litestar.exceptions import SerializationException
from litestar.params import FromPath

HOP_BY_HOP = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
DROPPED = HOP_BY_HOP | {"host", "content-length", "accept-encoding", "authorization", "cookie"}


def failure(call_id: Any, code: int, message: str) -> Response[dict[str, Any]]:
    """A JSON-RPC error answer."""
    body = {"jsonrpc": "2.0", "id": call_id, "error": {"code": code, "message": message}}
    return Response(body, status_code=200)


@post("/a2a/{agent_id:str}", status_code=200)
async def call(agent_id: FromPath[str], request: Request[Any, Any, State], state: State) -> Response[Any]:
    """Forward one JSON-RPC call to the agent and its answer back."""
    try:
        envelope = await request.json()
    except SerializationException:
        return failure(None, -32700, "parse error")
    if not isinstance(envelope, dict) or envelope.get("jsonrpc") != "2.0" or "method" not in envelope:
        return failure(None, -32600, "invalid request")
    call_id = envelope.get("id")
    url = state.agents.get(agent_id)
    if url is None:
        return failure(call_id, -32002, f"agent not found: {agent_id}")
    headers = {name: value for name, value in request.headers.items() if name not in DROPPED}
    try:
        answer = await state.client.post(url, content=await request.body(), headers=headers)
    except httpx.TimeoutException:
        return failure(call_id, -32001, f"agent timeout: {agent_id}")
    except httpx.HTTPError as error:
        return failure(call_id, -32003, f"agent unreachable: {error}")
    try:
        result = answer.json()
    except ValueError:
        return failure(call_id, -32004, "invalid response")
    if not isinstance(result, dict) or result.get("id") != call_id:
        return failure(call_id, -32004, "invalid response")
    return Response(answer.content, media_type="application/json", status_code=200)


def build(agents: dict[str, str]) -> Litestar:
    """The application, given agent id -> URL."""

    @asynccontextmanager
    async def client(app: Litestar) -> AsyncIterator[None]:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=256)
        async with httpx.AsyncClient(timeout=300, limits=limits, trust_env=False) as app.state.client:
            yield

    return Litestar([call], lifespan=[client], state=State({"agents": agents}), logging_config=None)


if __name__ == "__main__":
    uvicorn.run(build(json.loads(sys.argv[2])), port=int(sys.argv[1]), log_level="error", access_log=False)
