"""`registry.client`: an agent stays registered through whatever happens to its gateway (contract 5.1 to 5.3)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from typing import Any

import httpx
import pytest
from a2a.types import AgentCapabilities, AgentCard, AgentInterface
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from starlette.applications import Starlette

from registry import client as module
from registry.client import Change, Membership, RefusedError, State
from registry.client_card import registration
from tests.fakes.ports import refusing_port, stuck_port
from tests.fakes.registrar import Registrar, serving
from tests.fakes.running import Running, eventually, running

CARD = {"agent_id": "my-agent", "name": "Mine", "url": "http://127.0.0.1:9/"}
SHORT = {"a2a": {"agent_ttl_seconds": 0.3}}


class Told:
    """The changes, in order."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._more = asyncio.Event()

    def __call__(self, change: Change) -> None:
        self.changes.append(change)
        self._more.set()

    @property
    def states(self) -> list[State]:
        return [change.state for change in self.changes]

    async def hears(self, state: State, times: int = 1) -> Change:
        """Give the last change to a state once it was told so often."""
        async with asyncio.timeout(10):
            while self.states.count(state) < times:
                self._more.clear()
                await self._more.wait()
        return [change for change in self.changes if change.state is state][-1]


async def knows(gateway: Running, agent_id: str = "my-agent") -> bool:
    return (await gateway.client.get(f"/agents/{agent_id}")).status_code == 200


# -- against a real gateway


async def test_it_registers_stays_and_leaves() -> None:
    """Contract 5.1 to 5.3: heartbeats keep it beyond its TTL; at the end of the block it is gone at once."""
    told = Told()
    async with running(**SHORT) as gateway:
        async with Membership(gateway.api, CARD, told=told) as membership:
            await membership.registered()
            await asyncio.sleep(0.7)  # more than two TTLs
            assert await knows(gateway)
            assert membership.state is State.REGISTERED
            assert await gateway.metric("kubemq_a2a_registry_operations_total", op="register", status="ok") == 1
        assert not await knows(gateway)
    assert told.states == [State.REGISTERED, State.LEFT]


async def test_a_gateway_that_comes_back_without_its_memory_is_told_again() -> None:
    """Pitfall 161's kind, on the agent's side: the store is empty, and the heartbeat hears "agent not found"."""
    told = Told()
    async with running(**SHORT) as gateway:
        async with Membership(gateway.api, CARD, told=told) as membership:
            await membership.registered()
            port = gateway.port
            gateway.lifecycle.stop()
            await told.hears(State.UNAVAILABLE)
            async with running(server={"port": port}, **SHORT) as another:
                await told.hears(State.REGISTERED, 2)
                assert await knows(another)
    assert told.states[-1] is State.LINGERING  # both gateways are gone
    assert told.states[:4] == [State.REGISTERED, State.UNAVAILABLE, State.FORGOTTEN, State.REGISTERED]


async def test_a_registration_that_expired_unseen_is_renewed(tmp_path: Any) -> None:
    """Contract 5.3: the TTL and the grace of a restart run out while the agent cannot reach the gateway."""
    told = Told()
    settings = {"registry": {"url": f"sqlite:///{tmp_path / 'registry.db'}"}, **SHORT}
    with refusing_port() as away:
        async with running(**settings) as gateway, _Switch(gateway.port) as switch:
            async with Membership(switch.url, CARD, told=told) as membership:
                await membership.registered()
                switch.lead_to(away)
                await told.hears(State.UNAVAILABLE)
                async with asyncio.timeout(5):
                    while await knows(gateway):  # noqa: ASYNC110 - it expires unseen
                        await asyncio.sleep(0.05)
                switch.lead_to(gateway.port)
                await told.hears(State.REGISTERED, 2)
                assert await knows(gateway)
            assert not await knows(gateway)


async def test_an_agent_that_was_deregistered_by_another_comes_back() -> None:
    """Contract 5.2: 400 to a heartbeat means that the agent must register again."""
    told = Told()
    async with running(**SHORT) as gateway, Membership(gateway.api, CARD, told=told) as membership:
        await membership.registered()
        await gateway.client.delete("/agents/my-agent")
        await told.hears(State.FORGOTTEN)
        await told.hears(State.REGISTERED, 2)
        assert await knows(gateway)


