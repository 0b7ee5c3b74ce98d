"""registry.lookups: asking the shared store about unknown agents, bounded."""

from __future__ import annotations

import asyncio

from registry.errors import StoreUnavailable
from registry.lookups import MISS_SECONDS, MOST_AT_ONCE, MOST_MISSES, Lookups
from tests.fakes.clock import ManualClock


class Asked:
    """A store that answers when it is told."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.answer = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self, agent_id: str) -> None:
        self.ids.append(agent_id)
        await self.answer.wait()
        if self.error is not None:
            raise self.error


async def test_those_who_look_at_once_share_one_question() -> None:
    asked, clock = Asked(), ManualClock()
    lookups = Lookups(asked, clock.clock.monotonic)
    looking = asyncio.gather(*(lookups.look("a1") for _ in range(10)))
    await asyncio.sleep(0)
    asked.answer.set()
    await looking
    assert asked.ids == ["a1"]


async def test_one_who_leaves_does_not_take_the_answer_from_the_others() -> None:
    asked, clock = Asked(), ManualClock()
    lookups = Lookups(asked, clock.clock.monotonic)
    left, stays = asyncio.ensure_future(lookups.look("a1")), asyncio.ensure_future(lookups.look("a1"))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.wait([left])
    assert not stays.done()
    asked.answer.set()
    await stays
    assert asked.ids == ["a1"]


async def test_a_miss_is_remembered_for_a_while() -> None:
    asked, clock = Asked(), ManualClock()
    asked.answer.set()
    lookups = Lookups(asked, clock.clock.monotonic)
    for _ in range(3):
        await lookups.look("a1")
    clock.tick(MISS_SECONDS)
    await lookups.look("a1")
    assert asked.ids == ["a1", "a1"]


async def test_so_many_at_once_and_so_many_misses_at_most() -> None:
    """Whoever calls random ids can neither flood the store nor fill the memory."""
    asked, clock = Asked(), ManualClock()
    lookups = Lookups(asked, clock.clock.monotonic)
    looking = [asyncio.ensure_future(lookups.look(f"a{number}")) for number in range(2 * MOST_AT_ONCE)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(asked.ids) == MOST_AT_ONCE
    asked.answer.set()
    await asyncio.gather(*looking)
    for number in range(2 * MOST_MISSES):
        await lookups.look(f"b{number}")
    assert len(lookups._misses) <= MOST_MISSES


async def test_a_store_that_is_out_is_a_miss() -> None:
    asked, clock = Asked(), ManualClock()
    asked.answer.set()
    asked.error = StoreUnavailable("out")
    await Lookups(asked, clock.clock.monotonic).look("a1")


async def test_closing_ends_what_is_under_way() -> None:
    asked, clock = Asked(), ManualClock()
    lookups = Lookups(asked, clock.clock.monotonic)
    looking = asyncio.ensure_future(lookups.look("a1"))
    await asyncio.sleep(0)
    lookups.close()
    await asyncio.wait_for(looking, 5)
