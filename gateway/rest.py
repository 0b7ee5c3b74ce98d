"""Everything that is no call: judged at the gate, then served by Litestar (contract 1, 2.6, 6.2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import msgspec

from gateway.gate import (
    FORBIDDEN,
    ORIGIN_NOT_TRUSTED,
    RATE_LIMITED,
    UNAUTHENTICATED,
    Gate,
    Verdict,
    challenge,
    retry_after,
)
from gateway.headers import Headers
from gateway.logs import Logs
from gateway.metrics import CONTENT_TYPE, Metrics
from gateway.origins import is_preflight, origin_in, preflight
from gateway.proxies import Sent

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
ASGI = Callable[[Any, Any, Any], Awaitable[None]]

_JSON: Final = b"application/json"
#: Status and text of a refusal.
_REFUSALS: Final = {
    UNAUTHENTICATED: (401, "invalid token"),
    FORBIDDEN: (403, "forbidden"),
    ORIGIN_NOT_TRUSTED: (403, "origin not trusted"),
    RATE_LIMITED: (429, "rate limit exceeded"),
}


class Rest:
    """Judges a request and hands it on."""

    def __init__(
        self,
        app: ASGI,
        gate: Gate,
        metrics: Metrics,
        logs: Logs,
        *,
        own_metrics: bool,
        seek: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """Take Litestar's application and what judges.

        Args:
            app: Serves what may pass.
            gate: Judges.
            metrics: Writes `/metrics`.
            logs: Gets an audit line for each refusal.
            own_metrics: `/metrics` has no listener of its own, and stands here.
            seek: Asks other nodes about the agent that a path names, if it is not known here.
        """
        self._app = app
        self._gate = gate
        self._metrics = metrics
        self._logs = logs
        self._own_metrics = own_metrics
        self._seek = seek

    async def lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Start and stop the application."""
        await self._app(scope, receive, send)

    async def __call__(self, scope: Scope, sent: Sent, receive: Receive, send: Send) -> None:
        """Serve a request to the API listener."""
        headers: Headers = scope["headers"]
        verdict = self._gate.judge_origin(headers, sent)
        if verdict.refused:
            await self._refuse(scope, sent, verdict, send)
        elif verdict.cors and is_preflight(scope["method"], headers):
            await send_whole(send, 204, None, b"", *preflight(origin_in(headers) or b"", headers))
        else:
            await self._serve(scope, sent, verdict, receive, with_headers(send, verdict.cors))

    async def _serve(self, scope: Scope, sent: Sent, told: Verdict, receive: Receive, send: Send) -> None:
        path: bytes = scope["raw_path"]
        if b"%" in path or b"//" in path:
            await send_json(send, 404, {"error": "not found"})
            return
        verdict = await self._gate.judge_rest(scope["method"], path, scope["headers"], told, sent.client)
        if verdict.refused:
            await self._refuse(scope, sent, verdict, send)
        elif path == b"/metrics" and self._own_metrics:
            await serve_metrics(self._metrics, scope, send)
        else:
            if scope["method"] != "POST" or path.count(b"/") > 2:  # else /agents/register and its like: no id
                await self._seek(path)
            scope["scheme"] = sent.scheme
            scope["headers"] = _as_sent(scope["headers"], sent)
            scope["vitalgate.identity"] = verdict.identity
            scope["vitalgate.client"] = sent.client
            await self._app(scope, receive, send)

    async def _refuse(self, scope: Scope, sent: Sent, verdict: Verdict, send: Send) -> None:
        reason = verdict.refused
        self._logs.audit(
            scope["method"] + " " + scope["raw_path"][:128].decode("latin-1"),
            caller=verdict.identity.name,
            agent="",
            outcome="refused",
            reason=reason,
            client=sent.client,
        )
        status, text = _REFUSALS[reason]
        further: Headers = [(b"cache-control", b"no-store")]
        if reason == UNAUTHENTICATED:
            further.append((b"www-authenticate", challenge(scope["headers"])))
        elif reason == RATE_LIMITED:
            further.append((b"retry-after", retry_after(verdict.wait)))
        await send_json(send, status, {"error": text}, *further)


def _as_sent(headers: Headers, sent: Sent) -> Headers:
    """Put the host in to which the request was sent: proxies that are believed may have changed it."""
    if (b"host", sent.host) in headers:
        return headers
    return [(b"host", sent.host), *(pair for pair in headers if pair[0] != b"host")]


def with_headers(send: Send, further: Headers) -> Send:
    """Add headers to whatever is answered."""
    if not further:
        return send

    async def wrapped(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *further]}
        await send(message)

    return wrapped


class Pages(Protocol):
    """What writes `/metrics`."""

    async def page(self) -> bytes:
        """Write the whole page."""


async def serve_metrics(metrics: Pages, scope: Scope, send: Send) -> None:
    """Answer with the page of metrics; there is nothing else beside it."""
    if scope["raw_path"] != b"/metrics":
        await send_json(send, 404, {"error": "not found"})
    elif scope["method"] not in ("GET", "HEAD"):
        await send_json(send, 405, {"error": "method not allowed"}, (b"allow", b"GET, HEAD"))
    else:
        await send_whole(send, 200, CONTENT_TYPE.encode(), await metrics.page())


async def send_whole(
    send: Send, status: int, content_type: bytes | None, body: bytes, *headers: tuple[bytes, bytes]
) -> None:
    """Send a whole answer."""
    own = [] if content_type is None else [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body})


async def send_json(send: Send, status: int, body: dict[str, str], *headers: tuple[bytes, bytes]) -> None:
    """Send a JSON object."""
    await send_whole(send, status, _JSON, msgspec.json.encode(body), *headers)
