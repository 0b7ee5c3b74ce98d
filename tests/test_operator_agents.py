"""`vitalgate agents`, `reload`, `completion` at a real gateway: what people see, what scripts get, how it ends."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.operator import watch
from gateway.operator.commands import _STATUSES
from gateway.operator.output import Column, harmless_json, table
from healthcheck.model import Status
from tests.fakes import issuer
from tests.fakes.gateway import COMMAND, GatewayProcess
from tests.fakes.health_peer import A2APeer
from tests.fakes.monitored import card_of
from tests.fakes.operating import answering, ended, started, vitalgate
from tests.fakes.ports import refusing_port
from tests.fakes.program import clean_environment
from tests.fakes.running import Running, running

CHECKED = {"enable": True, "interval_seconds": 3600}
HOSTILE = "Bad \x1b[31mred \x9b2J \u202e [bold]x[/bold] :smile:\nline"


@pytest.fixture
async def gateway() -> AsyncIterator[Running]:
    async with running(health=CHECKED) as it:
        yield it


def card_text(**members: Any) -> str:
    return json.dumps({"agent_id": "weather", "name": "Weather", "url": "http://127.0.0.1:9/"} | members)


def card(tmp_path: Path, **members: Any) -> str:
    file = tmp_path / "card.json"
    file.write_text(card_text(**members))
    return str(file)


# -- list and show


async def test_nobody_is_registered(gateway: Running) -> None:
    done = await vitalgate("agents", "list", url=gateway.api)
    assert (done.code, done.out) == (0, "")
    assert "vitalgate agents register FILE" in done.err
    assert (await vitalgate("agents", "list", "--json", url=gateway.api)).document == []


async def test_list_in_a_pipe_has_every_value_whole_and_no_colour(gateway: Running) -> None:
    long = "http://127.0.0.1:9/" + "path/" * 40
    await gateway.register(long, "weather", name="Weather", skills=[{"id": "a", "name": "A"}])
    await gateway.register("http://127.0.0.1:9/", "x" * 128)
    done = await vitalgate("agents", "list", url=gateway.api)
    assert done.out.splitlines()[0].split() == ["AGENT", "HEALTH", "ROUTING", "SEEN", "NAME", "SKILLS", "URL"]
    first, second = done.rows()
    assert [cell.strip() for cell in (first[0], first[-3], first[-2], first[-1])] == [
        "weather",
        "Weather",
        "a",
        long,
    ]
    assert second[0] == "x" * 128
    assert "\x1b" not in done.out


async def test_filters_of_list(gateway: Running) -> None:
    """Contract 5.2."""
    skills = [{"id": "a", "name": "A", "tags": ["rain"]}]
    await gateway.register("http://127.0.0.1:9/", "weather", skills=skills)
    await gateway.register("http://127.0.0.1:9/", "other")

    async def ids(*options: str) -> list[str]:
        done = await vitalgate("agents", "list", "--json", *options, url=gateway.api)
        return [one["agent_id"] for one in done.document]

    assert await ids() == ["weather", "other"]
    assert await ids("--tag", "rain") == ["weather"]
    assert await ids("--query", "OTH") == ["other"]
    assert await ids("--limit", "1") == ["weather"]
    assert await ids("--health", "healthy", "--health", "DEGRADED") == []
    none = await vitalgate("agents", "list", "--query", "nobody", url=gateway.api)
    assert (none.code, none.out, none.err) == (0, "", "no agent is like that\n")


def test_statuses_are_the_engines() -> None:
    assert tuple(_STATUSES) == tuple(status.value for status in Status)


async def test_show(gateway: Running) -> None:
    skills = [{"id": "a", "name": "A", "tags": ["rain", "sun"]}]
    stored = await gateway.register("http://127.0.0.1:9/", "weather", description="Says how it is.", skills=skills)
    done = await vitalgate("agents", "show", "weather", url=gateway.api)
    assert done.code == 0
    lines = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert lines["agent"] == "weather"
    assert lines["description"] == "Says how it is."
    assert lines["skill"] == "a: A [rain, sun]"
    assert lines["registered"].startswith(stored["registered_at"])
    shown = (await vitalgate("agents", "show", "weather", "--json", url=gateway.api)).document
    assert shown == (await gateway.client.get("/agents/weather")).json()


async def test_hostile_text_reaches_nobodys_terminal(gateway: Running) -> None:
    """Names are their registrants': escape sequences, bidi marks and line breaks are written out."""
    await gateway.register("http://127.0.0.1:9/", "evil", name=HOSTILE, description=HOSTILE)
    for command in (
        ["list"],
        ["show", "evil"],
        ["health", "evil"],
        ["list", "--json"],
        ["show", "evil", "--json"],
    ):
        done = await vitalgate("agents", *command, url=gateway.api)
        assert done.code == 0
        assert not set(done.out) & {"\x1b", "\x9b", "\u202e"}, command
    shown = (await vitalgate("agents", "show", "evil", "--json", url=gateway.api)).document
    assert shown["name"] == HOSTILE
    assert "[bold]x[/bold] :smile:" in (await vitalgate("agents", "show", "evil", url=gateway.api)).out


