"""docs/api.md says what the gateway does: its examples are sent, its tables compared (contract 1, 2.4, 5, 7)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.app import VERSION
from gateway.faults import FAULTS
from tests.fakes import reply
from tests.fakes.agent import Behaviour, FaultAgent
from tests.fakes.running import Running, running
from tests.fakes.stream_reply import sse

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "api.md").read_text()
_BLOCK = re.compile(r"(?:^<!-- agent: (\w+) -->\n)?^```http\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GATEWAY, AGENT = "http://127.0.0.1:9090", "http://127.0.0.1:8000/"


@dataclass
class Message:
    """A request or an answer as it stands on the page."""

    agent: str
    first: str
    headers: dict[str, str]
    body: str


def messages() -> Iterator[Message]:
    for agent, text in _BLOCK.findall(PAGE):
        head, _, body = text.partition("\n\n")
        first, *lines = head.splitlines()
        yield Message(agent, first, dict(line.split(": ", 1) for line in lines), body.strip())


def examples() -> list[tuple[Message, Message]]:
    found = list(messages())
    return list(zip(found[::2], found[1::2], strict=True))


def behaviour(example: tuple[Message, Message]) -> Behaviour:
    """What the agent does: in the page's own words where it answers well."""
    request, answer = example
    if request.agent == "fails":
        return reply.json({"detail": "out of paper"}, status=500)
    if request.agent == "streams":
        return sse(answer.body.encode() + b"\n\n")
    assert request.agent == "answers"
    return reply.result(json.loads(answer.body)["result"])


def like(shown: Any, real: Any) -> bool:
    """Compare; `…` stands for anything."""
    if isinstance(shown, str) and isinstance(real, str):
        return re.fullmatch(".+".join(map(re.escape, shown.split("…"))), real) is not None
    if isinstance(shown, dict) and isinstance(real, dict):
        return shown.keys() == real.keys() and all(like(shown[key], real[key]) for key in shown)
    if isinstance(shown, list) and isinstance(real, list):
        return len(shown) == len(real) and all(map(like, shown, real))
    return type(shown) is type(real) and bool(shown == real)


async def ask(gateway: Running, request: Message, agent: FaultAgent) -> httpx.Response:
    method, path = request.first.split()
    body = request.body.replace(AGENT, agent.url).encode()
    return await gateway.client.request(method, path, headers=request.headers, content=body)


async def test_the_examples_are_what_happens() -> None:
    async with FaultAgent() as agent, running() as gateway:
        await gateway.register(agent, "my-agent")
        for example in examples():
            request, shown = example
            if request.agent:
                agent.next(behaviour(example))
            real = await ask(gateway, request, agent)
            text = real.text.replace(gateway.api, GATEWAY).replace(agent.url, AGENT)
            where = f"{request.first} {request.body[:60]}: {real.status_code} {text}"
            assert shown.first == f"HTTP/1.1 {real.status_code}", where
            for name, value in shown.headers.items():
                assert like(value, real.headers.get(name)), f"{where}: {name}"
            if real.headers["content-type"] == "application/json":
                assert like(json.loads(shown.body), json.loads(text)), where
            else:
                assert shown.body == text.strip(), where


def test_there_are_examples_of_every_kind() -> None:
    asked = {request.first.partition("?")[0] for request, _ in examples()}
    assert len(examples()) == PAGE.count("```http") / 2 > 10
    for action in ("register", "heartbeat", "deregister"):
        assert f"POST /agents/{action}" in asked


def rows(title: str) -> list[list[str]]:
    """The cells of the table under a heading whose first column is code."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if re.match(r"\| `[\w]+` \|", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_error_table_is_the_programs() -> None:
    """Contract 2.4: every reason, in order, with code, message, category, executed, retry."""
    shown = [
        [f"`{fault.reason}`", str(fault.code), fault.message.replace("{}", "…"), fault.category]
        for fault in FAULTS.values()
    ]
    tail = [["true" if fault.executed else "false", fault.retry] for fault in FAULTS.values()]
    assert rows("Errors") == [one + two for one, two in zip(shown, tail, strict=True)]


def test_http_statuses_of_errors_are_named() -> None:
    section = PAGE.split("\n## Calls")[1].split("\n## ")[0]
    for status in {fault.status(a2a) for fault in FAULTS.values() for a2a in (False, True)}:
        assert f"| {status} |" in section


def families(text: str) -> dict[str, str]:
    found = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    ours = ("kubemq_a2a_", "vitalgate_")
    return {name: kind for name, kind in found.items() if name.startswith(ours) and not name.endswith("_created")}


def labels(text: str, name: str, kind: str) -> set[str]:
    sample = f"{name}_count" if kind == "histogram" else name
    found = re.search(rf"^{sample}(?:\{{(.*)\}})? ", text, re.MULTILINE)
    assert found is not None, f"no sample of {name}"
    return set(re.findall(r'(\w+)="', found[1] or ""))


NO_SAMPLE = "vitalgate_agent_certificate_expiry_timestamp_seconds"
"""No agent of this test has a certificate."""


async def test_the_metrics_are_those_of_a_scrape() -> None:
    """Contract 7: names, types and labels."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "message/send"}
    health = {"enable": True, "interval_seconds": 3600}
    async with FaultAgent() as agent, running(health=health) as gateway:
        await gateway.register(agent)
        await gateway.client.post("/agents/echo/health/check")
        agent.next(reply.json({}, status=500), sse(b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'))
        await gateway.call(call)
        await gateway.call(call)
        text = (await gateway.client.get("/metrics")).text
    shown = {
        name.strip("`"): (kind, set(re.findall(r"`(\w+)`", cells))) for name, kind, cells, _ in rows("Metrics")
    }
    assert {name: kind for name, (kind, _) in shown.items()} == families(text)
    for name, (kind, named) in shown.items():
        assert name == NO_SAMPLE or labels(text, name, kind) == named, name
    assert f'vitalgate_build_info{{version="{VERSION}"}} 1.0' in text


async def test_every_route_of_the_schema_is_on_the_page() -> None:
    async with running(health={"enable": True}) as gateway:
        paths = (await gateway.client.get("/schema")).json()["paths"]
    for path, operations in paths.items():
        for method in operations.keys() - {"head"}:
            named = path.replace("agent.json", "agent-card.json")  # the older name has no line of its own
            assert re.search(rf"`{method.upper()} {re.escape(named)}`", PAGE), (method, path)


@pytest.mark.parametrize("path", sorted({*re.findall(r"\]\((?!https?:)([^)#]+)", PAGE)}))
def test_links_lead_somewhere(path: str) -> None:
    assert (DOCS / path).exists()
