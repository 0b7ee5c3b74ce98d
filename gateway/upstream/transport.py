"""The gateway's connections as a transport for `httpx`, for whoever wants its API: card fetches, probes.

The address guard, the TLS settings and the limits of `Upstream` hold here too. What differs from httpx's own
transport: the *read* timeout is the total deadline of an exchange, from the first look-up to the last byte
of the body (connect, write and pool timeouts are parts of that and not applied by themselves; `read=None`
means no deadline); content codings are undone here, so that responses come without `content-encoding`; no
environment proxies; an answer that its reader leaves early closes its connection.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

import httpx

from gateway.upstream.connection import Connection
from gateway.upstream.dial import UnreachableError
from gateway.upstream.exchange import Exchange
from gateway.upstream.failures import Failure, FailureKind
from gateway.upstream.pool import Pool, Upstream
from registry.url import parse_url

#: Extension of a response: when the agent's certificate ends, as OpenSSL writes it.
CERTIFICATE_ENDS: Final = "vitalgate.certificate_ends"

_HIGH_WATER: Final = 262_144  # bytes waiting for the reader: beyond, the agent is paused
_MOST_POOLS: Final = 256

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(rb"[^\x00\r\n]*")
_TARGET: Final = re.compile(rb"[\x21-\x7e]+")

#: Set here, whatever the request says.
_OURS: Final = frozenset((b"content-length", b"transfer-encoding", b"accept-encoding", b"connection"))
_UNDONE: Final = frozenset((b"content-encoding", b"content-length", b"transfer-encoding"))

_ERRORS: Final[dict[FailureKind, type[httpx.TransportError]]] = {
    FailureKind.PROTOCOL: httpx.RemoteProtocolError,
    FailureKind.UPGRADED: httpx.RemoteProtocolError,
    FailureKind.UNDECODABLE: httpx.RemoteProtocolError,
    FailureKind.TIMEOUT: httpx.ReadTimeout,
}


class PoolTransport(httpx.AsyncBaseTransport):
    """Sends the requests of an `httpx.AsyncClient` through an `Upstream`."""

    def __init__(self, upstream: Upstream) -> None:
        """Prepare; `upstream` belongs to the caller and is not closed with the transport."""
        self._upstream = upstream
        self._pools: dict[str, Pool] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and wait for the head of its answer.

        Raises:
            httpx.TransportError: with the fixed text of the failure; its cause has the failure itself.
        """
        body = await request.aread()
        answer = _Answer(request, body, _deadline(request))
        try:
            self._pool(request).start(answer.exchange)
            await answer.head
        except BaseException:
            answer.exchange.cancel()
            raise
        headers = [pair for pair in answer.exchange.headers if pair[0] not in _UNDONE]
        return httpx.Response(
            answer.exchange.status,
            headers=headers,
            stream=answer,
            request=request,
            extensions={CERTIFICATE_ENDS: answer.certificate_ends},
        )

    async def aclose(self) -> None:
        """Close the idle connections."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    def _pool(self, request: httpx.Request) -> Pool:
        url = request.url
        origin = f"{url.scheme}://{url.netloc.decode('ascii')}"
        pool = self._pools.get(origin)
        if pool is None:
            try:
                pool = self._upstream.pool(parse_url(origin))
            except ValueError as error:
                raise httpx.UnsupportedProtocol(str(error), request=request) from error
            self._make_room()
            self._pools[origin] = pool
        return pool

    def _make_room(self) -> None:
        if len(self._pools) >= _MOST_POOLS:  # the oldest; what runs on it is not disturbed
            self._pools.pop(next(iter(self._pools))).close()


class _Answer(httpx.AsyncByteStream):
    """An exchange whose body is read as a stream, with back-pressure."""

    def __init__(self, request: httpx.Request, body: bytes, deadline: float | None) -> None:
        self._request = request
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._changed = asyncio.Event()
        self.certificate_ends: str | None = None
        self.head: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.exchange = Exchange(
            _head(request, body),
            body,
            deadline=deadline,
            cap=0,
            repeatable=request.method in ("GET", "HEAD", "OPTIONS"),
            done=self._done,
            on_head=self._on_head,
        )

    def _on_head(self, exchange: Exchange) -> None:
        exchange.consume = self._consume
        if isinstance(exchange.carrier, Connection):
            self.certificate_ends = exchange.carrier.certificate_ends
        if not self.head.done():
            self.head.set_result(None)

    def _consume(self, data: bytes) -> None:
        self._waiting.append(data)
        self._size += len(data)
        if self._size > _HIGH_WATER:
            self.exchange.pause()
        self._changed.set()

    def _done(self, exchange: Exchange) -> None:
        if not self.head.done() and exchange.failure is not None:
            self.head.set_exception(_error(exchange.failure, self._request))
        self._changed.set()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            while self._waiting:
                data = self._waiting.popleft()
                self._size -= len(data)
                if self.exchange.paused and self._size <= _HIGH_WATER // 2:
                    self.exchange.resume()
                yield data
            if self.exchange.over:
                break
            self._changed.clear()
            await self._changed.wait()
        if self.exchange.failure is not None:
            raise _error(self.exchange.failure, self._request)

    async def aclose(self) -> None:
        self.exchange.cancel()
        self._waiting.clear()


def _deadline(request: httpx.Request) -> float | None:
    seconds = request.extensions.get("timeout", {}).get("read")
    return None if seconds is None else asyncio.get_running_loop().time() + seconds


def _head(request: httpx.Request, body: bytes) -> bytes:
    """Write the head of a request.

    Raises:
        httpx.LocalProtocolError: a header or the target would break the framing.
    """
    target = request.extensions.get("target", request.url.raw_path)
    method = request.method.encode("ascii", "replace")
    lines = [pair for pair in request.headers.raw if pair[0].lower() not in _OURS]
    fits = all(_NAME.fullmatch(name) and _VALUE.fullmatch(value) for name, value in lines)
    if not fits or not _TARGET.fullmatch(target) or not _NAME.fullmatch(method):
        raise httpx.LocalProtocolError("a header or the request line holds a forbidden byte", request=request)
    if body or request.method in ("POST", "PUT", "PATCH"):
        lines.append((b"Content-Length", b"%d" % len(body)))
    lines.append((b"Accept-Encoding", b"identity"))
    return b"".join(
        (
            b"%s %s HTTP/1.1\r\n" % (method, target),
            *(b"%s: %s\r\n" % pair for pair in lines),
            b"\r\n",
        )
    )


def _error(failure: Failure, request: httpx.Request) -> httpx.TransportError:
    kind: type[httpx.TransportError] = _ERRORS.get(failure.kind, httpx.ReadError)
    if failure.connecting:
        kind = httpx.ConnectTimeout if failure.kind is FailureKind.TIMEOUT else httpx.ConnectError
    error = kind(failure.what, request=request)
    error.__cause__ = UnreachableError(failure)
    return error
