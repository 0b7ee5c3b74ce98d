"""Which event loops the tests run on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from tests.fakes.valkey import own_valkey, prefix, shared_valkey

__all__ = ["own_valkey", "prefix", "shared_valkey"]

#: What hangs on how the loop reports leaving and slow callers is tested on the loop that the gateway runs on.
ON_UVLOOP = frozenset(
    (
        "test_streams.py",
        "test_stream_wire.py",
        "test_relay.py",
        "test_push.py",
        "test_stream_callers.py",
        "test_stream_edges.py",
        "test_stream_slow.py",
        "test_stream_process.py",
    )
)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The gateway runs on uvloop; its own connections must work on asyncio's loop too, for whoever embeds them."""
    if item.path.name in ON_UVLOOP:
        return {"uvloop": uvloop.new_event_loop}
    if item.path.name.startswith("test_upstream_"):
        return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
