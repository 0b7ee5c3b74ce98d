"""Drives the gateway's own connections to agents: one call, many calls, and what is left afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from gateway.upstream import AddressGuard, Exchange, Pool, Upstream
from registry.url import parse_url

BODY = b'{"jsonrpc":"2.0","id":1,"method":"m"}'
CAP = 1_000_000


class Wire:
    """An `Upstream` that may reach loopback, and exchanges whose end can be awaited."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("guard", AddressGuard(allow_loopback=True))
        self.upstream = Upstream(**settings)

    def pool(self, url: str) -> Pool:
        return self.upstream.pool(parse_url(url))

    def exchange(
        self,
        pool: Pool,
        body: bytes | memoryview = BODY,
        *,
        seconds: float | None = 5.0,
        cap: int = CAP,
        repeatable: bool = False,
        on_head: Callable[[Exchange], None] | None = None,
        method: bytes = b"POST",
    ) -> Sent:
        head = b"%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n" % (
            method,
            pool.target,
            pool.authority,
            len(body),
        )
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Exchange] = loop.create_future()
        exchange = Exchange(
            head,
            body,
            deadline=None if seconds is None else loop.time() + seconds,
            cap=cap,
            repeatable=repeatable,
            done=ended.set_result,  # a second call would raise
            on_head=on_head,
        )
        return Sent(exchange, ended)

    def start(self, pool: Pool, body: bytes | memoryview = BODY, **more: Any) -> Sent:
        sent = self.exchange(pool, body, **more)
        pool.start(sent.exchange)
        assert not sent.ended.done(), "done was called from inside start"
        return sent

    async def call(self, where: Pool | str, body: bytes | memoryview = BODY, **more: Any) -> Exchange:
        pool = self.pool(where) if isinstance(where, str) else where
        return await self.start(pool, body, **more).end()

    def heard(self) -> None:
        """Blocks, so that the loop sees nothing, until the kernel has heard from the peers of open connections."""
        for connection in self.upstream.connections:
            assert connection._poll.poll(5000), "nothing came"

    @property
    def left(self) -> tuple[int, int, int]:
        """Open and idle connections, attempts to connect."""
        return self.upstream.open, self.upstream.idle, self.upstream.connecting


class Sent:
    """An exchange under way."""

    def __init__(self, exchange: Exchange, ended: asyncio.Future[Exchange]) -> None:
        self.exchange = exchange
        self.ended = ended

    async def end(self, within: float = 10.0) -> Exchange:
        async with asyncio.timeout(within):
            return await self.ended


@asynccontextmanager
async def wired(**settings: Any) -> AsyncIterator[Wire]:
    """A `Wire` that leaves no connection, task or timer of its own behind."""
    before = asyncio.all_tasks()
    wire = Wire(**settings)
    try:
        yield wire
    finally:
        await wire.upstream.aclose()
    assert wire.left == (0, 0, 0)
    await settled()
    dials = [task for task in asyncio.all_tasks() - before if "Dial" in repr(task)]
    assert not dials


async def settled(rounds: int = 5) -> None:
    """Lets callbacks that are due run."""
    for _ in range(rounds):
        await asyncio.sleep(0)


async def until(true: Callable[[], bool]) -> None:
    """Returns in the very turn of the loop in which something has come true; no event can say that."""
    async with asyncio.timeout(5):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0)
