"""How the gateway starts, drains and ends (contract 8).

Knows neither signals nor sockets: `server.py` turns the former into `stop()` and closes the latter when
`drain()` has returned.
"""

import asyncio
import enum
import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Phase(enum.Enum):
    """Where the process stands; phases only ever follow one another in this order."""

    STARTING = "starting"
    SERVING = "serving"
    LEAVING = "leaving"
    """Not ready any more, but new calls are still served: load balancers need time to look away."""
    REFUSING = "refusing"
    """New calls are refused (`GATEWAY_SHUTDOWN`, safe to retry elsewhere); those in flight go on."""
    CLOSING = "closing"
    """Whatever is left is ended."""


class Lifecycle:
    """The phase of the process and the number of calls in flight.

    `ready` and `refusing` are plain attributes because they are read on every call. Not thread-safe: it
    all happens on the event loop.

    Args:
        shutdown_delay_seconds: how long new calls are still served after `/ready` turned 503.
        drain_seconds: how long calls in flight may then go on.
    """

    def __init__(self, *, shutdown_delay_seconds: float = 0, drain_seconds: float = 20) -> None:
        self.phase = Phase.STARTING
        self.ready = False
        self.refusing = False
        self.in_flight = 0
        self._shutdown_delay_seconds = shutdown_delay_seconds
        self._drain_seconds = drain_seconds
        self._stop = asyncio.Event()
        self._idle = asyncio.Event()
        self._starters: list[Callable[[], None]] = []
        self._leavers: list[Callable[[], None]] = []
        self._closers: list[Callable[[], None]] = []
        self._hung_up = False
        self._on_hangup: Callable[[], None] | None = None

    def begin(self) -> None:
        """Count a call in."""
        self.in_flight += 1

    def end(self) -> None:
        """Count a call out, exactly once for every `begin()`."""
        self.in_flight -= 1
        if self.refusing and not self.in_flight:
            self._idle.set()

    def on_leave(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once when the end begins, before the drain. It must not block."""
        self._leavers.append(callback)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once when the drain is over, to end what is left. It must not block."""
        self._closers.append(callback)

    def on_hangup(self, callback: Callable[[], None]) -> None:
        """Have `callback` called for each SIGHUP; at once if there was one already. It must not block."""
        self._on_hangup = callback
        if self._hung_up:
            callback()

    def hang_up(self) -> None:
        """Tell of a SIGHUP (contract 8)."""
        self._hung_up = True
        if self._on_hangup is not None:
            self._on_hangup()

    def on_start(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once calls are served."""
        self._starters.append(callback)

    def started(self) -> None:
        """Everything needed to serve is there."""
        if self.phase is Phase.STARTING:
            self._enter(Phase.SERVING)
            for callback in self._starters:
                callback()

    def stop(self) -> None:
        """Ask for the drain (idempotent); it begins wherever `stopping()` is awaited."""
        self._stop.set()

    async def stopping(self) -> None:
        """Wait until somebody calls `stop()`."""
        await self._stop.wait()

    async def drain(self) -> None:
        """Go from serving to closing; ends as soon as no call is in flight, or when the time is up."""
        self._enter(Phase.LEAVING)
        self._call(self._leavers)
        await asyncio.sleep(self._shutdown_delay_seconds)
        self._enter(Phase.REFUSING)
        if self.in_flight:
            await self._calls_to_end()
        self._enter(Phase.CLOSING)
        self._call(self._closers)

    def _call(self, callbacks: list[Callable[[], None]]) -> None:
        for callback in callbacks:
            try:
                callback()
            except Exception:
                logger.exception("closing down: %r failed, the rest goes on", callback)

    async def _calls_to_end(self) -> None:
        try:
            async with asyncio.timeout(self._drain_seconds):
                await self._idle.wait()
        except TimeoutError:
            logger.info("closing down: %d calls are cut off after the drain time", self.in_flight)

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.ready = phase is Phase.SERVING
        self.refusing = phase in (Phase.REFUSING, Phase.CLOSING)
        logger.debug("lifecycle: %s, %d calls in flight", phase.value, self.in_flight)
