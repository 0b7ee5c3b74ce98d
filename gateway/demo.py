"""The demo agent's life at a gateway: it listens, registers, sends heartbeats, and takes its leave.

What an agent has to do to stay registered is `Membership`: register; send a heartbeat well within the TTL;
register again when the gateway says 400, because it has forgotten the agent; wait longer and longer while the
gateway cannot be reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field

import httpx
import uvicorn

from gateway.demo_agent import EchoAgent, Json, as_asgi, card
from gateway.errors import StartError
from gateway.server import BindError, bind

_FIRST_PAUSE = 0.1  # seconds between attempts, doubled after each
_LONGEST_PAUSE = 5.0
_LONGEST_BEAT = 60.0  # seconds between heartbeats, whatever the TTL
_ANSWER_TIME = 10.0  # seconds the gateway has for an answer
_LEAVE_TIME = 2.0  # seconds for taking leave; the TTL clears up otherwise

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Demo:
    """What to run: the agent's id, its gateway's base URL, where to listen (port 0: any free one), its token."""

    agent_id: str
    gateway: str
    host: str = "127.0.0.1"
    port: int = 0
    version: str = "0.0.0"
    token: str = field(default="", repr=False)


def run(demo: Demo, say: Say) -> None:
    """Runs the agent until SIGINT or SIGTERM, then deregisters it.

    Raises:
        StartError: the agent cannot listen on its address.
    """

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        await serve(demo, stop, say)

    asyncio.run(main())


@contextlib.contextmanager
def beside(demo: Demo, say: Say) -> Iterator[None]:
    """Runs the agent in a thread for as long as the block lasts. No leave is taken: its gateway ends with it.

    Raises:
        StartError: the agent cannot listen on its address.
    """
    listener = _listen(demo)
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    def work() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve(demo, stop, say, listener, leave=False))

    thread = threading.Thread(target=work, name="demo-agent", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with contextlib.suppress(RuntimeError):  # the loop has closed already
            loop.call_soon_threadsafe(stop.set)
        thread.join(_LEAVE_TIME)


async def serve(
    demo: Demo, stop: asyncio.Event, say: Say, listener: socket.socket | None = None, *, leave: bool = True
) -> None:
    """Serves and keeps the agent registered until `stop` is set."""
    listener = listener or _listen(demo)
    url = _url(listener)
    agent_card = card(url, demo.version)
    app = as_asgi(EchoAgent(), agent_card)
    server = _Server(
        uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=1)
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    shown = {"Authorization": f"Bearer {demo.token}"} if demo.token else {}
    async with httpx.AsyncClient(
        base_url=demo.gateway, headers=shown, trust_env=False, timeout=_ANSWER_TIME
    ) as client:
        membership = Membership(demo, {"agent_id": demo.agent_id, **agent_card}, client, say)
        await _until(stop, membership.stay())
        if leave:
            await membership.leave()
    server.should_exit = True
    await serving


async def _until(stop: asyncio.Event, work: Coroutine[object, object, None]) -> None:
    """Runs `work` until `stop` is set."""
    running, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait((running, stopped), return_when=asyncio.FIRST_COMPLETED)
    for task in (running, stopped):
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the demo has its own, or runs beside a gateway that has."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(demo: Demo) -> socket.socket:
    try:
        return bind(demo.host, demo.port)
    except BindError as error:
        raise StartError(f"the demo agent {error}") from error


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


class Refused(Exception):
    """The gateway does not take the agent; its text says why."""


class Membership:
    """Keeps one agent registered at one gateway."""

    def __init__(self, demo: Demo, document: Json, client: httpx.AsyncClient, say: Say) -> None:
        self._demo = demo
        self._document = document
        self._client = client
        self._say = say
        self._said = ""
        self._pause = _FIRST_PAUSE

    async def stay(self) -> None:
        """Registers and stays registered, until cancelled."""
        while True:
            try:
                await self._register()
                await self._beat_until_forgotten()
                self._tell(f"{self._demo.gateway} has forgotten the demo agent; registering again")
            except httpx.HTTPError as error:
                self._tell(f"{self._demo.gateway} cannot be reached ({type(error).__name__}); trying again")
            except Refused as refusal:
                self._tell(f"{self._demo.gateway} refuses the demo agent: {refusal}; trying again")
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    async def leave(self) -> None:
        """Deregisters, if the gateway is there to hear it."""
        try:
            await self._client.delete(f"/agents/{self._demo.agent_id}", timeout=_LEAVE_TIME)
        except httpx.HTTPError:
            self._tell(f"{self._demo.gateway} cannot be reached to deregister; the registration will expire")

    async def _register(self) -> None:
        response = await self._client.post("/agents/register", json=self._document)
        if response.status_code != 200:
            raise Refused(_reason(response))
        self._tell(welcome(self._demo, self._document["url"]))

    async def _beat_until_forgotten(self) -> None:
        """Sends heartbeats, three in a TTL; returns when the gateway does not know the agent any more."""
        while True:
            response = await self._client.post("/agents/heartbeat", json={"agent_id": self._demo.agent_id})
            if response.status_code == 400:
                return
            if response.status_code != 200:
                raise Refused(_reason(response))
            ttl = _ttl(response)
            self._pause = _FIRST_PAUSE
            await asyncio.sleep(min(ttl / 3, _LONGEST_BEAT))

    def _tell(self, text: str) -> None:
        """Says something, but not the same thing twice in a row."""
        if text != self._said:
            self._said = text
            self._say(text)


def _ttl(response: httpx.Response) -> float:
    try:
        return float(response.json()["ttl_seconds"])
    except (ValueError, KeyError, TypeError):
        raise Refused("its answer to a heartbeat has no ttl_seconds") from None


def _reason(response: httpx.Response) -> str:
    """What a REST error of the gateway says (contract 5.1), in one line."""
    try:
        body = response.json()
        details = "; ".join(f"{detail['field']}: {detail['message']}" for detail in body.get("details", ()))
        return f"{body['error']} ({details})" if details else str(body["error"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"HTTP {response.status_code}"


def welcome(demo: Demo, url: str) -> str:
    """What to print when the agent is registered: where it is, and a command that calls it."""
    return f"The demo agent {url} is registered as {demo.agent_id}. Call it through the gateway:\n\n{curl(demo)}\n"


def curl(demo: Demo) -> str:
    """A command line that sends the agent a message through the gateway; to be pasted into a shell."""
    message = {"kind": "message", "role": "user", "messageId": "1", "parts": [{"kind": "text", "text": "hello"}]}
    request = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
    shown = '-H "Authorization: Bearer $(vitalgate token me)" ' if demo.token else ""
    return (
        f"curl -s {demo.gateway}/a2a/{demo.agent_id} {shown}-H 'Content-Type: application/json' "
        f"-d '{json.dumps(request, separators=(',', ':'))}'"
    )
