"""The two stream formats, without a socket: contract 3.4 and 3.5, the streaming entries of the pitfalls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.sse import COMMENT, Event, EventReader
from gateway.stream_formats import KEEPALIVE, Ending, Writer

NONE, FINAL, TERMINAL = Ending.NONE, Ending.FINAL, Ending.TERMINAL


def parsed(written: bytes) -> Event:
    """Read back what was written: one whole event and nothing else."""
    reader = EventReader(1 << 30)
    [event] = reader.feed(written)
    assert event is not COMMENT
    assert reader.end() == []
    return event


def envelope(writer: Writer, event: Event) -> tuple[bytes | None, Any]:
    """Write an event that must come as an envelope: its name and the envelope."""
    back = parsed(writer.write(event))
    value = strict(back.data)
    assert list(value) == ["stream_id", "type", "payload"]
    assert value["stream_id"] == "s-1"
    return back.name, value


def strict(data: bytes) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(name)

    return json.loads(data.decode(), parse_constant=refuse, parse_int=str, parse_float=str)


def rpc(result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()


def auto() -> Writer:
    return Writer("s-1", envelope=False)


# --- A2A events, unchanged ---


@pytest.mark.parametrize(
    "data",
    [
        b'{"jsonrpc":"2.0","id":1,"result":{"kind":"task","id":"t","status":{"state":"working"}}}',
        b' { "jsonrpc" : "2.0", "result" : 1.0e5, "id":18446744073709551616 } ',
        '{"jsonrpc":"2.0","id":"é","result":{"text":"北京🌍\\u00e9"}}'.encode(),
        b'{"jsonrpc":"2.0","id":1,"result":null}',
        b'{"jsonrpc":"2.0","id":1,"error":null}',
        b'{"jsonrpc":"2.0","id":1,"result":"text"}',
        b'{"jsonrpc":"2.0","id":1,"result":[1,{"a":2}]}',
        b'{"jsonrpc":"2.0","id":1,"result":1e999}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no task"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"text":"\\ud83d"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"\\ud83d":1,"kind":"task"}}',
        b'{"\\u006asonrpc":"2.0","id":1,"result":{"parts":["\\ud83d",' + b"9" * 5000 + b"]}}",
        b'{"jsonrpc":"1.0","jsonrpc":"2.0","result":{},"type":"task.done"}',
        b'{"jsonrpc":"2.0",\n"id":1,\n\n"result":{}\n}\n',
    ],
    ids=lambda data: repr(data[-20:]),
)
def test_an_a2a_event_passes_with_its_bytes(data: bytes) -> None:
    """Contract 3.4: data bytes untouched, each joined line with its own prefix, no line added; pitfall 60."""
    writer = auto()
    written = writer.write(Event(data))
    assert written == b"".join(b"data: " + line + b"\n" for line in data.split(b"\n")) + b"\n"
    assert parsed(written) == Event(data)
    assert writer.a2a is True


@pytest.mark.parametrize("name", [None, b"", b"error", b"task.done", "é".encode()])
@pytest.mark.parametrize("id", [None, b"", b"7"])
@pytest.mark.parametrize("retry", [None, b"3000"])
def test_the_lines_beside_data_are_kept_and_none_is_added(
    name: bytes | None, id: bytes | None, retry: bytes | None
) -> None:
    """Contract 3.4; pitfall 69."""
    event = Event(rpc({}), name, id, retry)
    writer = auto()
    assert parsed(writer.write(event)) == event
    assert writer.ending is NONE


@pytest.mark.parametrize(
    "data",
    [
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","method":"m","params":{"result":{}}}',
        b'{"jsonrpc":"1.0","result":{}}',
        b'{"jsonrpc":2.0,"result":{}}',
        b'{"jsonrpc":2.0,"result":{"text":"\\ud83d"}}',
        b'{"jsonrpc":["2.0"],"error":{}}',
        b'{"jsonrpc":"2.0","jsonrpc":"x","result":{}}',
        b'{"result":{}}',
        b'[{"jsonrpc":"2.0","result":{}}]',
        b'"jsonrpc"',
        b'{"jsonrpc":"2.0","result":{}',
        b'{"jsonrpc":"2.0","result":NaN}',
        b"null",
        b"2",
        b"",
    ],
)
def test_anything_else_goes_into_the_envelope(data: bytes) -> None:
    """Contract 3.4."""
    writer = auto()
    assert envelope(writer, Event(data, b"x")) == (
        b"message",
        {"stream_id": "s-1", "type": "x", "payload": payload(data)},
    )
    assert (writer.a2a, writer.ending, writer.failed) == (False, NONE, False)


def payload(data: bytes) -> Any:
    """What the envelope must hold: the JSON value, or the text."""
    try:
        return strict(data)
    except (ValueError, RecursionError):
        return data.decode()


# --- the envelope ---


@pytest.mark.parametrize(
    ("name", "data", "type", "out"),
    [
        # the event's name decides
        (b"task.status", b"{}", "status_update", b"task.status"),
        (b"task.artifact", b'{"type":"done"}', "artifact", b"task.artifact"),
        (b"task.done", b'{"type":"status_update"}', "done", b"task.done"),
        (b"task.done", b"", "done", b"task.done"),
        (b"task.error", b"oops", "error", b"task.error"),
        # else the type member
        (None, b'{"type":"status_update"}', "status_update", b"task.status"),
        (None, b'{"type":"artifact"}', "artifact", b"task.artifact"),
        (None, b'{"type":"done","result":"text"}', "done", b"task.done"),
        (b"message", b'{"type":"error"}', "error", b"task.error"),
        (b"progress", b'{"type":"token"}', "token", b"message"),
        (b"", b'{"type":"task.done"}', "task.done", b"message"),
        (None, b'{"type":"a","type":"done"}', "done", b"task.done"),
        (None, b'{"t\\u0079pe":"d\\u006fne"}', "done", b"task.done"),
        (None, b'{"type":"done","text":"\\ud83d"}', "done", b"task.done"),
        # else the event's name
        (b"progress", b"[1]", "progress", b"message"),
        (b"done", b"text", "done", b"task.done"),
        (b"error", b"text", "error", b"task.error"),
        (b"Task.Done", b"{}", "Task.Done", b"message"),
        ("é".encode(), b"{}", "é", b"message"),
        (b"progress", b'{"type":""}', "progress", b"message"),
        (b"progress", b'{"type":7}', "progress", b"message"),
        (b"progress", b'{"type":["done"]}', "progress", b"message"),
        (b"progress", b'[{"type":"done"}]', "progress", b"message"),
        # else message
        (None, b"hello", "message", b"message"),
        (b"", b'{"type":null}', "message", b"message"),
        (None, b'{"payload":{"type":"done"}}', "message", b"message"),
    ],
)
def test_type_and_event_name(name: bytes | None, data: bytes, type: str, out: bytes) -> None:
    """Contract 3.4: type from name, type member, name, `message`; the event's name from the type. Pitfall 68."""
    writer = auto()
    assert envelope(writer, Event(data, name)) == (
        out,
        {"stream_id": "s-1", "type": type, "payload": payload(data)},
    )
    assert writer.ending is (TERMINAL if type in ("done", "error") else NONE)
    assert writer.failed is (type == "error")


