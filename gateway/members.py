"""Which nodes there are: this one's lease in the store, and those of the others.

A lease lasts `LEASE_SECONDS` by the store's clock and is renewed every `RENEW_SECONDS`. A node that ends gives it
back; one that dies is missed by the others when it runs out. Without contact the nodes last known count as alive:
who is cut off for a moment must not take over everything, nor lose what it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Final

import msgspec

from gateway.cluster_scripts import LEAVE, LIST, RENEW
from gateway.nodes import Live, Node
from gateway.rendezvous import owner
from registry.errors import StoreUnavailable
from registry.stores.redis.link import Link

LEASE_SECONDS: Final = 7.0
RENEW_SECONDS: Final = 2.0

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Node).decode
_log: Final = logging.getLogger(__name__)


class Members:
    """Use it between `start` and `leave`, while the link is open; made before it is opened."""

    def __init__(self, link: Link, describe: Callable[[], Node]) -> None:
        """Nothing happens before `start`; `describe` tells how this node is now."""
        self._link = link
        self._describe = describe
        self._id = describe().id
        self._now = asyncio.get_running_loop().time
        self._live: dict[str, Live] = {}
        self._missed: dict[str, Live] = {}  # known before an outage, and not yet back
        self._missed_until = -inf
        self._contact = -inf
        self._overdue = False  # so it was told
        self._checking: tuple[str, ...] = ()
        self._started = self._left = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[frozenset[str], frozenset[str]], None]] = []
        self._back: list[Callable[[float], None]] = []
        link.subscribe("nodes", lambda data: self._wake.set(), self._wake.set)
        link.on_replaced(self._replaced)

    def owner(self, agent_id: str) -> str | None:
        """Give the node that checks an agent; None: nobody does."""
        return owner(agent_id, self._checking)

    def on_change(self, callback: Callable[[frozenset[str], frozenset[str]], None]) -> None:
        """Calls back with the ids of the nodes that came and that went."""
        self._listeners.append(callback)

    def on_contact(self, callback: Callable[[float], None]) -> None:
        """Calls back when the store is in reach again, with the time of the last contact before (loop's clock)."""
        self._back.append(callback)

    @property
    def id(self) -> str:
        """This node."""
        return self._id

    @property
    def connected(self) -> bool:
        """Whether the lease was renewed lately."""
        return self._now() - self._contact < 2 * RENEW_SECONDS

    async def refresh(self) -> None:
        """Have `live` give what every node gives now; without contact what was known last."""
        if self.connected:
            with suppress(StoreUnavailable):
                self._take(await self._link.run(LIST))

    def live(self) -> Sequence[Live]:
        """Give all nodes in order of their start; this one as the others see it, too."""
        found = self._missed | self._live
        if not self._left and self._id not in found:
            found[self._id] = Live(self._describe())
        return sorted(found.values(), key=lambda one: (one.node.started_at, one.node.id))

    async def start(self) -> None:
        """Take a lease, and keep it; without contact go on alone, and try again and again."""
        self._started = True
        await self._renew()
        self._tell(frozenset())
        self._task = asyncio.create_task(self._renew_for_ever(), name="node lease")

    async def leave(self) -> None:
        """Give the lease back, so that the others take over at once; may be called twice."""
        if self._left or not self._started:
            return
        before, self._left = frozenset(self._all()), True
        task, self._task = self._task, None
        if task is None:
            return  # it never took one
        task.cancel()
        await asyncio.wait([task])
        try:
            await self._link.run(LEAVE, self._id)
        except StoreUnavailable as error:
            _log.info("this node's lease could not be given back, it runs out by itself: %s", error)
        self._live.pop(self._id, None)
        self._tell(before)

    async def _renew_for_ever(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEW_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._renew()
            except Exception:
                _log.exception("renewing the lease of this node failed")

    async def _renew(self) -> None:
        try:
            answer = await self._link.run(RENEW, self._id, round(LEASE_SECONDS * 1e6), _encode(self._describe()))
        except StoreUnavailable as error:  # the registry tells of most outages sooner
            if not self._overdue and self._now() - self._contact > LEASE_SECONDS:
                self._overdue = True
                _log.warning("the lease of this node has run out, others check its agents: %s", error)
            return
        now, last = self._now(), self._contact
        self._contact, self._overdue = now, False
        was_out = last > -inf and now - last > 2 * RENEW_SECONDS
        if was_out:
            self._give_grace()
        self._take(answer)
        if was_out:
            for callback in self._back:
                callback(last)

    def _take(self, answer: Sequence[bytes]) -> None:
        before = frozenset(self._all())
        found = zip(answer[::3], answer[1::3], answer[2::3], strict=True)
        self._live = {id.decode(): _read(id, ends, document) for id, ends, document in found}
        missed = self._missed if self._now() < self._missed_until else {}
        self._missed = {id: one for id, one in missed.items() if id not in self._live}
        self._tell(before)

    def _give_grace(self) -> None:
        """After an outage all leases may have run out: the others get as long as one lasts to be heard of."""
        self._missed = {**self._missed, **self._live}
        self._missed_until = self._now() + LEASE_SECONDS

    async def _replaced(self) -> None:
        """The data is gone, and with it the leases."""
        self._give_grace()
        self._wake.set()

    def _all(self) -> dict[str, Node]:
        found = {id: one.node for id, one in (self._missed | self._live).items()}
        if self._left:
            found.pop(self._id, None)
        elif self._started and self._id not in found:
            found[self._id] = self._describe()
        return found

    def _tell(self, before: frozenset[str]) -> None:
        nodes = self._all()
        if before == nodes.keys():
            return
        self._checking = tuple(id for id, node in nodes.items() if node.checking)
        for callback in self._listeners:
            callback(frozenset(nodes.keys() - before), before - nodes.keys())


def _read(id: bytes, ends: bytes, document: bytes) -> Live:
    try:
        node = _decode(document)
    except msgspec.DecodeError:  # a newer version's, or broken: it is alive all the same
        node = Node(id=id.decode())
    return Live(node, float(ends) / 1e6)
