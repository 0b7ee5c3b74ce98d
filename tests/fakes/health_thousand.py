"""As many agents as anybody asks for, on one port, as a program: `/aN/rpc` is agent N, with its card below it.

Prints `ready URL` and serves until its standard input ends. Cheap, so that what is measured is the checker.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any, cast

import uvloop

LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
CARD = "/.well-known/agent-card.json"
TASK_NOT_FOUND = {"code": -32001, "message": "task not found"}


def card(url: str) -> dict[str, Any]:
    return {
        "name": "one of many",
        "description": "answers",
        "version": "1",
        "capabilities": {},
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [
            {"id": f"s{number}", "name": "S", "description": "d" * 60, "tags": ["a"]} for number in range(4)
        ],
    }


class Agents(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has another base
        self.base = f"http://127.0.0.1:{transport.get_extra_info('sockname')[1]}"
        self.held = b""

    def data_received(self, data: bytes) -> None:
        self.held += data
        while (end := self.held.find(b"\r\n\r\n")) >= 0:
            head = self.held[: end + 4]
            found = LENGTH.search(head)
            whole = end + 4 + (int(found[1]) if found else 0)
            if len(self.held) < whole:
                return
            body, self.held = self.held[end + 4 : whole], self.held[whole:]
            self.answer(head.split()[1].decode(), body)

    def answer(self, path: str, body: bytes) -> None:
        status, document = b"404 Not Found", dict[str, Any]()
        if body:
            status = b"200 OK"
            document = {"jsonrpc": "2.0", "id": json.loads(body)["id"], "error": TASK_NOT_FOUND}
        elif path.endswith("/rpc" + CARD):
            status, document = b"200 OK", card(self.base + path.removesuffix(CARD))
        data = json.dumps(document).encode()
        head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self.transport.write(head % (status, len(data)) + data)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Agents, "127.0.0.1", 0, backlog=4096)
    print(f"ready http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)
    server.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
