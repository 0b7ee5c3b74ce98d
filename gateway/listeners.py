"""Where a gateway listens: its sockets, and what it says of them."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gateway.hosts import is_loopback
from gateway.logs import Logs
from gateway.server import BindError, bind
from gateway.settings import Settings


@dataclass(frozen=True, slots=True)
class Listeners:
    """The sockets of one process.

    Attributes:
        api: The API's.
        metrics: The metrics'; None: `/metrics` stands on the API's port, unless it is elsewhere.
        elsewhere: The URL at which another process serves the metrics of this one, too.
    """

    api: socket.socket
    metrics: socket.socket | None
    elsewhere: str = ""

    @classmethod
    def bind(cls, settings: Settings) -> Listeners:
        """Listen as the settings say.

        Raises:
            BindError: naming the address and why.
        """
        api = bind_api(settings.server.host, settings.server.port)
        if not settings.metrics.port:
            return cls(api, None)
        try:
            if api.getsockname()[1] == settings.metrics.port:  # the system chose it, and dispatch goes by port
                raise BindError(f"port {settings.metrics.port} is that of the metrics: choose server.port")
            return cls(api, bind_metrics(settings))
        except BaseException:
            api.close()
            raise

    @property
    def own_metrics(self) -> bool:
        """Whether `/metrics` stands on the API's port."""
        return self.metrics is None and not self.elsewhere

    @property
    def on_loopback(self) -> bool:
        """Whether the API is reached from this machine only, however `server.host` spells it."""
        return is_loopback(self.api.getsockname()[0])

    def addresses(self) -> dict[str, str]:
        """Give the URLs to print."""
        metrics = self.metrics or self.api
        return {"api": _url(self.api), "metrics": self.elsewhere or f"{_url(metrics)}/metrics"}


def bind_api(host: str, port: int) -> socket.socket:
    """Listen for callers.

    Raises:
        BindError: naming the address, why, and what chooses another.
    """
    with _remedy("--port or server.port chooses another"):
        return bind(host, port)


def bind_metrics(settings: Settings) -> socket.socket:
    """Listen for who collects metrics.

    Raises:
        BindError: as above.
    """
    with _remedy("for the metrics; VITALGATE_METRICS__PORT or metrics.port chooses another"):
        return bind(settings.metrics.host, settings.metrics.port)


@contextmanager
def _remedy(text: str) -> Iterator[None]:
    try:
        yield
    except BindError as error:
        if getattr(error.__cause__, "errno", None) != errno.EADDRINUSE:
            raise
        raise BindError(f"{error} ({text})") from error


def announce(listeners: Listeners, settings: Settings, logs: Logs, version: str, **further: Any) -> None:
    """Log where the gateway listens, and what an operator should think of before others come."""
    if not settings.auth.enable and not listeners.on_loopback:
        logs.event(
            "authentication is off: everybody who reaches this address may register and call agents",
            level="warning",
            host=settings.server.host,
        )
    if settings.a2a.agent_tls_skip_verify:
        logs.event("a2a.agent_tls_skip_verify is on: agents' certificates are not checked", level="warning")
    addresses: dict[str, Any] = listeners.addresses()
    logs.event("listening", version=version, pid=os.getpid(), **addresses, **further)


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
