"""What changes in the registry and in the agents' health, as a feed that readers can take up again.

The last events are kept in one bounded buffer, which all readers share; a reader only has a place in it. One
that comes back with the id of an event that is gone, or falls that far behind, is told `resync`: read the lists
again, then go on.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Final

import msgspec

KEPT: Final = 1000
MOST_READERS: Final = 500
"""At once: each costs some time with every event, and takes one of the process's open files."""
RESYNC: Final = "resync"

_ID: Final = re.compile(r"([0-9a-f]{8})-([0-9]{1,18})")
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its id, its name, its data as JSON."""

    id: str
    name: str
    data: str


class Events:
    """The feed of one process. Ids hold the process's own mark, so that those of an earlier one are gone."""

    def __init__(self, timestamp: Callable[[], str], kept: int = KEPT) -> None:
        """Begin empty; the last `kept` events can be read again, `timestamp` says when it is now."""
        self._timestamp = timestamp
        self._mark = secrets.token_hex(4)
        self._buffer: deque[Event] = deque(maxlen=kept)
        self._count = 0
        self._news = asyncio.Event()
        self._closed = False
        self._interruptions = 0
        self.readers = 0

    def publish(self, name: str, data: Mapping[str, Any]) -> None:
        """Add an event; readers see it in the next turn of the loop."""
        self._count += 1
        self._buffer.append(Event(self._id(self._count), name, _encode(data).decode()))
        self._wake()

    def registry_changed(self, kind: str, agent_id: str) -> None:
        """Add a change of the registry (`Registry.on_change`)."""
        self.publish("registry", {"change": kind, "agent_id": agent_id, "at": self._timestamp()})

    def close(self) -> None:
        """End every reader."""
        self._closed = True
        self._wake()

    def interrupt(self) -> None:
        """End every reader; each may come back, and is judged again."""
        self._interruptions += 1
        self._wake()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count a reader for as long as its connection lasts; see `MOST_READERS`."""
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1

    async def read(self, last_id: str | None = None, seconds: float = inf) -> AsyncIterator[Event]:
        """Give events for so long: those after `last_id`, or from now on."""
        clock = asyncio.get_running_loop().time
        end = None if seconds == inf else clock() + seconds
        place = self._count if last_id is None else self._place(last_id)
        began = self._interruptions
        while not self._closed and began == self._interruptions and (end is None or clock() < end):
            if place is None or place < self._count - len(self._buffer):
                place = self._count
                yield Event(self._id(place), RESYNC, "{}")
            elif place < self._count:
                place += 1
                yield self._buffer[place - self._count - 1]
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(end):
                        await self._news.wait()

    def _place(self, last_id: str) -> int | None:
        """How many events a reader has seen, or None if its id says nothing here."""
        found = _ID.fullmatch(last_id)
        if found is None or found[1] != self._mark or int(found[2]) > self._count:
            return None
        return int(found[2])

    def _id(self, number: int) -> str:
        return f"{self._mark}-{number}"

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
