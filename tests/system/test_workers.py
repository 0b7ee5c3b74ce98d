"""`vitalgate serve --workers N`: processes that share a port, over a real Valkey (contract 1, 4, 7, 8)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import certifi
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway import worker_process
from gateway.settings import Settings, load
from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.gateway import COMMAND, GatewayProcess
from tests.fakes.program import clean_environment
from tests.fakes.running import eventually
from tests.fakes.valkey import Valkey, free_port

CALL = b'{"jsonrpc":"2.0","id":7,"method":"message/send","params":{}}'


class Gateway(GatewayProcess):
    """Two workers over a Valkey of several tests."""

    def __init__(
        self,
        folder: Path,
        valkey: Valkey,
        prefix: str,
        *further: str,
        program: Any = (str(COMMAND),),
        **sections: Any,
    ) -> None:
        settings: dict[str, Mapping[str, Any]] = {
            "registry": {"url": valkey.url, "key_prefix": prefix},
            "metrics": {"port": free_port()},
            **sections,
        }
        super().__init__(folder, settings, options=["--workers", "2"], program=program)

    async def once(self, agent_id: str = "peer") -> httpx.Response:
        """A call over a connection of its own."""
        async with httpx.AsyncClient(base_url=self.api, timeout=20, trust_env=False) as http:
            return await http.post(f"/a2a/{agent_id}", content=CALL, headers={"content-type": "application/json"})

    async def samples(self) -> dict[str, dict[str, float]]:
        """The sum of each metric, by worker."""
        found: dict[str, dict[str, float]] = {}
        for family in text_string_to_metric_families(await self.scrape()):
            for sample in family.samples:
                values = found.setdefault(sample.name, {})
                worker = sample.labels["worker"]
                values[worker] = values.get(worker, 0) + sample.value
        return found

    async def logged(self, event: str, times: int = 1) -> list[dict[str, Any]]:
        """The log lines with that event, as soon as there are so many."""
        while len(found := self.events(event)) < times:
            await self.lines.reach(len(self.lines) + 1, 20)
        return found

    def workers(self) -> list[int]:
        """The process ids of the workers."""
        return children(self.pid)


def children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if entry.name.isdigit() and fields[1] == str(parent) and fields[0] != "Z":
            found.append(int(entry.name))
    return sorted(found)


def command(pid: int) -> str:
    """The command line of a process; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    except OSError:
        return ""


async def register(gateway: Gateway, agent: FaultAgent) -> None:
    await gateway.register({"agent_id": "peer", "name": "Peer", "url": agent.url})


async def test_both_workers_take_connections_and_one_scrape_shows_them(
    tmp_path: Path, shared_valkey: Valkey, prefix: str
) -> None:
    """Contract 7: one head per metric, each sample with its worker. An agent registered at one is known to all."""
    async with FaultAgent() as agent, Gateway(tmp_path, shared_valkey, prefix) as gateway:
        assert gateway.events("listening")[0]["workers"] == 2
        assert len(gateway.events("listening")) == 1
        await register(gateway, agent)
        for _ in range(40):
            assert (await gateway.once()).status_code == 200
        text = await gateway.scrape()
        samples = await gateway.samples()
        calls = samples["vitalgate_calls_total"]
        assert sum(calls.values()) == 40
        assert min(calls["0"], calls["1"]) > 0
        assert samples["vitalgate_worker_up"] == {"0": 1, "1": 1}
        assert samples["vitalgate_registered_agents"] == {"0": 1, "1": 1}
        heads = Counter(re.findall(r"^# (?:HELP|TYPE) \S+", text, re.MULTILINE))
        assert set(heads.values()) == {1}
        async with httpx.AsyncClient(trust_env=False) as http:
            assert (await http.get(f"{gateway.api}/metrics")).status_code == 404
            assert (await http.post(gateway.metrics)).status_code == 405
            assert (await http.get(f"{gateway.metrics}/x")).status_code == 404
        ready = [await gateway.http.get("/ready") for _ in range(4)]
        assert {answer.status_code for answer in ready} == {200}
        pids = gateway.workers()
        assert len(pids) == 2
        assert all(str(shared_valkey.port) not in command(pid) for pid in pids)  # its URL may hold a password
        assert await gateway.stop(signal.SIGINT) == 0
        assert not any(map(command, pids))
    logged = gateway.records()
    assert {line["worker"] for line in logged if line["event"] == "call"} == {0, 1}
    assert [line["event"] for line in logged if "worker" not in line] == ["listening", "stopped"]


