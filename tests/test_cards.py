"""Agent cards that point at the gateway (contract 5.4, 5.5; pitfalls 7, 111, 116, 131)."""

from __future__ import annotations

import copy
import json
from typing import Any

import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.client.card_resolver import parse_agent_card
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway import cards
from gateway.card_protocols import V0_3, V1_0, declared_protocols
from gateway.cards import Security, served_card

G = "https://gw.example/a2a/echo-01"
HOME = "http://10.0.0.5:9001/rpc"
MINIMUM = {"agent_id": "echo-01", "name": "Echo", "url": HOME}


def interface(version: Any, url: str = HOME, binding: str = "JSONRPC", **more: Any) -> dict[str, Any]:
    return {"url": url, "protocolBinding": binding, "protocolVersion": version, **more}


def card(**members: Any) -> dict[str, Any]:
    return MINIMUM | members


def urls(value: Any) -> list[str]:
    """Every URL anywhere in a card: nothing in one may lead past the gateway."""
    if isinstance(value, dict):
        return [url for member in value.values() for url in urls(member)]
    if isinstance(value, list):
        return [url for item in value for url in urls(item)]
    return [value] if isinstance(value, str) and "://" in value else []


# --- which protocols an agent speaks ---

DECLARATIONS = [
    ({}, set()),
    ({"protocolVersions": ["1.0"]}, set()),  # KubeMQ's own field: its agents speak message/send
    ({"protocolVersion": "0.3.0"}, {V0_3}),
    ({"protocolVersion": "0.3"}, {V0_3}),
    ({"protocolVersion": "0.2.6"}, {V0_3}),
    ({"protocolVersion": "1.0"}, {V1_0}),
    ({"protocolVersion": 1.0}, {V1_0}),
    ({"protocolVersion": "latest"}, set()),
    ({"protocolVersion": True}, set()),
    ({"supportedInterfaces": [interface("1.0")]}, {V1_0}),
    ({"supportedInterfaces": [interface("1.0.0")]}, {V1_0}),
    ({"supportedInterfaces": [interface("1.1")]}, {V1_0}),
    ({"supportedInterfaces": [interface("0.3")]}, {V0_3}),
    ({"supportedInterfaces": [interface(None)]}, {V1_0}),  # only 1.0 knows this member
    ({"supportedInterfaces": [interface("1.0"), interface("0.3")]}, {V1_0, V0_3}),
    ({"supportedInterfaces": [interface("1.0")], "protocolVersion": "0.3.0"}, {V1_0, V0_3}),
    # Other bindings say nothing of JSON-RPC.
    ({"supportedInterfaces": [interface("1.0", binding="GRPC")]}, set()),
    ({"supportedInterfaces": [interface("1.0"), interface("0.3", binding="HTTP+JSON")]}, {V1_0}),
    (
        {
            "supportedInterfaces": [interface("1.0"), interface("0.3", "grpc://h", "GRPC")],
            "protocolVersion": "0.3.0",
            "preferredTransport": "GRPC",
        },
        {V1_0},
    ),
    (
        {
            "supportedInterfaces": [interface("1.0")],
            "protocolVersion": "0.3.0",
            "preferredTransport": "GRPC",
            "additionalInterfaces": [{"url": HOME, "transport": "JSONRPC"}],
        },
        {V1_0, V0_3},
    ),
    ({"protocolVersion": "0.3.0", "preferredTransport": "GRPC"}, {V0_3}),  # it did register for JSON-RPC
    # All calls go to the registered URL: what is only elsewhere is out of reach.
    ({"supportedInterfaces": [interface("1.0"), interface("0.3", HOME + "/v03")]}, {V1_0}),
    ({"supportedInterfaces": [interface("1.0", HOME + "/"), interface("0.3", "http://else")]}, {V1_0}),
    (
        {"supportedInterfaces": [interface("1.0", "https://pub/1"), interface("0.3", "https://pub/2")]},
        {V1_0, V0_3},
    ),
]


