"""Envelope, verdict and error: contract 2.1 and 2.4, without a socket."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway import json_text, jsonrpc
from gateway.faults import FAULTS
from gateway.jsonrpc import Envelope, Refused
from tests import obvious_jsonrpc


def refusal(body: bytes) -> tuple[str, bytes]:
    with pytest.raises(Refused) as caught:
        jsonrpc.read(body)
    return caught.value.reason, caught.value.id


def request(id: str = "1", method: str = '"m"', params: str = "{}", jsonrpc: str = '"2.0"') -> bytes:
    return f'{{"jsonrpc":{jsonrpc},"id":{id},"method":{method},"params":{params}}}'.encode()


@pytest.mark.parametrize(
    "id",
    [
        "0",
        '""',
        '"1"',
        "1",
        "-1",
        '"007"',
        '"1e3"',
        "18446744073709551616",
        "1" * 5000,
        "null",
        '"\\u00e9"',
        '"é"',
    ],
)
def test_ids_keep_type_and_digits(id: str) -> None:
    """Contract 2.1 rule 7; pitfalls 1, 2."""
    assert jsonrpc.read(request(id)) == Envelope(id.encode(), "m")


@pytest.mark.parametrize("id", ["true", "false", "1.5", "1.0", "1e2", "[1]", "{}", "1E400"])
def test_other_ids_are_refused_with_id_null(id: str) -> None:
    """Contract 2.1 rule 7; pitfall 1."""
    assert refusal(request(id)) == ("INVALID_REQUEST", b"null")


def test_no_id_is_a_notification() -> None:
    """Contract 2.1, notifications."""
    assert jsonrpc.read(b'{"jsonrpc":"2.0","method":"m"}') == Envelope(None, "m")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"{bad",
        b"\xff",
        b"\xef\xbb\xbf{}",
        request().decode().encode("utf-16"),
        request(params='{"x":NaN}'),
        request(params='{"x":-Infinity}'),
        request(params='{"x":"') + b"\xc0\xaf" + b'"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":"\xff"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","x\xe9":1}',
        request() + b"x",
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"[1,",
        b'{"jsonrpc":"2.0","id":1,"method":"a\x01b"}',
    ],
)
def test_what_is_not_json_is_a_parse_error(body: bytes) -> None:
    """Contract 2.1 rule 3; pitfalls 6, 7, 9, 10."""
    assert refusal(body) == ("PARSE_ERROR", b"null")


@pytest.mark.parametrize(
    "body", [b"[]", b'[{"jsonrpc":"2.0","id":1,"method":"m"}]', b"[1]", b'"x"', b"5", b"null", b"1e5"]
)
def test_batches_and_scalars_are_refused(body: bytes) -> None:
    """Contract 2.1 rule 4; pitfall 12."""
    assert refusal(body) == ("INVALID_REQUEST", b"null")


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"\\u0069d":2,"method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\\\"},"i\\u0064":2}',
        b'{"jsonrpc":"2.0","id":1,"params":{"id":5},"method":"m","id":2}',
    ],
)
def test_two_ids_are_refused_with_id_null(body: bytes) -> None:
    """Contract 2.1 rule 5: gateway and agent must not read different calls."""
    assert refusal(body) == ("INVALID_REQUEST", b"null")


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}',
        b'{"jsonrpc":"2.0","id":1,"method":"a","m\\u0065thod":"b"}',
        b'{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"a"}',
    ],
)
def test_two_methods_or_versions_are_refused_with_the_id(body: bytes) -> None:
    """Contract 2.1 rule 5."""
    assert refusal(body) == ("INVALID_REQUEST", b"1")


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"id":5,"method":"x","jsonrpc":"y"}}',
        b'{"params":{"id":5},"jsonrpc":"2.0","id":1,"method":"m","extra":{"id":7}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\"id\\""},"x":"\\u0069d"}',
    ],
)
def test_nested_names_are_no_duplicates(body: bytes) -> None:
    """Contract 2.1 rule 5 speaks of the top level only."""
    assert jsonrpc.read(body) == Envelope(b"1", "m")


@pytest.mark.parametrize(
    ("body", "id"),
    [
        (b'{"id":120,"method":"x"}', b"120"),
        (request(jsonrpc="2.0", id="7"), b"7"),
        (request(jsonrpc='"2.0 "', id='"a"'), b'"a"'),
        (request(method='""'), b"1"),
        (request(method="5"), b"1"),
        (request(method="null"), b"1"),
        (b'{"jsonrpc":"2.0","id":1}', b"1"),
        (request(jsonrpc='"1.0"', id="[1]"), b"null"),
    ],
)
def test_wrong_version_or_method_echoes_the_id(body: bytes, id: bytes) -> None:
    """Contract 2.1 rule 6; pitfall 14."""
    assert refusal(body) == ("INVALID_REQUEST", id)


@pytest.mark.parametrize("method", ["x" * 10_000, "rpc.x", "a\\u0000b", "\\ud83d"])
def test_any_method_name_goes_through(method: str) -> None:
    """Contract 2.1; pitfall 14."""
    assert jsonrpc.read(request(method=f'"{method}"')).method == json.loads(f'"{method}"')


@pytest.mark.parametrize("params", ["5", '"x"', "[]", "true", "1.5"])
def test_params_must_be_an_object(params: str) -> None:
    """Contract 2.1 rule 8."""
    assert refusal(request(params=params)) == ("INVALID_PARAMS", b"1")


@pytest.mark.parametrize(
    "params", ["null", "{}", '{"x":1e400}', '{"x":' + "1" * 5000 + "}", '{"x":"\\ud83d"}', '{"configuration":[]}']
)
def test_odd_but_legal_params_pass(params: str) -> None:
    """Contract 2.1 rules 3 and 8; pitfall 7; lone surrogate escapes are legal JSON."""
    assert jsonrpc.read(request(params=params)) == Envelope(b"1", "m")


@pytest.mark.parametrize(("text", "seconds"), [("5", 5.0), ("0.25", 0.25), ("1e3", 1000.0), ("null", None)])
@pytest.mark.parametrize("extra", ["", ',"x":"\\ud83d"'])
def test_timeout_is_read(text: str, seconds: float | None, extra: str) -> None:
    """Contract 2.1 rule 9, on the quick and on the slow path."""
    params = f'{{"configuration":{{"timeout":{text}}}{extra}}}'
    assert jsonrpc.read(request(params=params)).timeout == seconds


@pytest.mark.parametrize("text", ["0", "-1", "1e400", '"5"', "true", "[]", "-0.0", "NaN"])
@pytest.mark.parametrize("key", ["timeout", "\\u0074imeout"])
def test_bad_timeouts_are_refused(text: str, key: str) -> None:
    """Contract 2.1 rule 9."""
    reason, id = refusal(request(params=f'{{"configuration":{{"{key}":{text}}}}}'))
    assert (reason, id) == (("PARSE_ERROR", b"null") if text == "NaN" else ("INVALID_PARAMS", b"1"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params", "x"]), json_values | st.just("2.0")),
    st.booleans(),
)
@settings(deadline=None)
def test_quick_and_slow_readers_agree(value: dict[str, Any], ascii: bool) -> None:
    """Both paths apply the same rules: whatever the quick one accepts, the slow one reads alike."""
    body = json.dumps(value, ensure_ascii=ascii).encode("utf-8", "surrogatepass")
    outcomes = []
    for reader in (jsonrpc.read, jsonrpc._read_slowly):
        try:
            envelope = reader(body)
            outcomes.append((envelope.id and json.loads(envelope.id), envelope.method, envelope.timeout))
        except Refused as refused:
            outcomes.append((refused.reason, refused.id))
    assert outcomes[0] == outcomes[1]


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    """No input raises anything else."""
    try:
        jsonrpc.read(body)
    except Refused:
        pass


# --- the agent's answer ---


@pytest.mark.parametrize(
    ("body", "id"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', b"1"),
        (b'{"id":"\\u0061","jsonrpc":"2.0","result":1}', b'"a"'),
        (b'{"id":3,"jsonrpc":"2.0"}', b"3"),
        (b'{"id":null,"jsonrpc":"2.0","result":1}', b"null"),
        (b'{"id":1,"jsonrpc":"2.0","result":"\\ud83d"}', b"1"),
        (b'{"id":1,"jsonrpc":"2.0","result":1e400}', b"1"),
    ],
)
def test_matching_answers_pass_verbatim(body: bytes, id: bytes) -> None:
    """Contract 2.4 row 1: same raw text, or same decoded value and type."""
    verdict = jsonrpc.judge(body, id)
    assert verdict.body is body
    assert not verdict.is_error


def test_an_error_is_an_application_error_and_passes_verbatim() -> None:
    """Contract 2.4 row 1."""
    body = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Task not found"}}'
    verdict = jsonrpc.judge(body, b"1")
    assert verdict.body is body
    assert verdict.is_error


@pytest.mark.parametrize("value", [b'{"Output":1}', b"[1]", b"5", b"null", b'"x"', b" true \n", b'{"id":1}'])
def test_json_without_an_envelope_is_wrapped(value: bytes) -> None:
    """Contract 2.4 row 2: the value stays verbatim."""
    body = jsonrpc.judge(value, b'"a"').body
    assert body == b'{"jsonrpc":"2.0","id":"a","result":' + value.strip() + b"}"


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":2,"result":1}',
        b'{"jsonrpc":"2.0","id":"1","result":1}',
        b'{"jsonrpc":"2.0","id":1.0,"result":1}',
        b'{"jsonrpc":"2.0","result":1}',
        b'{"jsonrpc":"2.0","id":null,"result":1}',
        b'{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":""}}',
        b'{"jsonrpc":"1.0","id":1,"result":1}',
        b'{"jsonrpc":2.0,"id":1,"result":1}',
        b"",
        b"<html>",
        b'{"jsonrpc":"2.0","id":1,"result":',
        b'{"jsonrpc":"2.0","id":1,"result":NaN}',
        b'{"jsonrpc":"2.0","id":1,"result":"\xff"}',
        b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_other_answers_are_none(body: bytes) -> None:
    """Contract 2.4 rows 3 and 4; pitfalls 6, 7, 17, 18."""
    verdict = jsonrpc.judge(body, b"1")
    assert verdict.body is None
    assert verdict.problem


@pytest.mark.parametrize("id", [b"", b',"id":null'])
def test_an_error_without_id_gets_the_callers(id: bytes) -> None:
    """Contract 2.4 row 3: passed on with its text."""
    error = b'{"code":-32700,"message":"x","data":[1e400]}'
    verdict = jsonrpc.judge(b'{"jsonrpc":"2.0"' + id + b',"error":' + error + b"}", b'"7"')
    assert verdict.body == b'{"jsonrpc":"2.0","id":"7","error":' + error + b"}"
    assert verdict.is_error


# --- large, odd and hostile texts ---

_ODD_STRINGS = ["", "m", "2.0", "\\ud83d", "\\uD83d\\ude00", "\\ue000", "\\uE000", "\\\\ud83d", "\\\\\\ud83d"]
_ODD_STRINGS += ["p" * 300, '\\"' + "p" * 300, "p" * 300 + '\\"', "p" * 300 + "é", "p" * 300 + "\t"]
_ODD_STRINGS += ["\\\\", '\\"id\\":1', "{}", "é", "\ue000", "\\u0069d", "\\\\uE", "\\n\\/"]
_NAMES = ["jsonrpc", "id", "method", "params", "error", "result", "x"]
_NAMES += ["i\\u0064", "\\u006dethod", "jsonrp\\u0063", "p\\u0061rams", "\\ud869d", "\\\\u0069d"]
_SCALARS = [
    "0",
    "-0",
    "1",
    "1.0",
    "1e2",
    "1e400",
    "9" * 25,
    "7" * 4301,
    "null",
    "true",
    "NaN",
    "01",
    '"2.0"',
    '"m"',
]


def _objects(names: st.SearchStrategy[str], values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(names, values).map(lambda pair: f'"{pair[0]}" :{pair[1]}')
    return st.lists(pairs, max_size=6).map(lambda members: "{" + ", ".join(members) + "}")


_texts = st.recursive(
    st.sampled_from(_SCALARS) | st.sampled_from(_ODD_STRINGS).map(lambda text: f'"{text}"'),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda values: f"[{','.join(values)}]")
        | _objects(st.sampled_from([*_NAMES, "configuration", "timeout", "\\u0074imeout"]), inner)
    ),
    max_leaves=8,
)
_configured = _objects(
    st.just("configuration"),
    _objects(st.sampled_from(["timeout", "\\u0074imeout"]), st.sampled_from([*_SCALARS, '"5"', "{}"])),
)
_usual = st.sampled_from(['"jsonrpc":"2.0"', '"id":1', '"id":"a"', '"method":"m"', '"params":{"id":1}'])
_members = st.lists(
    _usual
    | st.tuples(st.sampled_from(_NAMES), _texts).map(lambda pair: f'"{pair[0]}":{pair[1]}')
    | _configured.map(lambda text: f'"params":{text}'),
    max_size=6,
)
_sound = ['"jsonrpc":"2.0"', '"id":1', '"method":"m"']
_requests = (
    st.tuples(_members, st.sets(st.sampled_from(_sound)))
    .flatmap(lambda pair: st.permutations([*pair[0], *sorted(pair[1])]))
    .map(lambda members: "{" + ",".join(members) + "}")
)
_documents = (_requests | _texts).map(str.encode)


def _decoded(id: bytes | None) -> Any:
    return None if id is None else obvious_jsonrpc.parse(id)


@given(_documents)
@settings(max_examples=600, deadline=None)
def test_the_obvious_reader_reads_the_same(body: bytes) -> None:
    """Contract 2.1 rules 3 to 9, on texts with repeated and escaped names, half surrogates and huge numbers."""
    for reader in (jsonrpc.read, jsonrpc._read_slowly, _read_as_if_long, _read_in_place):
        assert _outcome(reader, body) == obvious_jsonrpc.read(body)


@contextmanager
def _as_if_long() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonrpc, "LONG", 1)
        patch.setattr(json_text, "LONG", 1)
        yield


def _read_as_if_long(body: bytes) -> Envelope:
    with _as_if_long():
        return jsonrpc.read(body)


def _read_in_place(body: bytes) -> Envelope:
    """As a body that was not copied off its head."""
    with _as_if_long():
        return jsonrpc.read(memoryview(b"head" + body)[4:])


def _is_json(text: bytes) -> bool:
    try:
        obvious_jsonrpc.parse(text)
    except (ValueError, RecursionError):
        return False
    return True


@given(_documents, st.integers(0, 400), st.sampled_from([b"", b"\\", b'"', b"\xff", b":", b"}", b",", b'"p":']))
@settings(max_examples=600, deadline=None)
def test_what_is_left_of_a_broken_text_is_broken(body: bytes, at: int, piece: bytes) -> None:
    broken = body[:at] + piece + body[at + 1 :]
    with _as_if_long():
        left = json_text.condensed(broken)
    assert len(left) <= len(broken)
    assert not _is_json(left) or _is_json(broken)


PLAIN = b"plain text, " * 2000
CONDENSED = {
    "one": (b'{"a":"%b"}' % PLAIN, b'{"a":""}'),
    "one after the other": (b'{"a":"%b","b":"%b"}' % (PLAIN * 2, PLAIN), b'{"a":"","b":""}'),
    "of any letters": (b'["%b"]' % (bytes(set(range(0x20, 0x80)) - set(b'"\\')) * 200), b'[""]'),
    "beside much else": (b'{"a":"%b","b":%b}' % (PLAIN, b"1" * 30_000), None),
    "escapes": (b'{"a":"%b"}' % (b"line\\n" * 4000), None),
    "beyond ASCII": (b'{"a":"%b"}' % ("é".encode() * 9000), None),
    "numbers": (b'{"a":[%b"y"]}' % (b"1," * 9000), b'{"a""y"]}'),
    "no quote": (b"1" * 9000, None),
    "short": (b'{"a":"%b"}' % PLAIN[:8000], None),
}


@pytest.mark.parametrize("name", CONDENSED)
def test_what_is_left_of_a_long_text(name: str) -> None:
    text, left = CONDENSED[name]
    assert json_text.condensed(text) == (text if left is None else left)
    assert json_text.condensed(memoryview(b"head" + text)[4:]) == json_text.condensed(text)


def _judge_as_if_long(body: bytes, id: bytes) -> jsonrpc.Verdict:
    with _as_if_long():
        return jsonrpc.judge(body, id)


_PLAIN = "plain text, " * 9000
LONG_TEXTS = {
    "a text": ("1", '{"parts":[{"text":"%s"}]}'),
    "a file, then a timeout": ("1", '{"parts":[{"bytes":"%s"}],"configuration":{"timeout":7}}'),
    "two texts": ("1", '{"a":"%s","b":"x%s"}'),
    "many texts": ("1", "[" + '{"a":"%s"},' * 9 + "1]"),
    "many in an object": ("1", "{" + '"a":"%s",' * 9 + '"b":1}'),
    "a name": ("1", '{"%s":1}'),
    "an id": ('"%s"', "{}"),
    "an id after an escaped quote": ('"a\\"%s"', "{}"),
    "an empty id beside a text": ('""', '{"a":"%s"}'),
    "params": ("1", '"%s"'),
    "a timeout": ("1", '{"configuration":{"timeout":"%s"}}'),
    "a configuration": ("1", '{"configuration":"%s"}'),
    "before an escaped quote": ("1", '{"a":"%s\\""}'),
    "after an escaped quote": ("1", '{"a":"\\"%s"}'),
    "after an escaped backslash": ("1", '{"a":"\\\\%s"}'),
    "between texts": ("1", '{"a":"x"%s"y"}'),
    "behind a name, up to a line end": ("1", '{"a"x%s\n:1}'),
    "behind a colon": ("1", '{"a":%s"y"}'),
    "numbers": ("1", '{"a":[' + "1," * 60000 + '"y"]}'),
    "not closed": ("1", '{"a":"%s}'),
    "with a control character": ("1", '{"a":"%s\x1f%s"}'),
    "with a line end": ("1", '{"a":"%s\n%s"}'),
    "with DEL": ("1", '{"a":"%s\x7f%s"}'),
    "with a bad escape": ("1", '{"a":"%s\\x%s"}'),
    "with an escape": ("1", '{"a":"%s\\n%s"}'),
    "with half a surrogate": ("1", '{"a":"%s\\ud83d%s"}'),
    "beyond ASCII": ("1", '{"a":"%sé%s"}'),
    "beyond ASCII elsewhere": ("1", '{"a":"%s","b":"é"}'),
    "no UTF-8": ("1", '{"a":"%s\udc80%s"}'),
    "no UTF-8 elsewhere": ("1", '{"a":"%s","b":"\udcff"}'),
    "another id behind it": ("1", '{"a":"%s"},"id":2,"x":{}'),
}


@pytest.mark.parametrize("name", LONG_TEXTS)
def test_long_texts_are_read_as_short_ones(name: str) -> None:
    """Contract 2.1 rules 3 to 9 and 2.4, on texts of which most is not parsed."""
    id, params = (part.replace("%s", _PLAIN) for part in LONG_TEXTS[name])
    body = f'{{"jsonrpc":"2.0","id":{id},"method":"m","params":{params}}}'.encode(errors="surrogateescape")
    for reader in (jsonrpc.read, _read_in_place):
        assert _outcome(reader, body) == obvious_jsonrpc.read(body)
    for own in (b"1", b'""', b'"a\\""', id.encode()):
        assert _told(jsonrpc.judge(body, own), body) == obvious_jsonrpc.judge(body, own)


LONG = '"message":{"text":"' + "x\\n" * 5000 + '","configuration":{"timeout":1}}'
IN_LONG_TEXTS = {
    "none": LONG,
    "last": LONG + ',"configuration":{"timeout":5}',
    "last, and more": LONG + ',"configuration":{"blocking":true,"timeout":5},"metadata":{"timeout":9}',
    "first": '"configuration":{"timeout":5},' + LONG,
    "twice": '"configuration":{"timeout":5},' + LONG + ', "configuration":{"timeout":6}',
    "taken back": '"configuration":{"timeout":5},' + LONG + ',"configuration":null',
    "spelt with escapes": LONG + ',"c\\u006fnfiguration":{"t\\u0069meout":5}',
    "spelt with escapes after": LONG + ',"configuration":{"timeout":5},"configuratio\\u006e":{"timeout":6}',
    "deeper": LONG + ',"metadata":{"x":1,"configuration":{"timeout":5}}',
    "deeper, in a list": LONG + ',"metadata":[{"x":1,"configuration":{"timeout":5}}]',
    "in a text": LONG + ',"metadata":"{\\"configuration\\":{\\"timeout\\":5}}"',
    "at the end of a text": LONG + ',"metadata":{"x,\\"configuration":{"timeout":5}}',
    "at the end of a name": LONG + ',"x,\\"configuration":{"timeout":5}',
    "a value": LONG + ',"metadata":"configuration"',
    "zero": LONG + ',"configuration":{"timeout":0}',
    "a text": LONG + ',"configuration":{"timeout":"5"}',
    "a list": LONG + ',"configuration":[]',
}


@pytest.mark.parametrize("name", IN_LONG_TEXTS)
@pytest.mark.parametrize("after", ["", ',"more":1', ',"id":8', " "])
def test_timeouts_in_long_texts(name: str, after: str) -> None:
    """Contract 2.1 rule 9, where not all of the text is looked at twice."""
    body = f'{{"jsonrpc":"2.0","id":7,"method":"m","params":{{{IN_LONG_TEXTS[name]}}}{after}}}'.encode()
    assert _outcome(jsonrpc.read, body) == obvious_jsonrpc.read(body)


def _outcome(reader: Callable[[bytes], Envelope], body: bytes) -> tuple[Any, ...]:
    try:
        envelope = reader(body)
    except Refused as refused:
        return refused.reason, _decoded(refused.id)
    return _decoded(envelope.id), envelope.method, envelope.timeout


_LONE = '"\\ud83d":1,'


@pytest.mark.parametrize("lone", ["", _LONE])
@pytest.mark.parametrize(
    "members",
    [
        '"id":"\\uE000","method":"\\uE000\\ue000\\uD83d"',
        '"id":"\\\\uE000","method":"\\\\uE000"',
        '"id":"\\\\ud83d","method":"\\\\\\\\ud83d"',
        '"id":"a\\\\","method":"\\\\","\\u0078":1',
        '"id":1,"method":"\\\\","i\\u0064":2',
        '"id":"\\\\","method":"m","m\\u0065thod":"\\\\"',
        '"i\\u0064":' + "7" * 4301 + ',"method":"m"',
        '"i\\u0064":' + "7" * 4301 + ',"method":"\\u07' + "7" * 4301 + '"',
        '"i\\u0064":' + "7" * 4301 + ',"method":"m","id":' + "7" * 4301,
        '"id":1,"method":"m","method":[]',
        '"id":1,"method":[],"method":"m"',
        '"id":1,"method":"a","method":"b","id":1',
        '"id":[],"method":"a","\\u0069d":1',
        '"id":null,"method":"a","\\u0069d":null',
        '"method":"a","method":"b"',
        '"id":1,"method":5,"id":2',
        '"id":"a","id":1.5,"method":"m","id":"a"',
        '"id":1,"jsonrpc":2,"method":"m"',
    ],
)
def test_the_obvious_reader_reads_odd_cases_the_same(members: str, lone: str) -> None:
    """Contract 2.1 rules 5 to 7."""
    body = ("{" + lone + '"jsonrpc":"2.0",' + members + "}").encode()
    assert _outcome(jsonrpc.read, body) == obvious_jsonrpc.read(body)


def _told(verdict: jsonrpc.Verdict, body: bytes) -> str:
    if verdict.body is None:
        return "none"
    if verdict.body is body:
        return "error" if verdict.is_error else "own"
    return "nameless" if verdict.is_error else "wrapped"


@given(_documents, st.sampled_from([b"1", b"0", b"-0", b'"a"', b'"\\ud83d"', b'"\\\\ud83d"', b"null"]))
@settings(max_examples=600, deadline=None)
def test_the_obvious_judge_judges_the_same(body: bytes, id: bytes) -> None:
    """Contract 2.4, first four rows; what is made of an answer is JSON again."""
    for judge in (jsonrpc.judge, jsonrpc._judge_slowly, _judge_as_if_long):
        verdict = judge(body, id)
        assert _told(verdict, body) == obvious_jsonrpc.judge(body, id)
        assert verdict.body is None or obvious_jsonrpc.parse(verdict.body)


@given(_documents, st.integers(0, 400), st.sampled_from([b"", b"\\", b'"', b"\xff", b"u", b"d8", b"}", b","]))
@settings(max_examples=400, deadline=None)
def test_a_broken_text_is_broken_for_both(body: bytes, at: int, byte: bytes) -> None:
    """Contract 2.1 rule 3: marking surrogates mends nothing."""
    broken = body[:at] + byte + body[at + 1 :]
    problem = jsonrpc._judge_slowly(broken, b"1").problem
    is_read = not problem.startswith(("not JSON: ", "not UTF-8 (byte ", "empty body"))
    try:
        obvious_jsonrpc.parse(broken)
    except ValueError:
        assert not is_read
    else:
        assert is_read
    assert _outcome(_read_as_if_long, broken) == obvious_jsonrpc.read(broken)


_SIZE = 10 * 1024 * 1024
_SOUND = b'"jsonrpc":"2.0","id":1,"method":"m"'


def _hostile(before: bytes, unit: bytes, after: bytes) -> bytes:
    return before + unit * ((_SIZE - len(before) - len(after)) // len(unit)) + after


_HOSTILE = {
    "numbers": _hostile(b'{"\\u006a":1,' + _SOUND + b',"x":[', b"1,", b"0]}"),
    "lists beside a half surrogate": _hostile(b'{"\\ud83d":1,' + _SOUND + b',"x":[', b"[],", b"0]}"),
    "objects with ids": _hostile(b"{" + _SOUND + b',"x":[', b'{"id":1},', b"0]}"),
    "an earlier method": _hostile(b'{"method":[', b"[],", b"0]," + _SOUND + b"}"),
    "an earlier id": _hostile(b'{"id":[', b"{},", b"0]," + _SOUND + b"}"),
    "members": _hostile(b'{"\\u006a":1,', b'"":{},', _SOUND + b"}"),
    "methods": _hostile(b"{", b'"method":"m",', _SOUND + b"}"),
    "backslashes": _hostile(b"{" + _SOUND + b',"x":"', b"\\\\", b'\\ud83d"}'),
    "a method of surrogates": _hostile(b'{"jsonrpc":"2.0","id":1,"method":"', b"\\ud83d", b'"}'),
    "digits": _hostile(b'{"jsonrpc":"2.0","method":"m","\\u0069d":', b"1", b"}"),
    "an escaped configuration": _hostile(
        b"{" + _SOUND + b',"params":{"\\u0063onfiguration":{"x":[', b"[],", b"0]}}}"
    ),
}


@pytest.mark.parametrize("body", _HOSTILE.values(), ids=_HOSTILE)
def test_a_hostile_body_costs_little_more_than_its_length(body: bytes) -> None:
    """Contract 2.1 rule 2: 10 MiB are allowed, and anybody may send them; the tree of them takes seconds."""
    for read in (jsonrpc.read, lambda body: jsonrpc.judge(body, b"2")):
        assert _cost(read, body) < 0.6  # seconds: four times what it takes
        tracemalloc.start()
        _cost(read, body)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 7 * len(body)


def _cost(read: Callable[[bytes], object], body: bytes) -> float:
    began = time.thread_time()
    try:
        read(body)
    except Refused:
        pass
    return time.thread_time() - began


def test_a_bare_array_of_ten_mebibytes_is_wrapped_at_once() -> None:
    """Contract 2.4 row 2."""
    body = _hostile(b"[", b"1,", b"0]")
    assert jsonrpc.judge(body, b"1").body == b'{"jsonrpc":"2.0","id":1,"result":' + body + b"}"
    assert _cost(lambda body: jsonrpc.judge(body, b"1"), body) < 0.6


@pytest.mark.parametrize("depth", range(900, 1010, 3))
def test_no_depth_raises_anything_else(depth: int) -> None:
    """Contract 2.1 rule 3: nesting within the decoder's limit; each pass over the text has the same."""
    text = b"[" * depth + b"]" * depth
    for body in (
        b'{"\\u006a":1,' + _SOUND + b',"params":{"configuration":{"\\u0078":' + text + b"}}}",
        b'{"\\ud83d":1,' + _SOUND + b',"x":' + text + b"}",
        b'{"method":' + text + b"," + _SOUND + b"}",
    ):
        try:
            jsonrpc.read(body)
        except Refused:
            pass
        jsonrpc.judge(body, b"1")


