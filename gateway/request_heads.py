"""Pure: which request heads are refused before anybody looks at the path, and with which answer (contract 1)."""

from __future__ import annotations

from typing import Final

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from gateway.headers import Headers

MAX_HEADERS: Final = 100


class RequestRefused(Exception):
    """Raised inside a parser callback: answer with this status and close."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def check_head(version: str, url: bytes, headers: Headers, fields: dict[bytes, bytes], limit: int) -> None:
    """Check a request head.

    Args:
        version: Of HTTP.
        url: The request target.
        headers: All headers.
        fields: The same by name.
        limit: How many bytes it may have; 0: so few have come that nobody needs to count.

    Raises:
        RequestRefused: It is not acceptable.
    """
    if version not in ("1.1", "1.0"):
        raise RequestRefused(505, "Only HTTP/1.1 and HTTP/1.0 are spoken here.")
    if len(headers) > MAX_HEADERS:
        raise RequestRefused(431, "Too many request header fields.")
    if limit and len(url) + sum(len(name) + len(value) + 4 for name, value in headers) > limit:
        raise RequestRefused(431, "Request header fields too large.")
    if b"host" not in fields and version == "1.1":
        raise RequestRefused(400, "A Host header is required.")
    if len(fields) < len(headers) and [name for name, _ in headers].count(b"host") > 1:
        raise RequestRefused(400, "More than one Host header.")


def target_parts(target: bytes) -> tuple[bytes, bytes]:
    """Give path and query of a request target in absolute form.

    Raises:
        RequestRefused: It is none.
    """
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        raise RequestRefused(400, "Invalid request target.") from None
    path = url.path or b"/"
    if path == b"*":
        raise RequestRefused(400, "Invalid request target.")
    return path, url.query or b""


def plain_answer(status: int, reason: str) -> bytes:
    """Write the whole answer to a request that never reaches the application."""
    head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
    return STATUS_LINE[status] + head % len(reason) + reason.encode("ascii")
