"""The link to Redis or Valkey that all cluster features share: atomic steps, cluster time, messages.

**Cluster time** is the server's clock plus an offset kept beside the data, so that all nodes agree about leases
whatever their own clocks say. Every step carries the sender's idea of cluster time and does nothing where that
is off: a command that lay in a buffer while its sender had long given up must not take effect (pitfall 164), and
a server whose clock jumped (NTP, failover, a restored machine) must not expire anybody. Whoever notices asks
again and mends the offset if the server jumped, or its own idea if it was wrong.

**The data set** bears a random token and a version that only grows. A server that was emptied or replaced has no
token or another; one that forgot its last changes (a failover, a restart with older data) has a lower version
than a node knows of, and gets a new token; so does one that was started anew since, when a node joins that knows
nothing, and whose changes would hide what is lacking. Then the callbacks of `on_replaced` put back what this node
knows before any other step of it runs.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

from registry.clock import Clock
from registry.errors import StoreError, StoreUnavailable
from registry.redis_url import read_address
from registry.stores.redis.connections import Connections, Disconnected, UnknownScript
from registry.stores.redis.jumps import TOLERANCE_SECONDS, server_jumped
from registry.stores.redis.listener import Listener
from registry.stores.redis.script import DONE, OFF, STRANGE, Script
from registry.stores.redis.server import COMMANDS, RIGHTS, check_rights, check_server, run_id

_LATE: Final = 0.9  # of the deadline
_TIGHT: Final = 0.05
_STALL_SECONDS: Final = 0.2
_NONE: Final = "-"  # no data set bears this token: the next step finds out again
_GONE: Final = "its data is gone and is being put back"

_log = logging.getLogger(__name__)

_IDENTIFY: Final = Script(
    "identify",
    """
local key, known, run = p .. 'store', tonumber(a[2]), a[3]
local had = redis.call('HMGET', key, 'token', 'version', 'run')
if not had[1] or (number(had[2]) or 0) < known or (had[3] and had[3] ~= run) then
  redis.call('HSET', key, 'token', a[1], 'format', 1, 'born', text(now), 'version', text(math.max(known, now)))
end
redis.call('HSET', key, 'run', run)
return {redis.call('HGET', key, 'token'), redis.call('HGET', key, 'format')}
""",
)
_TIMES: Final = Script(
    "times",
    """
local forgot = (number(redis.call('HGET', p .. 'store', 'version')) or 0) < known
local contact = not forgot and number(redis.call('GET', p .. 'contact')) or 0
return {redis.call('GET', p .. 'clock') or '', offset, contact}
""",
)
_MOVE_CLOCK: Final = Script(
    "move clock",
    """
