"""What a `Membership` asks of a gateway, and what the answers mean (contract 5.1 to 5.3)."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import random
from collections.abc import Awaitable, Callable
from typing import Final

import httpx

from registry.url import parse_url

Token = str | Callable[[], str | Awaitable[str]]

ANSWER_SECONDS: Final = 10.0
ANSWER_BYTES: Final = 1024 * 1024
LONGEST_WAIT: Final = 60.0
"""The longest that a gateway may ask for with Retry-After, in seconds."""

_AWAY: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
"""Answers that mean: the same again later. What else is not 200 needs somebody to act."""
_JSON: Final = {"Accept": "application/json", "Content-Type": "application/json"}


class RefusedError(Exception):
    """The gateway does not take the agent: whoever runs it must act. The text says why, without the token."""


class AwayError(Exception):
    """There was no answer that says anything about the agent.

    Attributes:
        wait: seconds that the gateway asks for.
    """

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class ForgottenError(Exception):
    """The gateway does not know the agent: it must register again."""


class Gateway:
    """A gateway's registry, over HTTP. Every method raises `AwayError` and `RefusedError`."""

    def __init__(self, url: str, token: Token | None, client: httpx.AsyncClient) -> None:
        self._url = url
        self._token = token
        self._client = client

    async def register(self, document: bytes) -> None:
        """Register an agent, or replace its card (contract 5.1)."""
        status, body = await self._ask("POST", "agents/register", document)
        if status != 200:
            raise self._refusal(status, body)

    async def beat(self, agent_id: str) -> float:
        """Send a heartbeat; give the TTL in seconds (contract 5.2).

        Raises:
            ForgottenError: the gateway does not know the agent.
        """
        status, body = await self._ask("POST", "agents/heartbeat", json.dumps({"agent_id": agent_id}).encode())
        if status == 400:
            raise ForgottenError
        if status != 200:
            raise self._refusal(status, body)
        return _ttl(body)

    async def leave(self, agent_id: str) -> None:
        """Deregister an agent; one that is gone already is as good (contract 5.2)."""
        status, body = await self._ask("DELETE", f"agents/{agent_id}", None)
        if status not in (200, 404):
            raise self._refusal(status, body)

    async def _ask(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        headers = {**_JSON, **await self._authorization()}
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                async with self._client.stream(
                    method, f"{self._url}/{path}", content=content, headers=headers
                ) as answer:
                    body = await _read(answer)
        except TimeoutError:
            raise AwayError(f"no answer within {ANSWER_SECONDS:g} s") from None
        except (httpx.HTTPError, OSError) as error:
            raise AwayError(in_a_line(error)) from None
        if answer.status_code in _AWAY:
            raise AwayError(_reason(answer.status_code, body), _retry_after(answer.headers))
        return answer.status_code, body

    async def _authorization(self) -> dict[str, str]:
        if self._token is None:
            return {}
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                token = self._token if isinstance(self._token, str) else self._token()
                token = await token if inspect.isawaitable(token) else token
        except Exception as error:  # the agent author's function
            raise RefusedError(f"there is no token to show: {in_a_line(error)}") from None
        token = str(token or "").strip()  # files end with a line end
        if not token or not token.isascii() or not token.isprintable():
            raise RefusedError("there is no token to show: it is empty, or no header can hold it")
        return {"Authorization": f"Bearer {token}"}

    def _refusal(self, status: int, body: bytes) -> RefusedError:
        hint = "; no token was shown" if status == 401 and self._token is None else _HINTS.get(status, "")
        return RefusedError(_reason(status, body) + hint)


_HINTS: Final = {
    **dict.fromkeys((301, 302, 307, 308), ": the gateway's URL leads elsewhere"),
    404: ": is this the base URL of a gateway?",
}


def base_url(text: str) -> str:
    """Read a gateway's URL; give it without a slash at its end.

    Raises:
        ValueError: why it is none.
    """
    try:
        found = str(parse_url(text))
    except ValueError as error:
        raise ValueError(f"the gateway's URL: {error}") from None
    if "?" in found:
        raise ValueError("the gateway's URL: a query is not allowed")
    return found.rstrip("/")


def new_client() -> httpx.AsyncClient:
    """A client that keeps no connection: heartbeats are rare, and an idle one may be dead, or of a dead node."""
    return httpx.AsyncClient(
        trust_env=False, timeout=ANSWER_SECONDS, limits=httpx.Limits(max_keepalive_connections=0)
    )


def in_a_line(error: Exception) -> str:
    """Describe an exception; those about our own request may repeat its headers, and are only named."""
    told = "" if isinstance(error, httpx.LocalProtocolError) else _one_line(str(error), 500)
    return f"{type(error).__name__}: {told}" if told else type(error).__name__


async def _read(answer: httpx.Response) -> bytes:
    body = bytearray()
    async for piece in answer.aiter_bytes():
        body += piece
        if len(body) > ANSWER_BYTES:
            raise AwayError("the answer is too long for a gateway's")
    return bytes(body)


def _retry_after(headers: httpx.Headers) -> float:
    """The seconds that were asked for, if given as a number (RFC 9110 10.2.3); spread a little."""
    text = headers.get("retry-after", "")
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        return 0.0
    return min(float(text), LONGEST_WAIT) * random.uniform(1.0, 1.1)  # noqa: S311 - not a secret


def _ttl(body: bytes) -> float:
    try:
        found = float(json.loads(body)["ttl_seconds"])
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        found = math.nan
    if not (math.isfinite(found) and found > 0):
        raise RefusedError("the answer to a heartbeat has no ttl_seconds: is this a gateway?")
    return found


def _reason(status: int, body: bytes) -> str:
    """What a REST error of the gateway says (contract 5.1), in one line."""
    try:
        document = json.loads(body)
        details = "; ".join(f"{detail['field']}: {detail['message']}" for detail in document.get("details", ()))
        said = f"{document['error']} ({details})" if details else str(document["error"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"HTTP {status}"
    return f"HTTP {status}: {_one_line(said, 2000)}"


def _one_line(text: str, most: int) -> str:
    """What somebody else says, in a form that any log and any terminal can hold."""
    line = " ".join(text.split())[:most]
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)
