"""The operators' commands before gateways that are none, and texts that are none of a terminal's."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest

from gateway.operator import completion
from gateway.operator.output import lines_of, on_a_line
from tests.fakes.operating import answering, ended, started, vitalgate
from tests.fakes.ports import refusing_port

HUGE = b"1" + b"0" * 400


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="deep"),
        pytest.param(b'{"a":' * 5_000 + b"1" + b"}" * 5_000, id="deep-object"),
        pytest.param(b'{"a":' + b"1" * 5_000 + b"}", id="long-integer"),
        pytest.param(
            b'{"checks":{"x":{"timings_ms":{"total":%b}}},"next_trial_seconds":%b,"results":[{"latency_ms":%b}]}'
            % (HUGE, HUGE, HUGE),
            id="huge-integer",
        ),
        pytest.param(b'{"results":[{"latency_ms":1e999}],"next_trial_seconds":Infinity}', id="infinite"),
    ],
)
async def test_odd_json_is_no_traceback(body: bytes) -> None:
    """Pitfalls 6 and 7: nesting that no reader goes through, numbers that no float can hold."""
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body) as url:
        for words in (["list"], ["show", "ab"], ["health", "ab"], ["history", "ab"], ["list", "--json"]):
            done = await vitalgate("agents", *words, url=url)
            assert done.code in (0, 1), done
        event = b"event: health\ndata: " + body + b"\n\n"
    feed = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(event)
    async with answering(feed + event) as url:
        done = await vitalgate("agents", "watch", "--json", "--count", "1", url=url)
        assert (done.code, json.loads(done.out)["event"]) == (0, "health")


async def test_an_answer_that_cannot_be_unpacked() -> None:
    """Pitfall 22: a proxy before the gateway that says gzip of what is not."""
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"
    async with answering(head) as url:
        for words in (["agents", "list"], ["send", "ab", "hello"], ["stream", "ab", "hello"], ["nodes"]):
            done = await vitalgate(*words, url=url)
            assert (done.code, done.out) == (1, ""), done
            assert "not packed as it says" in done.err


def test_a_document_on_a_line_takes_linear_time() -> None:
    """An agent's text of a million blanks: with a pattern that goes back over them, it took hours."""
    text = '{"text": "' + " " * 1_000_000 + '",\r\n  "a": 1}\n'
    began = time.monotonic()
    assert on_a_line(text) == '{"text": "' + " " * 1_000_000 + '", "a": 1}'
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one\n", "one\n"),
        ("one\n\n", "one\n\n"),
        ("\n", "\n"),
        ("one\r\ntwo\r\n", "one\ntwo\n"),
        ("a\tb", "a\tb"),
        (r"C:\temp\new", r"C:\temp\new"),
        ("one\rtwo", "one\ntwo"),
        ("\x1b[2J\u2028\x0c", r"\x1b[2J\u2028\x0c"),
    ],
)
def test_foreign_text_keeps_its_lines(text: str, shown: str) -> None:
    """Nothing is lost, and nothing but the ends of lines and tabs reaches the terminal as it is."""
    assert lines_of(text) == shown


async def test_completion_from_what_is_no_gateway() -> None:
    """Whoever presses the tab key sees no traceback."""
    deep = b"[" * 100_000 + b"]" * 100_000
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(deep) + deep) as url:
        words = {"_VITALGATE_COMPLETE": "bash_complete", "COMP_WORDS": "vitalgate send ", "COMP_CWORD": "2"}
        done = await ended(await started(url=url, **words))
    assert (done.code, done.out.strip(), done.err) == (0, "", "")


def test_completion_does_not_read_the_shells_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--token-file -` names standard input, which is the terminal while the tab key is pressed."""

    class Keys:
        @property
        def buffer(self) -> Any:
            raise AssertionError("standard input was read")

    monkeypatch.setattr(sys, "stdin", Keys())
    with refusing_port() as port:
        given = {"token_file": "-", "url": f"http://127.0.0.1:{port}"}
        assert completion.agent_ids(given, "") == []
