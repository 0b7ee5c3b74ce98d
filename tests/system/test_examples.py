"""Every example runs as its header says, against a gateway of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import sys
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.settings_model import KUBEMQ_VARIABLES
from tests.fakes.agent import Log
from tests.fakes.gateway import COMMAND, GatewayProcess
from tests.fakes.ports import refusing_port
from tests.fakes.program import ROOT, clean_environment, run

EXAMPLES = ROOT / "examples"
MIGRATION = EXAMPLES / "04-kubemq-migration"
STREAMING = EXAMPLES / "05-streaming-a2a"
STREAMING_KUBEMQ = EXAMPLES / "06-streaming-kubemq"
PYTHON = Path(sys.executable)


def sections(output: str) -> dict[str, list[str]]:
    """The lines below each `# heading` that an example prints."""
    parts = re.split(r"^# (.*)\n", output, flags=re.MULTILINE)
    return {
        title: body.split() and body.strip().split("\n")
        for title, body in zip(parts[1::2], parts[2::2], strict=True)
    }


@contextlib.asynccontextmanager
async def running(
    *command: str | Path, **environment: str
) -> AsyncIterator[tuple[Log[str], asyncio.subprocess.Process]]:
    """A program that runs until the block ends: its lines as they come, and the process."""
    process = await asyncio.create_subprocess_exec(
        *(str(part) for part in command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env={**clean_environment(), **environment},
    )
    lines: Log[str] = Log("lines of output")

    async def read() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            lines.append(line.decode().rstrip())

    reader = asyncio.create_task(read())
    try:
        yield lines, process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), 10)
        await reader


async def test_register_and_call(tmp_path: Path) -> None:
    async with GatewayProcess(tmp_path) as gateway:
        output = await run([EXAMPLES / "01-register-and-call.sh"], environment={"GATEWAY_URL": gateway.api})
    registered, found, called, beaten, deregistered, gone = map(
        json.loads, (lines[-1] for lines in sections(output).values())
    )
    assert registered["agent_id"] == "curl-echo"
    assert [agent["agent_id"] for agent in found] == ["curl-echo"]
    assert called["id"] == 1
    assert called["result"]["parts"] == [{"kind": "text", "text": "hello"}]
    assert beaten["ok"] is True
    assert beaten["ttl_seconds"] == 300
    assert deregistered == {"ok": True}
    assert gone["error"]["code"] == -32002
    assert gone["error"]["data"][0]["domain"] == "vitalgate"


async def test_sdk_agent_and_sdk_client(tmp_path: Path) -> None:
    async with GatewayProcess(tmp_path, {"a2a": {"agent_ttl_seconds": 1}}) as gateway:
        environment = {"GATEWAY_URL": gateway.api}
        agent = [PYTHON, EXAMPLES / "02-sdk-agent.py"]
        client = [PYTHON, EXAMPLES / "03-sdk-client.py", "sdk-echo", "Grüße"]
        async with running(*agent, **environment) as (lines, process):
            assert await lines.reach(1, 30) == f"agent sdk-echo at {gateway.api}: registered"
            output = await run(client, environment=environment)
            assert output == (
                f"SDK echo: protocol 1.0 at {gateway.base('sdk-echo')}\ntask TASK_STATE_COMPLETED: Grüße\n"
            )
            await kept_alive(gateway, "sdk-echo", seconds=1)
            assert len(lines) == 1
            await gateway.http.delete("/agents/sdk-echo")
            assert (await lines.reach(2)).endswith(": forgotten")
            assert (await lines.reach(3)).endswith(": registered")
            assert (await gateway.http.get("/agents/sdk-echo")).status_code == 200
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), 10)
            assert (await gateway.http.get("/agents/sdk-echo")).status_code == 404  # it has taken its leave


async def kept_alive(gateway: GatewayProcess, agent_id: str, *, seconds: float) -> None:
    """Returns when heartbeats have kept an agent for longer than that since it registered; fails if it is gone."""
    async with asyncio.timeout(10):
        while True:
            answer = await gateway.http.get(f"/agents/{agent_id}")
            assert answer.status_code == 200, answer.text
            registered, seen = (datetime.fromisoformat(answer.json()[n]) for n in ("registered_at", "last_seen"))
            if (seen - registered).total_seconds() > seconds:
                return
            await asyncio.sleep(0.1)


async def test_sdk_agent_waits_for_a_gateway_that_is_away() -> None:
    with refusing_port() as port:
        async with running(PYTHON, EXAMPLES / "02-sdk-agent.py", GATEWAY_URL=f"http://127.0.0.1:{port}") as (
            lines,
            _,
        ):
            assert ": unavailable (ConnectError" in await lines.reach(1, 30)


async def test_plain_agent(tmp_path: Path) -> None:
    """The curl command in its header works, and Ctrl-C takes its leave."""
    agent = EXAMPLES / "08-plain-agent.py"
    body = re.search(r"-d '(.*?)'", agent.read_text(), re.DOTALL)
    assert body is not None
    async with GatewayProcess(tmp_path) as gateway:
        async with running(PYTHON, agent, GATEWAY_URL=gateway.api) as (lines, process):
            assert await lines.reach(1, 30) == f"agent plain-shout at {gateway.api}: registered"
            answer = await gateway.call("plain-shout", body[1].encode())
            assert answer.json()["result"]["parts"] == [{"kind": "text", "text": "HELLO"}]
            process.send_signal(signal.SIGINT)
            assert await asyncio.wait_for(process.wait(), 10) == 0
            assert (await lines.reach(2)).endswith(": left")
        assert (await gateway.http.get("/agents/plain-shout")).status_code == 404


async def test_sdk_client_says_what_is_wrong(tmp_path: Path) -> None:
    async with GatewayProcess(tmp_path) as gateway:
        client = [PYTHON, EXAMPLES / "03-sdk-client.py", "nobody"]
        with pytest.raises(AssertionError, match=r"AgentCardResolutionError: .*404"):
            await run(client, environment={"GATEWAY_URL": gateway.api})


async def test_streaming_a2a(tmp_path: Path) -> None:
    async with GatewayProcess(tmp_path) as gateway:
        environment = {"GATEWAY_URL": gateway.api, "PAUSE_SECONDS": "0.05"}
        async with running(PYTHON, STREAMING / "agent.py", **environment) as (lines, _):
            assert (await lines.reach(1, 30)).endswith(": registered")
            client = [PYTHON, STREAMING / "client.py", "sdk-words", "one two three"]
            output = await run(client, environment=environment)
    task, working, *words, completed = output.splitlines()
    assert (task, working) == ("task TASK_STATE_SUBMITTED: ", "status TASK_STATE_WORKING")
    assert words == ["artifact: one", "artifact:  two", "artifact:  three"]
    assert completed == "status TASK_STATE_COMPLETED"


async def test_a_stream_that_is_lost_is_taken_up_again(tmp_path: Path) -> None:
    """The agent pauses for longer than the gateway waits for an event: the client attaches until it is done."""
    async with GatewayProcess(tmp_path, {"a2a": {"max_sse_idle_seconds": 1}}) as gateway:
        environment = {"GATEWAY_URL": gateway.api, "PAUSE_SECONDS": "1.7"}
        async with running(PYTHON, STREAMING / "agent.py", **environment) as (lines, _):
            await lines.reach(1, 30)
            client = [PYTHON, STREAMING / "client.py", "sdk-words", "one two three"]
            output = (await run(client, environment=environment)).splitlines()
    assert output[-1] in ("status TASK_STATE_COMPLETED", "task TASK_STATE_COMPLETED: one two three")
    for word in ("one", "two", "three"):  # in a piece, or in what was there when it attached
        assert any(word in line for line in output if line.startswith(("artifact: ", "task ")))
    assert any("agent stream idle" in line for line in output)
    assert output.count("task TASK_STATE_SUBMITTED: ") == 1  # the message was sent once


async def test_streaming_client_and_demo_agent(tmp_path: Path) -> None:
    async with GatewayProcess(tmp_path) as gateway:
        async with running(COMMAND, "demo", "--gateway", gateway.api) as (lines, _):
            await lines.reach(1, 30)
            client = [PYTHON, STREAMING / "client.py", "demo", "Grüße"]
            output = await run(client, environment={"GATEWAY_URL": gateway.api})
    assert output.splitlines()[2:] == ["artifact: Grüße", "status TASK_STATE_COMPLETED"]


async def test_streaming_kubemq(tmp_path: Path) -> None:
    async with GatewayProcess(tmp_path) as gateway:
        environment = {"GATEWAY_URL": gateway.api, "PAUSE_SECONDS": "0.3"}
        async with running(PYTHON, STREAMING_KUBEMQ / "agent.py", **environment) as (lines, _):
            assert await lines.reach(1) == "registered as count-agent-01"
            output = await run([PYTHON, STREAMING_KUBEMQ / "client.py"], environment=environment)
            assert output.splitlines() == [
                'status_update {"state": "working"}',
                'artifact {"number": 1}',
                'artifact {"number": 2}',
                'artifact {"number": 3}',
                'done {"state": "completed"}',
            ]
            async with gateway.http.stream("GET", "/a2a/count-agent-01/stream") as answer:
                assert await anext(answer.aiter_lines()) == "event: task.status"  # and then the reader leaves
            told = await lines.reach(2)
            if told == "the stream was closed":
                told = await lines.reach(3)
            assert re.fullmatch(r"nobody reads s-\S+ any more", told)


async def test_the_kubemq_client_says_what_is_wrong(tmp_path: Path) -> None:
    async with GatewayProcess(tmp_path) as gateway:
        client = [PYTHON, STREAMING_KUBEMQ / "client.py", "nobody"]
        with pytest.raises(AssertionError, match="no stream: agent not found: nobody"):
            await run(client, environment={"GATEWAY_URL": gateway.api})


def kubemq_variables() -> dict[str, str]:
    lines = (MIGRATION / "kubemq.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


async def test_kubemq_migration(tmp_path: Path) -> None:
    async with GatewayProcess(tmp_path, environment=kubemq_variables()) as gateway:
        places = {"GATEWAY_URL": gateway.api, "METRICS_URL": gateway.metrics.removesuffix("/metrics")}
        async with running(PYTHON, MIGRATION / "agent.py", **places) as (lines, _):
            assert await lines.reach(1) == "registered as echo-agent-01"
            output = await run([MIGRATION / "call.sh"], environment=places)
            beat = await gateway.http.post("/agents/heartbeat", json={"agent_id": "echo-agent-01"})
    assert beat.json()["ttl_seconds"] == 60  # the variables are in force
    discovery, call, unknown, metrics = sections(output).values()
    listed, one = map(json.loads, discovery)
    assert [agent["agent_id"] for agent in listed] == [one["agent_id"]] == ["echo-agent-01"]
    expected: dict[str, Any] = {"status": "completed", "output": "hello", "caller": "anonymous"}
    assert json.loads(call[0]) == {"jsonrpc": "2.0", "id": "1", "result": expected}
    error = json.loads(unknown[0])
    assert (error["id"], error["error"]["code"]) == ("2", -32002)
    assert metrics == [
        'kubemq_a2a_requests_total{agent_id="echo-agent-01",method="message/send",status="success"} 1'
    ]


def test_kubemq_variables_are_all_there() -> None:
    assert set(kubemq_variables()) == set(KUBEMQ_VARIABLES)


def test_every_example_is_in_the_index() -> None:
    index = (EXAMPLES / "README.md").read_text()
    for entry in EXAMPLES.iterdir():
        if re.match(r"\d\d-", entry.name):
            assert f"[{entry.name}" in index
