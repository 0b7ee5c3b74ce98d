"""registry.stores.redis.link over a real Valkey: steps, time, messages, outages (pitfalls 159, 164, 166)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from registry.clock import Clock
from registry.errors import StoreError, StoreUnavailable
from registry.stores.redis.link import Link
from registry.stores.redis.script import Script
from tests.fakes.certs import Authority, Kind
from tests.fakes.clock import ManualClock
from tests.fakes.cut import Cut
from tests.fakes.ports import refusing_port, stuck_port
from tests.fakes.refusing import RefusingServer
from tests.fakes.running import eventually
from tests.fakes.valkey import Valkey, free_port, replicated

COUNT = Script("count", "return redis.call('INCR', p .. 'n')")
READ = Script("read", "return redis.call('GET', p .. 'n') or ''")
SAY = Script("say", "return redis.call('PUBLISH', p .. a[1], a[2])")
ECHO = Script("echo", "return a[1]")
CONTACT = Script("contact", "redis.call('SET', p .. 'contact', text(now)) return 1")


@asynccontextmanager
async def linked(url: str, prefix: str = "t.", clock: Clock | None = None) -> AsyncIterator[Link]:
    link = Link(url, prefix, clock or Clock())
    await link.open()
    try:
        yield link
    finally:
        await link.close()


async def refusal(url: str) -> str:
    """What an `open` that fails says, in one line and within two seconds and a bit."""
    began = time.monotonic()
    with pytest.raises(StoreError) as caught:
        async with linked(url):
            pass
    assert time.monotonic() - began < 3
    text = str(caught.value)
    assert "\n" not in text
    return text


# -- steps


async def test_a_step_and_its_answer(shared_valkey: Valkey, prefix: str) -> None:
    async with linked(shared_valkey.url, prefix) as link:
        assert await link.run(COUNT) == 1
        assert await link.run(COUNT) == 2
        assert await link.run(ECHO, "héllo\n") == "héllo\n".encode()
        assert await link.run(ECHO, b"\x00\xff") == b"\x00\xff"
        assert shared_valkey.do("GET", f"{prefix}n") == b"2"


async def test_a_server_that_forgot_its_scripts_gets_them_again(shared_valkey: Valkey, prefix: str) -> None:
    async with linked(shared_valkey.url, prefix) as link:
        assert await link.run(COUNT) == 1
        shared_valkey.do("SCRIPT", "FLUSH")
        assert await link.run(COUNT) == 2


async def test_many_steps_at_once_share_a_few_connections(shared_valkey: Valkey, prefix: str) -> None:
    async with linked(shared_valkey.url, prefix) as link:
        before = shared_valkey.do("INFO", "clients")["connected_clients"]
        answers = await asyncio.gather(*(link.run(ECHO, str(number)) for number in range(500)))
        assert answers == [str(number).encode() for number in range(500)]
        assert shared_valkey.do("INFO", "clients")["connected_clients"] <= before + 16


async def test_steps_that_are_left_do_not_mix_up_the_answers(shared_valkey: Valkey, prefix: str) -> None:
    async with linked(shared_valkey.url, prefix) as link:
        for turn in range(50):
            left = asyncio.ensure_future(link.run(ECHO, "left"))
            for _ in range(turn % 7):
                await asyncio.sleep(0)
            left.cancel()
            assert await link.run(ECHO, str(turn)) == str(turn).encode()
            await asyncio.wait([left])


async def test_without_open_and_after_close(shared_valkey: Valkey) -> None:
    link = Link(shared_valkey.url, "t.", Clock())
    with pytest.raises(StoreUnavailable, match="not open"):
        await link.run(COUNT)
    await link.open()
    await link.close()
    await link.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await link.run(COUNT)


# -- a start that fails (pitfall 166): one line that says who must act


async def test_a_wrong_password() -> None:
    with Valkey("--requirepass", "right-horse") as server:
        place = f"127.0.0.1:{server.port}"
        for credentials in ("", ":wr0ng@", "nobody:wr0ng@"):
            text = await refusal(f"redis://{credentials}{place}")
            assert "user or password are refused: set them in registry.url" in text
            assert "wr0ng" not in text
        async with linked(f"redis://:right-horse@{place}/3") as link:
            assert await link.run(COUNT) == 1


async def test_nobody_listens_or_nobody_answers(own_valkey: Valkey) -> None:
    with refusing_port() as port:
        assert f"127.0.0.1:{port}: no connection (" in await refusal(f"redis://127.0.0.1:{port}")
    with stuck_port() as port:
        assert "no " in await refusal(f"redis://127.0.0.1:{port}")
    own_valkey.freeze()
    assert "no answer in time" in await refusal(own_valkey.url)
    own_valkey.thaw()
    assert "no connection" in await refusal("redis://no-such-host.invalid")


async def test_a_replica_and_a_cluster_are_refused(own_valkey: Valkey) -> None:
    with Valkey("--replicaof", "127.0.0.1", str(own_valkey.port)) as replica:
        assert "read-only replica: name the master, or use redis+sentinel://" in await refusal(replica.url)
    with Valkey("--cluster-enabled", "yes", "--cluster-port", str(free_port())) as member:
        assert "Redis Cluster, which is not supported" in await refusal(member.url)


async def test_data_of_a_newer_version_is_left_alone(shared_valkey: Valkey, prefix: str) -> None:
    shared_valkey.do("HSET", f"{prefix}store", "token", "x", "format", 2)
    with pytest.raises(StoreError, match="format 2, this version reads 1"):
        async with linked(shared_valkey.url, prefix):
            pass


async def test_a_server_that_may_evict_is_warned_of(own_valkey: Valkey, caplog: pytest.LogCaptureFixture) -> None:
    own_valkey.do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    async with linked(own_valkey.url):
        assert "maxmemory-policy is allkeys-lru" in caplog.text


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("-LOADING Redis is loading the dataset in memory", "it is still loading its data"),
        ("-MASTERDOWN Link with MASTER is down", "it has lost its master"),
        ("-NOPERM this user has no permissions", "the user may not do this"),
        ("-MOVED 3999 127.0.0.1:6381", "it is a Redis Cluster, which is not supported"),
        ("-BUSY Redis is busy running a script", "it is busy with another program's script"),
        ("-WRONGTYPE Operation against a key", "another program has a key under registry.key_prefix"),
        ("-ERR max number of clients reached", "no connection (max number of clients reached)"),
        ("-ERR something new", "something new"),
        ("+hello from another protocol", "its answer is not that of a Redis or Valkey"),
        ("HTTP/1.1 400 Bad Request", "its answer is not that of a Redis or Valkey"),
    ],
)
async def test_every_refusal_is_a_short_reason(answer: str, reason: str) -> None:
    async with RefusingServer(answer) as server:
        assert reason in await refusal(server.url)


# -- while it runs


async def test_a_server_that_restarts_is_found_again(own_valkey: Valkey) -> None:
    async with linked(own_valkey.url) as link:
        assert await link.run(COUNT) == 1
        own_valkey.kill()
        with pytest.raises(StoreUnavailable, match="no connection"):
            await link.run(COUNT)
        own_valkey.start()
        assert await link.run(COUNT) == 1  # it was empty, and nobody had anything to put back


async def test_what_lay_in_a_frozen_server_takes_no_effect(own_valkey: Valkey) -> None:
    """Pitfall 164: fails in a second, and StoreUnavailable means that nothing was changed."""
    async with linked(own_valkey.url) as link:
        assert await link.run(COUNT) == 1
        own_valkey.freeze()
        began = time.monotonic()
        outcomes = await asyncio.gather(*(link.run(COUNT) for _ in range(40)), return_exceptions=True)
        assert time.monotonic() - began < 1.5
        assert {type(one) for one in outcomes} == {StoreUnavailable}
        await asyncio.sleep(0.2)
        own_valkey.thaw()
        assert await link.run(READ) == b"1"
        assert await link.run(COUNT) == 2


async def test_a_server_out_of_memory_changes_nothing(own_valkey: Valkey) -> None:
    async with linked(own_valkey.url) as link:
        assert await link.run(COUNT) == 1
        own_valkey.do("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(StoreUnavailable, match="out of memory"):
            await link.run(COUNT)
        own_valkey.do("CONFIG", "SET", "maxmemory", "0")
        assert await link.run(COUNT) == 2


async def test_a_master_that_became_a_replica(own_valkey: Valkey) -> None:
    async with linked(own_valkey.url) as link:
        assert await link.run(COUNT) == 1
        with Valkey() as other:
            own_valkey.do("REPLICAOF", "127.0.0.1", other.port)
            with pytest.raises(StoreUnavailable, match=r"read-only replica|lost its master|being put back"):
                await link.run(COUNT)
            own_valkey.do("REPLICAOF", "NO", "ONE")
        assert await link.run(COUNT) in {1, 2}


async def test_a_cut_is_noticed_and_mended(own_valkey: Valkey, caplog: pytest.LogCaptureFixture) -> None:
    """A wire on which nothing comes through, and nobody says so; the loss is logged once (pitfall 159)."""
    async with Cut(own_valkey.port) as wire:
        heard: list[bytes] = []
        joins: list[float] = []
        link = Link(wire.url, "t.", Clock(), timeout=0.2)
        link.subscribe("news", heard.append, lambda: joins.append(time.monotonic()))
        await link.open()
        wire.cut()
        with pytest.raises(StoreUnavailable, match="no answer in time"):
            await link.run(COUNT)
        await asyncio.sleep(1.2)
        assert len([one for one in caplog.records if "messages stopped" in one.message]) == 1
        wire.mend()
        await eventually(lambda: len(joins) > 1)
        await link.run(SAY, "news", b"back")
        await eventually(lambda: heard == [b"back"])
        assert await link.run(READ) == b""
        await link.close()


# -- messages


async def test_messages_come_in_order_to_all(shared_valkey: Valkey, prefix: str) -> None:
    heard: list[bytes] = []
    listening = Link(shared_valkey.url, prefix, Clock())
    listening.subscribe("news", heard.append, lambda: None)
    listening.subscribe("other", heard.append, lambda: None)
    await listening.open()
    async with linked(shared_valkey.url, prefix) as speaking:
        for number in range(100):
            await speaking.run(SAY, "news", str(number).encode())
        await speaking.run(SAY, "other", b"end")
        await eventually(lambda: heard[-1:] == [b"end"])
    assert heard == [*(str(number).encode() for number in range(100)), b"end"]
    await listening.close()


@pytest.mark.parametrize("loss", ["kill", "restart"])
async def test_listening_comes_back(own_valkey: Valkey, caplog: pytest.LogCaptureFixture, loss: str) -> None:
    """Pitfall 159."""
    heard: list[bytes] = []
    joins: list[bool] = []
    link = Link(own_valkey.url, "t.", Clock())
    link.subscribe("news", heard.append, lambda: joins.append(True))
    await link.open()
    for turn in range(2, 4):
        if loss == "kill":
            own_valkey.do("CLIENT", "KILL", "TYPE", "pubsub")
        else:
            own_valkey.restart()
        await eventually(lambda turn=turn: len(joins) == turn)  # type: ignore[misc]
        await link.run(SAY, "news", b"again")
        await eventually(lambda turn=turn: len(heard) == turn - 1)  # type: ignore[misc]
    assert len([one for one in caplog.records if "messages stopped" in one.message]) == 2
    await link.close()


async def test_a_listener_that_fails_does_not_end_listening(
    shared_valkey: Valkey, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[bytes] = []

    def hear(data: bytes) -> None:
        if data == b"bad":
            raise ValueError("cannot read this")
        heard.append(data)

    link = Link(shared_valkey.url, prefix, Clock())
    link.subscribe("news", hear, lambda: None)
    await link.open()
    await link.run(SAY, "news", b"bad")
    await link.run(SAY, "news", b"good")
    await eventually(lambda: heard == [b"good"])
    assert "a message could not be taken" in caplog.text
    await link.close()


# -- cluster time


def jump(server: Valkey, prefix: str, seconds: float) -> None:
    """What the nodes see when the server's clock jumps: its time is the sum of both."""
    server.do("INCRBY", f"{prefix}clock", round(seconds * 1e6))


