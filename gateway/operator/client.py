"""HTTP to the gateway, with one deadline per command; foreign exceptions end here (contract 1, 5)."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import httpx

from gateway.operator.endpoint import Endpoint
from gateway.operator.failures import CONNECTION, ERROR, TIMEOUT, USAGE, Failed, of_status

CONNECT_SECONDS: Final = 5.0
Params = tuple[tuple[str, str], ...]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    body: bytes
    reason: str = ""
    """The value of `X-Gateway-Error`."""

    def document(self) -> Any:
        """Decode the JSON; see `decoded`."""
        return decoded(self.body)


def decoded(body: bytes) -> Any:
    """Decode JSON of somebody else's; None if it is none, or nested more deeply than anybody reads."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


class Client:
    """Asks one gateway. Every method raises `Failed`. Use as `async with`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.url = endpoint.url
        headers = {"Accept": "application/json"}
        if endpoint.token:
            headers["Authorization"] = f"Bearer {endpoint.token}"
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),  # the rest is `run`'s matter
            verify=_trust(endpoint),
            follow_redirects=False,
            trust_env=False,
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def ask(
        self, method: str, path: str, params: Params = (), body: bytes | None = None, about: str = ""
    ) -> Answer:
        """Ask a REST route; give its success. `about`: what is meant if it is not found.

        Raises:
            Failed: anything else, explained.
        """
        headers = {} if body is None else {"Content-Type": "application/json"}
        answer = await self.send(method, path, headers, params, body)
        document = answer.document()
        if answer.status != 200 or document is None:
            raise of_status(answer.status, document, self.url, about)
        return answer

    async def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        params: Params = (),
        body: bytes | None = None,
    ) -> Answer:
        """Send a request; give the answer, whatever it is."""
        with _translated(self.url):
            found = await self._http.request(
                method, f"{self.url}/{path}", headers=dict(headers), params=params, content=body
            )
        return Answer(found.status_code, found.content, found.headers.get("x-gateway-error", ""))

    @asynccontextmanager
    async def open(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> AsyncIterator[tuple[bool, Answer, AsyncIterator[bytes]]]:
        """Open an answer that may be a stream: whether it is one, the answer (whole if not), its pieces."""
        url = f"{self.url}/{path}"
        with _translated(self.url):
            async with self._http.stream(method, url, headers=dict(headers), content=body) as found:
                kind = found.headers.get("content-type", "").lower()
                streams = found.status_code == 200 and kind.startswith("text/event-stream")
                whole = b"" if streams else await found.aread()
                answer = Answer(found.status_code, whole, found.headers.get("x-gateway-error", ""))
                yield streams, answer, found.aiter_bytes()


def run(main: Coroutine[Any, Any, Result], seconds: float | None, url: str) -> Result:
    """Run a command's coroutine; `seconds` is its total deadline, None: there is none.

    Raises:
        Failed: TIMEOUT, or what the coroutine raises.
    """

    async def bounded() -> Result:
        asyncio.get_running_loop().set_default_executor(_LeftAlone())
        try:
            async with asyncio.timeout(seconds):
                return await main
        except TimeoutError:
            told = f"{url}: not done within {seconds or 0:g} s; --timeout allows more"
            raise Failed(TIMEOUT, told) from None

    return asyncio.run(bounded())


class _LeftAlone(ThreadPoolExecutor):
    """Threads that nobody waits for: a slow name server holds no command beyond its deadline."""

    def submit(self, task: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        """Begin at once."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()

        def work() -> None:
            try:
                result = task(*arguments, **options)
            except BaseException as error:  # whoever waits for it gets it
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=work, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """There is nothing to wait for."""


def _trust(endpoint: Endpoint) -> ssl.SSLContext | bool:
    if not endpoint.url.startswith("https:"):
        return False  # nothing to verify, and loading the authorities takes time
    from healthcheck.transport import tls_context

    try:
        return tls_context(endpoint.ca_file)
    except OSError:
        raise Failed(USAGE, f"--ca-file: no certificates can be read from {endpoint.ca_file}") from None


@contextmanager
def _translated(url: str) -> Iterator[None]:
    try:
        yield
    except httpx.ConnectTimeout:
        raise Failed(TIMEOUT, f"{url} does not accept a connection within {CONNECT_SECONDS:g} s") from None
    except httpx.ConnectError as error:
        raise Failed(
            CONNECTION,
            f"{url} cannot be reached: {_why(error)}",
            "is the gateway running there? --url or VITALGATE_URL says where it is",
        ) from None
    except httpx.TransportError as error:
        told = f"{url}: the connection broke: {_why(error)}"
        raise Failed(CONNECTION, told, "what was asked for may have been done all the same") from None
    except httpx.DecodingError:
        raise Failed(ERROR, f"{url}: the answer is not packed as it says: a proxy before the gateway?") from None


def _why(error: BaseException) -> str:
    """The words of the system, which stand below httpx's; its own are "All connection attempts failed"."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.strerror:
            number = found.errno or 0  # where there is one, asyncio puts words of its own in place of its text
            return (os.strerror(number) if number > 0 else found.strerror).lower()
        found = found.__cause__ or found.__context__
    return str(error) or type(error).__name__
