"""Structured logs: contract 8."""

from __future__ import annotations

import errno
import json
import logging
import os
import select
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.logs import CallLine, Logs, LogWriter, as_text, now, pieces


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def open_logs(path: Path, **options: Any) -> Logs:
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    return Logs(**{"level": "info", "form": "json", "calls": True, "fd": fd} | options)


def line(**changes: Any) -> CallLine:
    values: dict[str, Any] = {
        "time": now(),
        "level": "info",
        "event": "call",
        "request_id": "r-1",
        "caller": "anonymous",
        "agent": "echo",
        "method": "message/send",
        "outcome": "success",
        "status": 200,
        "duration_ms": 1.5,
        "bytes_in": 10,
        "bytes_out": 20,
    }
    return CallLine(**values | changes)


def test_a_call_is_one_line_of_json(path: Path) -> None:
    logs = open_logs(path)
    logs.call(line())
    logs.call(line(method="\ud83d\n", reason="AGENT_TIMEOUT"))
    logs.close()
    first, second = map(json.loads, path.read_text().splitlines())
    assert first["request_id"] == "r-1"
    assert first["time"].endswith("Z")
    assert "reason" not in first
    assert second["reason"] == "AGENT_TIMEOUT"
    assert second["method"].isascii()


def test_events_and_pythons_logging_go_the_same_way(path: Path) -> None:
    logs = open_logs(path)
    logs.event("listening", api="http://127.0.0.1:1")
    try:
        raise ValueError("inner")
    except ValueError:
        logging.getLogger("uvicorn.error").exception("broken\nline")
    logging.getLogger("uvicorn.error").info("not this")
    logs.close()
    first, second = map(json.loads, path.read_text().splitlines())
    assert (first["event"], first["api"], first["level"]) == ("listening", "http://127.0.0.1:1", "info")
    assert (second["event"], second["level"]) == ("broken\nline", "error")
    assert "ValueError: inner" in second["exception"]


def test_text_for_people_keeps_one_line_per_event(path: Path) -> None:
    logs = open_logs(path, form="text")
    logs.event("a\nb", name="x\r\ny")
    logs.call(line())
    logs.close()
    lines = path.read_text().splitlines()
    assert len(lines) == 2
    assert "name=x\\r\\ny" in lines[0]
    assert "agent=echo" in lines[1]


def test_level_and_switch_silence_calls(path: Path) -> None:
    quiet = open_logs(path, level="warning")
    assert not quiet.calls
    quiet.event("hidden")
    quiet.event("seen", level="error")
    quiet.close()
    assert not open_logs(path, calls=False).calls
    assert [json.loads(text)["event"] for text in path.read_text().splitlines()] == ["seen"]


def test_a_stalled_reader_stops_nobody_and_bounds_memory() -> None:
    """The log is a pipe that nobody reads: writers go on, what does not fit is dropped and counted."""
    read_end, write_end = os.pipe()
    writer = LogWriter(write_end)
    big = b"x" * (1024 * 1024) + b"\n"
    for _ in range(40):
        writer.write(big)
    assert writer.dropped > 0
    drained = threading.Thread(target=_drain, args=(read_end,))
    drained.start()
    writer.close()
    os.close(write_end)
    drained.join(5)
    assert not drained.is_alive()


def _drain(fd: int) -> None:
    while os.read(fd, 1 << 20):
        pass
    os.close(fd)


def test_a_closed_log_does_not_stop_the_process() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    writer = LogWriter(write_end)
    writer.write(b"lost\n")
    writer.close()
    os.close(write_end)
    assert writer.dropped == 1


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_hostile_principal_makes_neither_lines_nor_terminal_commands(form: str, tmp_path: Path) -> None:
    """Contract 6.5: whatever a token says, a line stays a line, and one that can be shown."""
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    logs = Logs(level="error", form=form, calls=False, fd=descriptor)
    hostile = "a\r\nlevel=info event=forged \x1b[2J \x9b31m \u2028 \u202e"
    logs.audit("register", caller=hostile, agent="echo", outcome="ok")
    logs.close()
    os.close(descriptor)
    text = path.read_text()
    assert text.count("\n") == 1
    assert not {"\r", "\x1b"} & set(text)
    if form == "text":
        assert text.rstrip("\n").isprintable()
    else:
        assert json.loads(text)["caller"] == hostile


