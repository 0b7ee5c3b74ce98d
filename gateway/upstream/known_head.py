"""Pure: a message whose head has been read before need not be read again.

Both ends of a connection that is kept say the same head with every message, but for the digits of Content-Length.
What is known was accepted by the parser: the same bytes again, other digits at most, and behind them exactly as
many bytes as they say. Whatever differs in one byte, is cut in two, or is followed by anything, is the parser's to
read: so there is no second opinion on where a message ends.
"""

from __future__ import annotations

import re
from typing import Final, Generic, TypeVar

Told = TypeVar("Told")

_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)[ \t]*(?=\r\n)", re.IGNORECASE)
#: Longer heads are not kept, nor lengths that no single read can bring.
_MOST: Final = 4096
_MOST_DIGITS: Final = 8
#: Bytes: from here on a copy of a body costs more than a view of it and a second buffer to write.
UNCOPIED: Final = 16_384
#: So many heads are known of a connection: clients have several agents behind one gateway.
HEADS: Final = 16
#: After so many heads in a row that were none of those, a connection's are not looked at any more.
CHANCES: Final = HEADS + 4


class KnownHead(Generic[Told]):
    """A head that the parser has accepted.

    Attributes:
        told: What it says, as whoever has read it will want it again.
    """

    __slots__ = ("_after", "_at", "_before", "_rest", "told")

    def __init__(self, before: bytes, after: bytes, told: Told) -> None:
        self._before = before
        self._at = len(before)
        self._after = after
        self._rest = len(after)
        self.told = told

    def body(self, data: bytes) -> bytes | memoryview | None:
        """Give the body, if these bytes are this head again and one whole body; None: let the parser see.

        A long one is not copied, but a view.
        """
        if not data.startswith(self._before):
            return None
        at = self._at
        end = data.find(b"\r", at, at + _MOST_DIGITS + 1)
        digits, begin = data[at:end], end + self._rest
        if digits.isdigit() and data.startswith(self._after, end) and len(data) == begin + int(digits):
            return data[begin:] if len(data) < UNCOPIED else memoryview(data)[begin:]
        return None


def learn(data: bytes, size: int, told: Told) -> KnownHead[Told] | None:
    """Know the head of a message that came whole and alone; None if it is none that could come again.

    Args:
        data: What the parser was fed, from the first byte of the message on.
        size: The size of the body that the parser found, in bytes.
        told: What the head says.
    """
    end = data.find(b"\r\n\r\n") + 4
    head = data[:end]
    if not size or len(data) != end + size or end > _MOST or head.count(b"\n") != head.count(b"\r\n"):
        return None  # something else came with it, or it is one that only a lenient parser reads
    lengths = list(_LENGTH.finditer(head))
    if len(lengths) != 1 or int(lengths[0][1]) != size:
        return None
    begin, end = lengths[0].span(1)
    return KnownHead(head[:begin], head[end:], told)


class KnownHeads(Generic[Told]):
    """The heads that one side of a connection says, by their first line."""

    __slots__ = ("_chances", "_heads", "_latest")

    def __init__(self) -> None:
        self._heads: dict[bytes, KnownHead[Told]] = {}
        self._latest: KnownHead[Told] | None = None
        self._chances = CHANCES

    def read(self, data: bytes) -> tuple[Told, bytes | memoryview] | None:
        """Give what the head says, and the body, if these bytes are a known head and one whole body."""
        head = self._latest
        body = None if head is None else head.body(data)
        if body is None:
            head = self._heads.get(data[: data.find(b"\r")])
            body = None if head is None else head.body(data)
        if head is None or body is None:
            return None
        self._latest = head
        self._chances = CHANCES
        return head.told, body

    def learn(self, data: bytes, size: int, told: Told) -> None:
        """Know the head of a message, as `learn` says; the latest one with its first line counts."""
        if not self._chances:
            return
        self._chances -= 1
        head = learn(data, size, told)
        if head is not None:
            if len(self._heads) >= HEADS:
                self._heads = {}
            self._heads[data[: data.find(b"\r")]] = self._latest = head

    def forget(self) -> None:
        """Know nothing."""
        self._heads, self._latest = {}, None
