"""The data of the handoff inspector: what the command says, and no send that the gateway would not make itself.

Health contract 8, contract 2.2, 2.3, 6.1, 6.3, 6.4.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from click.testing import CliRunner

from gateway.handoff_examples import ACCEPTED, CARDS, DEFAULTS, FIXTURES, ORIGIN, PEER_DELAY_MS
from healthcheck.card import V03, V10
from healthcheck.cli import handoff
from healthcheck.handoff import GATES
from registry.card import MAX_VIOLATIONS
from tests.fakes import reply
from tests.fakes.agent import Behaviour, Connection, Received
from tests.fakes.certs import Authority
from tests.fakes.health_peer import A2APeer
from tests.fakes.issuer import SECRET, bearer, token
from tests.fakes.running import JSON, Running, eventually, running
from tests.fakes.sdks import UUID
from tests.fakes.valkey import Valkey, own_valkey

__all__ = ["own_valkey"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

Document = dict[str, Any]
BEARER = {
    "securityRequirements": [{"schemes": {"b": {}}}],
    "securitySchemes": {"b": {"type": "http", "scheme": "bearer"}},
}
TOKEN = "s3cret-token"
SCOPES = {"bound": ["--credential-scope", "bound"], "broad": ["--credential-scope", "broad"], "missing": []}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("handoff-routes-ca"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway() -> AsyncIterator[Running]:
    async with running() as it:
        yield it


async def ask(gateway: Running, status: int = 200, **changes: Any) -> Document:
    """The defaults with changes, and the answer."""
    answer = await gateway.client.post("/handoff/trace", json={**DEFAULTS, **changes})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    found: Document = answer.json()
    return found


async def command(card: Path | str, *more: str) -> Document:
    """What `vitalgate handoff --format json` prints."""
    arguments = ["--card", str(card), "--format", "json", *more]
    outcome = await asyncio.to_thread(CliRunner().invoke, handoff, arguments, env={"HANDOFF_TOKEN": TOKEN})
    assert outcome.stderr == "", outcome.stderr
    trace: Document = json.loads(outcome.stdout)
    return trace


def comparable(trace: Document) -> Document:
    """Without the ids, which are fresh each time."""
    text: Document = json.loads(UUID.sub("id", json.dumps(trace)))
    return text


def gates(found: Document) -> list[str]:
    return [gate.get("reason", gate["result"]) for gate in found["trace"]["gates"]]


# -- the same engine


@pytest.mark.parametrize("card", CARDS, ids=[id for id, _, _ in CARDS])
async def test_dry_runs_say_what_the_command_says(
    gateway: Running, tmp_path: Path, card: tuple[str, str, str]
) -> None:
    """Gate by gate, for every policy and scope; with an admission, and in the other version."""
    file = tmp_path / "card.json"
    file.write_text(card[2])
    every = itertools.product(("allowlist", "advertised"), SCOPES, (False,), (V10,))
    further = (("advertised", "bound", True, V10), ("advertised", "broad", False, V03))
    for policy, scope, public, version in (*every, *further):
        found = await ask(
            gateway,
            card=card[2],
            policy=policy,
            credential=scope,
            public=public,
            protocol_version=version,
            answer=None,
        )
        wanted = await command(
            file,
            *("--skill", DEFAULTS["skill"], "--policy", policy, "--protocol-version", version, "--origin", ORIGIN),
            *SCOPES[scope],
            *(() if scope == "missing" else ("--credential", f"{ORIGIN}=HANDOFF_TOKEN")),
            *(("--public",) if public else ()),
        )
        assert comparable(found["trace"]) == comparable(wanted), (policy, scope, public, version)
        assert found["trace"]["sends"] == 0
        assert found["response"] is None


@pytest.mark.parametrize(
    ("card", "wanted"),
    [
        ("valid", ["pass"] * 6),
        ("wrong-origin", ["pass", "endpoint-not-allowed", *["not reached"] * 4]),
        ("wrong-transport", ["pass", "pass", "transport", *["not reached"] * 3]),
        ("image-only", ["pass", "pass", "input-mode", *["not reached"] * 3]),
        ("no-version", ["pass", "pass", "protocol-version", *["not reached"] * 3]),
        ("broken-json", ["card-malformed", *["not reached"] * 5]),
    ],
)
async def test_the_named_cards_stop_where_their_names_say(gateway: Running, card: str, wanted: list[str]) -> None:
    examples = (await gateway.client.get("/handoff/examples")).json()
    assert [one["id"] for one in examples["cards"]] == [id for id, _, _ in CARDS]
    text = next(one["card"] for one in examples["cards"] if one["id"] == card)
    found = await ask(gateway, card=text)
    assert gates(found) == wanted
    assert [gate["gate"] for gate in found["trace"]["gates"]] == list(GATES)


async def test_the_valid_card_and_the_completed_fixture_end_with_the_accepted_text(gateway: Running) -> None:
    examples = (await gateway.client.get("/handoff/examples")).json()
    answer = await gateway.client.post("/handoff/trace", json=examples["defaults"])
    assert answer.headers["cache-control"] == "no-store"
    found = answer.json()
    assert found["artifact_text"] == "Use a finite retry budget." == ACCEPTED
    assert (found["trace"]["final_state"], found["trace"]["sends"], found["simulated"]) == ("completed", 1, True)
    assert (found["response"]["status"], found["response"]["elapsed_ms"]) == (200, 150)
    assert json.loads(found["response"]["body"])["id"] == found["trace"]["request"]["id"]
    assert "not-a-token" not in answer.text


def answering(name: str, version: str, seconds: float = 0.0, after: asyncio.Event | None = None) -> Behaviour:
    """A real peer that answers as a fixture does."""

    async def run(connection: Connection, request: Received | None) -> None:
        assert request is not None
        if after is not None:
            await after.wait()
        body = FIXTURES[name][1](request.json()["id"], version)
        await (reply.late(seconds, reply.body(body)) if seconds else reply.body(body)).run(connection, request)

    return Behaviour(name, run)


@pytest.mark.parametrize("version", [V10, V03])
@pytest.mark.parametrize("fixture", FIXTURES)
async def test_fixtures_say_what_a_real_peer_would_bring(
    gateway: Running, authority: Authority, fixture: str, version: str
) -> None:
    """The command with --send against a peer that answers so: the same trace."""
    async with A2APeer(version, tls=authority.server()) as peer:
        peer.rpc["SendMessage" if version == V10 else "message/send"] = answering(fixture, version)
        origin = peer.at("").rstrip("/")
        wanted = await command(
            peer.at("/.well-known/agent-card.json"),
            *("--skill", "echo", "--public", "--origin", origin, "--protocol-version", version),
            *("--send", "hello", "--deadline-ms", "20000", "--ca-file", str(authority.ca_file)),
        )
        card = json.dumps(peer.card)
    found = await ask(
        gateway,
        card=card,
        destination=origin,
        skill="echo",
        credential="missing",
        public=True,
        protocol_version=version,
        text="hello",
        deadline_ms=20_000,
        answer={"fixture": fixture, "delay_ms": PEER_DELAY_MS},
    )
    assert comparable(found["trace"]) == comparable(wanted)
    assert found["trace"]["sends"] == 1
    assert (found["artifact_text"] == ACCEPTED) is (fixture == "completed")


@pytest.mark.parametrize(
    ("deadline", "wanted"), [(100, "timeout-unknown"), (200, "completed"), (300, "completed")]
)
async def test_deadlines_against_the_fixtures_delay(gateway: Running, deadline: int, wanted: str) -> None:
    """As the command against a peer of 150 ms, but nobody waits."""
    found = await ask(gateway, deadline_ms=deadline)
    assert found["trace"]["final_state"] == wanted
    assert found["trace"]["sends"] == 1
    assert found["response"]["elapsed_ms"] == min(deadline, 150)
    assert (found["response"]["body"] is None) is (wanted == "timeout-unknown")


async def test_a_deadline_passes_for_the_command_too(authority: Authority) -> None:
    async with A2APeer(tls=authority.server()) as peer:
        peer.rpc["SendMessage"] = answering("completed", V10, seconds=0.15)
        trace = await command(
            peer.at("/.well-known/agent-card.json"),
            *("--skill", "echo", "--public", "--origin", peer.at("").rstrip("/")),
            *("--send", "hello", "--deadline-ms", "100", "--ca-file", str(authority.ca_file)),
        )
    assert (trace["final_state"], trace["sends"]) == ("timeout-unknown", 1)


# -- what is asked


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"card": None}, ["card"]),
        ({"card": {"name": "x"}}, ["card"]),
        ({"card": "x" * (256 * 1024 + 1)}, ["card"]),
        ({"destination": "agent.example"}, ["destination"]),
        ({"destination": "https://agent.example/a2a"}, ["destination"]),
        ({"destination": "https://user@agent.example"}, ["destination"]),
        ({"destination": "file:///etc/passwd"}, ["destination"]),
        ({"skill": ""}, ["skill"]),
        ({"skill": "\ud800"}, ["skill"]),
        ({"policy": "any"}, ["policy"]),
        ({"credential": None}, ["credential"]),
        ({"public": 1}, ["public"]),
        ({"protocol_version": "2.0"}, ["protocol_version"]),
        ({"text": 5}, ["text"]),
        ({"text": "x" * 200_000}, ["text"]),
        ({"deadline_ms": 0}, ["deadline_ms"]),
        ({"deadline_ms": 1.5}, ["deadline_ms"]),
        ({"deadline_ms": True}, ["deadline_ms"]),
        ({"deadline_ms": 60_001}, ["deadline_ms"]),
        ({"deadline_ms": "100"}, ["deadline_ms"]),
        ({"answer": "completed"}, ["answer"]),
        ({"answer": {}}, ["answer"]),
        ({"answer": {"fixture": "completed", "agent_id": "echo"}}, ["answer"]),
        ({"answer": {"fixture": "other", "delay_ms": -1}}, ["answer.fixture", "answer.delay_ms"]),
        ({"answer": {"agent_id": "ECHO"}}, ["answer.agent_id"]),
        ({"answer": {"agent_id": "echo", "url": "https://x.example"}}, ["answer.url"]),
        ({"url": "https://x.example", "policy": 1}, ["url", "policy"]),
    ],
)
async def test_every_mistake_is_named(gateway: Running, changes: Document, fields: list[str]) -> None:
    answer = await gateway.client.post("/handoff/trace", content=json.dumps({**DEFAULTS, **changes}), headers=JSON)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"] == "invalid handoff"
    assert [one["field"] for one in answer.json()["details"]] == fields


async def test_of_many_mistakes_the_first_are_named(gateway: Running) -> None:
    """Ninety thousand unknown members took the event loop's time for an answer of four megabytes."""
    many = {f"k{number}": 1 for number in range(90_000)}
    answer = await gateway.client.post("/handoff/trace", json={**many, **DEFAULTS})
    assert answer.status_code == 400
    fields = [one["field"] for one in answer.json()["details"]]
    assert fields == [f"k{number}" for number in range(MAX_VIOLATIONS)]


