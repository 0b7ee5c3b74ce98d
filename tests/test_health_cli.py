"""The commands as processes: exit codes, streams, start-up time, many targets (health contract 1, 2 and 6)."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest

from healthcheck.cli import check, doctor, handoff, ping
from healthcheck.command import jittered
from healthcheck.report import RENDERERS
from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.certs import Authority
from tests.fakes.health_peer import A2APeer, AgentPeer
from tests.fakes.ports import refusing_port

ROOT = Path(__file__).parent.parent
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "health-result.schema.json").read_text())
VITALGATE = [sys.executable, "-W", "error", "-m", "gateway.cli"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "TERM": "xterm"}


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


async def vitalgate(*arguments: str, environ: Mapping[str, str] | None = None, stdin: str = "") -> Done:
    process = await asyncio.create_subprocess_exec(
        *VITALGATE,
        *arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**ENVIRONMENT, **(environ or {})},
    )
    out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 30)
    assert process.returncode is not None
    return Done(process.returncode, out.decode(), err.decode())


def one_line(done: Done) -> str:
    """The tool itself failed: exit code 6, one line on stderr, nothing on stdout."""
    assert (done.code, done.out) == (6, "")
    assert done.err.startswith("vitalgate: ")
    assert done.err.count("\n") == 1
    assert done.err.rstrip("\n").isprintable()
    return done.err.removeprefix("vitalgate: ").rstrip("\n")


async def test_exit_code_is_the_worst_root_target(tmp_path: Path) -> None:
    """Health contract 1: 0 to 5, by severity."""
    async with A2APeer() as good, A2APeer() as ill, A2APeer() as closed:
        ill.rpc["GetTask"] = reply.error(-32603)
        closed.rpc["GetTask"] = reply.body(b"", status=401)
        with refusing_port() as port:
            down = f"http://127.0.0.1:{port}/"
            cases: list[tuple[list[str], int]] = [
                ([good.base], 0),
                ([good.base, "--latency-ms", "0"], 1),
                ([ill.base], 2),
                ([down], 3),
                ([closed.base], 4),
                ([good.base, "--bearer-env", "UNSET_VARIABLE"], 4),
            ]
            for arguments, code in cases:
                done = await vitalgate("ping", "a2a", *arguments, "--format", "json")
                document = json.loads(done.out)
                jsonschema.validate(document, SCHEMA)
                assert (done.code, done.err) == (code, ""), arguments
            file = tmp_path / "all.yaml"
            targets = [{"type": "a2a", "endpoint": one} for one in (good.base, down, ill.base)]
            file.write_text(json.dumps({"version": "v1", "targets": targets}))
            done = await vitalgate("check", str(file), "--format", "json")
            results = json.loads(done.out)["results"]
            assert [one["status"] for one in results] == ["HEALTHY", "UNREACHABLE", "UNHEALTHY"]
            assert done.code == 3
            targets.append({"type": "a2a", "endpoint": good.base, "checks": []})  # type: ignore[dict-item]
            done = await vitalgate("check", "-", stdin=json.dumps({"version": "v1", "targets": targets}))
            assert done.code == 5


BAD_INVOCATIONS: list[tuple[list[str], str]] = [
    (["ping"], "Missing argument 'TYPE'"),
    (["ping", "a2a"], "Missing argument 'ENDPOINT'"),
    (["ping", "a2a", "http://h/", "extra"], "unexpected extra argument"),
    (["ping", "a2a", "http://h/", "--colour"], "No such option"),
    (["ping", "a2a", "http://h/", "--format", "xml"], "--format"),
    (["ping", "a2a", "http://h/", "--timeout-ms", "0"], "--timeout-ms"),
    (["ping", "a2a", "http://h/", "--timeout-ms", "soon"], "--timeout-ms"),
    (["ping", "a2a", "http://h/", "--check", "weather"], "checks[0]: expected one of"),
    (["ping", "a2a", "http://h/", "--check", "functional"], "--check functional sends a real message: declare"),
    (["ping", "http", "http://h/", "--require-skill", "x"], "--require-skill is for type a2a"),
    (["ping", "agent", "http://h/", "--card-url", "http://h/"], "--card-url is for type a2a"),
    (["doctor", "api", "http://h/", "--require-capability", "x"], "is for type a2a, agent, multi-agent"),
    (["ping", "a2a", ""], "endpoint: expected text"),
    (["ping", "a2a", "http://h/", "--bearer-env", "s3cr3t value"], "auth.bearer_env: expected the name"),
    (["ping", "a2a", "http://h/", "--ca-file", "/no/such"], "/no/such: no certificates"),
    (["doctor"], "Missing argument"),
    (["doctor", "a2a", "http://h/", "x"], "expected TYPE ENDPOINT, or one FILE"),
    (["doctor", "file.yaml", "--retries", "1"], "not to a FILE"),
    (["check"], "Missing argument 'FILE'"),
    (["check", "/no/such/file"], "/no/such/file: No such file or directory"),
    (["check", "/"], "/: Is a directory"),
    (["check", "bad\x1b[31m\nname"], r"bad\x1b[31m\nname: No such file"),
    (["handoff"], "Missing option"),
    (["handoff", "--card", "x", "--skill", "s", "--origin", "nonsense"], "--origin takes an origin"),
    (["handoff", "--card", "x", "--skill", "s", "--origin", "https://h/path"], "without a path"),
    (["handoff", "--card", "x", "--skill", "s", "--credential", "TOKEN"], "--credential is ORIGIN=ENV"),
    (["handoff", "--card", "/no/such", "--skill", "s"], "/no/such: No such file"),
    (["handoff", "--card", "x", "--skill", "s", "--input-mode", "text"], "--input-mode is no media type"),
]


@pytest.mark.parametrize(("arguments", "wanted"), BAD_INVOCATIONS, ids=range(len(BAD_INVOCATIONS)))
async def test_bad_invocations_exit_6(arguments: list[str], wanted: str) -> None:
    """Health contract 1: one line on stderr, nothing on stdout; no value of the user's in it."""
    line = one_line(await vitalgate(*arguments))
    assert wanted in line
    assert "s3cr3t" not in line