@pytest.mark.parametrize(("members", "spoken"), DECLARATIONS)
def test_declared_protocols(members: dict[str, Any], spoken: set[str]) -> None:
    """Contract 5.4: interfaces with JSONRPC binding, then protocolVersion; protocolVersions does not count."""
    assert declared_protocols(card(**members)) == spoken


# --- the four forms ---


def test_1_0_only_has_one_interface_and_no_0_3_members() -> None:
    """Contract 5.4: a pure 1.0 card."""
    served = served_card(card(supportedInterfaces=[interface("1.0", tenant="t/1")]), G)
    assert served["supportedInterfaces"] == [
        {"url": G, "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "t/1"}
    ]
    legacy = {"url", "protocolVersion", "preferredTransport", "additionalInterfaces"}
    assert legacy.isdisjoint(served)


def test_1_0_keeps_the_agents_version_and_adds_no_tenant() -> None:
    """Contract 5.4: protocolVersion is the agent's; a client must not send a tenant nobody asked for."""
    served = served_card(card(supportedInterfaces=[interface("1.0.0", tenant="")]), G)
    assert served["supportedInterfaces"] == [interface("1.0.0", G)]


def test_several_1_0_interfaces_become_one() -> None:
    """Contract 5.4: one entry; plain 1.0 is the version every 1.0 client knows."""
    listed = [interface("1.1"), interface("1.0", tenant="a"), interface("1.0", tenant="b")]
    assert served_card(card(supportedInterfaces=listed), G)["supportedInterfaces"] == [
        interface("1.0", G, tenant="a")
    ]


def test_0_3_only() -> None:
    """Contract 5.4: url, preferredTransport and protocolVersion; no additionalInterfaces."""
    served = served_card(
        card(
            protocolVersion="0.3.0",
            preferredTransport="HTTP+JSON",
            additionalInterfaces=[{"url": "http://10.0.0.5/rest", "transport": "HTTP+JSON"}],
            capabilities={"streaming": True, "stateTransitionHistory": True},
        ),
        G,
    )
    assert (served["url"], served["preferredTransport"], served["protocolVersion"]) == (G, "JSONRPC", "0.3.0")
    assert {"additionalInterfaces", "supportedInterfaces"}.isdisjoint(served)
    assert served["capabilities"] == {"streaming": True, "stateTransitionHistory": True}


def test_undeclared_is_taken_for_0_3() -> None:
    """Contract 5.4: KubeMQ's minimum, completed with what SDK clients require."""
    assert served_card(card(protocolVersions=["1.0"], metadata={"team": "x"}), G) == {
        "name": "Echo",
        "description": "Echo",
        "version": "0.0.0",
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
        "url": G,
        "preferredTransport": "JSONRPC",
        "protocolVersion": "0.3.0",
    }


def test_both() -> None:
    """Contract 5.4: both interfaces at G, the 1.0 one first, and the three 0.3 fields."""
    listed = [interface("0.3"), interface("1.0", tenant="t"), interface("1.0", "http://10.0.0.5/r", "HTTP+JSON")]
    served = served_card(card(supportedInterfaces=listed, protocolVersion="0.3.0"), G)
    assert served["supportedInterfaces"] == [interface("1.0", G, tenant="t"), interface("0.3", G)]
    assert (served["url"], served["preferredTransport"], served["protocolVersion"]) == (G, "JSONRPC", "0.3")


def test_both_by_a_1_0_interface_beside_0_3_members() -> None:
    """Contract 5.4: the form an agent of the Python SDK publishes."""
    served = served_card(card(supportedInterfaces=[interface("1.0")], protocolVersion="0.3.0"), G)
    assert served["supportedInterfaces"] == [interface("1.0", G), interface("0.3.0", G)]
    assert served["protocolVersion"] == "0.3.0"


# --- what goes, what stays ---

RICH = card(
    description="Says it back",
    version="2.1",
    protocolVersion="0.3.0",
    supportedInterfaces=[interface("1.0"), interface("0.3"), interface("1.0", "grpc://10.0.0.5", "GRPC")],
    additionalInterfaces=[{"url": "grpc://10.0.0.5:50051", "transport": "GRPC"}],
    additional_interfaces=[{"url": "grpc://10.0.0.5:50051", "transport": "GRPC"}],
    supported_interfaces=[{"url": HOME, "protocol_binding": "JSONRPC"}],
    capabilities={"streaming": True, "pushNotifications": False, "extendedAgentCard": True},
    supportsAuthenticatedExtendedCard=True,
    securitySchemes={"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
    security=[{"key": []}],
    securityRequirements=[{"schemes": {"key": {"list": []}}}],
    signatures=[{"protected": "e30", "signature": "AA"}],
    registered_at="2026-01-01T00:00:00.000000Z",
    last_seen="2026-01-01T00:00:00.000000Z",
    registered_by="anonymous",
    protocolVersions=["1.0"],
    metadata={"rack": "http://10.0.0.5/rack"},
    provider={"organization": "Acme", "url": "https://acme.example"},
    documentationUrl="https://acme.example/echo",
    vendorField={"kept": [1, 2]},
    skills=[
        {
            "id": "echo",
            "name": "Echo",
            "description": "Echoes",
            "tags": ["text"],
            "examples": ["hi"],
            "security": [{"key": []}],
            "securityRequirements": [{"schemes": {"key": {"list": []}}}],
        }
    ],
)


def test_no_address_in_a_card_leads_past_the_gateway() -> None:
    """Contract 5.4, pitfall 116: one policy for all addresses, in whatever spelling readers accept them."""
    found = urls(served_card(RICH, G))
    assert set(found) == {G, "https://acme.example", "https://acme.example/echo"}


@pytest.mark.parametrize(
    "name",
    [
        *("agent_id", "registered_at", "last_seen", "registered_by", "protocolVersions", "metadata"),
        *("signatures", "securitySchemes", "security", "securityRequirements", "additionalInterfaces"),
        *("supported_interfaces", "additional_interfaces"),
    ],
)
def test_members_that_are_not_in_a_served_card(name: str) -> None:
    """Contract 5.4: registry fields, signatures, security while callers' credentials do not pass."""
    assert name in RICH
    assert name not in served_card(RICH, G)


def test_everything_else_stays() -> None:
    """Contract 5.4: the rest of the card is the agent's own."""
    served = served_card(RICH, G)
    for name in ("name", "description", "version", "provider", "documentationUrl", "vendorField"):
        assert served[name] == RICH[name]
    assert served["capabilities"] == RICH["capabilities"]
    assert served["skills"] == [
        {"id": "echo", "name": "Echo", "description": "Echoes", "tags": ["text"], "examples": ["hi"]}
    ]


def test_security_stays_when_callers_credentials_reach_the_agent() -> None:
    """Contract 5.4: the agent's own schemes and requirements."""
    served = served_card(RICH, G, security=Security.AGENT)
    for name in ("securitySchemes", "security", "securityRequirements"):
        assert served[name] == RICH[name]
    assert served["skills"][0]["security"] == [{"key": []}]


@pytest.mark.parametrize(
    ("members", "capabilities", "legacy"),
    [
        ({"protocolVersion": "1.0"}, {"extendedAgentCard": True}, None),
        ({"protocolVersion": "0.3.0"}, {}, True),
        (
            {"protocolVersion": "0.3.0", "supportedInterfaces": [interface("1.0")]},
            {"extendedAgentCard": True},
            True,
        ),
    ],
)
@pytest.mark.parametrize(
    "said", [{"supportsAuthenticatedExtendedCard": True}, {"capabilities": {"extendedAgentCard": True}}]
)
def test_the_extended_card_is_announced_where_each_protocol_looks(
    members: dict[str, Any], said: dict[str, Any], capabilities: dict[str, Any], legacy: bool | None
) -> None:
    """Contract 5.4: no 0.3 top-level member in a 1.0 card, and the other way round."""
    served = served_card(card(**members, **said), G)
    assert served["capabilities"] == capabilities
    assert served.get("supportsAuthenticatedExtendedCard") is legacy


def test_skills_are_completed_and_the_registered_card_is_not_touched() -> None:
    """Contract 5.4: SDK clients require a description and tags of each skill; KubeMQ does not."""
    registered = card(skills=[{"id": "a", "name": "A"}], capabilities={"streaming": True})
    before = copy.deepcopy(registered)
    served = served_card(registered, G)
    assert served["skills"] == [{"id": "a", "name": "A", "description": "A", "tags": []}]
    assert registered == before


# --- odd cards: registration looks at some members only (contract 5.1) ---

ODD = [
    {"supportedInterfaces": [None]},
    {"supportedInterfaces": 5},
    {"supportedInterfaces": {"url": HOME}},
    {"supportedInterfaces": [[], 1, "x", {}, {"protocolBinding": None}, interface([1]), interface({})]},
    {"supportedInterfaces": [interface("1.0", url=5, tenant=7)]},
    {"additionalInterfaces": [None, 1]},
    {"preferredTransport": {}, "protocolVersion": []},
    {"protocolVersion": "9" * 5000},
    {"description": None, "version": None, "capabilities": None, "skills": None},
    {"capabilities": []},
    {"capabilities": {"streaming": "yes", "extensions": [None, {}, {"uri": 1}, {"uri": "u", "params": 3}]}},
    {"skills": [{"id": "a", "name": "A", "tags": [1], "examples": [{}], "inputModes": "x"}]},
    {"skills": [None, {"id": 1, "name": "A"}]},
    {"skills": [{"id": "a", "name": "A", "input_modes": ["x"], "inputModes": ["y"]}]},
    {"provider": 5, "documentationUrl": 5, "iconUrl": []},
    {"provider": {"organization": "Acme"}},
    {"defaultInputModes": [], "defaultOutputModes": None, "default_input_modes": ["text"]},
    {"supportsAuthenticatedExtendedCard": "yes"},
    {"signatures": 5, "securitySchemes": [], "security": {}, "security_schemes": {"a": 1}},
    {"x": 1e400, "y": 10**400, "z": [float("inf")]},
]


#: Who declares 0.2 gets a card that says 0.2, which the SDK refuses as it would refuse the agent's own.
READABLE = [members for members, _ in DECLARATIONS if members.get("protocolVersion") != "0.2.6"]


UNUSED = httpx.AsyncClient(verify=False, trust_env=False)


def sdk_reads(served: dict[str, Any]) -> Any:
    """The official 1.3 SDK: parses the card and finds a way to call the agent."""
    read = parse_agent_card(json.loads(cards.dump(served)))
    ClientFactory(ClientConfig(httpx_client=UNUSED)).create(read)
    return read


@pytest.mark.parametrize("members", [*ODD, *READABLE, RICH])
def test_the_1_3_sdk_reads_every_served_card(members: dict[str, Any]) -> None:
    """Contract 5.4, pitfalls 111 and 131: odd members neither raise nor reach a client."""
    read = sdk_reads(served_card(cards.parse_card(json.dumps(card(**members)).encode()), G))
    assert {entry.url for entry in read.supported_interfaces} == {G}


NAMES = sorted({*RICH, "id", "tags", "examples", "uri", "extensions", "streaming", "input_modes"})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(-1e9, 1e9) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6) | st.sampled_from(NAMES), inner)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(NAMES), JSON))
@settings(max_examples=300, deadline=None)
def test_any_card_is_served_so_that_the_1_3_sdk_reads_it(members: dict[str, Any]) -> None:
    """Contract 5.4, pitfalls 111 and 131: the same for whatever JSON a card holds."""
    read = sdk_reads(served_card(card(**members) | {"name": "Echo"}, G))
    assert {entry.url for entry in read.supported_interfaces} == {G}


