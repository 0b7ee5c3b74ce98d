"""Start, drain and end (contract 8): the phases alone, and a process with real signals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from gateway.lifecycle import Lifecycle, Phase
from gateway.server import StartError, bind, serve
from tests.tiny_gateway import Tiny, served

HEAD = b" HTTP/1.1\r\nHost: gateway\r\nContent-Length: 0\r\n\r\n"


# ---- the phases


async def test_phases_follow_one_another() -> None:
    lifecycle = Lifecycle(shutdown_delay_seconds=0.05, drain_seconds=5)
    seen = [(lifecycle.phase, lifecycle.ready, lifecycle.refusing)]
    lifecycle.started()
    seen.append((lifecycle.phase, lifecycle.ready, lifecycle.refusing))
    lifecycle.begin()
    drain = asyncio.create_task(lifecycle.drain())
    await asyncio.sleep(0)
    seen.append((lifecycle.phase, lifecycle.ready, lifecycle.refusing))
    await asyncio.sleep(0.1)  # the delay, twice over
    assert lifecycle.refusing
    seen.append((lifecycle.phase, lifecycle.ready, lifecycle.refusing))
    lifecycle.on_close(lambda: seen.append((lifecycle.phase, lifecycle.ready, lifecycle.refusing)))
    lifecycle.end()
    await drain
    assert seen == [
        (Phase.STARTING, False, False),
        (Phase.SERVING, True, False),
        (Phase.LEAVING, False, False),
        (Phase.REFUSING, False, True),
        (Phase.CLOSING, False, True),
    ]


async def test_drain_waits_for_the_last_call_also_if_it_came_during_the_delay() -> None:
    lifecycle = Lifecycle(shutdown_delay_seconds=0.05, drain_seconds=5)
    lifecycle.started()
    lifecycle.begin()
    lifecycle.end()  # idle before, which must not count
    drain = asyncio.create_task(lifecycle.drain())
    await asyncio.sleep(0)
    lifecycle.begin()
    lifecycle.begin()
    await asyncio.sleep(0.1)  # the delay, twice over
    for _ in range(2):
        assert lifecycle.refusing
        assert not drain.done()
        lifecycle.end()
        await asyncio.sleep(0.01)
    await asyncio.wait_for(drain, 1)


async def test_drain_without_calls_ends_at_once() -> None:
    lifecycle = Lifecycle(drain_seconds=1000)
    lifecycle.started()
    lifecycle.begin()
    lifecycle.end()
    await asyncio.wait_for(lifecycle.drain(), 1)


async def test_drain_gives_up_after_its_time_and_closers_run_whatever_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lifecycle = Lifecycle(drain_seconds=0.02)
    lifecycle.started()
    lifecycle.begin()
    closed: list[int] = []

    def fail() -> None:
        raise ValueError("as told")

    for closer in (lambda: closed.append(lifecycle.in_flight), fail, lambda: closed.append(2)):
        lifecycle.on_close(closer)
    with caplog.at_level(logging.INFO):
        await asyncio.wait_for(lifecycle.drain(), 1)
    assert closed == [1, 2]
    assert "as told" in caplog.text
    assert "1 calls are cut off" in caplog.text


async def test_who_leaves_a_cluster_is_told_before_the_drain() -> None:
    """SIGTERM gives this node's share of the checks back at once, while calls go on."""
    lifecycle = Lifecycle(shutdown_delay_seconds=0, drain_seconds=5)
    told: list[tuple[Phase, int]] = []
    lifecycle.on_leave(lambda: told.append((lifecycle.phase, lifecycle.in_flight)))
    lifecycle.started()
    lifecycle.begin()
    drain = asyncio.create_task(lifecycle.drain())
    await asyncio.sleep(0)
    assert told == [(Phase.LEAVING, 1)]
    await asyncio.sleep(0.01)
    lifecycle.end()
    await drain
    assert len(told) == 1


async def test_stop_before_the_start_is_not_lost() -> None:
    lifecycle = Lifecycle()
    lifecycle.stop()
    lifecycle.stop()
    with bind("127.0.0.1", 0) as api:
        await asyncio.wait_for(serve(Tiny(lifecycle), api=api, lifecycle=lifecycle), 5)
    assert lifecycle.phase is Phase.CLOSING


