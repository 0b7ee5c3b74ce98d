"""GET /events: what changes in the registry and in the agents' health, as server-sent events (contract 1)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any, Final, cast

from litestar import Request, get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Receive, Scope, Send
from sse_starlette import EventSourceResponse, ServerSentEvent

from gateway.events import MOST_READERS, Events
from gateway.identity import ANONYMOUS, Identity
from gateway.routes import problem

#: A comment follows this many seconds of silence, so that proxies keep the connection.
KEEPALIVE_SECONDS: Final = 15
#: A reader that takes nothing for this long is cut off.
_STALLED_SECONDS: Final = 30
_LATER: Final = {"Retry-After": "15"}


def event_routes(events: Events) -> list[HTTPRouteHandler]:
    """Make the handler; the feed ends with `Events.close`."""

    @get(
        "/events",
        sync_to_thread=False,
        summary="Registry and health changes, as server-sent events; resumes from Last-Event-ID",
        media_type="text/event-stream",
    )
    def feed(request: Request[Any, Any, Any]) -> ASGIApp:
        if events.readers >= MOST_READERS:
            return problem(503, "too many readers of events", headers=_LATER).to_asgi_response(None, request)
        last_id = request.headers.get("last-event-id")
        caller = cast("Identity", request.scope.get("vitalgate.identity", ANONYMOUS))
        headers = {"Cache-Control": "no-cache, no-transform"}
        response = EventSourceResponse(
            _written(events, last_id, caller.until - time.time()),
            headers=headers,
            ping=KEEPALIVE_SECONDS,
            sep="\n",
            ping_message_factory=_keepalive,
            send_timeout=_STALLED_SECONDS,
        )

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            with events.reading():
                await cast(ASGIApp, response)(scope, receive, send)

        return counted

    return [feed]


def _keepalive() -> ServerSentEvent:
    return ServerSentEvent(comment="keepalive", sep="\n")


async def _written(events: Events, last_id: str | None, seconds: float) -> AsyncIterator[ServerSentEvent]:
    yield ServerSentEvent(comment="connected", retry=2000, sep="\n")  # the head goes out at once
    async for event in events.read(last_id, seconds):
        yield ServerSentEvent(event.data, event=event.name, id=event.id, sep="\n")