@pytest.mark.parametrize("text", [b"[]", b"null", b'"x"', b"5"])
def test_what_is_no_object_reads_as_an_empty_card(text: bytes) -> None:
    """Pitfall 131: never an exception; the agent's id serves as its name."""
    assert served_card(cards.parse_card(text), G)["name"] == "echo-01"


def test_written_cards_are_json_whatever_numbers_and_text_they_hold() -> None:
    """Pitfall 7: no Infinity, no 4301-digit integer that raises, no half surrogate pair."""
    text = b'{"a":1e400,"b":' + b"1" * 5000 + b',"c":18446744073709551616,"d":"\\ud83d","e":NaN}'
    written = cards.dump(cards.parse_card(text)).decode()
    assert "Infinity" not in written
    assert "NaN" not in written
    assert json.loads(written)["c"] == 18446744073709551616


# --- where the gateway is ---


@pytest.mark.parametrize(
    ("public_url", "hosts", "base"),
    [
        ("https://gw.example", [b"evil"], "https://gw.example"),
        ("https://gw.example/", [], "https://gw.example"),
        ("https://gw.example/agents/v1/", [], "https://gw.example/agents/v1"),
        (None, [b"127.0.0.1:9090"], "http://127.0.0.1:9090"),
        (None, [b"Gateway.Example"], "http://gateway.example"),
        (None, [b"vital_gate:9090"], "http://vital_gate:9090"),
        (None, [b"[::1]:9090"], "http://[::1]:9090"),
        (None, [], None),
        (None, [b""], None),
        (None, [b"a", b"b"], None),
        *((None, [host], None) for host in (b"a b", b"u@h", b"h/x", b'h"', b"h\\x", b"h:x", b"h:123456", b"-h")),
        *((None, [host], None) for host in (b"h?x", b"h#x", b"\xc3\xa9", b"h\n", b"[::1", b"[fe80::1%25e]")),
    ],
)
def test_public_base(public_url: str | None, hosts: list[bytes], base: str | None) -> None:
    """Contract 5.4, pitfall 116: server.public_url, else scheme and host; odd hosts never enter a card."""
    assert cards.public_base(public_url, "http", hosts) == base


