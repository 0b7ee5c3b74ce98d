"""Pure: read a Content-Length, which may have as many digits as a head has room for."""

from __future__ import annotations

from typing import Final

_TOO_LARGE: Final = 1 << 64
_DIGITS: Final = 19


def read_length(value: bytes) -> int | None:
    """Give a length in bytes; None if it is none.

    Leading zeros are legal, and `int` refuses thousands of digits: what is beyond every limit is all the same.
    """
    value = value.strip(b" \t")
    if not value.isdigit():
        return None
    digits = value.lstrip(b"0")
    return int(digits or b"0") if len(digits) <= _DIGITS else _TOO_LARGE
