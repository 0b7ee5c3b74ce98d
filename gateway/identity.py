"""Who calls, and what that caller may do (contract 6.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final

#: The name of whoever calls while authentication is off; no token may bear it.
ANONYMOUS_NAME: Final = "anonymous"
_REMEMBERED: Final = 256


def _always(_agent_id: str) -> bool:
    return True


class InvalidTokenError(Exception):
    """There is no token, or none that is good."""


class UnknownKeyError(InvalidTokenError):
    """The token names a key that we do not have, or none of ours fits: a fresh set of keys may help."""


@dataclass(frozen=True, slots=True)
class Grants:
    """What a caller may do. Without a policy: everything, but act on agents of others.

    Attributes:
        call: Tells whether it may call the agent with this id.
        register: Tells whether it may register, keep and deregister an agent with this id.
        read: It may see what is registered, how it fares and what happens.
        administer: It may deregister the agents of others.
    """

    call: Callable[[str], bool] = _always
    register: Callable[[str], bool] = _always
    read: bool = True
    administer: bool = False


#: What everybody may do while there is no policy.
EVERYTHING: Final = Grants()


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller.

    Attributes:
        name: The principal, as agents, logs and the registry see it.
        owner: The same where something is owned; None without authentication: then nobody owns anything.
        grants: What it may do.
        until: When its token is good no more, in seconds since 1970.
    """

    name: str
    owner: str | None
    grants: Grants = field(default=EVERYTHING, repr=False)
    until: float = inf


ANONYMOUS: Final = Identity(ANONYMOUS_NAME, None)


class Remembering:
    """A judgement of agent ids that is not made twice; bounded, since ids come from callers."""

    __slots__ = ("_judge", "_known")

    def __init__(self, judge: Callable[[str], bool]) -> None:
        self._judge = judge
        self._known: dict[str, bool] = {}

    def __call__(self, agent_id: str) -> bool:
        """Judge an agent id."""
        verdict = self._known.get(agent_id)
        if verdict is None:
            verdict = self._judge(agent_id)
            if len(self._known) < _REMEMBERED:
                self._known[agent_id] = verdict
        return verdict