def test_an_agents_address_keeps_the_path_of_the_public_url() -> None:
    """Contract 5.4, pitfall 116: nothing doubled, nothing lost."""
    base = cards.public_base("https://gw.example/prefix/", "http", [])
    assert base is not None
    assert cards.address(base, "echo-01") == "https://gw.example/prefix/a2a/echo-01"


# --- extended cards ---


def rewrite(result: Any, **terms: Any) -> Any:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()
    return json.loads(cards.rewrite_extended_card(body, G, **terms))["result"]


def test_an_extended_card_of_1_0_gets_the_gateways_address() -> None:
    """Contract 5.4: JSON-RPC interfaces at G, others gone, signatures gone; no 0.3 member added."""
    result = {
        "name": "Echo",
        "supportedInterfaces": [
            interface("1.0", "http://10.0.0.5/v1", tenant="t"),
            interface("0.3", "http://10.0.0.5/v03"),
            interface("1.0", "http://10.0.0.5/rest", "HTTP+JSON"),
        ],
        "signatures": [{"protected": "e30", "signature": "AA"}],
        "skills": [{"id": "secret", "name": "Only for members"}],
        "capabilities": {"streaming": True},
    }
    assert rewrite(result) == {
        "name": "Echo",
        "supportedInterfaces": [interface("1.0", G, tenant="t"), interface("0.3", G)],
        "skills": [{"id": "secret", "name": "Only for members"}],
        "capabilities": {"streaming": True},
    }


