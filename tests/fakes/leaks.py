"""Searches what a gateway wrote for what it must never write (contract 6.4, 6.5): that of every test."""

from __future__ import annotations

import re

from tests.fakes.issuer import SECRET

#: Tokens of any kind, the secrets that tests use by convention, and the credentials in their headers.
_NEVER = re.compile(
    r"eyJ[\w-]{8,}\.[\w-]+\.[\w-]*"
    r"|(?i:bearer|basic) +(?!realm|error)[\w.~+/-]{4,}"
    r"|S3CRET|hunter2|t0ken|BEGIN [A-Z ]*PRIVATE KEY"
    rf"|{re.escape(SECRET)}"
)


def secrets_in(text: str) -> list[str]:
    """What should not be there."""
    return _NEVER.findall(text)
