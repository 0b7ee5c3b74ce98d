"""The process as a server: listening sockets, signals, uvicorn, and the end of it all.

Call sequence (what `app.py` does)::

    api = bind(settings.server.host, settings.server.port)
    metrics = bind(settings.metrics.host, settings.metrics.port)
    lifecycle = Lifecycle(...)
    limits = ServerLimits(...)
    run(lambda: serve(app, api=api, metrics=metrics, lifecycle=lifecycle, limits=limits), lifecycle)

The application tells its listeners apart by `scope["server"][1]`, the local port.
"""

import asyncio
import contextlib
import functools
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, cast

import uvicorn
import uvloop
from uvicorn._types import ASGI3Application

from gateway.answering import ServerLimits
from gateway.heap import keep_house
from gateway.lifecycle import Lifecycle, Phase
from gateway.limits import Connections
from gateway.protocol import Caller, Door

logger = logging.getLogger(__name__)

BACKLOG = 2048
SHARES_PORTS = sys.platform == "linux"
"""Whether the system divides connections among processes that listen on one port (SO_REUSEPORT, socket(7))."""
ANSWER_SECONDS = 2.0
"""What answers in progress get after the drain before their connections are cut (contract 8: 5 s in all)."""
LIFESPAN_SECONDS = 2.0
"""What the application gets for its own shutdown."""
EXIT_SECONDS = 4.8
"""When the process ends after the drain whatever hangs (contract 8)."""


class BindError(Exception):
    """An address cannot be listened on; the text says which and why, in one line. The operator must act."""


class StartError(Exception):
    """The application's start-up failed (it has logged why)."""


def bind(host: str, port: int) -> socket.socket:
    """Listen on an address: IPv4, IPv6 (`::` takes both), or a name; port 0 lets the system choose.

    Raises:
        BindError: in use, not permitted, no such host or address.
    """
    listener = _bound(host, port)
    try:
        listener.listen(BACKLOG)  # here already, because only this claims the port for good
    except OSError as error:
        listener.close()
        raise _bind_error(host, port, error) from error
    return listener


def bind_shared(host: str, port: int) -> socket.socket:
    """Bind an address for one of several processes of this user, among which the system divides connections.

    It does not listen yet: connections would wait for a process that is not there to take them. That nobody else
    listens there must be known before: see `bind`. Only where `SHARES_PORTS`.

    Raises:
        BindError: see `bind`.
    """
    return _bound(host, port, socket.SO_REUSEPORT)


