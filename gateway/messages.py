"""What goes into the proxy and what comes out, whoever reads and writes it."""

from __future__ import annotations

import msgspec

from gateway.headers import Headers
from gateway.identity import ANONYMOUS, Identity
from gateway.relay import Relay


class Request(msgspec.Struct, gc=False):
    """A caller's request as an adapter has read it.

    Attributes:
        agent: The path segment that names the agent, undecoded.
        headers: Names in lower case, in order.
        query: The raw query string.
        body: The whole body; None if it was larger than `a2a.max_request_bytes`.
        identity: Who calls.
        peer: Address of whoever is connected.
        refused: Reason why the gate does not let the call pass; the body is then read for its id only.
        push: Id of the stream that a GET asked for (contract 3.6): the gateway made the body itself.
    """

    agent: bytes
    headers: Headers
    query: bytes
    body: bytes | None
    identity: Identity = ANONYMOUS
    peer: str = ""
    refused: str = ""
    push: bytes = b""


class Reply(msgspec.Struct, gc=False):
    """What goes back to the caller: status, header lines and body; or a stream, which has no Content-Length."""

    status: int
    head: bytes
    body: bytes
    stream: Relay | None = None