def test_json_made_harmless_is_the_same_json() -> None:
    hostile = {"a": "\x7f\x9b\u202e\u2028\U000e0001 ü 日本語 \U0001f600"}
    text = json.dumps(hostile, ensure_ascii=False)
    assert json.loads(harmless_json(text)) == hostile
    assert harmless_json(text) == '{"a": "\\u007f\\u009b\\u202e\\u2028\\udb40\\udc01 ü 日本語 \U0001f600"}'


# -- tables


def test_a_table_fits_the_terminal_and_ids_stay_whole() -> None:
    columns = (Column("AGENT", whole=True), Column("NAME"), Column("URL"))
    rows: list[list[object]] = [["a" * 20, "日本語" * 10, "http://agent.example/" + "x" * 50], ["b", None, ""]]
    lines = table(columns, rows, 60)
    assert max(map(len, lines)) <= 60
    assert lines[1].startswith("a" * 20 + "  日本語")
    assert lines[1].count("…") == 2
    assert lines[2].split() == ["b", "-", "-"]
    assert len(table(columns, rows, 0)[1]) == 20 + 2 + 30 + 2 + 71  # no terminal: nothing is cut


def on_terminal(*arguments: str, url: str, columns: int, **variables: str) -> str:
    """What a command writes to a terminal of that width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 20, columns, 0, 0))
    environment = {**clean_environment(), "VITALGATE_URL": url, "TERM": "xterm-256color", **variables}
    environment.pop("COLUMNS", None)
    process = subprocess.Popen([COMMAND, *arguments], stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    written = b""
    try:
        while data := os.read(master, 65536):
            written += data
    except OSError:  # how Linux reports that the other side has closed
        pass
    finally:
        os.close(master)
        process.wait(10)
    return written.decode()


async def test_on_a_terminal_there_are_colours_and_lines_that_fit(gateway: Running) -> None:
    await gateway.register("http://127.0.0.1:9/" + "x" * 100, "weather", name="Weather " * 20)
    shown = await asyncio.to_thread(on_terminal, "agents", "list", url=gateway.api, columns=90)
    assert "\x1b[36munchecked\x1b[0m" in shown
    assert all(len(re.sub("\x1b\\[[0-9;]*m", "", line)) <= 90 for line in shown.splitlines())
    plain = await asyncio.to_thread(on_terminal, "agents", "list", url=gateway.api, columns=90, NO_COLOR="1")
    assert "\x1b" not in plain


async def test_watch_on_a_terminal_is_a_table_that_is_redrawn(gateway: Running) -> None:
    await gateway.register("http://127.0.0.1:9/", "weather", name="Weather")
    watching = asyncio.create_task(
        asyncio.to_thread(
            on_terminal, "agents", "watch", "--count", "1", "--timeout", "20", url=gateway.api, columns=90
        )
    )
    async with asyncio.timeout(20):
        while not watching.done():
            await gateway.register("http://127.0.0.1:9/", "other", name="Other")
            await asyncio.wait([watching], timeout=0.2)
    shown = watching.result()
    assert shown.startswith("\x1b[H\x1b[2J\x1b[HAGENT ")
    last = shown.rpartition("\x1b[HAGENT ")[2]
    assert "weather" in last
    assert re.search(r"Z (registry other|health (weather|other)) ", last)  # whichever came first


# -- register and deregister


async def test_register_show_deregister(gateway: Running, tmp_path: Path) -> None:
    done = await vitalgate("agents", "register", card(tmp_path), url=gateway.api)
    assert (done.code, done.out) == (0, "registered weather at http://127.0.0.1:9/, owned by anonymous\n")
    again = await vitalgate("agents", "register", "-", "--json", url=gateway.api, given=card_text())
    assert again.document["agent_id"] == "weather"
    done = await vitalgate("agents", "deregister", "weather", url=gateway.api)
    assert (done.code, done.out) == (0, "deregistered weather\n")
    done = await vitalgate("agents", "deregister", "weather", url=gateway.api)
    assert (done.code, done.out) == (3, "")
    assert done.err.splitlines()[0] == "vitalgate: agent not found: weather"


async def test_every_violation_is_shown(gateway: Running, tmp_path: Path) -> None:
    """Contract 5.1."""
    wrong = card(tmp_path, url="ftp://x", skills=[{"id": 1}], capabilities=[])
    done = await vitalgate("agents", "register", wrong, url=gateway.api)
    assert (done.code, done.out) == (1, "")
    fields = [line.split(": ")[1].strip() for line in done.err.splitlines()[1:]]
    assert {"url", "skills[0].id", "skills[0].name", "capabilities"} <= set(fields)


async def test_a_published_card_gets_an_id_and_an_address(gateway: Running, tmp_path: Path) -> None:
    file = tmp_path / "published.json"
    interface = {"url": "http://127.0.0.1:9/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    file.write_text(json.dumps({"name": "Weather", "supportedInterfaces": [interface]}))
    done = await vitalgate("agents", "register", str(file), "--id", "weather", url=gateway.api)
    assert done.out == "registered weather at http://127.0.0.1:9/rpc, owned by anonymous\n"
    done = await vitalgate(
        "agents", "register", str(file), "--id", "weather", "--at", "http://127.0.0.1:8/", url=gateway.api
    )
    assert done.out == "registered weather at http://127.0.0.1:8/, owned by anonymous\n"
    file.write_text("{")
    done = await vitalgate("agents", "register", str(file), "--id", "weather", url=gateway.api)
    assert done.code == 2
    assert "not JSON" in done.err


# -- health


async def test_health_check_and_history(gateway: Running) -> None:
    async with A2APeer() as peer:
        await gateway.register(peer.base, "peer", **card_of(peer))
        done = await vitalgate("agents", "check", "peer", url=gateway.api)
        assert done.code == 0
        assert "health         HEALTHY\n" in done.out
        assert "reachability" in done.out
        shown = (await vitalgate("agents", "health", "peer", "--json", url=gateway.api)).document
        assert shown == (await gateway.client.get("/agents/peer/health")).json()
        await vitalgate("agents", "check", "peer", url=gateway.api)
        done = await vitalgate("agents", "history", "peer", "--limit", "1", url=gateway.api)
        assert [row[1].strip() for row in done.rows()] == ["HEALTHY"]
        results = (await vitalgate("agents", "history", "peer", "--json", url=gateway.api)).document["results"]
        assert len(results) >= 2


async def test_a_sick_agent_is_explained_and_the_exit_code_is_not_its_status(gateway: Running) -> None:
    with refusing_port() as port:
        await gateway.register(f"http://127.0.0.1:{port}/", "sick")
        done = await vitalgate("agents", "check", "sick", url=gateway.api)
    assert done.code == 0
    assert "UNREACHABLE" in done.out
    assert "connect_refused" in done.out
    assert "remedy: Start the agent" in done.out


async def test_an_agent_that_was_never_checked_has_no_history() -> None:
    async with running(health={"enable": True, "interval_seconds": 3600, "concurrency": 1}) as gateway:
        async with A2APeer() as peer:
            await gateway.register(peer.base, "peer")
            done = await vitalgate("agents", "history", "peer", url=gateway.api)
            assert done.code == 0
            assert done.err == "peer has not been checked yet\n" or done.rows()


# -- watch


async def test_watch_writes_a_line_for_each_event(gateway: Running) -> None:
    """Contract 1: GET /events."""
    process = await started("agents", "watch", "weather", "--count", "2", url=gateway.api)
    lines: list[str] = []

    async def read() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            lines.append(line.decode())

    reading = asyncio.create_task(read())
    async with asyncio.timeout(20):
        while not lines:
            await gateway.register("http://127.0.0.1:9/", "weather")
            await gateway.register("http://127.0.0.1:9/", "other")
            await asyncio.wait([reading], timeout=0.1)
        await gateway.client.delete("/agents/weather")
        await reading
        assert await process.wait() == 0
    assert " registry weather " in lines[0]
    assert all(line.split()[2] == "weather" for line in lines)  # its first check may have come between
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("status", "routing", "words"),
    [
        (("UNKNOWN", "HEALTHY"), ("unchecked", "in_service"), "UNKNOWN->HEALTHY unchecked->in_service"),
        (("UNKNOWN", "UNREACHABLE"), ("unchecked", "unchecked"), "UNKNOWN->UNREACHABLE"),
        (("HEALTHY", "HEALTHY"), ("in_service", "out_of_service"), "in_service->out_of_service"),
    ],
)
def test_watch_says_only_what_changed(status: tuple[str, str], routing: tuple[str, str], words: str) -> None:
    """Health contract 7: an event tells of a status, a routing, or both."""
    data = {
        "agent_id": "weather",
        "at": "2026-11-30T16:41:55Z",
        **dict(zip(("previous_status", "status"), status, strict=True)),
        **dict(zip(("previous_routing", "routing"), routing, strict=True)),
    }
    assert watch.described("health", data) == f"2026-11-30T16:41:55Z health weather {words}"


async def test_watch_as_json(gateway: Running) -> None:
    watching = asyncio.create_task(vitalgate("agents", "watch", "--json", "--count", "1", url=gateway.api))
    while not watching.done():
        await gateway.register("http://127.0.0.1:9/", "weather")
        await asyncio.wait([watching], timeout=0.1)
    done = watching.result()
    assert done.code == 0
    assert done.document["agent_id"] == "weather"
    assert done.document["event"] in ("registry", "health")


async def test_watch_for_a_time(gateway: Running) -> None:
    """The time that was asked for is no failure; a gateway that does not answer is one."""
    done = await vitalgate("agents", "watch", "--timeout", "3", url=gateway.api)
    assert (done.code, done.out, done.err) == (0, "", "")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert (await vitalgate("agents", "watch", "--timeout", "0.3", url=url)).code == 6


async def test_watch_goes_on_where_it_was_after_a_restart(tmp_path: Path) -> None:
    """The feed of a new process has other ids: what was missed is said, and nothing is shown twice."""
    async with GatewayProcess(tmp_path) as gateway:
        port = int(gateway.api.rpartition(":")[2])
        process = await started("agents", "watch", "--json", url=gateway.api)
        assert process.stdout is not None
        assert process.stderr is not None
        seen = asyncio.create_task(process.stdout.readline())
        while not seen.done():
            await gateway.register({"agent_id": "one", "name": "One", "url": "http://127.0.0.1:9/"})
            await asyncio.wait([seen], timeout=0.1)
        assert json.loads(seen.result())["agent_id"] == "one"
        await gateway.kill()
        assert b"trying again" in await asyncio.wait_for(process.stderr.readline(), 10)
        gateway.settings["server"]["port"] = port
        await gateway.http.aclose()
        await gateway.start()
        told = [await asyncio.wait_for(process.stderr.readline(), 20) for _ in range(2)]
        assert b"watching again" in told[0]
        assert b"events were lost" in told[1]
        await gateway.register({"agent_id": "two", "name": "Two", "url": "http://127.0.0.1:9/"})
        while (line := json.loads(await asyncio.wait_for(process.stdout.readline(), 10)))["agent_id"] == "one":
            pass
        assert line["agent_id"] == "two"
        process.send_signal(2)
        assert (await ended(process)).code == 130


async def test_watch_that_cannot_begin(gateway: Running) -> None:
    """The first connection must succeed: nobody waits for a gateway that is not there, or that refuses."""
    with refusing_port() as port:
        done = await vitalgate("agents", "watch", url=f"http://127.0.0.1:{port}")
    assert (done.code, done.out) == (5, "")
    auth = {"enable": True, "secret_env": "JWT_SECRET"}
    async with running(environ={"JWT_SECRET": issuer.SECRET}, auth=auth) as guarded:
        done = await vitalgate("agents", "watch", url=guarded.api)
    assert (done.code, done.out) == (4, "")


async def test_a_silent_feed_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway behind a dead connection says nothing, not even comments: another connection is made."""
    monkeypatch.setattr(watch, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(watch, "FIRST_PAUSE", 0.05)
    places: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        places.append("".join(re.findall(r"(?i)last-event-id: (\S+)", head.decode())))
        event = f'id: m-{len(places)}\nevent: registry\ndata: {{"agent_id":"a{len(places)}"}}\n\n'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + event.encode())
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    done = await vitalgate("agents", "watch", "--json", "--count", "3", url=url)
    server.close()
    assert [one["agent_id"] for one in done.documents] == ["a1", "a2", "a3"]
    assert places == ["", "m-1", "m-2"]
    assert done.err.count("the feed is silent; trying again") == 2
    assert "events were lost" not in done.err


