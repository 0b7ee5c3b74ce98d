"""gateway.routes.registry over a socket (contract 1, 5.1, 5.2; pitfalls 9, 49, 50, 52, 59, 101-115)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Litestar

from gateway.identity import Identity
from gateway.lifecycle import Lifecycle
from gateway.routes import ERROR_HANDLERS
from gateway.routes.own import openapi_config
from gateway.routes.registry import read_selection, registry_routes
from gateway.server import bind, serve
from registry.card import MAX_CARD_BYTES
from registry.errors import Invalid
from registry.registry import Registry
from registry.stores import open_store
from tests.fakes.clock import ManualClock

TTL = 60
CARD: dict[str, Any] = {"agent_id": "echo-01", "name": "Echo", "url": "http://127.0.0.1:9001/"}


class Gateway:
    """The registry's routes on a real server, and a client of it."""

    def __init__(self, client: httpx.AsyncClient, registry: Registry, clock: ManualClock) -> None:
        self.client = client
        self.registry = registry
        self.clock = clock
        self.counts: Counter[tuple[str, str]] = Counter()

    async def register(self, principal: str | None = None, **members: Any) -> httpx.Response:
        return await self.post("register", CARD | members, principal)

    async def post(
        self, action: str, body: bytes | dict[str, Any], principal: str | None = None, **headers: str
    ) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if principal is not None:
            headers["x-principal"] = principal
        return await self.client.post(f"/agents/{action}", content=content, headers=headers)

    async def raw(self, request: bytes) -> tuple[int, dict[str, Any]]:
        """What only a socket can send."""
        url = self.client.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(), 5)
        writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)

    async def raw_path(self, method: str, path: str) -> tuple[int, dict[str, Any]]:
        return await self.raw(f"{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())


@asynccontextmanager
async def running(url: str = "memory://", **options: Any) -> AsyncIterator[Gateway]:
    clock = ManualClock()
    counts: Counter[tuple[str, str]] = Counter()

    def count(operation: str, status: str) -> None:
        counts[operation, status] += 1

    registry = Registry(open_store(url, clock.clock), ttl_seconds=TTL, clock=clock.clock, count=count, **options)
    await registry.start()
    rest = Litestar(
        registry_routes(registry),
        openapi_config=openapi_config("0.1.0"),
        exception_handlers=ERROR_HANDLERS,
        logging_config=None,
    )

    async def app(scope: Any, receive: Any, send: Any) -> None:
        """Stands for authentication: the principal is whoever the header names."""
        for name, value in scope.get("headers", ()):
            if name == b"x-principal":
                scope["vitalgate.identity"] = Identity(value.decode(), value.decode())
        await rest(scope, receive, send)

    listener, lifecycle = bind("127.0.0.1", 0), Lifecycle()
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    serving = asyncio.create_task(serve(app, api=listener, lifecycle=lifecycle))
    async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=10) as client:
        gateway = Gateway(client, registry, clock)
        gateway.counts = counts
        yield gateway
    lifecycle.stop()
    await serving
    await registry.close()


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with running() as gateway:
        yield gateway


# -- registering


async def test_registering(gateway: Gateway) -> None:
    """Contract 5.1."""
    response = await gateway.register(metadata={"x": 1}, registered_by="root")
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    stored = CARD | {
        "metadata": {"x": 1},
        "protocolVersions": ["1.0"],
        "registered_by": "anonymous",
        "registered_at": "2025-06-15T15:06:40.000000Z",
        "last_seen": "2025-06-15T15:06:40.000000Z",
    }
    assert response.json() == stored
    for path in ("/agents/echo-01", "/agents"):
        response = await gateway.client.get(path)
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/json"
        assert response.json() == (stored if path == "/agents/echo-01" else [stored])


async def test_registering_again(gateway: Gateway) -> None:
    """Pitfall 103, 117: the whole card is replaced, and at once."""
    await gateway.register("alice", skills=[{"id": "s", "name": "n"}])
    gateway.clock.tick(2)
    again = (await gateway.register("alice")).json()
    assert again == (await gateway.client.get("/agents/echo-01")).json()
    assert "skills" not in again
    assert (again["registered_by"], again["registered_at"][17:19], again["last_seen"][17:19]) == (
        "alice",
        "40",
        "42",
    )


