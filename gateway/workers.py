"""`vitalgate serve --workers N`: the parent of N processes that share the API's port (contract 1, 7, 8).

It serves no calls. It starts the workers, starts one again that has ended, passes signals on, and serves the
metrics of all on the metrics port. Each worker is a whole gateway (`worker.py`); what they share is in the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final, cast

import msgspec

from gateway import server
from gateway.errors import StartError
from gateway.lifecycle import Lifecycle
from gateway.listeners import Listeners, announce, bind_api, bind_metrics
from gateway.logs import Logs
from gateway.rest import Receive, Scope, Send, serve_metrics
from gateway.settings import Settings
from gateway.worker_channel import Handover
from gateway.worker_pages import merged
from gateway.worker_process import WorkerProcess

logger = logging.getLogger(__name__)

END_SECONDS: Final = 4.9
"""What workers have after delay and drain before they are killed (contract 8: 5 s in all)."""
FIRST_PAUSE: Final = 0.1
"""Seconds before a worker that has ended is started again, doubled each time, until it has served for a while."""
LONGEST_PAUSE: Final = 30.0
SETTLED_SECONDS: Final = 60.0
_HURRY_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Source:
    """Where the settings came from, for workers that read them again; see `Handover`."""

    config: str | None
    options: Mapping[str, Any]


def serve(
    settings: Settings, source: Source, count: int, beside: contextlib.AbstractContextManager[None] | None = None
) -> int:
    """Run so many workers until a signal ends them; give the exit code. `beside`: see `app.serve`.

    Raises:
        StartError: a worker cannot start.
        BindError: an address cannot be listened on.
    """
    logs = Logs(level=settings.log.level, form=settings.log.format, calls=settings.log.calls)
    with contextlib.closing(logs), contextlib.ExitStack() as sockets:
        api = sockets.enter_context(_claim(settings.server.host, settings.server.port))
        port = api.getsockname()[1]
        if port == settings.metrics.port:
            raise server.BindError(f"port {port} is that of the metrics: choose server.port")
        metrics = sockets.enter_context(bind_metrics(settings))
        if not settings.server.port:  # chosen by the system: the same for all, and no change when they read again
            settings = settings.model_copy(update={"server": settings.server.model_copy(update={"port": port})})
            source = Source(source.config, {**source.options, "server.port": port})
        if beside is not None:
            sockets.enter_context(beside)
        return asyncio.run(Workers(Listeners(api, metrics), settings, source, count, logs).run())


def _claim(host: str, port: int) -> socket.socket:
    """Find out that nobody else listens there, and keep the port for the workers.

    The socket listens only where workers must share it.
    """
    listener = bind_api(host, port)
    if not server.SHARES_PORTS:
        return listener
    found = listener.getsockname()[1]
    listener.close()
    return server.bind_shared(host, found)


class Workers:
    """The workers of one parent."""

    def __init__(self, listeners: Listeners, settings: Settings, source: Source, count: int, logs: Logs) -> None:
        self._listeners = listeners
        self._settings = settings
        self._source = source
        self._logs = logs
        self._ended = asyncio.Event()
        self._hurried = asyncio.Event()
        self._signal = 0
        self._failure: str | None = None
        self._all_ready = asyncio.Event()
        self._workers = [WorkerProcess(number, self) for number in range(count)]

    async def run(self) -> int:
        """Run the workers until a signal comes; give the exit code.

        Raises:
            StartError: one cannot start; the others have ended, too.
        """
        with self._signals():
            keepers = [asyncio.create_task(self._keep(worker)) for worker in self._workers]
            lifecycle = Lifecycle(drain_seconds=0)
            page = asyncio.create_task(
                server.serve(
                    cast(Any, self._serve_page),
                    api=cast(socket.socket, self._listeners.metrics),
                    lifecycle=lifecycle,
                )
            )
            try:
                await self._started()
                await self._ended.wait()
            finally:
                await self._end(keepers)
                lifecycle.stop()
                await page
        if self._failure is not None:
            raise StartError(self._failure)
        if self._hurried.is_set():
            return 128 + self._signal
        self._logs.event("stopped")
        return 0

    async def _started(self) -> None:
        """Announce the gateway when every worker serves."""
        waits = [asyncio.create_task(one.wait()) for one in (self._all_ready, self._ended)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if self._all_ready.is_set():
            announce(self._listeners, self._settings, self._logs, version("vitalgate"), workers=len(self._workers))

    @property
    def ending(self) -> bool:
        """Whether the workers were told to end."""
        return self._ended.is_set()

    # -- what workers report

    def ready(self, worker: WorkerProcess) -> None:
        """Note that a worker serves."""
        if not self._all_ready.is_set() and all(one.ready for one in self._workers):
            self._all_ready.set()
        elif worker.restarts:
            self._logs.event("worker serves again", worker=worker.number, pid=worker.pid)

    def took(self, settings: Settings) -> None:
        """Note the settings that a worker has read."""
        self._settings = settings
        log = settings.log
        self._logs.change(level=log.level, form=log.format, calls=log.calls)

    def spread(self, sender: WorkerProcess) -> None:
        """Have the other workers read the settings again."""
        for worker in self._workers:
            if worker is not sender:
                worker.hang_up()

    def handover(self, number: int) -> Handover:
        """Give what a worker begins with."""
        settings = msgspec.Raw(self._settings.model_dump_json(by_alias=True).encode())
        options, metrics = dict(self._source.options), self._listeners.addresses()["metrics"]
        listener = None if server.SHARES_PORTS else self._listeners.api.fileno()
        return Handover(number, settings, self._source.config, options, metrics, listener)

    # -- their lives

    async def _keep(self, worker: WorkerProcess) -> None:
        """Run a worker, and again when it ends, until all shall end."""
        pause = FIRST_PAUSE
        while not self._ended.is_set():
            began = time.monotonic()
            try:
                why = await worker.run()
            except Exception as error:  # the edge: whatever it is, the worker must be kept
                logger.exception("keeping a worker failed", extra={"fields": {"number": worker.number}})
                why = f"worker {worker.number} cannot be kept: {getattr(error, 'strerror', None) or error}"
            if self._ended.is_set():
                return
            if not self._all_ready.is_set():
                self._failure = why
                self._ended.set()
                return
            if time.monotonic() - began > SETTLED_SECONDS:
                pause = FIRST_PAUSE
            logger.error("a worker has ended, and is started again", extra={"fields": {"reason": why}})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._ended.wait()
            pause = min(2 * pause, LONGEST_PAUSE)
            worker.restarts += 1

    async def _end(self, keepers: list[asyncio.Task[None]]) -> None:
        """Wait for the workers to end, for as long as they may take, and kill the rest."""
        self._ended.set()
        seconds = END_SECONDS
        if self._failure is None:
            seconds += self._settings.server.shutdown_delay_seconds + self._settings.server.drain_seconds
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)  # also for SIGINT, on which Python has much to say while it starts
        hurried = asyncio.create_task(self._hurried.wait())
        gone = asyncio.gather(*keepers)
        await asyncio.wait((gone, hurried), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not gone.done():
            await asyncio.wait((gone,), timeout=_HURRY_SECONDS if self._hurried.is_set() else 0)
        for worker in self._workers:
            worker.send_signal(signal.SIGKILL)
        hurried.cancel()
        await gone

    # -- signals

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handlers: dict[int, Callable[[], None]] = {
            number: lambda number=number: self._asked(number)  # type: ignore[misc]
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup: whoever started us wants no word of it
            handlers[signal.SIGHUP] = self._hung_up
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def _asked(self, number: int) -> None:
        """End; the second time, at once."""
        if self._signal:
            for worker in self._workers:
                worker.send_signal(signal.SIGTERM)
            self._hurried.set()
        self._signal = number
        self._ended.set()

    def _hung_up(self) -> None:
        for worker in self._workers:
            worker.hang_up()

    # -- metrics

    async def _serve_page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application of the metrics port."""
        if scope["type"] == "http":
            await serve_metrics(self, scope, send)
            return
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})

    async def page(self) -> bytes:
        """Write the metrics of all workers."""
        pages = await asyncio.gather(*(worker.page() for worker in self._workers))
        restarts = {worker.number: worker.restarts for worker in self._workers}
        return merged(dict(enumerate(pages)), restarts).encode()
