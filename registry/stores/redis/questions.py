"""Look-ups in bulk: what is asked during one question is the next: one command at a time, however many ask."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Questions:
    """The look-ups of one node."""

    def __init__(self, read: Callable[..., Awaitable[None]]) -> None:
        """`read` asks the store about agents by their ids."""
        self._read = read
        self._turn = asyncio.Lock()
        self._ids: set[str] = set()
        self._next: asyncio.Task[None] | None = None  # the question that those ids are part of

    async def ask(self, agent_id: str) -> None:
        """Has the store asked about an agent.

        Raises:
            StoreUnavailable: no answer.
        """
        self._ids.add(agent_id)
        if self._next is None:
            self._next = asyncio.create_task(self._put(), name="registry question")
            self._next.add_done_callback(_seen)
        await asyncio.shield(self._next)

    async def _put(self) -> None:
        async with self._turn:
            ids, self._ids, self._next = self._ids, set(), None
            await self._read(*ids)


def _seen(task: asyncio.Task[None]) -> None:
    """Those who asked may all have left: then nobody else takes note of a failure."""
    if not task.cancelled():
        task.exception()