async def test_numbers_and_unknown_members_come_back_as_they_came(gateway: Gateway) -> None:
    """Contract 5.1 "kept as it came", pitfall 7."""
    raw = b'"metadata":{ "big":18446744073709551616,"huge":1e400, "e":1.50, "t":"\\u00e9\\/" },"x":[null]'
    response = await gateway.post("register", json.dumps(CARD).encode()[:-1] + b"," + raw + b"}")
    assert raw in response.content
    assert raw in (await gateway.client.get("/agents/echo-01")).content
    assert raw in (await gateway.client.get("/agents")).content


async def test_every_violation_is_named(gateway: Gateway) -> None:
    response = await gateway.register(agent_id="A", skills=[{"name": "n", "tags": [1]}], version="v" * 65)
    assert response.status_code == 400
    assert response.json() == {
        "error": "invalid agent card",
        "details": [
            {
                "field": "agent_id",
                "message": "must be 2 to 128 lower-case letters, digits and hyphens, with no hyphen at either end",
            },
            {"field": "version", "message": "must be 0 to 64 characters long, not 65"},
            {"field": "skills[0].id", "message": "is required"},
            {"field": "skills[0].tags[0]", "message": "must be a string"},
        ],
    }
    assert gateway.counts == {("register", "invalid"): 1}


NO_OBJECTS = [
    b"", b"{bad", b"null", b"5", b'"x"', b"[]", b"\xff", b"\xef\xbb\xbf{}", b'{"agent_id":NaN}',
    '{"agent_id":"echo-01"}'.encode("utf-16"), b'{"agent_id":"a1","agent_id":"a2"}', b"[" * 100_000,
    b'{"agent_id":"\xed\xa0\xbd"}', b'{"agent_id":"echo-01"} x',
]  # fmt: skip


@pytest.mark.parametrize("action", ["register", "heartbeat", "deregister"])
async def test_bodies_that_are_no_json_objects(gateway: Gateway, action: str) -> None:
    """Pitfalls 6, 9, 10, 101: 400 in the one shape, never 500."""
    await gateway.register()
    for body in NO_OBJECTS:
        response = await gateway.post(action, body)
        assert (response.status_code, [*response.json()]) == (400, ["error"]), body
    assert gateway.counts[action, "invalid"] == len(NO_OBJECTS)
    assert len(gateway.registry) == 1


async def test_names_that_cannot_be_shown(gateway: Gateway) -> None:
    """A lone surrogate in the name of a bad member must not break the answer that refuses it."""
    document = json.dumps(CARD | {"metadata": {"\ud800": "\x00"}}).encode()
    response = await gateway.post("register", document)
    assert response.status_code == 400
    assert [one["field"] for one in response.json()["details"]] == ["metadata.\\ud800", "metadata.\\ud800"]


async def test_bodies_that_are_too_large(gateway: Gateway) -> None:
    """Pitfalls 49, 113: announced or chunked, exactly at the limit."""
    document = json.dumps(CARD).encode()
    padded = document[:-1] + b" " * (MAX_CARD_BYTES - len(document)) + b"}"
    assert (await gateway.post("register", padded)).status_code == 200

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b" " * 16384

    answers = [
        await gateway.post("register", b" " + padded),
        await gateway.post("heartbeat", b" " + padded),
        await gateway.client.post("/agents/register", content=pieces()),
    ]
    for response in answers:
        assert response.status_code == 413
        assert response.json() == {"error": "the body is larger than 262144 bytes"}
    assert gateway.counts["register", "invalid"] == 2
    assert (await gateway.client.get("/agents")).status_code == 200


async def test_a_body_that_is_cut_off_registers_nothing(gateway: Gateway) -> None:
    document = json.dumps(CARD).encode()
    url = gateway.client.base_url
    _, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"POST /agents/register HTTP/1.1\r\nHost: h\r\nContent-Length: 999\r\n\r\n" + document)
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await gateway.client.get("/agents")).json() == []


@pytest.mark.parametrize("content_type", ["application/json; charset=bogus", "text/plain", ""])
async def test_the_content_type_does_not_matter_to_tools(gateway: Gateway, content_type: str) -> None:
    assert (await gateway.post("register", CARD, content_type=content_type)).status_code == 200


