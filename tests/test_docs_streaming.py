"""docs/streaming.md says what the gateway does: its examples are relayed, its tables compared (contract 3)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gateway import jsonrpc, stream_formats
from gateway.faults import FAULTS
from gateway.metrics import APPLICATION_ERROR, CANCELLED, SUCCESS, TRANSPORT_ERROR
from gateway.relay import FINAL_SECONDS
from gateway.settings import Settings
from gateway.sse import COMMENT, EventReader
from gateway.stream_formats import KEEPALIVE, Writer
from tests.fakes.running import running

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "streaming.md").read_text()
BLOCKS = {
    (side, name): text
    for side, name, text in re.findall(r"^```sse (\w+) (\w+)\n(.*?\n)```$", PAGE, re.DOTALL | re.MULTILINE)
}
STREAM_ID = "s-1f-2a"


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    below = PAGE.partition(f"\n{heading}\n")[2]
    table = re.search(r"((?:^\|.*\n)+)", below, re.MULTILINE)
    assert table is not None, heading
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()[2:]]


@pytest.mark.parametrize("name", ["a2a", "envelope"])
def test_the_caller_gets_what_the_page_shows(name: str) -> None:
    """Contract 3.4."""
    reader, writer = EventReader(10_000), Writer(STREAM_ID, envelope=False)
    items = [*reader.feed(BLOCKS["agent", name].encode()), *reader.end()]
    written = b"".join(KEEPALIVE if item is COMMENT else writer.write(item) for item in items)
    assert written.decode() == BLOCKS["caller", name] + "\n"
    assert writer.ending is not stream_formats.Ending.NONE


def test_the_error_event_is_the_one_on_the_page() -> None:
    """Contract 3.5."""
    writer, fault = Writer(STREAM_ID, envelope=False), FAULTS["STREAM_BROKEN"]
    data = jsonrpc.error_data(fault, {"agentId": "my-agent"})
    assert writer.error(-32603, fault.message, data, b"7").decode() == BLOCKS["caller", "error"] + "\n"


def test_every_example_is_tested() -> None:
    assert len(BLOCKS) == len(re.findall(r"^```sse", PAGE, re.MULTILINE)) == 5


def test_names_and_types() -> None:
    """Contract 3.4: each event name of the table, and none of them."""
    for name, type, shown in rows("and the caller gets\n\n```sse caller envelope"):
        if name.startswith("`"):
            reader = EventReader(10_000)
            [event] = reader.feed(f"event: {name.strip('`')}\ndata: 1\n\n".encode())
            written = Writer(STREAM_ID, envelope=False).write(event).decode()
            assert written.startswith(f"event: {shown.strip('`')}\n")
            assert json.loads(written.partition("data: ")[2])["type"] == type.strip("`")


def test_the_meanings_are_those_of_the_code() -> None:
    """Contract 3.4, 3.5: the table stands in `stream_formats`, whose tests go through it."""
    shown = re.findall(r"^\|.*\|$", stream_formats.__doc__ or "", re.MULTILINE)
    assert len(shown) > 5
    assert "\n".join(shown) in PAGE
    assert f"nothing has followed for {FINAL_SECONDS:g} s" in PAGE


def test_the_ends_are_those_of_the_code() -> None:
    """Contract 3.5: every reason for which a stream is ended, and the outcomes that are counted."""
    ends = rows("## How a stream ends")
    reasons = [reason for _, sees, _ in ends for reason in re.findall(r"`([A-Z_]+)`", sees)]
    assert set(reasons) == {
        "STREAM_INCOMPLETE",
        "STREAM_BROKEN",
        "STREAM_IDLE",
        "RESPONSE_TOO_LARGE",
        "GATEWAY_SHUTDOWN",
        "INTERNAL",
    }
    assert set(reasons) <= FAULTS.keys()
    statuses = {status for _, _, counted in ends for status in re.findall(r"`(\w+)`", counted)}
    assert statuses == {SUCCESS, APPLICATION_ERROR, TRANSPORT_ERROR, CANCELLED}
    advised = {
        reason for sees, _, _ in rows("### What a client should do") for reason in re.findall("[A-Z_]{8,}", sees)
    }
    assert set(reasons) - {"INTERNAL"} <= advised


def test_settings_and_their_defaults() -> None:
    for name, default, _ in rows("## Times and limits"):
        section, field = name.strip("`").split(".")
        assert getattr(getattr(Settings(), section), field) == json.loads(default)
    for section, field in re.findall(r"`(a2a|server)\.(\w+)", PAGE):
        assert field in type(getattr(Settings(), section)).model_fields


async def test_metrics_exist() -> None:
    async with running() as gateway:
        page = (await gateway.client.get("/metrics")).text
    for name, _ in rows("## Watching"):
        assert f"# TYPE {name.strip('`')} " in page


@pytest.mark.parametrize("path", sorted({*re.findall(r"\]\((?!https?:|#)([^)#]+)", PAGE)}))
def test_links_lead_somewhere(path: str) -> None:
    assert (ROOT / "docs" / path).exists()


@pytest.mark.parametrize("path", sorted({*re.findall(r"`(examples/[\w-]+/)`", PAGE)}))
def test_examples_are_there(path: str) -> None:
    assert (ROOT / path).is_dir()
