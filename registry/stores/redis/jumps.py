"""Pure: whose clock was wrong, when a node's idea of cluster time and the server's differ."""

from __future__ import annotations

from typing import Final

TOLERANCE_SECONDS: Final = 2.0
"""A difference in time below this is delay, or a clock that is being slewed."""
CONTACT_SECONDS: Final = 5.0
"""A contact within this of a time means that nodes live by that time."""


def server_jumped(idea: float | None, measured: float, contact: float) -> float | None:
    """The cluster time to go on from if the server's clock jumped; None if the server is right.

    `contact` is when any node last had contact; 0 if the server does not know. Nodes live by the time that it is
    near to, and time never goes back behind it. At a start there is no idea.
    """
    if not contact:
        return idea  # the server was emptied: the offset is gone with the rest
    if measured < contact - TOLERANCE_SECONDS:
        return max(contact, idea or 0)
    if idea is None or abs(contact - idea) > min(CONTACT_SECONDS, abs(contact - measured)):
        return None
    return idea
