"""Reading answers, without sockets: every way the bytes may be torn gives the same answer (contract 2.3)."""

from __future__ import annotations

import random

import pytest

from gateway.upstream.codings import STEP, Decoder, UndecodableError
from gateway.upstream.reader import MAX_HEAD, ResponseReader
from tests.fakes import reply

DATA = b'{"jsonrpc":"2.0","id":1,"result":{}}'
CHUNKED = reply.head(200, [("Transfer-Encoding", "chunked")])
ANSWERS = {
    "length": reply.wire(200, [("X-A", "b")], DATA),
    "chunked": CHUNKED + reply.chunk(DATA[:7]) + reply.chunk(DATA[7:]) + b"0\r\nTrailer: t\r\n\r\n",
    "interim": reply.head(103, [("Link", "x")]) + reply.head(100) + reply.wire(200, [], DATA),
    "crlf first": b"\r\n" + reply.wire(200, [], DATA),
}


def read(*parts: bytes) -> tuple[ResponseReader, bytes]:
    reader, body = ResponseReader(), b""
    for part in parts:
        reader.feed(part)
        body += b"".join(reader.pieces)
        reader.pieces.clear()
    return reader, body


@pytest.mark.parametrize("name", ANSWERS)
def test_torn_anywhere(name: str) -> None:
    answer = ANSWERS[name]
    whole, _ = read(answer)
    for at in range(1, len(answer)):
        reader, body = read(answer[:at], answer[at:])
        assert (reader.status, reader.complete, reader.keep_alive, reader.excess) == (200, True, True, False), at
        assert (body, reader.headers) == (DATA, whole.headers)


@pytest.mark.parametrize("name", ANSWERS)
def test_in_single_bytes(name: str) -> None:
    reader, body = read(*(bytes((byte,)) for byte in ANSWERS[name]))
    assert (reader.status, reader.complete, reader.broken, body) == (200, True, False, DATA)


@pytest.mark.parametrize("name", ANSWERS)
def test_not_complete_before_the_last_byte(name: str) -> None:
    reader, _ = read(ANSWERS[name][:-1])
    reader.end()
    assert not reader.complete


def test_one_answer_after_the_other() -> None:
    reader = ResponseReader()
    for name, answer in ANSWERS.items():
        reader.feed(answer)
        assert (reader.complete, b"".join(reader.pieces)) == (True, DATA), name
        reader.reset()
        assert not reader.started


def test_a_second_answer_is_excess_and_not_mixed_in() -> None:
    reader, body = read(reply.wire(200, [("X-A", "1")], DATA) + reply.wire(500, [("X-B", "2")], b"other"))
    assert (reader.complete, reader.excess, reader.status, body) == (True, True, 200, DATA)
    assert [name for name, _ in reader.headers] == [b"x-a", b"content-length"]


def test_the_end_of_the_connection_ends_only_bodies_without_framing() -> None:
    for answer, complete in (
        (reply.head(200) + DATA, True),
        (reply.head(200, [], "HTTP/1.0") + DATA, True),
        (CHUNKED + reply.chunk(DATA), False),
        (reply.head(200, [("Content-Length", "100")]) + DATA, False),
        (b"HTTP/1.1 200 OK\r\nX: y", False),
        (reply.head(103), False),
        (b"", False),
    ):
        reader, _ = read(answer)
        reader.end()
        assert reader.complete is complete, answer


def test_the_limit_of_a_head() -> None:
    """In one read or in many; a head of ordinary size beside a large body is no matter."""
    small = reply.wire(200, [("X", "x" * 60_000)], b"y" * 200_000)
    large = reply.wire(200, [("X", "x" * 70_000)], b"y" * 200_000)
    for size in (1000, 100_000, 1_000_000):
        accepted, _ = read(*(small[at : at + size] for at in range(0, len(small), size)))
        refused, _ = read(*(large[at : at + size] for at in range(0, len(large), size)))
        assert (accepted.complete, accepted.broken, refused.broken) == (True, False, True)


@pytest.mark.parametrize("endless", [b"0\r\nX: ", b"0\r\n" + b"X: y\r\n" * 10, b"1;", b"1;a=", b"00000000000"])
def test_what_never_becomes_a_body_is_limited(endless: bytes) -> None:
    reader = ResponseReader()
    reader.feed(CHUNKED + endless)
    for _ in range(MAX_HEAD // 1000 + 2):
        reader.feed(b"x" * 1000)
    assert reader.broken


def test_our_own_faults_are_not_taken_for_the_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = ResponseReader()
    monkeypatch.setattr(ResponseReader, "_note", lambda *_: 1 / 0)
    with pytest.raises(Exception, match="callback") as caught:
        reader.feed(CHUNKED)
    assert isinstance(caught.value.__context__, ZeroDivisionError)


def test_damaged_answers_are_judged_not_raised() -> None:
    """Bytes changed, dropped and doubled at random (the same ones in every run)."""
    rolls = random.Random(20)
    for _ in range(3000):
        answer = bytearray(rolls.choice(list(ANSWERS.values())))
        for _ in range(rolls.randint(1, 4)):
            at = rolls.randrange(len(answer))
            answer[at : at + rolls.randint(0, 2)] = rolls.randbytes(rolls.randint(0, 2))
        cut = rolls.randrange(len(answer) + 1)
        reader, body = read(bytes(answer[:cut]), bytes(answer[cut:]))
        reader.end()
        assert len(body) <= len(answer)
        assert reader.complete or reader.broken or reader.upgraded or not reader.excess


# Codings


@pytest.mark.parametrize(
    ("coding", "coded"),
    [
        (b"gzip", reply.gzip(DATA)),
        (b"gzip", reply.gzip(b"") + reply.gzip(DATA) + reply.gzip(b"")),
        (b"x-gzip", reply.gzip(DATA)),
        (b"deflate", reply.deflate(DATA)),
        (b"deflate", reply.deflate(DATA, bare=True)),
    ],
)
def test_codings_torn_anywhere(coding: bytes, coded: bytes) -> None:
    for at in range(len(coded)):
        decoder, body = Decoder((coding,)), b""
        for part in (coded[:at], coded[at:]):
            decoder.feed(part)
            body += decoder.read()
        assert (body, decoder.whole) == (DATA, True), at


@pytest.mark.parametrize("size", [STEP - 1, STEP, STEP + 1, 3 * STEP])
def test_decoding_goes_in_steps(size: int) -> None:
    decoder = Decoder((b"gzip",))
    decoder.feed(reply.gzip(b"x" * size))
    sizes: list[int] = []
    while not sizes or sizes[-1] == STEP:
        assert not (sizes and sum(sizes) > size)
        sizes.append(len(decoder.read()))
    assert sum(sizes) == size
    assert decoder.whole


def test_cut_data_is_not_whole() -> None:
    for coding, coded in ((b"gzip", reply.gzip(DATA)), (b"deflate", reply.deflate(DATA))):
        for at in range(1, len(coded)):
            decoder = Decoder((coding,))
            decoder.feed(coded[:at])
            decoder.read()
            assert not decoder.whole, at


@pytest.mark.parametrize("codings", [(b"br",), (b"zstd",), (b"gzip", b"gzip"), (b"*",)])
def test_unknown_codings_show_when_data_comes(codings: tuple[bytes, ...]) -> None:
    decoder = Decoder(codings)
    assert decoder.whole
    with pytest.raises(UndecodableError):
        decoder.feed(b"x")
