"""200 agents on one port, as a program: `/aN/card` is the card of agent N, `/aN/rpc` its endpoint.

Prints `ready URL`, serves until its standard input ends, then prints the most requests that were open at once
and how many there were.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any

OPEN = MOST = TOTAL = 0
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def card(url: str) -> dict[str, Any]:
    return {
        "name": "fleet",
        "description": "one of many",
        "version": "1",
        "capabilities": {},
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
    }


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    global OPEN, MOST, TOTAL
    head = await reader.readuntil(b"\r\n\r\n")
    found = LENGTH.search(head)
    body = await reader.readexactly(int(found[1])) if found else b""
    OPEN, TOTAL = OPEN + 1, TOTAL + 1
    MOST = max(MOST, OPEN)
    await asyncio.sleep(0.005)  # so that probes overlap
    path = head.split()[1].decode()
    base = f"http://127.0.0.1:{writer.get_extra_info('sockname')[1]}"
    answer: dict[str, Any] = card(f"{base}{path.replace('card', 'rpc')}")
    if body:
        error = {"code": -32001, "message": "task not found"}
        answer = {"jsonrpc": "2.0", "id": json.loads(body)["id"], "error": error}
    data = json.dumps(answer).encode()
    OPEN -= 1
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data
    )
    writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(f"ready http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)
    server.close()
    print(MOST, TOTAL)


if __name__ == "__main__":
    asyncio.run(main())
