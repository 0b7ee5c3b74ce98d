"""`vitalgate agents watch`: what changes, from the event feed: lines in a pipe, a live table on a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gateway.operator import output
from gateway.operator.agents import Document, mapping, members
from gateway.operator.client import Client, decoded, run
from gateway.operator.endpoint import Endpoint
from gateway.operator.failures import CONNECTION, ERROR, TIMEOUT, Failed, of_status
from gateway.operator.output import Column
from gateway.sse import Comment, Event, EventReader, EventTooLarge
from healthcheck.text import printable

#: The feed sends a comment every 15 s: after this many seconds without a byte, nobody is there.
SILENT_SECONDS: Final = 45.0
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 15.0
_LARGEST_EVENT: Final = 1024 * 1024
_REDRAW_SECONDS: Final = 0.25
_NEWS: Final = 5
_READ_AT_ONCE: Final = 20
_SEVERITY: Final = ("UNREACHABLE", "UNHEALTHY", "MISCONFIGURED", "UNKNOWN", "DEGRADED", "HEALTHY")
_COLUMNS: Final = (
    Column("AGENT", whole=True),
    Column("HEALTH", whole=True),
    Column("ROUTING", whole=True),
    Column("CHANGED", whole=True),
    Column("NAME"),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to watch.

    Attributes:
        agents: Only these; empty: all.
        count: End after so many events; 0: never.
    """

    agents: frozenset[str] = frozenset()
    count: int = 0

    def admits(self, data: Document) -> bool:
        """Whether an event is about one of them."""
        return not self.agents or data.get("agent_id") in self.agents


class View(Protocol):
    """Shows what comes; `begun`: `begin` has been called."""

    begun: bool

    async def begin(self, client: Client) -> None:
        """The feed has begun, or events were lost: everything may have changed."""

    def take(self, name: str, data: Document) -> None:
        """Show an event."""


def watch(endpoint: Endpoint, wanted: Wanted, as_json: bool, seconds: float | None) -> None:
    """Follow the feed until interrupted, for `seconds`, or to the count."""
    board = None if as_json or not output.on_terminal() else Board(wanted)
    view: View = Lines(as_json) if board is None else board

    async def main() -> None:
        async with Client(endpoint) as client:
            await (follow(client, wanted, view) if board is None else _live(client, wanted, board))

    try:
        run(main(), seconds, endpoint.url)
    except Failed as error:
        if not (error.code == TIMEOUT and view.begun):  # that is how long it was to be watched
            raise


async def follow(client: Client, wanted: Wanted, view: View) -> None:
    """Read the feed and take it up again wherever it breaks; the first connection must succeed.

    Raises:
        Failed: it did not, or may not be read any more.
    """
    feed = _Feed(client, wanted, view)
    pause = FIRST_PAUSE
    while True:
        try:
            await feed.read()
            return
        except Failed as error:
            if not feed.connected or error.code not in (CONNECTION, TIMEOUT, ERROR):
                raise
            pause = FIRST_PAUSE if feed.worked else min(pause * 2, LONGEST_PAUSE)
            if feed.worked:
                output.say(f"{error.lines[0]}; trying again")
        feed.worked = False
        await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - spreads load


class _Feed:
    """The place in the feed, over as many connections as it takes.

    Attributes:
        connected: There has been a connection.
        worked: The present one, or the last one, stood.
    """

    def __init__(self, client: Client, wanted: Wanted, view: View) -> None:
        self._client = client
        self._wanted = wanted
        self._view = view
        self._last_id = ""
        self._seen = 0
        self._stale = True  # what the view shows may not be so any more
        self.connected = False
        self.worked = False

    async def read(self) -> None:
        """Read until the wanted number of events has come."""
        async with aclosing(_events(self._client, self._last_id)) as events:
            async for event in events:
                if event is None:
                    await self._opened()
                elif event.name == b"resync":
                    self._note(event)
                    await self._refresh()
                else:
                    self._note(event)
                    self._show((event.name or b"").decode(), mapping(decoded(event.data)))
                    if self._seen == self._wanted.count > 0:
                        return

    async def _opened(self) -> None:
        again = self.connected
        self.connected = self.worked = True
        if self._stale or not self._last_id:  # without a place, what came meanwhile is not told
            await self._refresh()
        if again:
            output.say("watching again")

    async def _refresh(self) -> None:
        self._stale = True
        await self._view.begin(self._client)
        self._stale = False

    def _note(self, event: Event) -> None:
        self._last_id = event.id.decode() if event.id else self._last_id

    def _show(self, name: str, data: Document) -> None:
        if self._wanted.admits(data):
            self._view.take(name, data)
            self._seen += 1


async def _events(client: Client, last_id: str) -> AsyncGenerator[Event | None, None]:
    """One connection's events; None first, when it stands."""
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last_id} if last_id else {})}
    async with client.open("GET", "events", headers) as (streams, answer, pieces):
        if not streams:
            raise of_status(answer.status, answer.document(), client.url)
        yield None
        reader = EventReader(_LARGEST_EVENT)
        while True:
            try:
                piece = await asyncio.wait_for(anext(pieces), SILENT_SECONDS)
            except StopAsyncIteration:
                raise Failed(CONNECTION, f"{client.url}: the feed has ended") from None
            except TimeoutError:
                raise Failed(TIMEOUT, f"{client.url}: the feed is silent") from None
            for event in _fed(reader, piece, client.url):
                if isinstance(event, Event):
                    yield event


