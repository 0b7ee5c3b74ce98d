"""Connections to agents: HTTP/1.1 over asyncio, pooled per agent, with total deadlines and an address guard."""

from gateway.upstream.addresses import AddressGuard
from gateway.upstream.exchange import Exchange
from gateway.upstream.failures import Failure, FailureKind
from gateway.upstream.pool import Pool, Upstream

__all__ = ["AddressGuard", "Exchange", "Failure", "FailureKind", "Pool", "Upstream"]