if (redis.call('GET', p .. 'clock') or '') ~= a[1] then return 0 end
redis.call('SET', p .. 'clock', a[2])
return 1
""",
)
_FORMAT: Final = 1


class Link:
    """Use it from one event loop, between `open` and `close`."""

    def __init__(self, url: str, prefix: str, clock: Clock, *, timeout: float = 1.0) -> None:
        """Nothing is touched before `open`.

        Args:
            url: redis://, rediss:// or redis+sentinel://, see `registry.redis_url`.
            prefix: what the names of all keys and channels begin with.
            clock: its monotonic clock carries cluster time on between two contacts.
            timeout: seconds that one step may take, reconnecting included.

        Raises:
            StoreError: the URL is malformed.
        """
        try:
            self._address = read_address(url)
        except ValueError as error:
            raise StoreError(f"registry.url: {error}") from None
        self._prefix = prefix
        self._timeout = timeout
        self._monotonic = clock.monotonic
        self._connections = Connections(self._address, timeout)
        self._anchor: tuple[float, float] | None = None  # monotonic, cluster
        self._token = ""
        self._listener = Listener(self._connections, self._address.shown, timeout)
        self._known: Callable[[], int] = lambda: 0
        self._replaced: list[Callable[[], Awaitable[None]]] = []
        self._jumped: list[Callable[[], None]] = []
        self._rebuilding: asyncio.Task[None] | None = None
        self._owing = False  # the data could not be put back yet, and this was told
        self._open = False
        self.commands = 0
        """Commands sent so far."""

    @property
    def shown(self) -> str:
        """The URL without passwords."""
        return self._address.shown

    # -- life

    async def open(self) -> None:
        """Connects, agrees about the time, and joins the channels.

        Raises:
            StoreError: one line that says what to do; no password in it.
        """
        if self._open:
            return
        try:
            async with asyncio.timeout(2 * self._timeout):
                await check_server(self._command, self.shown)
                await self._sync()
                check_rights(await self._run(RIGHTS, COMMANDS, token=""))
                token, form = await self._identify()
        except (StoreUnavailable, TimeoutError) as error:
            await self.close()
            raise StoreError(f"registry store {self.shown}: {str(error) or 'no answer in time'}") from error
        if int(form) > _FORMAT:
            await self.close()
            raise StoreError(
                f"registry store {self.shown}: its data has format {int(form)}, this version reads "
                f"{_FORMAT}: install a newer one, or set another registry.key_prefix"
            )
        self._token = token.decode()
        self._open = True
        try:
            await self._listener.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Lets go of everything; may be called twice, and after a failed `open`."""
        self._open = False
        await self._listener.stop()
        if (task := self._rebuilding) is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._connections.close()

    def knows(self, version: Callable[[], int]) -> None:
        """Sets what tells the latest version of the data that this node has heard of."""
        self._known = version

    def on_replaced(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Calls back when the server's data turned out to be another set: put back what this node knows.

        It runs before any other step of this node; it uses `run_first` for its own.
        """
        self._replaced.append(callback)

    def on_jump(self, callback: Callable[[], None]) -> None:
        """Calls back when this node's idea of cluster time was wrong: what `local` gave before is void."""
        self._jumped.append(callback)

    # -- names and time

    def key(self, name: str) -> str:
        """A key or channel under the prefix."""
        return self._prefix + name

    def now(self) -> float:
        """Cluster time in seconds, as well as it is known here."""
        return self.cluster(self._monotonic())

    def local(self, cluster_seconds: float) -> float:
        """A moment of cluster time on this process's monotonic clock."""
        monotonic, cluster = self._anchored()
        return monotonic + (cluster_seconds - cluster)

    def cluster(self, monotonic: float) -> float:
        """A moment of this process's monotonic clock in cluster time."""
        anchor, cluster = self._anchored()
        return cluster + (monotonic - anchor)

    def _anchored(self) -> tuple[float, float]:
        if self._anchor is None:
            raise StoreUnavailable("the store is not open")
        return self._anchor

    # -- steps

    async def run(self, script: Script, *args: str | bytes | int) -> Any:
        """One atomic step; gives what its source returned.

        Raises:
            StoreUnavailable: nothing was changed; sending again later is safe. (After a connection that broke
                before the answer, or an answer that came too late, this is likely, not certain: steps must bear
                being sent twice.)
        """
        self._check_open()
        if self._rebuilding is None:
            try:
                return await self._bounded(script, args)
            except _Strange:
                self._rebuild()
        await self._rebuilt()
        return await self.run_first(script, *args)

    async def run_first(self, script: Script, *args: str | bytes | int) -> Any:
        """The same for those who put the data back: does not wait for them."""
        self._check_open()
        try:
            return await self._bounded(script, args)
        except _Strange:
            self._rebuild()
            raise StoreUnavailable(f"registry store {self.shown}: {_GONE}") from None

    async def _bounded(self, script: Script, args: tuple[str | bytes | int, ...], *, again: bool = False) -> Any:
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._timeout
        try:
            async with asyncio.timeout_at(ends):
                return await self._run(script, args, token=self._token)
        except TimeoutError:
            await self._connections.forget()
            if loop.time() > ends + _STALL_SECONDS and not again:  # it was this process that stood still
                return await self._bounded(script, args, again=True)
            raise StoreUnavailable(f"registry store {self.shown}: no answer in time") from None
        except StoreUnavailable as error:
            raise StoreUnavailable(f"registry store {self.shown}: {error}") from error.__cause__

    async def _run(self, script: Script, args: tuple[str | bytes | int, ...], *, token: str) -> Any:
        for _ in range(3):
            status, _, *result = await self._evaluate(script, args, token, timed=True)
            if status == DONE:
                return result[0] if result else None
            if status == STRANGE:
                raise _Strange
            await self._sync()
        raise StoreUnavailable("its clock does not settle")

    async def _evaluate(
        self, script: Script, args: tuple[str | bytes | int, ...], token: str, *, timed: bool
    ) -> list[Any]:
        began = self._monotonic()
        limits: tuple[str | bytes | int, ...] = (
            (_micros(self.now()), _micros(self._timeout * _LATE), _micros(-TOLERANCE_SECONDS))
            if timed
            else (0, 0, 0)
        )
        words = (0, self._prefix, *limits, token, self._known(), *args)
        try:
            reply = await self._command("EVALSHA", script.sha, *words)
        except UnknownScript:
            reply = await self._command("EVAL", script.source, *words)
        if not isinstance(reply, list):
            raise StoreUnavailable("its answer is not that of a Redis or Valkey")
        if timed and reply[0] != OFF:
            self._keep_time(reply[1] / 1e6, began)
        return reply

    async def _command(self, *words: str | bytes | int) -> Any:
        """Once more after a broken connection: idle ones break unnoticed when a server restarts."""
        self.commands += 1
        try:
            return await self._connections.command(*words)
        except Disconnected:
            await self._connections.forget()
            return await self._connections.command(*words)

    def _check_open(self) -> None:
        if not self._open:
            raise StoreUnavailable(f"registry store {self.shown} is not open")

    # -- time

    def _keep_time(self, cluster: float, began: float) -> None:
        """An answer came: `cluster` was the time when the server wrote it, between `began` and now.

        The idea stays if it is possible and tight; else it is set to the earliest that is possible: an idea that
        lags makes steps fail sooner, one that runs ahead would let them take effect after their caller gave up.
        """
        here = self._monotonic()
        if self._anchor is None or not 0 <= self.cluster(here) - cluster <= min(here - began, _TIGHT):
            self._anchor = here, cluster

    async def _sync(self) -> None:
        """Finds out the time after a step was refused for it, or at the start."""
        for _ in range(3):
            _, measured, (clock, offset, contact) = await self._evaluate(_TIMES, (), "", timed=False)
            measured = measured / 1e6
            idea = None if self._anchor is None else self.now()
            if idea is not None and abs(idea - measured) <= TOLERANCE_SECONDS:
                self._anchor = self._monotonic(), measured
                return
            goal = server_jumped(idea, measured, contact / 1e6)
            if goal is None:
                self._adopt(measured)
                return
            moved = _micros(goal - measured) + offset
            await self._evaluate(_MOVE_CLOCK, (clock, moved), "", timed=False)
            _log.warning(
                "registry store %s: its clock jumped by %.1f s, leases go on", self.shown, measured - goal
            )
            self._anchor = self._anchor or (self._monotonic(), goal)

    def _adopt(self, measured: float) -> None:
        news = self._anchor is not None
        self._anchor = self._monotonic(), measured
        for callback in self._jumped if news else ():
            callback()

    # -- another data set

    async def _identify(self) -> tuple[bytes, bytes]:
        run = await run_id(self._command)
        token, form = await self._run(_IDENTIFY, (secrets.token_hex(8), self._known(), run), token="")
        return token, form

    def _rebuild(self) -> None:
        if self._rebuilding is None:
            self._rebuilding = asyncio.create_task(self._put_back(), name="registry rebuild")
            self._rebuilding.add_done_callback(self._rebuild_done)

    async def _put_back(self) -> None:
        async with asyncio.timeout(self._timeout):
            token, _ = await self._identify()
        self._token = token.decode()
        if not self._owing:
            _log.warning(
                "registry store %s was emptied, or restarted, or forgot its last changes: "
                "putting back what this node knows",
                self.shown,
            )
        for callback in self._replaced:
            await callback()

    def _rebuild_done(self, task: asyncio.Task[None]) -> None:
        self._rebuilding = None
        if task.cancelled() or (error := task.exception()) is None:
            self._owing = False
            return
        self._token = _NONE
        if isinstance(error, StoreUnavailable | TimeoutError):
            if not self._owing:
                _log.warning("registry store %s: could not put the data back yet: %s", self.shown, error)
        else:
            _log.error("registry store %s: putting the data back failed", self.shown, exc_info=error)
        self._owing = True

    async def _rebuilt(self) -> None:
        task = self._rebuilding
        if task is not None:
            await asyncio.wait([task], timeout=self._timeout)
            if not task.done():
                raise StoreUnavailable(f"registry store {self.shown}: {_GONE}")

    # -- messages

    def subscribe(self, channel: str, heard: Callable[[bytes], None], joined: Callable[[], None]) -> None:
        """Hears what is published on a channel; to be called before `open`.

        Args:
            channel: its name without the prefix.
            heard: gets every message, in order.
            joined: called after each (new) start of listening: what was said before is lost.
        """
        self._listener.add(self.key(channel), heard, joined)


class _Strange(Exception):
    """The server's data is not the set that this node knows."""


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)
