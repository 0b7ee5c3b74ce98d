"""Resolves host names in threads of its own.

Not in the loop's pool: a few hanging look-ups would block everybody else's, and the pool's threads are
joined at exit, while these may be left behind. Look-ups of one host at the same time share one thread.

A name server that does not answer holds a thread for as long as the C library likes, also when nobody waits any
more: what hangs gives up its place among the look-ups at a time, so that hosts of others are still found.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import threading
from functools import partial
from typing import Any, Final

from gateway.upstream.addresses import Address

_MOST: Final = 64  # look-ups at a time
_PROMPT_SECONDS: Final = 0.5  # what takes longer hangs, and is not counted among them
_HANGING: Final = 448  # threads more; with so many hanging, those after them keep their places

AddressInfo = tuple[int, int, int, str, Any]


class Resolver:
    """`getaddrinfo` for TCP. Belongs to one event loop."""

    __slots__ = ("_prompt", "_running", "_slots")

    def __init__(self) -> None:
        self._running: dict[tuple[str, int], asyncio.Future[list[AddressInfo]]] = {}
        self._prompt: set[tuple[str, int]] = set()  # holding a slot
        self._slots = asyncio.Semaphore(_MOST)

    async def __call__(self, host: str, port: int) -> list[AddressInfo]:
        """Resolve a host.

        Raises:
            OSError: `socket.gaierror`, or what the system call raised.
            UnicodeError: the host cannot be a DNS name.
        """
        key = (host, port)
        running = self._running.get(key)
        if running is None:
            await self._slots.acquire()
            running = self._running.get(key)
            if running is None:
                running = self._begin(key)
            else:
                self._slots.release()
        return await asyncio.shield(running)

    def _begin(self, key: tuple[str, int]) -> asyncio.Future[list[AddressInfo]]:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[list[AddressInfo]] = loop.create_future()
        overtime = loop.call_later(_PROMPT_SECONDS, self._hangs, key)
        result.add_done_callback(partial(self._end, key, overtime))
        self._running[key] = result
        self._prompt.add(key)
        try:
            threading.Thread(target=_look_up, args=(loop, result, *key), name="resolver", daemon=True).start()
        except RuntimeError as error:
            result.cancel()
            raise OSError(errno.EAGAIN, "no thread left") from error
        return result

    def _hangs(self, key: tuple[str, int]) -> None:
        if len(self._running) - len(self._prompt) < _HANGING:
            self._release(key)

    def _end(self, key: tuple[str, int], overtime: asyncio.TimerHandle, _: object) -> None:
        overtime.cancel()
        del self._running[key]
        self._release(key)

    def _release(self, key: tuple[str, int]) -> None:
        if key in self._prompt:
            self._prompt.remove(key)
            self._slots.release()


def _look_up(
    loop: asyncio.AbstractEventLoop, result: asyncio.Future[list[AddressInfo]], host: str, port: int
) -> None:
    found: list[AddressInfo] | Exception
    try:
        found = list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except Exception as error:  # handed to whoever waits
        found = error
    try:
        loop.call_soon_threadsafe(_tell, result, found)
    except RuntimeError:  # the loop was closed meanwhile: nobody waits any more
        return


def _tell(result: asyncio.Future[list[AddressInfo]], found: list[AddressInfo] | Exception) -> None:
    if result.cancelled():
        return
    if isinstance(found, Exception):
        result.set_exception(found)
        result.exception()  # all who waited may have left
    else:
        result.set_result(found)


def known(address: Address, port: int) -> AddressInfo:
    """Describe an address that needs no look-up, as `getaddrinfo` would."""
    if isinstance(address, ipaddress.IPv4Address):
        return (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (str(address), port))
    return (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (str(address), port, 0, 0))
