"""The agents' health, shared by all nodes over the registry's store (health contract 7, for several nodes).

Each agent is checked by one node. What a node finds, by checks, calls or trial calls, it tells all others, which
take it over as if they had found it themselves. A call asks nobody and is told to nobody: only one that fails
makes the nodes tell each other of the agent's calls, and only a trial call is asked for.

Without the store each node goes on alone: it checks its share, and decides by what it sees. Afterwards what was
found later wins; what the others found together wins over one that was cut off.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from math import inf
from typing import Final

import msgspec

from gateway import verdicts
from gateway.admission import Ask
from gateway.cluster_scripts import FORGET, READ, TELL
from gateway.members import Members
from gateway.monitor import Monitor
from gateway.passive import Seen
from gateway.trials import Trials
from gateway.verdicts import FORMAT, News, Report, Sighting, Times
from gateway.watched import Watched
from healthcheck.state import Routing
from registry.errors import StoreUnavailable
from registry.stores.redis.link import Link

#: How long what is known waits for more to be told with it: what changes routing does not.
_GATHER_SECONDS: Final = 0.25
_TICK_SECONDS: Final = 1.0
#: Reports per message; reports that are kept for agents not known yet; entries read in one step.
_MOST_REPORTS: Final = 100
_MOST_EARLY: Final = 1000
_READ_AT_ONCE: Final = 200

_log: Final = logging.getLogger(__name__)


class Cluster:
    """What `Sharing` asks for, over a link. Made before the link is opened."""

    def __init__(self, link: Link, members: Members) -> None:
        """Nothing happens before `start`."""
        self._link = link
        self._members = members
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._times = Times(self._now, link.now)
        self._monitor: Monitor | None = None
        self._last = 0  # the latest stamp made or heard
        self._outbox: list[tuple[Report, str]] = []
        self._gone: list[str] = []
        self._early: OrderedDict[str, Report] = OrderedDict()
        self._active: dict[str, Seen | None] = {}  # agents whose calls are told of, and what was told last
        self._trials = Trials(link, members, self._tell_now)
        self._joining = True
        self._behind = True  # messages were lost, either way
        self._strange = False  # one came that could not be read
        self._alone = inf, inf  # since when, and until when, this node had no contact: in the cluster's time
        self._send = asyncio.Event()
        self._sends_at = inf
        self._tasks: set[asyncio.Task[None]] = set()
        link.subscribe("health", self._hear, self._joined)
        link.on_replaced(self._replaced)
        link.on_jump(self._jumped)
        members.on_change(self._nodes_changed)
        members.on_contact(self._contact)

    async def start(self, monitor: Monitor) -> None:
        """Take over what is known. The monitor has been started, and gets its share when `members` start."""
        self._monitor = monitor
        await self._catch_up()
        self._joining = False
        self._begin(self._send_for_ever())
        self._begin(self._tick_for_ever())

    async def close(self) -> None:
        """Say what there is to say, and stop."""
        await self._trials.close()
        await self._flush()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- what the monitor tells (`Sharing`)

    def mine(self, agent_id: str) -> bool:
        """Tell whether this node is the one that checks an agent."""
        return self._members.owner(agent_id) == self._members.id

    def begun(self, watched: Watched) -> None:
        """Take over what others have found before this node heard of the registration."""
        report = self._early.pop(watched.agent.agent_id, None)
        if report is not None:
            self._take(report)

    def ran(self, watched: Watched, before: Routing) -> None:
        """A check has ended here."""
        self._stamp(watched, before)
        ran = watched.versions.ran = watched.versions.stamp
        watched.history[-1] = msgspec.structs.replace(watched.history[-1], ran=ran)
        self._queue(watched, 0.0 if watched.routing is not before else _GATHER_SECONDS)

    def moved(self, watched: Watched, before: Routing) -> None:
        """Calls or a trial call have changed its routing here."""
        self._stamp(watched, before)
        self._queue(watched, 0.0)

    def tried(self, watched: Watched) -> None:
        """A trial call began here, or ended without changing that."""
        self._stamp(watched, watched.routing)
        self._queue(watched, 0.0)

    def failed(self, watched: Watched) -> None:
        """A call failed here: let the others know, and have them tell of theirs."""
        self._active.setdefault(watched.agent.agent_id, None)
        self._send_within(_GATHER_SECONDS)

    def gone(self, watched: Watched) -> None:
        """The agent is registered no more, or under another URL."""
        agent_id = watched.agent.agent_id
        self._active.pop(agent_id, None)
        if self._trials.forget(agent_id) or self.mine(agent_id):
            self._gone.append(agent_id)
            self._send_within(_GATHER_SECONDS)

    def ask(self, watched: Watched) -> Ask:
        """Give what asks for a trial call."""
        return partial(self._trials.ask, watched)

    # -- telling

    def _stamp(self, watched: Watched, before: Routing) -> None:
        versions = watched.versions
        versions.own = True
        self._last = versions.stamp = max(self._last + 1, round(self._link.now() * 1e6))
        if watched.routing is not before:
            versions.moved = versions.stamp
            if Routing.OUT_OF_SERVICE in (watched.routing, before):
                versions.turned = versions.stamp

    def _queue(self, watched: Watched, within: float) -> None:
        report = verdicts.report(watched, self._members.id, self._times)
        self._outbox.append((report, self._members.id if self._trials.gives_back(watched) else ""))
        self._send_within(within)

    def _tell_now(self, watched: Watched) -> None:
        self._queue(watched, 0.0)

    def _send_within(self, seconds: float) -> None:
        at = self._now() + seconds
        if at < self._sends_at:
            self._sends_at = at
            self._loop.call_later(seconds, self._send.set)

    async def _send_for_ever(self) -> None:
        while True:
            await self._send.wait()
            self._send.clear()
            self._sends_at = inf
            try:
                await self._flush()
            except Exception:
                _log.exception("telling other nodes of the agents' health failed")

    async def _flush(self) -> None:
        """Say what there is to say; what cannot be said now is said when contact is back."""
        sightings = self._sightings(self._now())
        while self._outbox or sightings or self._gone:
            items, self._outbox = self._outbox[:_MOST_REPORTS], self._outbox[_MOST_REPORTS:]
            gone, self._gone = self._gone, []
            try:
                if items or sightings:
                    await self._link.run(TELL, *self._message(items, sightings))
                if gone:
                    await self._link.run(FORGET, self._members.id, *gone)
            except StoreUnavailable as error:
                self._lose(items + self._outbox, sightings, error)
                return
            sightings = []

    def _lose(self, items: list[tuple[Report, str]], sightings: list[Sighting], error: StoreUnavailable) -> None:
        """Nobody was told: what is known then is told when contact is back."""
        if not self._behind:
            _log.info("other nodes cannot be told of the agents' health until the store is back: %s", error)
        self._behind = True
        self._outbox = []
        for report, release in items:
            if release:
                self._trials.keep(report.agent_id)
        for sighting in sightings:
            self._active[sighting.agent_id] = None

    def _message(self, items: list[tuple[Report, str]], sightings: list[Sighting]) -> list[str | bytes | int]:
        me = self._members.id
        words: list[str | bytes | int] = [verdicts.encode(News(FORMAT, me, None, sightings)) if sightings else b""]
        for report, release in items:
            data = verdicts.encode(News(FORMAT, me, report))
            words += [report.agent_id, report.moved, report.stamp, report.url.hex(), data, release]
        return words

    def _sightings(self, now: float) -> list[Sighting]:
        """Give what is new of the calls to agents that somebody's calls fail at."""
        found = []
        for agent_id, told in [*self._active.items()]:
            watched = self._known(agent_id)
            if watched is None:
                del self._active[agent_id]
                continue
            traffic = watched.admission.traffic
            traffic.look(now)
            seen, totals = traffic.seen(now), traffic.totals()
            if seen != told and (seen != Seen(seen.answered) or told is not None):
                found.append(verdicts.sighting(watched, seen, self._times))
                self._active[agent_id] = seen
            if not totals.row and not totals.failures:
                del self._active[agent_id]
        return found

    # -- hearing

    def _hear(self, data: bytes) -> None:
        try:
            news = verdicts.read_news(data)
            if news.format != FORMAT or news.node == self._members.id:
                return
            if news.report is not None:
                self._take(news.report)
            for sighting in news.sightings:
                self._see(sighting, news.node)
        except msgspec.MsgspecError as error:  # a newer version's: there will be many
            level = logging.DEBUG if self._strange else logging.WARNING
            _log.log(level, "a message from another node could not be read, is its version another? %s", error)
            self._strange = True
        except Exception:
            _log.exception("a message from another node could not be taken")

    def _take(self, told: Report, *, over: bool = False) -> None:
        """Take over what is new in a report; `over`: it goes before what this node found alone."""
        monitor, watched = self._monitor, self._known(told.agent_id)
        self._last = max(self._last, told.stamp)
        if monitor is None or watched is None or not verdicts.is_about(told, watched):
            self._keep(told)
            return
        status, routing = watched.status, watched.routing
        if told.run is not None and verdicts.has_new_run(told, watched):
            verdicts.take_run(watched, told.run, self._times)
        elif verdicts.is_of_another_card(told, watched):
            self._keep(told)
        elif told.run is not None and told.run.ran < watched.versions.ran:
            verdicts.note_run(watched, told.run.record)
        if verdicts.is_news(told, watched) or (over and watched.versions.stamp < self._alone[1] * 1e6):
            verdicts.take_state(watched, told, self._times)
        if not self._joining:  # else that was before this node's time
            monitor.adopted(watched, status, routing, told.change, told.node)
        self._trials.settle(watched)

    def _keep(self, told: Report) -> None:
        """The registration that it is about may not be known here yet."""
        before = self._early.pop(told.agent_id, None)
        self._early[told.agent_id] = told if before is None or before.stamp < told.stamp else before
        if len(self._early) > _MOST_EARLY:
            self._early.popitem(last=False)

    def _see(self, told: Sighting, node: str) -> None:
        watched = self._known(told.agent_id)
        if watched is None or not verdicts.is_about(told, watched) or told.turned != watched.versions.turned:
            return
        self._active.setdefault(told.agent_id, None)
        watched.admission.hear(node, verdicts.seen_here(told.seen, self._times), self._now())

    def _known(self, agent_id: str) -> Watched | None:
        return None if self._monitor is None else self._monitor.known(agent_id)

    # -- nodes that come and go, outages

    def _nodes_changed(self, came: frozenset[str], went: frozenset[str]) -> None:
        if self._monitor is not None:
            self._monitor.reshare(lost=bool(went))

    def _joined(self) -> None:
        self._behind = True

    async def _replaced(self) -> None:
        self._behind = True

    def _jumped(self) -> None:
        """The cluster's time was another than this node thought: what it has taken over has wrong times."""
        self._behind = True
        self._alone = -inf, inf

    def _contact(self, last: float) -> None:
        self._behind = True
        self._alone = min(self._alone[0], self._times.there(last)), self._link.now()

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            if self._active:
                self._send.set()
            if self._behind and self._members.connected:
                try:
                    await self._catch_up()
                except Exception:
                    _log.exception("taking over what other nodes know failed")

    async def _catch_up(self) -> None:
        """Read what is kept in the store, and tell what is known better here."""
        monitor = self._monitor
        if monitor is None:
            return
        self._behind = False
        since = self._alone[0] * 1e6
        oldest = (self._link.now() - monitor.rules.memory_seconds) * 1e6
        kept: dict[str, tuple[int, int]] = {}
        with suppress(StoreUnavailable):
            cursor = b"0"
            while True:
                cursor, *found = await self._link.run(READ, cursor, _READ_AT_ONCE)
                for agent_id, entry in zip(found[::2], found[1::2], strict=True):
                    told = _read(entry)
                    kept[agent_id.decode()] = 0, 0
                    if told is not None and told.stamp > oldest:
                        self._take(told, over=told.stamp > since and told.node != self._members.id)
                        kept[told.agent_id] = told.moved, told.stamp
                if cursor == b"0":
                    break
            self._alone = inf, inf
            await self._tell_better(monitor, kept)
            return
        self._behind = True

    async def _tell_better(self, monitor: Monitor, kept: dict[str, tuple[int, int]]) -> None:
        """Of what is better known here, tell what this node has found or looks after: others have the rest."""
        for number, watched in enumerate(monitor.agents()):
            versions, agent_id = watched.versions, watched.agent.agent_id
            better = (versions.moved, versions.stamp) > kept.get(agent_id, (0, 0))
            if better and (versions.own or self.mine(agent_id)):
                self._queue(watched, 0.0)
            if number % _MOST_REPORTS == 0:
                await asyncio.sleep(0)
        self._gone += [agent_id for agent_id in kept if self._known(agent_id) is None]
        self._send_within(0.0)


def _read(entry: bytes) -> Report | None:
    try:
        news = verdicts.read_news(entry.partition(b"\n")[2])
    except msgspec.MsgspecError:  # a newer version's
        return None
    return news.report if news.format == FORMAT else None
