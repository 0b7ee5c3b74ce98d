"""The behaviours of a `FaultAgent`: each makes one answer, or one failure.

`agent.next(reply.json({"Output": 1}))`, `agent.always(reply.hang())`. `TABLE` holds all makers of this module.
"""

from __future__ import annotations

import asyncio
import json as _json
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, Literal, ParamSpec

from tests.fakes.answers import (
    JSON,
    LAST_CHUNK,
    Headers,
    bomb,
    chunk,
    deflate,
    gzip,
    head,
    rpc,
    seen,
    wire,
)
from tests.fakes.connection import Behaviour, Connection, Received

__all__ = ["LAST_CHUNK", "bomb", "chunk", "deflate", "gzip", "head", "rpc", "seen", "wire"]

P = ParamSpec("P")

TABLE: dict[str, Callable[..., Behaviour]] = {}


def behaviour(
    run: Callable[Concatenate[Connection, Received, P], Awaitable[None]],
) -> Callable[P, Behaviour]:
    """A function of (connection, request, ...) becomes a maker of behaviours with the other arguments."""

    def make(*args: P.args, **kwargs: P.kwargs) -> Behaviour:
        async def act(connection: Connection, request: Received | None) -> None:
            assert request is not None
            await run(connection, request, *args, **kwargs)

        return Behaviour(run.__name__, act)

    make.__doc__ = run.__doc__
    if run.__module__ == __name__:
        TABLE[run.__name__] = make
    return make


def _on_connect(run: Callable[Concatenate[Connection, P], Awaitable[None]]) -> Callable[P, Behaviour]:
    """The same for what happens on a fresh connection, before any request is read."""

    def make(*args: P.args, **kwargs: P.kwargs) -> Behaviour:
        async def act(connection: Connection, _: Received | None) -> None:
            await run(connection, *args, **kwargs)

        return Behaviour(run.__name__, act, "connect")

    make.__doc__ = run.__doc__
    TABLE[run.__name__] = make
    return make


# -- whole, well-formed answers


@behaviour
async def body(
    connection: Connection, request: Received, data: bytes, *, status: int = 200, headers: Headers = JSON
) -> None:
    """Any status, any headers, any body."""
    await connection.send(wire(status, headers, data))


@behaviour
async def json(
    connection: Connection, request: Received, value: Any, *, status: int = 200, headers: Headers = JSON
) -> None:
    """A JSON value as it is: no envelope is added."""
    await connection.send(wire(status, headers, _json.dumps(value).encode()))


@behaviour
async def result(
    connection: Connection, request: Received, value: Any, *, status: int = 200, headers: Headers = JSON
) -> None:
    """A JSON-RPC result with the request's id."""
    await connection.send(wire(status, headers, rpc(request, "result", value)))


@behaviour
async def error(
    connection: Connection,
    request: Received,
    code: int,
    message: str = "refused by the agent",
    *,
    data: Any = None,
    status: int = 200,
    headers: Headers = JSON,
) -> None:
    """A JSON-RPC error with the request's id, under any status."""
    value = {"code": code, "message": message, **({} if data is None else {"data": data})}
    await connection.send(wire(status, headers, rpc(request, "error", value)))


@behaviour
async def echo(connection: Connection, request: Received, *, headers: Headers = JSON) -> None:
    """A JSON-RPC result that shows the request as the agent saw it (see `seen`)."""
    await connection.send(wire(200, headers, rpc(request, "result", seen(request))))


@behaviour
async def with_id(connection: Connection, request: Received, id: bytes | None, member: str = "result") -> None:
    """A JSON-RPC answer with another id (raw JSON text; None = no id member)."""
    value = b'{"code":-32000,"message":"m"}' if member == "error" else b"{}"
    shown = b"" if id is None else b'"id":%s,' % id
    await connection.send(wire(200, JSON, b'{"jsonrpc":"2.0",%s"%s":%s}' % (shown, member.encode(), value)))


@behaviour
async def redirect(connection: Connection, request: Received, location: str, *, status: int = 302) -> None:
    await connection.send(wire(status, [("Location", location)], b""))


@behaviour
async def no_content(connection: Connection, request: Received) -> None:
    """204: no body and no Content-Length."""
    await connection.send(head(204))


