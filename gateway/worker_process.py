"""One worker as its parent sees it: started, listened to, asked whether it lives, ended (contract 7, 8)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from typing import Final, Protocol, cast

import msgspec

from gateway.settings import Settings
from gateway.worker_channel import Handover, Kind, frame, receive, streams

logger = logging.getLogger(__name__)

PAGE_SECONDS: Final = 3.0
"""What a worker has for writing its metrics; then the page is made without it."""
ALIVE_SECONDS: Final = 10.0
"""How often a worker is asked whether its event loop turns."""
ASKED_BEFORE_KILLED: Final = 3
"""A worker that has answered none of so many questions is killed, and so started again."""


class Parent(Protocol):
    """Whom a worker's reports reach."""

    @property
    def ending(self) -> bool:
        """Whether the workers were told to end."""

    def handover(self, number: int) -> Handover:
        """Give what a worker begins with."""

    def ready(self, worker: WorkerProcess) -> None:
        """Note that a worker serves."""

    def took(self, settings: Settings) -> None:
        """Note the settings that a worker has read."""

    def spread(self, sender: WorkerProcess) -> None:
        """Have the other workers read the settings again."""


class WorkerProcess:
    """One worker, over all its processes."""

    def __init__(self, number: int, parent: Parent) -> None:
        self.number = number
        self.restarts = 0
        self.ready = False
        self.pid = 0
        self._parent = parent
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._page: asyncio.Future[str | None] | None = None
        self._hung_up = False
        self._answered = asyncio.Event()

    async def run(self) -> str:
        """Start a process and wait for its end; give why it ended."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await self._start(theirs)
        self.pid = self._process.pid
        if self._parent.ending:
            self.send_signal(signal.SIGTERM)
        reader, self._writer = await streams(ours)
        watching = asyncio.create_task(self._watch())
        try:
            failure = await self._listen(reader)
            watching.cancel()
            code = await self._process.wait()
        finally:
            watching.cancel()
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
            elif kind is Kind.ALIVE:
                self._answered.set()
            elif kind is Kind.SETTINGS:
                self._parent.took(Settings(**msgspec.json.decode(payload)))
            elif kind is Kind.SPREAD:
                self._parent.spread(self)
            elif kind is Kind.FAILED:
                failure = payload.decode(errors="replace")
        return failure

    async def _watch(self) -> None:
        """Kill the process when its event loop turns no more: the system still gives it its part of the callers.

        It is asked several times, since the silence may be this process's own.
        """
        asked = 0
        while asked < ASKED_BEFORE_KILLED:
            self._answered.clear()
            if self.ready and self._writer is not None:
                self._writer.write(frame(Kind.ALIVE))
                asked += 1
            await asyncio.sleep(ALIVE_SECONDS)
            if self._answered.is_set():
                asked = 0
        logger.error("a worker hangs, and is killed", extra={"fields": {"worker": self.number, "pid": self.pid}})
        self.send_signal(signal.SIGKILL)

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
