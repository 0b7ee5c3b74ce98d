"""Connections to agents: a pool per agent, and what all pools share."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache, partial
from math import inf
from typing import Final

from gateway.upstream.addresses import AddressGuard
from gateway.upstream.connection import Connection
from gateway.upstream.dial import Dialer, Resolve, UnreachableError
from gateway.upstream.exchange import Deadlines, Exchange
from gateway.upstream.failures import CANCELLED, INTERNAL, LOST_CONNECTING, SPOKE_FIRST
from gateway.upstream.resolver import Resolver
from gateway.upstream.tls import client_context
from registry.url import Url

IDLE_SECONDS: Final = 4.0  # below the 5 s after which common agent servers close (contract 2.3)
_SWEEP_SECONDS: Final = 0.5
_MOST_IDLE: Final = 128
_CLOSE_SECONDS: Final = 2.0


class Dial:
    """An attempt to connect for one exchange; carries it until it has a connection."""

    __slots__ = ("_pool", "exchange", "task")

    task: asyncio.Task[None]

    def __init__(self, pool: Pool, exchange: Exchange) -> None:
        self._pool = pool
        self.exchange = exchange

    def drop(self) -> None:
        """Stop connecting."""
        self.task.cancel()

    def pause(self) -> None:
        """Nothing is read yet."""

    def resume(self) -> None:
        """Nothing was paused."""

    async def run(self) -> None:
        """Connect and send; the exchange fails if that cannot be."""
        failure = LOST_CONNECTING
        try:
            for _ in range(2):  # a connection may be gone before anything was written to it
                connection = await self._pool.connect()
                if connection.usable():
                    connection.send(self.exchange)
                    return
                connection.abort()
                if connection.spoke_first:
                    failure = SPOKE_FIRST
                    break
        except UnreachableError as error:
            failure = error.failure
        except Exception as error:  # the edge: a fault of ours must not leave the caller waiting
            self._pool.report(error)
            failure = INTERNAL
        # A repeated request has been written once before: the agent may have seen it.
        self.exchange.finish(replace(failure, connecting=not self.exchange.written))


class Pool:
    """The connections to one agent.

    Attributes:
        authority: Value of the Host header.
        target: Request target, as registered.
        scheme: "http" or "https".
    """

    __slots__ = ("_closed", "_idle", "_time", "_upstream", "_url", "authority", "scheme", "swept", "target")

    def __init__(self, upstream: Upstream, url: Url) -> None:
        self._upstream = upstream
        self._url = url
        self.authority = url.authority
        self.target = url.target
        self.scheme = url.scheme
        self.swept = False  # whether the sweep looks at this pool
        self._idle: list[Connection] = []  # the last used last: those in front grow old
        self._closed = False
        self._time = upstream.loop.time

    def start(self, exchange: Exchange) -> None:
        """Begin an exchange: on an idle connection at once, else on a fresh one. Never calls `done`."""
        if exchange.over:
            return
        now = self._time()
        if exchange.deadline <= now:
            self._upstream.loop.call_soon(exchange.expire)
            return
        idle = self._idle
        while idle:
            connection = idle.pop()
            if now - connection.idle_since < IDLE_SECONDS and connection.alive():
                connection.send(exchange)
                break
            connection.abort()
        else:
            self.dial(exchange)
        self._upstream.deadlines.watch(exchange)

    def close(self) -> None:
        """Close the idle connections now, the others when their exchange is over."""
        self._closed = True
        self.drop_idle(inf)

    # For connections, dials and the sweep

    def dial(self, exchange: Exchange) -> None:
        """Send an exchange on a fresh connection."""
        dial = Dial(self, exchange)
        exchange.carrier = dial
        self._upstream.run(dial)

    async def connect(self) -> Connection:
        """Make a connection.

        Raises:
            UnreachableError: there is none.
        """
        connection = Connection(self)
        self._upstream.connecting += 1
        try:
            await self._upstream.dialer.connect(self._url, connection)
        except BaseException:  # cancelled, mostly
            if connection in self._upstream.connections:
                connection.abort()
                self.lost(connection)  # uvloop may have closed it without a word
            raise
        finally:
            self._upstream.connecting -= 1
        return connection

    def report(self, error: Exception) -> None:
        """Report a fault of ours."""
        self._upstream.loop.call_exception_handler(
            {"message": "fault while connecting to an agent", "exception": error}
        )

    def opened(self, connection: Connection) -> None:
        """Count a new connection."""
        self._upstream.connections.add(connection)

    def lost(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._upstream.gone(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def put(self, connection: Connection) -> None:
        """Take back a connection that may be used again."""
        if self._closed or len(self._idle) >= _MOST_IDLE:
            connection.abort()
            return
        connection.idle_since = self._time()
        self._idle.append(connection)
        if not self.swept:
            self._upstream.sweep(self)

    @property
    def idle(self) -> int:
        """Number of idle connections."""
        return len(self._idle)

    def drop_idle(self, before: float) -> None:
        """Close the connections that have been idle since before that time."""
        old = [connection for connection in self._idle if connection.idle_since < before]
        del self._idle[: len(old)]
        for connection in old:
            connection.abort()


class Upstream:
    """What the pools share. Belongs to the event loop in which the first pool is made.

    Attributes:
        connecting: Attempts to connect that are under way.
        connections: Open connections, idle ones included.
    """

    loop: asyncio.AbstractEventLoop
    deadlines: Deadlines
    dialer: Dialer

    def __init__(
        self,
        *,
        guard: AddressGuard,
        ca_file: str | None = None,
        client_cert: str | None = None,
        client_key: str | None = None,
        tls_skip_verify: bool = False,
        resolve: Resolve | None = None,
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            guard: Where connections may go.
            ca_file: PEM file of authorities, beside the system's.
            client_cert: PEM file of the certificate to show to agents.
            client_key: PEM file of its key.
            tls_skip_verify: Accept any certificate.
            resolve: Stands in for the resolver: host and port → what `getaddrinfo` returns.

        Raises:
            ValueError: a file cannot be used; names the setting.
        """
        self.connecting = 0
        self.connections: set[Connection] = set()
        self._guard = guard
        self._resolve = resolve
        self._tls = cache(
            partial(
                client_context,
                ca_file=ca_file,
                client_cert=client_cert,
                client_key=client_key,
                skip_verify=tls_skip_verify,
            )
        )
        if ca_file or client_cert or client_key:  # else the first https agent is early enough
            self._tls()
        self._dials: set[Dial] = set()
        self._swept: set[Pool] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event | None = None

    def pool(self, url: Url) -> Pool:
        """Make the pool for an agent."""
        if self._emptied is None:
            self.loop = asyncio.get_running_loop()
            self.deadlines = Deadlines(self.loop)
            self.dialer = Dialer(self._guard, self._resolve or Resolver(), self._tls)
            self._emptied = asyncio.Event()
        return Pool(self, url)

    @property
    def open(self) -> int:
        """Number of open connections."""
        return len(self.connections)

    @property
    def idle(self) -> int:
        """Number of idle connections."""
        return sum(pool.idle for pool in self._swept)

    async def aclose(self) -> None:
        """End everything: running exchanges fail with CANCELLED, connections are closed, timers stopped."""
        if self._emptied is None:
            return
        self.cancel_all()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self.deadlines.close()
        if self.connections:
            self._emptied.clear()
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._emptied.wait()

    def cancel_all(self) -> None:
        """End everything that runs: exchanges fail with CANCELLED, connections are closed."""
        for dial in list(self._dials):
            dial.exchange.fail(replace(CANCELLED, connecting=not dial.exchange.written))
        for connection in list(self.connections):
            connection.fail(CANCELLED)

    # For pools

    def run(self, dial: Dial) -> None:
        """Start an attempt to connect, and keep it until it is over."""
        self._dials.add(dial)
        dial.task = self.loop.create_task(dial.run())
        dial.task.add_done_callback(lambda _: self._dials.discard(dial))

    def gone(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self.connections.discard(connection)
        if not self.connections and self._emptied is not None:
            self._emptied.set()

    def sweep(self, pool: Pool) -> None:
        """Look after the idle connections of a pool until it has none."""
        pool.swept = True
        self._swept.add(pool)
        if self._sweeper is None:
            self._sweeper = self.loop.call_later(_SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        before = self.loop.time() - IDLE_SECONDS
        for pool in list(self._swept):
            pool.drop_idle(before)
            if not pool.idle:
                pool.swept = False
                self._swept.discard(pool)
        self._sweeper = self.loop.call_later(_SWEEP_SECONDS, self._sweep) if self._swept else None