async def test_a_web_page_cannot_register_without_asking(gateway: Gateway) -> None:
    """A page may send text/plain anywhere; JSON makes the browser ask first, and nothing here says yes."""
    for content_type in ("text/plain", ""):
        response = await gateway.post("register", CARD, origin="http://evil.example", content_type=content_type)
        assert (response.status_code, [*response.json()]) == (415, ["error"])
    asked = await gateway.client.options("/agents/register", headers={"origin": "http://evil.example"})
    assert not [name for name in asked.headers if name.startswith("access-control")]
    response = await gateway.post("register", CARD, origin="http://h", content_type="Application/JSON;x=y")
    assert response.status_code == 200


async def test_the_registry_is_full() -> None:
    async with running(max_agents=1) as gateway:
        await gateway.register()
        assert (await gateway.register(version="2")).status_code == 200
        response = await gateway.register(agent_id="two")
        assert (response.status_code, response.json()) == (409, {"error": "the registry is full: max_agents is 1"})
        assert gateway.counts["register", "full"] == 1


async def test_addresses_are_checked() -> None:
    """Contract 6.3."""
    async with running(check_url=lambda url: "address not allowed") as gateway:
        response = await gateway.register()
        assert (response.status_code, response.json()["details"]) == (
            400,
            [{"field": "url", "message": "address not allowed"}],
        )


# -- heartbeats and leaving


async def test_a_heartbeat(gateway: Gateway) -> None:
    """Contract 5.2."""
    await gateway.register()
    gateway.clock.tick(30)
    response = await gateway.post("heartbeat", {"agent_id": "echo-01"})
    assert (response.status_code, response.json()) == (
        200,
        {"ok": True, "agent_id": "echo-01", "last_seen": "2025-06-15T15:07:10.000000Z", "ttl_seconds": TTL},
    )
    shown = (await gateway.client.get("/agents/echo-01")).json()
    assert shown["last_seen"] == "2025-06-15T15:07:10.000000Z"
    assert shown["registered_at"] == "2025-06-15T15:06:40.000000Z"


async def test_a_heartbeat_of_nobody(gateway: Gateway) -> None:
    """Contract 5.2, pitfall 101: unknown and expired alike, and nothing is created."""
    await gateway.register()
    gateway.clock.tick(TTL)
    for agent_id in ("echo-01", "unknown"):
        response = await gateway.post("heartbeat", {"agent_id": agent_id})
        assert (response.status_code, response.json()) == (400, {"error": "agent not found"})
    for body, message in (({}, "is required"), ({"agent_id": 5}, "must be a string")):
        response = await gateway.post("heartbeat", body)
        assert (response.status_code, response.json()["details"]) == (
            400,
            [{"field": "agent_id", "message": message}],
        )
    assert (await gateway.client.get("/agents")).json() == []
    assert gateway.counts["heartbeat", "not_found"] == 2


async def test_leaving(gateway: Gateway) -> None:
    """Contract 5.2: by POST or DELETE; a heartbeat after it brings nothing back."""

    async def by_post() -> httpx.Response:
        return await gateway.post("deregister", {"agent_id": "echo-01"})

    async def by_delete() -> httpx.Response:
        return await gateway.client.delete("/agents/echo-01")

    for leave in (by_post, by_delete):
        await gateway.register()
        response = await leave()
        assert (response.status_code, response.json()) == (200, {"ok": True})
        assert (await gateway.post("heartbeat", {"agent_id": "echo-01"})).status_code == 400
        response = await gateway.client.get("/agents/echo-01")
        assert (response.status_code, response.json()) == (404, {"error": "agent not found"})
        response = await leave()
        assert (response.status_code, response.json()) == (404, {"error": "agent not found"})
    assert gateway.counts["deregister", "ok"] == 2
    assert gateway.counts["deregister", "not_found"] == 2


async def test_another_principals_agent(gateway: Gateway) -> None:
    """Contract 5.1, 5.2, pitfall 105: 403, the record unchanged, the owner not named."""
    before = (await gateway.register("alice")).json()
    answers = [
        await gateway.register("bob", url="http://evil/"),
        await gateway.post("heartbeat", {"agent_id": "echo-01"}, "bob"),
        await gateway.post("deregister", {"agent_id": "echo-01"}, "bob"),
        await gateway.client.delete("/agents/echo-01", headers={"x-principal": "bob"}),
        await gateway.client.delete("/agents/echo-01"),
    ]
    for response in answers:
        assert response.status_code == 403
        assert response.json() == {"error": "the agent belongs to another principal"}
    assert (await gateway.client.get("/agents/echo-01")).json() == before
    assert before["registered_by"] == "alice"