def _fed(reader: EventReader, piece: bytes, url: str) -> list[Event | Comment]:
    try:
        return reader.feed(piece)
    except EventTooLarge:
        raise Failed(ERROR, f"{url}: an event of the feed is larger than {_LARGEST_EVENT >> 20} MiB") from None


class Lines:
    """A line for each event."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self.begun = False

    async def begin(self, client: Client) -> None:
        """Say that events were lost; the lists tell what holds now."""
        if self.begun:
            output.say("events were lost meanwhile: vitalgate agents list shows what holds now")
        self.begun = True

    def take(self, name: str, data: Document) -> None:
        """Write it."""
        if self._as_json:
            output.write_document(json.dumps({"event": name, **data}).encode())
        else:
            output.write(output.lines_of(described(name, data)) + "\n")


def described(name: str, data: Document) -> str:
    """An event in words: when, what, and what changed."""
    words = [str(data.get("at", "-")), name]
    if name == "registry":
        words += [str(data.get("agent_id")), str(data.get("change"))]
    elif name == "health":
        words.append(str(data.get("agent_id")))
        pairs = [(data.get(f"previous_{name}"), data.get(name)) for name in ("status", "routing")]
        words += [f"{before}->{after}" for before, after in pairs if before != after]
    else:
        words += [f"{key}={value}" for key, value in data.items() if key != "at"]
    return " ".join(words)


class Board:
    """The agents as a table that is kept up to date."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._agents: dict[str, dict[str, Any]] = {}
        self.changed = asyncio.Event()
        self._unread: set[str] = set()
        self.begun = False
        self.news: list[str] = []

    async def begin(self, client: Client) -> None:
        """Read everything."""
        found = members((await client.ask("GET", "agents")).document())
        self._agents = {str(one.get("agent_id")): _row(one) for one in found if self._wanted.admits(one)}
        self.begun = True
        self.changed.set()

    def take(self, name: str, data: Document) -> None:
        """Change what an event is about."""
        agent_id = str(data.get("agent_id"))
        if name == "health" and agent_id in self._agents:
            fresh = {"status": data.get("status"), "routing": data.get("routing"), "at": data.get("at")}
            self._agents[agent_id].update(fresh)
        elif name == "registry" and data.get("change") in ("removed", "expired"):
            self._agents.pop(agent_id, None)
        elif name == "registry":
            self._agents.setdefault(agent_id, _row({}))
            self._unread.add(agent_id)
        self.news = [*self.news[1 - _NEWS :], described(name, data)]
        self.changed.set()

    async def read_new(self, client: Client) -> None:
        """Read a few of those that have registered: their events tell no more than the id."""
        for agent_id in sorted(self._unread)[:_READ_AT_ONCE]:
            self._unread.discard(agent_id)
            with suppress(Failed):  # it has left again, or the feed will tell that the gateway is away
                one = mapping((await client.ask("GET", f"agents/{agent_id}")).document())
                if agent_id in self._agents:
                    self._agents[agent_id]["name"] = one.get("name", "")
        if self._unread:
            self.changed.set()

    def rows(self) -> list[Sequence[object]]:
        """The worst first."""
        ordered = sorted(self._agents.items(), key=lambda one: (_rank(one[1]["status"]), one[0]))
        return [[agent_id, one["status"], one["routing"], one["at"], one["name"]] for agent_id, one in ordered]


def _row(one: Document) -> dict[str, Any]:
    health = mapping(one.get("health"))
    status, routing = health.get("status") or "UNKNOWN", health.get("routing") or "unchecked"
    return {"status": status, "routing": routing, "at": "", "name": one.get("name", "")}


def _rank(status: object) -> int:
    return _SEVERITY.index(str(status)) if status in _SEVERITY else 0


async def _live(client: Client, wanted: Wanted, board: Board) -> None:
    drawing = asyncio.create_task(_draw(client, board))
    try:
        await follow(client, wanted, board)
    finally:
        drawing.cancel()
        if board.begun:
            output.redraw(drawn(board, output.terminal_size()))


async def _draw(client: Client, board: Board) -> None:
    await board.changed.wait()  # the terminal is left alone until there is something to show
    output.clear()
    while True:
        await board.changed.wait()
        board.changed.clear()
        await board.read_new(client)
        output.redraw(drawn(board, output.terminal_size()))
        await asyncio.sleep(_REDRAW_SECONDS)  # many events, one drawing


def drawn(board: Board, size: os.terminal_size) -> list[str]:
    """The table and the last events, cut to the terminal; the worst agents stay."""
    rows = board.rows()
    room = max(1, size.lines - _NEWS - 5)
    more = [f"and {len(rows) - room} more"] if len(rows) > room else []
    news = [line[: size.columns] for line in map(printable, board.news)]
    return [*output.table(_COLUMNS, rows[:room], size.columns), *more, "", *news]
