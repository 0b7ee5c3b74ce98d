"""Ports nobody answers on: one refuses at once, one leaves a connect hanging."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def refusing_port(host: str = "127.0.0.1") -> Iterator[int]:
    """A port that refuses connections for as long as the block runs: bound, so nobody else gets it."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as bound:
        bound.bind((host, 0))
        yield bound.getsockname()[1]


@contextlib.contextmanager
def stuck_port(host: str = "127.0.0.1") -> Iterator[int]:
    """A port on which a connect neither succeeds nor fails: its accept queue is full and never emptied."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((host, 0))
        listener.listen(0)
        for _ in range(4):  # one fits into the queue, the others wait for it like the one under test will
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]
