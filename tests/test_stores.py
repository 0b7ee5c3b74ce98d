"""registry.stores: one contract for memory, SQLite and Valkey, then what only a file can do (contract 5.3)."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from registry.agent import Agent
from registry.card import read_card
from registry.errors import Forbidden, Full, StoreError, StoreUnavailable
from registry.stores import Store, open_store
from registry.stores.ledger import Gone, Kept, News
from tests.fakes.clock import ManualClock
from tests.fakes.valkey import Valkey, moving_time

TTL = 60.0


def agent(agent_id: str = "echo-01", owner: str | None = None, at: str = "t1", **members: Any) -> Agent:
    card = {"agent_id": agent_id, "name": "Echo", "url": "http://127.0.0.1:9001/"} | members
    return read_card(json.dumps(card).encode(), owner=owner, registered_at=at)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


LOCAL = ("memory://", "sqlite:///{}/registry.db")


@pytest.fixture(params=[*LOCAL, "redis:"])
async def store(
    request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path, prefix: str
) -> AsyncIterator[Store]:
    url = request.param.format(tmp_path)
    if url == "redis:":
        server: Valkey = request.getfixturevalue("shared_valkey")
        url, clock.along = server.url, moving_time(server, prefix)
    store = open_store(url, clock.clock, key_prefix=prefix)
    await store.open(TTL)
    yield store
    await store.close()


# -- the contract


async def test_put_keeps_and_list_shows(store: Store) -> None:
    one = await store.put(agent("a1"), TTL, 0)
    two = await store.put(agent("a2"), TTL, 0)
    assert await store.list() == [one, two]
    assert await store.get("a1") == one
    assert await store.get("a3") is None
    assert (one.lease.agent_id, one.lease.ttl_seconds) == ("a1", TTL)


async def test_replacing_keeps_registered_at_and_nothing_else(store: Store, clock: ManualClock) -> None:
    """Pitfall 103."""
    first = await store.put(agent(at="t1", skills=[{"id": "s", "name": "n"}]), TTL, 0)
    clock.tick(2)
    second = await store.put(agent(at="t2"), TTL, 0)
    assert second.agent.registered_at == first.agent.registered_at
    assert b"skills" not in second.agent.card
    assert second.lease.last_seen > first.lease.last_seen
    assert await store.list() == [second]


async def test_the_same_card_again_is_the_same_agent(store: Store) -> None:
    first = await store.put(agent(), TTL, 0)
    again = await store.put(agent(), TTL, 0)
    assert again.agent is first.agent
    assert again.lease.number != first.lease.number
    assert (await store.put(agent(owner="p"), TTL, 0)).agent is not first.agent


async def test_renew_changes_the_lease_only(store: Store, clock: ManualClock) -> None:
    first = await store.put(agent(), TTL, 0)
    clock.tick(30)
    lease = await store.renew("echo-01", TTL, None)
    assert lease is not None
    assert lease.ends == pytest.approx(first.lease.ends + 30, abs=0.5)
    assert lease.last_seen > first.lease.last_seen
    kept = await store.get("echo-01")
    assert kept is not None
    assert kept.agent is first.agent
    assert kept.lease == lease


async def test_nothing_is_renewed_or_removed_that_is_not_alive(store: Store, clock: ManualClock) -> None:
    """Pitfalls 101, 109: an expired agent that is not swept yet counts as gone in every rule."""
    assert await store.renew("echo-01", TTL, None) is None
    assert not await store.remove("echo-01", None)
    await store.put(agent(), TTL, 0)
    clock.tick(TTL)
    assert await store.renew("echo-01", TTL, None) is None
    assert not await store.remove("echo-01", None)
    assert await store.get("echo-01") is not None


async def test_a_lease_ends_with_its_ttl(store: Store, clock: ManualClock) -> None:
    """Pitfall 108: alive before, gone from that moment on; in Valkey, real time passes meanwhile."""
    await store.put(agent(), TTL, 0)
    clock.tick(TTL - (0.5 if store.remote else 0.001))
    assert await store.renew("echo-01", TTL, None) is not None
    clock.tick(TTL)
    assert await store.renew("echo-01", TTL, None) is None


async def test_an_owned_agent_obeys_its_owner_only(store: Store) -> None:
    """Pitfall 105."""
    await store.put(agent(owner="alice"), TTL, 0)
    for principal in ("bob", None):
        with pytest.raises(Forbidden):
            await store.put(agent(owner=principal, url="http://evil/"), TTL, 0)
        with pytest.raises(Forbidden):
            await store.renew("echo-01", TTL, principal)
        with pytest.raises(Forbidden):
            await store.remove("echo-01", principal)
    kept = await store.get("echo-01")
    assert kept is not None
    assert (kept.agent.owner, kept.agent.url) == ("alice", "http://127.0.0.1:9001/")
    assert await store.renew("echo-01", TTL, "alice") is not None
    assert await store.remove("echo-01", "alice")


async def test_an_unowned_agent_is_claimed_by_registering_only(store: Store) -> None:
    await store.put(agent(), TTL, 0)
    assert await store.renew("echo-01", TTL, "alice") is not None
    kept = await store.get("echo-01")
    assert kept is not None
    assert kept.agent.owner is None
    assert (await store.put(agent(owner="alice"), TTL, 0)).agent.owner == "alice"
    with pytest.raises(Forbidden):
        await store.renew("echo-01", TTL, None)


async def test_ownership_ends_with_the_lease(store: Store, clock: ManualClock) -> None:
    first = await store.put(agent(owner="alice", at="t1"), TTL, 0)
    clock.tick(TTL)
    taken = await store.put(agent(owner="bob", at="t2"), TTL, 0)
    assert taken.agent.owner == "bob"
    assert taken.agent.registered_at > first.agent.registered_at


async def test_max_agents(store: Store, clock: ManualClock) -> None:
    """Contract 5.1: replacing does not count, nor do expired agents; 0 means no limit."""
    await store.put(agent("a1"), TTL, 2)
    clock.tick(30)
    await store.put(agent("a2"), TTL, 2)
    with pytest.raises(Full):
        await store.put(agent("a3"), TTL, 2)
    await store.put(agent("a2", name="Other"), TTL, 2)
    clock.tick(30)
    await store.put(agent("a3"), TTL, 2)
    with pytest.raises(Full):
        await store.put(agent("a4"), TTL, 2)
    await store.put(agent("a4"), TTL, 0)


async def test_a_heartbeat_wins_over_a_sweep_that_read_before_it(store: Store, clock: ManualClock) -> None:
    """Pitfall 100: the sweep read a lease, a heartbeat landed, the sweep deletes."""
    read_by_the_sweep = (await store.put(agent(), TTL, 0)).lease
    renewed = await store.renew("echo-01", TTL, None)
    assert renewed is not None
    assert not await store.expire(renewed)
    clock.tick(TTL)
    assert not await store.expire(read_by_the_sweep)
    assert await store.get("echo-01") is not None
    assert await store.expire(renewed)
    assert await store.get("echo-01") is None
    assert not await store.expire(renewed)


async def test_a_sweep_never_takes_a_successor(store: Store, clock: ManualClock) -> None:
    old = (await store.put(agent(), TTL, 0)).lease
    await store.remove("echo-01", None)
    await store.put(agent(), TTL, 0)
    clock.tick(TTL)
    assert not await store.expire(old)


async def test_a_heartbeat_after_removal_brings_nothing_back(store: Store) -> None:
    """Contract 5.2."""
    await store.put(agent(), TTL, 0)
    renewed, removed, late = await asyncio.gather(
        store.renew("echo-01", TTL, None), store.remove("echo-01", None), store.renew("echo-01", TTL, None)
    )
    assert removed
    if not store.remote:  # there, what is asked at once comes in any order
        assert renewed is not None
        assert late is None
    assert await store.renew("echo-01", TTL, None) is None
    assert await store.list() == []


@pytest.mark.parametrize("store", LOCAL, indirect=True)
async def test_grace_is_for_those_who_were_alive(store: Store, clock: ManualClock) -> None:
    await store.put(agent("dead"), 1, 0)
    clock.tick(1)
    outage = clock.clock.monotonic()
    short = await store.put(agent("short"), 5, 0)
    long = await store.put(agent("long"), 1000, 0)
    clock.tick(10)
    await store.grace(outage, 7)
    ends = {one.agent.agent_id: one.lease.ends for one in await store.list()}
    assert ends == {"dead": outage, "short": outage + 17, "long": long.lease.ends}
    assert not await store.expire(short.lease)


async def test_changes_are_told_in_order_before_the_operation_returns(store: Store, clock: ManualClock) -> None:
    seen: list[tuple[str, str]] = []

    def listener(change: News) -> None:
        assert isinstance(change, Kept | Gone)
        seen.append((change.kind, change.agent_id))

    store.watch(listener)
    kept = await store.put(agent("a1"), TTL, 0)
    assert seen == [("registered", "a1")]
    await store.put(agent("a1", name="Other"), TTL, 0)
    renewed = await store.renew("a1", TTL, None)
    assert seen[1:] == [("replaced", "a1"), ("renewed", "a1")]
    await store.expire(kept.lease)
    with pytest.raises(Full):
        await store.put(agent("a2"), TTL, 1)
    assert renewed is not None
    clock.tick(TTL)
    await store.expire(renewed)
    await store.put(agent("a1"), TTL, 0)
    await store.remove("a1", None)
    assert seen[3:] == [("expired", "a1"), ("registered", "a1"), ("removed", "a1")]


async def test_a_cancelled_caller_does_not_hide_the_change(store: Store) -> None:
    """Whatever was written is told, or those who follow the store would route by yesterday's news."""
    told = asyncio.Event()
    store.watch(lambda change: told.set())
    task = asyncio.ensure_future(store.put(agent(), TTL, 0))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    if await store.get("echo-01") is not None:
        await asyncio.wait_for(told.wait(), 5)
    else:
        assert not told.is_set()


