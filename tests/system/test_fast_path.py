"""Clients as they are take the fast path: curl, wrk, httpx, the SDKs in Python and JavaScript; a counter shows it.

Contract 7: `vitalgate_requests_by_path_total{path}`.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from tests.fakes.program import (
    NODE,
    js_client,
    run,
    sdk03_client,
    sdk03_streams,
    sdk13_client,
    sdk13_streams,
)
from tests.fakes.sdks import Peers, peers_at

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "none"}}
MANY = 20
NEEDS_NODE = pytest.mark.skipif(NODE is None, reason="there is no node: JavaScript SDK clients are not run")
NEEDS_WRK = pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
NEEDS_CURL = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


async def curl(base: str) -> None:
    command = ["curl", "-sS", "--fail", "--json", json.dumps(CALL), base.rstrip("/")]
    assert json.loads(await run(command))["id"] == 1
    # Two requests over one connection, the second with a head that is known.
    twice = [*command, "--next", *command[1:]]
    assert (await run(twice)).count('"jsonrpc"') == 2


async def wrk(base: str, folder: Path) -> None:
    script = folder / "call.lua"
    script.write_text(
        f"wrk.method = 'POST'\nwrk.body = '{json.dumps(CALL)}'\nwrk.headers['Content-Type'] = 'application/json'\n"
    )
    said = await run(["wrk", "-t1", "-c2", "-d1s", "-s", str(script), base.rstrip("/")])
    assert "Non-2xx" not in said


async def with_httpx(base: str) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        for number in range(MANY):
            answer = await client.post(base, json=CALL | {"id": number})
            assert answer.json()["id"] == number


CLIENTS = [
    pytest.param(curl, id="curl", marks=NEEDS_CURL),
    pytest.param(wrk, id="wrk", marks=NEEDS_WRK),
    pytest.param(with_httpx, id="httpx"),
    pytest.param(sdk13_client, id="a2a-sdk 1.3"),
    pytest.param(sdk13_streams, id="a2a-sdk 1.3, streams"),
    pytest.param(sdk03_client, id="a2a-sdk 0.3"),
    pytest.param(sdk03_streams, id="a2a-sdk 0.3, streams"),
    pytest.param(partial(js_client, "sdk13"), id="@a2a-js/sdk 1.3", marks=NEEDS_NODE),
    pytest.param(partial(js_client, "sdk03"), id="@a2a-js/sdk 0.3", marks=NEEDS_NODE),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def peers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Peers]:
    async with peers_at(tmp_path_factory.mktemp("gateway"), {}) as peers:
        yield peers


async def ways(peers: Peers) -> dict[str, int]:
    """How many calls have come by which way."""
    series = r'^vitalgate_requests_by_path_total{path="(\w+)"} (\S+)$'
    found = re.findall(series, await peers.gateway.scrape(), re.MULTILINE)
    return {way: int(count) for way, count in found}


@pytest.mark.parametrize("client", CLIENTS)
async def test_every_call_takes_the_fast_path(
    client: Callable[..., Awaitable[object]], peers: Peers, tmp_path: Path
) -> None:
    before = await ways(peers)
    agent = "sdk03" if "sdk03" in str(client) else "sdk13"
    base = peers.gateway.base(agent)
    await (client(base, tmp_path) if client is wrk else client(base))
    after = await ways(peers)
    assert after["direct"] > before["direct"]
    assert after["asgi"] == before["asgi"]


async def test_the_counter_tells_the_ways_apart(peers: Peers) -> None:
    """Otherwise the tests above could not fail: what is no plain call takes the other way."""
    before = await ways(peers)

    async def body() -> AsyncIterator[bytes]:
        yield json.dumps(CALL).encode()

    async with httpx.AsyncClient(trust_env=False) as client:
        headers = {"content-type": "application/json"}
        answers = await asyncio.gather(
            *(client.post(peers.gateway.base("sdk13"), content=body(), headers=headers) for _ in range(3))
        )
    assert all(answer.json()["id"] == 1 for answer in answers)
    after = await ways(peers)
    assert (after["direct"], after["asgi"]) == (before["direct"], before["asgi"] + 3)