def test_an_extended_card_of_0_3_gets_the_gateways_address() -> None:
    """Contract 5.4: url at G over JSON-RPC, additionalInterfaces gone in every spelling."""
    result = {
        "name": "Echo",
        "url": "http://10.0.0.5/rest",
        "preferredTransport": "HTTP+JSON",
        "protocolVersion": "0.3.0",
        "additionalInterfaces": [{"url": HOME, "transport": "JSONRPC"}],
        "additional_interfaces": [{"url": HOME, "transport": "JSONRPC"}],
        "supported_interfaces": [{"url": HOME}],
    }
    assert rewrite(result) == {
        "name": "Echo",
        "url": G,
        "preferredTransport": "JSONRPC",
        "protocolVersion": "0.3.0",
    }


def test_security_in_an_extended_card_follows_the_same_rule() -> None:
    """Contract 5.4: a client takes over the extended card, and its schemes with it."""
    result = {"url": HOME, "security": [{"k": []}], "skills": [{"id": "a", "security": [{"k": []}]}, None]}
    assert rewrite(result) == {"url": G, "skills": [{"id": "a"}, None]}
    assert rewrite(result, security=Security.AGENT) == result | {"url": G}


def test_every_other_byte_of_the_response_stays() -> None:
    """Contract 5.4, 2.1.7: the id's digits, unknown members, spacing and order are the agent's."""
    head = b' {\r\n "jsonrpc" : "2.0", "id":18446744073709551616.0, "x":[1.10,1e400,"\\ud83d","}"], "result" : '
    tail = b'\t, "meta":{"result":{"url":"http://10.0.0.5"}},"u":"\xc3\xa9","big":' + b"1" * 5000 + b"}\n"
    written = cards.rewrite_extended_card(head + b'{"url":"' + HOME.encode() + b'"}' + tail, G)
    assert written == head + b'{"url":"' + G.encode() + b'"}' + tail