async def test_invalid_files_exit_6() -> None:
    """Health contract 5: the path of every mistake, in one line."""
    folder = ROOT / "tests" / "health_configs" / "invalid"
    for name in ("many-mistakes", "bearer-literal", "nested-lists", "not-yaml"):
        file = folder / f"{name}.yaml"
        for command in ("check", "doctor"):
            line = one_line(await vitalgate(command, str(file)))
            assert line == f"{file}: {file.with_suffix('.txt').read_text().strip()}"
    assert "not UTF-8" in one_line(await _latin(folder))


async def _latin(folder: Path) -> Done:
    process = await asyncio.create_subprocess_exec(
        *VITALGATE, "check", "-", stdin=-1, stdout=-1, stderr=-1, env=ENVIRONMENT
    )
    out, err = await process.communicate(b"version: v1 # \xff")
    assert process.returncode is not None
    return Done(process.returncode, out.decode(), err.decode())


async def test_a_closed_standard_input_exits_6() -> None:
    """Health contract 1: one line that says who must act, no fault of ours."""
    for arguments in (("check", "-"), ("handoff", "--card", "-", "--skill", "s")):
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", '"$@" <&-', "bash", *VITALGATE, *arguments), stdout=-1, stderr=-1, env=ENVIRONMENT
        )
        out, err = await process.communicate()
        assert (process.returncode, out, err) == (6, b"", b"vitalgate: standard input is closed\n")