def test_every_event_carries_its_name() -> None:
    """Pitfall 96."""
    writer = auto()
    assert [envelope(writer, Event(b"{}", b"task.status"))[0] for _ in range(3)] == [b"task.status"] * 3


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1.0,"b":18446744073709551616,"c":1e400,"a":2,"d":"\\u00e9\\ud83d"}',
        b'{"\\ud83d":1,"\\udc00":2}',
        b" [1 , 2 ]\t",
        b"-0.0",
        b"9" * 5000,
        b"1e999",
        b'{"type":1e999}',
        b'"text"',
        '"\u2028é"'.encode(),
        b"[" * 400 + b"]" * 400,
    ],
    ids=lambda data: repr(data[:20]),
)
def test_json_is_the_payload_verbatim(data: bytes) -> None:
    """Contract 3.4: digits, spaces, escapes and duplicates as they came."""
    written = auto().write(Event(data))
    assert written == (b'event: message\ndata: {"stream_id":"s-1","type":"message","payload":' + data + b"}\n\n")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "NaN",
        "[Infinity]",
        "{'a':1}",
        '{"a":1}{"b":2}',
        '{"a":"\\q"}',
        '{"a":"x\ty"}',
        '{"a":"x\ny"}',
        "01",
        "\ufeff{}",
        "\ufffd",
        '"\\',
        'quote " backslash \\ \0 \x1f \x7f',
        "\n\nlines\n",
        '["\\ud83d",NaN]',
        '["\\ud83d",' + "[" * 100_000 + "]" * 100_001,
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        '{"a":' * 100_000 + "1" + "}" * 100_000,
    ],
    ids=lambda text: repr(text[:20]),
)
def test_anything_but_json_is_the_payload_as_a_string(text: str) -> None:
    """Contract 3.4; a text too deep to judge is handed over as text."""
    assert envelope(auto(), Event(text.encode()))[1]["payload"] == text


