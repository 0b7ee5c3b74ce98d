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
import sys
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
from gateway.worker_channel import Handover, Kind, frame, receive, streams
from gateway.worker_pages import merged

logger = logging.getLogger(__name__)

PAGE_SECONDS: Final = 3.0
"""What a worker has for writing its metrics; then the page is made without it."""
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
        self._workers = [_Worker(number, self) for number in range(count)]

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

    def ready(self, worker: _Worker) -> None:
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

    def spread(self, sender: _Worker) -> None:
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

    async def _keep(self, worker: _Worker) -> None:
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


class _Worker:
    """One worker, over all its processes."""

    def __init__(self, number: int, parent: Workers) -> None:
        self.number = number
        self.restarts = 0
        self.ready = False
        self.pid = 0
        self._parent = parent
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._page: asyncio.Future[str | None] | None = None
        self._hung_up = False

    async def run(self) -> str:
        """Start a process and wait for its end; give why it ended."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await self._start(theirs)
        self.pid = self._process.pid
        if self._parent.ending:
            self.send_signal(signal.SIGTERM)
        reader, self._writer = await streams(ours)
        try:
            failure = await self._listen(reader)
            code = await self._process.wait()
        finally:
            self.send_signal(signal.SIGKILL)  # nothing, if it has ended
            self.ready, self._process = False, None
            self._writer.close()
            self._answer(None)
        return failure or f"worker {self.number} (pid {self.pid}) was ended by {_cause(code)}"

    async def _start(self, channel: socket.socket) -> asyncio.subprocess.Process:
        handover = self._parent.handover(self.number)
        passed = [channel.fileno()] if handover.listener is None else [channel.fileno(), handover.listener]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "gateway.worker", str(channel.fileno())),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=passed,
            process_group=0,  # Ctrl-C reaches the parent alone, which passes it on once
        )
        stdin = cast(asyncio.StreamWriter, process.stdin)
        stdin.write(msgspec.json.encode(handover))
        with contextlib.suppress(ConnectionError):  # it has ended already, which will be noticed
            await stdin.drain()
        stdin.close()
        return process

    async def _listen(self, reader: asyncio.StreamReader) -> str:
        """Hear what the worker says until it ends; give the failure that it reported."""
        failure = ""
        while (found := await receive(reader)) is not None:
            kind, payload = found
            if kind is Kind.READY:
                self.ready = True
                if self._hung_up:
                    self.hang_up()
                self._parent.ready(self)
            elif kind is Kind.PAGE:
                self._answer(payload.decode() if payload else None)
            elif kind is Kind.SETTINGS:
                self._parent.took(Settings(**msgspec.json.decode(payload)))
            elif kind is Kind.SPREAD:
                self._parent.spread(self)
            elif kind is Kind.FAILED:
                failure = payload.decode(errors="replace")
        return failure

    def send_signal(self, number: int) -> None:
        """Signal the process, if there is one."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def hang_up(self) -> None:
        """Have it read the settings again, as soon as it serves."""
        self._hung_up = not self.ready
        if self.ready and self._writer is not None:
            self._writer.write(frame(Kind.SPREAD))  # no signal: under nohup that is ignored

    async def page(self) -> str | None:
        """Ask for the metrics; None if they do not come in time. A hung worker is asked once."""
        if not self.ready or self._writer is None:
            return None
        if self._page is None:
            self._page = asyncio.get_running_loop().create_future()
            self._writer.write(frame(Kind.PAGE))
        try:
            async with asyncio.timeout(PAGE_SECONDS):
                return await asyncio.shield(self._page)
        except TimeoutError:
            return None

    def _answer(self, page: str | None) -> None:
        if self._page is not None:
            self._page.set_result(page)
            self._page = None


def _cause(code: int) -> str:
    """What ended a process, from its exit code as subprocess gives it."""
    if code >= 0:
        return f"itself with exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
