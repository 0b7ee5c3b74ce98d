"""Both ways into the core, side by side: generated requests, faulty agents, and only times and ids may differ.

Contract 1, 2, 3, 7, 8. Two gateways, one with its direct door closed, each with an agent of its own. The bytes of
every caller go to both, in the same pieces; what comes back, what the agents saw, what was counted and what was
logged is compared.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest

from gateway import answering, json_text, jsonrpc
from gateway.upstream import connection, known_head
from tests.fakes.agent import FaultAgent
from tests.fakes.raw import open_raw
from tests.fakes.running import Running, eventually, running
from tests.generated_requests import Exchange, generated

QUICK, ALL_LONG, LONG = 1200, 300, 20_000
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "a2a": {
        "max_request_bytes": 5000,
        "agent_max_response_bytes": 20_000,
        "forward_headers": ["X-Team", "Accept-Charset"],
    },
    "upstream": {"caller_credentials": True},
}

# --- one gateway and its agent ---


@dataclass
class Side:
    """One of the two gateways; what it has said and done."""

    name: str
    gateway: Running
    agent: FaultAgent

    async def talk(self, exchange: Exchange) -> list[bytes]:
        """Play a caller: the answers in order, then what became of the connection."""
        self.agent.next(*exchange.agent)
        reader, writer = await open_raw(self.gateway.port)
        answers = []
        try:
            for parts in exchange.requests:
                for part in parts:
                    writer.write(part)
                    if len(parts) > 1:
                        await asyncio.sleep(0.001)
                method = b"".join(parts).partition(b" ")[0]
                answers.append(self.plain(await asyncio.wait_for(answer(reader, method), 20)))
                if not answers[-1]:
                    break
            self.agent._queue.clear()
        except ConnectionError:
            answers.append(b"")
        finally:
            writer.transport.abort()
        return answers

    def plain(self, data: bytes) -> bytes:
        """The same without what must differ: dates, the ids that the gateway makes, ports."""
        data = re.sub(rb"(?i)(\r\ndate: )[^\r]*", rb"\1D", data)
        data = re.sub(rb"\b(s-)?[0-9a-f]{8}-[0-9a-f]+\b", rb"\1ID", data)
        data = re.sub(rb"vitalgate-[0-9a-f]{8}", b"vitalgate-I", data)
        data = data.replace(b"127.0.0.1:%d" % self.agent.port, b"AGENT").replace(
            b":%d" % self.gateway.port, b":API"
        )
        return re.sub(rb'"connection": ?\d+', b'"connection":N', data)


async def answer(reader: asyncio.StreamReader, method: bytes) -> bytes:
    """One whole answer with its body, interim ones before it; empty at the end of the connection."""
    head = b""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"HTTP/1.1 100 "):
            return head + await answer(reader, method)
        lower = head.lower()
        if method == b"HEAD":
            return head
        if b"transfer-encoding: chunked" in lower:
            return head + await chunks(reader)
        if b"content-length: " in lower:
            return head + await reader.readexactly(
                int(lower.partition(b"content-length: ")[2].partition(b"\r")[0])
            )
        return head if b" 204 " in head else head + await reader.read()
    except asyncio.IncompleteReadError as error:
        return head + error.partial


async def chunks(reader: asyncio.StreamReader) -> bytes:
    """The content of the chunks, however it was cut, and that they ended."""
    content = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        content += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return content + b"<END>"


@asynccontextmanager
async def side(name: str, *, fast_path: bool) -> AsyncIterator[Side]:
    async with FaultAgent() as agent, running(server={"fast_path": fast_path}, **SETTINGS) as gateway:
        await gateway.register(agent)
        await gateway.register(agent, "other")
        yield Side(name, gateway, agent)


UNLIKE = re.compile(
    r"^(?:#|process_|python_|.*(?:duration_seconds|_created|first_event|loop_lag|requests_by_path|connections|_bucket|_sum))"
)


async def counted(gateway: Running) -> list[str]:
    """The metrics page but for times and for the ways in."""
    return [line for line in (await gateway.client.get("/metrics")).text.splitlines() if not UNLIKE.match(line)]


TIMES = ("time", "duration_ms", "request_id")


def logged(side: Side) -> list[dict[str, Any]]:
    """The calls of the log, in order, without times and ids."""
    calls = [line for line in side.gateway.lines() if line["event"] in ("call", "audit")]
    return [{name: value for name, value in line.items() if name not in TIMES} for line in calls]


def seen(side: Side) -> list[bytes]:
    """What the agent got."""
    return [side.plain(request.raw) for request in side.agent.requests]


async def compared(seeds: range) -> dict[str, int]:
    """Send the exchanges of these seeds both ways and compare. Gives how many requests took which way."""
    async with side("direct", fast_path=True) as direct, side("asgi", fast_path=False) as asgi:
        for seed in seeds:
            exchange = generated(seed)
            got, expected = await asyncio.gather(direct.talk(exchange), asgi.talk(exchange))
            about = f"seed {seed}: {exchange.requests}, agent: {exchange.agent}"
            assert got == expected, about
            await eventually(lambda: len(direct.agent.requests) == len(asgi.agent.requests))
            assert seen(direct) == seen(asgi), about
            direct.agent.requests.clear()
            asgi.agent.requests.clear()
        assert await counted(direct.gateway) == await counted(asgi.gateway)
        ways = {
            way: int(await direct.gateway.metric("vitalgate_requests_by_path_total", path=way) or 0)
            for way in ("direct", "asgi")
        }
        await asyncio.sleep(0.1)  # lines wait for company that long
        assert logged(direct) == logged(asgi)
        return ways


async def test_both_ways_are_alike() -> None:
    """A new seed every day would find more, but a test that fails must fail again: the long one goes further."""
    ways = await compared(range(QUICK))
    assert ways["direct"] > QUICK  # it is about those
    assert ways["asgi"] > QUICK / 20


async def test_both_ways_are_alike_for_long_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long bodies are not copied, and only in part parsed: here all are long."""
    for module in (json_text, jsonrpc):
        monkeypatch.setattr(module, "LONG", 1)
    for module in (answering, connection, known_head):
        monkeypatch.setattr(module, "UNCOPIED", 1)
    ways = await compared(range(QUICK, QUICK + ALL_LONG))
    assert ways["direct"] > ALL_LONG


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(4))
async def test_both_ways_are_alike_at_length(part: int) -> None:
    """`PATHS_SEED` moves to other requests."""
    begin = int(os.environ.get("PATHS_SEED", QUICK)) + part * LONG // 4
    await compared(range(begin, begin + LONG // 4))
