"""The ASGI door: `POST /a2a/...` drives the proxy, everything else goes to Litestar (contract 1).

It stands in front of Litestar because routing, decoding and request objects would cost more than the whole call.
Paths are judged raw, before anything decodes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway import jsonrpc
from gateway.card_protocols import V1_0, declared_protocols
from gateway.cards import parse_card
from gateway.faults import FAULTS
from gateway.gate import ORIGIN_NOT_TRUSTED, Gate, Verdict
from gateway.headers import Headers
from gateway.identity import Identity
from gateway.messages import Plain, Reply, Request
from gateway.metrics import Metrics
from gateway.protocol import Caller
from gateway.proxies import Sent
from gateway.proxy import Proxy
from gateway.push import is_of_an_ended_stream, opening, wanted_task
from gateway.rest import Receive, Rest, Scope, Send, send_json, send_whole, serve_metrics, with_headers
from gateway.upstream.content_length import read_length
from registry.agent import Agent

_JSON: Final = (b"content-type", b"application/json")
_BODY_HEADERS: Final = frozenset((b"content-type", b"content-length", b"transfer-encoding"))
#: So much of the body of a refused call is read, for its id (contract 2.1).
REFUSED_BYTES: Final = 64 * 1024
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
        rest: Rest,
        metrics: Metrics,
        gate: Gate,
        doors: Doors,
        published: Callable[[str], Mapping[str, Any] | None] = lambda agent_id: None,
    ) -> None:
        """Take the proxy, the REST routes, and what decides between them.

        Args:
            proxy: Takes the calls.
            rest: Takes everything else.
            metrics: Writes `/metrics`.
            gate: Judges who may pass.
            doors: What is open.
            published: Tells what an agent publishes of its protocols.
        """
        self._proxy = proxy
        self._rest = rest
        self._metrics = metrics
        self._by_path = metrics.by_path
        self._gate = gate
        self._doors = doors
        self._published = published
        self.port = doors.port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] != "http":
            await self._rest.lifespan(scope, receive, send)
            return
        path: bytes = scope["raw_path"]
        doors = self._doors
        if doors.metrics_port is not None and scope["server"][1] == doors.metrics_port:
            await serve_metrics(self._metrics, scope, send)
            return
        sent = self._gate.sent(scope)
        if not self._gate.allows_host(sent):
            await self._refuse_host(scope, path, send)
        elif scope["method"] == "POST" and doors.enable and (path[:5] == b"/a2a/" or path == b"/a2a"):
            await self._call(path, sent, scope, receive)
        elif scope["method"] == "GET" and doors.enable and _PUSH(path):
            await self._push(path[5:-7], sent, scope, send)
        elif doors.enable or _is_own(path):
            await self._rest(scope, sent, receive, send)
        else:
            await send_json(send, 404, {"error": "not found"})

    async def _push(self, segment: bytes, sent: Sent, scope: Scope, send: Send) -> None:
        """Open a stream for a browser (contract 3.6); one that has ended is not opened again."""
        headers = [pair for pair in scope["headers"] if pair[0] not in _BODY_HEADERS]
        verdict = await self._gate.judge(headers, sent)
        if not verdict.refused and not verdict.cors and self._gate.is_foreign(headers):
            verdict = Verdict(refused=ORIGIN_NOT_TRUSTED)
        ended = any(name == b"last-event-id" and is_of_an_ended_stream(value) for name, value in headers)
        if ended and not verdict.refused:
            await send_whole(with_headers(send, verdict.cors), 204, None, b"")
            return
        stream_id, query = self._proxy.new_stream_id(), scope["query_string"]
        if not verdict.refused:
            await self._proxy.peers.seek(scope["raw_path"])
        peer = self._proxy.peers.find(segment)
        only_v1 = peer is not None and self._protocols(peer.agent) == {V1_0}
        body = opening(stream_id, wanted_task(query), only_v1=only_v1)
        request = Request(segment, [*headers, _JSON], query, body, push=stream_id)
        await self._answered(scope["vitalgate.connection"], request, verdict)

    def _protocols(self, agent: Agent) -> frozenset[str]:
        declared = declared_protocols(parse_card(agent.card))
        return declared or declared_protocols(self._published(agent.agent_id) or {})

    async def _call(self, path: bytes, sent: Sent, scope: Scope, receive: Receive) -> None:
        caller: Caller = scope["vitalgate.connection"]
        headers = list(scope["headers"])
        verdict = await self._gate.judge(headers, sent)
        limit = self._doors.max_request_bytes
        request = Request(_segment(path), headers, scope["query_string"], None)
        request.body = await _read_body(headers, receive, min(limit, REFUSED_BYTES) if verdict.refused else limit)
        await self._answered(caller, request, verdict)

    async def _answered(self, caller: Caller, request: Request, verdict: Verdict) -> None:
        """Wait until the answer is complete, or the caller is gone; it may have gone before this task began."""
        if caller.lost:
            return
        self._by_path["asgi"] += 1
        done = caller.done = caller.loop.create_future()
        request.identity, request.refused = verdict.identity, verdict.refused
        self._begin(caller, request, _telling(caller.deliver, verdict.cors) if verdict.cors else caller.deliver)
        await done

    def _begin(self, caller: Caller, request: Request, deliver: Callable[[Reply | None], None]) -> None:
        request.peer = caller.client[0] if caller.client else ""
        call = self._proxy.call(request, deliver)
        if not call.ended:
            caller.on_lost = call.cancel

    # The door: the same without ASGI

    def admits(self, caller: Caller, plain: Plain, length: int) -> Identity | None:
        """Give who calls, if a POST with this head and so long a body may skip ASGI."""
        if self._doors.enable and length <= self._doors.max_request_bytes and b"#" not in plain.url:
            return self._gate.direct(plain.headers, plain.fields, caller.client[0] if caller.client else "")
        return None

    def read(self, url: bytes, headers: Headers, fields: dict[bytes, bytes]) -> Plain:
        """Read the head of a POST."""
        path, _, query = url.partition(b"?")
        return Plain(url, headers, fields, _segment(path), query, self._proxy.headers.read(headers))

    def call(self, caller: Caller, plain: Plain, identity: Identity, body: bytes | memoryview) -> None:
        """Take a complete call."""
        self._by_path["direct"] += 1
        client = caller.client
        peer = client[0] if client else ""
        request = Request(plain.agent, plain.headers, plain.query, body, identity, peer, inbound=plain.inbound)
        call = self._proxy.call(request, caller.deliver)
        if not call.ended:
            caller.on_lost = call.cancel

    async def _refuse_host(self, scope: Scope, path: bytes, send: Send) -> None:
        fault = FAULTS["HOST_NOT_ALLOWED"]
        if scope["method"] == "POST" and path[:4] == b"/a2a":
            gateway_error = (b"x-gateway-error", fault.reason.encode())
            await send_whole(send, 421, b"application/json", jsonrpc.error(fault, jsonrpc.NULL), gateway_error)
        else:
            await send_json(send, 421, {"error": "host not allowed: set server.allowed_hosts"})


def _telling(deliver: Callable[[Reply | None], None], cors: Headers) -> Callable[[Reply | None], None]:
    """Let the page that called read the answer."""
    lines = b"".join(b"%b: %b\r\n" % line for line in cors)

    def told(reply: Reply | None) -> None:
        if reply is not None:
            reply.head += lines
        deliver(reply)

    return told


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
        if name == b"content-length" and (read_length(value) or 0) > limit:
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
