"""One trial call at a time among all nodes: the right to it is asked of the store.

Only a call to an agent that is out of service, and whose time has come, asks; of those at a node one at a time.
The right ends when the node that has it says so, or dies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import inf
from typing import Final

from gateway.cluster_scripts import TRY
from gateway.members import Members
from gateway.watched import Watched
from registry.errors import StoreUnavailable
from registry.stores.redis.link import Link

ASK_SECONDS: Final = 0.25
"""A call waits so long for the store; then this node decides alone."""

_DENIED_SECONDS: Final = 1.0
#: The right ends after this time if nobody gives it back.
_LONGEST_MS: Final = 600_000

_log: Final = logging.getLogger(__name__)


class Trials:
    """The rights of this node."""

    def __init__(self, link: Link, members: Members, over: Callable[[Watched], None]) -> None:
        """Have none; `over` is called where a right must be given back by way of `gives_back`."""
        self._link = link
        self._members = members
        self._over = over
        self._loop = asyncio.get_running_loop()
        self._asking: set[str] = set()
        self._held: set[str] = set()
        self._denied: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Ask nobody any more."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def ask(self, watched: Watched, told: Callable[[bool, float], None]) -> None:
        """See `gateway.admission.Ask`."""
        agent_id, now = watched.agent.agent_id, self._loop.time()
        if agent_id in self._asking or self._denied.get(agent_id, -inf) > now:
            self._loop.call_soon(told, False, now)
        elif not self._members.connected:
            self._loop.call_soon(told, True, now)
        else:
            self._asking.add(agent_id)
            task = self._loop.create_task(self._ask(watched, told), name="trial call")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def gives_back(self, watched: Watched) -> bool:
        """Tell, once, whether the right is to be given back: no trial call is under way."""
        agent_id = watched.agent.agent_id
        if agent_id not in self._held or watched.admission.state.trying:
            return False
        self._held.discard(agent_id)
        return True

    def settle(self, watched: Watched) -> None:
        """Give the right back where no trial call is under way."""
        if watched.agent.agent_id in self._held and not watched.admission.state.trying:
            self._over(watched)

    def keep(self, agent_id: str) -> None:
        """The right could not be given back, or has just been got."""
        self._held.add(agent_id)

    def forget(self, agent_id: str) -> bool:
        """The agent is gone; True: this node had the right, which must be given back."""
        held = agent_id in self._held
        self._held.discard(agent_id)
        self._denied.pop(agent_id, None)
        return held

    async def _ask(self, watched: Watched, told: Callable[[bool, float], None]) -> None:
        agent_id, versions = watched.agent.agent_id, watched.versions
        step = self._link.run(TRY, agent_id, self._members.id, versions.moved, versions.stamp, _LONGEST_MS)
        answer = self._loop.create_task(step)
        try:
            await asyncio.wait([answer], timeout=ASK_SECONDS)
            late = not answer.done()
            may = None if late else _outcome(answer)
            if may:
                self.keep(agent_id)
            elif may is False:
                self._denied[agent_id] = self._loop.time() + _DENIED_SECONDS
            told(may is not False, self._loop.time())
            if late:
                await asyncio.wait([answer])
                if _outcome(answer):
                    self.keep(agent_id)
            self.settle(watched)
        except Exception:
            _log.exception("asking for a trial call to agent %s failed", agent_id)
        finally:
            answer.cancel()
            self._asking.discard(agent_id)


def _outcome(answer: asyncio.Task[object]) -> bool | None:
    """Whether the store allows it; None: it says nothing, and this node decides alone."""
    error = answer.exception()
    if error is None:
        return bool(answer.result())
    if not isinstance(error, StoreUnavailable):
        _log.error("the store cannot say who may send a trial call", exc_info=error)
    return None
