"""One of several processes that share a port: what `workers.py` starts, as `python -m gateway.worker FD`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn

import msgspec

from gateway.errors import StartError
from gateway.lifecycle import Lifecycle
from gateway.logs import Logs
from gateway.settings import Settings, load
from gateway.worker_channel import Handover, Kind, frame, receive, streams

logger = logging.getLogger(__name__)

CANNOT_START = 3


class Worker:
    """The worker's end of the channel: says that it serves, hands out its metrics, and ends with its parent."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._serving = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None

    def attend(self, page: Callable[[], Awaitable[bytes]], lifecycle: Lifecycle) -> None:
        """Begin, in the running event loop; `page` writes the metrics."""
        lifecycle.on_start(self._serving.set)
        self._task = asyncio.create_task(self._attend(page, lifecycle), name="worker's channel")

    def took(self, settings: Settings) -> None:
        """Tell which settings hold now: a worker that is started again begins with them."""
        self._say(Kind.SETTINGS, settings.model_dump_json(by_alias=True).encode())

    def spread(self) -> None:
        """Have the others read the settings again, too."""
        self._say(Kind.SPREAD)

    def _say(self, kind: Kind, payload: bytes = b"") -> None:
        if self._writer is not None:
            self._writer.write(frame(kind, payload))

    async def _attend(self, page: Callable[[], Awaitable[bytes]], lifecycle: Lifecycle) -> None:
        reader, self._writer = await streams(self._channel)
        announcing = asyncio.create_task(self._announce())
        try:
            while (found := await receive(reader)) is not None:
                if found[0] is Kind.PAGE:
                    self._say(Kind.PAGE, await _written(page))
                elif found[0] is Kind.ALIVE:
                    self._say(Kind.ALIVE)
                elif found[0] is Kind.SPREAD:
                    lifecycle.hang_up()
        finally:
            announcing.cancel()
            self._writer.close()
            lifecycle.stop()  # the parent is gone, and nobody else would end us

    async def _announce(self) -> None:
        await self._serving.wait()
        self._say(Kind.READY)


async def _written(page: Callable[[], Awaitable[bytes]]) -> bytes:
    try:
        return await page()
    except Exception:  # the edge: the parent must get an answer
        logger.exception("writing the metrics failed")
        return b""


def main() -> NoReturn:
    """Serve as the handover says, until a signal or the parent's end."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    told = channel.dup()  # the event loop closes the other one
    os.set_inheritable(channel.fileno(), False)
    handover = msgspec.json.decode(sys.stdin.buffer.read(), type=Handover)
    try:
        _serve(handover, Worker(channel))
    except StartError as error:
        _fail(told, str(error))
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        _fail(told, f"{named}{error.strerror or error}")
    sys.exit(0)


def _fail(channel: socket.socket, reason: str) -> NoReturn:
    with contextlib.suppress(OSError):  # the parent is gone as well
        channel.sendall(frame(Kind.FAILED, reason.encode()))
    sys.exit(CANNOT_START)


def _serve(handover: Handover, worker: Worker) -> None:
    from gateway import app, server
    from gateway.listeners import Listeners
    from registry.errors import StoreError

    settings = Settings(**msgspec.json.decode(handover.settings))
    host, port = settings.server.host, settings.server.port
    try:
        if handover.listener is None:
            api = server.bind_shared(host, port)
        else:
            api = socket.socket(fileno=handover.listener)
        logs = Logs(
            level=settings.log.level,
            form=settings.log.format,
            calls=settings.log.calls,
            worker=handover.number,
        )
        with contextlib.closing(logs):
            app.serve_as(
                Listeners(api, None, handover.metrics),
                settings,
                logs,
                reread=lambda: load(handover.config, os.environ, handover.options, again=True).settings,
                worker=worker,
            )
    except (server.BindError, server.StartError, StoreError) as error:
        raise StartError(str(error)) from error


if __name__ == "__main__":
    main()
