"""Pure: the bytes of answers, well formed or not, for the behaviours in `tests.fakes.reply`."""

from __future__ import annotations

import gzip as _gzip
import json
import zlib
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from tests.fakes.connection import Received

Headers = Iterable[tuple[str, str]]
JSON = (("Content-Type", "application/json"),)


def wire(status: int = 200, headers: Headers = (), body: bytes | None = None, version: str = "HTTP/1.1") -> bytes:
    """A whole answer; with a body, its Content-Length is added unless the headers frame it."""
    headers = list(headers)
    names = {name.lower() for name, _ in headers}
    if body is not None and not names & {"content-length", "transfer-encoding"}:
        headers.append(("Content-Length", str(len(body))))
    return head(status, headers, version) + (body or b"")


def head(status: int = 200, headers: Headers = (), version: str = "HTTP/1.1") -> bytes:
    """A status line and headers, with the blank line."""
    reason = HTTPStatus(status).phrase if status in set(HTTPStatus) else "Unknown"
    lines = [f"{version} {status} {reason}", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"


def rpc(request: Received, member: str, value: Any) -> bytes:
    """A JSON-RPC answer with the request's id as it was written."""
    text = json.dumps(value, separators=(",", ":")).encode()
    return b'{"jsonrpc":"2.0","id":%s,"%s":%s}' % (request.id, member.encode(), text)


def seen(request: Received) -> dict[str, Any]:
    """A request as a plain value: what `echo` answers."""
    return {
        "method": request.method,
        "target": request.target,
        "headers": [list(pair) for pair in request.headers],
        "body": request.body.decode("utf-8", "replace"),
        "connection": request.connection,
    }


def gzip(data: bytes) -> bytes:
    return _gzip.compress(data, mtime=0)  # the same bytes each time: they name tests


def deflate(data: bytes, *, bare: bool = False) -> bytes:
    """The zlib form, as the specification says, or the bare form some servers send."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS if bare else zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def bomb(size: int = 100 << 20) -> bytes:
    """A gzip of `size` zero bytes (a thousandth of it on the wire), made without holding them."""
    packer = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    block = bytes(1 << 20)
    return b"".join(packer.compress(block) for _ in range(size >> 20)) + packer.flush()
