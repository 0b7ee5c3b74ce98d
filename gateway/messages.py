"""What goes into the proxy and what comes out, whoever reads and writes it."""

from __future__ import annotations

import msgspec

from gateway.headers import Headers, Inbound
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
        inbound: What the headers say, if they have been read before.
        forgotten: How many bytes the body had that is not kept any more.
    """

    agent: bytes
    headers: Headers
    query: bytes
    body: bytes | memoryview | None
    identity: Identity = ANONYMOUS
    peer: str = ""
    refused: str = ""
    push: bytes = b""
    inbound: Inbound | None = None
    forgotten: int = 0

    def forget(self) -> None:
        """Keep no copy of what the agent has begun to answer."""
        self.forgotten = len(self.body or b"")
        self.headers, self.body = [], b""


class Plain(msgspec.Struct, gc=False):
    """What the head of a plain call says; of many calls, if it comes again.

    Attributes:
        url: The request target.
        headers: As those of a `Request`.
        fields: The same by name; of several with one name, one.
        agent: The path segment that names the agent, undecoded.
        query: The raw query string.
        inbound: What the headers say to the proxy.
    """

    url: bytes
    headers: Headers
    fields: dict[bytes, bytes]
    agent: bytes
    query: bytes
    inbound: Inbound


class Reply(msgspec.Struct, gc=False):
    """What goes back to the caller: status, header lines and body; or a stream, which has no Content-Length."""

    status: int
    head: bytes
    body: bytes | memoryview
    stream: Relay | None = None