async def test_a_worker_that_is_killed_is_started_again_while_calls_go_on(
    tmp_path: Path, shared_valkey: Valkey, prefix: str
) -> None:
    """Pitfall 177: and its numbers do not stay behind."""
    async with FaultAgent() as agent, Gateway(tmp_path, shared_valkey, prefix) as gateway:
        await register(gateway, agent)
        victim = gateway.workers()[0]
        answered, broken, stop = list[int](), list[Exception](), asyncio.Event()

        async def load() -> None:
            while not stop.is_set():
                try:
                    answered.append((await gateway.once()).status_code)
                except httpx.TransportError as error:
                    broken.append(error)

        loading = [asyncio.create_task(load()) for _ in range(4)]
        await asyncio.sleep(0.3)
        os.kill(victim, signal.SIGKILL)
        again = (await gateway.logged("worker serves again"))[0]
        before = len(answered)
        await eventually(lambda: len(answered) >= before + 40, 20)
        stop.set()
        await asyncio.gather(*loading)
        assert set(answered) == {200}
        assert len(broken) <= 8  # what was under way in the killed process, and queued for it
        assert len(gateway.workers()) == 2
        assert victim not in gateway.workers()
        assert again["pid"] in gateway.workers()
        reason = (await gateway.logged("a worker has ended, and is started again"))[0]["reason"]
        assert reason == f"worker {again['worker']} (pid {victim}) was ended by SIGKILL"
        samples = await gateway.samples()
        assert samples["vitalgate_worker_restarts_total"][str(again["worker"])] == 1
        assert samples["vitalgate_worker_up"] == {"0": 1, "1": 1}
        assert len(gateway.events("listening")) == 1


async def test_sigterm_lets_the_call_in_flight_finish(tmp_path: Path, shared_valkey: Valkey, prefix: str) -> None:
    """Contract 8: it reaches every worker once, and the parent ends last, with 0."""
    finish = asyncio.Event()
    sections = {"server": {"host": "127.0.0.1", "port": 0, "drain_seconds": 20}}
    async with FaultAgent() as agent, Gateway(tmp_path, shared_valkey, prefix, **sections) as gateway:
        await register(gateway, agent)
        agent.next(reply.after(finish, reply.result("late")))
        call = asyncio.create_task(gateway.once())
        await agent.received(1)
        ending = asyncio.create_task(gateway.stop())
        await eventually(lambda: len(gateway.workers()) == 1, 10)  # the other one has nothing to wait for
        assert not call.done()
        assert (await gateway.samples())["vitalgate_worker_up"] in ({"0": 0, "1": 1}, {"0": 1, "1": 0})
        finish.set()
        assert (await call).json()["result"] == "late"
        assert await ending == 0


async def test_a_second_signal_ends_all_at_once(tmp_path: Path, shared_valkey: Valkey, prefix: str) -> None:
    """Contract 8: 128 + its number, and nobody is left behind."""
    sections = {"server": {"host": "127.0.0.1", "port": 0, "drain_seconds": 60}}
    async with FaultAgent() as agent, Gateway(tmp_path, shared_valkey, prefix, **sections) as gateway:
        await register(gateway, agent)
        agent.next(reply.hang())
        call = asyncio.create_task(gateway.once())
        await agent.received(1)
        pids = gateway.workers()
        os.kill(gateway.pid, signal.SIGTERM)
        await eventually(lambda: len(gateway.workers()) == 1, 10)
        assert await gateway.stop(signal.SIGINT) == 128 + signal.SIGINT
        await eventually(lambda: not any(map(command, pids)), 1)
        with pytest.raises(httpx.TransportError):
            await call


