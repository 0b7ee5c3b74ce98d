"""The probe's own HTTP transport: every exchange on a fresh connection, with every step reported.

An httpx transport over httpcore with a network backend of ours, because httpcore's own resolves names out of
sight and shows no byte before the whole response head has come. No proxies, no redirects, no cookies, no
keep-alive: each attempt stands for itself. Certificates are verified against the system's and certifi's roots.
"""

from __future__ import annotations

import asyncio
import codecs
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextvars import ContextVar
from functools import cache
from typing import Any

import aiohappyeyeballs
import certifi
import httpcore
import httpx

from healthcheck.trace import TRACE, Trace

_trace: ContextVar[Trace | None] = ContextVar("healthcheck_trace", default=None)
_HAPPY_EYEBALLS_DELAY = 0.25


def tls_context(ca_file: str | None = None) -> ssl.SSLContext:
    """A verifying client context; `ca_file` (PEM) is trusted in addition. Raises OSError if unreadable."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


class ProbeTransport(httpx.AsyncBaseTransport):
    """One connection per request; deadlines are the caller's (cancel the call)."""

    def __init__(self, tls: Callable[[], ssl.SSLContext] = tls_context) -> None:
        backend = _Backend(cache(tls))
        unused = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # the backend makes the real one when it is needed
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=unused, network_backend=backend, max_connections=None, max_keepalive_connections=0
        )

    async def warm_up(self) -> None:
        """Load what httpcore would load during its first request: the first peer should not pay 15 ms for it."""
        import anyio.lowlevel

        await anyio.lowlevel.checkpoint()
        codecs.lookup("idna")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send and return with the response head; raises httpcore's and the network's own exceptions."""
        url = request.url
        target = request.extensions.get("target", url.raw_path)
        token = _trace.set(request.extensions.get(TRACE))
        try:
            response = await self._pool.handle_async_request(
                httpcore.Request(
                    request.method,
                    httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=target),
                    headers=request.headers.raw,
                    content=request.stream,
                )
            )
        finally:
            _trace.reset(token)
        return httpx.Response(response.status, headers=response.headers, stream=_Body(response))

    async def aclose(self) -> None:
        """Close whatever is still open."""
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._response.aiter_stream():
            yield chunk

    async def aclose(self) -> None:
        await self._response.aclose()


class _Backend(httpcore.AsyncNetworkBackend):
    def __init__(self, tls: Callable[[], ssl.SSLContext]) -> None:
        self._tls = tls

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        trace = _trace.get() or Trace(asyncio.get_running_loop().time)
        addresses = _literal(host, port)
        if addresses is None:
            with trace.step("dns"):
                addresses = await _resolve(host, port)
        with trace.step("tcp"):
            sock = await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=_HAPPY_EYEBALLS_DELAY)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _Stream(sock, trace, self._tls)


class _Stream(httpcore.AsyncNetworkStream):
    """A connected socket whose reader is made on first use, so that TLS can be the first thing on it."""

    def __init__(self, sock: socket.socket, trace: Trace, tls: Callable[[], ssl.SSLContext]) -> None:
        self._socket = sock
        self._trace = trace
        self._tls = tls
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            with self._trace.step("tls"):
                await self._open(ssl=self._tls(), server_hostname=server_hostname)
        except BaseException:
            await self.aclose()
            raise
        certificate = self.get_extra_info("peercert") or {}
        if "notAfter" in certificate:
            self._trace.certificate(ssl.cert_time_to_seconds(certificate["notAfter"]))
        return self

    async def _open(self, **tls: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(sock=self._socket, **tls)
        return self._reader, self._writer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        reader, _ = await self._open()
        try:
            data = await reader.read(max_bytes)
        except OSError as error:
            raise httpcore.ReadError from error
        if data:
            self._trace.byte()
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not buffer:
            return
        _, writer = await self._open()
        try:
            writer.write(buffer)
            await writer.drain()
        except OSError as error:
            raise httpcore.WriteError from error

    async def aclose(self) -> None:
        if self._writer is None:
            self._socket.close()
        else:
            self._writer.transport.abort()  # no farewell: the exchange is over, and a peer may never answer it

    def get_extra_info(self, info: str) -> Any:
        return self._writer.get_extra_info(info) if self._writer else None


_Addresses = list[tuple[int, int, int, str, Any]]


def _literal(host: str, port: int) -> _Addresses | None:
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        )
    except (socket.gaierror, UnicodeError):
        return None
    return _as_list(found)


def _as_list(found: Iterable[tuple[int, int, int, str, Any]]) -> _Addresses:
    return [(family, kind, proto, name, address) for family, kind, proto, name, address in found]


async def _resolve(host: str, port: int) -> _Addresses:
    """Resolve in a daemon thread: a resolver that hangs must not hold up the end of the process."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_Addresses] = loop.create_future()

    def settle(addresses: _Addresses | None, error: Exception | None) -> None:
        if not answer.done():
            answer.set_exception(error) if error else answer.set_result(addresses or [])

    def look_up() -> None:
        addresses, error = None, None
        try:
            addresses = _as_list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as failure:  # handed to the waiting coroutine as it is
            error = failure
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, addresses, error)

    threading.Thread(target=look_up, name="resolve", daemon=True).start()
    return await answer
