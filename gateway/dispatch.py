"""The ASGI door: `POST /a2a/...` drives the proxy, everything else goes to Litestar (contract 1).

It stands in front of Litestar because routing, decoding and request objects would cost more than the whole call.
Paths are judged raw, before anything decodes them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from gateway import jsonrpc
from gateway.card_protocols import V1_0, declared_protocols
from gateway.cards import parse_card
from gateway.faults import FAULTS
from gateway.headers import Headers
from gateway.hosts import HostCheck
from gateway.messages import Request
from gateway.metrics import CONTENT_TYPE, Metrics
from gateway.protocol import Caller
from gateway.proxy import Proxy
from gateway.push import is_of_an_ended_stream, opening, wanted_task

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
ASGI = Callable[[Any, Any, Any], Awaitable[None]]


_JSON: Final = (b"content-type", b"application/json")
_BODY_HEADERS: Final = frozenset((b"content-type", b"content-length", b"transfer-encoding"))
_PUSH: Final = re.compile(rb"/a2a/.+/stream", re.DOTALL).fullmatch


@dataclass(frozen=True, slots=True)
class Doors:
    """What the listeners serve.

    Attributes:
        enable: False: no agents and no calls (`a2a.enable`).
        metrics_port: The port of the metrics listener; None: `/metrics` stands on the API's.
        max_request_bytes: The largest body of a call.
        port: The port of the API listener.
    """

    enable: bool
    metrics_port: int | None
    max_request_bytes: int
    port: int


class Dispatch:
    """The ASGI application."""

    def __init__(
        self,
        proxy: Proxy,
        rest: ASGI,
        metrics: Metrics,
        hosts: HostCheck,
        doors: Doors,
    ) -> None:
        """Take the proxy, Litestar's application, and what decides between them.

        Args:
            proxy: Takes the calls.
            rest: Takes everything else.
            metrics: Writes `/metrics`.
            hosts: Judges the `Host` header.
            doors: What is open.
        """
        self._proxy = proxy
        self._rest = rest
        self._metrics = metrics
        self._by_path = metrics.by_path
        self._hosts = hosts
        self._doors = doors
        self.port = doors.port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] != "http":
            await self._rest(scope, receive, send)
            return
        path: bytes = scope["raw_path"]
        doors = self._doors
        if doors.metrics_port is not None and scope["server"][1] == doors.metrics_port:
            await self._serve_metrics(scope, path, send)
        elif not self._hosts.allows(scope["headers"]):
            await self._refuse_host(scope, path, send)
        elif scope["method"] == "POST" and doors.enable and (path[:5] == b"/a2a/" or path == b"/a2a"):
            await self._call(path, scope, receive)
        elif scope["method"] == "GET" and doors.enable and _PUSH(path):
            await self._push(path[5:-7], scope, send)
        else:
            await self._other(scope, path, receive, send)

    async def _push(self, segment: bytes, scope: Scope, send: Send) -> None:
        """Open a stream for a browser (contract 3.6); one that has ended is not opened again."""
        headers = [pair for pair in scope["headers"] if pair[0] not in _BODY_HEADERS]
        if any(name == b"last-event-id" and is_of_an_ended_stream(value) for name, value in headers):
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        stream_id, query = self._proxy.new_stream_id(), scope["query_string"]
        peer = self._proxy.peers.find(segment)
        only_v1 = peer is not None and declared_protocols(parse_card(peer.agent.card)) == {V1_0}
        body = opening(stream_id, wanted_task(query), only_v1=only_v1)
        request = Request(segment, [*headers, _JSON], query, body, push=stream_id)
        await self._answered(scope["vitalgate.connection"], request)

    async def _call(self, path: bytes, scope: Scope, receive: Receive) -> None:
        caller: Caller = scope["vitalgate.connection"]
        headers = list(scope["headers"])
        body = await _read_body(headers, receive, self._doors.max_request_bytes)
        await self._answered(caller, Request(_segment(path), headers, scope["query_string"], body))

    async def _answered(self, caller: Caller, request: Request) -> None:
        """Wait until the answer is complete, or the caller is gone; it may have gone before this task began."""
        if caller.lost:
            return
        self._by_path["asgi"] += 1
        done = caller.done = caller.loop.create_future()
        self._begin(caller, request)
        await done

    def _begin(self, caller: Caller, request: Request) -> None:
        call = self._proxy.call(request, caller.deliver)
        if not call.ended:
            caller.on_lost = call.cancel

    # The door: the same without ASGI

    def admits(self, url: bytes, fields: dict[bytes, bytes]) -> bool:
        """Tell whether a POST with this target and these headers may skip ASGI."""
        length = fields.get(b"content-length", b"")
        return (
            self._doors.enable
            and length.isdigit()
            and int(length) <= self._doors.max_request_bytes
            and b"#" not in url
            and self._hosts.allows_host(fields.get(b"host", b""))
        )

    def call(self, caller: Caller, url: bytes, headers: Headers, body: bytes) -> None:
        """Take a complete call."""
        self._by_path["direct"] += 1
        path, _, query = url.partition(b"?")
        self._begin(caller, Request(_segment(path), headers, query, body))

    async def _other(self, scope: Scope, path: bytes, receive: Receive, send: Send) -> None:
        if path == b"/metrics" and self._doors.metrics_port is None:
            await self._serve_metrics(scope, path, send)
        elif b"%" in path or b"//" in path or not (self._doors.enable or _is_own(path)):
            await _send_json(send, 404, {"error": "not found"})
        else:
            await self._rest(scope, receive, send)

    async def _serve_metrics(self, scope: Scope, path: bytes, send: Send) -> None:
        if path != b"/metrics":
            await _send_json(send, 404, {"error": "not found"})
        elif scope["method"] not in ("GET", "HEAD"):
            await _send_json(send, 405, {"error": "method not allowed"}, (b"allow", b"GET, HEAD"))
        else:
            await _send(send, 200, CONTENT_TYPE.encode(), await self._metrics.page())

    async def _refuse_host(self, scope: Scope, path: bytes, send: Send) -> None:
        fault = FAULTS["HOST_NOT_ALLOWED"]
        if scope["method"] == "POST" and path[:4] == b"/a2a":
            gateway_error = (b"x-gateway-error", fault.reason.encode())
            await _send(send, 421, b"application/json", jsonrpc.error(fault, jsonrpc.NULL), gateway_error)
        else:
            await _send_json(send, 421, {"error": "host not allowed: set server.allowed_hosts"})


def _is_own(path: bytes) -> bool:
    """Tell whether a path is about the gateway itself, and not about agents (`a2a.enable: false`)."""
    return not path.startswith((b"/a2a", b"/agents"))


def _segment(path: bytes) -> bytes:
    """Give what names the agent in `/a2a/{agent_id}` and `/a2a/{agent_id}/`."""
    return path[5:-1] if path[-1:] == b"/" else path[5:]


async def _read_body(headers: list[tuple[bytes, bytes]], receive: Receive, limit: int) -> bytes | None:
    """Read a request's body; None as soon as it is known to be over the limit.

    What is announced as too large is refused unread, so that nothing is asked to be sent (Expect). Slowness is
    the server's to bound (`server.request_timeout_seconds`).
    """
    for name, value in headers:
        if name == b"content-length" and int(value) > limit:
            return None
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        pieces, size = [body], len(body)
        while message.get("more_body") and size <= limit:
            message = await receive()
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
        body = b"".join(pieces)
    return body if len(body) <= limit else None


async def _send(send: Send, status: int, content_type: bytes, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", b"%d" % len(body))
    start = {"status": status, "headers": [(b"content-type", content_type), length, *headers]}
    await send({"type": "http.response.start", **start})
    await send({"type": "http.response.body", "body": body})


async def _send_json(send: Send, status: int, body: dict[str, str], *headers: tuple[bytes, bytes]) -> None:
    await _send(send, status, b"application/json", msgspec.json.encode(body), *headers)