async def test_a_worker_that_hangs_is_left_out_of_the_scrape_and_killed_at_the_end(
    tmp_path: Path, shared_valkey: Valkey, prefix: str
) -> None:
    sections = {"server": {"host": "127.0.0.1", "port": 0, "drain_seconds": 0}}
    async with Gateway(tmp_path, shared_valkey, prefix, **sections) as gateway:
        hung = gateway.workers()[0]
        os.kill(hung, signal.SIGSTOP)
        began = time.monotonic()
        up = (await gateway.samples())["vitalgate_worker_up"]
        assert time.monotonic() - began < 6
        assert sorted(up.values()) == [0, 1]
        os.kill(hung, signal.SIGCONT)
        async with asyncio.timeout(10):
            while (await gateway.samples())["vitalgate_worker_up"] != {"0": 1, "1": 1}:  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.05)
        os.kill(hung, signal.SIGSTOP)
        assert await gateway.stop() == 0
        await eventually(lambda: not command(hung), 1)


@pytest.mark.long
async def test_a_worker_that_hangs_for_long_is_killed_and_started_again(
    tmp_path: Path, shared_valkey: Valkey, prefix: str
) -> None:
    """The kernel gives a hung worker its part of the connections, and they would wait for ever."""
    async with Gateway(tmp_path, shared_valkey, prefix) as gateway:
        hung = gateway.workers()[0]
        os.kill(hung, signal.SIGSTOP)
        async with asyncio.timeout(worker_process.ALIVE_SECONDS * (worker_process.ASKED_BEFORE_KILLED + 2)):
            while not gateway.events("worker serves again"):
                await gateway.lines.reach(len(gateway.lines) + 1, 60)
        assert [line["pid"] for line in gateway.events("a worker hangs, and is killed")] == [hung]
        for _ in range(20):
            async with httpx.AsyncClient(base_url=gateway.api, trust_env=False) as http:
                assert (await http.get("/live")).status_code == 200


async def test_workers_end_with_their_parent(tmp_path: Path, shared_valkey: Valkey, prefix: str) -> None:
    """SIGKILL of the parent: they finish as with SIGTERM."""
    async with Gateway(tmp_path, shared_valkey, prefix) as gateway:
        pids = gateway.workers()
        os.kill(gateway.pid, signal.SIGKILL)
        await eventually(lambda: not any(map(command, pids)), 15)
        await gateway.kill()


async def test_settings_are_read_again_by_all(tmp_path: Path, shared_valkey: Valkey, prefix: str) -> None:
    """Contract 8: SIGHUP and POST /admin/reload reach every worker; one that is started later begins with them."""
    async with Gateway(tmp_path, shared_valkey, prefix) as gateway:
        os.kill(gateway.pid, signal.SIGHUP)
        lines = await gateway.logged("settings read again", 2)
        assert {line["worker"] for line in lines} == {0, 1}
        assert all(line["unchanged_until_restart"] == [] for line in lines)  # not even the port that was chosen
        text = gateway.file.read_text()
        gateway.file.write_text(text + "log: {calls: false}\n")
        answer = await gateway.http.post("/admin/reload")
        assert answer.json()["changed"] == ["log.calls"]
        lines = (await gateway.logged("settings read again", 4))[2:]
        assert {line["worker"] for line in lines} == {0, 1}
        gateway.file.write_text(text)
        os.kill(gateway.workers()[0], signal.SIGKILL)
        again = (await gateway.logged("worker serves again"))[0]["worker"]
        async with FaultAgent() as agent:
            await register(gateway, agent)
            for _ in range(30):
                await gateway.once()
        assert (await gateway.samples())["vitalgate_calls_total"][str(again)] > 0
        await gateway.stop()
    assert gateway.events("call") == []


