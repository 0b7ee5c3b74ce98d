"""Keeps a node's mirror true: messages of other nodes, a listing when one was missed, a look every second.

Messages carry the version before them: who knows another one has missed some, and reads a listing (pitfall 161).
So does who joins again, who sees a newer version and gets no message, and everybody once a minute. What is said
while a listing is read is kept, and applied after it (pitfall 162).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final, TypeVar

from registry.errors import StoreUnavailable
from registry.stores.ledger import Found, Lost, News
from registry.stores.redis import scripts
from registry.stores.redis.link import Link
from registry.stores.redis.mirror import Listed, Mirror, Row, Term, owner_text

TICK_SECONDS: Final = 1.0
LISTING_SECONDS: Final = 60.0
BEHIND_SECONDS: Final = 0.5
CHUNK: Final = 50
"""Agents in one command: also with the largest cards it takes no second."""
MOST_HELD: Final = 10_000

_log = logging.getLogger(__name__)

Item = TypeVar("Item")


class Feed:
    """One node's view of the shared registrations, and whether the store can be reached."""

    def __init__(
        self, link: Link, mirror: Mirror, monotonic: Callable[[], float], tell: Callable[[News], None]
    ) -> None:
        """Nothing happens before `open`.

        Args:
            link: not yet open.
            mirror: what is kept true.
            monotonic: the clock by which `Lost.since` is told.
            tell: hears when the store is lost and found.
        """
        self._link = link
        self._mirror = mirror
        self._monotonic = monotonic
        self._tell = tell
        self._listing_lock = asyncio.Lock()
        self._held: list[bytes] | None = []  # messages while a listing is read; None: apply at once
        self._listing: asyncio.Task[None] | None = None
        self._again = False
        self._ticker: asyncio.Task[None] | None = None
        self._contact = 0.0  # when the last tick that succeeded began (monotonic)
        self._lost = False
        link.subscribe("discovery", self._hear, self._missed)
        link.knows(lambda: mirror.newest)
        link.on_replaced(self._put_back)
        link.on_jump(mirror.restart)

    # -- life

    async def open(self) -> None:
        """Fills the mirror and starts to follow. The link is open.

        Raises:
            StoreUnavailable: the store went away meanwhile.
        """
        await self._tick()
        await self.read_all()
        self._ticker = asyncio.create_task(self._tick_for_ever(), name="registry tick")

    async def close(self) -> None:
        """Stops following; may be called twice."""
        for task in (self._ticker, self._listing):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._ticker = self._listing = None

    # -- contact

    async def look(self) -> None:
        """Sees whether the store is there and takes writes, and catches up if it was lost.

        Raises:
            StoreUnavailable: it is not.
        """
        version = await self._tick()
        if self._lost:
            await self.read_all()
            self._lost = False
            self._tell(Found())
        elif version > self._mirror.version:
            asyncio.get_running_loop().call_later(BEHIND_SECONDS, self._check, version)

    async def _tick(self) -> int:
        began = self._monotonic()
        version = int(await self._link.run(scripts.TICK))
        self._contact = began
        return version

    def _check(self, version: int) -> None:
        if self._mirror.version < version and self._ticker is not None:
            self._missed()

    async def _tick_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        listed = loop.time()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            try:
                await self.look()
            except StoreUnavailable as error:
                self._lose(error)
                continue
            except Exception:
                _log.exception("the look at the registry store failed")
                continue
            if loop.time() - listed > LISTING_SECONDS:
                listed = loop.time()
                self._missed()

    def _lose(self, error: StoreUnavailable) -> None:
        if not self._lost:
            self._lost = True
            self._tell(Lost(self._contact, str(error)))

    # -- messages

    def _hear(self, message: bytes) -> None:
        if self._held is not None:
            if len(self._held) >= MOST_HELD:
                self._held.clear()  # shows as a gap later
            self._held.append(message)
            return
        try:
            self._read(message)
        except ValueError:
            _log.exception("a message of the registry feed is malformed: %.200r", message)
            self._missed()

    def _read(self, message: bytes) -> None:
        head, _, body = message.partition(b"\n")
        before, version, kind, *rest = head.decode().split(" ")
        if int(version) <= self._mirror.version:
            return  # said before the listing that was read
        if int(before) != self._mirror.version or kind == "reload":
            self._missed()
            return
        self._apply(kind, int(version), rest, body)
        self._mirror.followed(int(version))

    def _apply(self, kind: str, version: int, rest: Sequence[str], body: bytes) -> None:
        match kind:
            case "renewed":
                for line in body.decode().split("\n"):
                    agent_id, *numbers = line.split(" ")
                    self._mirror.renewed(agent_id, Term(*map(int, numbers)))
            case "removed" | "expired":
                agent_id, since = rest  # an end that was found out later is told at the version at which it was
                self._mirror.gone(kind, agent_id, int(since), elsewhere=True)
                if kind == "removed":
                    self._mirror.buried(agent_id, int(since))
            case "registered" | "replaced":
                agent_id, rev, number, end, seen, ttl, registered_at = rest
                owner, _, card = body.partition(b"\n")
                term = Term(int(number), int(end), int(seen), int(ttl))
                row = Row(agent_id, int(rev), term, int(registered_at), json.loads(owner), card)
                self._mirror.put(kind, row, version)
            case _:
                self._missed()  # a kind that a newer version knows

    # -- listings

    def _missed(self) -> None:
        """Something may have been missed: read a listing, in the background."""
        if self._held is None:
            self._held = []
        if self._listing is not None:
            self._again = True
        elif self._ticker is not None:  # else `open` is about to read one
            self._listing = asyncio.create_task(self._list_soon(), name="registry listing")

    async def _list_soon(self) -> None:
        try:
            while True:
                self._again = False
                await self.read_all()
                if not self._again:
                    return
                await asyncio.sleep(0.1)
        except StoreUnavailable as error:
            self._lose(error)  # the next look that succeeds reads one
        except Exception as error:
            _log.exception("the listing of the registry store could not be taken")
            self._lose(StoreUnavailable(f"registry store {self._link.shown}: its data cannot be read: {error!r}"))
        finally:
            self._listing = None

    async def read_all(self) -> None:
        """Makes the mirror equal to the store. Costs a few milliseconds of the server for 10,000 agents.

        Raises:
            StoreUnavailable: the store went away meanwhile.
        """
        async with self._listing_lock:
            if self._held is None:
                self._held = []
            version, text = await self._link.run(scripts.LIST)
            listed = [one async for one in _lines(text.decode())]
            await self.read(*self._mirror.unknown(listed))
            await self._settle(listed, int(version))
            held, self._held = self._held, None
        for message in held:
            self._hear(message)  # holds it again where it shows a gap

    async def _settle(self, listed: list[Listed], version: int) -> None:
        """The store held exactly this at that version, and what was unknown has been read since."""
        for ids in _chunks(self._mirror.vanished(listed, version)):
            for agent_id in ids:
                self._mirror.gone("removed", agent_id, version, elsewhere=True)
            await asyncio.sleep(0)
        for chunk in _chunks(listed):
            for one in chunk:
                self._mirror.renewed(one.agent_id, one.term)
            await asyncio.sleep(0)
        self._mirror.followed(version)

    async def read(self, *ids: str) -> None:
        """Asks the store about these agents.

        Raises:
            StoreUnavailable: no answer.
        """
        for chunk in _chunks(ids):
            await self._read_some(chunk)

    async def _read_some(self, ids: Sequence[str]) -> None:
        version, *rows = await self._link.run(scripts.READ, *ids)
        found = set()
        for row in rows:
            agent_id, rev, number, end, seen, ttl, registered_at, owner, card = row
            term = Term(int(number), int(end), int(seen), int(ttl))
            found.add(agent_id.decode())
            self._mirror.put(
                None,
                Row(agent_id.decode(), int(rev), term, int(registered_at), json.loads(owner), card),
                int(version),
            )
        for agent_id in ids:
            if agent_id not in found:
                self._mirror.gone("expired", agent_id, int(version), elsewhere=True)

    # -- another data set

    async def _put_back(self) -> None:
        """The store forgot something: tells it who is alive, and who was removed (pitfalls 161, 166)."""
        await self._link.run_first(
            scripts.AGREE, self._mirror.version, " ".join(self._mirror.ids()), *self._mirror.gone_since()
        )
        contact = self._link.cluster(self._contact) * 1e6
        alive = [(one, entry) for one, entry in self._mirror.entries.items() if entry.term.end > contact]
        for chunk in _chunks(alive):
            last = chunk[-1] is alive[-1]
            words: list[str | bytes | int] = []
            for agent_id, entry in chunk:
                agent = entry.registration.agent
                number, _, seen, ttl = entry.term
                words += (
                    agent_id,
                    entry.rev,
                    number,
                    seen,
                    ttl,
                    entry.registered_at,
                    owner_text(agent.owner),
                    agent.card,
                )
            await self._link.run_first(scripts.RESTORE, int(last), *words)
        self._missed()


def _chunks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]


async def _lines(text: str) -> AsyncIterator[Listed]:
    """The lines of a listing; makes room for calls between them."""
    for chunk in _chunks(text.split("\n") if text else []):
        for line in chunk:
            agent_id, rev, *numbers = line.split(" ")
            yield Listed(agent_id, int(rev), Term(*map(int, numbers)))
        await asyncio.sleep(0)
