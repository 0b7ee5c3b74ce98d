"""The card routes, /live, /ready and /schema over real sockets (contract 1, 5.4, 5.5)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from typing import Any

import httpx
import pytest
import pytest_asyncio
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from litestar import Litestar

from gateway.lifecycle import Lifecycle
from gateway.routes import ERROR_HANDLERS
from gateway.routes.cards import CardTerms, card_routes
from gateway.routes.own import openapi_config, own_routes
from gateway.server import bind, serve
from healthcheck.model import Status
from registry.agent import Agent
from registry.clock import Clock
from registry.registry import Registry
from registry.stores.memory import MemoryStore
from tests.fakes.program import FAKES, SDK03

pytestmark = pytest.mark.asyncio(loop_scope="module")

CARD = "/.well-known/agent-card.json"
HOME = "http://10.0.0.5:9001/rpc"


def interface(version: str, url: str = HOME) -> dict[str, Any]:
    return {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": version}


FORMS: dict[str, dict[str, Any]] = {
    "kubemq-minimum": {},
    "only-03": {"protocolVersion": "0.3.0", "preferredTransport": "JSONRPC"},
    "only-10": {"supportedInterfaces": [interface("1.0")]},
    "both-10-03": {"supportedInterfaces": [interface("1.0"), interface("0.3")], "protocolVersion": "0.3.0"},
}
"""An agent of each form of contract 5.4, by its id."""


@dataclass
class Gateway:
    """The routes of this part on a real server, with a real registry and clocks that move when told."""

    registry: Registry
    wall: list[float]
    ready: list[bool]
    base: str = ""
    http: httpx.AsyncClient = field(default_factory=lambda: httpx.AsyncClient(trust_env=False))

    async def register(self, agent_id: str, **members: Any) -> None:
        card = {"agent_id": agent_id, "name": agent_id, "url": HOME} | members
        await self.registry.register(json.dumps(card).encode(), None)

    async def get(self, path: str, method: str = "GET", **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.request(method, self.base + path, headers=named)

    async def raw(self, request: str) -> tuple[int, dict[str, str], bytes]:
        """Send these bytes as they are: paths and headers that no HTTP client would send."""
        host, port = self.base.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(request.encode("latin-1"))
            answer = await asyncio.wait_for(reader.read(), 5)
        finally:
            writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        fields = (line.partition(":") for line in lines)
        return int(status.split()[1]), {name.lower(): value.strip() for name, _, value in fields}, body

    async def raw_get(self, path: str, *headers: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        hosts = () if any(line.lower().startswith("host:") for line in headers) else ("Host: gw.test",)
        lines = [f"{method} {path} HTTP/1.1", *hosts, "Connection: close", *headers, "", ""]
        return await self.raw("\r\n".join(lines))


@contextlib.asynccontextmanager
async def running(
    terms: CardTerms | None = None, resolve: Callable[[str], Agent | None] | None = None
) -> AsyncIterator[Gateway]:
    wall, ready = [1_800_000_000.25], [True]
    clock = Clock(wall=lambda: wall[0])
    registry = Registry(MemoryStore(clock), ttl_seconds=300, clock=clock)
    await registry.start()
    gateway = Gateway(registry, wall, ready)
    routes = card_routes(
        terms or CardTerms(),
        resolve=resolve or registry.resolve,
        registration=registry.get,
        platform_name="kubemq",
        version="0.1.0",
        clock=lambda: wall[0],
    )
    app = Litestar(
        [*routes, *own_routes(ready=lambda: ready[0], health=lambda: Status.HEALTHY)],
        openapi_config=openapi_config("0.1.0"),
        exception_handlers=ERROR_HANDLERS,
        logging_config=None,
    )
    api, lifecycle = bind("127.0.0.1", 0), Lifecycle()
    gateway.base = f"http://127.0.0.1:{api.getsockname()[1]}"
    serving = asyncio.create_task(serve(app, api=api, lifecycle=lifecycle))
    try:
        yield gateway
    finally:
        await gateway.http.aclose()
        lifecycle.stop()
        await serving
        await registry.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running_gateway() -> AsyncIterator[Gateway]:
    async with running() as one:
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(running_gateway: Gateway) -> Gateway:
    """No agent is registered, and nothing was served within this second."""
    for one in running_gateway.registry.list():
        await running_gateway.registry.deregister(one.agent.agent_id, None)
    running_gateway.wall[0] += 1000
    running_gateway.ready[0] = True
    return running_gateway


@pytest_asyncio.fixture(loop_scope="module")
async def forms(gateway: Gateway) -> Gateway:
    """An agent of each form is registered."""
    for agent_id, members in FORMS.items():
        await gateway.register(agent_id, **members)
    return gateway


# --- the agent's card ---


@pytest.mark.parametrize("name", ["agent-card.json", "agent.json"])
async def test_an_agents_card_points_at_the_gateway(forms: Gateway, name: str) -> None:
    """Contract 1, 5.4: under both names, as JSON, with the request's scheme and host."""
    answer = await forms.get(f"/a2a/only-03/.well-known/{name}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["url"] == f"{forms.base}/a2a/only-03"
    assert "10.0.0.5" not in answer.text


@pytest.mark.parametrize("agent_id", FORMS)
async def test_the_1_3_sdk_resolves_every_form(forms: Gateway, agent_id: str) -> None:
    """Contract 5.4: an unmodified SDK client finds its way, with and without a slash at the end of the base."""
    for base in (f"{forms.base}/a2a/{agent_id}", f"{forms.base}/a2a/{agent_id}/"):
        card = await A2ACardResolver(forms.http, base).get_agent_card()
        ClientFactory(ClientConfig(httpx_client=forms.http)).create(card)
        assert {entry.url for entry in card.supported_interfaces} == {f"{forms.base}/a2a/{agent_id}"}
    spoken = [entry.protocol_version for entry in card.supported_interfaces]
    assert spoken == {"only-10": ["1.0"], "both-10-03": ["1.0", "0.3"]}.get(agent_id, ["0.3.0"])


async def sdk03(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the official 0.3 SDK, in an environment of its own, makes of these cards."""
    assert SDK03.exists(), "the environment of the 0.3 SDK is missing: run `make .venv-sdk03`"
    process = await asyncio.create_subprocess_exec(
        SDK03,
        FAKES / "sdk03" / "parse_card.py",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate("\n".join(json.dumps(line) for line in lines).encode())
    return [json.loads(line) for line in out.splitlines()]


async def test_the_0_3_sdk_resolves_what_speaks_0_3(forms: Gateway) -> None:
    """Contract 5.4: 0.3, both and KubeMQ's minimum; a pure 1.0 card is refused, not misread."""
    await forms.register("odd-skills", skills=[{"id": "a", "name": "A", "examples": [{}]}], provider={"url": 5})
    ids = ["only-03", "both-10-03", "kubemq-minimum", "odd-skills", "only-10"]
    *read, refused = await sdk03({"base": f"{forms.base}/a2a/{agent_id}"} for agent_id in ids)
    for agent_id, found in zip(ids, read, strict=False):
        assert found["url"] == f"{forms.base}/a2a/{agent_id}", found
        assert (found["transport"], found["others"]) == ("JSONRPC", 0)
        assert found["version"] == ("0.3.0" if agent_id != "both-10-03" else "0.3")
    assert read[3]["skills"] == ["a"]
    assert "url" in refused["refused"]


async def test_the_registrys_form(forms: Gateway) -> None:
    """Contract 5.4: ?view=registry serves the enriched document with the addresses as registered."""
    card = (await forms.get(f"/a2a/only-03{CARD}?view=registry")).json()
    assert card["url"] == HOME
    assert card["agent_id"] == "only-03"
    assert card["registered_by"] == "anonymous"
    assert {"registered_at", "last_seen"} <= card.keys()


async def test_the_registrys_form_for_all() -> None:
    """Contract 5.4: a2a.agent_card: registry; the gateway's form remains to be had."""
    async with running(CardTerms(view="registry")) as gateway:
        await gateway.register("echo-01")
        assert (await gateway.get(f"/a2a/echo-01{CARD}")).json()["url"] == HOME
        asked = (await gateway.get(f"/a2a/echo-01{CARD}?view=gateway")).json()
        assert asked["url"] == f"{gateway.base}/a2a/echo-01"


async def test_an_unknown_view_is_a_400_that_names_it(forms: Gateway) -> None:
    """Contract 5.1: the shape of all REST errors."""
    answer = await forms.get(f"/a2a/only-03{CARD}?view=raw")
    assert answer.status_code == 400
    assert answer.json()["details"][0]["field"] == "view"


# --- whose card, and from where ---


@pytest.mark.parametrize(
    "path",
    [
        f"/a2a/nobody{CARD}",
        f"/a2a/Only-03{CARD}",
        f"/a2a/only%2D03{CARD}",
        f"/a2a/only-03%00{CARD}",
        f"/a2a/only-03%0a{CARD}",
        f"/a2a/%2e%2e{CARD}",
        f"/a2a/..{CARD}",
        "/a2a/only-03%2f.well-known/agent-card.json",
        f"/a2a//only-03{CARD}",
        f"//a2a/only-03{CARD}",
        f"/a2a/only-03{CARD}/",
        f"/a2a/-a{CARD}",
        f"/a2a/{'a' * 129}{CARD}",
    ],
)
async def test_other_ids_and_spellings_are_a_404(forms: Gateway, path: str) -> None:
    """Contract 1, pitfalls 50 and 52: the id is read from the raw path and must fit entirely."""
    status, headers, body = await forms.raw_get(path)
    assert status == 404
    assert headers["content-type"] == "application/json"
    assert json.loads(body).keys() == {"error"}


async def test_an_unknown_agent_has_no_card(gateway: Gateway) -> None:
    """Contract 5.4: 404; not to be kept, because the agent may register the next moment."""
    for query in ("", "?view=registry"):
        answer = await gateway.get(f"/a2a/echo-01{CARD}{query}")
        assert (answer.status_code, answer.json()) == (404, {"error": "agent not found"})
        assert answer.headers["cache-control"] == "no-store"
    await gateway.register("echo-01")
    assert (await gateway.get(f"/a2a/echo-01{CARD}")).status_code == 200


async def test_a_deregistered_agent_has_no_card(forms: Gateway) -> None:
    """Pitfalls 109 and 117: not even a rendered one that was served a moment ago."""
    assert (await forms.get(f"/a2a/only-03{CARD}")).status_code == 200
    await forms.registry.deregister("only-03", None)
    assert (await forms.get(f"/a2a/only-03{CARD}")).status_code == 404


@pytest.mark.parametrize("name", ["agent-card.json", "agent.json"])
async def test_a_base_url_without_its_slash_is_explained(gateway: Gateway, name: str) -> None:
    """Contract 5.4: what a JS client asks for when its base lacks the trailing slash."""
    answer = await gateway.get(f"/a2a/.well-known/{name}")
    assert answer.status_code == 404
    assert "/a2a/{agent_id}/" in answer.json()["error"]


async def test_forwarded_headers_do_not_enter_a_card(forms: Gateway) -> None:
    """Contract 5.4, pitfall 116: anybody can send them."""
    answer = await forms.get(
        f"/a2a/both-10-03{CARD}",
        X_Forwarded_Host="evil.example",
        X_Forwarded_Proto="https",
        X_Forwarded_Prefix="/evil",
        Forwarded="host=evil.example;proto=https",
    )
    assert "evil" not in answer.text
    assert answer.json()["url"].startswith("http://127.0.0.1:")


@pytest.mark.parametrize("host", ['a"b', "u@gw.test", "gw.test/x", "gw.test?x", "gw test", "gw.test:x", ""])
@pytest.mark.parametrize("path", [f"/a2a/only-03{CARD}", CARD])
async def test_an_odd_host_is_refused(forms: Gateway, path: str, host: str) -> None:
    """Contract 5.4, pitfall 116: a Host that could change the meaning of a card's address."""
    status, _, body = await forms.raw_get(path, f"Host: {host}")
    assert status == 400
    assert json.loads(body).keys() == {"error"}


async def test_two_hosts_are_refused(forms: Gateway) -> None:
    """Pitfall 116: which of them would it be?"""
    status, _, _ = await forms.raw_get(f"/a2a/only-03{CARD}", "Host: a.test", "Host: b.test")
    assert status == 400


async def test_each_host_gets_its_own_card(forms: Gateway) -> None:
    """Contract 5.4: public base = the request's host; rendered cards do not mix them up."""
    for host in ("a.test", "b.test:81", "[::1]:9090", "A.test"):
        _, _, body = await forms.raw_get(f"/a2a/only-03{CARD}", f"Host: {host}")
        assert json.loads(body)["url"] == f"http://{host.lower()}/a2a/only-03"


async def test_public_url() -> None:
    """Contract 5.4: server.public_url with its path; Host plays no part; shared caches may keep it."""
    async with running(CardTerms(public_url="https://gw.example/agents/")) as gateway:
        await gateway.register("echo-01")
        answer = await gateway.get(f"/a2a/echo-01{CARD}", Host="evil.example")
        assert answer.json()["url"] == "https://gw.example/agents/a2a/echo-01"
        assert answer.headers["cache-control"] == "public, max-age=60"
        assert "vary" not in answer.headers
        assert (await gateway.get(CARD)).json()["url"] == "https://gw.example/agents"


# --- conditional requests ---


async def test_caching_headers(forms: Gateway) -> None:
    """Contract 5.4: private and Vary: Host without server.public_url; on 304 as well."""
    answer = await forms.get(f"/a2a/only-03{CARD}")
    same = await forms.get(f"/a2a/only-03{CARD}", If_None_Match=answer.headers["etag"])
    for one in (answer, same):
        assert one.headers["cache-control"] == "private, max-age=60"
        assert one.headers["vary"] == "Host"
        assert one.headers["etag"] == answer.headers["etag"]
        assert one.headers["last-modified"] == answer.headers["last-modified"]
    assert (same.status_code, same.content) == (304, b"")
    assert parsedate_to_datetime(answer.headers["last-modified"]).timestamp() == int(forms.wall[0])
    assert re.fullmatch(r'"[0-9a-f]{32}"', answer.headers["etag"])


@pytest.mark.parametrize(
    ("tags", "status"),
    [
        ("{etag}", 304),
        ("W/{etag}", 304),
        ('"other", {etag}', 304),
        ('"a,b",W/{etag} , "c"', 304),
        ("*", 304),
        ('"other"', 200),
        ('W/"other"', 200),
        ("{bare}", 200),
        ("", 200),
        ('"*"', 200),
    ],
)
async def test_if_none_match(forms: Gateway, tags: str, status: int) -> None:
    """Contract 5.4, RFC 9110 13.1.2: lists, weak comparison, `*`."""
    etag = (await forms.get(f"/a2a/only-03{CARD}")).headers["etag"]
    value = tags.format(etag=etag, bare=etag.strip('"'))
    assert (await forms.get(f"/a2a/only-03{CARD}", If_None_Match=value)).status_code == status


async def test_if_none_match_on_several_lines(forms: Gateway) -> None:
    """RFC 9110 5.3: lines of a list are one list."""
    etag = (await forms.raw_get(f"/a2a/only-03{CARD}"))[1]["etag"]
    status, headers, body = await forms.raw_get(
        f"/a2a/only-03{CARD}", 'If-None-Match: "x"', f"If-None-Match: {etag}"
    )
    assert (status, body) == (304, b"")
    assert {"content-length", "transfer-encoding", "content-type"}.isdisjoint(headers)


@pytest.mark.parametrize(
    ("seconds", "status"), [(0, 304), (5, 304), (-1, 200), (3600, 200)], ids=["same", "later", "before", "future"]
)
async def test_if_modified_since(forms: Gateway, seconds: int, status: int) -> None:
    """Contract 5.4, RFC 9110 13.1.3; nobody has a copy from the future."""
    answer = await forms.get(f"/a2a/only-03{CARD}")
    modified = parsedate_to_datetime(answer.headers["last-modified"]).timestamp()
    forms.wall[0] += 10
    since = formatdate(modified + seconds, usegmt=True)
    assert (await forms.get(f"/a2a/only-03{CARD}", If_Modified_Since=since)).status_code == status
    both = await forms.get(f"/a2a/only-03{CARD}", If_Modified_Since=since, If_None_Match='"other"')
    assert both.status_code == 200


@pytest.mark.parametrize("date", ["yesterday", "", "0", "Sun, 99 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 999999"])
async def test_a_date_that_cannot_be_read_does_not_count(forms: Gateway, date: str) -> None:
    """RFC 9110 13.1.3."""
    assert (await forms.get(f"/a2a/only-03{CARD}", If_Modified_Since=date)).status_code == 200


@pytest.mark.parametrize("form", ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"])
async def test_the_obsolete_date_formats_count(forms: Gateway, form: str) -> None:
    """RFC 9110 5.6.7: recipients must accept all three."""
    answer = await forms.get(f"/a2a/only-03{CARD}")
    date = parsedate_to_datetime(answer.headers["last-modified"]).strftime(form)
    forms.wall[0] += 10
    assert (await forms.get(f"/a2a/only-03{CARD}", If_Modified_Since=date)).status_code == 304


async def test_a_new_registration_shows_at_once(forms: Gateway) -> None:
    """Pitfall 117: new card, new tag; also for a reader that knows only the date, within the same second."""
    old = await forms.get(f"/a2a/only-03{CARD}")
    await forms.register("only-03", protocolVersion="0.3.0", name="Other")
    new = await forms.get(
        f"/a2a/only-03{CARD}", If_None_Match=old.headers["etag"], If_Modified_Since=old.headers["last-modified"]
    )
    assert (new.status_code, new.json()["name"]) == (200, "Other")
    assert new.headers["etag"] != old.headers["etag"]
    assert new.headers["last-modified"] == old.headers["last-modified"]
    dated = await forms.get(f"/a2a/only-03{CARD}", If_Modified_Since=old.headers["last-modified"])
    assert (dated.status_code, dated.json()["name"]) == (200, "Other")


async def test_a_heartbeat_or_the_same_card_again_changes_nothing(forms: Gateway) -> None:
    """Contract 5.4: the tag stands for the card, not for the lease."""
    etag = (await forms.get(f"/a2a/only-03{CARD}")).headers["etag"]
    forms.wall[0] += 60
    await forms.registry.heartbeat("only-03", None)
    await forms.register("only-03", **FORMS["only-03"])
    assert (await forms.get(f"/a2a/only-03{CARD}", If_None_Match=etag)).status_code == 304


async def test_the_registrys_form_changes_with_each_heartbeat(forms: Gateway) -> None:
    """Contract 5.4, pitfall 117: it holds last_seen, and two heartbeats may bear the same second."""
    path = f"/a2a/only-03{CARD}?view=registry"
    old = await forms.get(path)
    assert (await forms.get(path, If_None_Match=old.headers["etag"])).status_code == 304
    forms.wall[0] += 0.25  # within the same second
    await forms.registry.heartbeat("only-03", None)
    assert (await forms.get(path, If_None_Match=old.headers["etag"])).status_code == 200
    since = old.headers["last-modified"]
    assert (await forms.get(path, If_Modified_Since=since)).status_code == 200


# --- the platform card ---


@pytest.mark.parametrize("path", [CARD, "/.well-known/agent.json"])
async def test_platform_card(gateway: Gateway, path: str) -> None:
    """Contract 1, 5.5: public, at the root, with the same conditional requests."""
    answer = await gateway.get(path)
    assert answer.status_code == 200
    card = answer.json()
    assert (card["name"], card["version"], card["url"]) == ("kubemq", "0.1.0", gateway.base)
    assert (card["skills"], card["protocolVersions"]) == ([], ["1.0"])
    assert answer.headers["vary"] == "Host"
    gateway.wall[0] += 100
    for name in ("ETag", "Last-Modified"):
        condition = {"ETag": "If-None-Match", "Last-Modified": "If-Modified-Since"}[name]
        assert (await gateway.get(path, **{condition: answer.headers[name]})).status_code == 304


# --- methods ---

CARD_PATHS = [f"/a2a/only-03{CARD}", CARD, "/live", "/ready"]


@pytest.mark.parametrize("path", CARD_PATHS)
async def test_head_is_get_without_its_body(forms: Gateway, path: str) -> None:
    """Pitfall 59: same status and headers, Content-Length of the body that GET has."""
    _, got, body = await forms.raw_get(path)
    status, headers, nothing = await forms.raw_get(path, method="HEAD")
    assert (status, nothing) == (200, b"")
    assert headers["content-length"] == str(len(body))
    assert {name: headers[name] for name in headers if name != "date"} == {
        name: got[name] for name in got if name != "date"
    }


@pytest.mark.parametrize("path", [*CARD_PATHS, "/a2a/.well-known/agent.json"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_cards_are_only_read(forms: Gateway, path: str, method: str) -> None:
    """Pitfall 59: 405 with Allow and the one shape of errors."""
    answer = await forms.get(path, method)
    assert (answer.status_code, answer.json()) == (405, {"error": "method not allowed"})
    assert {"GET", "HEAD"} <= set(answer.headers["allow"].split(", "))


@pytest.mark.parametrize("path", ["/a2a/only-03", "/a2a/only-03/", "/a2a/nobody", "/a2a", "/a2a/"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND"])
async def test_calls_are_posted(forms: Gateway, path: str, method: str) -> None:
    """Contract 1, pitfall 59: GET /a2a/{agent_id} is a 405 with Allow: POST, and so is every other method."""
    answer = await forms.get(path, method)
    assert (answer.status_code, answer.json()) == (405, {"error": "method not allowed"})
    assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize("path", ["/a2a/only-03", "/a2a/only-03/", "/a2a"])
async def test_head_and_options_where_calls_are_posted(forms: Gateway, path: str) -> None:
    """Pitfall 59."""
    head = await forms.get(path, "HEAD")
    assert (head.status_code, head.headers["allow"], head.content) == (405, "POST", b"")
    options = await forms.get(path, "OPTIONS")
    assert (options.status_code, options.headers["allow"], options.content) == (204, "OPTIONS, POST", b"")


async def test_options_of_a_card(forms: Gateway) -> None:
    """Pitfall 59."""
    answer = await forms.get(f"/a2a/only-03{CARD}", "OPTIONS")
    assert (answer.status_code, answer.headers["allow"]) == (204, "GET, HEAD, OPTIONS")


# --- the gateway's own state and description ---


async def test_live_and_ready(gateway: Gateway) -> None:
    """Contract 1, 8: /live while the loop turns; /ready 503 before the registry is there and while draining."""
    for ready, status, word in ((True, 200, "ok"), (False, 503, "unavailable"), (True, 200, "ok")):
        gateway.ready[0] = ready
        live, readiness = await gateway.get("/live"), await gateway.get("/ready")
        assert (live.status_code, live.json()) == (200, {"status": "ok"})
        assert (readiness.status_code, readiness.json()) == (status, {"status": word})
        assert live.headers["cache-control"] == readiness.headers["cache-control"] == "no-store"


async def test_schema(gateway: Gateway) -> None:
    """Contract 1: OpenAPI as JSON; no page that loads anything from elsewhere."""
    answer = await gateway.get("/schema")
    assert answer.status_code == 200
    assert "json" in answer.headers["content-type"]
    document = answer.json()
    assert document["openapi"].startswith("3.")
    assert (document["info"]["title"], document["info"]["version"]) == ("vitalgate", "0.1.0")
    assert "/a2a/{agent_id}/.well-known/agent-card.json" in document["paths"]
    assert "/ready" in document["paths"]


@pytest.mark.parametrize("path", ["swagger", "redoc", "elements", "rapidoc", "scalar", "x"])
async def test_schema_has_no_other_pages(gateway: Gateway, path: str) -> None:
    """Contract 1, pitfall 59: nothing from a CDN, and errors in the one shape."""
    answer = await gateway.get(f"/schema/{path}")
    assert (answer.status_code, answer.json()) == (404, {"error": "not found"})


async def test_nothing_else_is_here(gateway: Gateway) -> None:
    """Pitfall 59: one shape for what does not exist."""
    answer = await gateway.get("/nope")
    assert (answer.status_code, answer.json()) == (404, {"error": "not found"})


async def test_a_fault_of_the_gateways_own_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """Architecture 5.7: one broad except per edge, which records; the caller learns nothing of the inside."""

    def broken(agent_id: str) -> Agent | None:
        raise RuntimeError("a secret of the inside")

    async with running(resolve=broken) as gateway:
        answer = await gateway.get(f"/a2a/echo-01{CARD}")
    assert (answer.status_code, answer.json()) == (500, {"error": "internal error"})
    assert "a secret of the inside" in caplog.text