async def test_a_reload_reaches_all_where_the_hangup_signal_is_ignored(
    tmp_path: Path, shared_valkey: Valkey, prefix: str
) -> None:
    """Contract 8: under nohup, POST /admin/reload must not reach one worker alone."""
    program = ["nohup", str(COMMAND)]
    async with Gateway(tmp_path, shared_valkey, prefix, program=program) as gateway:
        gateway.file.write_text(gateway.file.read_text() + "log: {calls: false}\n")
        assert (await gateway.http.post("/admin/reload")).json()["changed"] == ["log.calls"]
        lines = await gateway.logged("settings read again", 2)
        assert {line["worker"] for line in lines} == {0, 1}


async def test_where_ports_cannot_be_shared_the_listening_socket_is(
    tmp_path: Path, shared_valkey: Valkey, prefix: str
) -> None:
    """Without SO_REUSEPORT, the parent listens and each worker takes connections from its socket."""
    script = (
        "import sys; from gateway import server; server.SHARES_PORTS = False\n"
        "from gateway.cli import main; main(sys.argv[1:])"
    )
    program = (sys.executable, "-c", script)
    async with FaultAgent() as agent, Gateway(tmp_path, shared_valkey, prefix, program=program) as gateway:
        await register(gateway, agent)
        answers = await asyncio.gather(*(gateway.once() for _ in range(40)))
        assert {answer.status_code for answer in answers} == {200}
        os.kill(gateway.workers()[0], signal.SIGKILL)
        await gateway.logged("worker serves again")
        assert (await gateway.once()).status_code == 200
        assert await gateway.stop() == 0


async def test_a_worker_that_keeps_failing_is_tried_less_and_less_often(
    tmp_path: Path, shared_valkey: Valkey, prefix: str
) -> None:
    """A crash loop later on: the log says why, the others serve, and it comes back when the cause is gone."""
    bundle = tmp_path / "ca.pem"
    shutil.copy(certifi.where(), bundle)
    sections = {"upstream": {"ca_file": str(bundle)}}
    async with FaultAgent() as agent, Gateway(tmp_path, shared_valkey, prefix, **sections) as gateway:
        await register(gateway, agent)
        bundle.unlink()
        os.kill(gateway.workers()[0], signal.SIGKILL)
        failures = await gateway.logged("a worker has ended, and is started again", 3)
        assert [line["reason"] for line in failures[1:3]] == ["upstream.ca_file: no such file or directory"] * 2
        assert (await gateway.once()).status_code == 200
        samples = await gateway.samples()
        assert sorted(samples["vitalgate_worker_up"].values()) == [0, 1]
        shutil.copy(certifi.where(), bundle)
        await gateway.logged("worker serves again")
        assert len(gateway.workers()) == 2


# -- starts that fail


