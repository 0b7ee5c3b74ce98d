"""pure: conditional GET and HEAD (RFC 9110, sections 8.8 and 13): has the reader this version already?"""

from __future__ import annotations

import hashlib
import re
from calendar import timegm
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate
from typing import Final

_QUOTED: Final = re.compile(r'"[^"]*"')


@dataclass(frozen=True, slots=True)
class Representation:
    """One version of a document, ready to be sent.

    Attributes:
        body: The bytes.
        etag: A strong entity tag made from them.
        modified: When this version came to be, in whole seconds since 1970.
        dated: False when an earlier version bears the same second, so that a date cannot tell them apart.
    """

    body: bytes
    etag: str
    modified: int
    dated: bool = True

    @property
    def last_modified(self) -> str:
        """Give the value of the Last-Modified header."""
        return format_datetime(datetime.fromtimestamp(self.modified, UTC), usegmt=True)


def represent(body: bytes, modified: float, *, dated: bool = True) -> Representation:
    """Make a version of a document from its bytes and the time it came to be (seconds since 1970)."""
    return Representation(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"', int(modified), dated)


def is_current(
    current: Representation, if_none_match: str | None, if_modified_since: str | None, now: float
) -> bool:
    """Tell whether the reader's copy is this version, so that 304 is the answer.

    Args:
        current: The version there is.
        if_none_match: The header; with it If-Modified-Since does not count, as the RFC demands.
        if_modified_since: The header; a date that cannot be read or lies in the future does not count.
        now: The time, in seconds since 1970.
    """
    if if_none_match is not None:
        return if_none_match.strip() == "*" or current.etag in _QUOTED.findall(if_none_match)
    since = _http_date(if_modified_since)
    if since is None or since > now:
        return False
    return since > current.modified or (current.dated and since == current.modified)


def _http_date(value: str | None) -> int | None:
    parts = parsedate(value) if value else None
    if parts is None:
        return None
    try:
        return timegm(parts)
    except (ValueError, OverflowError):  # a date that no calendar has
        return None
