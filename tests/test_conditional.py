"""Conditional requests without a server: whatever a header holds (RFC 9110 13.1; contract 5.4)."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.conditional import is_current, represent

NOW = 1_800_000_000
CARD = represent(b"{}", NOW + 0.75)
LATIN = st.text(st.characters(max_codepoint=255))


def test_the_date_is_the_second_in_which_the_version_came_to_be() -> None:
    """RFC 9110 8.8.2: never in the future."""
    assert CARD.last_modified == formatdate(NOW, usegmt=True) == "Fri, 15 Jan 2027 08:00:00 GMT"


def test_the_tag_follows_the_bytes() -> None:
    """RFC 9110 8.8.3: equal bytes, equal tag, on every node and after every start."""
    assert represent(b"{}", 5).etag == CARD.etag
    assert represent(b"{ }", NOW).etag != CARD.etag


def test_without_conditions_there_is_nothing_to_compare() -> None:
    assert not is_current(CARD, None, None, NOW)


@given(LATIN)
def test_no_tag_header_raises_or_matches_by_accident(value: str) -> None:
    """RFC 9110 13.1.2."""
    assert is_current(CARD, value, None, NOW) == (value.strip() == "*")


@given(LATIN | st.from_regex(r"[A-Z][a-z]{2}, \d{1,12} [A-Z][a-z]{2} -?\d{1,12} \d{1,9}:\d{1,9}:\d{1,9} GMT"))
def test_no_date_header_raises(value: str) -> None:
    """RFC 9110 13.1.3: what is no date does not count."""
    is_current(CARD, None, value, NOW + 10)


@pytest.mark.parametrize(("seconds", "current"), [(0, False), (1, True)])
def test_a_date_that_two_versions_bear_does_not_count(seconds: int, current: bool) -> None:
    """Pitfall 117: registered twice in one second."""
    second = represent(b"{}", NOW, dated=False)
    assert is_current(second, None, formatdate(NOW + seconds, usegmt=True), NOW + 10) is current