async def test_failed_startup_is_an_error_and_frees_the_port() -> None:
    async def app(_scope: object, receive: object, send: object) -> None:
        await receive()  # type: ignore[operator]
        await send({"type": "lifespan.startup.failed", "message": "no store"})  # type: ignore[operator]

    lifecycle = Lifecycle()
    api = bind("127.0.0.1", 0)
    port = api.getsockname()[1]
    with pytest.raises(StartError):
        await serve(app, api=api, lifecycle=lifecycle)
    assert not lifecycle.ready
    bind("127.0.0.1", port).close()


# ---- the server's part


def test_while_leaving_calls_are_served_and_their_connections_given_up() -> None:
    """Contract 8: the listener stays open; callers are led to other replicas."""
    with served(shutdown_delay_seconds=0.5) as running:
        with socket.create_connection(("127.0.0.1", running.port), 5) as idle:
            idle.sendall(b"GET /echo" + HEAD)
            assert b"connection: close" not in idle.recv(65536)
            running.on_loop(running.tiny.lifecycle.stop)
            while running.tiny.lifecycle.ready:
                time.sleep(0.01)
            assert running.tiny.lifecycle.phase is Phase.LEAVING
            idle.sendall(b"GET /echo" + HEAD)
            assert b"connection: close" in idle.recv(65536)
            with socket.create_connection(("127.0.0.1", running.port), 5) as late:
                late.sendall(b"GET /echo" + HEAD)
                assert late.recv(65536).startswith(b"HTTP/1.1 200")


def test_listener_stays_open_while_calls_in_flight_finish() -> None:
    with served(drain_seconds=5) as running:
        lifecycle = running.tiny.lifecycle
        running.on_loop(lifecycle.begin)
        running.on_loop(lifecycle.stop)
        while not lifecycle.refusing:
            time.sleep(0.01)
        with socket.create_connection(("127.0.0.1", running.port), 5) as late:
            late.sendall(b"GET /echo" + HEAD)
            assert late.recv(65536).startswith(b"HTTP/1.1 200")
        running.on_loop(lifecycle.end)


def test_answer_written_at_the_very_end_still_goes_out() -> None:
    with served() as running:
        with socket.create_connection(("127.0.0.1", running.port), 5) as caller:
            caller.sendall(b"GET /big-once" + HEAD)
            assert running.seen() == "answered"
            running.on_loop(running.tiny.lifecycle.stop)
            time.sleep(0.5)  # a slow reader
            size = 0
            while data := caller.recv(1 << 20):
                size += len(data)
            assert size > 20_000_000


def test_handlers_have_ended_when_the_application_shuts_down() -> None:
    """Otherwise they would meet a closed store."""
    with served() as running:
        with socket.create_connection(("127.0.0.1", running.port), 5) as caller:
            caller.sendall(b"GET /forever" + HEAD)
            assert running.seen() == "forever"
            running.on_loop(running.tiny.lifecycle.stop)
            assert [running.seen(), running.seen()] == ["cancelled", "shutdown"]


# ---- a process