async def test_what_programs_read_is_utf_8() -> None:
    """A name beyond ASCII must not make XML or metrics invalid where the terminal is not UTF-8."""
    target = {"type": "http", "endpoint": "http://h/", "name": "caf\u00e9", "checks": []}
    file = json.dumps({"version": "v1", "targets": [target]})
    for encoding in ("ascii", "latin-1"):
        for form in ("junit", "prometheus"):
            done = await vitalgate(
                "check", "-", "--format", form, stdin=file, environ={"PYTHONIOENCODING": encoding}
            )
            assert (done.code, done.err) == (5, "")
            assert "caf\u00e9" in done.out


async def test_output_that_cannot_be_written_exits_6() -> None:
    """Health contract 1: a full disk, a closed descriptor, a reader that has gone."""
    async with A2APeer() as peer:
        for redirect, why in (
            (">/dev/full", "No space left"),
            (">&-", "closed"),
            ("| true; exit ${PIPESTATUS[0]}", ""),
        ):
            command = f'"$@" {redirect}'
            process = await asyncio.create_subprocess_exec(
                *("bash", "-c", command, "bash", *VITALGATE, "ping", "a2a", peer.base),
                stderr=subprocess.PIPE,
                env=ENVIRONMENT,
            )
            _, err = await process.communicate()
            text = err.decode()
            if why:
                assert process.returncode == 6
                assert text.count("\n") == 1
                assert why in text
            else:
                assert process.returncode in {0, 6}
                assert "Traceback" not in text
                assert "Exception ignored" not in text


async def test_help_is_quick() -> None:
    """Required: `vitalgate ping --help` in 0.35 s or less (the best of five on a busy machine)."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway.cli", "ping", "--help"), stdout=subprocess.PIPE, env=ENVIRONMENT
        )
        out, _ = await process.communicate()
        times.append(time.perf_counter() - began)
    assert b"TYPE ENDPOINT" in out
    assert min(times) <= 0.35, times


@pytest.mark.parametrize("command", [ping, doctor, check, handoff], ids=lambda command: str(command.name))
async def test_examples_in_the_help_stand_as_they_are_typed(command: click.Command) -> None:
    """A line of an example that is broken or joined on 80 columns cannot be copied."""
    done = await vitalgate(str(command.name), "--help", environ={"COLUMNS": "80"})
    shown = [line.removeprefix(" ").rstrip() for line in done.out.splitlines()]
    _, _, examples = inspect.cleandoc(command.help or "").partition("Examples:\n")
    assert examples
    for line in examples.splitlines():
        assert line in shown


def test_the_formats_are_those_of_the_renderers() -> None:
    """Required: `--format` works everywhere."""
    for command in (ping, doctor, check):
        [option] = [one for one in command.params if one.name == "form"]
        assert isinstance(option.type, click.Choice)
        assert set(option.type.choices) == {"terminal", *RENDERERS}


def test_what_a_command_loads() -> None:
    """Required: no gateway, no store, no web framework; `--help` loads nothing heavy."""
    heavy = "httpx httpcore yaml ssl certifi asyncio"
    foreign = "litestar starlette uvicorn redis sqlite3 prometheus_client pydantic registry gateway.app msgspec"
    script = (
        "import sys, healthcheck.cli\n"
        f"assert not set('{heavy} {foreign}'.split()) & set(sys.modules), sorted(sys.modules)\n"
        "import healthcheck.command, healthcheck.handoff_command\n"
        f"found = set('{foreign}'.split()) & set(sys.modules)\n"
        "assert not found, found\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


async def test_two_hundred_targets(tmp_path: Path) -> None:
    """Required: 200 targets in one file against local agents in under 5 s, at most 16 probes at once."""
    script = ROOT / "tests" / "fakes" / "health_fleet.py"
    fleet = await asyncio.create_subprocess_exec(
        *(sys.executable, str(script)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT
    )
    assert fleet.stdout is not None
    base = (await asyncio.wait_for(fleet.stdout.readline(), 30)).decode().split()[1]
    targets = [
        {
            "id": f"agent-{at}",
            "type": "a2a",
            "endpoint": f"{base}a{at}/rpc",
            "a2a": {"card_url": f"{base}a{at}/card"},
        }
        for at in range(200)
    ]
    file = tmp_path / "fleet.yaml"
    file.write_text(json.dumps({"version": "v1", "targets": targets}))
    began = time.perf_counter()
    done = await vitalgate("check", str(file), "--format", "json")
    took = time.perf_counter() - began
    out, _ = await asyncio.wait_for(fleet.communicate(b""), 10)
    most, requests = map(int, out.decode().split())
    results = json.loads(done.out)["results"]
    assert {one["status"] for one in results} == {"HEALTHY"}, done.out[:2000]
    assert [one["target"]["id"] for one in results] == [f"agent-{at}" for at in range(200)]
    assert (done.code, requests) == (0, 400)
    assert most <= 16
    assert took < 5


async def test_progress_after_a_second(tmp_path: Path) -> None:
    """Required: a progress line on stderr for runs over a second; results alone on stdout."""
    async with FaultAgent() as agent:
        agent.always(reply.late(1.3, reply.body(b"ok")))
        done = await vitalgate("ping", "http", agent.url, "--format", "json")
        assert (json.loads(done.out)["status"], done.err) == ("HEALTHY", "checking: 0 of 1 targets done\n")


async def test_watch_runs_again_with_jitter(tmp_path: Path) -> None:
    """Required: `check --watch` re-runs with jitter; the exit code is the last run's."""
    async with FaultAgent() as agent:
        agent.next(reply.body(b"", status=500))
        agent.always(reply.body(b"ok"))
        file = tmp_path / "one.yaml"
        file.write_text(json.dumps({"version": "v1", "targets": [{"type": "http", "endpoint": agent.url}]}))
        done = await vitalgate(
            "check", str(file), "--watch", "--interval", "0.2", "--count", "4", "--format", "json"
        )
        assert (done.code, done.err) == (0, "")
        documents, rest = [], done.out
        while rest.strip():
            document, end = json.JSONDecoder().raw_decode(rest.lstrip())
            documents.append(document["status"])
            rest = rest.lstrip()[end:]
        assert documents == ["UNHEALTHY", "HEALTHY", "HEALTHY", "HEALTHY"]
        times = [request.at for request in agent.requests]
        assert all(later - earlier > 0.15 for earlier, later in itertools.pairwise(times))
    pauses = [jittered(10.0) for _ in range(1000)]
    assert 8 <= min(pauses) < 8.5
    assert 11.5 < max(pauses) <= 12


