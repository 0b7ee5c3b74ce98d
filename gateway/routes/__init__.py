"""Litestar handlers that turn HTTP into calls, and no more; and the one shape of their errors.

Every error of a REST route reads `{"error": "...", "details": [...]}`, `details` only where there are some.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from litestar import Request, Response
from litestar.enums import MediaType
from litestar.exceptions import HTTPException, ValidationException
from litestar.types import ExceptionHandlersMap

logger = logging.getLogger(__name__)

#: What is answered before the framework sees it, which therefore cannot name it (contract 1, 3.6).
_ELSEWHERE: Final = (
    (re.compile(r"/a2a(/[^/]*)?/?").fullmatch, "POST"),
    (re.compile(r"/a2a/[^/]+/stream").fullmatch, "GET"),
)
_NO_STREAM: Final = re.compile(r"/a2a/[^/]+/stream/").fullmatch


def problem(
    status: int,
    error: str,
    *,
    details: Sequence[Mapping[str, str]] = (),
    headers: Mapping[str, str] | None = None,
) -> Response[dict[str, Any]]:
    """Answer with an error in the shape that all REST routes share."""
    body: dict[str, Any] = {"error": error, "details": list(details)} if details else {"error": error}
    return Response(body, status_code=status, media_type=MediaType.JSON, headers=dict(headers or {}))


def _http_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[dict[str, Any]]:
    """Translate what the framework refuses: an unknown route or method, input it cannot read."""
    headers, path = dict(error.headers or {}), request.scope["path"]
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        if _NO_STREAM(path):
            return problem(HTTPStatus.NOT_FOUND, "not found")
        elsewhere = (method for matches, method in _ELSEWHERE if matches(path))
        headers = {"Allow": next(elsewhere, headers.pop("allow", ""))}
    if error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return _internal_error(request, error)
    return problem(error.status_code, _text(error), details=_details(error), headers=headers)


def _details(error: HTTPException) -> list[dict[str, str]]:
    """List the parameters that the framework refuses, by name."""
    extra = error.extra if isinstance(error, ValidationException) and isinstance(error.extra, list) else []
    found = [item for item in extra if isinstance(item, dict)]
    return [{"field": str(item.get("key", "")), "message": str(item.get("message", ""))} for item in found]


def _text(error: HTTPException) -> str:
    if error.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        return HTTPStatus(error.status_code).phrase.lower()
    return "invalid request" if isinstance(error, ValidationException) else error.detail


def _internal_error(request: Request[Any, Any, Any], error: Exception) -> Response[dict[str, Any]]:
    """Answer for a fault of the gateway's own: the log has the traceback, the caller only the fact."""
    logger.error("%s %r failed", request.scope["method"], request.scope["path"], exc_info=error)
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error")


ERROR_HANDLERS: Final[ExceptionHandlersMap] = {HTTPException: _http_error, Exception: _internal_error}
"""For `Litestar(exception_handlers=...)`; the registry's own errors are added by its routes."""