# -- reload and nodes


async def test_reload_says_what_changed_and_what_needs_a_restart(tmp_path: Path) -> None:
    """Contract 8."""
    async with GatewayProcess(tmp_path) as gateway:
        done = await vitalgate("reload", url=gateway.api)
        assert (done.code, done.out) == (0, "nothing has changed\n")
        gateway.file.write_text(gateway.file.read_text() + "log: {calls: false}\nlimits: {streams: 5}\n")
        done = await vitalgate("reload", url=gateway.api)
        assert (done.code, done.out) == (0, "changed: log.calls\nneeds a restart: limits.streams\n")
        done = await vitalgate("reload", "--json", url=gateway.api)
        assert done.document == {"changed": [], "unchanged_until_restart": ["limits.streams"]}
        gateway.file.write_text("log: {calls: maybe, level: loud}\n")
        done = await vitalgate("reload", url=gateway.api)
        assert (done.code, done.out) == (1, "")
        assert [line.split(": ")[2] for line in done.err.splitlines()[1:]] == ["log.level", "log.calls"]


async def test_nodes(gateway: Running) -> None:
    """Contract 1: a gateway by itself is a cluster of one."""
    done = await vitalgate("nodes", "--json", url=gateway.api)
    assert done.document == (await gateway.client.get("/nodes")).json()
    [node] = done.document["nodes"]
    done = await vitalgate("nodes", url=gateway.api)
    assert done.code == 0
    [row] = [line.split() for line in done.out.splitlines()[1:]]
    assert row[:4] == [node["id"], node["host"], str(node["pid"]), node["version"]]
    assert row[5:8] == ["yes", "yes", node["address"]]
    assert "  THIS ONE  " in done.out.splitlines()[0]  # as the console calls it
    assert "agents=0" in row