async def test_many_writers_leave_one_truth(store: Store) -> None:
    mirror: dict[str, Any] = {}

    def follow(change: News) -> None:
        assert isinstance(change, Kept | Gone)
        if isinstance(change, Kept):
            mirror[change.agent_id] = change.registration
        else:
            mirror.pop(change.agent_id, None)

    store.watch(follow)
    ids = [f"a{number}" for number in range(20)]
    await asyncio.gather(*(store.put(agent(one, version=str(n)), TTL, 0) for one in ids for n in range(5)))
    await asyncio.gather(
        *(store.renew(one, TTL, None) for one in ids), *(store.remove(one, None) for one in ids[::2])
    )
    assert {one.agent.agent_id: one for one in await store.list()} == mirror
    assert sorted(mirror) == sorted(ids[1::2])


_IDS = st.sampled_from(["a1", "a2", "a3"])
_PRINCIPALS = st.sampled_from([None, "alice", "bob"])
_OPERATIONS = st.one_of(
    st.tuples(st.just("put"), _IDS, _PRINCIPALS, st.sampled_from(["1", "2"])),
    st.tuples(st.just("renew"), _IDS, _PRINCIPALS),
    st.tuples(st.just("remove"), _IDS, _PRINCIPALS),
    st.tuples(st.just("expire"), _IDS),
    st.tuples(st.just("tick"), st.sampled_from([TTL / 2, TTL])),
)
_STEPS = st.one_of(_OPERATIONS, st.tuples(st.just("reopen")))