async def test_the_file_says_how_many_probes_run_at_once() -> None:
    """Health contract 5: `concurrency`."""
    async with FaultAgent() as agent:
        agent.always(reply.late(0.1, reply.body(b"ok")))
        targets = [{"type": "http", "endpoint": agent.url} for _ in range(3)]
        file = json.dumps({"version": "v1", "targets": targets, "concurrency": 1})
        assert (await vitalgate("check", "-", stdin=file)).code == 0
        times = [request.at for request in agent.requests]
        assert all(later - earlier > 0.09 for earlier, later in itertools.pairwise(times))


async def test_on_a_terminal(tmp_path: Path) -> None:
    """Required: colours, a tree and a redrawn screen on a terminal; none of them in a pipe."""
    async with AgentPeer() as root, AgentPeer() as below:
        file = tmp_path / "graph.yaml"
        inner = {"type": "agent", "endpoint": below.base, "name": "worker"}
        outer = {"type": "multi-agent", "endpoint": root.base, "name": "boss", "dependencies": [inner]}
        file.write_text(json.dumps({"version": "v1", "targets": [outer]}))
        arguments = ("check", str(file), "--watch", "--interval", "0.1", "--count", "2")
        shown = await asyncio.to_thread(_in_a_terminal, arguments)
        assert shown.count("\x1b[H\x1b[2J") == 2
        assert "\x1b[32mHEALTHY\x1b[0m boss" in shown
        assert "└─ supporting, critical:" in shown
        piped = await vitalgate(*arguments)
        assert piped.out.count("HEALTHY boss (multi-agent)") == 2
        assert not set("\x1b└─") & set(piped.out)