async def test_what_is_missing_is_named_too(gateway: Running) -> None:
    answer = await gateway.client.post("/handoff/trace", json={})
    assert [one["field"] for one in answer.json()["details"]] == ["card", "destination", "skill"]
    assert {one["message"] for one in answer.json()["details"]} == {"is required"}


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", JSON, 400),
        (b"{", JSON, 400),
        (b"[]", JSON, 400),
        (b'{"card": NaN}', JSON, 400),
        (b'{"card": "", "card": ""}', JSON, 400),
        (b"[" * 1000, JSON, 400),
        (b" " * ((1 << 20) + 1), JSON, 413),
        (json.dumps(DEFAULTS).encode(), {"content-type": "text/plain", "origin": "SELF"}, 415),
    ],
    ids=["empty", "cut", "list", "nan", "twice", "deep", "large", "a page's form"],
)
async def test_bad_bodies(gateway: Running, body: bytes, headers: dict[str, str], status: int) -> None:
    named = {name: gateway.api if value == "SELF" else value for name, value in headers.items()}
    answer = await gateway.client.post("/handoff/trace", content=body, headers=named)
    assert answer.status_code == status, answer.text
    assert set(answer.json()) <= {"error", "details"}


async def test_halves_of_pairs_in_card_and_task(gateway: Running) -> None:
    """JSON may hold them, UTF-8 may not: neither breaks the answer."""
    card = json.loads(DEFAULTS["card"])
    card["supportedInterfaces"][0]["tenant"] = "\ud83d"
    answer = await gateway.client.post(
        "/handoff/trace", content=json.dumps({**DEFAULTS, "card": json.dumps(card)}), headers=JSON
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["trace"]["request"]["params"]["tenant"] == "\ud83d"
    for name, reason in (("card", "card-malformed"), ("text", "request-invalid")):
        answer = await gateway.client.post(
            "/handoff/trace", content=json.dumps({**DEFAULTS, name: '{"\ud83d": 1}'}), headers=JSON
        )
        assert answer.json()["trace"]["final_state"] == reason


# -- real sends


class Sent:
    """A gateway and a peer over TLS that is registered there."""

    def __init__(self, gateway: Running, peer: A2APeer) -> None:
        self.gateway = gateway
        self.peer = peer

    @property
    def origin(self) -> str:
        return self.peer.at("").rstrip("/")

    def asked(self, **changes: Any) -> Document:
        asked = {
            "card": json.dumps(self.peer.card),
            "destination": self.origin,
            "skill": "echo",
            "text": "hello",
            "deadline_ms": 20_000,
            "answer": {"agent_id": "peer"},
        }
        return {**asked, **changes}

    async def ask(self, status: int = 200, headers: dict[str, str] | None = None, **changes: Any) -> Document:
        answer = await self.gateway.client.post(
            "/handoff/trace", json=self.asked(**changes), headers=headers or {}
        )
        assert answer.status_code == status, answer.text
        assert TOKEN not in answer.text
        found: Document = answer.json()
        return found

    @property
    def sends(self) -> list[Received]:
        return [one for one in self.peer.requests if one.method == "POST"]


@pytest_asyncio.fixture(loop_scope="module")
async def there(authority: Authority, request: pytest.FixtureRequest) -> AsyncIterator[Sent]:
    sections: dict[str, Any] = getattr(request, "param", {})
    upstream = {"ca_file": str(authority.ca_file), "credentials": {"peer": {"bearer_env": "PEER_TOKEN"}}}
    async with (
        A2APeer(tls=authority.server()) as peer,
        running(
            environ={"PEER_TOKEN": TOKEN, "JWT_SECRET": SECRET},
            **{**sections, "upstream": {**upstream, **sections.get("upstream", {})}},
        ) as gateway,
    ):
        peer.card.update(BEARER)
        peer.rpc["SendMessage"] = answering("completed", V10)
        headers = bearer(token()) if "auth" in sections else {}
        card = {"agent_id": "peer", "name": "peer", "url": peer.base}
        answer = await gateway.client.post("/agents/register", json=card, headers=headers)
        assert answer.status_code == 200, answer.text
        yield Sent(gateway, peer)


async def test_a_real_send_goes_once_to_the_registered_agent(there: Sent) -> None:
    """Contract 2.2, 6.4: with the agent's credential and the caller's name, over the gateway's connections."""
    found = await there.ask()
    assert gates(found) == ["pass"] * 6
    assert (found["trace"]["final_state"], found["artifact_text"]) == ("completed", ACCEPTED)
    assert (found["trace"]["sends"], found["simulated"]) == (1, False)
    [sent] = there.sends
    assert sent.json() == found["trace"]["request"]
    assert sent.header("authorization") == f"Bearer {TOKEN}"
    assert sent.header("x-kubemq-caller-id") == "anonymous"
    assert str(sent.header("user-agent")).startswith("vitalgate/")
    assert str(sent.header("via")).startswith("1.1 vitalgate-")
    assert sent.header("a2a-version") == "1.0"
    assert found["trace"]["gates"][3]["looked_at"]["variable"] == "upstream.credentials"


async def test_a_broad_credential_is_still_the_agents_own(there: Sent) -> None:
    """It never leaves the registered origin, whatever the page says: nothing is exposed."""
    found = await there.ask(credential="broad", policy="advertised", destination="https://elsewhere.example")
    assert (found["trace"]["final_state"], found["trace"]["credential_exposed"]) == ("completed", False)
    found = await there.ask(destination="https://elsewhere.example")
    assert (found["trace"]["final_state"], len(there.sends)) == ("endpoint-not-allowed", 1)


async def test_nothing_is_sent_to_another_address(there: Sent) -> None:
    """Server-side request forgery: a card cannot lead the gateway anywhere (contract 6.3)."""
    for url in ("https://169.254.169.254/latest", there.peer.at("/other"), there.peer.base + "?x=1"):
        card = json.dumps(
            {
                **there.peer.card,
                "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            }
        )
        found = await there.ask(card=card, policy="advertised", credential="broad")
        trace = found["trace"]
        assert trace["final_state"] == "refused-by-gateway", trace
        assert (trace["gates"][5]["reason"], trace["sends"]) == ("address-not-registered", 0)
        assert "registered" in found["remedy"]
    assert there.peer.requests == []


async def test_the_address_guard_holds(authority: Authority) -> None:
    """Contract 6.3: judged when the connection is made."""
    upstream = {"ca_file": str(authority.ca_file), "deny_hosts": ["127.0.0.0/8"]}
    async with A2APeer(tls=authority.server()) as peer, running(upstream=upstream) as gateway:
        url = peer.base.replace("127.0.0.1", "localhost")
        peer.card["supportedInterfaces"][0]["url"] = url
        await gateway.register(url, "peer")
        there = Sent(gateway, peer)
        found = await there.ask(
            destination=there.origin.replace("127.0.0.1", "localhost"), credential="missing", public=True
        )
        trace = found["trace"]
        assert (trace["final_state"], trace["sends"]) == ("unreachable", 0)
        assert trace["gates"][5]["reason"] == "address-not-allowed"
        assert found["response"]["failure"] == "address_not_allowed"
        assert there.peer.requests == []


async def test_gates_stop_before_anything_is_sent(there: Sent) -> None:
    stops: dict[str, Document] = {
        "credential-missing": {"credential": "missing"},
        "skill-not-advertised": {"skill": "other"},
        "request-invalid": {"text": " "},
        "card-malformed": {"card": "{"},
    }
    for reason, changes in stops.items():
        found = await there.ask(**changes)
        assert (found["trace"]["final_state"], found["trace"]["sends"]) == (reason, 0)
    assert there.peer.requests == []


async def test_a_deadline_that_passes_is_said(there: Sent) -> None:
    there.peer.rpc["SendMessage"] = reply.hang()
    found = await there.ask(deadline_ms=100)
    assert (found["trace"]["final_state"], found["trace"]["sends"]) == ("timeout-unknown", 1)
    assert found["response"] == {
        "status": None,
        "failure": None,
        "elapsed_ms": 100,
        "body": None,
        "truncated": False,
    }


async def test_a_long_answer_is_shown_in_part(there: Sent) -> None:
    there.peer.rpc["SendMessage"] = reply.body(b'{"x": "' + "ä".encode() * 70_000 + b'"}')
    found = await there.ask()
    assert found["response"]["truncated"] is True
    assert len(found["response"]["body"]) == 64 * 1024


async def test_an_agent_without_tls_is_not_handed_a_task() -> None:
    """Health contract 8, gate 2: HTTPS, for registered agents too."""
    async with A2APeer() as peer, running() as gateway:
        await gateway.register(peer.base, "peer")
        there = Sent(gateway, peer)
        found = await there.ask(credential="missing", public=True)
        assert (found["trace"]["final_state"], peer.requests) == ("endpoint-not-https", [])


async def test_a_full_agent_and_one_that_is_out(authority: Authority) -> None:
    """Contract 2.3, health contract 7: the checks of every call; trial calls are left to those who call."""
    sections: dict[str, Any] = {
        "a2a": {"agent_max_concurrency": 1},
        "health": {"enable": True, "interval_seconds": 3600},
        "upstream": {"ca_file": str(authority.ca_file)},
    }
    async with A2APeer(tls=authority.server()) as peer, running(**sections) as gateway:
        await gateway.register(peer.base, "peer")
        there = Sent(gateway, peer)
        public: Document = {"credential": "missing", "public": True}
        let_go = asyncio.Event()
        peer.rpc["SendMessage"] = answering("completed", V10, after=let_go)
        first = asyncio.create_task(there.ask(**public))
        await eventually(lambda: any(one.json()["method"] == "SendMessage" for one in there.sends))
        found = await there.ask(**public)
        assert (found["trace"]["final_state"], gates(found)[5]) == ("refused-by-gateway", "server-busy")
        assert found["trace"]["sends"] == 0
        let_go.set()
        assert (await first)["trace"]["final_state"] == "completed"
        peer.rpc["x"] = reply.close()
        for _ in range(5):
            await gateway.call({"jsonrpc": "2.0", "id": 1, "method": "x"}, "peer")
        before = len(peer.requests)
        found = await there.ask(**public)
        assert (found["trace"]["final_state"], gates(found)[5]) == ("refused-by-gateway", "agent-out-of-service")
        assert len(peer.requests) == before


async def test_a_gateway_that_closes_down_sends_nothing(there: Sent) -> None:
    """Contract 8: new calls are refused while those in flight finish."""
    there.gateway.lifecycle.refusing = True
    found = await there.ask()
    assert (found["trace"]["final_state"], gates(found)[5]) == ("refused-by-gateway", "gateway-shutdown")
    assert there.peer.requests == []


RULES = [
    {"principals": ["alice"], "call": ["peer"], "register": ["*"], "read": True},
    {"principals": ["reader"], "read": True},
    {"principals": ["caller"], "call": ["*"]},
]


@pytest.mark.parametrize(
    "there",
    [{"auth": {"enable": True, "secret_env": "JWT_SECRET", "policy": RULES}}],
    indirect=True,
)
async def test_who_may(there: Sent) -> None:
    """Contract 6.1: to read for what is simulated, to call that agent for what is sent."""
    await there.ask(401)
    public = await there.gateway.client.get("/handoff/examples")
    assert public.status_code == 401
    reader, caller, alice = (bearer(token(sub=name)) for name in ("reader", "caller", "alice"))
    fixture: Document = {"answer": {"fixture": "completed"}}
    assert (await there.ask(headers=reader, **fixture))["trace"]["final_state"] == "completed"
    await there.ask(403, headers=caller, **fixture)
    for agent_id in ("peer", "nobody"):  # before it is told whether there is such an agent
        refused = await there.ask(403, headers=reader, answer={"agent_id": agent_id})
        assert refused == {"error": "the policy does not let you call this agent"}
    assert there.peer.requests == []
    assert (await there.ask(headers=alice))["trace"]["final_state"] == "completed"
    assert there.sends[0].header("x-kubemq-caller-id") == "alice"


async def test_where_agents_are_not_called_nothing_is_sent_to_them(tmp_path: Path) -> None:
    """Contract 1: `a2a.enable: false`; the store may still hold agents of another time."""
    store = {"url": f"sqlite:///{tmp_path / 'registry.db'}"}
    async with running(registry=store) as gateway:
        await gateway.register("http://127.0.0.1:1/")
        await ask(gateway, answer={"agent_id": "echo"})
    async with running(registry=store, a2a={"enable": False}) as gateway:
        assert await ask(gateway, 404, answer={"agent_id": "echo"}) == {"error": "agent not found"}
        assert (await ask(gateway))["artifact_text"] == ACCEPTED


async def test_an_agent_registered_at_another_node_a_moment_ago_is_known(own_valkey: Valkey) -> None:
    """Contract 5.2: what one node has answered is true on all at once."""
    shared = {"url": own_valkey.url}
    async with running(registry=shared) as one, running(registry=shared) as other:
        for number in range(3):
            own_valkey.do("CLIENT", "KILL", "TYPE", "PUBSUB")  # nobody hears of it: it must be asked for
            await one.register("http://127.0.0.1:9/", f"new-{number}")
            found = await ask(other, answer={"agent_id": f"new-{number}"})
            assert found["simulated"] is False, number
        await ask(other, 404, answer={"agent_id": "nobody"})


async def test_nobody_is_no_agent(there: Sent) -> None:
    assert await there.ask(404, answer={"agent_id": "nobody"}) == {"error": "agent not found"}


async def test_sends_are_audited(authority: Authority) -> None:
    """Contract 8: who has sent what to whom, without a word of it."""
    async with A2APeer(tls=authority.server()) as peer:
        async with running(upstream={"ca_file": str(authority.ca_file)}) as gateway:
            await gateway.register(peer.base, "peer")
            there = Sent(gateway, peer)
            await there.ask(credential="missing", public=True, text="a secret of the user")
            await there.ask(credential="missing")
            await eventually(lambda: gateway.log.read_text().count('"action":"handoff"') == 2)
            lines = gateway.lines()
    shown = [(one["outcome"], one["reason"], one["agent"]) for one in lines if one.get("action") == "handoff"]
    assert shown == [("ok", "completed-no-text", "peer"), ("refused", "security-missing", "peer")]
    assert "a secret of the user" not in json.dumps(lines)


async def test_a_caller_that_leaves_frees_the_slot(there: Sent) -> None:
    """Contract 2.3: at the latest when its deadline passes."""
    there.peer.rpc["SendMessage"] = reply.hang()
    with pytest.raises(httpx.ReadTimeout):
        await there.gateway.client.post("/handoff/trace", json=there.asked(deadline_ms=300), timeout=0.1)
    await eventually(lambda: len(there.sends) == 1)
    await eventually(lambda: there.gateway.lifecycle.in_flight == 0)


async def test_it_is_described(gateway: Running) -> None:
    paths = (await gateway.client.get("/schema")).json()["paths"]
    assert paths["/handoff/trace"]["post"]["requestBody"]["required"] is True
    assert set(paths["/handoff/trace"]["post"]["responses"]) >= {"200", "400", "401", "403", "404", "413", "429"}
    assert "/handoff/examples" in paths
