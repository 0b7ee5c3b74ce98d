"""What is seen of the network while one exchange runs: steps, their times, the certificate, the first byte.

A transport that can report this finds the `Trace` in the request's extension `TRACE`; one that cannot leaves
it alone, and the result then holds only what is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from healthcheck.model import Measurement, Status

TRACE = "healthcheck.trace"
_TIMING_OF_STEP = {"dns": "dns", "tcp": "connect", "tls": "tls"}


class Trace:
    """A notebook for one attempt; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._steps: dict[str, Status] = {}
        self._timings: dict[str, float] = {}
        self._expires: str | None = None
        self._current: str | None = None
        self.first_byte = False

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """One of dns, tcp and tls: timed, and HEALTHY if the body does not raise."""
        began, self._current = self._clock(), name
        yield
        self._timings[_TIMING_OF_STEP[name]] = (self._clock() - began) * 1000
        self._steps[name] = Status.HEALTHY
        self._current = None

    def byte(self) -> None:
        """A byte of the answer has come (called for every one; the first counts)."""
        if not self.first_byte:
            self.first_byte = True
            self._timings["first_byte"] = (self._clock() - self._began) * 1000

    def certificate(self, not_after: float) -> None:
        """The peer's verified certificate ends at this time (seconds since the epoch)."""
        self._expires = datetime.fromtimestamp(not_after, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def failed_step(self) -> str:
        """The step in which things stand or broke."""
        return self._current or "http"

    def finish(self, status: Status) -> Measurement:
        """Close the notebook: the step that was going on gets `status`; the total is taken."""
        self._steps[self.failed_step] = status
        timings = {**self._timings, "total": (self._clock() - self._began) * 1000}
        return Measurement(dict(self._steps), {k: round(v, 3) for k, v in timings.items()}, self._expires)
