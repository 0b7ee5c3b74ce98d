"""A gateway in a thread of its own, for tests whose clients wait for answers."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tests.fakes.issuer import SECRET
from tests.fakes.running import Running, running


class Beside:
    """Serves while the block runs; gives the API's base URL. `JWT_SECRET` is set in its environment."""

    def __init__(self, **sections: Any) -> None:
        self._sections = sections
        self._started: Future[str] = Future()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    _gateway: Running

    def __enter__(self) -> str:
        self._thread.start()
        return self._started.result(20)

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)

    @property
    def log(self) -> Path:
        return self._gateway.log

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        async with running(environ={"JWT_SECRET": SECRET}, **self._sections) as gateway:
            self._gateway = gateway
            self._started.set_result(gateway.api)
            await self._stop.wait()
