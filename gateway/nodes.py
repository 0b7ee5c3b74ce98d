"""The nodes of a cluster as `GET /nodes` shows them (contract 1); a gateway without Redis is a cluster of one."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import msgspec

from registry.clock import Clock

Document = dict[str, Any]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of itself with each renewal of its lease.

    Attributes:
        id: Of this process; another one after each start.
        checking: It checks agents (`health.enable`).
        calls: In flight.
        streams: Open ones.
        agents: How many it knows.
        checked: How many of them it checks.
    """

    id: str
    host: str = ""
    pid: int = 0
    version: str = ""
    started_at: str = ""
    address: str = ""
    checking: bool = True
    calls: int = 0
    streams: int = 0
    agents: int = 0
    checked: int = 0


def this_node(id: str, version: str, address: str) -> Node:
    """Describe this process, which begins now."""
    return Node(
        id=id,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=version,
        started_at=Clock().timestamp(),
        address=address,
    )


class Live(msgspec.Struct, frozen=True):
    """A node and its lease; `ends` is in seconds since the epoch, by the store's clock; None: it has no lease."""

    node: Node
    ends: float | None = None


class Nodes(Protocol):
    """Who knows the nodes."""

    @property
    def id(self) -> str:
        """This node."""

    @property
    def connected(self) -> bool:
        """Whether this node is in contact with the others."""

    async def refresh(self) -> None:
        """Learn how all nodes are now."""

    def live(self) -> Sequence[Live]:
        """Give all nodes, this one among them, in order of their start."""


class OneNode:
    """Where there is no store in common."""

    connected: Final = True

    def __init__(self, describe: Callable[[], Node]) -> None:
        """`describe` tells how this node is now."""
        self._describe = describe

    @property
    def id(self) -> str:
        """This node."""
        return self._describe().id

    async def refresh(self) -> None:
        """There are no others."""

    def live(self) -> Sequence[Live]:
        """Give this node."""
        return [Live(self._describe())]


async def view(nodes: Nodes) -> Document:
    """Give the document; all but its first two members is the same at every node."""
    await nodes.refresh()
    return {"node": nodes.id, "connected": nodes.connected, "nodes": [_entry(one) for one in nodes.live()]}


def _entry(live: Live) -> Document:
    node = live.node
    return {
        "id": node.id,
        "host": node.host,
        "pid": node.pid,
        "version": node.version,
        "started_at": node.started_at,
        "address": node.address,
        "checking": node.checking,
        "lease_ends_at": None if live.ends is None else _timestamp(live.ends),
        "load": {
            "calls": node.calls,
            "streams": node.streams,
            "agents": node.agents,
            "checked": node.checked,
        },
    }


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
