"""Pure: an agent's bytes → whole events (contract 3.3, the WHATWG event-stream grammar on bytes).

LF, CR and CRLF end a line and nothing else does, wherever the chunks are cut. A lone CR ends its line at once: an
LF that follows is its second half and is dropped. Lines are never decoded; an event's values become valid UTF-8
when it is complete, so a code point torn between chunks stays whole.

One departure: an event with empty data and neither name nor id (`data:` alone) says no more than a comment, agents
send it as a keepalive, and it is reported as one.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec


class Event(msgspec.Struct, frozen=True, gc=False):
    """One complete event. No value holds CR, none but `data` holds LF, all are valid UTF-8.

    Attributes:
        data: The data lines, joined with LF.
        name: Value of the `event:` line; None if the event had none.
        id: Value of the `id:` line (empty: reset); None if the event had none, or only such with a NUL.
        retry: Digits of the `retry:` line; None if the event had no valid one.
    """

    data: bytes
    name: bytes | None = None
    id: bytes | None = None
    retry: bytes | None = None


class Comment(Enum):
    """The type of `COMMENT`."""

    COMMENT = "comment"


#: Stands between events for "the agent sent a comment": a keepalive, at most one per call of `feed`.
COMMENT: Final = Comment.COMMENT


class EventTooLarge(Exception):
    """An event's joined data, or one line of any kind, is over the cap.

    Attributes:
        events: What was complete before it in the same call; not reported otherwise.
    """

    def __init__(self) -> None:
        super().__init__("event over the cap")
        self.events: list[Event | Comment] = []


_BOM: Final = b"\xef\xbb\xbf"
_LF: Final = 0x0A
_CR: Final = 0x0D
_COLON: Final = 0x3A


class EventReader:
    """Cuts one stream into events. Time is linear in the bytes, memory bounded by the cap.

    Args:
        cap: Largest size of an event's joined data in bytes, as received. Any single line may be as long as a
            `data: ` line that holds so much. What is refused does not depend on the chunks.
    """

    __slots__ = (
        "_after_cr",
        "_at_start",
        "_between",
        "_cap",
        "_data",
        "_id",
        "_line_cap",
        "_name",
        "_retry",
        "_tail",
    )

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._line_cap = cap + len(b"data: ")
        self._at_start = True
        self._after_cr = False
        self._between = False  # the latest chunk ended with an event, and nothing of the next one has come
        self._tail = bytearray()  # the line that is not ended yet
        self._data: bytes | bytearray | None = None
        self._name: bytes | None = None
        self._id: bytes | None = None
        self._retry: bytes | None = None

    def feed(self, chunk: bytes) -> list[Event | Comment]:
        """Take the next bytes; give what they completed, in order.

        Raises:
            EventTooLarge: An event is over the cap; the reader is of no further use.
        """
        if self._between and self._is_one_event(chunk):
            return [Event(chunk[6:-2])]
        self._between = False
        if self._at_start:
            chunk = self._without_bom(chunk)
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[0] == _LF:
                chunk = chunk[1:]
        if self._tail and chunk:
            chunk = self._with_tail(chunk)
        if not chunk:
            return []
        lines = chunk.splitlines()  # of bytes: at LF, CR and CRLF only
        last = chunk[-1]
        if last == _LF:
            events = self._take(lines)
            self._between = not lines[-1]
            return events
        if last == _CR:
            self._after_cr = True
            return self._take(lines)
        tail = lines.pop()
        events = self._take(lines)
        self._keep(tail, events)
        return events

    def _is_one_event(self, chunk: bytes) -> bool:
        """Tell whether a chunk is what most are: one data line that is not empty, and the blank line."""
        return (
            chunk.startswith(b"data: ")
            and 8 < len(chunk) <= self._cap
            and chunk.find(b"\n") == len(chunk) - 2
            and chunk.endswith(b"\n")
            and b"\r" not in chunk
            and chunk.isascii()
        )

    def end(self) -> list[Event]:
        """Take the end of the stream: what has come of an event without its blank line counts as one.

        Raises:
            EventTooLarge: That event is over the cap.
        """
        lines = [bytes(self._tail), b""]
        self._tail.clear()
        return [event for event in self._take(lines) if event is not COMMENT]

    def _without_bom(self, chunk: bytes) -> bytes:
        head = bytes(self._tail) + chunk
        self._tail.clear()
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._tail += head
            return b""
        self._at_start = False
        return head.removeprefix(_BOM)

    def _with_tail(self, chunk: bytes) -> bytes:
        """Complete the unfinished line; give nothing if the chunk does not end it either."""
        if b"\n" in chunk or b"\r" in chunk:
            text = bytes(self._tail) + chunk
            self._tail.clear()
            return text
        self._keep(chunk, [])
        return b""

    def _keep(self, part: bytes, events: list[Event | Comment]) -> None:
        self._tail += part
        if len(self._tail) > self._line_cap:
            error = EventTooLarge()
            error.events = events
            raise error

    def _take(self, lines: list[bytes]) -> list[Event | Comment]:
        events: list[Event | Comment] = []
        commented = False
        try:
            for line in lines:
                if len(line) > self._line_cap:
                    raise EventTooLarge
                if self._data is None and line.startswith(b"data: "):
                    self._data = line[6:]
                elif line and line[0] != _COLON:
                    self._field(line)
                else:
                    found = COMMENT if line else self._complete()
                    if found is not COMMENT:
                        if found is not None:
                            events.append(found)
                    elif not commented:
                        events.append(COMMENT)
                        commented = True
        except EventTooLarge as error:
            error.events = events
            raise
        return events

    def _field(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if field == b"data":
            self._add(value)
        elif field == b"event":
            self._name = value
        elif field == b"id":
            if b"\0" not in value:
                self._id = value
        elif field == b"retry" and value.isdigit():
            self._retry = value

    def _add(self, value: bytes) -> None:
        """Add a data line. A buffer that grows, not a list: a million short lines cost their bytes, no more."""
        data = self._data
        if data is None:
            self._data = data = value
        else:
            if not isinstance(data, bytearray):
                self._data = data = bytearray(data)
            data += b"\n"
            data += value
        if len(data) > self._cap:
            raise EventTooLarge

    def _complete(self) -> Event | Comment | None:
        """End the block: an event, a keepalive, or nothing. Nothing of it leaks into the next one."""
        data, name, id, retry = self._data, self._name, self._id, self._retry
        self._data = self._name = self._id = self._retry = None
        if data is None:
            return None
        if name is None and id is None:
            return Event(_utf8(bytes(data)), None, None, retry) if data else COMMENT
        return Event(_utf8(bytes(data)), name and _utf8(name), id and _utf8(id), retry)


def _utf8(value: bytes) -> bytes:
    """Give the bytes as they are if they are UTF-8, else with U+FFFD where they are not."""
    if value.isascii():
        return value
    try:
        value.decode()
    except UnicodeDecodeError:
        return value.decode(errors="replace").encode()
    return value