async def step(store: Store, clock: ManualClock, name: str, *given: Any) -> Any:
    """One operation; gives what can be seen of its outcome."""
    try:
        match name:
            case "put":
                agent_id, owner, version = given
                return (await store.put(agent(agent_id, owner, version=version), TTL, 2)).agent.card
            case "renew":
                return await store.renew(given[0], TTL, given[1]) is not None
            case "remove":
                return await store.remove(*given)
            case "expire":
                kept = await store.get(given[0])
                return kept is not None and await store.expire(kept.lease)
            case "tick":
                return clock.tick(*given)
    except (Forbidden, Full) as error:
        return type(error)


async def history(url: str, steps: list[tuple[Any, ...]], server: Valkey | None = None) -> list[Any]:
    clock, prefix = ManualClock(), f"{secrets.token_hex(4)}."
    if server is not None:
        clock.along = moving_time(server, prefix)
    store = open_store(url, clock.clock, key_prefix=prefix)
    await store.open(TTL)
    seen = []
    for name, *members in steps:
        if name == "reopen" and url != "memory://":
            await store.close()
            store = open_store(url, clock.clock)
            await store.open(TTL)
        elif name == "reopen":
            await store.grace(-1, TTL)
        seen.append(await step(store, clock, name, *members))
        listed = ((one.agent.agent_id, one.agent.owner, one.agent.card, one.lease) for one in await store.list())
        seen.append(sorted((*rest, lease.last_seen, lease.ends) for *rest, lease in listed))
    await store.close()
    return seen