@behaviour
async def raw(connection: Connection, request: Received, data: bytes, *, close: bool = False) -> None:
    """Bytes as they are; the connection stays open unless told otherwise."""
    await connection.send(data)
    if close:
        connection.close()


# -- framing


@behaviour
async def chunked(
    connection: Connection,
    request: Received,
    data: bytes,
    *,
    size: int = 16,
    end: bool = True,
    trailers: Headers = (),
    headers: Headers = JSON,
) -> None:
    """Chunks of `size` bytes; without `end` the connection is closed where the last chunk should come."""
    await connection.send(head(200, [*headers, ("Transfer-Encoding", "chunked")]))
    for at in range(0, len(data), size):
        await connection.send(chunk(data[at : at + size]))
    if not end:
        connection.close()
        return
    lines = "".join(f"{name}: {value}\r\n" for name, value in trailers)
    await connection.send(f"0\r\n{lines}\r\n".encode("latin-1"))


@behaviour
async def until_close(
    connection: Connection,
    request: Received,
    data: bytes,
    *,
    version: str = "HTTP/1.1",
    headers: Headers = JSON,
) -> None:
    """No framing at all: the end of the connection is the end of the body."""
    await connection.send(head(200, headers, version) + data)
    connection.close()


@behaviour
async def http10(
    connection: Connection, request: Received, data: bytes, *, length: bool = True, keep_alive: bool = False
) -> None:
    """An HTTP/1.0 answer: closes unless `keep_alive`."""
    headers = [*JSON, *([("Connection", "keep-alive")] if keep_alive else [])]
    answer = wire(200, headers, data, "HTTP/1.0") if length else head(200, headers, "HTTP/1.0") + data
    await connection.send(answer)
    if not keep_alive:
        connection.close()


@behaviour
async def short(connection: Connection, request: Received, data: bytes, *, missing: int = 10) -> None:
    """A Content-Length that promises `missing` bytes more than come, then FIN."""
    await connection.send(wire(200, [*JSON, ("Content-Length", str(len(data) + missing))], data))
    connection.close()


@behaviour
async def excess(connection: Connection, request: Received, data: bytes, extra: bytes = b"HTTP/1.1 ") -> None:
    """More bytes than the answer has: they belong to no request."""
    await connection.send(wire(200, JSON, data) + extra)


@behaviour
async def two_lengths(connection: Connection, request: Received, data: bytes, second: int | None = None) -> None:
    """Two Content-Length headers, by default contradictory ones."""
    other = len(data) + 1 if second is None else second
    await connection.send(
        wire(200, [*JSON, ("Content-Length", str(len(data))), ("Content-Length", str(other))], data)
    )


@behaviour
async def length_and_chunked(connection: Connection, request: Received, data: bytes) -> None:
    """Both framings at once."""
    headers = [*JSON, ("Content-Length", str(len(data))), ("Transfer-Encoding", "chunked")]
    await connection.send(head(200, headers) + chunk(data) + LAST_CHUNK)


@behaviour
async def interim(
    connection: Connection,
    request: Received,
    then: Behaviour,
    statuses: tuple[int, ...] = (100, 103),
    headers: Headers = (("Link", "</style.css>"),),
) -> None:
    """Interim answers before the real one."""
    for status in statuses:
        await connection.send(head(status, headers))
    await then.run(connection, request)


@behaviour
async def switching(connection: Connection, request: Received, protocol: str = "websocket") -> None:
    """101, and then something that is not HTTP."""
    await connection.send(head(101, [("Connection", "Upgrade"), ("Upgrade", protocol)]) + b"\x81\x02hi")


@behaviour
async def huge_header(connection: Connection, request: Received, size: int = 1 << 20, *, end: bool = True) -> None:
    """One header line of `size` bytes; without `end` the head is never finished (until the peer leaves)."""
    await connection.send(b"HTTP/1.1 200 OK\r\nX-Huge: ")
    for _ in range(size >> 10):
        await connection.send(b"h" * 1024)
    if not end:
        await connection.peer_gone.wait()
        return
    await connection.send(b"\r\nContent-Length: 2\r\n\r\n{}")


@behaviour
async def many_headers(connection: Connection, request: Received, count: int = 5000) -> None:
    await connection.send(wire(200, [*JSON, *((f"X-H{n}", "v") for n in range(count))], b"{}"))


# -- content codings


