"""From the settings to the parts that need no other part; `app.py` joins them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gateway import cards
from gateway.answering import ServerLimits
from gateway.errors import StartError
from gateway.gate import Gate
from gateway.hosts import HostCheck
from gateway.limits import Connections, Rates
from gateway.origins import Origins
from gateway.proxies import TrustedProxies
from gateway.proxy import Rules
from gateway.relay import Terms
from gateway.settings import Settings
from gateway.upstream import AddressGuard, Upstream

if TYPE_CHECKING:
    from gateway.auth import Authenticator


def gate(settings: Settings, bound: str, auth: Authenticator | None) -> Gate:
    """Make what judges requests; `bound` is the address that the API listens on."""
    server = settings.server
    hosts = HostCheck(
        server.host,
        server.allowed_hosts,
        server.public_url,
        bound=bound,
        authenticated=settings.auth.enable,
    )
    origins, requests, registrations = judges(settings, hosts)
    proxies = TrustedProxies(server.trusted_proxies)
    return Gate(hosts, origins, proxies, auth=auth, requests=requests, registrations=registrations)


def judges(settings: Settings, hosts: HostCheck) -> tuple[Origins, Rates | None, Rates | None]:
    """Make what judges at the gate and may change meanwhile: origins, requests, registrations."""
    limits, clock = settings.limits, asyncio.get_running_loop().time
    rate, registrations = limits.requests_per_second, limits.registrations_per_minute
    return (
        Origins(settings.a2a.trusted_origins, hosts, settings.server.public_url),
        Rates(rate, rate, clock) if rate else None,
        Rates(registrations / 60, registrations, clock) if registrations else None,
    )


def connections(settings: Settings) -> Connections | None:
    """Make the limit on connections per client; None: there is none."""
    most = settings.limits.connections_per_client
    return Connections(most, TrustedProxies(settings.server.trusted_proxies).trusts) if most else None


def card_security(settings: Settings) -> cards.Security:
    """Tell what the cards that are served say of security (contract 5.4)."""
    if settings.auth.enable:
        return cards.Security.GATEWAY
    return cards.Security.AGENT if settings.upstream.caller_credentials else cards.Security.NONE


def guard(settings: Settings, on_loopback: bool) -> AddressGuard:
    """Make what judges where the gateway may connect (contract 6.3)."""
    reach = settings.upstream
    return AddressGuard(
        allow_loopback=reach.allow_loopback or on_loopback,
        allow_private=reach.allow_private,
        allow_hosts=reach.allow_hosts,
        deny_hosts=reach.deny_hosts,
    )


def upstream(settings: Settings, guard: AddressGuard) -> Upstream:
    """Make the connections to agents.

    Raises:
        StartError: a certificate cannot be used.
    """
    reach = settings.upstream
    try:
        return Upstream(
            guard=guard,
            ca_file=reach.ca_file,
            client_cert=reach.client_cert,
            client_key=reach.client_key,
            tls_skip_verify=settings.a2a.agent_tls_skip_verify,
        )
    except ValueError as error:
        raise StartError(str(error)) from error


def server_limits(settings: Settings) -> ServerLimits:
    """Give what a caller may take."""
    return ServerLimits(
        settings.limits.header_bytes,
        settings.server.request_timeout_seconds,
        settings.a2a.gateway_timeout_buffer_seconds,
    )


def rules(settings: Settings) -> Rules:
    """Give the terms of calls."""
    a2a = settings.a2a
    return Rules(
        default_timeout=a2a.default_timeout_seconds,
        max_timeout=a2a.max_timeout_seconds,
        response_bytes=a2a.agent_max_response_bytes,
        dialect=a2a.dialect,
        streams=Terms(a2a.max_sse_idle_seconds, a2a.keepalive_seconds, a2a.agent_max_response_bytes),
        forward_headers=tuple(a2a.forward_headers),
        most_streams=settings.limits.streams,
        caller_credentials=settings.upstream.caller_credentials,
        authenticated=settings.auth.enable,
    )
