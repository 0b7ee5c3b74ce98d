"""The operator console: the page at `/` and its files below `/console/`, as they came in the package (contract 1).

The page is public and holds nothing; what it shows it reads from the REST routes, as whoever's token it has.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final, TypeAlias

from litestar import Request, Response, route
from litestar.enums import HttpMethod
from litestar.handlers import HTTPRouteHandler

AnyRequest: TypeAlias = Request[Any, Any, Any]

_READ: Final = [HttpMethod.GET, HttpMethod.HEAD]
_TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
#: Nothing from anywhere else, nothing inline, nobody's frame.
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_SAFE: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of the console, as it goes out."""

    body: bytes
    packed: bytes
    media_type: str
    etag: str

    @classmethod
    def read(cls, file: Traversable) -> Asset:
        """Read a file of the package."""
        body = file.read_bytes()
        return cls(
            body,
            gzip.compress(body, mtime=0),
            _TYPES["." + file.name.rpartition(".")[2]],
            f'W/"{hashlib.sha256(body).hexdigest()[:24]}"',
        )


def console_routes() -> list[HTTPRouteHandler]:
    """Make the handlers; every file is read now, and there are no others."""
    assets = dict(_assets(files("gateway") / "console", ""))

    def asset(request: AnyRequest) -> Response[bytes]:
        return _answer(request, assets[request.scope["path"].removeprefix("/console/")])

    def page(request: AnyRequest) -> Response[bytes]:
        return _answer(request, assets["index.html"])

    paths = [f"/console/{name}" for name in assets if name != "index.html"]
    return [
        route("/", http_method=_READ, sync_to_thread=False, include_in_schema=False)(page),
        route(paths, http_method=_READ, sync_to_thread=False, include_in_schema=False)(asset),
    ]


def _assets(folder: Traversable, prefix: str) -> Iterator[tuple[str, Asset]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _assets(entry, f"{prefix}{entry.name}/")
        elif "." + entry.name.rpartition(".")[2] in _TYPES:
            yield prefix + entry.name, Asset.read(entry)


def _answer(request: AnyRequest, asset: Asset) -> Response[bytes]:
    headers = {**_SAFE, "ETag": asset.etag}
    if asset.etag in request.headers.get("if-none-match", ""):
        return Response(b"", status_code=304, headers=headers, media_type=asset.media_type)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=asset.media_type)
    return Response(asset.body, headers=headers, media_type=asset.media_type)
