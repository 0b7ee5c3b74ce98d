"""A server that answers every Redis command with one line: the errors that a real one cannot be made to give."""

from __future__ import annotations

import asyncio
from typing import Self


class RefusingServer:
    """Use as `async with`; `answer` may be changed at any time."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while head := await reader.readline():
                for _ in range(int(head[1:])):  # an array of bulk strings
                    size = int((await reader.readline())[1:])
                    await reader.readexactly(size + 2)
                writer.write(self.answer.encode() + b"\r\n")
        except OSError:
            pass  # the other side has given up
        finally:
            writer.close()