@settings(max_examples=50, deadline=None)
@given(st.lists(_STEPS, max_size=25))
def test_all_stores_tell_the_same_story(steps: list[tuple[Any, ...]]) -> None:
    """A restart of the file is to the agents what a grace of one TTL is to those in memory."""
    with TemporaryDirectory() as directory:
        on_file = asyncio.run(history(f"sqlite:///{directory}/r.db", steps))
    assert on_file == asyncio.run(history("memory://", steps))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_OPERATIONS, min_size=10, max_size=30))
def test_valkey_tells_the_same_story(shared_valkey: Valkey, steps: list[tuple[Any, ...]]) -> None:
    """Times but for the milliseconds that pass meanwhile."""

    def rough(seen: list[Any]) -> list[Any]:
        return [[(*rest, round(ends)) for *rest, _, ends in one] if isinstance(one, list) else one for one in seen]

    shared = asyncio.run(history(shared_valkey.url, steps, shared_valkey))
    assert rough(shared) == rough(asyncio.run(history("memory://", steps)))


async def test_closing_twice_is_fine(store: Store) -> None:
    await store.close()
    await store.close()


# -- choosing a store


@pytest.mark.parametrize(
    "url", ["", "memory:", "memory://x", "sqlite://", "sqlite:///", "sqlite:///a\nb", "postgres://h/", "/a/file"]
)
def test_unknown_stores(url: str) -> None:
    with pytest.raises(StoreError, match=r"must be memory://, sqlite:///FILE or a redis:// URL"):
        open_store(url)


def test_a_database_in_memory_is_no_file() -> None:
    """Contract 5.3: SQLite's own name for it would be a file that keeps nothing."""
    with pytest.raises(StoreError, match="memory://"):
        open_store("sqlite:///:memory:")


def test_a_home_that_nobody_knows() -> None:
    """Architecture 5: one line that says what to do, not a traceback."""
    with pytest.raises(StoreError, match=r"~nosuchuser/r\.db: no such home directory"):
        open_store("sqlite:///~nosuchuser/r.db")


async def test_relative_and_home_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for url, file in (("sqlite:///new/r.db", "new/r.db"), ("sqlite:///~/r.db", "home/r.db")):
        store = open_store(url, clock.clock)
        await store.open(TTL)
        await store.close()
        assert (tmp_path / file).is_file()


# -- the file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "registry.db"


async def opened(file: Path, clock: ManualClock | None = None) -> Store:
    store = open_store(f"sqlite:///{file}", None if clock is None else clock.clock)
    await store.open(TTL)
    return store


async def refusal(file: Path) -> str:
    store = open_store(f"sqlite:///{file}")
    with pytest.raises(StoreError) as caught:
        await store.open(TTL)
    await store.close()
    text = str(caught.value)
    assert "\n" not in text
    assert str(file) in text
    return text


def read(file: Path) -> bytes:
    return file.read_bytes()


def write(file: Path, content: bytes) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)