async def test_a_refusal_names_every_violation() -> None:
    """Contract 5.1: 400 with details; `registered` raises, the membership goes on trying."""
    async with running() as gateway, Membership(gateway.api, {**CARD, "name": "", "skills": 3}) as membership:
        with pytest.raises(RefusedError, match=r"^HTTP 400: .*name: .*; skills: |skills: .*; name: "):
            await asyncio.wait_for(membership.registered(), 5)
        assert membership.state is State.REFUSED


async def test_without_a_valid_token_it_says_so_and_a_new_one_is_asked_for_each_time() -> None:
    """Contract 6.1: 401 is a clear error; a token function may give a better one later."""
    from gateway.tokens import claims, sign_with_secret

    secret = "an-obvious-secret-of-32-characters-or-more"
    good = sign_with_secret(claims("me", claim="sub", seconds=60), secret, "HS256")
    tokens = ["not-a-token", good + "\n"]

    async def token() -> str:
        return tokens.pop(0) if len(tokens) > 1 else tokens[0]

    told = Told()
    auth = {"enable": True, "secret_env": "THE_SECRET"}
    async with running(environ={"THE_SECRET": secret}, auth=auth) as gateway:
        async with Membership(gateway.api, CARD, told=told) as membership:
            with pytest.raises(RefusedError, match=r"^HTTP 401: .*no token was shown$"):
                await asyncio.wait_for(membership.registered(), 5)
        async with Membership(gateway.api, CARD, told=told, token=token) as membership:
            with pytest.raises(RefusedError, match=r"^HTTP 401: invalid token$"):
                await asyncio.wait_for(membership.registered(), 5)
            await told.hears(State.REGISTERED)
            found = await gateway.client.get("/agents/my-agent", headers={"Authorization": f"Bearer {good}"})
            assert found.json()["registered_by"] == "me"
    assert told.states[-1] is State.LEFT
    assert all("not-a-token" not in str(change) for change in told.changes)


async def test_a_thousand_agents_do_not_beat_in_step() -> None:
    """Jitter: of the heartbeats of many, no tenth of an interval gets more than a third."""
    beats = [module.interval(300) * 1.0 for _ in range(3)]
    assert set(beats) == {60.0}
    assert (module.interval(0.3), module.interval(1e-9)) == (pytest.approx(0.1), 0.01)
    spread = Counter(int(module.pause(5, 10.0) * 12.5) for _ in range(1000))  # 0.8 to 1.6 s, in tenths
    assert len(spread) >= 10
    assert max(spread.values()) < 333


def test_pauses_grow_and_are_bounded() -> None:
    for failures in range(1, 2000):
        assert 0.05 <= module.pause(failures, 10.0) <= 10.0
    assert max(module.pause(1, 10.0) for _ in range(100)) <= 0.1
    assert min(module.pause(50, 10.0) for _ in range(100)) >= 5.0
    assert module.pause(50, 0.001) <= 0.1  # heartbeats that come very often make no storm of it


async def test_heartbeats_come_at_jittered_times_within_the_ttl() -> None:
    registrar, times = Registrar(), list[float]()
    registrar.ttl = 0.3
    async with serving(registrar) as url, Membership(url, CARD):
        for _ in range(8):
            await registrar.hears()
            times.append(time.monotonic())
    gaps = [later - earlier for earlier, later in pairwise(times[1:])]
    assert all(gap > 0.075 for gap in gaps)
    assert min(gaps) < 0.25
    assert len({round(gap, 4) for gap in gaps}) > 1


# -- against answers that a gateway seldom gives