# -- how it ends


async def test_exit_codes(gateway: Running, tmp_path: Path) -> None:
    """0 ok, 1 error, 2 usage, 3 not found, 4 authentication, 5 connection, 6 timeout."""
    api = gateway.api
    with refusing_port() as port:
        nowhere = f"http://127.0.0.1:{port}"
        refused = await vitalgate("agents", "list", "--url", nowhere)
    assert (refused.code, refused.out) == (5, "")
    assert refused.err.splitlines()[0] == f"vitalgate: {nowhere} cannot be reached: connection refused"
    for command in ("show", "health", "check", "history", "deregister"):
        done = await vitalgate("agents", command, "nobody", url=api)
        assert (done.code, done.err.splitlines()[0]) == (3, "vitalgate: agent not found: nobody"), command
    for wrong in (
        ["agents", "show", "No/Body"],
        ["agents", "show"],
        ["agents", "list", "--limit", "0"],
        ["agents", "list", "--health", "FINE"],
        ["agents", "list", "--url", "gateway:9090"],
        ["agents", "list", "--url", "http://u:p@gateway/"],
        ["agents", "list", "--token", "two words"],
        ["agents", "list", "--token", "a", "--token-file", "b"],
        ["agents", "list", "--token-file", "/nowhere"],
        ["agents", "list", "--timeout", "0"],
        ["agents", "register", "/nowhere.json"],
        ["completion", "tcsh"],
        ["agents", "list", "--url", "https://127.0.0.1:9/", "--ca-file", "/dev/null"],
    ):
        done = await vitalgate(*wrong, url=api)
        assert (done.code, done.out) == (2, ""), (wrong, done)
        assert "two words" not in done.err


