"""The composition root: it builds every part from the settings and joins them; nothing else knows them all."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, closing, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

from litestar import Litestar
from uvicorn._types import ASGI3Application

from gateway import cards, parts
from gateway.about import About
from gateway.about import Parts as AboutParts
from gateway.agent_stats import AgentStats
from gateway.credentials import read_credentials
from gateway.dispatch import Dispatch, Doors
from gateway.gate import Gate
from gateway.headers import caller_line
from gateway.health import Health
from gateway.lifecycle import Lifecycle
from gateway.listeners import Listeners, announce
from gateway.logs import Logs
from gateway.messages import Request
from gateway.metrics import Metrics, watch_loop
from gateway.nodes import this_node
from gateway.own_health import own_health
from gateway.peers import Peers
from gateway.probes import ProbeTransport
from gateway.proxy import Proxy
from gateway.reload import Reload
from gateway.rest import Rest
from gateway.routes import ERROR_HANDLERS
from gateway.routes.admin import admin_routes
from gateway.routes.cards import CardTerms, card_routes
from gateway.routes.console import console_routes
from gateway.routes.handoff import handoff_routes
from gateway.routes.own import openapi_config
from gateway.routes.registry import registry_routes
from gateway.routes.stats import stats_routes
from gateway.server import run
from gateway.server import serve as serve_sockets
from gateway.settings import Settings
from gateway.upstream import Upstream
from registry.registry import Registry
from registry.stores import open_store

if TYPE_CHECKING:
    from gateway.auth import Authenticator
    from gateway.worker import Worker

VERSION = version("vitalgate")


def serve(
    settings: Settings,
    environ: Mapping[str, str] = os.environ,
    reread: Callable[[], Settings] | None = None,
    beside: AbstractContextManager[None] | None = None,
) -> None:
    """Run the gateway until a signal ends it.

    Args:
        settings: What to run.
        environ: Where secrets are.
        reread: Reads the settings again from where they came.
        beside: Entered once the addresses are this gateway's: what calls it must not find another there.

    Raises:
        StartError: it cannot start; the text is one line.
    """
    with closing(Logs(level=settings.log.level, form=settings.log.format, calls=settings.log.calls)) as logs:
        listeners = Listeners.bind(settings)
        with beside or nullcontext():
            serve_as(listeners, settings, logs, environ, reread)


def serve_as(
    listeners: Listeners,
    settings: Settings,
    logs: Logs,
    environ: Mapping[str, str] = os.environ,
    reread: Callable[[], Settings] | None = None,
    worker: Worker | None = None,
) -> None:
    """Run the gateway on sockets that are bound; see `serve`. `worker`: as one of several processes."""
    lifecycle = Lifecycle(
        shutdown_delay_seconds=settings.server.shutdown_delay_seconds,
        drain_seconds=settings.server.drain_seconds,
    )
    run(lambda: serve_on(listeners, settings, lifecycle, logs, environ, reread, worker), lifecycle)


async def serve_on(
    listeners: Listeners,
    settings: Settings,
    lifecycle: Lifecycle,
    logs: Logs,
    environ: Mapping[str, str],
    reread: Callable[[], Settings] | None = None,
    worker: Worker | None = None,
) -> None:
    """Build the gateway in the running event loop and serve until `lifecycle.stop()`, drain included.

    Raises:
        StartError: a part cannot start.
    """
    built = _build(listeners, settings, lifecycle, logs, environ, reread)
    if worker is not None:
        worker.attend(built.metrics.page, lifecycle)
        built.reload.told, built.reload.others = worker.took, worker.spread
    watcher = asyncio.create_task(watch_loop(built.metrics))
    try:
        await built.registry.start()
        await built.health.start()
        lifecycle.on_close(built.upstream.cancel_all)
        async with _authentication(built) as auth:
            app = _application(built, auth)
            lifecycle.on_hangup(built.reload.hang_up)
            if worker is None:  # the parent of workers speaks for all
                announce(listeners, settings, logs, VERSION)
            await serve_sockets(
                cast(ASGI3Application, app),
                api=listeners.api,
                metrics=listeners.metrics,
                lifecycle=lifecycle,
                limits=parts.server_limits(settings),
                door=app if settings.server.fast_path else None,
                connections=parts.connections(settings),
            )
        logs.event("stopped")
    finally:
        watcher.cancel()
        await built.health.close()
        await built.upstream.aclose()
        await built.registry.close()


@dataclass(frozen=True, slots=True)
class _Built:
    """What stands before the application: it is made of these."""

    listeners: Listeners
    settings: Settings
    environ: Mapping[str, str]
    lifecycle: Lifecycle
    logs: Logs
    metrics: Metrics
    upstream: Upstream
    registry: Registry
    health: Health
    reload: Reload


def _build(
    listeners: Listeners,
    settings: Settings,
    lifecycle: Lifecycle,
    logs: Logs,
    environ: Mapping[str, str],
    reread: Callable[[], Settings] | None,
) -> _Built:
    metrics = Metrics(settings.metrics.namespace, VERSION)
    guard = parts.guard(settings, listeners.on_loopback)
    upstream = parts.upstream(settings, guard)
    store = open_store(settings.registry.url, key_prefix=settings.registry.key_prefix)
    registry = Registry(
        store,
        ttl_seconds=settings.a2a.agent_ttl_seconds,
        max_agents=settings.a2a.max_agents,
        check_url=guard.check_url,
        count=metrics.operation,
    )
    node = this_node(secrets.token_hex(4), VERSION, listeners.addresses()["api"])
    link = getattr(store, "link", None)  # only a store that nodes share has one
    health = Health(settings, environ, registry, upstream, metrics, lifecycle, node=node, link=link)
    reload = _reload(settings, reread, health, logs)
    return _Built(listeners, settings, environ, lifecycle, logs, metrics, upstream, registry, health, reload)


@asynccontextmanager
async def _authentication(built: _Built) -> AsyncIterator[Authenticator | None]:
    settings = built.settings
    if not settings.auth.enable:
        yield None
        return
    from gateway.key_sources import Authentication  # not needed by most, and slow to import

    on_loopback = built.listeners.on_loopback
    async with Authentication(settings, built.environ, built.logs, on_loopback=on_loopback) as opened:
        built.reload.follow_files(opened.prepare)
        yield opened.authenticator


def _reload(settings: Settings, reread: Callable[[], Settings] | None, health: Health, logs: Logs) -> Reload:
    """Make what reads the settings again; the parts that are not built yet follow it later."""
    reload = Reload(settings, reread or (lambda: settings))
    reload.follow(lambda new: logs.change(level=new.log.level, form=new.log.format, calls=new.log.calls), "log.")
    reload.follow(health.change, "health.", "upstream.credentials")
    reload.follow(lambda _: health.events.interrupt(), "auth.")  # whoever reads on must be allowed to by now
    return reload


def _application(built: _Built, auth: Authenticator | None) -> Dispatch:
    settings, listeners, health = built.settings, built.listeners, built.health
    gate = parts.gate(settings, listeners.api.getsockname()[0], auth)
    terms = CardTerms(settings.server.public_url, settings.a2a.agent_card, security=parts.card_security(settings))
    proxy = _proxy(built, gate, terms)
    built.reload.follow(lambda new: gate.change(*parts.judges(new, gate.hosts)), "a2a.trusted_origins", "limits.")
    _watch(built)
    rest = Rest(
        _rest(built, terms, proxy),
        gate,
        built.metrics,
        built.logs,
        own_metrics=listeners.own_metrics,
        seek=proxy.peers.seek,
    )
    doors = Doors(
        settings.a2a.enable,
        None if listeners.metrics is None else listeners.metrics.getsockname()[1],
        settings.a2a.max_request_bytes,
        listeners.api.getsockname()[1],
    )
    return Dispatch(proxy, rest, built.metrics, gate, doors, health.published)


def _proxy(built: _Built, gate: Gate, terms: CardTerms) -> Proxy:
    """Make what calls pass through."""
    settings, environ, health = built.settings, built.environ, built.health
    peers = Peers(
        built.registry,
        built.upstream,
        built.metrics,
        concurrency=settings.a2a.agent_max_concurrency,
        user_agent=f"vitalgate/{VERSION}",
        credentials=read_credentials(settings.upstream.credentials, environ),
        admission=health.admission,
    )
    built.reload.follow(
        lambda new: peers.change_credentials(read_credentials(new.upstream.credentials, environ)),
        "upstream.credentials",
    )
    return Proxy(
        peers,
        built.metrics,
        built.logs,
        built.lifecycle,
        parts.rules(settings),
        instance=health.nodes.id,
        loop=asyncio.get_running_loop(),
        caller_line=lru_cache(maxsize=1024)(caller_line),
        rewrite_card=_card_rewriter(terms, gate),
        gate=gate,
    )


def _rest(built: _Built, terms: CardTerms, proxy: Proxy) -> Litestar:
    settings, registry, health, audit = built.settings, built.registry, built.health, built.logs.audit
    return Litestar(
        [
            *registry_routes(registry, health.monitor, audit),
            *card_routes(
                terms,
                resolve=registry.resolve,
                registration=registry.get,
                platform_name=settings.server.platform_name,
                version=VERSION,
                published=health.published,
            ),
            *health.routes(),
            *admin_routes(built.reload, audit),
            *handoff_routes(
                proxy, ProbeTransport(built.upstream), f"vitalgate/{VERSION}", calls=settings.a2a.enable
            ),
            *_looking(built, proxy),
            *console_routes(),
        ],
        openapi_config=openapi_config(VERSION),
        exception_handlers=ERROR_HANDLERS,
        logging_config=None,
    )


def _looking(built: _Built, proxy: Proxy) -> list[Any]:
    """Make the routes that the console and scripts look at."""
    registry, metrics, monitor = built.registry, built.metrics, built.health.monitor
    a2a, lifecycle, reload = built.settings.a2a, built.lifecycle, built.reload
    stats = AgentStats(registry, metrics, monitor, ttl_seconds=a2a.agent_ttl_seconds)
    shown = AboutParts(
        registry,
        built.upstream,
        metrics,
        lifecycle,
        proxy.peers,
        built.health.events,
        monitor,
        proxy.faults,
        settings=lambda: reload.settings,
        health=lambda: own_health(lifecycle, registry, metrics, monitor),
    )
    about = About(VERSION, built.listeners.addresses(), shown)
    return stats_routes(stats if a2a.enable else None, about)


def _card_rewriter(terms: CardTerms, gate: Gate) -> Callable[[bytes, str, Request], bytes]:
    """Make the function that points the card in an agent's answer at the gateway (contract 5.4)."""

    def rewrite(body: bytes, agent_id: str, request: Request) -> bytes:
        sent = gate.proxies.sent(request.headers, request.peer)
        base = cards.public_base(terms.public_url, sent.scheme, [sent.host]) or ""
        return cards.rewrite_extended_card(
            body,
            cards.address(base, agent_id),
            security=terms.security,
        )

    return rewrite


def _watch(built: _Built) -> None:
    metrics, registry, upstream, logs = built.metrics, built.registry, built.upstream, built.logs
    metrics.gauge("log_lines_dropped", "Log lines lost to a stalled reader of the log.", lambda: logs.dropped)
    metrics.gauge("tasks", "Tasks of the event loop.", lambda: len(asyncio.all_tasks()))
    metrics.gauge("registered_agents", "Agents that are registered and alive.", lambda: len(registry))
    metrics.gauges(
        "upstream_connections",
        "Connections to agents.",
        "state",
        {
            "active": lambda: upstream.open - upstream.idle,
            "idle": lambda: upstream.idle,
            "connecting": lambda: upstream.connecting,
        },
    )
