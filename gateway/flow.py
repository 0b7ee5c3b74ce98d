# ruff: noqa: D102 (the interface is uvicorn's)
"""Flow control of one caller's connection: uvicorn's, but light: an event is made only for who waits.

Most connections never wait, and some thousand of them may be open streams.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.flow_control import FlowControl


class Flow(FlowControl):
    """Whether the connection is read from, and whether its caller keeps up."""

    __slots__ = ("_reader", "_waiting", "read_paused", "write_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._reader = transport
        self._waiting: asyncio.Event | None = None
        self.read_paused = False
        self.write_paused = False

    async def drain(self) -> None:
        if self.write_paused:
            if self._waiting is None:
                self._waiting = asyncio.Event()
            await self._waiting.wait()

    def pause_reading(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            self._reader.pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            self._reader.resume_reading()

    def pause_writing(self) -> None:
        self.write_paused = True

    def resume_writing(self) -> None:
        self.write_paused = False
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.set()
