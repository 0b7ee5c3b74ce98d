"""What can go wrong in the registry, and who has to act."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule of a document: where (``skills[0].id``) and what about it."""

    field: str
    message: str


class RegistryError(Exception):
    """Anything the registry refuses or cannot do. The text may be shown to the caller."""


class Invalid(RegistryError):
    """The document breaks rules; its sender must mend it."""

    def __init__(self, message: str, violations: Sequence[Violation] = ()) -> None:
        super().__init__(message)
        self.violations = tuple(violations)


class TooLarge(Invalid):
    """The document is longer than the registry takes."""


class Forbidden(RegistryError):
    """The agent belongs to another principal, or this one may not have it."""

    def __init__(self, why: str = "the agent belongs to another principal") -> None:
        super().__init__(why)


class Full(RegistryError):
    """``max_agents`` live agents are registered; an operator must raise it, or an agent leave."""

    def __init__(self, max_agents: int) -> None:
        super().__init__(f"the registry is full: max_agents is {max_agents}")


class NotFound(RegistryError):
    """No such agent, or it has expired: it must register again."""

    def __init__(self) -> None:
        super().__init__("agent not found")


class StoreError(RegistryError):
    """The store cannot be used as configured; the operator must act. The text is one line."""


class StoreUnavailable(StoreError):
    """The store does not answer at the moment. Nothing was changed; sending again later is safe."""
