"""Registrations in one SQLite file, which has one owner: what was answered survives the death of the process.

All of it runs in one worker thread, so that a slow disk never holds up the event loop. The ledger decides, the
file remembers, in this order: decide, write, apply, tell. Durable against SIGKILL; a power cut may take the last
moments (WAL with ``synchronous=NORMAL``), and the agents concerned are told to register again by their heartbeat.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sqlite3
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from registry.agent import Agent, Lease, Registration
from registry.card import read_card
from registry.clock import Clock
from registry.errors import Invalid, StoreError, StoreUnavailable
from registry.stores.ledger import Change, Gone, Kept, Ledger, News

APPLICATION_ID = int.from_bytes(b"vtlg")
FORMAT = 1
BUSY_SECONDS = 0.25
"""How long a write waits for somebody who has locked the file with another program."""

_CREATE = f"""
BEGIN IMMEDIATE;
CREATE TABLE agents (
  agent_id TEXT PRIMARY KEY,
  owner TEXT,
  registered_at TEXT NOT NULL,
  last_seen TEXT NOT NULL,
  card BLOB NOT NULL
);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
COMMIT;
"""
_SELECT = """
SELECT agent_id, owner, registered_at, last_seen, CAST(card AS BLOB) FROM agents ORDER BY registered_at, agent_id
"""
_MAGIC = b"SQLite format 3\0"
_STAMPS = ("application_id", "user_version")

_log = logging.getLogger(__name__)

Result = TypeVar("Result")
Decision = TypeVar("Decision", Kept, Gone, Kept | None, Gone | None)


class SqliteStore:
    """The contract of `registry.stores.Store` over a file."""

    remote = False

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._ledger = Ledger(clock)
        self._listener: Callable[[News], None] = lambda change: None
        self._thread: ThreadPoolExecutor | None = None
        self._file: _File | None = None

    def watch(self, listener: Callable[[News], None]) -> None:
        """See `Store.watch`."""
        self._listener = listener

    async def open(self, ttl_seconds: float) -> None:
        """See `Store.open`."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="registry-store")
        await self._run(lambda: self._load(ttl_seconds))

    async def put(self, agent: Agent, ttl_seconds: float, max_agents: int) -> Registration:
        """See `Store.put`."""
        change = await self._change(lambda: self._ledger.put(agent, ttl_seconds, max_agents))
        return change.registration

    async def renew(self, agent_id: str, ttl_seconds: float, principal: str | None) -> Lease | None:
        """See `Store.renew`."""
        change = await self._change(lambda: self._ledger.renew(agent_id, ttl_seconds, principal))
        return None if change is None else change.registration.lease

    async def remove(self, agent_id: str, principal: str | None) -> bool:
        """See `Store.remove`."""
        return await self._change(lambda: self._ledger.remove(agent_id, principal)) is not None

    async def expire(self, lease: Lease) -> bool:
        """See `Store.expire`."""
        return await self._change(lambda: self._ledger.expire(lease)) is not None

    async def grace(self, alive_at: float, seconds: float) -> None:
        """See `Store.grace`."""
        loop = asyncio.get_running_loop()

        def work() -> None:
            self._opened.prove_writable()
            for change in self._ledger.grace(alive_at, seconds):
                self._apply(change, loop)

        await self._run(work)

    async def get(self, agent_id: str) -> Registration | None:
        """See `Store.get`."""
        return await self._run(lambda: self._ledger.get(agent_id))

    async def list(self) -> list[Registration]:
        """See `Store.list`."""
        return await self._run(self._ledger.everything)

    async def close(self) -> None:
        """See `Store.close`."""
        if self._thread is not None:
            await self._run(self._close)
            self._thread.shutdown()
            self._thread = None

    async def _change(self, decide: Callable[[], Decision]) -> Decision:
        loop = asyncio.get_running_loop()

        def work() -> Decision:
            change = decide()
            if change is not None:
                self._opened.write(change)
                self._apply(change, loop)
            return change

        return await self._run(work)

    async def _run(self, work: Callable[[], Result]) -> Result:
        if self._thread is None:
            raise StoreUnavailable(f"registry file {self._path} is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"registry file {self._path}: {error}") from error

    # In the worker thread from here on.

    @property
    def _opened(self) -> _File:
        if self._file is None:
            raise StoreUnavailable(f"registry file {self._path} is not open")
        return self._file

    def _apply(self, change: Change, loop: asyncio.AbstractEventLoop) -> None:
        """Tells the listener from here: a caller that was cancelled meanwhile must not keep the news back."""
        self._ledger.apply(change)
        loop.call_soon_threadsafe(self._listener, change)

    def _load(self, ttl_seconds: float) -> None:
        self._file = _open(self._path)
        for agent_id, owner, registered_at, last_seen, card in self._file.rows():
            try:
                agent = read_card(card, owner=owner, registered_at=registered_at)
            except Invalid as error:
                _log.warning("registered agent %s is forgotten: its card is no longer valid: %s", agent_id, error)
                self._file.write(Gone("expired", agent_id))
            else:
                lease = self._ledger.lease(agent_id, ttl_seconds, last_seen)
                self._ledger.apply(Kept("registered", Registration(agent, lease)))

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class _File:
    """An open registry file, locked against other processes until it is closed or the process dies."""

    def __init__(self, database: sqlite3.Connection, lock: int, path: Path) -> None:
        self._database = database
        self._lock = lock
        self._path = path
        self._identity = _identity(path)

    def rows(self) -> list[tuple[str, str | None, str, str, bytes]]:
        return self._database.execute(_SELECT).fetchall()

    def write(self, change: Change) -> None:
        """One statement each, so it is done or not done."""
        self._prove_in_place()
        if isinstance(change, Gone):
            self._database.execute("DELETE FROM agents WHERE agent_id = ?", (change.agent_id,))
            return
        agent, last_seen = change.registration.agent, change.registration.lease.last_seen
        if change.kind == "renewed":
            self._database.execute(
                "UPDATE agents SET last_seen = ? WHERE agent_id = ?", (last_seen, agent.agent_id)
            )
        else:
            self._database.execute(
                "INSERT OR REPLACE INTO agents VALUES (?, ?, ?, ?, ?)",
                (agent.agent_id, agent.owner, agent.registered_at, last_seen, agent.card),
            )

    def prove_writable(self) -> None:
        self._prove_in_place()
        self._database.execute(f"PRAGMA user_version = {FORMAT}")

    def _prove_in_place(self) -> None:
        """SQLite goes on writing to files that were removed: what it keeps there is gone with the process."""
        try:
            in_place = _identity(self._path) == self._identity
        except OSError as error:
            raise StoreUnavailable(f"registry file {self._path}: {error.strerror}") from error
        if not in_place:
            raise StoreUnavailable(
                f"registry file {self._path} was removed or replaced while in use: put it back, or restart"
            )

    def close(self) -> None:
        self._database.close()
        os.close(self._lock)


def _open(path: Path) -> _File:
    """Opens, locks and if need be creates a registry file.

    Raises:
        StoreError: one line that names the file and what is wrong with it.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = _lock(path)
    except OSError as error:
        raise StoreError(f"registry file {path}: {error.strerror}") from error
    try:
        return _File(_database(path), lock, path)
    except BaseException:
        os.close(lock)
        raise


def _lock(path: Path) -> int:
    descriptor = os.open(f"{os.path.realpath(path)}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise StoreError(
                f"registry file {path} is in use by another process: set registry.url to another, or to memory://"
            ) from None
        raise
    return descriptor


def _database(path: Path) -> sqlite3.Connection:
    try:
        _touch(path)
        database = sqlite3.connect(path, isolation_level=None, timeout=BUSY_SECONDS)
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise StoreError(f"registry file {path}: {reason}") from error
    try:
        _prepare(database, path)
    except BaseException as error:
        database.close()
        if isinstance(error, sqlite3.Error):
            raise StoreError(f"registry file {path}: {error}") from error
        raise
    return database


def _touch(path: Path) -> None:
    """Creates the file before SQLite does: for its mode, and for errors that say what is wrong.

    SQLite takes a very short file for an empty database and would write over it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    with open(os.open(path, flags, 0o600), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise StoreError(f"registry file {path} is no regular file")
        if status.st_nlink > 1:  # each name would have a lock and a journal of its own
            raise StoreError(f"registry file {path} has other names (hard links): leave it one")
        if file.read(len(_MAGIC)) not in (b"", _MAGIC):
            raise StoreError(f"registry file {path}: file is not a database")


def _identity(path: Path) -> tuple[tuple[int, int] | None, ...]:
    """Which files the names stand for: the database, and its journal, which lasts as long as we have it open."""
    return _file_id(str(path)), _file_id(f"{os.path.realpath(path)}-wal")


def _file_id(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None  # a file system on which SQLite keeps another kind of journal, or somebody took it away
    return status.st_dev, status.st_ino


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    application, version = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in _STAMPS)
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (application, version, tables) == (0, 0, 0):
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(_CREATE)
    elif application != APPLICATION_ID:
        raise StoreError(f"registry file {path} is a database of another program")
    elif version != FORMAT:
        raise StoreError(f"registry file {path} has format {version}, this version reads format {FORMAT}")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
