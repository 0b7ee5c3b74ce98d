"""pure: which node answers for an agent, by rendezvous hashing.

Every node computes the same from the same names, without asking anybody. When a node comes or goes, only the
agents that it gets, or had, change hands.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b


def owner(agent_id: str, nodes: Iterable[str]) -> str | None:
    """Give the node that answers for an agent; None if there is none."""
    return max(nodes, key=lambda node: (_weight(node, agent_id), node), default=None)


def _weight(node: str, agent_id: str) -> bytes:
    """Give each pair a number of its own; ids hold no NUL, so no two pairs are hashed alike."""
    return blake2b(f"{node}\0{agent_id}".encode(), digest_size=8).digest()