class Process:
    """The tiny gateway as a process of its own."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.tiny_gateway", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def send(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def alive(self) -> bool:
        return self._process.poll() is None

    def ended(self, within: float) -> tuple[int, str, float]:
        """(exit code, what it wrote to stderr, seconds)."""
        began = time.monotonic()
        _, err = self._process.communicate(timeout=within)
        return self._process.returncode, err, time.monotonic() - began

    def connect(self, path: bytes) -> socket.socket:
        """Sends a request and waits until its handler is at work."""
        caller = socket.create_connection(("127.0.0.1", self.port), 5)
        caller.sendall(b"GET " + path + HEAD)
        self.get()
        return caller

    def get(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port), 5) as other:
            other.sendall(b"GET /echo" + HEAD)
            assert other.recv(65536).startswith(b"HTTP/1.1 200")

    def kill(self) -> None:
        if self.alive():
            self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def process(*arguments: str) -> Iterator[Process]:
    running = Process(*arguments)
    try:
        yield running
    finally:
        running.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_an_idle_process_cleanly(number: signal.Signals) -> None:
    with process() as running, running.connect(b"/echo") as idle:
        running.send(number)
        code, err, seconds = running.ended(within=5)
        assert (code, err) == (0, "")
        assert seconds < 2
        assert idle.recv(65536).startswith(b"HTTP/1.1 200")
        assert idle.recv(1) == b""


def test_signal_with_hanging_requests_ends_in_time_and_silently() -> None:
    """Contract 8: within delay + drain + 5 s whatever agents do, and not a word about what was cut."""
    with process() as running, contextlib.ExitStack() as stack:
        callers = [stack.enter_context(running.connect(path)) for path in (b"/call", b"/stream", b"/hang")]
        stack.enter_context(running.connect(b"/forever")).close()  # a handler whose caller is gone already
        running.send(signal.SIGTERM)
        code, err, seconds = running.ended(within=8)
        assert (code, err) == (0, "")
        assert 1 < seconds < 1 + 5
        for caller in callers:
            while caller.recv(65536):
                pass


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_ends_the_process_at_once(first: signal.Signals, second: signal.Signals) -> None:
    with process() as running, running.connect(b"/call"):
        running.send(first)
        time.sleep(0.1)
        assert running.alive()
        running.send(second)
        code, err, seconds = running.ended(within=5)
        assert (code, err) == (128 + second, "")
        assert seconds < 0.5


def test_second_signal_ends_even_a_process_whose_event_loop_is_stuck() -> None:
    with process() as running, socket.create_connection(("127.0.0.1", running.port), 5) as caller:
        running.get()
        caller.sendall(b"GET /stuck" + HEAD)
        time.sleep(0.1)
        running.send(signal.SIGTERM)
        time.sleep(0.1)
        assert running.alive()
        running.send(signal.SIGTERM)
        assert running.ended(within=5)[0] == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_a_start_that_hangs(number: signal.Signals) -> None:
    """Contract 8: within 5 s, whatever it waits for."""
    with process("0", "1") as running:
        time.sleep(0.3)  # no event tells that it hangs
        running.send(number)
        code, err, seconds = running.ended(within=8)
        assert (code, err) == (0, "")
        assert seconds < 2


def test_signal_ends_a_start_whose_event_loop_is_stuck() -> None:
    with process("0", "2") as running:
        time.sleep(0.3)
        running.send(signal.SIGTERM)
        code, err, seconds = running.ended(within=8)
        assert code == 0
        assert "still hangs" in err
        assert seconds < 5.5


def test_sighup_ends_nothing_where_nobody_listens_to_it() -> None:
    """Contract 8: it must not end the process, least of all without a drain."""
    with process() as running, running.connect(b"/echo"):
        running.send(signal.SIGHUP)
        running.get()
        running.send(signal.SIGTERM)
        code, err, _ = running.ended(within=5)
        assert code == 0
        assert err == ""


def test_a_hangup_during_the_start_is_not_lost() -> None:
    """Contract 8."""
    lifecycle = Lifecycle()
    heard: list[str] = []
    lifecycle.hang_up()
    lifecycle.on_hangup(lambda: heard.append("reload"))
    lifecycle.hang_up()
    assert heard == ["reload", "reload"]


def test_hanging_thread_does_not_keep_the_process() -> None:
    with process() as running, running.connect(b"/thread"):
        running.send(signal.SIGTERM)
        code, err, seconds = running.ended(within=8)
        assert code == 0
        assert seconds < 5.5
        assert err.count("\n") == 1
        assert "still hangs" in err


def test_out_of_file_descriptors_and_back() -> None:
    """Pitfall 58: refusals are clean, nothing is logged in a flood, and the server is whole again afterwards."""
    with process("64") as running:
        callers = [socket.create_connection(("127.0.0.1", running.port), 5) for _ in range(200)]
        refused = 0
        for caller in callers:
            caller.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                try:
                    refused += caller.recv(1) == b""
                except ConnectionResetError:
                    refused += 1
        assert 130 < refused < 200
        for caller in callers:
            caller.close()
        for _ in range(200):  # until the server has noticed
            with contextlib.suppress(ConnectionError, AssertionError):
                running.get()
                break
            time.sleep(0.01)
        for _ in range(100):
            running.get()
        running.send(signal.SIGTERM)
        code, err, _ = running.ended(within=5)
        assert (code, err) == (0, "")