def test_json_on_several_lines_stays_json() -> None:
    """Pitfall 60: every joined line is written with its own prefix."""
    written = auto().write(Event(b'{"type":"status_update",\n"payload":{"a":1}}', b"task.status", b"4", b"10"))
    assert written == (
        b"event: task.status\nid: 4\nretry: 10\n"
        b'data: {"stream_id":"s-1","type":"status_update","payload":{"type":"status_update",\n'
        b'data: "payload":{"a":1}}}\n\n'
    )


def test_kubemq_envelope_is_nested() -> None:
    """Contract 3.4: the payload is the agent's whole data."""
    data = b'{"stream_id":"own","type":"artifact","payload":{"x":1}}'
    name, value = envelope(auto(), Event(data, b"task.artifact", b"9"))
    assert (name, value["type"], value["payload"]) == (b"task.artifact", "artifact", strict(data))


INJECTION = 'x\ndata: {"type":"done"}\r\n\r\nevent: task.done\rid: 9\0\u2028'


@pytest.mark.parametrize("a2a", [False, True])
def test_nothing_is_injected(a2a: bool) -> None:
    """Pitfall 94: by a type, a name, an id, an error's text, the foreign body in it, or a stream id."""
    data = rpc({}) if a2a else json.dumps({"type": INJECTION}).encode()
    event = parsed(auto().write(Event(data, INJECTION.encode(), INJECTION.encode())))
    assert event.name == (b"message" if not a2a else INJECTION.translate(dict.fromkeys(b"\r\n\0")).encode())
    assert event.id == INJECTION.translate(dict.fromkeys(b"\r\n\0")).encode()
    assert event.data == rpc({}) if a2a else json.loads(event.data)["type"] == INJECTION
    writer = auto()
    writer.write(Event(data))
    event = parsed(writer.error(-32603, INJECTION, [{"value": INJECTION}], b'"a\\nb"'))
    assert (event.name, event.id) == (b"task.error", None)
    value = json.loads(event.data)
    assert (value["error"] if a2a else value["payload"])["data"] == [{"value": INJECTION}]
    assert json.loads(parsed(Writer('"}\n', envelope=True).write(Event(b"x"))).data)["stream_id"] == '"}\n'


# --- what an A2A event means: the table of the module ---

DONE, ERROR, STATUS, ARTIFACT = "done", "error", "status_update", "artifact"


def v03(state: Any, final: Any = None, kind: str = "status-update") -> dict[str, Any]:
    result: dict[str, Any] = {
        "kind": kind,
        "taskId": "t",
        "status": {"state": state, "message": {"kind": "message"}},
    }
    return result if final is None else result | {"final": final}


def v1(state: Any, member: str = "statusUpdate") -> dict[str, Any]:
    return {member: {"taskId": "t", "status": {"state": state, "message": {"role": "ROLE_AGENT"}}}}


