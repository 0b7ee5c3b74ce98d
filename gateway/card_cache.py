"""Rendered cards: each is written once per agent and address, not once per request."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from gateway.conditional import Representation, represent
from registry.agent import Agent

Published = Mapping[str, Any] | None

_OVERHEAD: Final = 512  # bytes that an entry takes beside its body


class CardCache:
    """The cards most lately asked for. Not thread-safe: everything happens on the event loop.

    An entry holds as long as the registry hands out the same `Agent` object, so that a registration shows at
    once, and as long as the agent publishes the same of itself. Callers choose the address (it comes from their
    Host header), hence the bound.

    Args:
        render: Writes an agent's card for an address.
        max_bytes: What all entries together may take.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        render: Callable[[Agent, str, Published], bytes],
        *,
        max_bytes: int = 8 * 1024 * 1024,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._render = render
        self._max_bytes = max_bytes
        self._clock = clock
        self._entries: OrderedDict[tuple[str, str], tuple[Agent, Published, Representation]] = OrderedDict()
        self._bytes = 0

    def get(self, agent: Agent, address: str, published: Published = None) -> Representation:
        """Give the agent's card for this address; `published` is what is known of the card it publishes."""
        key = (agent.agent_id, address)
        entry = self._entries.get(key)
        if entry is not None and entry[0] is agent and entry[1] == published:
            self._entries.move_to_end(key)
            return entry[2]
        return self._put(key, agent, published, None if entry is None else entry[2])

    def _put(
        self, key: tuple[str, str], agent: Agent, published: Published, earlier: Representation | None
    ) -> Representation:
        now = self._clock()
        # Two versions of one second bear the same date: then only the tag tells a reader which one it has.
        dated = earlier is None or earlier.modified != int(now)
        card = represent(self._render(agent, key[1], published), now, dated=dated)
        if earlier is not None:
            self._drop(key)
        self._entries[key] = (agent, published, card)
        self._bytes += _size(card)
        while self._bytes > self._max_bytes and len(self._entries) > 1:
            self._drop(next(iter(self._entries)))
        return card

    def _drop(self, key: tuple[str, str]) -> None:
        _, _, card = self._entries.pop(key)
        self._bytes -= _size(card)


def _size(card: Representation) -> int:
    return len(card.body) + _OVERHEAD