@pytest.mark.parametrize(
    ("status", "asked", "waits"),
    [(503, b"1", 0.9), (429, b"1", 0.9), (500, None, 0.0), (502, b"soon", 0.0), (503, b"-5", 0.0)],
)
async def test_it_waits_as_long_as_it_is_asked_to(status: int, asked: bytes | None, waits: float) -> None:
    """Contract 5.3 and 6.5: 503 and 429 with Retry-After; the registration it had is not given up."""
    registrar, told = Registrar(), Told()
    registrar.ttl = 0.06
    async with serving(registrar) as url, Membership(url, CARD, told=told):
        await told.hears(State.REGISTERED)
        registrar.headers = [(b"retry-after", asked)] if asked else []
        registrar.refusal = (status, {"error": "the store is not available"})
        change = await told.hears(State.UNAVAILABLE)
        began = time.monotonic()
        assert change.reason == f"HTTP {status}: the store is not available"
        while not registrar.heard.empty():
            registrar.heard.get_nowait()
        registrar.refusal = None
        assert (await registrar.hears())[0] == "POST /agents/heartbeat"
        assert waits <= time.monotonic() - began < waits + 2
        await told.hears(State.REGISTERED, 2)


async def test_a_huge_retry_after_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    from registry import client_gateway

    assert client_gateway._retry_after(httpx.Headers({"retry-after": "9" * 9})) <= 66
    assert client_gateway._retry_after(httpx.Headers({"retry-after": "9" * 400})) == 0


@pytest.mark.parametrize(
    ("status", "document", "reason"),
    [
        (404, {"error": "not found"}, "HTTP 404: not found: is this the base URL of a gateway?"),
        (307, "", "HTTP 307: the gateway's URL leads elsewhere"),
        (403, {"error": "the agent\nbelongs to another"}, "HTTP 403: the agent belongs to another"),
        (422, {"error": "\x1b[2Jr\u00f6t\u202e\ud800"}, "HTTP 422: \\x1b[2Jr\u00f6t\\u202e\\ud800"),
        (418, [], "HTTP 418"),
    ],
)
async def test_what_somebody_must_act_on_is_refused(status: int, document: Any, reason: str) -> None:
    registrar = Registrar()
    registrar.refusal = (status, document)
    async with serving(registrar) as url, Membership(url, CARD) as membership:
        with pytest.raises(RefusedError) as caught:
            await asyncio.wait_for(membership.registered(), 5)
    assert str(caught.value) == reason
    assert registrar.heard.qsize() == 1  # what was refused is not deregistered


async def test_a_client_that_its_owner_has_closed_costs_a_word_and_not_what_the_block_raised() -> None:
    told = Told()
    client = httpx.AsyncClient(trust_env=False)
    await client.aclose()

    async def agent() -> None:
        async with Membership("http://127.0.0.1:9", CARD, told=told, client=client):
            await told.hears(State.UNAVAILABLE)
            raise KeyError

    with pytest.raises(KeyError):
        await agent()
    assert told.states == [State.UNAVAILABLE, State.LINGERING]
    assert "closed" in told.changes[-1].reason


async def test_an_endless_answer_is_cut_off() -> None:
    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(10_000):
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})

    told = Told()
    async with serving(endless) as url, Membership(url, CARD, told=told, leave_seconds=0.5):
        assert (await told.hears(State.UNAVAILABLE)).reason == "the answer is too long for a gateway's"


async def test_a_name_that_is_not_known_is_no_end() -> None:
    told = Told()
    async with Membership("http://gateway.invalid:9090", CARD, told=told, leave_seconds=0.5):
        assert "ConnectError" in (await told.hears(State.UNAVAILABLE)).reason
    assert told.states == [State.UNAVAILABLE, State.LINGERING]


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("", "it is empty, or no header can hold it"),
        ("two\nlines", "it is empty, or no header can hold it"),
        ("\u00fc", "it is empty, or no header can hold it"),
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
async def test_a_token_that_cannot_be_shown_is_named_without_it(token: Any, reason: str) -> None:
    registrar = Registrar()
    async with serving(registrar) as url, Membership(url, CARD, token=token) as membership:
        with pytest.raises(RefusedError, match=f"^there is no token to show: {reason}$"):
            await asyncio.wait_for(membership.registered(), 5)
    assert registrar.heard.empty()


