"""Reading the body of a REST request, bounded, and only what a web page may not send behind somebody's back."""

from __future__ import annotations

from typing import Any

from litestar import Request
from litestar.exceptions import HTTPException


async def read_body(request: Request[Any, Any, Any], most: int) -> bytes:
    """Reads at most one byte more than `most`; whoever gets that one refuses it.

    A web page may send anything but JSON to any address without asking, so what a browser sends must be JSON.
    """
    if "origin" in request.headers and not _is_json(request.headers.get("content-type", "")):
        raise HTTPException("the content type must be application/json", status_code=415)
    body = bytearray()
    more = True
    while more and len(body) <= most:
        message = await request.receive()
        if message["type"] != "http.request":
            raise HTTPException("the request ended too early", status_code=400)
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(body[: most + 1])


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"
