"""Self-doubt: is it the agents that fail, or is this node cut off, or overloaded (health contract 7)?

It goes by what this node has found itself as well as by all that is known: what other nodes find with their agents
says nothing of the way from here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from heapq import nsmallest
from typing import Final

from gateway.events import Events
from gateway.watched import Watched

#: It needs this many agents, and asks so many others before the third failure of one takes it out.
_ENOUGH: Final = 4
_WITNESSES: Final = 8
#: Of so many agents it is judged anew with each result that may matter; of ten times as many, with every tenth:
#: each judgement goes over all of them, and when a network fails there are as many results.
_AT_ONCE: Final = 500

_log: Final = logging.getLogger(__name__)


class Doubt:
    """Judges the node that judges."""

    def __init__(self, agents: Mapping[str, Watched], events: Events, timestamp: Callable[[], str]) -> None:
        """Trust at first; `agents` are all that are watched."""
        self._agents = agents
        self._events = events
        self._timestamp = timestamp
        self.suspects_itself = False
        self._asked = 0
        self._most_heard_fail = False

    def look(self, now: float, since: float) -> None:
        """Judge by the agents that were heard of since a time (seconds of the loop's clock), or that fail."""
        if self._judge(now, since):
            self._conclude(self._most_heard_fail)

    def must_hold(self, watched: Watched, now: float, since: float) -> bool:
        """Judge before an agent is taken out: True: it must not be.

        Those asked since its first failure know more of a sudden cut than those asked within two intervals.
        """
        asked = [one for one in self._agents.values() if one.checked >= watched.down_since]
        self._judge(now, since)
        self._conclude(self._most_heard_fail or _most_fail(asked))
        return self.suspects_itself

    def _judge(self, now: float, since: float) -> bool:
        """Judge by what was heard, if it is time to; see `_AT_ONCE`."""
        self._asked += 1
        if self._asked * _AT_ONCE < len(self._agents):
            return False
        self._asked = 0
        self._most_heard_fail = _most_fail(self._heard(now, since))
        return True

    def _heard(self, now: float, since: float) -> list[Watched]:
        for one in self._agents.values():
            one.admission.traffic.look(now)
        return [one for one in self._agents.values() if one.checked >= since or one.failing]

    def witnesses(self, watched: Watched, mine: Callable[[str], bool]) -> list[Watched]:
        """Give who is to be asked before a third failure: agents that have not been asked since the first."""
        if self.suspects_itself or len(self._agents) < _ENOUGH:
            return []
        others = (
            one
            for agent_id, one in self._agents.items()
            if not one.failing and one.checked < watched.down_since and mine(agent_id)
        )
        return nsmallest(_WITNESSES, others, key=lambda one: one.checked)

    def _conclude(self, doubt: bool) -> None:
        if doubt is self.suspects_itself:
            return
        self.suspects_itself = doubt
        self._events.publish("suspicion", {"suspects_itself": doubt, "at": self._timestamp()})
        if doubt:
            _log.error(
                "more than half of the agents fail: the gateway suspects its own network, name resolution or load;"
                " no agent is taken out of service until that is over"
            )
        else:
            _log.warning("the gateway trusts its health checks again")


def _most_fail(heard: list[Watched]) -> bool:
    return _more_than_half(heard) or _more_than_half([one for one in heard if one.checked_here])


def _more_than_half(heard: list[Watched]) -> bool:
    return len(heard) >= _ENOUGH and sum(one.failing for one in heard) * 2 > len(heard)
