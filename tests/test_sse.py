"""The event-stream reader, without a socket: contract 3.3, the streaming entries of the pitfalls."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.sse import COMMENT, Comment, Event, EventReader, EventTooLarge

CAP = 1 << 20


def read(chunks: Iterable[bytes], cap: int = CAP) -> list[Event]:
    reader = EventReader(cap)
    found: list[Event | Comment] = []
    for chunk in chunks:
        found += reader.feed(chunk)
    found += reader.end()
    return [event for event in found if event is not COMMENT]


def reference(stream: bytes) -> list[Event]:
    """The grammar in the most obvious way: decode everything first, then one character after the other."""
    events: list[Event] = []
    data: list[str] = []
    fields: dict[str, str] = {}
    for line in [*reference_lines(stream.decode("utf-8-sig", "replace")), ""]:
        field, colon, value = line.partition(":")
        if colon and value.startswith(" "):
            value = value[1:]
        if line == "":
            event = Event(
                "\n".join(data).encode(), *(reference_value(fields, k) for k in ("event", "id", "retry"))
            )
            if data and (event.data or event.name is not None or event.id is not None):
                events.append(event)
            data, fields = [], {}
        elif field == "data":
            data.append(value)
        elif (
            field == "event"
            or (field == "id" and "\0" not in value)
            or (field == "retry" and value != "" and all(c in "0123456789" for c in value))
        ):
            fields[field] = value
    return events


def reference_lines(text: str) -> Iterator[str]:
    line, before = "", ""
    for c in text:
        if c in "\r\n":
            if not (c == "\n" and before == "\r"):
                yield line
            line = ""
        else:
            line += c
        before = c
    yield line


def reference_value(fields: dict[str, str], field: str) -> bytes | None:
    return fields[field].encode() if field in fields else None


NASTY: dict[bytes, list[Event | str]] = {
    # pitfall 60: several data lines, with and without the space
    b'event: task.status\ndata: {"a":1,\ndata:"b":2}\n\n': [Event(b'{"a":1,\n"b":2}', b"task.status")],
    # pitfall 62: CR, mixed ends, CRLF
    b"data: a\rdata: b\r\rdata: c\r\r": [Event(b"a\nb"), Event(b"c")],
    b"data: a\r\ndata: b\r\n\r\n": [Event(b"a\nb")],
    b"data: a\rdata: b\ndata: c\r\n\rdata: d\n\r\n": [Event(b"a\nb\nc"), Event(b"d")],
    b"data: a\n\r\ndata: b\r\r\ndata: c\n\n": [Event(b"a"), Event(b"b"), Event(b"c")],
    # nothing else ends a line: U+2028, NEL, VT, FF, FS, NUL
    "data: a\u2028b\u0085c\x0bd\x0ce\x1cf\0g\n\n".encode(): ["a\u2028b\u0085c\x0bd\x0ce\x1cf\0g"],
    # pitfall 64: code points of two, three and four bytes
    "data: 北京🌍é\n\n".encode(): ["北京🌍é"],
    # pitfall 65: invalid UTF-8 becomes U+FFFD, as in a decoder of the whole stream
    b'data: \xff\xfe{}\n\ndata: {"type":"done"}\n\n': ["\ufffd\ufffd{}", '{"type":"done"}'],
    b"data: a\xe4\n\ndata: \xf0\x9f\xa6": ["a\ufffd", "\ufffd"],
    b"event: \xff\nid: \xe4\xb8\ndata: \xed\xa0\x80\n\n": [
        Event("\ufffd\ufffd\ufffd".encode(), "\ufffd".encode(), "\ufffd".encode())
    ],
    b"data: \xe4\ndata: \xb8\xad\n\n": ["\ufffd\n\ufffd\ufffd"],
    # one leading BOM, no other
    b"\xef\xbb\xbfdata: a\n\ndata: b\n\n": [Event(b"a"), Event(b"b")],
    b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n": [Event(b"b")],
    b"\xef\xbb\n\ndata: \xef\xbb\xbfb\n\n": [Event(b"\xef\xbb\xbfb")],
    # pitfall 67: comments and empty keepalives are no events
    b": keep-alive\n\n:\n\ndata:\n\n\n\n\ndata: x\n\n:data: y\n\ndata: z\n:\n\n": [Event(b"x"), Event(b"z")],
    # pitfall 68: blocks without data are no events and leak nothing
    b'retry: 3000\n\nevent: task.done\n\nid: 9\n\ndata: {"type":"status_update"}\n\n': [
        Event(b'{"type":"status_update"}')
    ],
    b"retry: 10x\nretry: -1\nretry: \xd9\xa1\nretry: 1 \nretry:\ndata: a\n\n": [Event(b"a")],
    b"retry: 10\nretry: x\ndata: a\n\n": [Event(b"a", None, None, b"10")],
    # pitfall 69: ids; empty resets, NUL is ignored
    b"id: 7\ndata: {}\n\nid\ndata: {}\n\nid: a\0b\ndata: {}\n\nid: 1\nid: \0\ndata: {}\n\n": [
        Event(b"{}", None, b"7"),
        Event(b"{}", None, b""),
        Event(b"{}"),
        Event(b"{}", None, b"1"),
    ],
    # field names: exact, without colon, with at most one space taken off, unknown ones ignored
    b"Data: a\n data: b\ndata : c\nevents: d\ndata:  e\ndata::f\n\n": [Event(b" e\n:f")],
    b"event:  a\nid:  \ndata:  b\ndata:  c \n\n": [Event(b" b\n c ", b" a", b" ")],
    b"data\ndata\n\nevent\ndata\n\nevent:x\nevent: y\ndata:\n\n": [
        Event(b"\n"),
        Event(b"", b""),
        Event(b"", b"y"),
    ],
    # a final event without its blank line, or without any line end
    b"data: a\n\nevent: b\ndata: c": [Event(b"a"), Event(b"c", b"b")],
    b"data: a\r": [Event(b"a")],
    b"data": [],
    b"event: task.done\n": [],
    b"": [],
    b"\n\r\n\r\r": [],
}


@pytest.mark.parametrize("stream", NASTY, ids=range(len(NASTY)))
def test_any_two_cuts_read_the_same(stream: bytes) -> None:
    """Contract 3.3; pitfalls 60, 62, 64, 65, 67, 68, 69: every pair of split positions, and byte by byte."""
    expected = [Event(e.encode()) if isinstance(e, str) else e for e in NASTY[stream]]
    assert reference(stream) == expected
    assert read([stream]) == expected
    assert read(stream[i : i + 1] for i in range(len(stream))) == expected
    for i in range(len(stream) + 1):
        assert read([stream[:i], stream[i:]]) == expected, i
        for j in range(i, len(stream) + 1):
            assert read([stream[:i], b"", stream[i:j], stream[j:]]) == expected, (i, j)


FRAGMENTS = st.sampled_from(
    b"data|event|id|retry|:| |\n|\r|\r\n|\n\n|\r\r|data: |\x0b|\xef\xbb\xbf|\xe4|\xb8\xad|\xff|\0|9|x".split(b"|")
)


@settings(max_examples=500, deadline=None)
@example(b"\xef\xbb\xbf\xef\xbb\xbf:\n", [1, 2, 3, 4])
@given(
    st.one_of(st.lists(FRAGMENTS, max_size=40).map(b"".join), st.binary(max_size=60)),
    st.lists(st.integers(0, 80), max_size=6),
)
def test_any_stream_in_any_chunks_reads_as_in_the_reference(stream: bytes, cuts: list[int]) -> None:
    """Contract 3.3, whole."""
    edges = [0, *sorted(cuts), len(stream)]
    assert read(stream[i:j] for i, j in pairwise(edges)) == reference(stream)


@pytest.mark.parametrize(
    ("stream", "at"),
    [
        (b"data: a\n\n", 9),
        (b"data: a\r\r\n", 9),
        (b"data: a\r\n\r\n", 10),
        (b"data: a\n\r\n", 9),
        (b"\xef\xbb\xbfdata: a\n\n", 12),
    ],
)
def test_an_event_is_given_with_the_byte_that_completes_it(stream: bytes, at: int) -> None:
    """Contract 3.3: a lone CR dispatches without waiting for the next byte, and its LF adds nothing."""
    reader = EventReader(CAP)
    found = [reader.feed(stream[i : i + 1]) for i in range(len(stream))]
    assert found == [[Event(b"a")] if i == at - 1 else [] for i in range(len(stream))]
    assert reader.feed(b"data: b\n\n") == [Event(b"b")]


def test_comments_are_reported_between_events_once_per_feed() -> None:
    """Contract 3.3: a comment of the agent is passed on; pitfall 67: so is an event that holds nothing."""
    reader = EventReader(CAP)
    assert reader.feed(b": ping\r\n") == [COMMENT]
    assert reader.feed(b": a\n\n:\n:\n\n") == [COMMENT]
    assert reader.feed(b"data: a\n\n: b\n\ndata:\n\ndata: c\n\n:\n") == [Event(b"a"), COMMENT, Event(b"c")]
    assert reader.feed(b"data:\n\n") == [COMMENT]
    assert reader.feed(b"retry: 5\ndata\n\n") == [COMMENT]
    assert reader.feed(b"data: d\n: inside\n") == [COMMENT]
    assert reader.feed(b"data: e\n\n") == [Event(b"d\ne")]
    assert reader.feed(b": unfinished") == []
    assert reader.end() == []


def chunkings(stream: bytes) -> Iterator[list[bytes]]:
    yield [stream]
    for size in (1, 2, 3, 7, 64):
        yield [stream[i : i + size] for i in range(0, len(stream), size)]


@pytest.mark.parametrize(
    ("frame", "size"),
    [
        (b"data: %b\n\n", 100),
        (b"data:%b\r\n\r\n", 100),
        (b"event: task.status\nid: 1\ndata: %b\r\r", 100),
        (b": comment\ndata: ab\ndata: %b\n\n", 97),
        (b"data:\ndata\ndata: %b\n\n", 98),
        (b"data: %b\ndata:\n\n", 99),
        (b"data: %b", 100),
    ],
)
def test_the_cap_is_exact_in_any_chunks(frame: bytes, size: int) -> None:
    """Contract 3.3; pitfall 92 (c): joined data of exactly the cap passes, one byte more does not."""
    for chunks in chunkings(b"data: before\n\n" + frame % (b"x" * size)):
        before, event = read(chunks, cap=100)
        assert before == Event(b"before")
        assert len(event.data) == 100
    for chunks in chunkings(frame % (b"x" * (size + 1))):
        with pytest.raises(EventTooLarge):
            read(chunks, cap=100)


@pytest.mark.parametrize("start", [b":", b"id: ", b"event: ", b"retry: ", b"data", b"unknown: "])
def test_lines_of_every_kind_are_capped_exactly(start: bytes) -> None:
    """Pitfall 92: a cap on data alone is not enough."""
    line = start + b"1" * (106 - len(start))
    for chunks in chunkings(line + b"\ndata: a\n\n"):
        assert [event.data for event in read(chunks, cap=100)] == [b"a"]
    for chunks in chunkings(line + b"1\ndata: a\n\n"):
        with pytest.raises(EventTooLarge):
            read(chunks, cap=100)


@pytest.mark.parametrize("end", [b"\n\ndata: d\n\n", b""])
def test_events_before_one_that_is_too_large_are_not_lost(end: bytes) -> None:
    """Contract 3.2: each complete event is passed on, also when the next one breaks the stream."""
    reader = EventReader(10)
    with pytest.raises(EventTooLarge) as caught:
        reader.feed(b"data: a\n\n: b\n\ndata: c\n\ndata: " + b"x" * 11 + end)
    assert caught.value.events == [Event(b"a"), COMMENT, Event(b"c")]


def test_an_event_that_is_too_large_at_the_end() -> None:
    """Contract 3.3: the cap holds for the final event without its blank line."""
    reader = EventReader(10)
    assert reader.feed(b"data: 12345\ndata: 67890") == []
    with pytest.raises(EventTooLarge):
        reader.end()


def test_many_small_events_are_not_counted_together() -> None:
    """Pitfall 92: the cap is per event, and a stream may be of any length."""
    assert len(read([b"event: e\nid: 1\ndata: 12345\n\n: comment\n"] * 1000, cap=10)) == 1000


def feed_without_end(reader: EventReader, piece: bytes) -> None:
    for _ in range(10 * CAP // 100):
        reader.feed(piece)


@pytest.mark.parametrize(
    "piece", [b"x" * 1000, b"\ndata: x" * 100, b"\ndata" * 100, b"\ndata: abc\r\n: y" * 50], ids=range(4)
)
def test_an_endless_event_is_cut_off_in_bounded_memory(piece: bytes) -> None:
    """Pitfall 92 (a), (b)."""
    reader = EventReader(CAP)
    reader.feed(b"data: ")
    tracemalloc.start()
    try:
        with pytest.raises(EventTooLarge):
            feed_without_end(reader, piece)
        assert tracemalloc.get_traced_memory()[1] < 3 * CAP
    finally:
        tracemalloc.stop()


def test_endless_comments_hold_no_memory() -> None:
    """Pitfall 92: lines that add nothing to an event leave nothing behind."""
    reader = EventReader(CAP)
    reader.feed(b"data: a\n")
    tracemalloc.start()
    try:
        for _ in range(2000):
            assert reader.feed(b": ping\nunknown: x\nid: 1\n" * 50) == [COMMENT]
        assert tracemalloc.get_traced_memory()[0] < CAP // 10
    finally:
        tracemalloc.stop()
    assert reader.feed(b"\n") == [Event(b"a", None, b"1")]


@pytest.mark.parametrize(
    ("stream", "size"),
    [
        (b"data: " + b"x" * (10 << 20) + b"\n\n", 1024),
        (b"data: x\r\n" * (1 << 20) + b"\n", 1024),
        (b"data: " + b"x" * (1 << 20) + b"\n\n", 1),
        (b"\n" * (1 << 20) + b"data: x\n\n", 1024),
        (b": x\n" * (1 << 20) + b"data: x\n\n", 1 << 22),
    ],
    ids=["one line", "many lines", "single bytes", "empty lines", "comments"],
)
def test_reading_is_linear(stream: bytes, size: int) -> None:
    """A large event in small pieces costs its bytes: quadratic reading would take minutes."""
    started = time.process_time()
    assert len(read((stream[i : i + size] for i in range(0, len(stream), size)), cap=10 << 20)) == 1
    assert time.process_time() - started < 10
