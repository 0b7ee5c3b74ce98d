"""Rendered cards: each is written once per agent and address, not once per request."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from gateway.conditional import Representation, represent
from registry.agent import Agent

_OVERHEAD: Final = 512  # bytes that an entry takes beside its body


class CardCache:
    """The cards most lately asked for. Not thread-safe: everything happens on the event loop.

    An entry holds as long as the registry hands out the same `Agent` object, so that a registration shows at
    once. Callers choose the address (it comes from their Host header), hence the bound.

    Args:
        render: Writes an agent's card for an address.
        max_bytes: What all entries together may take.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        render: Callable[[Agent, str], bytes],
        *,
        max_bytes: int = 8 * 1024 * 1024,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._render = render
        self._max_bytes = max_bytes
        self._clock = clock
        self._entries: OrderedDict[tuple[str, str], tuple[Agent, Representation]] = OrderedDict()
        self._bytes = 0

    def get(self, agent: Agent, address: str) -> Representation:
        """Give the agent's card for this address."""
        key = (agent.agent_id, address)
        entry = self._entries.get(key)
        if entry is not None and entry[0] is agent:
            self._entries.move_to_end(key)
            return entry[1]
        return self._put(key, agent, None if entry is None else entry[1])

    def _put(self, key: tuple[str, str], agent: Agent, earlier: Representation | None) -> Representation:
        now = self._clock()
        # Two versions of one second bear the same date: then only the tag tells a reader which one it has.
        dated = earlier is None or earlier.modified != int(now)
        card = represent(self._render(agent, key[1]), now, dated=dated)
        if earlier is not None:
            self._drop(key)
        self._entries[key] = (agent, card)
        self._bytes += _size(card)
        while self._bytes > self._max_bytes and len(self._entries) > 1:
            self._drop(next(iter(self._entries)))
        return card

    def _drop(self, key: tuple[str, str]) -> None:
        _, card = self._entries.pop(key)
        self._bytes -= _size(card)


def _size(card: Representation) -> int:
    return len(card.body) + _OVERHEAD