MEANINGS: list[tuple[dict[str, Any], Ending, str, Ending]] = [
    # 0.3 status updates: terminal states, by `final`
    (v03("completed", True), FINAL, DONE, TERMINAL),
    (v03("failed", True), FINAL, ERROR, TERMINAL),
    (v03("rejected", True), FINAL, ERROR, TERMINAL),
    (v03("canceled", True), FINAL, ERROR, TERMINAL),
    (v03("completed"), FINAL, DONE, TERMINAL),
    (v03("completed", "no"), FINAL, DONE, TERMINAL),
    (v03("completed", False), NONE, DONE, TERMINAL),
    (v03("failed", False), NONE, ERROR, TERMINAL),
    # 0.3, other states: only `final` ends
    (v03("input-required", True), FINAL, STATUS, FINAL),
    (v03("auth-required", True), FINAL, STATUS, FINAL),
    (v03("working", True), FINAL, STATUS, FINAL),
    (v03("unknown", True), FINAL, STATUS, FINAL),
    (v03("input-required", False), NONE, STATUS, NONE),
    (v03("submitted", False), NONE, STATUS, NONE),
    (v03("working"), NONE, STATUS, NONE),
    (v03("working", "true"), NONE, STATUS, NONE),
    (v03("working", 1), NONE, STATUS, NONE),
    # 0.3 tasks, artifacts, messages
    (v03("working", kind="task"), NONE, STATUS, NONE),
    (v03("completed", kind="task"), FINAL, DONE, TERMINAL),
    (v03("failed", kind="task"), FINAL, ERROR, TERMINAL),
    ({"kind": "artifact-update", "artifact": {}, "lastChunk": True}, NONE, ARTIFACT, NONE),
    ({"kind": "artifact-update", "artifact": {}, "status": {"state": "completed"}}, NONE, ARTIFACT, NONE),
    ({"kind": "message", "role": "agent", "parts": [{"kind": "text", "text": "x"}]}, FINAL, DONE, TERMINAL),
    # 1.0 names and numbers
    (v1("TASK_STATE_COMPLETED"), FINAL, DONE, TERMINAL),
    (v1("TASK_STATE_FAILED"), FINAL, ERROR, TERMINAL),
    (v1("TASK_STATE_CANCELED"), FINAL, ERROR, TERMINAL),
    (v1("TASK_STATE_REJECTED"), FINAL, ERROR, TERMINAL),
    (v1("TASK_STATE_INPUT_REQUIRED"), NONE, STATUS, NONE),
    (v1("TASK_STATE_AUTH_REQUIRED"), NONE, STATUS, NONE),
    (v1("TASK_STATE_WORKING"), NONE, STATUS, NONE),
    *((v1(n), NONE, STATUS, NONE) for n in (0, 1, 2, 6, 8, 9, -3)),
    (v1(3), FINAL, DONE, TERMINAL),
    *((v1(n), FINAL, ERROR, TERMINAL) for n in (4, 5, 7)),
    (v1("TASK_STATE_WORKING", "task"), NONE, STATUS, NONE),
    (v1("TASK_STATE_COMPLETED", "task"), FINAL, DONE, TERMINAL),
    (v1("TASK_STATE_FAILED", "task"), FINAL, ERROR, TERMINAL),
    ({"artifactUpdate": {"taskId": "t", "artifact": {"parts": [{"text": "x"}]}}}, NONE, ARTIFACT, NONE),
    ({"message": {"role": "ROLE_AGENT", "parts": []}}, FINAL, DONE, TERMINAL),
    # neither kind nor member name
    ({"id": "t", "status": {"state": "completed"}}, FINAL, DONE, TERMINAL),
    ({"id": "t", "status": {"state": "working"}, "final": True}, FINAL, STATUS, FINAL),
    ({"id": "t", "artifact": {}}, NONE, ARTIFACT, NONE),
    # states of other types, missing and odd members
    *((v1(state), NONE, STATUS, NONE) for state in (None, True, 3.5, [], ["completed"], {"state": 3}, 10**30)),
    ({"statusUpdate": {}}, NONE, STATUS, NONE),
    ({"kind": "status-update", "status": "completed"}, NONE, STATUS, NONE),
    ({"kind": "status-update"}, NONE, STATUS, NONE),
    # any other result
    ({"kind": "streaming", "status": {"state": "completed"}}, NONE, "message", NONE),
    ({"task": None, "message": "text"}, NONE, "message", NONE),
    ({"status": "completed", "artifact": [1], "final": True}, NONE, "message", NONE),
    ({}, NONE, "message", NONE),
]


