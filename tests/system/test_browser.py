"""EventSource in a real browser reads `GET /a2a/{agent_id}/stream` once and stops (contract 3.6)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.browser import CHROMIUM, chromium
from tests.fakes.running import Running, eventually, running
from tests.fakes.stream_reply import sse

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: EventSource is not tried in a browser"),
]

RETRY = b"retry: 50\n"
"""EventSource opens a stream that has ended again after so many milliseconds: without it, after seconds."""
WORKING = RETRY + 'event: task.status\ndata: {"text":"Grüße 🌍"}\n\n'.encode()
DONE = b"event: task.done\ndata: ok\n\n"
COMPLETED = b'{"kind":"status-update","final":true,"status":{"state":"completed"}}'
A2A_DONE = b'data: {"jsonrpc":"2.0","id":1,"result":' + COMPLETED + b"}\n\n"

READ = """
([path, stop]) => new Promise((resolve) => {
  const source = new EventSource(path), seen = [], opened = [];
  const end = () => { source.close(); resolve({seen, opened: opened.length}); };
  source.onopen = () => { if (opened.push(1) > 1) end(); };
  for (const name of ["task.status", "task.artifact", "task.done", "task.error", "message"])
    source.addEventListener(name, (event) => {
      seen.push([name, event.data, event.lastEventId]);
      if (name === stop) end();
    });
  source.onerror = () => { if (source.readyState === EventSource.CLOSED) end(); };
})
"""
"""Reads until the browser gives up for good, opens a second stream, or gets an event of a name."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as it:
        yield it


@pytest_asyncio.fixture(loop_scope="module")
async def agent() -> AsyncIterator[FaultAgent]:
    async with FaultAgent() as fake:
        yield fake


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(agent: FaultAgent) -> AsyncIterator[Running]:
    async with running() as it:
        await it.register(agent)
        yield it


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser, gateway: Running) -> AsyncIterator[Page]:
    """A page of the gateway's own origin."""
    page = await browser.new_page()
    await page.goto(f"{gateway.api}/live")
    yield page
    await page.close()


class Reader:
    """What an EventSource in the page has read, and the answers it got."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.statuses: list[int] = []
        page.on("response", lambda response: self.statuses.append(response.status))

    async def read(self, query: str = "", stop: str = "") -> None:
        read: dict[str, Any] = await self._page.evaluate(READ, [f"/a2a/echo/stream{query}", stop])
        self.opened = read["opened"]
        self.names = [name for name, _, _ in read["seen"]]
        self.data = [json.loads(data) for _, data, _ in read["seen"]]
        self.ids = [id for _, _, id in read["seen"]]


async def test_it_reads_once_and_stops(page: Page, gateway: Running, agent: FaultAgent) -> None:
    """Every end makes EventSource connect again, which would start the work again: 204 stops it for good."""
    agent.always(sse(WORKING, DONE))
    reader = Reader(page)
    await reader.read()
    assert reader.names == ["task.status", "task.done"]
    assert reader.opened == 1
    assert reader.statuses == [200, 204]
    assert len(agent.requests) == 1
    stream = reader.data[0]["stream_id"]
    assert reader.ids == [f"{stream}:1", f"{stream}:2"]
    assert reader.data[0]["payload"]["text"] == "Grüße 🌍"
    assert reader.data[1] == {"stream_id": stream, "type": "done", "payload": "ok"}
    sent = agent.requests[0]
    assert sent.method == "POST"
    assert sent.json() == {"jsonrpc": "2.0", "id": stream, "method": "message/stream", "params": {}}


async def test_events_of_an_a2a_agent(page: Page, gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.4: in the envelope, so that a page sees the same names whatever the agent speaks."""
    agent.always(sse(RETRY + A2A_DONE))
    reader = Reader(page)
    await reader.read("?taskId=t%201")
    assert reader.names == ["task.done"]
    assert reader.data[0]["payload"]["result"]["status"] == {"state": "completed"}
    assert reader.statuses == [200, 204]
    assert [request.json()["method"] for request in agent.requests] == ["tasks/resubscribe"]
    assert agent.requests[0].json()["params"] == {"id": "t 1"}


@pytest.mark.parametrize(("end", "reason"), [("clean", "STREAM_INCOMPLETE"), ("reset", "STREAM_BROKEN")])
async def test_a_stream_that_breaks(
    end: Any, reason: str, page: Page, gateway: Running, agent: FaultAgent
) -> None:
    """Contract 3.5: the page is told, and does not start the work again by itself."""
    agent.always(sse(WORKING, end=end))
    reader = Reader(page)
    await reader.read()
    assert reader.names == ["task.status", "task.error"]
    assert reader.data[1]["payload"]["data"][0]["reason"] == reason
    assert reader.statuses == [200, 204]
    assert len(agent.requests) == 1


async def test_a_refusal_before_the_stream(page: Page, gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.6: a JSON-RPC error, which is no event stream: EventSource gives up at once."""
    agent.always(reply.error(-32004, "no"))
    reader = Reader(page)
    await reader.read()
    assert (reader.names, reader.opened, reader.statuses) == ([], 0, [200])
    assert len(agent.requests) == 1


async def test_a_page_that_leaves(page: Page, gateway: Running, agent: FaultAgent) -> None:
    """Contract 3.5, 3.7: the agent's stream is closed and the agent told."""
    agent.next(sse(WORKING, end="hang"))
    reader = Reader(page)
    await reader.read(stop="task.status")
    await agent.closed(1)
    note = (await agent.received(2)).json()
    assert note["method"] == "stream_cancel"
    assert note["params"] == {"stream_id": reader.data[0]["stream_id"]}
    await eventually(lambda: not gateway.lifecycle.in_flight)