async def test_timeout() -> None:
    """A server that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = await vitalgate("agents", "list", "--timeout", "0.3", "--url", url)
    assert (done.code, done.err) == (6, f"vitalgate: {url}: not done within 0.3 s; --timeout allows more\n")


async def test_a_slow_name_server_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_arguments, **_options: answered.wait(20) and [])
    began = time.monotonic()
    done = await vitalgate("agents", "list", "--timeout", "0.3", "--url", "http://gateway.example")
    assert (done.code, time.monotonic() - began < 10) == (6, True)
    answered.set()


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n<a/>", 1),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}", 1),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n", 1),
        (b"SSH-2.0-OpenSSH\r\n", 5),
        (b"", 5),
    ],
)
async def test_what_is_no_gateway(answer: bytes, code: int) -> None:
    async with answering(answer) as url:
        done = await vitalgate("agents", "list", "--url", url)
    assert (done.code, done.out) == (code, ""), done
    assert done.err.startswith("vitalgate: ")


async def test_tokens(tmp_path: Path) -> None:
    """Contract 6.1: from an option, a file, a variable; never repeated."""
    good = issuer.token(issuer.SECRET, sub="ops")
    file = tmp_path / "token"
    file.write_text(good + "\n")
    auth = {"enable": True, "secret_env": "JWT_SECRET"}
    async with running(environ={"JWT_SECRET": issuer.SECRET}, auth=auth) as gateway:
        for options, variables in (
            (["--token", good], {}),
            (["--token-file", str(file)], {}),
            ([], {"VITALGATE_TOKEN": good}),
            ([], {"VITALGATE_TOKEN_FILE": str(file)}),
            (["--token", good], {"VITALGATE_TOKEN": "bad"}),
        ):
            done = await vitalgate("agents", "list", *options, url=gateway.api, **variables)
            assert done.code == 0, (options, variables, done)
        done = await vitalgate("agents", "list", url=gateway.api)
        assert (done.code, done.err.splitlines()[0]) == (4, "vitalgate: invalid token")
        assert "--token-file" in done.err
        bad = good[:-4] + "aaaa"
        done = await vitalgate("agents", "list", "--token", bad, url=gateway.api)
        assert done.code == 4
        assert bad not in done.err
        done = await vitalgate("reload", "--token", good, url=gateway.api)
        assert (done.code, "administer" in done.err) == (4, True)
        await gateway.client.post(
            "/agents/register",
            json={"agent_id": "weather", "name": "W", "url": "http://127.0.0.1:9/"},
            headers=issuer.bearer(issuer.token(issuer.SECRET, sub="owner")),
        )
        done = await vitalgate("agents", "deregister", "weather", "--token", good, url=gateway.api)
        assert done.code == 4
        assert "somebody else" in done.err


def test_tokens_are_in_no_repr() -> None:
    from gateway.operator.endpoint import read_endpoint

    endpoint = read_endpoint(None, "S3CRET", None, None, {})
    assert "S3CRET" not in repr(endpoint)
    assert endpoint.url == "http://127.0.0.1:9090"


async def test_a_gateway_below_a_path(gateway: Running) -> None:
    """Behind a proxy the base URL may have a path."""
    from gateway.operator.endpoint import read_endpoint

    assert read_endpoint("https://gw.example/a/b/", None, None, None, {}).url == "https://gw.example/a/b"


async def test_the_variables_are_no_settings(tmp_path: Path) -> None:
    """Contract 4: unknown VITALGATE_ names stop a start; these are known."""
    variables = {"VITALGATE_URL": "http://x/", "VITALGATE_TOKEN": "t", "VITALGATE_TOKEN_FILE": "f"}
    done = await vitalgate("config", "show", **variables, HOME=str(tmp_path))
    assert done.code == 0, done


async def test_a_reader_that_has_gone_is_no_traceback(gateway: Running) -> None:
    for number in range(40):
        await gateway.register("http://127.0.0.1:9/" + "x" * 1900, f"agent-{number}", description="x" * 2000)
    process = await started("agents", "list", "--json", url=gateway.api)
    assert process.stdout is not None
    process.stdout._transport.close()  # type: ignore[attr-defined]
    assert process.stderr is not None
    err = await process.stderr.read()
    assert (await process.wait(), err) == (141, b"")


def loaded(*arguments: str, url: str) -> set[str]:
    """The modules that a command has imported at its end."""
    program = (
        "import sys, gateway.cli\n"
        f"try: gateway.cli.main({list(arguments)!r})\n"
        "except SystemExit: pass\n"
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    environment = {**clean_environment(), "VITALGATE_URL": url}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    return set(done.stderr.split())


async def test_a_command_imports_what_it_needs(gateway: Running) -> None:
    """Whoever types a command waits for its imports."""
    heavy = {"litestar", "uvicorn", "pydantic", "redis", "sqlite3", "cryptography"}
    assert not heavy & await asyncio.to_thread(loaded, "agents", "list", url=gateway.api)
    heavy |= {"httpx", "asyncio", "msgspec"}
    assert not heavy & await asyncio.to_thread(loaded, "agents", "list", "--help", url=gateway.api)


# -- help and completion

COMMANDS = [
    ["agents"],
    *(
        ["agents", name]
        for name in ("list", "show", "watch", "register", "deregister", "health", "check", "history")
    ),
    ["send"],
    ["stream"],
    ["nodes"],
    ["reload"],
    ["completion"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
async def test_help(command: list[str]) -> None:
    done = await vitalgate(*command, "--help")
    assert done.code == 0
    assert "Examples:" in done.out
    if command != ["completion"]:
        assert "6 timeout" in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("shell", "word"), [("bash", "complete -o nosort"), ("zsh", "compdef"), ("fish", "complete ")]
)
async def test_completion_scripts(shell: str, word: str) -> None:
    done = await vitalgate("completion", shell)
    assert done.code == 0
    assert word in done.out
    assert "_VITALGATE_COMPLETE" in done.out


async def test_ids_of_agents_are_completed(gateway: Running) -> None:
    await gateway.register("http://127.0.0.1:9/", "weather")
    await gateway.register("http://127.0.0.1:9/", "writer")

    async def completed(words: str, number: int, url: str = gateway.api) -> list[str]:
        process = await started(
            url=url, _VITALGATE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(number)
        )
        done = await ended(process)
        assert (done.code, done.err) == (0, "")
        return [line.partition(",")[2] for line in done.out.split()]

    assert await completed("vitalgate agents show we", 3) == ["weather"]
    assert await completed("vitalgate send ", 2) == ["weather", "writer"]
    assert "agents" in await completed("vitalgate ag", 1)
    with refusing_port() as port:
        assert await completed("vitalgate send ", 2, f"http://127.0.0.1:{port}") == []
