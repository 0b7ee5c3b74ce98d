"""What a message is sent with: its text, and further request headers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Final

from gateway.operator.failures import USAGE, Failed

_LARGEST_TEXT: Final = 10 * 1024 * 1024
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*").fullmatch
#: Headers that the command writes itself.
_OURS: Final = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection", "accept"})


def read_headers(given: Iterable[str], with_token: bool) -> dict[str, str]:
    """Read NAME:VALUE pairs; `with_token`: Authorization is taken.

    Raises:
        Failed: USAGE; values, which may be secrets, are not repeated.
    """
    found: dict[str, str] = {}
    for pair in given:
        name, colon, value = pair.partition(":")
        if not (colon and _NAME(name) and _VALUE(value)):
            raise Failed(USAGE, "--header is NAME:VALUE, in ASCII")
        if name.lower() in _OURS or (with_token and name.lower() == "authorization"):
            raise Failed(USAGE, f"--header: {name} is set by the command itself")
        found[name] = value.strip()
    return found


def read_text(text: str) -> str:
    """Give the text to send; `-` reads it from standard input.

    Raises:
        Failed: USAGE; it cannot be read, or is empty.
    """
    if text == "-":
        try:
            data = sys.stdin.buffer.read(_LARGEST_TEXT + 1)
        except (OSError, AttributeError):
            raise Failed(USAGE, "standard input cannot be read") from None
        if len(data) > _LARGEST_TEXT:
            raise Failed(USAGE, f"standard input: more than {_LARGEST_TEXT >> 20} MiB")
        text = data.decode("utf-8", "replace").removesuffix("\n")
    else:
        text = text.encode("utf-8", "replace").decode()  # an argument that is not UTF-8 holds lone surrogates
    if not text.strip():
        raise Failed(USAGE, "there is no text to send")
    return text
