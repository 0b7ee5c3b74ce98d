"""Keys of an identity provider, fetched and kept up to date (contract 6.1, `auth.jwks_url`).

The set is fetched at the start, every ten minutes, so that withdrawn keys go, and when a token names a key that
is not in it: by one fetch for all who ask, at most once in thirty seconds. A fetch that fails changes nothing:
tokens of known keys go on working, and never wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

import httpx

from gateway.keys import Key, KeySet, UnusableKeyError, read_key_set

logger = logging.getLogger(__name__)

COOLDOWN_SECONDS: Final = 30.0
LIFETIME_SECONDS: Final = 600.0
FETCH_SECONDS: Final = 5.0
FIRST_RETRY_SECONDS: Final = 1.0
"""While there is no set at all, the time to the next try begins here and doubles up to the cooldown."""
LARGEST_SET: Final = 256 * 1024  # bytes
#: A token that names no key is tried with as many at most.
MOST_TRIED: Final = 8


class JwksKeys:
    """The keys behind a URL. Use it from one event loop, between `start` and `aclose`."""

    def __init__(self, url: str, transport: httpx.AsyncBaseTransport, *, wanted: Collection[str] = ()) -> None:
        """Nothing is fetched before `start`.

        Args:
            url: `auth.jwks_url`.
            transport: Makes the connections; belongs to the caller.
            wanted: The algorithms to use keys for; none: all.
        """
        self._url = url
        self._client = httpx.AsyncClient(
            transport=transport, timeout=FETCH_SECONDS, follow_redirects=False, trust_env=False
        )
        self._wanted = wanted
        self._document = b""
        self._keys: KeySet = {}
        self._listeners: list[Callable[[], None]] = []
        self._fetching: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._next = 0.0
        self._failing = False
        self.fetches = 0

    def start(self) -> None:
        """Begin to fetch, and keep the set fresh."""
        self._keeping = asyncio.create_task(self._keep(), name="jwks")

    async def aclose(self) -> None:
        """Stop fetching."""
        tasks = [task for task in (self._keeping, self._fetching) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back when the set has changed."""
        self._listeners.append(callback)

    def find(self, kid: str | None, algorithm: str) -> Sequence[Key] | None:
        """Give the keys that a token may be signed with; None if the key it names is not in the set."""
        if kid is not None:
            named = self._keys.get(kid)
            return named and [key for key in named if algorithm in key.algorithms]
        fitting = [key for keys in self._keys.values() for key in keys if algorithm in key.algorithms]
        return fitting[:MOST_TRIED] or None

    async def refresh(self) -> bool:
        """See whether the set has changed, because a key is not in it: True if it has.

        Returns at once while the last fetch is no `COOLDOWN_SECONDS` old.
        """
        if self._fetching is None and asyncio.get_running_loop().time() < self._next:
            return False
        before = self._document
        await asyncio.wait([self._fetch()])
        return self._document != before

    def _fetch(self) -> asyncio.Task[None]:
        if self._fetching is None:
            self._next = asyncio.get_running_loop().time() + COOLDOWN_SECONDS
            self._fetching = asyncio.create_task(self._update(), name="jwks fetch")
            self._fetching.add_done_callback(self._fetched)
        return self._fetching

    def _fetched(self, _task: asyncio.Task[None]) -> None:
        self._fetching = None

    async def _keep(self) -> None:
        pause = FIRST_RETRY_SECONDS
        while True:
            await asyncio.wait([self._fetch()])
            await asyncio.sleep(LIFETIME_SECONDS if self._keys else pause)
            pause = min(pause * 2, COOLDOWN_SECONDS)

    async def _update(self) -> None:
        """Fetch the set and take it, if it is one; the edge where everything that may go wrong is judged."""
        self.fetches += 1
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                document = await self._read()
            keys = self._keys if document == self._document else read_key_set(document, self._wanted)
        except UnusableKeyError as error:
            self._failed(str(error))
        except TimeoutError:
            self._failed(f"no answer within {FETCH_SECONDS:g} s")
        except Exception as error:  # whatever a strange server makes the libraries raise
            self._failed(str(error) if isinstance(error, httpx.TransportError) else type(error).__name__)
        else:
            self._take(document, keys)

    async def _read(self) -> bytes:
        async with self._client.stream("GET", self._url, headers={"Accept": "application/json"}) as response:
            if response.status_code != 200:
                raise UnusableKeyError(f"HTTP {response.status_code}")
            document = bytearray()
            async for piece in response.aiter_raw():
                document += piece
                if len(document) > LARGEST_SET:
                    raise UnusableKeyError(f"larger than {LARGEST_SET} bytes")
        return bytes(document)

    def _take(self, document: bytes, keys: KeySet) -> None:
        if self._failing or not self._document:
            logger.info("key set fetched: %d keys", sum(len(same) for same in keys.values()))
        self._failing = False
        if document != self._document:
            self._document, self._keys = document, keys
            for callback in self._listeners:
                callback()

    def _failed(self, why: str) -> None:
        if not self._failing:
            what = "tokens of known keys go on working" if self._keys else "no token can be accepted"
            logger.warning("the key set cannot be fetched, %s: %s", what, why)
        self._failing = True
