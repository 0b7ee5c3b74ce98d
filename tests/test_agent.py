"""registry.card: what is refused and what is kept (contract 5.1; pitfalls 6, 7, 9, 10, 101, 103, 111, 113)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from registry.agent import Agent, Lease, Registration, is_agent_id
from registry.card import MAX_CARD_BYTES, read_agent_id, read_card
from registry.clock import Clock
from registry.errors import Invalid, TooLarge
from registry.url import Url

MINIMUM: dict[str, Any] = {"agent_id": "echo-01", "name": "Echo", "url": "http://127.0.0.1:9001/"}


def card(**members: Any) -> bytes:
    return json.dumps(MINIMUM | members).encode()


def with_raw(name: str, raw: str) -> bytes:
    """The minimal card plus a member whose value is given as JSON text."""
    return (json.dumps(MINIMUM)[:-1] + f", {json.dumps(name)}: {raw}}}").encode()


def read(document: bytes) -> Agent:
    return read_card(document, owner=None, registered_at="2026-01-01T00:00:00.000000Z")


def refused(document: bytes) -> Invalid:
    with pytest.raises(Invalid) as caught:
        read(document)
    return caught.value


def fields(document: bytes) -> list[str]:
    return [violation.field for violation in refused(document).violations]


def test_the_minimum_is_enough_and_gets_the_default_protocol_versions() -> None:
    agent = read(card())
    assert (agent.agent_id, agent.url, agent.location.port) == ("echo-01", "http://127.0.0.1:9001/", 9001)
    assert json.loads(agent.card) == MINIMUM | {"protocolVersions": ["1.0"]}
    assert read(card(protocolVersions=["0.3"])).card.endswith(b'"protocolVersions":["0.3"]}')


@pytest.mark.parametrize("text", ["ab", "a1", "0-9", "register", "a" * 128, "a--b"])
def test_well_formed_ids(text: str) -> None:
    assert is_agent_id(text)
    assert read(card(agent_id=text)).agent_id == text


@pytest.mark.parametrize(
    "text",
    ["", "a", "-ab", "ab-", "Foo", "a_b", "a.b", "..", "a/b", "a b", "ab\n", "ab\x00", "é9", "٣٣", "a" * 129],
)
def test_malformed_ids(text: str) -> None:
    """Contract 1, pitfall 50: fullmatch, ASCII."""
    assert not is_agent_id(text)
    assert "agent_id" in fields(card(agent_id=text))


LIMITS = [("name", 256), ("description", 2048), ("version", 64)]


@pytest.mark.parametrize(("name", "longest"), LIMITS)
@pytest.mark.parametrize("character", ["x", "é", "🌍"])
def test_limits_are_exact_and_in_characters(name: str, longest: int, character: str) -> None:
    """Pitfall 113: characters, not bytes."""
    read(card(**{name: character * longest}))
    violations = refused(card(**{name: character * (longest + 1)})).violations
    assert [violation.field for violation in violations] == [name]
    assert str(longest) in violations[0].message


def test_the_url_limit() -> None:
    url = "http://h/"
    read(card(url=url + "x" * (2048 - len(url))))
    assert fields(card(url=url + "x" * (2049 - len(url)))) == ["url"]


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"name": 123}, ["name"]),
    ({"name": ""}, ["name"]),
    ({"name": None}, ["name"]),
    ({"name": True}, ["name"]),
    ({"agent_id": 5}, ["agent_id"]),
    ({"url": None}, ["url"]),
    ({"url": 5}, ["url"]),
    ({"url": ""}, ["url"]),
    ({"url": "ftp://h/"}, ["url"]),
    ({"url": "http://u:p@h/"}, ["url"]),
    ({"description": []}, ["description"]),
    ({"version": 1}, ["version"]),
    ({"skills": {}}, ["skills"]),
    ({"skills": "x"}, ["skills"]),
    ({"skills": ["a"]}, ["skills[0]"]),
    ({"skills": [{}]}, ["skills[0].id", "skills[0].name"]),
    ({"skills": [{"id": 1, "name": "n"}]}, ["skills[0].id"]),
    ({"skills": [{"id": "i", "name": None}]}, ["skills[0].name"]),
    ({"skills": [{"id": "i", "name": "n"}, {"id": "i", "name": "n", "tags": "x"}]}, ["skills[1].tags"]),
    ({"skills": [{"id": "i", "name": "n", "tags": ["a", 1, None]}]}, ["skills[0].tags[1]", "skills[0].tags[2]"]),
    ({"capabilities": []}, ["capabilities"]),
    ({"metadata": []}, ["metadata"]),
    ({"metadata": "x"}, ["metadata"]),
    ({"defaultInputModes": "text"}, ["defaultInputModes"]),
    ({"defaultOutputModes": [1]}, ["defaultOutputModes[0]"]),
    ({"protocolVersions": "1.0"}, ["protocolVersions"]),
    ({"protocolVersions": [1.0]}, ["protocolVersions[0]"]),
]


@pytest.mark.parametrize(("members", "named"), WRONG)
def test_wrong_types_name_the_field(members: dict[str, Any], named: list[str]) -> None:
    """Pitfall 111."""
    assert fields(card(**members)) == named


def test_every_violation_is_named_at_once() -> None:
    document = json.dumps({"agent_id": "A", "url": "x", "skills": [{"id": 1}], "metadata": 1}).encode()
    assert fields(document) == ["agent_id", "name", "url", "skills[0].id", "skills[0].name", "metadata"]


def test_very_many_violations_are_counted() -> None:
    violations = refused(card(protocolVersions=[1] * 1000)).violations
    assert len(violations) == 101
    assert (violations[-1].field, violations[-1].message) == ("", "and 900 more")


@pytest.mark.parametrize(
    "members",
    [
        {"skills": [{"id": "i", "name": "n"}]},  # absent tags
        {"skills": [{"id": "i", "name": "n", "tags": ["", "a", "a"]}, {"id": "i", "name": "n"}]},  # for health
        {"skills": [{"id": "", "name": "", "examples": [{}], "anything": None}]},
        {"capabilities": {"streaming": "yes"}, "supportedInterfaces": [None], "security": 5},
    ],
)
def test_what_is_not_ours_to_judge_is_accepted(members: dict[str, Any]) -> None:
    assert json.loads(read(card(**members)).card).items() >= members.items()


def test_null_stands_for_an_absent_optional_member() -> None:
    """That is how Go writes an empty list; in members we do not know, null is kept."""
    optional = ["description", "version", "skills", "capabilities", "metadata", "defaultInputModes"]
    agent = read(card(**dict.fromkeys(optional), protocolVersions=None, other=None))
    assert json.loads(agent.card) == MINIMUM | {"other": None, "protocolVersions": ["1.0"]}
    assert read(card(skills=[{"id": "i", "name": "n", "tags": None}])).tags == frozenset()


def test_server_set_members_are_ignored() -> None:
    """Pitfall 103."""
    agent = read(
        card(registered_at="1970-01-01T00:00:00Z", registered_by="root", last_seen=5, health={"status": "HEALTHY"})
    )
    assert json.loads(agent.card) == MINIMUM | {"protocolVersions": ["1.0"]}
    assert agent.registered_by == "anonymous"


RAW = [
    "1e400", "18446744073709551616", "1" * 5000, "-0", "1.0", "1.10", "1E+2", '"\\u00e9\\/"', '"\\ud83c\\udf0d"',
    '{"b" : 1,  "a": [ 1.50 ]}',
]  # fmt: skip


@pytest.mark.parametrize("raw", RAW)
def test_unknown_members_keep_their_bytes_and_order(raw: str) -> None:
    """Contract 5.1 "kept as it came", pitfall 7: no digit is lost, nothing is re-serialised."""
    document = ('{"x-a":' + raw + "," + json.dumps(MINIMUM)[1:-1] + ',"é":' + raw + "}").encode()
    kept = read(document).card
    assert kept.startswith(b'{"x-a":' + raw.encode() + b',"agent_id":"echo-01","name":"Echo"')
    assert ('"é":' + raw).encode() in kept


NOT_JSON = [
    b"", b" ", b"{bad", b"{", b'{"a":1,}', b"\xef\xbb\xbf{}", b'{"a":"\xff"}', b'{"a":"\xc0\xaf"}', b"nul",
    '{"a":1}'.encode("utf-16"), '{"a":"é"}'.encode("latin-1"), b'{"a":NaN}', b'{"a":-Infinity}', b"{} {}",
    b'{"a":"\x01"}', b'{"a":01}', b'{"name":"x","n\\u0061me":"y"}', b'{"metadata":{"k":1,"k":2}}',
    b'{"a":"\xed\xa0\xbd"}', b"[" * 100_000 + b"]" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("document", NOT_JSON, ids=range(len(NOT_JSON)))
def test_what_is_not_strict_json(document: bytes) -> None:
    """Pitfalls 6, 7, 9, 10."""
    assert str(refused(document)).startswith("invalid JSON: ")
    with pytest.raises(Invalid, match="invalid JSON: "):
        read_agent_id(document)


@pytest.mark.parametrize("document", [b"null", b"5", b'"x"', b"[]", b"true", b"1e400"])
def test_json_that_is_no_object(document: bytes) -> None:
    assert str(refused(document)) == "the body must be a JSON object"


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_nesting(opening: str, closing: str) -> None:
    """Pitfalls 6, 113: a fixed limit, not whatever the stack holds today. The card itself is the first level."""
    read(with_raw("metadata", '{"m":' + opening * 98 + "1" + closing * 98 + "}"))
    for levels in (99, 10_000):
        document = with_raw("metadata", '{"m":' + opening * levels + "1" + closing * levels + "}")
        assert "nested deeper" in str(refused(document))


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (card(name="a\x00b"), "name"),
        (with_raw("description", '"\\ud83d"'), "description"),
        (with_raw("description", '"\\uDFFF x"'), "description"),
        (card(skills=[{"id": "i", "name": "n", "tags": ["ok", "\x00"]}]), "skills[0].tags[1]"),
        (with_raw("metadata", '{"deep": [{"\\ud800": 1}]}'), "metadata.deep[0].\\ud800"),
        (with_raw("x\x00", "1"), "x\x00"),
    ],
)
def test_nul_and_lone_surrogates_are_refused(document: bytes, field: str) -> None:
    """Pitfall 113, facts: one lone surrogate breaks UTF-8 writers and metrics later."""
    assert fields(document) == [field]


def test_escapes_that_only_look_like_it_are_accepted() -> None:
    assert read(card(name="🌍 \\u0000 \\ud83d")).text.startswith("echo-01\n🌍 \\u0000 \\ud83d")


def test_the_whole_card_has_a_limit() -> None:
    """Pitfall 113."""
    room = MAX_CARD_BYTES - len(card(metadata={"x": ""}))
    read(card(metadata={"x": "y" * room}))
    with pytest.raises(TooLarge, match="262144 bytes"):
        read(card(metadata={"x": "y" * (room + 1)}))
    with pytest.raises(TooLarge):
        read(card(skills=[{"id": "i", "name": "n", "tags": ["t"] * 100_000}]))


def test_the_address_check_is_one_of_the_violations() -> None:
    """Contract 6.3: a refused literal address is a 400 at registration."""
    seen: list[Url] = []

    def check(url: Url) -> str:
        seen.append(url)
        return "address not allowed"

    with pytest.raises(Invalid) as caught:
        read_card(card(url="http://169.254.169.254/", version=1), owner=None, registered_at="", check_url=check)
    assert [(one.field, one.message) for one in caught.value.violations][1] == ("url", "address not allowed")
    assert [url.host for url in seen] == ["169.254.169.254"]


def test_the_document_shown_is_the_card_with_server_set_members() -> None:
    agent = read_card(card(), owner='a"é\ud800', registered_at="2026-01-01T00:00:00.000000Z")
    document = Registration(agent, Lease("echo-01", "2026-01-02T00:00:00.000000Z", 300, 0.0, 1)).document()
    assert document == agent.card[:-1] + (
        b',"registered_by":"a\\"\\u00e9\\ud800","registered_at":"2026-01-01T00:00:00.000000Z",'
        b'"last_seen":"2026-01-02T00:00:00.000000Z"}'
    )


@pytest.mark.parametrize(
    ("body", "field"),
    [(b"{}", "agent_id"), (b'{"agent_id":5}', "agent_id"), (b'{"agent_id":"A"}', "agent_id"), (b"[]", None)],
)
def test_bodies_of_heartbeats(body: bytes, field: str | None) -> None:
    """Pitfall 101."""
    with pytest.raises(Invalid) as caught:
        read_agent_id(body)
    assert [one.field for one in caught.value.violations] == ([field] if field else [])
    assert read_agent_id(b' {"agent_id": "echo-01", "more": 1} ') == "echo-01"


@pytest.mark.parametrize("wall", [0.0, 1_750_000_000.0, 1_750_000_000.5, 1_750_000_000.9999999])
def test_timestamps(wall: float) -> None:
    """Contract 5.1: six fraction digits and Z, always."""
    text = Clock(wall=lambda: wall).timestamp()
    assert len(text) == len("2026-01-01T00:00:00.000000Z")
    assert text[19] == "."
    assert text.endswith("Z")


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers()
    | st.text(st.characters()),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)
_NAMES = st.sampled_from(
    ["agent_id", "name", "url", "skills", "metadata", "capabilities", "protocolVersions", "x"]
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(_NAMES, _JSON))
def test_whatever_comes_is_an_agent_or_named_violations(members: dict[str, Any]) -> None:
    """Pitfall 111: never any other exception; what is accepted reads the same again, and can be shown."""
    document = card(**members)
    try:
        agent = read(document)
    except Invalid:
        assert fields(document)
        return
    assert read(agent.card).card == agent.card
    agent.text.encode()


@settings(max_examples=200, deadline=None)
@given(st.binary() | st.binary().map(lambda tail: card()[:-1] + tail))
def test_bytes_never_raise_anything_else(document: bytes) -> None:
    try:
        read(document)
    except Invalid:
        return
