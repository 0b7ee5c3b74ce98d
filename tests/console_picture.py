"""Takes the picture of the console that the README shows: `.venv/bin/python tests/console_picture.py FILE.png`.

A gateway with a dozen agents, some of which are called, some of which are ill; everything else is as it is in use.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.fakes import reply
from tests.fakes.browser import chromium
from tests.fakes.connection import Connection, Received
from tests.fakes.health_peer import A2APeer
from tests.fakes.running import Running, running

AGENTS = {
    "billing-assistant": ("Billing assistant", ("Explain an invoice", "Refund")),
    "contract-review": ("Contract review", ("Find risky clauses",)),
    "currency-rates": ("Currency rates", ("Convert",)),
    "doc-translator": ("Document translator", ("Translate", "Detect language")),
    "fax-gateway": ("Fax gateway", ("Send a fax",)),
    "invoice-reader": ("Invoice reader", ("Extract line items",)),
    "knowledge-base": ("Knowledge base", ("Answer", "Cite sources")),
    "legacy-crm": ("Legacy CRM", ("Find customers",)),
    "meeting-notes": ("Meeting notes", ("Summarise",)),
    "order-tracking": ("Order tracking", ("Where is it?",)),
    "travel-planner": ("Travel planner", ("Find flights", "Book a hotel")),
}
SLOW, DRIFTED, GONE, FAILING = "contract-review", "meeting-notes", "fax-gateway", "legacy-crm"
SIZE = {"width": 1280, "height": 820}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": {}}}


def answering(agent_id: str, chance: Random) -> Any:
    """How long an agent takes, and how often it fails."""
    middle = 0.4 if agent_id == SLOW else 0.03 + chance.random() / 10
    done = reply.result({"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}})
    failed = reply.json({"detail": "out of paper"}, status=500)

    async def act(connection: Connection, request: Received | None) -> None:
        await asyncio.sleep(middle * chance.uniform(0.6, 2))
        fails = chance.random() < (0.3 if agent_id == FAILING else 0.01)
        await (failed if fails else done).run(connection, request)

    return act


@asynccontextmanager
async def fleet(gateway: Running, chance: Random) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for agent_id, (name, skills) in AGENTS.items():
            peer = await stack.enter_async_context(A2APeer(chance.choice(["1.0", "0.3"])))
            offered = [{"id": skill, "name": skill, "description": skill, "tags": ["office"]} for skill in skills]
            peer.card |= {"name": name, "skills": offered}
            peer.rpc["SendMessage"] = type(reply.result({}))("call", answering(agent_id, chance))
            url = "http://127.0.0.1:9/rpc" if agent_id == GONE else peer.base
            card = peer.card | ({"version": "0.9.0"} if agent_id == DRIFTED else {})
            await gateway.register(url, agent_id, **{key: value for key, value in card.items() if key != "url"})
            await asyncio.sleep(chance.random())
        yield


async def load(gateway: Running, chance: Random) -> None:
    """Calls as they come."""
    running_calls: set[asyncio.Task[Any]] = set()
    busy = [agent_id for agent_id in AGENTS if agent_id not in (GONE, "knowledge-base")]
    while True:
        task = asyncio.create_task(gateway.call(CALL, chance.choice(busy)))
        running_calls.add(task)
        task.add_done_callback(running_calls.discard)
        await asyncio.sleep(chance.uniform(0.01, 0.06))


async def main(file: str) -> None:
    chance = Random(7)
    health = {"enable": True, "interval_seconds": 2}
    async with running(health=health) as gateway, fleet(gateway, chance), chromium() as browser:
        calls = asyncio.create_task(load(gateway, chance))
        page = await browser.new_page(viewport=SIZE, color_scheme="light")
        await page.goto(f"{gateway.api}/")
        await page.wait_for_timeout(20_000)
        await page.screenshot(path=file)
        calls.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
