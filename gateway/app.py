"""The composition root: it builds every part from the settings and joins them; nothing else knows them all."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, closing, nullcontext
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

from litestar import Litestar, Router
from uvicorn._types import ASGI3Application

from gateway import cards, parts
from gateway.about import About
from gateway.about import Parts as AboutParts
from gateway.agent_stats import AgentStats
from gateway.answering import ServerLimits
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
    if worker is not None:
        worker.attend(metrics.page, lifecycle)
        reload.told, reload.others = worker.took, worker.spread
    watcher = asyncio.create_task(watch_loop(metrics))
    try:
        await registry.start()
        await health.start()
        lifecycle.on_close(upstream.cancel_all)
        async with _authentication(settings, environ, logs, listeners.on_loopback, reload) as auth:
            app = _application(
                listeners, settings, environ, registry, upstream, metrics, logs, lifecycle, health, auth, reload
            )
            lifecycle.on_hangup(reload.hang_up)
            if worker is None:  # the parent of workers speaks for all
                announce(listeners, settings, logs, VERSION)
            await serve_sockets(
                cast(ASGI3Application, app),
                api=listeners.api,
                metrics=listeners.metrics,
                lifecycle=lifecycle,
                limits=ServerLimits(
                    settings.limits.header_bytes,
                    settings.server.request_timeout_seconds,
                    settings.a2a.gateway_timeout_buffer_seconds,
                ),
                door=app if settings.server.fast_path else None,
                connections=parts.connections(settings),
            )
        logs.event("stopped")
    finally:
        watcher.cancel()
        await health.close()
        await upstream.aclose()
        await registry.close()


@asynccontextmanager
async def _authentication(
    settings: Settings, environ: Mapping[str, str], logs: Logs, on_loopback: bool, reload: Reload
) -> AsyncIterator[Authenticator | None]:
    if not settings.auth.enable:
        yield None
        return
    from gateway.key_sources import Authentication  # not needed by most, and slow to import

    async with Authentication(settings, environ, logs, on_loopback=on_loopback) as opened:
        reload.follow_files(opened.prepare)
        yield opened.authenticator


def _reload(settings: Settings, reread: Callable[[], Settings] | None, health: Health, logs: Logs) -> Reload:
    """Make what reads the settings again; the parts that are not built yet follow it later."""
    reload = Reload(settings, reread or (lambda: settings))
    reload.follow(lambda new: logs.change(level=new.log.level, form=new.log.format, calls=new.log.calls), "log.")
    reload.follow(health.change, "health.", "upstream.credentials")
    reload.follow(lambda _: health.events.interrupt(), "auth.")  # whoever reads on must be allowed to by now
    return reload


def _application(
    listeners: Listeners,
    settings: Settings,
    environ: Mapping[str, str],
    registry: Registry,
    upstream: Upstream,
    metrics: Metrics,
    logs: Logs,
    lifecycle: Lifecycle,
    health: Health,
    auth: Authenticator | None,
    reload: Reload,
) -> Dispatch:
    gate = parts.gate(settings, listeners.api.getsockname()[0], auth)
    terms = CardTerms(settings.server.public_url, settings.a2a.agent_card, security=parts.card_security(settings))
    peers = Peers(
        registry,
        upstream,
        metrics,
        concurrency=settings.a2a.agent_max_concurrency,
        user_agent=f"vitalgate/{VERSION}",
        credentials=read_credentials(settings.upstream.credentials, environ),
        admission=health.admission,
    )
    proxy = Proxy(
        peers,
        metrics,
        logs,
        lifecycle,
        parts.rules(settings),
        instance=health.nodes.id,
        loop=asyncio.get_running_loop(),
        caller_line=lru_cache(maxsize=1024)(caller_line),
        rewrite_card=_card_rewriter(terms, gate),
        gate=gate,
    )
    reload.follow(lambda new: gate.change(*parts.judges(new, gate.hosts)), "a2a.trusted_origins", "limits.")
    reload.follow(
        lambda new: peers.change_credentials(read_credentials(new.upstream.credentials, environ)),
        "upstream.credentials",
    )
    _watch(metrics, registry, upstream, logs)
    return Dispatch(
        proxy,
        Rest(
            _rest(
                settings,
                registry,
                health,
                terms,
                logs,
                reload,
                [
                    *_handoff(proxy, upstream, settings),
                    *_looking(listeners, registry, health, proxy, upstream, reload),
                ],
            ),
            gate,
            metrics,
            logs,
            own_metrics=listeners.own_metrics,
            seek=peers.seek,
        ),
        metrics,
        gate,
        Doors(
            settings.a2a.enable,
            None if listeners.metrics is None else listeners.metrics.getsockname()[1],
            settings.a2a.max_request_bytes,
            listeners.api.getsockname()[1],
        ),
        health.published,
    )


def _rest(
    settings: Settings,
    registry: Registry,
    health: Health,
    terms: CardTerms,
    logs: Logs,
    reload: Reload,
    further: list[Any],
) -> Litestar:
    return Litestar(
        [
            *registry_routes(registry, health.monitor, logs.audit),
            *card_routes(
                terms,
                resolve=registry.resolve,
                registration=registry.get,
                platform_name=settings.server.platform_name,
                version=VERSION,
                published=health.published,
            ),
            *health.routes(),
            *admin_routes(reload, logs.audit),
            *further,
            *console_routes(),
        ],
        openapi_config=openapi_config(VERSION),
        exception_handlers=ERROR_HANDLERS,
        logging_config=None,
    )


def _handoff(proxy: Proxy, upstream: Upstream, settings: Settings) -> list[Router]:
    return handoff_routes(proxy, ProbeTransport(upstream), f"vitalgate/{VERSION}", calls=settings.a2a.enable)


def _looking(
    listeners: Listeners,
    registry: Registry,
    health: Health,
    proxy: Proxy,
    upstream: Upstream,
    reload: Reload,
) -> list[Any]:
    """Make the routes that the console and scripts look at."""
    metrics, lifecycle, settings = proxy.metrics, proxy.lifecycle, reload.settings
    stats = AgentStats(registry, metrics, health.monitor, ttl_seconds=settings.a2a.agent_ttl_seconds)
    shown = AboutParts(
        registry,
        upstream,
        metrics,
        lifecycle,
        proxy.peers,
        health.events,
        health.monitor,
        proxy.faults,
        settings=lambda: reload.settings,
        health=lambda: own_health(lifecycle, registry, metrics, health.monitor),
    )
    about = About(VERSION, listeners.addresses(), shown)
    return stats_routes(stats if settings.a2a.enable else None, about)


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


def _watch(metrics: Metrics, registry: Registry, upstream: Upstream, logs: Logs) -> None:
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
