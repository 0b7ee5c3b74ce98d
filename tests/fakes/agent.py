"""A scriptable agent on a real socket: it answers exactly what a test tells it to, byte for byte.

    async with FaultAgent() as agent:
        agent.next(reply.reset())              # the next request only
        agent.always(reply.result({"ok": 1}))  # every request for which nothing is queued
        ...
        request = await agent.received(1)      # what came in: raw bytes, head list, body, connection
        await agent.closed(1)                  # the peer has closed connection 1; gives the loop time of it

What it can do stands in `tests.fakes.reply`. Everything happens in the running event loop; nothing sleeps
except the behaviours whose point is slowness, and those end when the peer leaves or the agent is closed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable

from tests.fakes import reply
from tests.fakes.connection import (
    WAIT_SECONDS,
    Behaviour,
    Connection,
    Log,
    Received,
    deadline,
    raw_id,
    read_request,
)

__all__ = ["Behaviour", "Connection", "FaultAgent", "Log", "Received", "raw_id"]


class FaultAgent:
    """An HTTP agent on a port of its own choosing that misbehaves as told. Use it as `async with`."""

    def __init__(
        self, *, host: str = "127.0.0.1", path: str = "/", tls: ssl.SSLContext | None = None, name: str = ""
    ) -> None:
        self.host = host
        self.path = path
        self.name = name or ("localhost" if tls else host)
        """The host name in `url`: `localhost` with TLS, since that is what certificates are made out to."""
        self.requests: Log[Received] = Log("requests")
        self.connections: Log[Connection] = Log("connections")
        self.errors: list[Exception] = []
        self._tls = tls
        self._queue: deque[Behaviour] = deque()
        self._default = reply.echo()
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Event()

    async def __aenter__(self) -> FaultAgent:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self), self.host, 0, ssl=self._tls, backlog=1024
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.close()
        if error is None and self.errors:
            raise self.errors[0]  # a behaviour that broke: a fault of the test, not of the peer

    async def close(self) -> None:
        """Stops listening, ends what the behaviours are doing, and closes every connection."""
        assert self._server is not None
        self._server.close()
        for connection in self.connections:
            await connection.stop()
        await self._server.wait_closed()

    # -- script

    def next(self, *behaviours: Behaviour) -> None:
        """Queues behaviours: one request (or new connection) each, in order."""
        self._queue.extend(behaviours)

    def always(self, behaviour: Behaviour) -> None:
        """What happens whenever the queue is empty; until this is called, `reply.echo()`."""
        self._default = behaviour

    # -- address

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    @property
    def authority(self) -> str:
        host = f"[{self.name}]" if ":" in self.name else self.name
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return self.at(self.path)

    def at(self, path: str) -> str:
        """The agent's URL with another path (and query)."""
        return f"{'https' if self._tls else 'http'}://{self.authority}{path}"

    # -- what happened

    async def received(self, number: int, within: float = WAIT_SECONDS) -> Received:
        """The request with that number (from 1), as soon as it is complete."""
        return await self.requests.reach(number, within)

    async def connected(self, number: int, within: float = WAIT_SECONDS) -> Connection:
        return await self.connections.reach(number, within)

    async def closed(self, connection: int, within: float = WAIT_SECONDS) -> float:
        """The loop time at which the peer closed that connection (number from 1), as soon as it has."""
        peer = await self.connected(connection, within)
        over = f"close of connection {connection}"
        await self._until(lambda: peer.closed_at is not None or peer.ended_by_us, within, over)
        assert peer.closed_at is not None, f"connection {connection} was closed by the agent, not by the peer"
        return peer.closed_at

    async def all_closed(self, within: float = WAIT_SECONDS) -> None:
        """Returns when no connection is open any more."""
        await self._until(lambda: self.open_connections == 0, within, "close of every connection")

    @property
    def open_connections(self) -> int:
        return sum(connection.open for connection in self.connections)

    def changed(self) -> None:
        """A connection has changed its state: wakes those who wait for it."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _until(self, true: Callable[[], bool], within: float, what: str) -> None:
        with deadline(within, lambda: f"{what} did not happen ({self.open_connections} open)"):
            async with asyncio.timeout(within):
                while not true():
                    await self._changed.wait()

    # -- serving

    async def serve(self, connection: Connection) -> None:
        """The life of one connection: the task of `Connection`."""
        try:
            await self._serve(connection)
        except ConnectionError:
            pass  # the peer has left, or the behaviour ended the connection
        except Exception as error:
            self.errors.append(error)
        finally:
            if not connection.lost:
                connection.close()
            self.changed()

    async def _serve(self, connection: Connection) -> None:
        if (first := self._upcoming()).when == "connect":
            self._take()
            await first.run(connection, None)
        while True:
            request = await read_request(connection, len(self.requests) + 1)
            self.requests.append(request)
            await self._take().run(connection, request)
            if request.version == "HTTP/1.0" or "close" in (request.header("connection") or "").lower():
                return

    def _upcoming(self) -> Behaviour:
        return self._queue[0] if self._queue else self._default

    def _take(self) -> Behaviour:
        behaviour = self._upcoming()
        if self._queue:
            self._queue.popleft()
        return behaviour
