"""A gateway as far as an agent sees it: the registry's routes, and answers that a test can change."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import uvicorn


class Registrar:
    """The ASGI application; `serving` runs it."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.ttl: Any = 300
        self.known = False
        self.refusal: tuple[int, Any] | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self.shown: list[str] = []
        """The Authorization header of each request, "" for none."""
        self.hold: asyncio.Event | None = None
        """Where there is one, requests are answered when it is set."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message["body"]
            if not message["more_body"]:
                break
        self.shown.append(dict(scope["headers"]).get(b"authorization", b"").decode())
        status, answer = self._answer(scope["path"])
        self.heard.put_nowait((f"{scope['method']} {scope['path']}", json.loads(body or b"null")))
        if self.hold is not None:
            await self.hold.wait()
        await send({"type": "http.response.start", "status": status, "headers": self.headers})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    def _answer(self, path: str) -> tuple[int, Any]:
        if self.refusal is not None:
            return self.refusal
        if path == "/agents/register":
            self.known = True
            return 200, {}
        if not self.known:
            return 400, {"error": "agent not found"}
        return 200, {"ok": True, "ttl_seconds": self.ttl}

    async def hears(self) -> tuple[str, Any]:
        return await asyncio.wait_for(self.heard.get(), 10)


class Server(uvicorn.Server):
    @asynccontextmanager
    async def running(self, listener: socket.socket) -> AsyncIterator[None]:
        task = asyncio.create_task(self._serve(sockets=[listener]))
        try:
            yield
        finally:
            self.should_exit = True
            await task


@asynccontextmanager
async def serving(
    app: Any, listener: socket.socket | None = None, *, lifespan: Literal["on", "off"] = "off"
) -> AsyncIterator[str]:
    listener = listener or socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, lifespan=lifespan, log_config=None, access_log=False, timeout_keep_alive=1)
    async with Server(config).running(listener):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