def started(folder: Path, valkey: Valkey, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command, run to its end."""
    environment = {
        **clean_environment(),
        "HOME": str(folder),
        "VITALGATE_REGISTRY__URL": valkey.url,
        "VITALGATE_METRICS__PORT": str(free_port()),
        "VITALGATE_SERVER__PORT": "0",
        **variables,
    }
    command = [COMMAND, "serve", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=50, check=False)


async def test_a_port_that_a_second_gateway_holds_is_in_use(
    tmp_path: Path, shared_valkey: Valkey, prefix: str
) -> None:
    """The workers' way of sharing the port lets nobody else in: neither one process nor another's workers."""
    async with Gateway(tmp_path, shared_valkey, prefix) as gateway:
        port = gateway.api.rpartition(":")[2]
        for workers in ("1", "2"):
            options = ("--workers", workers, "--port", port)
            result = await asyncio.to_thread(started, tmp_path, shared_valkey, *options)
            said = f"vitalgate: cannot listen on 127.0.0.1:{port}: address already in use"
            remedy = " (--port or server.port chooses another)\n"
            assert (result.returncode, result.stderr) == (3, said + remedy)
        assert (await gateway.samples())["vitalgate_worker_up"] == {"0": 1, "1": 1}


@pytest.mark.parametrize("shares", [False, True])
def test_a_port_that_another_program_holds_is_in_use(tmp_path: Path, shared_valkey: Valkey, shares: bool) -> None:
    """Even if that program would share it."""
    with socket.socket() as taken:
        if shares:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = started(tmp_path, shared_valkey, "--workers", "2", "--port", str(port))
        metrics = started(tmp_path, shared_valkey, "--workers", "2", VITALGATE_METRICS__PORT=str(port))
    said = f"vitalgate: cannot listen on 127.0.0.1:{port}: address already in use"
    remedy = "(for the metrics; VITALGATE_METRICS__PORT or metrics.port chooses another)"
    assert (result.returncode, result.stderr) == (3, f"{said} (--port or server.port chooses another)\n")
    assert (metrics.returncode, metrics.stderr) == (3, f"{said} {remedy}\n")


def test_workers_that_cannot_start_end_the_start_with_their_error(tmp_path: Path, shared_valkey: Valkey) -> None:
    """Contract 8: one clear line, exit code 3, nobody left behind and nothing tried again."""
    missing = str(tmp_path / "nothing.pem")
    result = started(tmp_path, shared_valkey, "--workers", "2", VITALGATE_UPSTREAM__CA_FILE=missing)
    lines = [line for line in result.stderr.splitlines() if not line.startswith("{")]
    assert result.returncode == 3
    assert len(lines) == 1
    assert lines[0].startswith("vitalgate: ")
    assert "upstream.ca_file: no such file" in lines[0]
    assert "listening" not in result.stderr
    assert "started again" not in result.stderr


def test_workers_that_die_without_a_word_end_the_start(tmp_path: Path, shared_valkey: Valkey) -> None:
    """A crash loop at the start is none: the first crash ends it."""
    broken = tmp_path / "broken" / "uvloop"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text(
        "import os, sys\nfrom asyncio import new_event_loop\nif 'gateway.worker' in sys.orig_argv: os._exit(70)\n"
    )
    result = started(tmp_path, shared_valkey, "--workers", "2", PYTHONPATH=str(broken.parent))
    assert result.returncode == 3
    assert re.search(
        r"^vitalgate: worker [01] \(pid \d+\) was ended by itself with exit code 70$", result.stderr, re.M
    )


def test_the_demo_agent_registers_once(tmp_path: Path, shared_valkey: Valkey, prefix: str) -> None:
    """`--demo` beside workers: one agent, and the printed command works."""
    environment = {
        **clean_environment(),
        "HOME": str(tmp_path),
        "VITALGATE_REGISTRY__URL": shared_valkey.url,
        "VITALGATE_REGISTRY__KEY_PREFIX": prefix,
        "VITALGATE_METRICS__PORT": str(free_port()),
    }
    command = [str(COMMAND), "serve", "--workers", "2", "--demo", "--port", str(free_port())]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if line.startswith("curl "))
        answer = subprocess.run(["sh", "-c", line], capture_output=True, timeout=20, check=True).stdout
        assert json.loads(answer)["result"]["status"]["state"] == "completed"
        process.terminate()
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0
    registered = [text for text in errors.splitlines() if '"action":"register"' in text]
    assert len(registered) == 1


def test_settings_reach_the_workers_as_they_are(tmp_path: Path) -> None:
    """What a worker makes of the handover is what its parent has read."""
    file = tmp_path / "gateway.yaml"
    file.write_text(
        "a2a: {trusted_origins: ['https://a.example'], forward_headers: [x-a], agent_ttl_seconds: 12.5}\n"
        "server: {trusted_proxies: [10.0.0.0/8, '::1'], allowed_hosts: [a.example], public_url: 'https://gw.example'}\n"
        "upstream: {allow_hosts: ['*.x.example', 10.0.0.0/8], credentials: {ag: {bearer_env: TOKEN}}}\n"
        "auth:\n  {enable: true, secret_env: S, algorithms: [HS256], audience: [a, b],\n"
        "   policy: [{principals: ['*'], register: ['a-*'], call: ['*'], read: true}]}\n"
        "registry: {url: 'redis://user:secret@h:1/0'}\n"
    )
    settings = load(str(file), {}).settings
    assert Settings(**json.loads(settings.model_dump_json(by_alias=True))) == settings