async def test_every_request_bears_the_token() -> None:
    registrar = Registrar()
    registrar.ttl = 0.03
    async with serving(registrar) as url, Membership(url, CARD, token=" abc\n"):
        for _ in range(4):
            await registrar.hears()
    assert len(registrar.shown) >= 5
    assert set(registrar.shown) == {"Bearer abc"}


# -- its end


async def test_a_leave_that_is_not_answered_is_bounded() -> None:
    registrar, told = Registrar(), Told()
    async with serving(registrar) as url:
        async with Membership(url, CARD, told=told, leave_seconds=0.4):
            await told.hears(State.REGISTERED)
            await registrar.hears()
            await registrar.hears()
            registrar.hold = asyncio.Event()
            began = time.monotonic()
        assert time.monotonic() - began < 1.2
        assert told.changes[-1].state is State.LINGERING
        assert told.changes[-1].reason == "no answer within 0.4 s"
        registrar.hold.set()


async def test_a_registration_under_way_cannot_overtake_the_leave() -> None:
    """The block ends while the gateway still works on the registration: the leave comes after its answer."""
    registrar, told = Registrar(), Told()
    registrar.hold = asyncio.Event()
    async with serving(registrar) as url:
        async with Membership(url, CARD, told=told):
            assert (await registrar.hears())[0] == "POST /agents/register"
            asyncio.get_running_loop().call_later(0.2, registrar.hold.set)
        heard = [registrar.heard.get_nowait()[0] for _ in range(registrar.heard.qsize())]
    assert heard == ["POST /agents/heartbeat", "DELETE /agents/my-agent"]
    assert told.states == [State.REGISTERED, State.LEFT]


async def test_without_time_to_leave_it_does_not_deregister() -> None:
    registrar = Registrar()
    async with serving(registrar) as url:
        async with Membership(url, CARD, leave_seconds=0) as membership:
            await membership.registered()
            await registrar.hears()
            await registrar.hears()
        assert registrar.heard.empty()


@pytest.mark.parametrize("delay", [0.0, 0.001, 0.003, 0.01, 0.03, 0.1])
async def test_cancelled_at_any_moment_it_still_leaves_and_nothing_is_left_running(delay: float) -> None:
    """A task that is cancelled inside the block, whatever is under way, deregisters once, last, and ends."""
    async with running(**SHORT) as gateway:

        async def agent() -> None:
            async with Membership(gateway.api, CARD):
                await asyncio.Event().wait()

        before = asyncio.all_tasks()
        task = asyncio.create_task(agent())
        await asyncio.sleep(delay)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await knows(gateway)
        await eventually(lambda: not [it for it in asyncio.all_tasks() - before if "membership" in it.get_name()])
        await asyncio.sleep(0.15)  # a heartbeat's time: nothing brings it back
        assert not await knows(gateway)


async def test_cancelled_while_it_leaves_it_ends_at_once() -> None:
    with stuck_port() as port:

        async def agent() -> None:
            async with Membership(f"http://127.0.0.1:{port}", CARD, leave_seconds=30):
                await asyncio.sleep(0.05)  # so that a registration is under way

        task = asyncio.create_task(agent())
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 2)
    await eventually(lambda: not [it for it in asyncio.all_tasks() if "membership" in it.get_name()])


async def test_there_are_never_two_at_once() -> None:
    registrar = Registrar()
    registrar.ttl = 0.03
    async with serving(registrar) as url:
        membership = Membership(url, CARD)
        async with membership:
            await membership.registered()
            with pytest.raises(RuntimeError, match="being kept registered already"):
                async with membership:
                    pass
            with pytest.raises(RuntimeError, match="being kept registered already"):
                with membership.in_thread():
                    pass
        async with membership:  # one after the other is fine
            await membership.registered()
        heard = [registrar.heard.get_nowait()[0] for _ in range(registrar.heard.qsize())]
    assert Counter(heard)["POST /agents/register"] == Counter(heard)["DELETE /agents/my-agent"] == 2