@pytest.mark.parametrize("slow", [False, True], ids=["", "lone surrogate"])
@pytest.mark.parametrize(("result", "ending", "type", "ending_in_envelope"), MEANINGS)
def test_what_a_result_means(
    result: dict[str, Any], ending: Ending, type: str, ending_in_envelope: Ending, slow: bool
) -> None:
    """Contract 3.4, 3.5; pitfall 95: the same for a text that only the slow reader takes."""
    data = rpc(result | {"metadata": "\ud83d"} if slow else result)
    writer = auto()
    assert parsed(writer.write(Event(data))) == Event(data)
    assert (writer.a2a, writer.ending) == (True, ending)
    assert writer.failed is (ending is FINAL and type == ERROR)
    writer = Writer("s-1", envelope=True)
    name, value = envelope(writer, Event(data, None, b"3"))
    assert (name, value["type"]) == (NAMES.get(type, b"message"), type)
    assert value["payload"] == strict(data)
    assert (writer.a2a, writer.ending, writer.failed) == (True, ending_in_envelope, type == ERROR)


NAMES = {STATUS: b"task.status", ARTIFACT: b"task.artifact", DONE: b"task.done", ERROR: b"task.error"}


@pytest.mark.parametrize("error", ['{"code":-32001,"message":"x"}', "{}", '"text"', "false", "0"])
def test_a_json_rpc_error_is_final(error: str) -> None:
    """Contract 3.4, 3.5: whatever stands beside it."""
    data = b'{"jsonrpc":"2.0","id":1,"result":{"kind":"task"},"error":' + error.encode() + b"}"
    writer = auto()
    writer.write(Event(data, b"error"))
    assert (writer.ending, writer.failed) == (FINAL, True)
    writer = Writer("s-1", envelope=True)
    assert envelope(writer, Event(data, b"error"))[0] == b"task.error"
    assert (writer.ending, writer.failed) == (TERMINAL, True)


def test_an_error_that_is_null_is_none() -> None:
    """JSON-RPC libraries that write both members."""
    writer = auto()
    writer.write(Event(b'{"jsonrpc":"2.0","id":1,"result":{"statusUpdate":{"status":{"state":3}}},"error":null}'))
    assert (writer.ending, writer.failed) == (FINAL, False)


def test_ending_is_of_the_latest_event_and_failed_of_the_latest_that_ends() -> None:
    """Contract 3.5: the 2 s run without a further event."""
    writer = auto()
    seen = []
    for result in (v03("failed", True), {"kind": "artifact-update"}, v03("completed", True)):
        writer.write(Event(rpc(result)))
        seen.append((writer.ending, writer.failed))
    assert seen == [(FINAL, True), (NONE, True), (FINAL, False)]


def test_the_format_is_chosen_per_event() -> None:
    """Contract 3.4: agents that mix both."""
    writer = auto()
    assert writer.a2a is None
    assert parsed(writer.write(Event(rpc({})))).data == rpc({})
    assert writer.a2a is True
    assert envelope(writer, Event(b"{}"))[0] == b"message"
    assert writer.a2a is False


# --- ids, errors, keepalive ---


def test_ids_are_numbered_on_get() -> None:
    """Contract 3.6: in place of the agent's own, in both formats, on the gateway's error too."""
    for enveloped in (True, False):
        writer = Writer("s-1", envelope=enveloped, number_ids=True)
        ids = [parsed(writer.write(Event(data, None, b"own"))).id for data in (b"{}", rpc({}), b"x")]
        ids.append(parsed(writer.error(-1, "m", [], b"null")).id)
        assert ids == [b"s-1:1", b"s-1:2", b"s-1:3", b"s-1:4"]


ERROR_EVENT = {"code": -32603, "message": "stream broken", "data": [{"reason": "STREAM_BROKEN"}]}