@behaviour
async def coded(connection: Connection, request: Received, data: bytes, coding: str = "gzip") -> None:
    """Bytes that are said to be coded; `gzip`, `deflate` and `bomb` of this module make true ones."""
    await connection.send(wire(200, [*JSON, ("Content-Encoding", coding)], data))


# -- slowness and silence


@behaviour
async def dribble(
    connection: Connection,
    request: Received,
    data: bytes,
    *,
    size: int = 1,
    every: float = 0.05,
    first: int = 0,
) -> None:
    """Raw bytes, `size` at a time each `every` seconds; the `first` so many at once (say, the head)."""
    if first:
        await connection.send(data[:first])
    for at in range(first, len(data), size):
        await connection.pause(every)
        await connection.send(data[at : at + size])


@behaviour
async def hang(connection: Connection, request: Received, sent: bytes = b"") -> None:
    """Never answers, or stops after the bytes given; ends when the peer leaves."""
    if sent:
        await connection.send(sent)
    await connection.peer_gone.wait()


@behaviour
async def late(connection: Connection, request: Received, seconds: float, then: Behaviour) -> None:
    await connection.pause(seconds)
    await then.run(connection, request)


@behaviour
async def after(connection: Connection, request: Received, event: asyncio.Event, then: Behaviour) -> None:
    """Answers when the test says so; gives up when the peer leaves first."""
    waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(connection.peer_gone.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    if event.is_set():
        await then.run(connection, request)


@behaviour
async def endless(
    connection: Connection,
    request: Received,
    framing: Literal["chunked", "close", "length"] = "chunked",
    block: bytes = b"[0]," * 4096,
) -> None:
    """A body without end (`length`: of 10 GiB), as fast as the peer takes it, until the peer leaves."""
    headers = {
        "chunked": ("Transfer-Encoding", "chunked"),
        "close": ("X-Framing", "close"),
        "length": ("Content-Length", str(10 << 30)),
    }
    data = chunk(block) if framing == "chunked" else block
    await connection.send(head(200, [*JSON, headers[framing]]) + (chunk(b"[") if framing == "chunked" else b"["))
    while connection.closed_at is None:
        await connection.send(data)


# -- broken connections


@behaviour
async def close(connection: Connection, request: Received, sent: bytes = b"") -> None:
    """FIN after the request: without a byte, or after the bytes given."""
    if sent:
        await connection.send(sent)
    connection.close()


@behaviour
async def close_after(connection: Connection, request: Received, then: Behaviour, *, seconds: float = 0.0) -> None:
    """A whole answer that promises to keep the connection, which then closes all the same."""
    await then.run(connection, request)
    await connection.pause(seconds)
    connection.close()


@behaviour
async def reset(connection: Connection, request: Received, sent: bytes = b"") -> None:
    """RST after the request: without a byte, or after the bytes given (half a head, part of a body)."""
    if sent:
        await connection.send(sent)
        await _delivered(connection)
    connection.reset()


async def _delivered(connection: Connection) -> None:
    """Lets the peer read what was sent: a reset throws away what its kernel has not handed over yet."""
    for _ in range(200):
        if _unacknowledged(connection) == 0:
            break
        await asyncio.sleep(0.001)
    await connection.pause(0.02)


def _unacknowledged(connection: Connection) -> int:
    """Bytes the peer's kernel has not taken (SIOCOUTQ)."""
    import array
    import fcntl
    import termios

    count = array.array("i", [0])
    fcntl.ioctl(connection.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, count)
    return count[0]


@_on_connect
async def close_on_connect(connection: Connection) -> None:
    """Accepts and closes before a byte is read."""
    connection.close()


@_on_connect
async def reset_on_connect(connection: Connection) -> None:
    connection.reset()


@_on_connect
async def banner(connection: Connection, data: bytes = b"SSH-2.0-OpenSSH_9.6\r\n") -> None:
    """Speaks first, and not HTTP; then waits for the peer to leave."""
    await connection.send(data)
    await connection.peer_gone.wait()


@_on_connect
async def deaf(connection: Connection) -> None:
    """Accepts and never reads, so that the peer's writes stop; ends with the agent."""
    connection.transport.pause_reading()
    await asyncio.Event().wait()


@_on_connect
async def reset_while_receiving(connection: Connection, size: int = 1) -> None:
    """RST as soon as so many bytes of the request are there."""
    await connection.read(size)
    connection.reset()
