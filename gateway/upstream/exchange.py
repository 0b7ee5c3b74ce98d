"""One request to an agent and its answer, and the one timer that watches the deadlines of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any, Final, Protocol

from gateway.upstream.failures import TIMEOUT, TIMEOUT_CONNECTING, Failure

Headers = list[tuple[bytes, bytes]]


class Carrier(Protocol):
    """What an exchange rides on: an attempt to connect, later a connection."""

    def drop(self) -> None:
        """Close at once and forget the exchange."""

    def pause(self) -> None:
        """Stop reading."""

    def resume(self) -> None:
        """Read again."""


def _nothing(exchange: Exchange) -> None:
    """Stand in for callbacks that have had their turn: keeps no caller alive."""


class AnswerHead:
    """The head of an answer, perhaps of many.

    Attributes:
        status: Status code.
        headers: As an exchange has them; not to be changed.
        note: Place for what the owner of an exchange has made of them.
    """

    __slots__ = ("headers", "note", "status")

    def __init__(self, status: int, headers: Headers) -> None:
        self.status = status
        self.headers = headers
        self.note: Any = None


class Exchange:
    """One request and its answer.

    `done` is called exactly once, from the loop, unless `cancel` came first. Until then `status` and
    `headers` hold what has arrived, also when the exchange fails later.

    Attributes:
        status: Status code; 0 until the head of the answer is there.
        headers: Names in lower case, order and multiplicity kept; without trailers and interim answers.
        body: The decoded body, valid in `done` when there is no failure and `consume` was not set.
        failure: Why there is no answer, or None.
        consume: May be set in `on_head`: decoded pieces of the body then go there as they come, the cap is
            not applied and nothing is collected. After `pause` the pieces of one read may still follow.
        deadline: In seconds of the loop's clock; infinite for none. Move it with `set_deadline`.
        written: True when a byte of the request has been handed to a connection.
    """

    __slots__ = (
        "body",
        "cap",
        "carrier",
        "consume",
        "deadline",
        "deadlines",
        "done",
        "failure",
        "head",
        "headers",
        "known",
        "on_head",
        "over",
        "paused",
        "payload",
        "repeatable",
        "status",
        "written",
    )

    def __init__(
        self,
        head: bytes,
        body: bytes | memoryview,
        *,
        deadline: float | None,
        cap: int,
        repeatable: bool,
        done: Callable[[Exchange], None],
        on_head: Callable[[Exchange], None] | None = None,
    ) -> None:
        """Prepare an exchange; `Pool.start` begins it.

        Args:
            head: The complete head of the request with Host, Content-Length and the empty line.
            body: The body of the request.
            deadline: When it must be over (connect, send, head and whole body), in seconds of the loop's
                clock; None for no limit.
            cap: Most bytes of decoded body.
            repeatable: The request may be sent again, once, when a reused connection closed without a byte.
            done: Called at the end.
            on_head: Called when status and headers are there; may set `consume`, or cancel.
        """
        self.head = head
        self.payload = body
        self.deadline = inf if deadline is None else deadline
        self.cap = cap
        self.repeatable = repeatable
        self.done = done
        self.on_head = on_head
        self.consume: Callable[[bytes], None] | None = None
        self.status = 0
        self.headers: Headers = []
        self.known: AnswerHead | None = None
        self.body: bytes | memoryview = b""
        self.failure: Failure | None = None
        self.written = False
        self.paused = False
        self.over = False
        self.carrier: Carrier | None = None
        self.deadlines: Deadlines | None = None

    def cancel(self) -> None:
        """Give up: the connection is closed at once and `done` is not called. Safe in any state."""
        if not self.over:
            self._let_go()
            self._end()

    def forget_request(self) -> None:
        """Keep no copy of the request, which the agent has begun to answer."""
        self.head = self.payload = b""

    def pause(self) -> None:
        """Stop reading from the agent. Deadlines go on."""
        self.paused = True
        if self.carrier is not None:
            self.carrier.pause()

    def resume(self) -> None:
        """Read from the agent again."""
        self.paused = False
        if self.carrier is not None:
            self.carrier.resume()

    def set_deadline(self, deadline: float | None) -> None:
        """Move the deadline (seconds of the loop's clock), or take it away with None."""
        self.deadline = inf if deadline is None else deadline
        if self.deadlines is not None and not self.over:
            self.deadlines.watch(self)

    def fail(self, failure: Failure) -> None:
        """End with a failure, from wherever the exchange is; closes its connection."""
        if not self.over:
            self._let_go()
            self.finish(failure)

    def finish(self, failure: Failure | None) -> None:
        """Tell the outcome, at most once. For carriers, which have let go of the exchange before."""
        if self.over:
            return
        self.failure = failure
        done = self.done
        self._end()
        done(self)

    def expire(self) -> None:
        """End the exchange because its deadline has passed."""
        self.fail(TIMEOUT if self.written else TIMEOUT_CONNECTING)

    def _let_go(self) -> None:
        carrier, self.carrier = self.carrier, None
        if carrier is not None:
            carrier.drop()

    def _end(self) -> None:
        self.over = True
        self.carrier = None
        self.done = _nothing  # breaks the cycle with the caller: freed at once, without the collector
        self.on_head = self.consume = None
        if self.deadlines is not None:
            self.deadlines.forget(self)


_GRAIN: Final = 0.02  # seconds: how exact deadlines are
_EARLY: Final = 0.002  # seconds: timers fire this much too early at most


class Deadlines:
    """One timer for the deadlines of all running exchanges, armed for the nearest.

    Exchanges that end in time, nearly all, cost a set entry each; the timer is not touched for them.
    """

    __slots__ = ("_due", "_loop", "_running", "_swept", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._running: set[Exchange] = set()
        self._due = inf
        self._swept = -inf
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, exchange: Exchange) -> None:
        """Watch an exchange, or notice that its deadline has moved."""
        exchange.deadlines = self
        deadline = exchange.deadline
        if deadline == inf:
            self._running.discard(exchange)
            return
        self._running.add(exchange)
        if deadline < self._due - _GRAIN:
            self._arm(deadline)

    def forget(self, exchange: Exchange) -> None:
        """Stop watching."""
        self._running.discard(exchange)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due = None, inf

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = max(when, self._swept + _GRAIN)
        self._timer = self._loop.call_at(self._due, self._sweep)

    def _sweep(self) -> None:
        self._timer, self._due = None, inf
        self._swept = self._loop.time()
        limit = self._swept + _EARLY
        nearest = inf
        for exchange in self._running:
            if exchange.deadline <= limit:
                self._loop.call_soon(self._expire, exchange)
            elif exchange.deadline < nearest:
                nearest = exchange.deadline
        if nearest < inf:
            self._arm(nearest)

    def _expire(self, exchange: Exchange) -> None:
        if exchange.deadline <= self._loop.time() + _EARLY:  # it may have been moved since
            exchange.expire()
        elif not exchange.over:
            self.watch(exchange)