def test_every_result_is_rewritten_where_a_response_has_two() -> None:
    """Pitfall 4: readers differ in which of two equal keys they take, also when one is spelled with escapes."""
    body = b'{"result":{"url":"http://a/"},"res\\u0075lt":{"url":"http://b/"}}'
    assert cards.rewrite_extended_card(body, G).count(G.encode()) == 2


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-32007,"message":"none","data":{"url":"http://10.0.0.5"}}}',
        b'{"jsonrpc":"2.0","id":1,"result":null}',
        b'{"jsonrpc":"2.0","id":1,"result":[{"url":"http://10.0.0.5"}]}',
        b'{"jsonrpc":"2.0","id":1,"result":{"id":"t1","status":{"state":"working"}}}',
        b'{"jsonrpc":"2.0","id":1.10}',
        b"{}",
        b"{ }",
        b"[1]",
        b"",
        b"{",
        b'{"result":{"url":"h"}',
        b'{"result" {}}',
        b'{"result":\xff}',
        b'{"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_response_without_a_card_comes_back_unchanged(body: bytes) -> None:
    """Contract 5.4: the one exception to verbatim relaying covers cards only; pitfall 6: depth does not raise."""
    assert cards.rewrite_extended_card(body, G) == body


@given(st.dictionaries(st.sampled_from(NAMES), JSON))
@settings(max_examples=200, deadline=None)
def test_any_extended_card_can_be_rewritten(result: dict[str, Any]) -> None:
    """Contract 5.4, pitfall 131: never an exception, and no address of a card's own left at its places."""
    written = rewrite(result)
    assert written.get("url", G) == G
    listed = written.get("supportedInterfaces", [])
    if "url" in result or "supportedInterfaces" in result:
        assert all(entry["url"] == G for entry in listed)


def test_platform_card() -> None:
    """Contract 5.5: name, description, version, url, no skills, text modes, protocolVersions; SDKs read it."""
    written = cards.platform_card("https://gw.example/p", name="kubemq", version="0.1.0")
    assert written["name"] == "kubemq"
    assert written["description"]
    assert written["version"] == "0.1.0"
    assert written["url"] == "https://gw.example/p"
    assert written["skills"] == []
    assert written["defaultInputModes"] == written["defaultOutputModes"] == ["text"]
    assert written["protocolVersions"] == ["1.0"]
    assert parse_agent_card(copy.deepcopy(written)).name == "kubemq"