@pytest.mark.parametrize("seconds", [3600.0, -3600.0, 86400 * 365.0, 5.0, -5.0])
async def test_the_time_goes_on_when_the_servers_clock_jumps(
    shared_valkey: Valkey, prefix: str, seconds: float
) -> None:
    """Pitfall 169: a step of NTP, a failover to another clock, a restored machine expire nobody."""
    async with linked(shared_valkey.url, prefix) as one, linked(shared_valkey.url, prefix) as two:
        voids: list[bool] = []
        one.on_jump(lambda: voids.append(True))
        two.on_jump(lambda: voids.append(True))
        await one.run(CONTACT)
        before, began = one.now(), time.monotonic()
        jump(shared_valkey, prefix, seconds)
        assert await asyncio.gather(one.run(ECHO, "1"), two.run(ECHO, "2")) == [b"1", b"2"]
        passed = time.monotonic() - began
        assert one.now() == pytest.approx(before + passed, abs=0.3)
        assert two.now() == pytest.approx(before + passed, abs=0.3)
        assert voids == []


async def test_a_small_step_of_the_clock_is_followed(shared_valkey: Valkey, prefix: str) -> None:
    async with linked(shared_valkey.url, prefix) as link:
        await link.run(CONTACT)
        before = link.now()
        jump(shared_valkey, prefix, 1.5)
        assert await link.run(COUNT) == 1
        assert link.now() == pytest.approx(before + 1.5, abs=0.3)


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
async def test_who_is_alone_with_its_time_is_wrong(shared_valkey: Valkey, prefix: str, seconds: float) -> None:
    """A node whose own clock stood still (a machine that slept) adopts the time that the others live by."""
    clock = ManualClock()
    async with linked(shared_valkey.url, prefix, clock.clock) as slept, linked(shared_valkey.url, prefix) as other:
        voids: list[bool] = []
        slept.on_jump(lambda: voids.append(True))
        clock.tick(seconds)
        await other.run(CONTACT)
        assert await slept.run(COUNT) == 1
        assert slept.now() == pytest.approx(other.now(), abs=0.3)
        assert voids == [True]
        assert slept.local(slept.now() + 7) == pytest.approx(clock.clock.monotonic() + 7, abs=0.3)