@pytest.mark.parametrize(
    ("enveloped", "get", "before", "is_rpc"),
    [
        (False, False, None, True),
        (False, True, None, False),
        (True, True, None, False),
        (True, False, None, False),
        (False, False, rpc({}), True),
        (False, True, rpc({}), True),
        (True, False, rpc({}), False),
        (True, True, rpc({}), False),
        (False, False, b"{}", False),
        (False, True, b"{}", False),
    ],
)
def test_an_error_event_has_the_streams_own_form(
    enveloped: bool, get: bool, before: bytes | None, is_rpc: bool
) -> None:
    """Contract 3.5, last paragraph."""
    writer = Writer("s-1", envelope=enveloped, number_ids=get)
    if before is not None:
        writer.write(Event(before))
    event = parsed(writer.error(-32603, "stream broken", [{"reason": "STREAM_BROKEN"}], b"18446744073709551616"))
    assert event.name == b"task.error"
    assert event.id == ((b"s-1:2" if before else b"s-1:1") if get else None)
    assert json.loads(event.data) == (
        {"jsonrpc": "2.0", "id": 18446744073709551616, "error": ERROR_EVENT}
        if is_rpc
        else {"stream_id": "s-1", "type": "error", "payload": ERROR_EVENT}
    )
    assert (writer.ending, writer.failed) == (TERMINAL, True)


def test_a_keepalive_is_a_comment() -> None:
    """Contract 3.5."""
    assert EventReader(100).feed(KEEPALIVE) == [COMMENT]


# --- any bytes ---

FRAGMENTS = st.sampled_from(
    b'{|}|[|]|:|,|"jsonrpc":"2.0"|"result":|"error":|"type":|"done"|"kind":"task"|"status":{"state":"failed"}|null|1'
    b'|-|1e999|NaN|"\\ud83d"|"\\u0041"|\\u|"|\n|\t|\x00|\xff|\xe4\xb8\xad|{"final":true}|"task":'.split(b"|")
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["jsonrpc", "result", "error", "type", "kind", "status", "state", "task", "message", "final"]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
DATA = st.one_of(
    st.lists(FRAGMENTS, max_size=12).map(b"".join),
    JSON.map(lambda value: json.dumps(value).encode()),
    JSON.map(lambda value: rpc(value).replace(b",", b",\n")),
    st.binary(max_size=40),
)


@settings(max_examples=500, deadline=None)
@example(b'{"jsonrpc":"2.0","result":{"task":{"status":{"state":["completed"]}}}}', b"error", True)
@example(b'{"jsonrpc":"2.0","result":{"kind":{"a":1},"x":"\\udc00","status":{"state":{}}}}', b"", False)
@given(DATA, st.none() | st.binary(max_size=10), st.booleans())
def test_any_bytes_come_back_as_one_whole_event(data: bytes, name: bytes | None, get: bool) -> None:
    """Contract 3.4: never an exception, the same data, JSON where it was JSON."""
    stream = b"".join(b"data: " + line + b"\n" for line in data.split(b"\n")) + b"\n"
    if name is not None:
        stream = b"event: " + name + b"\n" + stream
    for event in EventReader(1 << 20).feed(stream):
        if event is not COMMENT:
            check_both_formats(event, get)
    check_both_formats(Event(data, name), get, readable=False)


def check_both_formats(event: Event, get: bool, readable: bool = True) -> None:
    writer = Writer("s-1", envelope=False, number_ids=get)
    back = parsed(writer.write(event))
    if readable:
        expected = strict_or_text(event.data)
        is_a2a = is_rpc_response(expected)
        assert writer.a2a is is_a2a
        assert (back.data == event.data) if is_a2a else (strict(back.data)["payload"] == expected)
    written = Writer("s-1", envelope=True, number_ids=get).write(event)
    if readable:
        assert strict(parsed(written).data)["payload"] == strict_or_text(event.data)


def strict_or_text(data: bytes) -> Any:
    try:
        return strict(data)
    except ValueError:
        return data.decode()


def is_rpc_response(value: Any) -> bool:
    return isinstance(value, dict) and value.get("jsonrpc") == "2.0" and ("result" in value or "error" in value)
