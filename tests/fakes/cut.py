"""A TCP proxy whose wire can be cut: connections stay open, nothing goes through, new ones hang."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Self


class Cut:
    """Forwards to a loopback port. Use as `async with`."""

    def __init__(self, target: int, *, tls: ssl.SSLContext | None = None) -> None:
        """Forwards to the port `target`; with `tls`, what comes is decrypted first."""
        self._target = target
        self._tls = tls
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.drop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Nothing goes through from now on, and nobody is told."""
        self._whole.clear()

    def mend(self) -> None:
        """What was written meanwhile goes through, too."""
        self._whole.set()

    def drop(self) -> None:
        """Closes all connections."""
        for writer in self._writers:
            writer.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._whole.wait()
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers |= {writer, far_writer}
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
        self._writers.discard(writer)
        writer.close()