@pytest.mark.parametrize("blocking", [True, False])
def test_every_line_arrives_whole_whatever_the_descriptor(blocking: bool) -> None:
    """Whoever shares our stderr may have made it non-blocking: the thread waits for room, the lines stay whole."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, blocking)
    got = bytearray()

    def read() -> None:
        while data := os.read(read_end, 5000):
            got.extend(data)

    reader = threading.Thread(target=read)
    writer = LogWriter(write_end)
    lines = [b'{"n":%d,"pad":"%b"}\n' % (number, b"x" * 200) for number in range(3000)]
    for line in lines:
        writer.write(line)
    _wait_until_full(write_end)
    reader.start()
    writer.close()
    os.close(write_end)
    reader.join(5)
    os.close(read_end)
    assert bytes(got) == b"".join(lines)
    assert writer.dropped == 0


def _wait_until_full(fd: int) -> None:
    room, until = select.poll(), time.monotonic() + 5
    room.register(fd, select.POLLOUT)
    while room.poll(0) and time.monotonic() < until:
        time.sleep(0.01)


def test_lines_lost_to_a_closed_reader_are_counted_one_by_one() -> None:
    """The batch is one write, its lines are what is lost."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    writer = LogWriter(write_end)
    for _ in range(50):
        writer.write(b"lost\n")
    writer.close()
    os.close(write_end)
    assert writer.dropped == 50


def test_after_a_torn_line_the_next_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk takes half a line: what follows once there is room is a line of its own."""
    path, real = tmp_path / "log", os.write
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    room = iter([7])

    def write(fd: int, text: memoryview) -> int:
        size = next(room, 0)
        if not size:
            raise OSError(errno.ENOSPC, "full")
        return real(fd, text[:size])

    writer = LogWriter(fd)
    with monkeypatch.context() as full:
        full.setattr(os, "write", write)
        writer.write(b"first\nsecond\nthird\n")
        until = time.monotonic() + 5
        while not writer.dropped and time.monotonic() < until:
            time.sleep(0.01)
    writer.write(b"fourth\n")
    writer.close()
    os.close(fd)
    assert path.read_bytes() == b"first\ns\nfourth\n"
    assert writer.dropped == 2


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("message/send", "message/send"),
        ("m outcome=success status=200", '"m outcome=success status=200"'),
        ("a=b", '"a=b"'),
        ('a"', '"a\\""'),
        ('" outcome="x', '"\\" outcome=\\"x"'),
        ("a\\", '"a\\\\"'),
        ("a\x1b[2J\x07\x85\u2028\u202e\xa0\ud83d", "a\\x1b[2J\\x07\\x85\\u2028\\u202e\\xa0\\ud83d"),
        ("a\nb c", '"a\\nb c"'),
        ("é", "é"),
    ],
)
def test_no_value_forges_a_field(value: str, shown: str) -> None:
    """Contract 8: a caller chooses the method's name, not what else the line says."""
    line = as_text({"time": "t", "level": "info", "event": value, "method": value, "outcome": "failed"}).decode()
    assert line == f"t info {shown} method={shown} outcome=failed\n"


@pytest.mark.parametrize("form", ["json", "text"])
def test_lines_bear_the_number_of_the_worker(path: Path, form: str) -> None:
    logs = open_logs(path, form=form, worker=3)
    logs.event("a brace }", x="1")
    logs.call(line())
    logs.audit("call", caller="me", agent="echo", outcome="ok")
    logs.close()
    lines = path.read_text().splitlines()
    assert len(lines) == 3
    if form == "json":
        assert [json.loads(text)["worker"] for text in lines] == [3, 3, 3]
    else:
        assert all(text.endswith(" worker=3") for text in lines)


def test_workers_write_whole_lines_at_a_time_to_a_pipe_they_share() -> None:
    """What is written at once to a pipe stays together up to PIPE_BUF: more would mingle with others' lines."""
    lines = [b"x" * length + b"\n" for length in (10, 4000, 100, 5000, 1, 4094, 4095)]
    found = list(pieces(lines, select.PIPE_BUF))
    assert b"".join(found) == b"".join(lines)
    assert all(piece.endswith(b"\n") for piece in found)
    assert [len(piece) for piece in found] == [4012, 101, 5001, 2, 4095, 4096]
    assert list(pieces([], 10)) == []
