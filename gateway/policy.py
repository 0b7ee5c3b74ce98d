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
    compiled = [_Pattern(pattern) for pattern in dict.fromkeys(patterns)]
    return lambda text: any(pattern.matches(text) for pattern in compiled)


class _Pattern:
    """One pattern, matched piece by piece between its `*`: many of them take no more time than few."""

    __slots__ = ("_first", "_last", "_length", "_middle")

    def __init__(self, pattern: str) -> None:
        first, *rest = (_literal(piece) for piece in pattern.split("*"))
        self._first = first
        self._middle = rest[:-1]
        self._last = rest[-1] if rest else None
        self._length = len(pattern.rpartition("*")[2])

    def matches(self, text: str) -> bool:
        """Tell whether the whole text matches."""
        if self._last is None:
            return self._first.fullmatch(text) is not None
        found = self._first.match(text)
        for piece in self._middle:
            found = found and piece.search(text, found.end())
        if found is None:
            return False
        start = len(text) - self._length  # each sign of a piece matches exactly one
        return start >= found.end() and self._last.fullmatch(text, start) is not None


def _literal(piece: str) -> re.Pattern[str]:
    return re.compile("".join("." if sign == "?" else re.escape(sign) for sign in piece), re.DOTALL)