@pytest.mark.parametrize(("one", "other"), [(b"0", b"-0"), (b"-0", b"0"), (b"-0", b"-0")])
def test_minus_zero_is_zero(one: bytes, other: bytes) -> None:
    """Contract 2.4: an answer belongs to the request if the ids have the same decoded value and type."""
    body = b'{"jsonrpc":"2.0","id":' + one + b',"result":1}'
    assert jsonrpc.judge(body, other).body is body


def test_an_error_with_a_half_surrogate_and_without_id_passes() -> None:
    """Contract 2.4 row 3: half surrogates are legal JSON."""
    error = b'{"code":1,"message":"\\ud83d \\\\ud83d \\\\"}'
    verdict = jsonrpc.judge(b'{"jsonrpc":"2.0","error":' + error + b"}", b"7")
    assert verdict.body == b'{"jsonrpc":"2.0","id":7,"error":' + error + b"}"


# --- errors ---


def test_an_error_carries_one_error_info() -> None:
    """Contract 2.4, the shape of every gateway-made error."""
    body = jsonrpc.error(
        FAULTS["AGENT_TIMEOUT"], b"18446744073709551616", detail="echo-01", metadata={"agentId": "echo-01"}
    )
    assert b'"id":18446744073709551616' in body
    assert json.loads(body)["error"] == {
        "code": -32001,
        "message": "agent timeout: echo-01",
        "data": [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "AGENT_TIMEOUT",
                "domain": "vitalgate",
                "metadata": {
                    "source": "gateway",
                    "reason": "AGENT_TIMEOUT",
                    "category": "transport",
                    "executed": "false",
                    "retry": "unsafe",
                    "agentId": "echo-01",
                },
            }
        ],
    }


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a2a_callers_never_get_codes_that_mean_something_else_there(fault: Any) -> None:
    """Contract 2.4: -32001 to -32004 become -32603, the rest stays."""
    kubemq = json.loads(jsonrpc.error(fault, b"1", detail="d"))["error"]
    a2a = json.loads(jsonrpc.error(fault, b"1", detail="d", a2a=True))["error"]
    assert a2a["code"] == (-32603 if -32004 <= fault.code <= -32001 else fault.code)
    assert kubemq["code"] == fault.code
    assert (a2a["message"], a2a["data"]) == (kubemq["message"], kubemq["data"])


@pytest.mark.parametrize(
    ("foreign", "value", "cut"),
    [
        (b'{"a":1}', {"a": 1}, False),
        (b"<html>", "<html>", False),
        (b"\xff", "\ufffd", False),
        (b"x" * 70_000, "x" * 65_536, True),
        (b"", "", False),
    ],
)
def test_a_foreign_body_follows_as_a_second_entry(foreign: bytes, value: Any, cut: bool) -> None:
    """Contract 2.4: JSON or text, at most 64 KiB."""
    data = json.loads(jsonrpc.error(FAULTS["AGENT_HTTP_ERROR"], b"1", detail="500", foreign=foreign))["error"][
        "data"
    ]
    assert data[1] == {"@type": "type.googleapis.com/google.protobuf.Value", "value": value}
    assert data[0]["metadata"].get("bodyTruncated") == ("true" if cut else None)
