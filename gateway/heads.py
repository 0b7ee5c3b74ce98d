"""Pure: the heads of requests to agents and of answers to callers; what a caller's query says."""

from __future__ import annotations

from urllib.parse import parse_qs

from gateway.headers import Inbound, Outbound
from gateway.jsonrpc import Envelope
from gateway.methods import STREAMING, V1_METHODS

_ACCEPT_STREAM = b"Accept: text/event-stream, application/json\r\n"


def request_head(
    prefix: bytes, inbound: Inbound, envelope: Envelope, caller: bytes, via: bytes, request_id: bytes, length: int
) -> bytes:
    """Write a request head: the peer's prefix, the caller's lines, the gateway's own (contract 2.2, 3.1).

    Args:
        prefix: Request line, Host and whatever else is the same for every call to the agent.
        inbound: What the caller sent.
        envelope: The call.
        caller: The line that names the caller.
        via: This gateway, as it stands in `Via`.
        request_id: The id of the request.
        length: Size of the body in bytes.
    """
    version = inbound.version
    if version is None and envelope.method in V1_METHODS:
        version = b"1.0"
    lines = inbound.lines
    if envelope.method in STREAMING:
        lines = [_ACCEPT_STREAM, *(line for line in lines if not line.startswith(b"accept:"))]
    return b"%b%b%bContent-Type: %b\r\n%bVia: %b\r\nX-Request-ID: %b\r\nContent-Length: %d\r\n\r\n" % (
        prefix,
        b"".join(lines),
        b"" if version is None else b"A2A-Version: %b\r\n" % version,
        inbound.content_type or b"",
        caller,
        b", ".join([*inbound.via, via]) if inbound.via else via,
        request_id,
        length,
    )


def reply_head(length: int, request_id: bytes, answer: Outbound | None) -> bytes:
    """Write the header lines of a reply: ours, and those of the agent that go back (contract 2.5)."""
    lines = b"content-type: application/json\r\ncontent-length: %d\r\nx-request-id: %b\r\n" % (length, request_id)
    return lines if answer is None or not answer.lines else lines + b"".join(answer.lines)


def challenge_head(length: int, request_id: bytes, answer: Outbound) -> bytes:
    """Write the header lines of an agent's 401 or 403 that goes back as it is (contract 6.4)."""
    kind = answer.content_type or b"application/json"
    ours = b"content-type: %b\r\ncontent-length: %d\r\nx-request-id: %b\r\n" % (kind, length, request_id)
    return b"".join((ours, b"x-content-type-options: nosniff\r\n", *answer.lines, *answer.challenges))


def stream_head(request_id: bytes, answer: Outbound) -> bytes:
    """Write the header lines of a stream (contract 3.2)."""
    return (
        b"content-type: text/event-stream\r\ncache-control: no-cache, no-transform\r\nx-accel-buffering: no\r\n"
        b"x-request-id: %b\r\n%b" % (request_id, b"".join(answer.lines))
    )


def speaks_a2a(inbound: Inbound, query: bytes, dialect: str) -> bool:
    """Tell the dialect as far as headers and query do; the query's version counts where no header has one.

    Args:
        inbound: What the caller sent; gets the query's version.
        query: Of the request's target.
        dialect: `a2a.dialect` (contract, introduction).
    """
    if query and inbound.version is None:
        version = in_query(query, "A2A-Version")
        inbound.version = version.encode() if version and version.isascii() else None
    return inbound.version is not None if dialect == "auto" else dialect == "a2a"


def in_query(query: bytes, name: str) -> str | None:
    """Give a member of a query string; None if it is not there, or not printable."""
    if name.encode() + b"=" not in query:
        return None
    try:
        values = parse_qs(query.decode("ascii"), max_num_fields=64).get(name, [])
        return values[0] if values and values[0].isprintable() else None
    except ValueError:
        return None
