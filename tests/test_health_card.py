"""Agent cards, judged as the health engine judges them (health contract 3, card rules; pitfalls 125, 131)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from healthcheck import url
from healthcheck.card import V03, V10, CardFault, Security, media_type, read_card, read_json
from healthcheck.reasons import REASONS
from tests.fakes.health_peer import card_03, card_10

URL = "http://peer.test/rpc"
Change = Callable[[dict[str, Any]], object]
ABSENT = object()


def put(*path: str | int, value: Any) -> Change:
    def change(card: dict[str, Any]) -> None:
        owner: Any = card
        for step in path[:-1]:
            owner = owner[step]
        if value is ABSENT:
            del owner[path[-1]]
        else:
            owner[path[-1]] = value

    return change


def judge(card: Any, version: str) -> str:
    """What becomes of a card: the address selected, or code and reason."""
    try:
        return read_card(read_json(json.dumps(card).encode()), version).select(version).url
    except CardFault as fault:
        return f"{fault.code} {fault.reason}"


def changed(version: str, change: Change) -> dict[str, Any]:
    card = card_10(URL) if version == V10 else card_03(URL)
    change(card)
    return card


BOTH: list[tuple[Change, str]] = [
    (put("name", value=1), "a2a_card name_blank"),
    (put("name", value=" "), "a2a_card name_blank"),
    (put("name", value=ABSENT), "a2a_card name_blank"),
    (put("version", value=""), "a2a_card version_blank"),
    (put("description", value=ABSENT), "a2a_card description"),
    (put("description", value=None), "a2a_card description"),
    (put("description", value=""), URL),
    (put("capabilities", value=ABSENT), "a2a_card capabilities"),
    (put("capabilities", value=[]), "a2a_card capabilities"),
    (put("capabilities", value={}), URL),
    (put("capabilities", value={"streaming": "yes"}), "a2a_card capabilities"),
    (put("capabilities", value={"pushNotifications": 1}), "a2a_card capabilities"),
    (put("capabilities", value={"telepathy": "yes"}), URL),
    (put("capabilities", value={"extensions": {}}), "a2a_card extensions"),
    (put("capabilities", value={"extensions": [{"uri": ""}]}), "a2a_card extensions"),
    (put("capabilities", value={"extensions": [{"uri": "urn:x", "required": "no"}]}), "a2a_card extensions"),
    (put("capabilities", value={"extensions": [{"uri": "urn:x"}]}), URL),
    (
        put("capabilities", value={"extensions": [{"uri": "urn:x", "required": True}]}),
        "a2a_version extension_required",
    ),
    (put("defaultInputModes", value="text/plain"), "a2a_card modes"),
    (put("defaultInputModes", value=["text"]), "a2a_card modes"),
    (put("defaultOutputModes", value=[1]), "a2a_card modes"),
    (put("defaultOutputModes", value=["Text/Plain; charset=utf-8"]), URL),
    (put("defaultOutputModes", value=ABSENT), URL),
    (put("skills", value=ABSENT), URL),
    (put("skills", value=[]), URL),
    (put("skills", value={}), "a2a_card skills"),
    (put("skills", value=["echo"]), "a2a_card skills"),
    (put("skills", 0, "id", value=""), "a2a_card skills"),
    (put("skills", 0, "name", value=ABSENT), "a2a_card skills"),
    (put("skills", 0, "tags", value=ABSENT), URL),
    (put("skills", 0, "tags", value="x"), "a2a_card skills"),
    (put("skills", value=[{"id": "a", "name": "A"}, {"id": "a", "name": "B"}]), "a2a_card skills_duplicate"),
    (put("skills", 0, "inputModes", value=["image"]), "a2a_card modes"),
    (put("securitySchemes", value=[1]), "a2a_card security"),
    (put("unknownMember", value={"deep": [1]}), URL),
]

OF_10: list[tuple[Change, str]] = [
    (put("supportedInterfaces", value=ABSENT), "a2a_card interfaces_missing"),
    (put("supportedInterfaces", value=[]), "a2a_card interfaces_missing"),
    (put("supportedInterfaces", value=[None]), "a2a_card interfaces"),
    (put("supportedInterfaces", value={}), "a2a_card interfaces"),
    (put("supportedInterfaces", 0, "url", value=ABSENT), "a2a_card interfaces"),
    (put("supportedInterfaces", 0, "tenant", value=7), "a2a_card interfaces"),
    (put("supportedInterfaces", 0, "protocolVersion", value=1.0), "a2a_card interfaces"),
    (put("supportedInterfaces", 0, "protocolVersion", value="1.0.2"), URL),
    (put("supportedInterfaces", 0, "protocolVersion", value="0.3"), "a2a_version version"),
    (put("supportedInterfaces", 0, "protocolVersion", value="1.1"), "a2a_version version"),
    (put("supportedInterfaces", 0, "protocolBinding", value="GRPC"), "a2a_version transport"),
]

OF_03: list[tuple[Change, str]] = [
    (put("preferredTransport", value=ABSENT), URL),
    (put("preferredTransport", value="GRPC"), "a2a_version transport"),
    (put("preferredTransport", value=1), "a2a_card transport"),
    (put("protocolVersion", value=ABSENT), "a2a_card protocol_version_missing"),
    (put("protocolVersion", value=1.0), "a2a_card protocol_version"),
    (put("protocolVersion", value="soon"), "a2a_card protocol_version"),
    (put("protocolVersion", value="1.0"), "a2a_version version"),
    (put("protocolVersion", value="0.3"), URL),
    (put("protocolVersion", value="0.2.6"), "a2a_version version"),
    (put("url", value=ABSENT), "a2a_card url_missing"),
]

CASES = [
    *((V10, *case) for case in BOTH + OF_10),
    *((V03, *case) for case in BOTH + OF_03),
]


@pytest.mark.parametrize(("version", "change", "wanted"), CASES, ids=range(len(CASES)))
def test_card_rules(version: str, change: Change, wanted: str) -> None:
    """Health contract 3: what is a fault, what is not; absent lists count as empty."""
    assert judge(changed(version, change), version) == wanted


def test_every_broken_rule_is_explained() -> None:
    """Required: `doctor` names the rule that the card breaks, and what to write instead."""
    faults = {tuple(wanted.split()) for _, _, wanted in CASES if wanted != URL}
    assert faults - set(REASONS) == set()
    assert {("a2a_card", reason) for reason in url.REASONS} - set(REASONS) == set()


def test_the_other_versions_card() -> None:
    """Health contract 3: a 0.3 card where 1.0 is asked is `a2a_card`; the reverse is a wrong version."""
    assert judge(card_03(URL), V10) == "a2a_card interfaces_missing"
    assert judge(card_10(URL), V03) == "a2a_version version"
    both = {**card_03(URL), **card_10("http://peer.test/v1")}
    assert (judge(both, V10), judge(both, V03)) == ("http://peer.test/v1", URL)


def test_the_first_fitting_interface_and_its_tenant() -> None:
    """Health contract 3: the first entry with JSONRPC and 1.0; its tenant goes with it (pitfall 125)."""
    card = card_10(URL)
    entry = card["supportedInterfaces"][0]
    card["supportedInterfaces"] = [
        {**entry, "protocolBinding": "GRPC", "url": "http://g/"},
        {**entry, "protocolVersion": "0.3", "url": "http://old/"},
        {**entry, "url": "http://first/", "tenant": "blue"},
        {**entry, "url": "http://second/"},
    ]
    chosen = read_card(card, V10).select(V10)
    assert (chosen.url, chosen.tenant) == ("http://first/", "blue")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'"x"',
        b"5",
        b"{bad",
        b"\xef\xbb\xbf{}",
        b"\xff\xfe{\x00}\x00",
        b'{"name": "\xff"}',
        b'{"x": NaN}',
        b'{"x": Infinity}',
        b'{"x": ' + b"1" * 5000 + b"}",
        b"[" * 100_000 + b"]" * 100_000,
        b"<html><body>It works</body></html>",
        None,
    ],
    ids=range(15),
)
def test_bodies_that_are_no_card(body: bytes | None) -> None:
    """Pitfalls 6, 7, 10, 131: never an exception of another kind."""
    with pytest.raises(CardFault) as caught:
        read_card(read_json(body), V10)
    assert caught.value.code == "a2a_card"


BEARER = {"b": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}
FLAT = {"b": {"type": "http", "scheme": "BEARER"}}
KEY = {"k": {"apiKeySecurityScheme": {"location": "header", "name": "X"}}}

SECURITY: list[tuple[str, dict[str, Any], tuple[bool, bool]]] = [
    (V10, {}, (True, False)),
    (V10, {"securitySchemes": BEARER}, (True, False)),
    (V10, {"securityRequirements": []}, (True, False)),
    (V10, {"securityRequirements": [{}], "securitySchemes": BEARER}, (True, False)),
    (V10, {"securityRequirements": [{"schemes": {"b": {"list": []}}}], "securitySchemes": BEARER}, (False, True)),
    (V10, {"securityRequirements": [{"schemes": {"b": {}}}], "securitySchemes": BEARER}, (False, True)),
    (V10, {"securityRequirements": [{"schemes": {"k": {}}}], "securitySchemes": KEY}, (False, False)),
    (
        V10,
        {"securityRequirements": [{"schemes": {"k": {}, "b": {}}}], "securitySchemes": {**KEY, **BEARER}},
        (False, False),
    ),
    (
        V10,
        {
            "securityRequirements": [{"schemes": {"k": {}}}, {"schemes": {"b": {}}}],
            "securitySchemes": {**KEY, **BEARER},
        },
        (False, True),
    ),
    (V10, {"securityRequirements": [{"schemes": {"undefined": {}}}], "securitySchemes": BEARER}, (False, False)),
    (V10, {"security": [{"b": []}], "securitySchemes": FLAT}, (False, True)),
    (V03, {"security": [{"b": []}], "securitySchemes": FLAT}, (False, True)),
    (V03, {"security": [{"b": []}, {}], "securitySchemes": FLAT}, (True, True)),
    (
        V03,
        {"security": [{"b": []}], "securitySchemes": {"b": {"type": "http", "scheme": "basic"}}},
        (False, False),
    ),
    (
        V03,
        {"security": [{"b": []}], "securitySchemes": {"b": {"type": "apiKey", "scheme": "bearer"}}},
        (False, False),
    ),
]


@pytest.mark.parametrize(("version", "members", "wanted"), SECURITY, ids=range(len(SECURITY)))
def test_security_alternatives(version: str, members: dict[str, Any], wanted: tuple[bool, bool]) -> None:
    """Health contract 3: alternatives are OR, the schemes inside one are AND; (public, takes bearer)."""
    card = read_card({**(card_10(URL) if version == V10 else card_03(URL)), **members}, version)
    assert (card.is_public, card.takes_bearer) == wanted


def test_security_that_is_no_list_is_a_fault() -> None:
    """Pitfall 131: malformed values are judged, not raised."""
    for members in (
        {"securityRequirements": {}},
        {"securityRequirements": ["b"]},
        {"security": "none"},
        {"securitySchemes": []},
        {"securitySchemes": False},
    ):
        with pytest.raises(CardFault):
            read_card({**card_10(URL), **members}, V10)


def test_several_bearer_schemes_in_one_alternative_are_bearer() -> None:
    """One header answers them all."""
    schemes = {"a": BEARER["b"], "b": BEARER["b"]}
    members = {"securityRequirements": [{"schemes": {"a": {}, "b": {}}}], "securitySchemes": schemes}
    assert read_card({**card_10(URL), **members}, V10).security == (Security.BEARER,)


@pytest.mark.parametrize("text", ["text", "", "text/", "/plain", "text plain", "text/plain/x", "té/xt", 5, None])
def test_what_is_no_media_type(text: object) -> None:
    """Health contract 3: default modes that parse as media types."""
    with pytest.raises(ValueError, match="media type"):
        media_type(text)