def _bound(host: str, port: int, *options: int) -> socket.socket:
    if not 0 <= port <= 65535:  # getaddrinfo would take it modulo 65536
        raise _bind_error(host, port, ValueError("port must be 0-65535"))
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # A name such as localhost may have both, and callers expect 127.0.0.1.
        family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise _bind_error(host, port, error) from error
    try:
        for option in (socket.SO_REUSEADDR, *options):
            listener.setsockopt(socket.SOL_SOCKET, option, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise _bind_error(host, port, error) from error
    listener.setblocking(False)
    return listener


def run(main: Callable[[], Coroutine[Any, Any, None]], lifecycle: Lifecycle) -> None:
    """Run the process's main coroutine on uvloop until it ends; SIGTERM and SIGINT start the drain.

    A second signal ends the process at once with 128 + its number, even if the event loop is stuck. When the
    drain is over the process has `EXIT_SECONDS`, even if a thread hangs. A start that is not over when the first
    signal comes is given up: then, too, the process has `EXIT_SECONDS`. SIGHUP goes to
    `lifecycle.hang_up`.
    """
    keep_house()
    watchdog = threading.Timer(EXIT_SECONDS, _give_up)
    watchdog.daemon = True

    def arm() -> None:
        if not watchdog.is_alive():
            watchdog.start()

    lifecycle.on_close(arm)
    try:
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        with _signals(runner.get_loop(), lifecycle, arm), runner:  # in this order: closing the loop takes time
            runner.run(_started_or_stopped(main(), lifecycle))
    finally:
        watchdog.cancel()


async def _started_or_stopped(main: Coroutine[Any, Any, None], lifecycle: Lifecycle) -> None:
    """Run `main` to its end, but give up a start during which the end is asked for: it may hang."""
    serving = asyncio.create_task(main)
    stopping = asyncio.create_task(lifecycle.stopping())
    await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if lifecycle.phase is Phase.STARTING and not serving.done():
        logger.info("told to end before the start was over")
        serving.cancel()
        await asyncio.wait((serving,))
    if not serving.cancelled():
        await serving


async def serve(
    app: ASGI3Application,
    *,
    api: socket.socket,
    metrics: socket.socket | None = None,
    lifecycle: Lifecycle,
    limits: ServerLimits | None = None,
    door: Door | None = None,
    connections: Connections | None = None,
) -> None:
    """Serve `app` on the listeners until `lifecycle.stop()` is called and the drain is over.

    Takes the sockets over and closes them. `app` gets ASGI lifespan messages, and its HTTP scopes carry
    `vitalgate.connection`, a `Caller`.

    Raises:
        StartError: the application failed in its lifespan start-up.
    """
    protocol = functools.partial(
        Caller, limits=limits or ServerLimits(), lifecycle=lifecycle, door=door, connections=connections
    )
    config = uvicorn.Config(
        app,
        http=cast(type[asyncio.Protocol], protocol),
        ws="none",
        lifespan="on",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
    )
    listeners = [api] if metrics is None else [api, metrics]
    try:
        await _Server(config, lifecycle, limits or ServerLimits()).serve(sockets=listeners)
    finally:
        for listener in listeners:
            listener.close()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, lifecycle: Lifecycle, limits: ServerLimits) -> None:
        super().__init__(config)
        self.lifecycle = lifecycle
        self.sweep_seconds = min(limits.request_timeout_seconds / 10, 1.0)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `run`: uvicorn's handlers know no drain, and raise the signal again at the end."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:
            raise StartError("the application did not start") from None
        except asyncio.CancelledError:
            self.config.lifespan = "auto"  # "on" has the end of a start that was given up logged as a fault
            raise

    async def main_loop(self) -> None:
        """Serve until somebody has called for the drain and it is over."""
        ticking = asyncio.create_task(super().main_loop())  # keeps the Date header
        sweeping = asyncio.create_task(self._sweep())
        self.lifecycle.started()
        try:
            await self.lifecycle.stopping()
            await self.lifecycle.drain()
        finally:
            sweeping.cancel()
            self.should_exit = True
            await ticking

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End every connection and the application within 5 s; uvicorn's way logs each handler it cancels."""
        connections, tasks = self.server_state.connections, self.server_state.tasks
        for server in self.servers:
            server.close()
        for caller in list(connections):
            caller.shutdown()
        await _settle(lambda: not connections and not tasks, ANSWER_SECONDS)
        for caller in list(connections):
            cast(Caller, caller).abort()
        for task in list(tasks):
            task.cancel()
        await _settle(lambda: not connections and not tasks, 0.5)
        try:
            async with asyncio.timeout(LIFESPAN_SECONDS):
                await self.lifespan.shutdown()
        except TimeoutError:
            logger.warning("closing down: the application takes longer than %g s, left alone", LIFESPAN_SECONDS)

    async def _sweep(self) -> None:
        """One timer for all connections: end those that keep others waiting."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.sweep_seconds)
            self._expire(loop.time())

    def _expire(self, now: float) -> None:
        """A function of its own, since the sweep's variables would keep the last caller until the next one."""
        for caller in list(self.server_state.connections):
            try:
                cast(Caller, caller).expire(now)
            except Exception:  # the sweep guards everybody: one connection must not end it
                logger.exception("sweeping %r failed", caller)


async def _settle(settled: Callable[[], bool], seconds: float) -> None:
    """Wait until something is so, for at most a few seconds: only used while the process ends."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not settled() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 (uvicorn's sets tell nobody)
        await asyncio.sleep(0.02)


@contextlib.contextmanager
def _signals(
    loop: asyncio.AbstractEventLoop, lifecycle: Lifecycle, give_up_in_time: Callable[[], None]
) -> Iterator[None]:
    # Plain handlers, not `loop.add_signal_handler`: they also run while the event loop does not.
    asked = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked or loop.is_closed():
            os._exit(128 + number)
        asked = True
        if lifecycle.phase is Phase.STARTING:
            give_up_in_time()  # from here: what the start hangs on may be the event loop
        loop.call_soon_threadsafe(lifecycle.stop)

    def hang_up(_number: int, _frame: FrameType | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(lifecycle.hang_up)

    handlers = {signal.SIGTERM: handle, signal.SIGINT: handle, signal.SIGHUP: hang_up}
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        del handlers[signal.SIGHUP]  # nohup: whoever started us wants no word of it
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _give_up() -> None:
    logger.warning("closing down: something still hangs after %g s, the process ends", EXIT_SECONDS)
    os._exit(0)


def _bind_error(host: str, port: int, error: Exception) -> BindError:
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    reason = getattr(error, "strerror", None) or str(error)
    return BindError(f"cannot listen on {where}: {reason[:1].lower()}{reason[1:]}")
