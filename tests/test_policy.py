"""The policy: contract 6.1."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.identity import EVERYTHING, Grants
from gateway.policy import Policy, Rule

NOBODY = frozenset[str]()


def grants(*rules: Rule, principal: str = "alice", scopes: frozenset[str] = NOBODY) -> Grants:
    return Policy(rules).grants(principal, scopes)


def test_without_a_policy_everything_but_what_others_own() -> None:
    assert EVERYTHING.call("any")
    assert EVERYTHING.register("any")
    assert EVERYTHING.read
    assert not EVERYTHING.administer


def test_who_is_not_named_may_do_nothing() -> None:
    found = grants(Rule(principals=("bob",), call=("*",), register=("*",), read=True, administer=True))
    assert not any((found.call("a1"), found.register("a1"), found.read, found.administer))


def test_grants_add_up() -> None:
    found = grants(
        Rule(principals=("*",), read=True),
        Rule(principals=("alice",), call=("a-*",)),
        Rule(("al*",), call=("b-*",)),
    )
    assert found.read
    assert (found.call("a-1"), found.call("b-1"), found.call("c-1"), found.register("a-1")) == (
        True,
        True,
        False,
        False,
    )


def test_a_rule_that_names_both_needs_both() -> None:
    rule = Rule(principals=("alice",), scopes=("admin", "ops"), administer=True)
    assert not grants(rule).administer
    assert grants(rule, scopes=frozenset({"ops", "x"})).administer
    assert not grants(rule, principal="bob", scopes=frozenset({"ops"})).administer


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("*", "", True),
        ("*", "a\nb", True),
        ("a*", "abc", True),
        ("a*", "ba", False),
        ("*a", "ba", True),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("a.c", "abc", False),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("alice", "alice\n", False),
        ("alice", "Alice", False),
        ("(a+)+$", "aaaa", False),
        ("ci-**-x", "ci-1-x", True),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("*b?", "abc", True),
        ("*b?", "ab", False),
        ("?*", "", False),
    ],
)
def test_patterns(pattern: str, text: str, matches: bool) -> None:
    assert grants(Rule((pattern,), read=True), principal=text).read is matches
    assert grants(Rule(("*",), call=(pattern,))).call(text) is matches


@given(st.text(max_size=20))
def test_a_pattern_without_wildcards_means_itself(text: str) -> None:
    literal = text.replace("*", "").replace("?", "") or "x"
    found = grants(Rule(("alice",), call=(literal,)))
    assert found.call(literal)
    assert not found.call(literal + "x")


def test_many_wildcards_take_no_time() -> None:
    found = grants(Rule(("*a" * 12 + "*b",), read=True), principal="a" * 256)
    assert not found.read


def test_what_is_remembered_is_bounded() -> None:
    found = grants(Rule(("*",), call=("a-*",)))
    for number in range(2000):
        assert found.call(f"a-{number}")
        assert not found.call(f"b-{number}")


@given(st.text("ab*?", max_size=6), st.text("ab", max_size=8))
def test_patterns_match_what_those_of_the_shell_match(pattern: str, text: str) -> None:
    assert grants(Rule((pattern or "x",), read=True), principal=text).read is fnmatchcase(text, pattern or "x")