async def test_time_never_goes_back_over_a_restart(shared_valkey: Valkey, prefix: str) -> None:
    """All nodes were down while the server's clock was set back: leases would last for a day longer."""
    async with linked(shared_valkey.url, prefix) as link:
        await link.run(CONTACT)
        before = link.now()
    jump(shared_valkey, prefix, -86400)
    async with linked(shared_valkey.url, prefix) as link:
        assert link.now() >= before


# -- another data set


async def test_a_flushed_server_is_filled_before_anything_else(own_valkey: Valkey) -> None:
    order: list[str] = []

    def putting(link: Link, name: str) -> Callable[[], Awaitable[None]]:
        async def put_back() -> None:
            order.append(f"{name} begins")
            await link.run_first(COUNT)
            await asyncio.sleep(0.05)
            order.append(f"{name} ends")

        return put_back

    async with linked(own_valkey.url) as one, linked(own_valkey.url) as two:
        one.on_replaced(putting(one, "one"))
        two.on_replaced(putting(two, "two"))
        for turn in range(2):
            own_valkey.do("FLUSHALL")
            order.clear()
            assert await one.run(READ) == b"1"
            assert order == ["one begins", "one ends"]
            assert await two.run(READ) == b"2"
            assert order[2:] == ["two begins", "two ends"]
            assert len(await asyncio.gather(one.run(ECHO, turn), two.run(ECHO, turn))) == 2
            assert len(order) == 4


