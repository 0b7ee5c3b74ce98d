"""The values of the registry: an agent, its lease, and both together."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from registry.url import Url

ANONYMOUS = "anonymous"

_AGENT_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,126}[a-z0-9]")


@dataclass(frozen=True, slots=True, eq=False)
class Agent:
    """One registered agent. The object stays the same until the registration changes: compare with ``is``.

    Attributes:
        agent_id: 2-128 characters, see `is_agent_id`.
        url: where the agent is called, as registered.
        location: the same, taken apart.
        card: the JSON object as registered, every member's bytes kept, without server-set members.
        owner: the principal that registered it; None without authentication.
        registered_at: timestamp of the first registration (`Clock.timestamp`).
        tags: the tags of all its skills.
        text: case-folded id, name, description and skills, for searching.
    """

    agent_id: str
    url: str
    location: Url
    card: bytes = field(repr=False)
    owner: str | None
    registered_at: str
    tags: frozenset[str] = field(repr=False)
    text: str = field(repr=False)

    @property
    def registered_by(self) -> str:
        """The owner as REST shows it."""
        return ANONYMOUS if self.owner is None else self.owner


@dataclass(frozen=True, slots=True)
class Lease:
    """The time an agent has until it must be heard of again; a registration or heartbeat makes a new one.

    Attributes:
        agent_id: whose lease.
        last_seen: timestamp of the registration or heartbeat that made it.
        ttl_seconds: length.
        ends: its end on the monotonic clock: the agent is alive before it, and expired from this moment on.
        number: tells this lease from the agent's earlier and later ones.
    """

    agent_id: str
    last_seen: str
    ttl_seconds: float
    ends: float
    number: int


@dataclass(frozen=True, slots=True)
class Registration:
    """An agent and its current lease."""

    agent: Agent
    lease: Lease

    def document(self) -> bytes:
        """The stored card with its server-set members: what REST shows (contract 5.1)."""
        server_set = (
            f'"registered_by":{json.dumps(self.agent.registered_by)},'
            f'"registered_at":"{self.agent.registered_at}","last_seen":"{self.lease.last_seen}"}}'
        )
        return self.agent.card[:-1] + b"," + server_set.encode()


def is_agent_id(text: str) -> bool:
    """Whether the text is a well-formed agent id, entirely and in ASCII (contract 1)."""
    return _AGENT_ID.fullmatch(text) is not None
