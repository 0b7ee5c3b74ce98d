"""Hearing what is published: one connection that comes back after every loss (pitfalls 159, 161)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from registry.errors import StoreError, StoreUnavailable
from registry.stores.redis.connections import Connections, Subscription

_BACK_OFF: Final = (0.05, 2.0)

_log = logging.getLogger(__name__)


class Listener:
    """Joins all channels on one connection, again and again."""

    def __init__(self, connections: Connections, shown: str, timeout: float) -> None:
        """Nothing happens before `start`.

        Args:
            connections: where a connection comes from.
            shown: what the log calls the server.
            timeout: after this many seconds of silence the server is asked to say something; a little later the
                connection counts as dead, even if nobody closed it.
        """
        self._connections = connections
        self._shown = shown
        self._timeout = timeout
        self._channels: dict[str, tuple[Callable[[bytes], None], Callable[[], None]]] = {}
        self._joined = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add(self, channel: str, heard: Callable[[bytes], None], joined: Callable[[], None]) -> None:
        """See `Link.subscribe`; the channel's name is whole."""
        self._channels[channel] = heard, joined

    async def start(self) -> None:
        """Joins, and goes on in the background.

        Raises:
            StoreError: not joined in time.
        """
        if not self._channels:
            return
        self._task = asyncio.create_task(self._listen_for_ever(), name="registry feed")
        try:
            async with asyncio.timeout(2 * self._timeout):
                await self._joined.wait()
        except TimeoutError:
            raise StoreError(f"registry store {self._shown}: cannot subscribe to its channels") from None

    async def stop(self) -> None:
        """Ends it; may be called twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _listen_for_ever(self) -> None:
        shortest, longest = _BACK_OFF
        wait, lost = shortest, False
        while True:
            self._joined.clear()
            try:
                await self._listen()
            except (StoreUnavailable, TimeoutError) as error:
                if self._joined.is_set():
                    wait, lost = shortest, False
                if not lost:
                    _log.warning(
                        "registry store %s: its messages stopped, joining again: %s",
                        self._shown,
                        str(error) or "silence",
                    )
                lost = True
            except Exception:
                _log.exception("registry store %s: listening failed, joining again", self._shown)
            await asyncio.sleep(wait)
            wait = min(2 * wait, longest)

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(2 * self._timeout) as deadline:
            async with self._connections.subscribed([*self._channels]) as subscription:
                for _, joined in self._channels.values():
                    joined()
                self._joined.set()
                asking = asyncio.create_task(self._ask_for_ever(subscription))
                try:
                    while True:
                        deadline.reschedule(loop.time() + 2.5 * self._timeout)
                        await self._hear(subscription)
                finally:
                    asking.cancel()

    async def _hear(self, subscription: Subscription) -> None:
        message = await subscription.next()
        if message is not None:
            channel, data = message
            heard, _ = self._channels[channel.decode()]
            try:
                heard(data)
            except Exception:
                _log.exception("registry store %s: a message could not be taken", self._shown)

    async def _ask_for_ever(self, subscription: Subscription) -> None:
        while True:
            await asyncio.sleep(self._timeout)
            try:
                await subscription.ask()
            except Exception:
                return  # the reader of the same connection meets it too, and tells