async def test_filling_that_fails_is_tried_again(own_valkey: Valkey, caplog: pytest.LogCaptureFixture) -> None:
    tries: list[int] = []

    async def put_back() -> None:
        tries.append(len(tries))
        if len(tries) < 4:
            raise StoreUnavailable("just then it went away")

    async with linked(own_valkey.url) as link:
        link.on_replaced(put_back)
        own_valkey.do("FLUSHALL")
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="being put back"):
                await link.run(READ)
        assert await link.run(READ) == b""
        assert tries == [0, 1, 2, 3]
        assert len(caplog.records) == 2  # it was emptied; it could not be filled yet


async def test_a_flush_takes_the_offset_of_the_clock_but_not_the_time(own_valkey: Valkey) -> None:
    async with linked(own_valkey.url) as link:
        await link.run(CONTACT)
        jump(own_valkey, "t.", 3600)
        await link.run(COUNT)
        before = link.now()
        own_valkey.do("FLUSHALL")
        await link.run(COUNT)
        assert link.now() == pytest.approx(before, abs=0.5)


# -- TLS


async def test_tls_with_an_authority_of_ones_own(shared_valkey: Valkey, prefix: str, tmp_path: Path) -> None:
    """Only a certificate that is signed by the authority named, for the name in the URL, is taken."""
    authority = Authority(tmp_path)
    async with Cut(shared_valkey.port, tls=authority.server(client_required=True)) as server:
        files, url = authority.issue("client"), f"rediss://127.0.0.1:{server.port}"
        own = f"&ssl_certfile={files.certificate}&ssl_keyfile={files.key}"
        async with linked(f"{url}?ssl_ca_certs={authority.ca_file}{own}", prefix) as link:
            assert await link.run(COUNT) == 1
        assert "certificate verify failed" in await refusal(f"{url}?{own[1:]}")
    kinds: tuple[Kind, ...] = ("wrong-name", "expired", "self-signed")
    for kind in kinds:
        async with Cut(shared_valkey.port, tls=authority.server(kind)) as server:
            url = f"rediss://127.0.0.1:{server.port}?ssl_ca_certs={authority.ca_file}"
            assert "certificate verify failed" in await refusal(url)


async def test_an_authority_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in await refusal(f"rediss://127.0.0.1:1?ssl_ca_certs={tmp_path}/none.pem")


# -- Sentinel


async def test_a_failover(caplog: pytest.LogCaptureFixture) -> None:
    """Pitfall 166: the new master is found, and listening moves there; clear errors meanwhile."""
    caplog.set_level(logging.WARNING)
    with replicated() as (sentinel, master, _replica):
        heard: list[bytes] = []
        link = Link(sentinel.url, "t.", Clock())
        link.subscribe("news", heard.append, lambda: None)
        await link.open()
        assert await link.run(COUNT) == 1
        master.kill()
        until = time.monotonic() + 15
        while True:
            try:
                assert await link.run(COUNT) >= 1
                await link.run(SAY, "news", b"moved")
                if heard:
                    break
            except StoreUnavailable as error:
                assert "\n" not in str(error)  # noqa: PT017 - which of several errors comes is a matter of timing
            assert time.monotonic() < until
            await asyncio.sleep(0.1)
        await link.close()


async def test_sentinels_that_know_no_master() -> None:
    with refusing_port() as port:
        assert "the Sentinels name no master" in await refusal(f"redis+sentinel://127.0.0.1:{port}/mymaster")
