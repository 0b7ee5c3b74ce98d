"""The demo agent's life at a gateway: it listens, is kept registered, and says what becomes of that."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import uvicorn

from gateway.demo_agent import EchoAgent, as_asgi, card
from gateway.errors import StartError
from gateway.server import BindError, bind
from registry.client import Change, Membership, State

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
    membership = Membership(
        demo.gateway,
        agent_card,
        agent_id=demo.agent_id,
        token=demo.token or None,
        told=_Saying(demo, url, say, patient=not leave),
        leave_seconds=_LEAVE_TIME if leave else 0,
    )
    async with membership:
        await stop.wait()
    server.should_exit = True
    await serving


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


class _Saying:
    """Says what has become of the registration, in whole sentences."""

    def __init__(self, demo: Demo, url: str, say: Say, *, patient: bool = False) -> None:
        """With `patient`, a gateway that is not there yet is nothing to speak of: it starts beside the agent."""
        self._patient = patient
        self._demo = demo
        self._url = url
        self._say = say
        self._welcomed = False

    def __call__(self, change: Change) -> None:
        if change.state is State.REGISTERED and self._welcomed:
            self._say(f"The demo agent is registered at {change.gateway}")
        elif change.state is State.REGISTERED:
            self._welcomed = True
            self._say(welcome(self._demo, self._url))
        elif change.state is State.UNAVAILABLE and self._patient and not self._welcomed:
            return
        elif change.state in _SENTENCES:
            self._say(_SENTENCES[change.state].format(change))


_SENTENCES: Mapping[State, str] = {
    State.UNAVAILABLE: "{0.gateway} is not available ({0.reason}); trying again",
    State.FORGOTTEN: "{0.gateway} has forgotten the demo agent; registering again",
    State.REFUSED: "{0.gateway} refuses the demo agent: {0.reason}; trying again",
    State.LINGERING: "{0.gateway} cannot be told of the end ({0.reason}); the registration will expire",
}


def welcome(demo: Demo, url: str) -> str:
    """What to print when the agent is registered: where it is, and a command that calls it."""
    token = "TOKEN: of somebody who may call it, see `vitalgate token --help`\n" if demo.token else ""
    return (
        f"The demo agent {url} is registered as {demo.agent_id}. Call it through the gateway:\n\n{curl(demo)}\n\n"
        f"{token}Console: {demo.gateway}/\n"
    )


def curl(demo: Demo) -> str:
    """A command line that sends the agent a message through the gateway; to be pasted into a shell."""
    message = {"kind": "message", "role": "user", "messageId": "1", "parts": [{"kind": "text", "text": "hello"}]}
    request = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
    shown = '-H "Authorization: Bearer $TOKEN" ' if demo.token else ""
    return (
        f"curl -s {demo.gateway}/a2a/{demo.agent_id} {shown}-H 'Content-Type: application/json' "
        f"-d '{json.dumps(request, separators=(',', ':'))}'"
    )
