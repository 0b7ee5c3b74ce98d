"""The state of one request and its answer: over ASGI, or direct where a call needs none of it."""

from __future__ import annotations

import asyncio

from uvicorn._types import ASGI3Application, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.identity import Identity
from gateway.messages import Plain


class _NoEvent:
    """Nobody waits for the messages of a direct cycle."""

    def set(self) -> None:
        """Do nothing."""


NO_EVENT = _NoEvent()


class Direct:
    """The state of one request, with the names that uvicorn's cycle gives it."""

    __slots__ = (
        "disconnected",
        "identity",
        "keep_alive",
        "message_event",
        "more_body",
        "pieces",
        "plain",
        "response_complete",
        "response_started",
    )

    def __init__(self, keep_alive: bool, identity: Identity, plain: Plain | None) -> None:
        self.identity = identity
        self.plain = plain  # until the call begins
        self.keep_alive = keep_alive
        self.pieces: list[bytes] = []
        self.more_body = True
        self.disconnected = False
        self.response_started = False
        self.response_complete = False
        self.message_event = NO_EVENT


class Cycle(RequestResponseCycle):
    """One request and its response."""

    async def run_asgi(self, app: ASGI3Application) -> None:
        """As uvicorn's, except that a cancelled handler (the drain is over) is no error worth a traceback."""
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            self.transport.close()
            raise
        except Exception as error:
            self.logger.error("Exception in ASGI application", exc_info=error)
            await self._fail()
        else:
            if not self.response_complete and not self.disconnected:
                self.logger.error("ASGI application returned without completing its response")
                await self._fail()

    async def _fail(self) -> None:
        if self.response_started:
            self.transport.close()
        else:
            await self.send_500_response()


class CloseDelimited(Cycle):
    """The answer to an HTTP/1.0 request, which knows no chunks: the end of the connection ends the body."""

    async def send(self, message: ASGISendEvent) -> None:
        """As uvicorn's, without chunks and without a length to keep."""
        if message["type"] == "http.response.start":
            self.chunked_encoding = False
        elif message["type"] == "http.response.body":
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)
