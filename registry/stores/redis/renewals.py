"""Heartbeats in bulk: what comes during one step is the next; other nodes hear of them four times a second."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from registry.errors import StoreUnavailable
from registry.stores.redis import scripts
from registry.stores.redis.link import Link
from registry.stores.redis.mirror import Mirror, Term, owner_text

ANNOUNCE_SECONDS: Final = 0.25
MOST: Final = 200
"""Renewals in one step."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Asked:
    agent_id: str
    ttl: int  # microseconds
    owner: str
    answer: asyncio.Future[Term | str]


class Renewals:
    """The renewals of one node."""

    def __init__(self, link: Link, mirror: Mirror) -> None:
        self._link = link
        self._mirror = mirror
        self._asked: list[_Asked] = []
        self._step: asyncio.Task[None] | None = None
        self._news: dict[str, Term] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._saying: asyncio.Task[None] | None = None

    async def renew(self, agent_id: str, ttl: int, principal: str | None) -> Term | str:
        """Renews one lease, for `ttl` microseconds; "forbidden", or "" if there is no such agent.

        Raises:
            StoreUnavailable: not renewed.
        """
        answer: asyncio.Future[Term | str] = asyncio.get_running_loop().create_future()
        self._asked.append(_Asked(agent_id, ttl, owner_text(principal), answer))
        if self._step is None:
            self._step = asyncio.create_task(self._work(), name="registry renewals")
        return await answer

    async def close(self) -> None:
        """Says what is not said yet, if it can."""
        if self._timer is not None:
            self._timer.cancel()
            self._say()
        for task in (self._step, self._saying):
            if task is not None:
                await asyncio.wait([task])

    async def _work(self) -> None:
        try:
            while self._asked:
                asked, self._asked = self._asked[:MOST], self._asked[MOST:]
                await self._renew(asked)
        finally:
            self._step = None

    async def _renew(self, asked: list[_Asked]) -> None:
        words = [word for one in asked for word in (one.agent_id, one.owner, one.ttl)]
        try:
            answers = await self._link.run(scripts.RENEW, *words)
            outcomes = [self._renewed(one, answer.decode()) for one, answer in zip(asked, answers, strict=True)]
        except Exception as error:
            waiting, self._asked = self._asked, []  # not one second each
            for one in (*asked, *waiting):
                if not one.answer.done():
                    one.answer.set_exception(_copied(error))
            return
        for one, outcome in zip(asked, outcomes, strict=True):
            if not one.answer.done():
                one.answer.set_result(outcome)

    def _renewed(self, asked: _Asked, answer: str) -> Term | str:
        if answer in ("", "forbidden"):
            return answer
        number, end, seen = map(int, answer.split(" "))
        term = Term(number, end, seen, asked.ttl)
        self._mirror.renewed(asked.agent_id, term)
        self._news[asked.agent_id] = term
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(ANNOUNCE_SECONDS, self._say)
        return term

    def _say(self) -> None:
        self._timer = None
        news, self._news = self._news, {}
        lines = "\n".join(" ".join(map(str, (agent_id, *term))) for agent_id, term in news.items())
        self._saying = asyncio.create_task(self._announce(lines), name="registry announcement")

    async def _announce(self, lines: str) -> None:
        try:
            await self._link.run(scripts.ANNOUNCE, lines)
        except StoreUnavailable as error:
            _log.debug("renewals not announced: %s", error)  # whoever thinks a lease is over asks the store


def _copied(error: Exception) -> Exception:
    """For one of several that wait: each raises its own."""
    return StoreUnavailable(str(error)) if isinstance(error, StoreUnavailable) else RuntimeError(repr(error))
