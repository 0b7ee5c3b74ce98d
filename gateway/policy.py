"""Pure: which principals may register, call, read and administer (contract 6.1, `auth.policy`).

A policy is a list of rules. A rule holds for a caller whose principal matches one of its patterns and whose token
bears one of its scopes, whichever of the two the rule names. What the rules that hold grant is added up; there
is nothing else, and nothing takes a grant away again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gateway.identity import Grants, Remembering


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. Patterns know `*` (any text) and `?` (one character), and match the whole text.

    Attributes:
        principals: Patterns of principals; empty: any.
        scopes: Scope values, compared exactly; empty: any.
        call: Patterns of agent ids.
        register: Patterns of agent ids.
        read: See `Grants`.
        administer: See `Grants`.
    """

    principals: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    call: tuple[str, ...] = ()
    register: tuple[str, ...] = ()
    read: bool = False
    administer: bool = False


class Policy:
    """Says what a caller may do."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        """Take the rules."""
        self._rules = [(_matcher(rule.principals or ("*",)), frozenset(rule.scopes), rule) for rule in rules]

    def grants(self, principal: str, scopes: frozenset[str]) -> Grants:
        """Add up what a caller is granted."""
        held = [
            rule
            for matches, wanted, rule in self._rules
            if matches(principal) and (not wanted or not wanted.isdisjoint(scopes))
        ]
        return Grants(
            call=Remembering(_matcher([pattern for rule in held for pattern in rule.call])),
            register=Remembering(_matcher([pattern for rule in held for pattern in rule.register])),
            read=any(rule.read for rule in held),
            administer=any(rule.administer for rule in held),
        )


def _matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    compiled = [re.compile(_as_regex(pattern), re.DOTALL) for pattern in dict.fromkeys(patterns)]
    return lambda text: any(pattern.fullmatch(text) for pattern in compiled)


def _as_regex(pattern: str) -> str:
    """Translate a pattern; runs of `*` are one, so that matching stays quick."""
    parts = re.split(r"(\*+|\?)", pattern)
    return "".join(".*" if part.startswith("*") else "." if part == "?" else re.escape(part) for part in parts)
