"""What a worker process and its parent tell each other, over a pair of sockets: frames of a kind and a payload."""

from __future__ import annotations

import asyncio
import socket
import struct
from enum import Enum
from typing import Any, Final

import msgspec

_HEAD: Final = struct.Struct("!cI")


class Kind(Enum):
    """What a frame says."""

    READY = b"R"
    """From the worker: it serves."""
    FAILED = b"F"
    """From the worker: it cannot start, and why, in one line."""
    PAGE = b"P"
    """From the parent: the metrics, please. From the worker: here they are; empty: there are none."""
    ALIVE = b"L"
    """From the parent: does the event loop turn? From the worker: it does."""
    SETTINGS = b"S"
    """From the worker: it has read the settings again, and these hold now."""
    SPREAD = b"A"
    """From the worker: the others shall read them again, too. From the parent: read them again."""


class Handover(msgspec.Struct, frozen=True):
    """What a worker needs to begin, on its standard input.

    Attributes:
        number: Tells it from the others: 0, 1, ...
        settings: What holds, as JSON.
        config: The file that the settings came from, if one was named.
        options: What the command line said, as for `settings.load`.
        metrics: The URL at which the parent serves the metrics of all.
        listener: Descriptor of the API's socket, where the system does not let processes bind the same port.
    """

    number: int
    settings: msgspec.Raw
    config: str | None
    options: dict[str, Any]
    metrics: str
    listener: int | None = None


def frame(kind: Kind, payload: bytes = b"") -> bytes:
    """Write a frame."""
    return _HEAD.pack(kind.value, len(payload)) + payload


async def receive(reader: asyncio.StreamReader) -> tuple[Kind, bytes] | None:
    """Read a frame; None when the other end is gone."""
    try:
        kind, length = _HEAD.unpack(await reader.readexactly(_HEAD.size))
        return Kind(kind), await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


async def streams(end: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Take one end over for the running event loop."""
    return await asyncio.open_unix_connection(sock=end)
