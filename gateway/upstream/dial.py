"""Makes connections to agents: resolve, judge every address, connect to a judged one, TLS.

Off the hot path: a task per new connection.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

from aiohappyeyeballs import start_connection

from gateway.upstream.addresses import AddressGuard, literal
from gateway.upstream.connection import Connection
from gateway.upstream.failures import NO_ADDRESS, NOT_ALLOWED, Failure, connect_failure, tls_failure
from gateway.upstream.resolver import AddressInfo, known
from registry.url import Url

Resolve = Callable[[str, int], Awaitable[list[AddressInfo]]]

_STAGGER: Final = 0.25  # seconds before the next address is tried beside a slow one (RFC 8305)


class UnreachableError(Exception):
    """There is no connection; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.what)
        self.failure = failure


class Dialer:
    """Connects. Shared by all pools."""

    __slots__ = ("_guard", "_resolve", "_tls")

    def __init__(self, guard: AddressGuard, resolve: Resolve, tls: Callable[[], ssl.SSLContext]) -> None:
        self._guard = guard
        self._resolve = resolve
        self._tls = tls

    async def connect(self, url: Url, connection: Connection) -> None:
        """Connect, so that `connection` has its transport.

        Raises:
            UnreachableError: for every failure.
        """
        addresses = await self._addresses(url)
        try:
            if len(addresses) == 1:
                sock = await _connect(addresses[0])
            else:
                sock = await start_connection(addresses, happy_eyeballs_delay=_STAGGER)
        except OSError as error:
            raise UnreachableError(connect_failure(error)) from error
        secure = url.scheme == "https"
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: connection,
                sock=sock,
                ssl=self._tls() if secure else None,
                server_hostname=url.server_name if secure else None,
            )
        except (OSError, ValueError) as error:  # ValueError: a host name that TLS does not take
            raise UnreachableError(_handshake_failure(error, secure=secure)) from error

    async def _addresses(self, url: Url) -> list[AddressInfo]:
        """Resolve the host and keep the addresses that may be connected to (contract 6.3)."""
        address = literal(url.host)
        if address is not None:
            found = [known(address, url.port)]
        else:
            try:
                found = await self._resolve(url.host, url.port)
            except UnicodeError as error:
                raise UnreachableError(NO_ADDRESS) from error
            except OSError as error:
                raise UnreachableError(connect_failure(error)) from error
        if not found:
            raise UnreachableError(NO_ADDRESS)
        allowed = [info for info in found if self._allowed(url.host, info)]
        if not allowed:
            raise UnreachableError(NOT_ALLOWED)
        return allowed

    def _allowed(self, host: str, info: AddressInfo) -> bool:
        address, scope = info[4][0], info[4][3] if len(info[4]) > 3 else 0
        return scope == 0 and self._guard.refuses(host, ipaddress.ip_address(address)) is None


async def _connect(info: AddressInfo) -> socket.socket:
    """Connect to an only address, for which there is no race to run."""
    family, kind, protocol, _, address = info
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:  # cancelled, too
        sock.close()
        raise
    return sock


def _handshake_failure(error: OSError | ValueError, *, secure: bool) -> Failure:
    if secure or not isinstance(error, OSError):
        return tls_failure(error)
    return connect_failure(error)