def _in_a_terminal(arguments: tuple[str, ...]) -> str:
    parent, child = pty.openpty()
    environ = {**ENVIRONMENT, "PYTHONIOENCODING": "utf-8"}
    environ.pop("NO_COLOR", None)
    process = subprocess.Popen([*VITALGATE, *arguments], stdin=child, stdout=child, stderr=child, env=environ)
    os.close(child)
    shown = b""
    try:
        while chunk := os.read(parent, 65536):
            shown += chunk
    except OSError:  # EIO: the other end is closed
        pass
    finally:
        os.close(parent)
        process.wait(10)
    return shown.decode()


async def test_doctor_explains_with_the_next_command() -> None:
    """Required: `doctor` says what a finding means, its most likely cause, and what to try."""
    async with A2APeer("0.3.0") as peer:
        done = await vitalgate("doctor", "a2a", peer.base)
        assert done.code == 2
        assert "a2a_card" in done.out
        assert done.out.count("cause:    The agent speaks A2A 0.3, or ") == 1, "once, though two checks share it"
        assert "--protocol-version 0.3.0" in done.out
        assert (await vitalgate("doctor", "a2a", peer.base, "--protocol-version", "0.3.0")).code == 0
    async with A2APeer() as peer:
        peer.rpc["GetTask"] = reply.error(-32009)
        assert "Version mismatch: the agent answered -32009" in (await vitalgate("doctor", "a2a", peer.base)).out
        peer.rpc["GetTask"] = reply.error(-32601)
        assert "Version mismatch: the agent answered -32601" in (await vitalgate("doctor", "a2a", peer.base)).out
        done = await vitalgate("doctor", "a2a", peer.base, "--require-skill", "transla\x1bte")
        assert r"(skill_missing: transla\x1bte)" in done.out


async def test_a_private_authority(tmp_path: Path) -> None:
    """--ca-file and SSL_CERT_FILE; the end of the certificate is reported."""
    authority = Authority(tmp_path)
    async with A2APeer(tls=authority.server()) as peer:
        refused = await vitalgate("ping", "a2a", peer.base, "--format", "json")
        found: dict[str, Any] = json.loads(refused.out)["checks"]["reachability"]
        assert (refused.code, found["code"], found["reason"]) == (3, "tls_certificate", "certificate_untrusted")
        ca_file = str(authority.ca_file)
        for more, environ in ((("--ca-file", ca_file), {}), ((), {"SSL_CERT_FILE": ca_file})):
            done = await vitalgate("ping", "a2a", peer.base, "--format", "json", *more, environ=environ)
            found = json.loads(done.out)["checks"]["reachability"]
            assert (done.code, list(found["steps"])) == (0, ["dns", "tcp", "tls", "http"])
            assert found["certificate_expires_at"].endswith("Z")


async def test_secrets_and_foreign_text_reach_no_output() -> None:
    """Health contract 2: no token, no byte of a response, in any format."""
    async with A2APeer() as peer:
        poison = "POISON\x1b[31m\r\n"
        peer.card["name"] = poison
        peer.rpc["GetTask"] = reply.error(-32000, poison, headers=[*reply.JSON, ("X-Poison", "POISON")])
        for form in ("terminal", "json", "yaml", "junit", "prometheus"):
            for command in ("ping", "doctor"):
                arguments = (command, "a2a", peer.base, "--bearer-env", "TOKEN", "--format", form)
                done = await vitalgate(*arguments, environ={"TOKEN": "s3cret-token"})
                assert done.code == 2
                for text in (done.out, done.err):
                    assert "POISON" not in text
                    assert "s3cret" not in text
                    assert "\x1b" not in text
        assert peer.requests[-1].header("authorization") == "Bearer s3cret-token"