async def test_a_function_that_fails_when_told_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def told(_: Change) -> None:
        raise LookupError("the author's")

    async with running() as gateway, Membership(gateway.api, CARD, told=told) as membership:
        await membership.registered()
        assert await knows(gateway)


# -- ways to run it


async def test_as_a_lifespan() -> None:
    """`Starlette(lifespan=membership.lifespan)`: registered while the application runs."""
    async with running() as gateway:
        membership = Membership(gateway.api, CARD)
        app = Starlette(lifespan=membership.lifespan)
        async with serving(app, lifespan="on"):
            await asyncio.wait_for(membership.registered(), 5)
            assert await knows(gateway)
        assert not await knows(gateway)


async def test_in_a_thread() -> None:
    changes = list[Change]()
    async with running(**SHORT) as gateway:

        def use() -> float:
            with Membership(gateway.api, CARD, told=changes.append).in_thread():
                for _ in range(500):
                    if changes:
                        break
                    time.sleep(0.01)
                time.sleep(0.5)
                found = httpx.get(f"{gateway.api}/agents/my-agent", trust_env=False)
            return found.status_code

        assert await asyncio.to_thread(use) == 200
        assert not await knows(gateway)
    assert [change.state for change in changes] == [State.REGISTERED, State.LEFT]


def test_importing_the_registry_imports_no_client() -> None:
    """Who does not use the client does not pay for httpx."""
    script = "import sys, registry, registry.registry, registry.stores; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


# -- cards


class PydanticCard(BaseModel):
    """As cards of a2a-sdk 0.3 are: fields in snake case, aliases in camel case."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)
    name: str
    url: str
    protocol_version: str
    icon_url: str | None = None


def test_cards_of_the_sdks_are_read() -> None:
    """Contract 5.1; the URL of a 1.0 card is that of its first JSON-RPC interface."""
    interfaces = [
        AgentInterface(url="http://a.example/grpc", protocol_binding="GRPC", protocol_version="1.0"),
        AgentInterface(url="http://a.example/rpc", protocol_binding="JSONRPC", protocol_version="1.0"),
    ]
    card = AgentCard(name="Mine", supported_interfaces=interfaces, capabilities=AgentCapabilities(streaming=True))
    found = json.loads(registration(card, "my-agent")[1])
    assert (found["agent_id"], found["url"]) == ("my-agent", "http://a.example/rpc")
    assert found["capabilities"] == {"streaming": True}
    assert len(found["supportedInterfaces"]) == 2

    pydantic = PydanticCard(name="Mine", url="http://a.example/", protocol_version="0.3.0")
    assert json.loads(registration(pydantic, "my-agent")[1]) == {
        "name": "Mine",
        "url": "http://a.example/",
        "protocolVersion": "0.3.0",
        "agent_id": "my-agent",
    }


def test_what_is_given_beside_the_card_wins_and_the_card_stays_as_it_is() -> None:
    agent_id, document = registration(CARD, "another", "http://b.example/")
    assert agent_id == "another"
    assert json.loads(document) == {"agent_id": "another", "name": "Mine", "url": "http://b.example/"}
    assert CARD["agent_id"] == "my-agent"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("http://g", {"url": "http://a/"}), "agent_id must be"),
        (("http://g", {"agent_id": "-x", "url": "http://a/"}), "agent_id must be"),
        (("http://g", {"agent_id": "my-agent"}), "url is missing"),
        (("http://g", {**CARD, "x": {1, 2}}), "cannot be written as JSON"),
        (("http://g", {**CARD, "x": float("nan")}), "cannot be written as JSON"),
        (("http://g", 7), "not int"),
        (("g:9090", CARD), "the gateway's URL: "),
        (("http://me:password@g", CARD), "the gateway's URL: credentials"),
        (("http://g/?x=1", CARD), "the gateway's URL: a query"),
    ],
)
def test_what_cannot_be_right_is_said_at_once(arguments: tuple[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        Membership(*arguments)
    assert "password" not in str(caught.value)


class _Switch:
    """A TCP relay whose target can be changed; `async with`."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def lead_to(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> _Switch:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, back}
        await asyncio.gather(_pass(reader, back), _pass(there, writer))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
