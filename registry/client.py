"""For authors of agents: keeps an agent registered at a gateway (contract 5.1 to 5.3).

    async with Membership("http://127.0.0.1:9090", card, agent_id="my-agent", url="http://127.0.0.1:8000/"):
        ...  # serve

A task in the background registers the agent, sends heartbeats well within the TTL that the gateway names, and
registers again when the gateway does not know the agent any more. Whatever goes wrong is reported, once, and tried
again after a pause that grows. At the end of the block the agent is deregistered.

`Membership.lifespan` fits `Starlette(lifespan=...)`; `Membership.in_thread` is for agents without an event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import httpx

from registry.client_card import registration
from registry.client_gateway import (
    AwayError,
    ForgottenError,
    Gateway,
    RefusedError,
    Token,
    base_url,
    in_a_line,
    new_client,
)

__all__ = ["Change", "Membership", "RefusedError", "State", "Token"]

logger = logging.getLogger(__name__)

BEATS_PER_TTL: Final = 3
LONGEST_INTERVAL: Final = 60.0
"""Seconds between two heartbeats at most, whatever the TTL."""
FIRST_PAUSE: Final = 0.1
"""Seconds before something is tried again; doubled after each failure."""
LONGEST_PAUSE: Final = 10.0
"""While the gateway is away; less where heartbeats come more often."""
LONGEST_REFUSED_PAUSE: Final = 60.0

_SHORTEST_INTERVAL: Final = 0.01


class State(enum.Enum):
    """How an agent stands with its gateway."""

    REGISTERED = "registered"
    UNAVAILABLE = "unavailable"
    """The gateway cannot be reached, or asks for patience; a registration that was there may last meanwhile."""
    FORGOTTEN = "forgotten"
    """The gateway does not know the agent any more; it registers again at once."""
    REFUSED = "refused"
    """The gateway does not take the agent: whoever runs it must act. It is tried again all the same."""
    LEFT = "left"
    """Deregistered."""
    LINGERING = "lingering"
    """The gateway could not be told of the leave: the registration will expire."""


_DECIDED: Final = (State.REGISTERED, State.REFUSED)


@dataclass(frozen=True, slots=True)
class Change:
    """What has become of a registration; `reason` is one line, and holds no token."""

    state: State
    agent_id: str
    gateway: str
    reason: str = ""

    def __str__(self) -> str:
        said = f"agent {self.agent_id} at {self.gateway}: {self.state.value}"
        return f"{said} ({self.reason})" if self.reason else said


def _log(change: Change) -> None:
    fine = change.state in (State.REGISTERED, State.LEFT)
    logger.log(logging.INFO if fine else logging.WARNING, "%s", change)


class Membership:
    """Keeps one agent registered at one gateway for as long as an `async with` block lasts.

    The block is entered at once, whether the gateway is there or not; `registered` waits for it. It may be entered
    again after it was left, but not twice at a time.

    Args:
        gateway: base URL, such as ``http://127.0.0.1:9090``.
        card: the agent card: a mapping, or a card object of the a2a-sdk (protobuf or pydantic).
        agent_id: id to register as, unless the card has a member `agent_id`.
        url: where the gateway reaches the agent, unless the card says so.
        token: shown as bearer token; or a function, or coroutine function, that is asked before each request.
        told: called with every change, from the event loop, and must not block; by default changes are logged.
        client: used instead of a client of our own, and not closed: for proxies, private CAs and the like.
        leave_seconds: how long the end of the block may take; 0: the agent is not deregistered.

    Raises:
        ValueError: the gateway's URL or the card cannot be right; the text says why.
    """

    def __init__(
        self,
        gateway: str,
        card: Mapping[str, Any] | object,
        *,
        agent_id: str | None = None,
        url: str | None = None,
        token: Token | None = None,
        told: Callable[[Change], None] = _log,
        client: httpx.AsyncClient | None = None,
        leave_seconds: float = 3.0,
    ) -> None:
        self.gateway = base_url(gateway)
        self.agent_id, self._document = registration(card, agent_id, url)
        self._token = token
        self._told = told
        self._client = client
        self._leave_seconds = leave_seconds
        self._active = False
        self._waiters: set[asyncio.Future[None]] = set()
        self._reset()

    def _reset(self) -> None:
        self._last: Change | None = None
        self._stop = asyncio.Event()
        self._sent = False  # the gateway may know the agent
        self._known = False  # and has said so
        self._failures = 0
        self._interval = LONGEST_PAUSE

    @property
    def state(self) -> State | None:
        """How it stands; None before the first word."""
        return None if self._last is None else self._last.state

    async def registered(self) -> None:
        """Wait until the agent is registered, for as long as the gateway is away; in the event loop of the block.

        Raises:
            RefusedError: the gateway does not take it.
        """
        while self._last is None or self._last.state not in _DECIDED:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)
        if self._last.state is State.REFUSED:
            raise RefusedError(self._last.reason)

    async def __aenter__(self) -> Self:
        self._claim()
        self._reset()
        self._http = self._client or new_client()
        self._gateway = Gateway(self.gateway, self._token, self._http)
        self._task = asyncio.create_task(self._stay(), name=f"membership of {self.agent_id}")
        return self

    async def __aexit__(self, *_: object) -> None:
        end = asyncio.get_running_loop().time() + self._leave_seconds
        self._stop.set()
        try:
            # A registration that is under way and then cut off could overtake the leave: it may finish.
            await asyncio.wait((self._task,), timeout=self._leave_seconds / 2)
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=max(self._leave_seconds / 4, 0.1))
            if self._sent and self._leave_seconds > 0:
                await self._leave(end)
        finally:
            self._task.cancel()
            self._active = False
            if self._client is None:
                await self._http.aclose()

    def _claim(self) -> None:
        if self._active:
            raise RuntimeError(f"agent {self.agent_id} is being kept registered already")
        self._active = True

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: object = None) -> AsyncIterator[None]:
        """The same as a lifespan: ``Starlette(routes=..., lifespan=membership.lifespan)``."""
        async with self:
            yield

    @contextlib.contextmanager
    def in_thread(self) -> Iterator[None]:
        """The same for agents without an event loop: it gets one in a thread, where changes are told too."""
        loop, ended, entered = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
        failures: list[BaseException] = []

        async def stay() -> None:
            async with self:
                entered.set()
                await ended.wait()

        def work() -> None:
            try:
                with asyncio.Runner(loop_factory=lambda: loop) as runner:
                    runner.run(stay())
            except BaseException as error:
                failures.append(error)
            finally:
                entered.set()

        thread = threading.Thread(target=work, name=f"membership of {self.agent_id}", daemon=True)
        thread.start()
        entered.wait()
        if failures:
            raise failures[0]
        try:
            yield
        finally:
            with contextlib.suppress(RuntimeError):  # the loop has closed already
                loop.call_soon_threadsafe(ended.set)
            thread.join(self._leave_seconds + 1)

    # -- the life of a registration

    async def _stay(self) -> None:
        while not self._stop.is_set():
            seconds = await self._step()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stop.wait()

    async def _step(self) -> float:
        """Do what is next; give the seconds until the step after it."""
        try:
            if not self._known:
                await self._register()
            self._interval = interval(await self._gateway.beat(self.agent_id))
        except ForgottenError:
            self._known = False
            return self._failed(State.FORGOTTEN, "", LONGEST_PAUSE)
        except RefusedError as refusal:
            return self._failed(State.REFUSED, str(refusal), LONGEST_REFUSED_PAUSE)
        except AwayError as error:
            seconds = self._failed(State.UNAVAILABLE, str(error), min(LONGEST_PAUSE, self._interval))
            return max(seconds, error.wait)
        except Exception as error:  # nothing may end the loop: the agent would be lost without a word
            logger.exception("keeping agent %s registered failed", self.agent_id)
            return self._failed(State.UNAVAILABLE, in_a_line(error), LONGEST_REFUSED_PAUSE)
        self._failures = 0
        self._tell(State.REGISTERED)
        return self._interval * random.uniform(0.8, 1.0)  # noqa: S311 - to be spread, not to be secret

    async def _register(self) -> None:
        self._sent = True
        try:
            await self._gateway.register(self._document)
        except RefusedError:
            self._sent = False
            raise
        self._known = True
        self._tell(State.REGISTERED)

    async def _leave(self, end: float) -> None:
        """Deregister by then, on the event loop's clock; a second try is for a connection that broke."""
        reason = ""
        for _ in range(2):
            try:
                async with asyncio.timeout_at(end):
                    await self._gateway.leave(self.agent_id)
                self._tell(State.LEFT)
                return
            except (AwayError, RefusedError) as error:
                reason = str(error)
            except TimeoutError:
                reason = f"no answer within {self._leave_seconds:g} s"
            except Exception as error:  # the author's client; what the block itself raised must not be lost for it
                reason = in_a_line(error)
        self._tell(State.LINGERING, reason)

    def _failed(self, state: State, reason: str, longest: float) -> float:
        self._failures += 1
        self._tell(state, reason)
        return pause(self._failures, longest)

    def _tell(self, state: State, reason: str = "") -> None:
        """Report a change, and the same thing only once."""
        change = Change(state, self.agent_id, self.gateway, reason)
        if change == self._last:
            return
        self._last = change
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        try:
            self._told(change)
        except Exception:  # the author's function; it must not cost the registration
            logger.exception("the function that is told of %s failed", change)


def interval(ttl_seconds: float) -> float:
    """Give the seconds between two heartbeats, of which up to a fifth is taken off so that they spread."""
    return min(max(ttl_seconds / BEATS_PER_TTL, _SHORTEST_INTERVAL), LONGEST_INTERVAL)


def pause(failures: int, longest: float) -> float:
    """Give the seconds to wait after so many failures in a row, spread so that agents do not come back in step."""
    grown: float = FIRST_PAUSE * 2 ** min(failures - 1, 16)
    return min(grown, max(longest, FIRST_PAUSE)) * random.uniform(0.5, 1.0)  # noqa: S311 - as above
