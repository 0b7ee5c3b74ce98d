"""One open stream: the agent's events to the caller, whole, in order, at once (contract 3).

Like the call it belongs to it knows neither ASGI nor sockets. The exchange pushes bytes in, whole events go to an
`Outlet`. However it ends, `_end` is passed once, and a stream never ends in made-up success.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, TimerHandle
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Protocol

from gateway.faults import FAULTS
from gateway.metrics import APPLICATION_ERROR, CANCELLED, SUCCESS, TRANSPORT_ERROR
from gateway.sse import COMMENT, Comment, Event, EventReader, EventTooLarge
from gateway.stream_formats import KEEPALIVE, Ending, Writer
from gateway.upstream import Exchange, Failure, FailureKind

log = logging.getLogger(__name__)

#: How long the agent has for a further event, or to close, after one that is final (contract 3.5), in seconds.
FINAL_SECONDS: Final = 2.0

#: Most bytes of one stream that are read before everybody else has a turn (contract 2.3). Of an agent that pours,
#: the event loop hands over 256 KB at once, up to 32 times in a row: seconds of work if its events are tiny.
TURN_BYTES: Final = 16_384

_BREAKS: Final = {FailureKind.CANCELLED: "GATEWAY_SHUTDOWN", FailureKind.INTERNAL: "INTERNAL"}


class Outlet(Protocol):
    """Where the events of a stream go: the caller's connection."""

    def push(self, data: bytes) -> None:
        """Write whole events. The outlet calls `pause` and `resume` of the relay as the caller keeps up."""

    def finish(self) -> None:
        """End the answer in an orderly way."""

    def abort(self) -> None:
        """Cut the caller off."""

    def unsent(self) -> int:
        """Tell how many bytes the caller has not taken."""


class Host(Protocol):
    """The call that a stream belongs to."""

    def stream_events(self, count: int, first: bool) -> None:
        """Count events."""

    def stream_error(self, reason: str) -> tuple[int, str, list[Any], bytes]:
        """Give code, message, data and request id of the event with which the gateway ends the stream."""

    def stream_ended(self, status: str, reason: str, events: int, size: int) -> None:
        """Free what the call holds, count and log."""

    def cancel_stream(self) -> None:
        """Tell an agent of the envelope format that its stream is not read any more (contract 3.7)."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Times in seconds and sizes in bytes that hold for all streams."""

    idle: float
    keepalive: float
    event_bytes: int


