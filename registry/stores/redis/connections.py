"""Connections to Redis or Valkey: the only file that knows redis-py, and where its exceptions end.

redis-py's own client is not used: its defaults retry for a minute (pitfall 164), and it costs more than what the
registry does. A connection carries one command at a time; one that failed or was left is never used again, so that
no answer can come to the wrong question.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from redis import exceptions as redis_errors
from redis.asyncio.connection import AbstractConnection, Connection, ConnectionPool, SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff

from registry.errors import StoreUnavailable
from registry.redis_url import Address

MOST = 16
"""Commands under way at once; others wait for their turn."""

Argument: TypeAlias = str | bytes | int

_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (redis_errors.AuthenticationError, "user or password are refused: set them in registry.url"),
    (redis_errors.AuthorizationError, "the user may not do this: give it more rights"),
    (redis_errors.NoPermissionError, "the user may not do this: give it more rights"),
    (redis_errors.BusyLoadingError, "it is still loading its data"),
    (MasterNotFoundError, "the Sentinels name no master"),
    (redis_errors.ReadOnlyError, "it is a read-only replica"),
    (redis_errors.OutOfMemoryError, "it is out of memory"),
    (redis_errors.MasterDownError, "it has lost its master"),
    (redis_errors.MovedError, "it is a Redis Cluster, which is not supported"),
    (redis_errors.InvalidResponse, "its answer is not that of a Redis or Valkey"),
    (redis_errors.TimeoutError, "no answer in time"),
    (TimeoutError, "no answer in time"),
    (redis_errors.ConnectionError, "no connection"),
)
_CODES = {
    "MASTERDOWN": "it has lost its master",
    "MOVED": "it is a Redis Cluster, which is not supported",
    "ACL": "the user may not do this: give it more rights",
    "MISCONF": "it cannot save its data",
    "NOREPLICAS": "it has too few replicas to take writes",
    "BUSY": "it is busy with another program's script",
    "WRONGTYPE": "another program has a key under registry.key_prefix: delete it, or set another prefix",
}


class Disconnected(StoreUnavailable):
    """The connection could not be made, or ended before the answer."""


class UnknownScript(StoreUnavailable):
    """The server does not have this script (any more)."""


def translated(error: Exception) -> StoreUnavailable:
    """What a foreign exception means, in one line."""
    if isinstance(error, redis_errors.NoScriptError):
        return UnknownScript("unknown script")
    reason = next((text for kind, text in _REASONS if isinstance(error, kind)), None)
    if isinstance(error, redis_errors.ConnectionError | OSError | EOFError) and reason in {None, "no connection"}:
        return Disconnected(f"no connection ({_line(error)})")
    if reason is not None:
        return StoreUnavailable(reason)
    return StoreUnavailable(_CODES.get(str(error).partition(" ")[0], _line(error)))


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__


_FOREIGN = (redis_errors.RedisError, OSError, EOFError, ValueError, asyncio.TimeoutError)


class Connections:
    """Idle connections to one server, or to whichever the Sentinels call the master."""

    def __init__(self, address: Address, connect_seconds: float) -> None:
        self._pool = _pool(address, connect_seconds)
        self._idle: list[AbstractConnection] = []
        self._turns = asyncio.Semaphore(MOST)
        self._closed = False

    async def command(self, *words: Argument) -> Any:
        """One command and its answer, on any connection. The caller bounds the time.

        Raises:
            StoreUnavailable: translated, as short as it goes.
        """
        async with self._turns:
            try:
                connection = await self._connection()
            except _FOREIGN as error:
                raise translated(error) from error
            try:
                await connection.send_command(*words)
                answer = await connection.read_response()
            except redis_errors.ResponseError as error:  # the server answered: the connection is sound
                await self._keep(connection)
                raise translated(error) from error
            except _FOREIGN as error:
                await self._drop(connection)
                raise translated(error) from error
            except BaseException:  # left before the answer
                await self._drop(connection)
                raise
            await self._keep(connection)
            return answer

    @asynccontextmanager
    async def subscribed(self, channels: Sequence[str]) -> AsyncIterator[Subscription]:
        """A connection of its own that has joined the channels. The caller bounds the time.

        Raises:
            StoreUnavailable: translated.
        """
        connection = self._made()
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
            await connection.send_command("SUBSCRIBE", *channels)
            for _ in channels:
                await connection.read_response()
        except BaseException as error:
            await connection.disconnect(nowait=True)
            if isinstance(error, _FOREIGN):
                raise translated(error) from error
            raise
        try:
            yield Subscription(connection)
        finally:
            await connection.disconnect(nowait=True)

    async def forget(self) -> None:
        """Closes what is idle: after a failure, none of them is likely to be good."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.disconnect(nowait=True)

    async def close(self) -> None:
        """Closes everything; can be called twice."""
        self._closed = True
        await self.forget()
        if isinstance(self._pool, SentinelConnectionPool):
            for sentinel in self._pool.sentinel_manager.sentinels:
                await sentinel.aclose()

    async def _connection(self) -> AbstractConnection:
        if self._idle:
            return self._idle.pop()
        connection = self._made()
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    def _made(self) -> AbstractConnection:
        connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        return connection

    async def _keep(self, connection: AbstractConnection) -> None:
        if self._closed:
            await self._drop(connection)
        else:
            self._idle.append(connection)

    @staticmethod
    async def _drop(connection: AbstractConnection) -> None:
        await connection.disconnect(nowait=True)


class Subscription:
    """The messages of joined channels."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection

    async def ask(self) -> None:
        """Makes the server say something, so that silence has a meaning."""
        await self._connection.send_command("PING")

    async def next(self) -> tuple[bytes, bytes] | None:
        """The next message as channel and data; None for an answer to `ask`.

        Raises:
            StoreUnavailable: translated.
        """
        try:
            answer = await self._connection.read_response()
        except _FOREIGN as error:
            raise translated(error) from error
        if not isinstance(answer, list) or answer[0] != b"message":
            return None
        return answer[1], answer[2]


def _pool(address: Address, connect_seconds: float) -> ConnectionPool:
    common: dict[str, Any] = {
        "socket_timeout": None,
        "socket_connect_timeout": connect_seconds,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    options = common | {
        "db": address.database,
        "username": address.username,
        "password": address.password,
        **dict(address.options),
    }
    if address.service is None:
        host, port = address.hosts[0]
        if address.tls:  # older releases of redis-py do not look at the name by themselves
            tls: dict[str, Any] = {"ssl_cert_reqs": "required", "ssl_check_hostname": True}
            return ConnectionPool(connection_class=SSLConnection, host=host, port=port, **options, **tls)
        return ConnectionPool(connection_class=Connection, host=host, port=port, **options)
    half = common | {"socket_connect_timeout": connect_seconds / 2, "socket_timeout": connect_seconds / 2}
    kwargs = half | {"password": address.sentinel_password}
    sentinel = Sentinel(address.hosts, sentinel_kwargs=kwargs)  # type: ignore[no-untyped-call]
    return SentinelConnectionPool(address.service, sentinel, **options)  # type: ignore[no-untyped-call]