async def test_expired_agents_are_gone_everywhere(gateway: Gateway) -> None:
    """Pitfall 109, before any sweep."""
    await gateway.register()
    gateway.clock.tick(TTL)
    assert (await gateway.client.get("/agents")).json() == []
    assert (await gateway.client.get("/agents/echo-01")).status_code == 404
    assert (await gateway.client.delete("/agents/echo-01")).status_code == 404


async def test_the_store_is_out(tmp_path: Path) -> None:
    """Contract 5.3: 503 with Retry-After, nothing about the inside; reads go on."""
    async with running(f"sqlite:///{tmp_path}/r.db") as gateway:
        before = (await gateway.register()).json()
        with closing(sqlite3.connect(tmp_path / "r.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            answers = [
                await gateway.register(version="2"),
                await gateway.post("heartbeat", {"agent_id": "echo-01"}),
                await gateway.post("deregister", {"agent_id": "echo-01"}),
                await gateway.client.delete("/agents/echo-01"),
            ]
            for response in answers:
                assert (response.status_code, response.headers["retry-after"]) == (503, "5")
                assert response.json() == {"error": "the registry's store is not available, try again later"}
            gateway.clock.tick(TTL)
            assert (await gateway.client.get("/agents")).json() == [before]
        assert (await gateway.post("heartbeat", {"agent_id": "echo-01"})).status_code == 200


# -- paths and methods


@pytest.mark.parametrize("agent_id", ["register", "heartbeat", "deregister", "health"])
async def test_agents_with_the_names_of_routes(gateway: Gateway, agent_id: str) -> None:
    """Contract 1: GET and DELETE on them work."""
    assert (await gateway.client.get(f"/agents/{agent_id}")).json() == {"error": "agent not found"}
    await gateway.register(agent_id=agent_id)
    assert (await gateway.client.get(f"/agents/{agent_id}")).json()["agent_id"] == agent_id
    assert (await gateway.client.delete(f"/agents/{agent_id}")).json() == {"ok": True}
    assert (await gateway.client.delete(f"/agents/{agent_id}")).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/agents/..", "/agents/%2e%2e", "/agents/%252e%252e", "/agents/echo%2D01", "/agents/echo-01%00",
        "/agents/%ff", "/agents/Echo-01", "/agents/ECHO-01", "/agents/echo-01/", "/agents/echo-01/x",
        "//agents//echo-01", "/agents/" + "a" * 129, "/agents/-ab", "/agents/ab-", "/agents/a",
        "/agents/x%2F..%2Fecho-01",
        "/agents/echo-01%2F", "/agents/echo-01;x", "/agents/echo-01%0A",
    ],
)  # fmt: skip
async def test_malformed_ids_never_reach_a_look_up(gateway: Gateway, path: str) -> None:
    """Contract 1, pitfalls 50, 52: read from the raw path, entirely."""
    await gateway.register()
    for method in ("GET", "DELETE"):
        status, body = await gateway.raw_path(method, path)
        assert (status, [*body]) == (404, ["error"])
    assert len(gateway.registry) == 1


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/agents", {"GET", "HEAD", "OPTIONS"}),
        ("POST", "/agents/echo-01", {"GET", "HEAD", "DELETE", "OPTIONS"}),
        ("PUT", "/agents/register", {"POST", "GET", "HEAD", "DELETE", "OPTIONS"}),
        ("DELETE", "/agents", {"GET", "HEAD", "OPTIONS"}),
    ],
)
async def test_methods_that_are_not_there(gateway: Gateway, method: str, path: str, allowed: set[str]) -> None:
    """Pitfall 59: 405 in the one shape, with Allow."""
    response = await gateway.client.request(method, path)
    assert (response.status_code, response.json()) == (405, {"error": "method not allowed"})
    assert set(response.headers["allow"].split(", ")) == allowed


async def test_head(gateway: Gateway) -> None:
    await gateway.register()
    for path in ("/agents", "/agents/echo-01"):
        response = await gateway.client.head(path)
        assert (response.status_code, response.content) == (200, b"")
        assert int(response.headers["content-length"]) == len((await gateway.client.get(path)).content)
    assert (await gateway.client.head("/agents/unknown")).status_code == 404