class Relay:
    """One open stream. Drive it with `attach`, `pause`, `resume`, `agent_ended` and `caller_left`."""

    __slots__ = (
        "_exchange",
        "_final",
        "_held",
        "_host",
        "_last_event",
        "_last_progress",
        "_last_push",
        "_last_word",
        "_loop",
        "_outlet",
        "_over",
        "_paused_at",
        "_reader",
        "_size",
        "_taken",
        "_terms",
        "_timer",
        "_turn_asked",
        "_writer",
        "events",
    )

    def __init__(
        self, host: Host, exchange: Exchange, writer: Writer, terms: Terms, loop: AbstractEventLoop
    ) -> None:
        """Take over an exchange whose head has come: its body comes here, without a deadline."""
        self._host = host
        self._exchange = exchange
        self._writer = writer
        self._terms = terms
        self._loop = loop
        self._reader = EventReader(terms.event_bytes)
        self._outlet: Outlet | None = None
        self._timer: TimerHandle | None = None
        self._last_event = self._last_push = self._last_progress = loop.time()
        self._final = inf  # when both sides are closed if no further event comes
        self._size = self._taken = 0
        self._held = b""  # has come and waits for its turn, while the agent is paused
        self._turn_asked = False
        self._last_word: tuple[Failure | None] | None = None  # how the agent ended, if something is held
        self._paused_at: float | None = None
        self._over = False
        self.events = 0
        exchange.consume = self._feed
        exchange.set_deadline(None)

    # --- what drives it ---

    def attach(self, outlet: Outlet) -> None:
        """Begin to write. Called before any byte of the body has come."""
        self._outlet = outlet
        self._arm()

    def pause(self) -> None:
        """The caller does not keep up: stop reading from the agent, and stop its clocks: it cannot be heard."""
        if not self._over and self._paused_at is None:
            self._paused_at = self._loop.time()
            self._exchange.pause()

    def resume(self) -> None:
        """The caller has caught up."""
        if not self._over and self._paused_at is not None:
            stood = self._loop.time() - self._paused_at
            self._paused_at = None
            self._last_event += stood
            self._final += stood
            self._arm()
            self._go_on()

    def caller_left(self) -> None:
        """The caller is gone: close the way to the agent, hold nothing against it."""
        if self._over:
            return
        if self._final < inf:  # it has seen the work end, and need not wait until the agent closes
            self._close()
            return
        tell_agent = self._writer.a2a is False
        self._end(CANCELLED, "")
        if tell_agent:
            self._host.cancel_stream()

    def agent_ended(self, failure: Failure | None) -> None:
        """The agent's answer is over, cleanly or not."""
        if self._over:
            return
        if self._held and (failure is None or failure.kind not in _BREAKS):
            self._last_word = (failure,)
            return
        if failure is None:
            self._take(self._last_events())
        if self._over:
            return
        if self._final < inf or (failure is None and self._writer.a2a):
            self._close()
        elif failure is None:
            self._fail("STREAM_INCOMPLETE")
        else:
            self._fail(_BREAKS.get(failure.kind, "STREAM_BROKEN"))

    # --- events ---

    def _feed(self, data: bytes) -> None:
        """Take what has come from the agent: at once, or in turns with everybody else if it is much."""
        if len(data) <= TURN_BYTES and not self._held:
            self._read(data)
        else:
            self._held += data
            self._exchange.pause()
            self._go_on()

    def _go_on(self) -> None:
        """Ask for a turn for what is held; when nothing is, hear how the agent ended, or let it speak."""
        if self._over or self._turn_asked:
            return
        if self._last_word is not None and not self._held:
            self.agent_ended(*self._last_word)
        elif self._paused_at is not None:
            return
        elif self._held:
            self._turn_asked = True
            self._loop.call_soon(self._take_turn)
        else:
            self._exchange.resume()

    def _take_turn(self) -> None:
        self._turn_asked = False
        if not self._over and self._paused_at is None:
            data, self._held = self._held[:TURN_BYTES], self._held[TURN_BYTES:]
            self._read(data)
            self._go_on()

    def _read(self, data: bytes) -> None:
        try:
            self._take(self._reader.feed(data))
        except EventTooLarge as error:
            self._take(error.events)
            self._fail("RESPONSE_TOO_LARGE")
        except Exception:
            log.exception("a stream failed")
            self._fail("INTERNAL")

    def _last_events(self) -> list[Event]:
        try:
            return self._reader.end()
        except EventTooLarge:
            self._fail("RESPONSE_TOO_LARGE")
            return []

    def _take(self, items: list[Event | Comment] | list[Event]) -> None:
        """Write what has come in one piece; stop at an event that ends the stream."""
        if self._over or not items:
            return
        now, before = self._loop.time(), self.events
        data = self._written(items[0], now)
        if len(items) > 1:
            pieces = [data]
            for item in items[1:]:
                if self._writer.ending is Ending.TERMINAL:
                    break
                pieces.append(self._written(item, now))
            data = b"".join(pieces)
        if self.events > before:
            self._host.stream_events(self.events - before, before == 0)
        self._push(data, now)
        if self._writer.ending is Ending.TERMINAL:
            self._close()
        elif self._final < inf:
            self._arm()

    def _written(self, item: Event | Comment, now: float) -> bytes:
        if item is COMMENT:
            return KEEPALIVE
        writer = self._writer
        data = writer.write(item)
        self.events += 1
        self._last_event = now
        if writer.ending is not Ending.NONE or self._final < inf:
            self._final = now + FINAL_SECONDS
        return data

    def _push(self, data: bytes, now: float) -> None:
        self._size += len(data)
        self._last_push = now
        if self._outlet is not None:
            self._outlet.push(data)

    # --- time ---

    def _arm(self) -> None:
        """Set the timer for whatever is due first; events only move things later, so they need not touch it."""
        if self._timer is not None:
            self._timer.cancel()
        terms = self._terms
        if self._paused_at is not None:
            due = self._loop.time() + terms.idle / 4
        else:
            due = min(self._silence_ends(), self._last_push + terms.keepalive)
        self._timer = self._loop.call_at(min(due, self._last_progress + terms.idle), self._tick)

    def _tick(self) -> None:
        now, terms = self._loop.time(), self._terms
        early = now + 0.001
        self._note_progress(now)
        if self._last_progress + terms.idle <= early:
            if self._outlet is not None:
                self._outlet.abort()  # `caller_left` follows
            self.caller_left()
        elif self._paused_at is not None:
            self._arm()
        elif self._silence_ends() <= early:
            if self._final < inf:
                self._close()
            else:
                self._fail("STREAM_IDLE")
        else:
            if self._last_push + terms.keepalive <= early:
                self._push(KEEPALIVE, now)
            self._arm()

    def _silence_ends(self) -> float:
        """Give when the stream ends without a further event: after a final one that is no failure."""
        return self._final if self._final < inf else self._last_event + self._terms.idle

    def _note_progress(self, now: float) -> None:
        """Notice whether the caller has taken anything since the last look, or has nothing to take."""
        unsent = 0 if self._outlet is None else self._outlet.unsent()
        taken = self._size - unsent
        if not unsent or taken > self._taken:
            self._last_progress = now
        self._taken = taken

    # --- ends ---

    def _close(self) -> None:
        """End well: the last event has said how the work ended."""
        self._end(APPLICATION_ERROR if self._writer.failed else SUCCESS, "")

    def _fail(self, reason: str) -> None:
        """End with an error event in the stream's own format."""
        if not self._over:
            self._push(self._writer.error(*self._host.stream_error(reason)), self._loop.time())
            self._end(TRANSPORT_ERROR, FAULTS[reason].reason)

    def _end(self, status: str, reason: str) -> None:
        self._over = True
        self._held = b""
        if self._timer is not None:
            self._timer.cancel()
        self._exchange.cancel()
        self._host.stream_ended(status, reason, self.events, self._size)
        if self._outlet is not None and status is not CANCELLED:
            self._outlet.finish()
