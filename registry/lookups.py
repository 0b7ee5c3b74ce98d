"""Asking a shared store about agents that this node does not know: bounded, each once, misses remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from registry.errors import StoreUnavailable

MISS_SECONDS: Final = 1.0
"""So long nobody asks again about an agent that was not there; by then the change feed tells."""
MOST_MISSES: Final = 1000
MOST_AT_ONCE: Final = 1000


class Lookups:
    """Use it from one event loop."""

    def __init__(self, ask: Callable[[str], Awaitable[object]], monotonic: Callable[[], float]) -> None:
        """Nothing happens before `look`.

        Args:
            ask: asks the store about an agent id, and tells what it hears to those who follow the store.
            monotonic: a clock that never jumps.
        """
        self._ask = ask
        self._monotonic = monotonic
        self._running: dict[str, asyncio.Task[None]] = {}
        self._misses: dict[str, float] = {}  # oldest first

    async def look(self, agent_id: str) -> None:
        """Asks, or waits for who asks already; returns at once if it was asked a moment ago, or too many are."""
        task = self._running.get(agent_id)
        if task is None:
            if self._missed(agent_id) or len(self._running) >= MOST_AT_ONCE:
                return
            task = self._running[agent_id] = asyncio.create_task(self._run(agent_id), name="registry look-up")
        await asyncio.wait([task])

    def close(self) -> None:
        """Drops what is under way."""
        for task in self._running.values():
            task.cancel()

    def _missed(self, agent_id: str) -> bool:
        return self._monotonic() - self._misses.get(agent_id, -MISS_SECONDS) < MISS_SECONDS

    async def _run(self, agent_id: str) -> None:
        try:
            await self._ask(agent_id)
        except StoreUnavailable:
            pass  # as good as a miss: the store's own watch tells that it is out
        finally:
            del self._running[agent_id]
            self._misses.pop(agent_id, None)
            self._misses[agent_id] = self._monotonic()
            if len(self._misses) > MOST_MISSES:
                del self._misses[next(iter(self._misses))]