def execute(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute(statement)


async def test_registrations_survive_a_restart_with_one_ttl_of_grace(file: Path, clock: ManualClock) -> None:
    """Contract 5.3: everything comes back as it was, only the lease is new."""
    store = await opened(file, clock)
    before = await store.put(agent(owner="älice", at="t1", metadata={"n": 2**70, "é": "🌍"}), TTL, 0)
    await store.put(agent("gone"), TTL, 0)
    await store.remove("gone", None)
    clock.tick(5)
    renewed = await store.renew("echo-01", TTL, "älice")
    await store.close()
    clock.tick(10_000)
    store = await opened(file, clock)
    (after,) = await store.list()
    await store.close()
    assert renewed is not None
    for name in ("card", "url", "location", "owner", "registered_at", "tags", "text"):
        assert getattr(after.agent, name) == getattr(before.agent, name)
    assert after.lease.last_seen == renewed.last_seen
    assert after.lease.ends == clock.clock.monotonic() + TTL


async def test_the_file_is_private(file: Path) -> None:
    """Cards may hold what is nobody's business on a shared machine."""
    store = await opened(file)
    await store.put(agent(), TTL, 0)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (file.parent, *file.parent.iterdir())}
    await store.close()
    assert {mode & 0o077 for mode in modes.values()} == {0}, modes


async def test_one_owner(file: Path) -> None:
    """Architecture 4: a second one gets a clear error, and the first goes on."""
    store = await opened(file)
    assert "in use by another process" in await refusal(file)
    await store.put(agent(), TTL, 0)
    await store.close()
    again = await opened(file)
    assert await again.get("echo-01") is not None
    await again.close()


async def test_one_owner_whatever_the_file_is_called(file: Path, tmp_path: Path) -> None:
    store = await opened(file)
    (tmp_path / "alias").symlink_to(file)
    assert "in use by another process" in await refusal(tmp_path / "alias")
    await store.close()


async def test_a_file_of_several_names(file: Path, tmp_path: Path) -> None:
    """Architecture 4: each name would have a lock and a journal of its own."""
    store = await opened(file)
    (tmp_path / "link.db").hardlink_to(file)
    assert "other names (hard links)" in await refusal(tmp_path / "link.db")
    await store.close()


@pytest.mark.parametrize("content", [b"this is no database, whatever it may be" * 40, b"x"])
async def test_a_file_of_something_else(file: Path, content: bytes) -> None:
    write(file, content)
    assert "not a database" in await refusal(file)
    assert read(file) == content


async def test_a_damaged_file(file: Path) -> None:
    store = await opened(file)
    for number in range(200):
        await store.put(agent(f"a{number}", metadata={"x": "y" * 500}), TTL, 0)
    await store.close()
    whole = read(file)
    write(file, whole[:4096] + b"\xff" * 8192 + whole[12288:])
    assert "malformed" in await refusal(file)


async def test_a_database_of_another_program(file: Path) -> None:
    write(file, b"")
    execute(file, "CREATE TABLE other (x)")
    assert "another program" in await refusal(file)


async def test_a_file_of_another_version(file: Path) -> None:
    await (await opened(file)).close()
    execute(file, "PRAGMA user_version = 7")
    assert "has format 7" in await refusal(file)


@pytest.mark.parametrize("file", ["/proc/vitalgate/registry.db", "/dev/null/registry.db"])
async def test_paths_that_cannot_be_written(file: str) -> None:
    await refusal(Path(file))


async def test_a_directory_is_no_file(tmp_path: Path) -> None:
    write(tmp_path / "registry.db" / "x", b"")
    assert "Is a directory" in await refusal(tmp_path / "registry.db")


