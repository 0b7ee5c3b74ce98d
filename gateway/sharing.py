"""What the monitor tells other nodes and asks of them; and the same where there are none."""

from __future__ import annotations

from typing import Protocol

from gateway.admission import Ask
from gateway.watched import Watched
from healthcheck.state import Routing


class Sharing(Protocol):
    """The other nodes, as the monitor sees them."""

    def mine(self, agent_id: str) -> bool:
        """Tell whether this node is the one that checks an agent."""

    def begun(self, watched: Watched) -> None:
        """An agent is watched from now on, or under another registration: take over what is known of it."""

    def ran(self, watched: Watched, before: Routing) -> None:
        """A check has ended here; `before` is what routing was."""

    def moved(self, watched: Watched, before: Routing) -> None:
        """Its routing is another than `before`, and not by a check."""

    def tried(self, watched: Watched) -> None:
        """A trial call began here, or ended without changing that."""

    def failed(self, watched: Watched) -> None:
        """A call failed here, and the agent is to blame."""

    def gone(self, watched: Watched) -> None:
        """The agent is registered no more, or under another URL."""

    def ask(self, watched: Watched) -> Ask | None:
        """Give what asks for a trial call; None: nobody has to be asked."""


class Alone:
    """One node."""

    def mine(self, agent_id: str) -> bool:
        """There is nobody else."""
        return True

    def begun(self, watched: Watched) -> None:
        """Nobody knows anything."""

    def ran(self, watched: Watched, before: Routing) -> None:
        """Nobody to tell."""

    def moved(self, watched: Watched, before: Routing) -> None:
        """Nobody to tell."""

    def tried(self, watched: Watched) -> None:
        """Nobody to tell."""

    def failed(self, watched: Watched) -> None:
        """Nobody to tell."""

    def gone(self, watched: Watched) -> None:
        """Nobody to tell."""

    def ask(self, watched: Watched) -> Ask | None:
        """Nobody to ask."""
        return None
