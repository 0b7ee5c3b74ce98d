"""Structured logs: a line per call and per event, written by a thread so that a slow reader stalls nobody."""

from __future__ import annotations

import logging
import os
import re
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

#: What may wait for a stalled reader of the log before lines are dropped (and counted).
_PENDING_LIMIT: Final = 16 * 1024 * 1024

#: Loggers whose lines we write: our packages', and those of libraries from warning up.
_OURS: Final = ("gateway", "registry", "healthcheck")
_FOREIGN: Final = ("uvicorn", "litestar", "asyncio", "httpx")

#: How long lines may wait for company.
_BATCH_SECONDS: Final = 0.05

_encode = msgspec.json.Encoder().encode


class CallLine(msgspec.Struct, omit_defaults=True, gc=False):
    """One call (contract 8). Times in milliseconds, sizes in bytes; never a body, token or credential."""

    time: str
    level: str
    event: str
    request_id: str
    caller: str
    agent: str
    method: str
    outcome: str
    status: int
    duration_ms: float
    bytes_in: int
    bytes_out: int
    reason: str = ""
    trace_id: str = ""
    events: int = 0


class LogWriter:
    """Writes lines to a file descriptor from a thread of its own, in order.

    The thread is woken once per batch, not once per line: lines wait up to a twentieth of a second.

    Where several processes write to the same descriptor, each has a number, which its lines bear. A pipe keeps
    what is written to it at once together only up to PIPE_BUF: they write that much at a time, and whole lines.
    """

    def __init__(self, fd: int, worker: int | None = None) -> None:
        self._fd = fd
        self._worker = worker
        self._lines: deque[bytes] = deque()
        self._pending = 0
        self._closing = False
        self._torn = False  # the last line was written in part only
        self._awake = threading.Event()
        self._hurry = threading.Event()
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Queue a whole line; dropped and counted when the reader has stalled for too long."""
        if self._pending > _PENDING_LIMIT:
            self.dropped += 1
            return
        self._pending += len(line)
        self._lines.append(line)
        if not self._awake.is_set():
            self._awake.set()

    def close(self) -> None:
        """Write what is queued, for at most two seconds, and end the thread."""
        self._closing = True
        self._hurry.set()
        self._awake.set()
        self._thread.join(2.0)

    def _run(self) -> None:
        while not (self._closing and not self._lines):
            self._awake.wait()
            self._hurry.wait(_BATCH_SECONDS)
            self._awake.clear()
            self._write_batch()

    def _write_batch(self) -> None:
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        if self._worker is None:
            self._write_piece(b"".join(lines))
        else:
            for piece in pieces([marked(line, self._worker) for line in lines], select.PIPE_BUF):
                self._write_piece(piece)
        self._pending -= sum(map(len, lines))

    def _write_piece(self, piece: bytes) -> None:
        left = memoryview(b"\n" + piece if self._torn else piece)
        try:
            while left:
                written = _write_some(self._fd, left)
                self._torn = left[written - 1] != ord("\n")
                left = left[written:]
        except OSError:  # the reader of our log is gone, or the disk is full; serving goes on
            self.dropped += min(bytes(left).count(b"\n"), piece.count(b"\n"))


def marked(line: bytes, worker: int) -> bytes:
    """Add the number of the process to a line."""
    if line.startswith(b"{"):
        return b'%b,"worker":%d}\n' % (line[:-2], worker)
    return b"%b worker=%d\n" % (line[:-1], worker)


def pieces(lines: Sequence[bytes], size: int) -> Iterator[bytes]:
    """Join lines to pieces of at most that many bytes; a line that is longer is a piece of its own."""
    piece = b""
    for line in lines:
        if piece and len(piece) + len(line) > size:
            yield piece
            piece = b""
        piece += line
    if piece:
        yield piece


def _write_some(fd: int, text: memoryview) -> int:
    """Write what there is room for, and wait for room where somebody made the descriptor non-blocking."""
    while True:
        try:
            return os.write(fd, text)
        except BlockingIOError:
            room = select.poll()
            room.register(fd, select.POLLOUT)
            room.poll()


class Clock:
    """Writes the time cheaply: texts are kept for as long as they are true."""

    def __init__(self) -> None:
        self._second = self._millisecond = -1
        self._text = self._whole = ""

    def __call__(self) -> str:
        """Give the time as RFC 3339 in UTC with milliseconds."""
        millisecond = time.time_ns() // 1_000_000
        if millisecond != self._millisecond:
            self._millisecond = millisecond
            second = millisecond // 1000
            if second != self._second:
                self._text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S.")
                self._second = second
            self._whole = f"{self._text}{millisecond % 1000:03d}Z"
        return self._whole


now: Final = Clock()


def as_json(fields: dict[str, Any]) -> bytes:
    """Write a line of JSON; text that is not valid Unicode is escaped rather than refused."""
    try:
        return _encode(fields) + b"\n"
    except (UnicodeEncodeError, TypeError):
        return _encode({name: _printable(value) for name, value in fields.items()}) + b"\n"


def as_text(fields: dict[str, Any]) -> bytes:
    """Write a line for people: time, level, event, then what is left as name=value.

    Values that might be taken for more than one stand in quotes, and inside those a backslash is doubled.
    """
    rest = dict(fields)
    first = [_quoted(rest.pop(name, "-")) for name in ("time", "level", "event")]
    line = " ".join(first + [f"{name}={_quoted(value)}" for name, value in rest.items() if value != ""])
    return line.encode() + b"\n"


_AMBIGUOUS: Final = re.compile(r'[ ="\\]').search


def _quoted(value: Any) -> str:
    text = str(value)
    if not _AMBIGUOUS(text):
        return _printable(text)
    return '"' + _printable(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _printable(value: Any) -> str:
    text = str(value)
    if text.isprintable():
        return text
    # Line ends would make lines, and escape sequences would reach the reader's terminal.
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


_FORMATS: Final[dict[str, Callable[[dict[str, Any]], bytes]]] = {"json": as_json, "text": as_text}


class _Handler(logging.Handler):
    """Brings the lines of Python's logging into the same stream and form."""

    def __init__(self, writer: LogWriter, form: Callable[[dict[str, Any]], bytes]) -> None:
        super().__init__()
        self._writer = writer
        self.form = form

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = {
            "time": now(),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = logging.Formatter().formatException(record.exc_info)
        self._writer.write(self.form(fields))


class Logs:
    """The log of one process: `event` for what happens seldom, `call` for each call."""

    def __init__(
        self, *, level: str, form: str, calls: bool, fd: int | None = None, worker: int | None = None
    ) -> None:
        """Open the log.

        Args:
            level: The lowest level that is written.
            form: json or text.
            calls: Writes a line per call, at level info.
            fd: Where to; by default standard error.
            worker: The number of this process where several write to the same place.
        """
        self._writer = LogWriter(sys.stderr.fileno() if fd is None else fd, worker)
        self._handler = _Handler(self._writer, _FORMATS[form])
        self._logger = logging.getLogger("gateway")
        self.change(level=level, form=form, calls=calls)
        for name in _OURS + _FOREIGN:
            logger = logging.getLogger(name)
            logger.addHandler(self._handler)
            logger.propagate = False

    def change(self, *, level: str, form: str, calls: bool) -> None:
        """Go on with these settings; see `__init__`."""
        self._form = self._handler.form = _FORMATS[form]
        self._json = form == "json"
        number = logging.getLevelNamesMapping()[level.upper()]
        for name in _OURS + _FOREIGN:
            logging.getLogger(name).setLevel(number if name in _OURS else max(number, logging.WARNING))
        self.calls = calls and number <= logging.INFO

    @property
    def dropped(self) -> int:
        """Number of lines lost because nobody read them."""
        return self._writer.dropped

    def event(self, event: str, *, level: str = "info", **fields: Any) -> None:
        """Log something that happened."""
        number = logging.getLevelNamesMapping()[level.upper()]
        self._logger.log(number, event, extra={"fields": fields})

    def call(self, line: CallLine) -> None:
        """Log one call."""
        try:
            text = _encode(line) + b"\n" if self._json else as_text(msgspec.structs.asdict(line))
        except UnicodeEncodeError:
            text = as_json(msgspec.structs.asdict(line))
        self._writer.write(text)

    def audit(
        self,
        action: str,
        *,
        caller: str,
        agent: str,
        outcome: str,
        reason: str = "",
        client: str = "",
        request_id: str = "",
    ) -> None:
        """Log who has done what to which agent, or was kept from it; whatever `log.level` says (contract 8).

        Args:
            action: register, deregister, call, or the method and route of another request.
            caller: The principal.
            agent: The agent's id, if it is well formed.
            outcome: ok, refused, invalid, failed.
            reason: Why not.
            client: Address of the sender.
            request_id: The request.
        """
        given = {"reason": reason, "client": client, "request_id": request_id}
        fields = {"action": action, "caller": caller, "agent": agent, "outcome": outcome}
        fields |= {name: value for name, value in given.items() if value}
        self._writer.write(self._form({"time": now(), "level": "info", "event": "audit", **fields}))

    def close(self) -> None:
        """Write what is queued and leave the loggers as they were."""
        for name in _OURS + _FOREIGN:
            logger = logging.getLogger(name)
            logger.removeHandler(self._handler)
            logger.propagate = True
            logger.setLevel(logging.NOTSET)
        self._writer.close()
