"""The agents of the soak: each on a port of its own, each does what the call asks for, faults included.

What is asked for stands in `params.metadata.do` of the call:

| do | the agent |
|---|---|
| `answer` | answers |
| `late` | answers after 0.3 s |
| `large` | answers 100 KB |
| `refuse` | answers with a JSON-RPC error |
| `busy` | 503 with Retry-After |
| `garbage` | answers what is no JSON |
| `hang up` | closes without a byte |
| `break` | begins an answer and resets the connection |
| `events` | streams `count` events, one every `every` seconds, and a final one |
| `lose` | streams two events and breaks |
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

LATE_SECONDS = 0.3
LARGE = "x" * 100_000
JSON = "application/json"

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter


class Agents:
    """A number of agents. Use as `async with`; `urls` says where they are."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._servers: list[asyncio.Server] = []
        self.urls: list[str] = []
        self.open = 0

    async def __aenter__(self) -> "Agents":
        for _ in range(self._number):
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self._servers.append(server)
            self.urls.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()

    async def _serve(self, reader: Reader, writer: Writer) -> None:
        self.open += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the gateway has left, which is its right; or the run is over
        finally:
            self.open -= 1
            writer.close()

    async def _exchange(self, reader: Reader, writer: Writer) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (
                int(line.partition(b":")[2])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-len")
            ),
            0,
        )
        body = await reader.readexactly(length)
        if not head.startswith(b"POST "):
            writer.write(answer(b"{}", "404 Not Found"))
            return True
        call = json.loads(body)
        wish = call.get("params", {}).get("metadata", {"do": "answer"})
        return await DO[wish["do"]](writer, call.get("id"), wish)


def answer(body: bytes, status: str = "200 OK", more: str = "") -> bytes:
    """A whole answer."""
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: {JSON}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body
    )


def response(id: Any, result: Any, member: str = "result") -> bytes:
    """A JSON-RPC response."""
    return json.dumps({"jsonrpc": "2.0", "id": id, member: result}).encode()


def event(id: Any, number: int, final: bool) -> bytes:
    """A status update as a chunk."""
    state = "completed" if final else "working"
    result = {"kind": "status-update", "status": {"state": state}, "final": final, "metadata": {"n": number}}
    data = b"data: " + response(id, result) + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


async def _answer(writer: Writer, id: Any, wish: dict[str, Any]) -> bool:
    if wish["do"] == "late":
        await asyncio.sleep(LATE_SECONDS)
    writer.write(answer(response(id, LARGE if wish["do"] == "large" else "done")))
    await writer.drain()
    return True


async def _refuse(writer: Writer, id: Any, wish: dict[str, Any]) -> bool:
    writer.write(answer(response(id, {"code": -32001, "message": "no such task"}, "error")))
    return True


async def _busy(writer: Writer, id: Any, wish: dict[str, Any]) -> bool:
    writer.write(answer(b"busy", "503 Service Unavailable", "Retry-After: 1\r\n"))
    return True


async def _garbage(writer: Writer, id: Any, wish: dict[str, Any]) -> bool:
    writer.write(answer(b"<html>"))
    return True


async def _hang_up(writer: Writer, id: Any, wish: dict[str, Any]) -> bool:
    return False


async def _break(writer: Writer, id: Any, wish: dict[str, Any]) -> bool:
    writer.write(answer(response(id, "done"))[:-5])
    await writer.drain()
    writer.transport.abort()
    return False


async def _events(writer: Writer, id: Any, wish: dict[str, Any]) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    count = wish.get("count", 3)
    for number in range(count):
        final = number == count - 1 and wish["do"] == "events"
        writer.write(event(id, number, final))
        await writer.drain()
        await asyncio.sleep(0 if final else wish.get("every", 0))
        if writer.is_closing():
            return False
    if wish["do"] == "lose":
        writer.transport.abort()
        return False
    writer.write(b"0\r\n\r\n")
    return True


DO: dict[str, Callable[[Writer, Any, dict[str, Any]], Awaitable[bool]]] = {
    "answer": _answer,
    "late": _answer,
    "large": _answer,
    "refuse": _refuse,
    "busy": _busy,
    "garbage": _garbage,
    "hang up": _hang_up,
    "break": _break,
    "events": _events,
    "lose": _events,
}
