"""Slots: how many calls to one agent may be in flight in this process (contract 2.3)."""

from __future__ import annotations


class Slots:
    """A counter with a limit; nobody queues. Whoever has taken a slot gives it back exactly once."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def take(self) -> bool:
        """Take a slot if one is free."""
        if self.used >= self.limit:
            return False
        self.used += 1
        return True

    def give(self) -> None:
        """Give a slot back.

        Raises:
            RuntimeError: If none is taken: a slot was freed twice.
        """
        if self.used == 0:
            raise RuntimeError("a slot was given back twice")
        self.used -= 1
