"""Raw sockets towards a server: for requests that no client would send."""

from __future__ import annotations

import asyncio
from pathlib import Path

FIN_WAIT_1 = "04"
"""The state of a connection that was closed with data on its way."""


async def open_raw(port: int, *, limit: int = 1 << 20) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a port of this machine."""
    return await asyncio.open_connection("127.0.0.1", port, limit=limit)


async def exchange(port: int, data: bytes, *, seconds: float = 10) -> bytes:
    """Send bytes and give everything that comes back until the server closes."""
    reader, writer = await open_raw(port)
    try:
        writer.write(data)
        async with asyncio.timeout(seconds):
            return await reader.read(-1)
    finally:
        writer.close()


def tcp_state(local: int, remote: int) -> str | None:
    """Give the kernel's state of a loopback connection, seen from the end with the port `local`."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, here, there, state, *_ = line.split()
        if (here, there) == (f"0100007F:{local:04X}", f"0100007F:{remote:04X}"):
            return state
    return None