# -- listing


@pytest.fixture
async def listed(gateway: Gateway) -> Gateway:
    for agent_id, tags in (("zz", ["a"]), ("aa", ["a b", "c"]), ("mm", None)):
        skills = [{"id": "s", "name": "n"} | ({} if tags is None else {"tags": tags})]
        await gateway.register(agent_id=agent_id, name=f"Grüße {agent_id}", skills=skills)
        gateway.clock.tick(1)
    return gateway


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["zz", "aa", "mm"]),
        ("?skill_tags=a", ["zz"]),
        ("?skill_tags=a,,c", ["zz", "aa"]),
        ("?skill_tags=%20a%20,%20c", ["zz", "aa"]),
        ("?skill_tags=a&skill_tags=c", ["zz", "aa"]),
        ("?skill_tags=a%20b", ["aa"]),
        ("?skill_tags=a+b", ["aa"]),
        ("?skill_tags=A", []),
        ("?skill_tags=", ["zz", "aa", "mm"]),
        ("?skill_tags=%2C", ["zz", "aa", "mm"]),
        ("?limit=1", ["zz"]),
        ("?limit=007", ["zz", "aa", "mm"]),
        ("?limit=" + "1" + "0" * 30, ["zz", "aa", "mm"]),
        ("?limit=1&skill_tags=c", ["aa"]),
        ("?q=GR%C3%9CSSE%20a", ["aa"]),
        ("?q=nobody", []),
        ("?q=", ["zz", "aa", "mm"]),
        ("?other=1", ["zz", "aa", "mm"]),
    ],
)
async def test_listing(listed: Gateway, query: str, found: list[str]) -> None:
    """Contract 5.2, pitfall 115. Blank tags do not count; without any other tag there is no filter."""
    response = await listed.client.get(f"/agents{query}")
    assert (response.status_code, [one["agent_id"] for one in response.json()]) == (200, found)


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("limit=0", ["limit"]),
        ("limit=-1", ["limit"]),
        ("limit=abc", ["limit"]),
        ("limit=1e3", ["limit"]),
        ("limit=1.5", ["limit"]),
        ("limit=", ["limit"]),
        ("limit=+5", ["limit"]),
        ("limit=%D9%A3", ["limit"]),
        ("limit=" + "9" * 5000, ["limit"]),
        ("limit=1&limit=2", ["limit"]),
        ("q=a&q=b", ["q"]),
        ("health=HEALTHY", ["health"]),
        ("limit=0&health=x&q=a&q=b", ["q", "limit", "health"]),
        ("q=%ff", []),
    ],
)
async def test_bad_selections(gateway: Gateway, query: str, fields: list[str]) -> None:
    """Contract 5.2, pitfall 115: 400 that names them, never 500."""
    response = await gateway.client.get(f"/agents?{query}")
    assert response.status_code == 400
    assert [one["field"] for one in response.json().get("details", [])] == fields


def test_a_query_of_any_bytes_is_read_or_refused() -> None:
    for query in (b"\xff", b"q=\xc3\xa9"):
        with pytest.raises(Invalid, match="invalid query"):
            read_selection(query)


# -- the description


async def test_the_routes_are_described(gateway: Gateway) -> None:
    """Contract 1: /schema. All six, with what they read and give, and no helper routes beside them."""
    paths = (await gateway.client.get("/schema")).json()["paths"]
    assert {path: {*methods} for path, methods in paths.items()} == {
        "/agents": {"get", "head"},
        "/agents/register": {"post"},
        "/agents/heartbeat": {"post"},
        "/agents/deregister": {"post"},
        "/agents/{agent_id}": {"get", "head", "delete"},
    }
    register = paths["/agents/register"]["post"]
    card = register["requestBody"]["content"]["application/json"]["schema"]
    assert card["required"] == ["agent_id", "name", "url"]
    at_the_gate = {"401", "403", "404", "421", "429"}
    assert {*register["responses"]} == {"200", "400", "403", "409", "413", "503"} | at_the_gate
    assert [one["name"] for one in paths["/agents"]["get"]["parameters"]] == ["skill_tags", "q", "health", "limit"]
    assert [one["name"] for one in paths["/agents/{agent_id}"]["delete"]["parameters"]] == ["agent_id"]