async def test_a_pipe_or_a_device_is_no_file(tmp_path: Path) -> None:
    """Contract 8: to read from one would hang the start."""
    os.mkfifo(tmp_path / "pipe")
    assert "no regular file" in await refusal(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    assert "no regular file" in await refusal(tmp_path / "null")


async def test_a_link_to_itself(tmp_path: Path) -> None:
    (tmp_path / "loop.db").symlink_to(tmp_path / "loop.db")
    assert "Too many levels of symbolic links" in await refusal(tmp_path / "loop.db")
    await refusal(tmp_path / "loop.db" / "registry.db")


@pytest.mark.parametrize("taken", ["registry.db", "registry.db-wal"])
@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
async def test_nothing_is_kept_in_a_file_that_is_gone(
    file: Path, tmp_path: Path, clock: ManualClock, taken: str, replaced: bool
) -> None:
    """Contract 5.3: what is answered survives; where it would not, the answer is 503 until the file is back."""
    store = await opened(file, clock)
    before = await store.put(agent(), TTL, 0)
    (file.parent / taken).rename(tmp_path / "aside")
    if replaced:
        (file.parent / taken).write_bytes((tmp_path / "aside").read_bytes())
    for refused in (
        store.put(agent("a2"), TTL, 0),
        store.renew("echo-01", TTL, None),
        store.remove("echo-01", None),
        store.grace(clock.clock.monotonic(), TTL),
    ):
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            await refused
    assert await store.list() == [before]
    (tmp_path / "aside").replace(file.parent / taken)
    await store.put(agent("a2"), TTL, 0)
    await store.close()


@pytest.fixture
def read_only(file: Path) -> Iterator[Path]:
    """A file in a directory that may be written; as root, only others are bound by file modes."""
    with TemporaryDirectory() as directory:
        file = Path(directory, "registry.db")
        file.touch(mode=0o444)
        Path(directory).chmod(0o777)
        user = os.geteuid()
        os.seteuid(65534 if user == 0 else user)
        yield file
        os.seteuid(user)


async def test_a_file_that_may_only_be_read(read_only: Path) -> None:
    assert "Permission denied" in await refusal(read_only)


async def test_a_card_that_is_no_longer_valid_is_forgotten(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file must not stop the start because the rules became stricter; the agent is told to register again."""
    store = await opened(file)
    await store.put(agent("good"), TTL, 0)
    await store.put(agent("bad"), TTL, 0)
    await store.close()
    execute(file, "UPDATE agents SET card = '{\"agent_id\":' WHERE agent_id = 'bad'")
    for warnings in (1, 0):
        caplog.clear()
        store = await opened(file)
        assert [one.agent.agent_id for one in await store.list()] == ["good"]
        await store.close()
        assert len(caplog.records) == warnings


async def test_a_locked_file_is_an_outage_that_passes(file: Path, clock: ManualClock) -> None:
    """Contract 5.3: nothing is half done, the event loop goes on meanwhile, and later it works again."""
    store = await opened(file, clock)
    kept = await store.put(agent(), TTL, 0)
    over = await store.put(agent("over"), 1, 0)
    clock.tick(1)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    blocked = asyncio.gather(
        store.put(agent("new"), TTL, 0), store.renew("echo-01", TTL, None), store.remove("echo-01", None),
        store.expire(over.lease), store.grace(0, 5), return_exceptions=True,
    )  # fmt: skip
    turns = 0
    while not blocked.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert {type(result) for result in await blocked} == {StoreUnavailable}
    assert turns > 10
    assert await store.list() == [kept, over]
    other.execute("COMMIT")
    other.close()
    await store.grace(0, TTL)
    assert await store.renew("echo-01", TTL, None) is not None
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.put(agent(), TTL, 0)


REGISTER_FOR_EVER = """
import asyncio, json, sys
from registry.registry import Registry
from registry.stores import open_store

async def main():
    registry = Registry(open_store(sys.argv[1]), ttl_seconds=60)
    await registry.start()
    for number in range(1_000_000):
        card = {"agent_id": f"a{number}", "name": "n" * (number % 200 + 1), "url": "http://h/"}
        registration = await registry.register(json.dumps(card).encode(), None)
        print(registration.agent.agent_id, flush=True)

asyncio.run(main())
"""


def test_what_was_answered_survives_sigkill(file: Path) -> None:
    """Issue: killing the process during registrations loses none that was answered; the lock dies with it."""
    answered: list[str] = []
    for round_ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", REGISTER_FOR_EVER, f"sqlite:///{file}"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                answered.append(line.strip())
                if len(answered) >= 150 * (round_ + 1):
                    process.send_signal(signal.SIGKILL)
                    break
            answered.extend(line.strip() for line in lines if line.endswith("\n"))
        assert process.wait(10) == -signal.SIGKILL
    found = asyncio.run(listed(file))
    assert set(answered) <= found
    assert len(found) - len(set(answered)) <= 3


async def listed(file: Path) -> set[str]:
    store = await opened(file)
    found = {one.agent.agent_id for one in await store.list()}
    await store.close()
    return found
