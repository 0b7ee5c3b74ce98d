"""The bench's own small HTTP client: single calls, registrations, scrapes, and the stall prober."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from tests.benchmarks import payloads
from tests.benchmarks.processes import BenchError

JSON = {"Content-Type": "application/json"}


def connect(port: int, timeout: float = 30.0) -> http.client.HTTPConnection:
    """A keep-alive connection to a port of 127.0.0.1 (opened by the first request)."""
    return http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)


def headers(token: str) -> dict[str, str]:
    """The headers of a call or registration."""
    return JSON | ({"Authorization": f"Bearer {token}"} if token else {})


def call(connection: http.client.HTTPConnection, path: str, token: str = "") -> tuple[int, bytes]:
    """One small call; status and body of the answer."""
    connection.request("POST", path, payloads.request(), headers(token))
    answer = connection.getresponse()
    return answer.status, answer.read()


def checked_call(connection: http.client.HTTPConnection, path: str, expected: bytes) -> None:
    """One small call whose answer must be the expected bytes."""
    status, body = call(connection, path)
    if (status, body) != (200, expected):
        raise BenchError(f"wrong answer on {path}: {status} {body[:300]!r}")


def try_connect(port: int) -> bool | None:
    """True once something listens, None before."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return None
    return True


def try_call(port: int, path: str, expected: bytes, token: str = "") -> bool | None:
    """True once a call is answered as expected, None while nothing (or an error page) answers."""
    with closing(connect(port)) as connection:
        try:
            return True if call(connection, path, token) == (200, expected) else None
        except (OSError, http.client.HTTPException):
            return None


def try_register(port: int, agent_id: str, url: str, token: str = "") -> bool | None:
    """True once the gateway has taken a registration, None while it does not listen yet."""
    try:
        register(port, {agent_id: url}, token)
    except (OSError, http.client.HTTPException):
        return None
    return True


def register(port: int, agents: dict[str, str], token: str = "") -> None:
    """Register agents (id -> URL) over REST (contract 5.1)."""
    with closing(connect(port)) as connection:
        for agent_id, url in agents.items():
            card = json.dumps(payloads.card(agent_id, url))
            connection.request("POST", "/agents/register", card, headers(token))
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 200:
                raise BenchError(f"registration of {agent_id} refused: {answer.status} {text[:300]!r}")


def scrape(connection: http.client.HTTPConnection, agents: int) -> None:
    """GET /metrics, and check that the page has every one of `agents` called agents."""
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    page = answer.read()
    seen = sum(b"_requests_total{" in line for line in page.splitlines())
    if answer.status != 200 or seen < agents:
        raise BenchError(f"/metrics: status {answer.status}, {seen} request series for {agents} agents")


def open_streams(port: int) -> int:
    """How many streams the streaming agent has open."""
    with closing(connect(port)) as connection:
        connection.request("GET", "/open")
        return int(connection.getresponse().read())


def try_open_streams(port: int) -> int | None:
    """The same, None while it does not listen yet."""
    try:
        return open_streams(port)
    except OSError:
        return None


class Stalls:
    """Latencies of a stream of single calls, in seconds, seen by a thread beside something else."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.failure: BaseException | None = None

    @property
    def longest_ms(self) -> float:
        """The longest answer above the usual one: how long the event loop stood still."""
        if self.failure is not None:
            raise BenchError(f"the prober failed: {self.failure}") from self.failure
        ordered = sorted(self.latencies)
        return (ordered[-1] - ordered[len(ordered) // 2]) * 1000


@contextmanager
def probing(port: int, path: str, expected: bytes, pause: float = 0.0005) -> Iterator[Stalls]:
    """Make one call after another while the body of the `with` runs."""
    stalls, stop = Stalls(), threading.Event()

    def probe() -> None:
        try:
            with closing(connect(port)) as connection:
                while not stop.is_set():
                    begin = time.perf_counter()
                    checked_call(connection, path, expected)
                    stalls.latencies.append(time.perf_counter() - begin)
                    time.sleep(pause)
        except (OSError, http.client.HTTPException, BenchError) as error:
            stalls.failure = error

    thread = threading.Thread(target=probe, name="prober")
    thread.start()
    try:
        yield stalls
    finally:
        stop.set()
        thread.join()
