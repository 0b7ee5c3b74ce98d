"""A tiny ASGI application behind the real server: its paths are the ways a handler may behave.

`python tests/tiny_gateway.py` serves it as a process of its own and prints its port.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvloop

from gateway.lifecycle import Lifecycle
from gateway.protocol import Caller
from gateway.server import ServerLimits, bind, run, serve

Scope = dict[str, Any]
Receive = Any
Send = Any


@dataclass
class Tiny:
    """The application; `seen` tells the test what happened inside."""

    lifecycle: Lifecycle
    seen: queue.Queue[Any] = field(default_factory=queue.Queue)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        await getattr(self, scope["path"].strip("/").replace("-", "_") or "echo")(scope, receive, send)

    async def echo(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers what it got, as JSON with a length."""
        body = await self._body(receive)
        if body is not None:
            await _answer(send, 200, json.dumps(described(scope, body)).encode())

    async def pieces(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers in two pieces, without a length."""
        await self._body(receive)
        await send(start(200))
        await send(piece(b"one", more=True))
        await send(piece(b"two"))

    async def early(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answers without looking at the body."""
        await _answer(send, 413, b"too large")

    async def early_close(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answers without looking at the body, and closes."""
        await send(start(413, (b"content-length", b"9"), (b"connection", b"close")))
        await send(piece(b"too large"))

    async def watched(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Wants to know when the caller leaves, and answers."""
        scope["vitalgate.connection"].on_lost = lambda: self.seen.put("lost")
        await _answer(send, 200, b"answered")

    async def told(self, scope: Scope, receive: Receive, _send: Send) -> None:
        """Wants to know when the caller leaves, while it still reads the body."""
        scope["vitalgate.connection"].on_lost = lambda: self.seen.put("lost")
        await self._body(receive)

    async def hang(self, scope: Scope, receive: Receive, _send: Send) -> None:
        """Reads the body and never answers, like a slow agent; ends when the caller leaves."""
        await self._body(receive)
        await self._caller_lost(scope)

    async def call(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hangs as a call in flight that nobody ends."""
        self.lifecycle.begin()
        await self.forever(scope, receive, send)

    async def forever(self, _scope: Scope, _receive: Receive, _send: Send) -> None:
        """Never ends, whoever leaves."""
        self.seen.put("forever")
        try:
            await asyncio.Event().wait()
        finally:
            self.seen.put("cancelled")

    async def stream(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Begins an answer at once and hangs."""
        await send(start(200, (b"content-type", b"text/event-stream")))
        await send(piece(b"first", more=True))
        await self._caller_lost(scope)

    async def big(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Writes more than any buffer holds; cuts the caller off after half a second."""
        caller: Caller = scope["vitalgate.connection"]
        asyncio.get_running_loop().call_later(0.5, caller.abort)
        caller.on_lost = lambda: self.seen.put("lost")
        await send(start(200))
        for _ in range(100):
            await send(piece(b"x" * 1_000_000, more=True))
            if caller.lost:
                return

    async def big_once(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Hands over a big answer and is done with it."""
        await _answer(send, 200, b"x" * 20_000_000)
        self.seen.put("answered")

    async def crash(self, _scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ValueError("as told")

    async def crash_later(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send(start(200))
        await send(piece(b"half", more=True))
        raise ValueError("as told")

    async def nothing(self, _scope: Scope, _receive: Receive, _send: Send) -> None:
        """Forgets to answer."""

    async def stuck(self, _scope: Scope, _receive: Receive, _send: Send) -> None:
        """Blocks the event loop."""
        while True:
            time.sleep(0.01)  # noqa: ASYNC251 (that is the point)

    async def thread(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Leaves a thread behind that nothing can end."""
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 100)
        await _answer(send, 200, b"started")

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        for kind in ("startup", "shutdown"):
            await receive()
            self.seen.put(kind)
            await send({"type": f"lifespan.{kind}.complete"})

    async def _body(self, receive: Receive) -> bytes | None:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.seen.put("disconnect")
                return None
            body += message["body"]
            if not message["more_body"]:
                return body

    async def _caller_lost(self, scope: Scope) -> None:
        caller: Caller = scope["vitalgate.connection"]
        gone = asyncio.Event()

        def lost() -> None:
            self.seen.put("lost")
            gone.set()

        caller.on_lost = lost
        self.seen.put("waiting")
        if not caller.lost:
            await gone.wait()


def described(scope: Scope, body: bytes) -> dict[str, Any]:
    return {
        "method": scope["method"],
        "version": scope["http_version"],
        "raw_path": scope["raw_path"].decode(),
        "query": scope["query_string"].decode(),
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]],
        "port": scope["server"][1],
        "size": len(body),
        "body": body[:100].decode("latin-1"),
    }


def start(status: int, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def piece(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def _answer(send: Send, status: int, body: bytes) -> None:
    await send(start(status, (b"content-length", b"%d" % len(body))))
    await send(piece(body))


class HangingInStart(Tiny):
    async def _lifespan(self, _receive: Receive, _send: Send) -> None:
        await asyncio.Event().wait()


class StuckInStart(Tiny):
    async def _lifespan(self, _receive: Receive, _send: Send) -> None:
        while True:
            time.sleep(60)  # noqa: ASYNC251 - what is tested


@dataclass
class Served:
    """A running server: what its application saw, and where it listens."""

    tiny: Tiny
    port: int
    metrics_port: int
    on_loop: Callable[[Callable[[], Any]], None]

    def seen(self, seconds: float = 5) -> Any:
        """The next thing the application noticed."""
        return self.tiny.seen.get(timeout=seconds)

    def forget(self) -> None:
        """Drop what earlier tests left unheard."""
        self.tiny.seen.queue.clear()


@contextlib.contextmanager
def served(
    limits: ServerLimits | None = None, *, shutdown_delay_seconds: float = 0, drain_seconds: float = 1.0
) -> Iterator[Served]:
    """The server on an uvloop of its own in a thread, so that tests may use plain blocking sockets."""
    lifecycle = Lifecycle(shutdown_delay_seconds=shutdown_delay_seconds, drain_seconds=drain_seconds)
    tiny = Tiny(lifecycle)
    api, metrics = bind("127.0.0.1", 0), bind("127.0.0.1", 0)
    ports = [listener.getsockname()[1] for listener in (api, metrics)]
    loop = uvloop.new_event_loop()

    def main() -> None:
        loop.run_until_complete(serve(tiny, api=api, metrics=metrics, lifecycle=lifecycle, limits=limits))
        loop.close()

    thread = threading.Thread(target=main)
    thread.start()
    try:
        assert tiny.seen.get(timeout=5) == "startup"
        yield Served(tiny, *ports, on_loop=loop.call_soon_threadsafe)
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(lifecycle.stop)
        thread.join()


def main(max_files: int = 0, hanging_start: int = 0) -> None:
    """Serve; with `hanging_start` 1 the start never ends, with 2 the event loop does not turn, either."""
    lifecycle = Lifecycle(drain_seconds=1.0)
    api = bind("127.0.0.1", 0)
    if max_files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, max_files))
    print(api.getsockname()[1], flush=True)
    tiny = [Tiny(lifecycle), HangingInStart(lifecycle), StuckInStart(lifecycle)][hanging_start]
    run(lambda: serve(tiny, api=api, lifecycle=lifecycle), lifecycle)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
