"""Pure: the events that every measured stream carries, and their check.

An event is an A2A artifact update of fixed size that bears its number and the time at which the agent wrote it
(CLOCK_MONOTONIC, one clock for all processes of a machine). The last one is a final status update.
"""

import json

from tests.benchmarks import payloads

_RESULT = b'data: {"jsonrpc":"2.0","id":"%b","result":' % payloads.CALL_ID.encode()
_BEFORE = (
    _RESULT + b'{"kind":"artifact-update","taskId":"3f1c0c1e-6f0a-4a51-9d54-0b8f5a0c7a11","contextId":"ctx-1",'
    b'"append":true,"lastChunk":false,"artifact":{"artifactId":"a-1","parts":[{"kind":"text","text":"'
)
_AFTER = b' the quick brown fox jumps over the lazy dog"}]}}}\n\n'
FINAL = _RESULT + (
    b'{"kind":"status-update","taskId":"3f1c0c1e-6f0a-4a51-9d54-0b8f5a0c7a11","contextId":"ctx-1","final":true,'
    b'"status":{"state":"completed"}}}\n\n'
)
#: May come between events at any time, by leave of the protocol.
KEEPALIVE = b": keepalive\n\n"

_NUMBER, _STAMP = 10, 19  # digits
_AT_NUMBER = len(_BEFORE)
_AT_STAMP = _AT_NUMBER + _NUMBER + 1
_AT_AFTER = _AT_STAMP + _STAMP
#: Bytes of every event but the last.
SIZE = _AT_AFTER + len(_AFTER)


def event(number: int, stamp: int) -> bytes:
    """The event with this number, counted from 0, written at `stamp` (nanoseconds)."""
    return b"%b%010d %019d%b" % (_BEFORE, number, stamp, _AFTER)


def request(count: int, every: float) -> bytes:
    """The `message/stream` call that asks for `count` events, one every so many seconds (0: at full speed).

    The first comes at once; after the last the stream ends.
    """
    params = {"metadata": {"count": count, "every": every}}
    call = {"jsonrpc": "2.0", "id": payloads.CALL_ID, "method": "message/stream", "params": params}
    return json.dumps(call).encode()


def plan(body: bytes) -> tuple[int, float]:
    """Count and interval of a request."""
    metadata = json.loads(body)["params"]["metadata"]
    return metadata["count"], metadata["every"]


class WrongStreamError(Exception):
    """A stream is not what it must be; the text says how."""


class Checker:
    """Compares the bytes of one stream with what they must be.

    Args:
        count: How many events must come before the last.
        latencies: Takes for every event the nanoseconds from its writing to its arrival.

    Attributes:
        number: How many have come.
        complete: The last event has come.
    """

    __slots__ = ("_count", "_latencies", "_rest", "complete", "number")

    def __init__(self, count: int, latencies: list[int]) -> None:
        self._count = count
        self._latencies = latencies
        self._rest = b""
        self.number = 0
        self.complete = False

    def feed(self, data: bytes, now: int) -> int:
        """Check some bytes that came at `now` (nanoseconds); how many events they completed."""
        if self._rest:
            data = self._rest + data
        before, at, size = self.number, 0, len(data)
        while at < size:
            if data.startswith(_BEFORE, at):
                if size - at < SIZE:
                    break
                self._event(data, at, now)
                at += SIZE
                continue
            step = self._other(data, at)
            if not step:
                break
            at += step
        self._rest = data[at:]
        return self.number - before

    def _event(self, data: bytes, at: int, now: int) -> None:
        if (
            int(data[at + _AT_NUMBER : at + _AT_STAMP]) != self.number
            or self.number >= self._count
            or not data.startswith(_AFTER, at + _AT_AFTER)
        ):
            raise WrongStreamError(f"in place of event {self.number}: {data[at : at + SIZE]!r}")
        self.number += 1
        self._latencies.append(now - int(data[at + _AT_STAMP : at + _AT_AFTER]))

    def _other(self, data: bytes, at: int) -> int:
        """Take what is no event; the bytes taken, 0 if more must come first."""
        for known in (KEEPALIVE, FINAL):
            if data.startswith(known, at):
                if known is FINAL:
                    if self.complete or self.number != self._count:
                        raise WrongStreamError(f"the last event after {self.number} of {self._count}")
                    self.complete = True
                return len(known)
        rest = data[at : at + SIZE]
        if any(known.startswith(rest) for known in (_BEFORE, KEEPALIVE, FINAL)):
            return 0
        raise WrongStreamError(f"after {self.number} events: {rest!r}")
