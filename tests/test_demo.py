"""The demo agent: an agent as contract 5 expects one, and an A2A agent for unmodified SDK clients."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

from gateway import demo
from gateway.demo_agent import EchoAgent, as_asgi, card
from gateway.errors import StartError
from tests.fakes.registrar import Registrar, serving
from tests.fakes.running import running as gateway_running


@asynccontextmanager
async def running(gateway_url: str, say: demo.Say, *, leave: bool = True) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(demo.serve(demo.Demo("demo", gateway_url), stop, say, leave=leave))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(task, 10)


async def test_it_registers_sends_heartbeats_and_deregisters() -> None:
    """Contract 5.1 to 5.3."""
    gateway, said = Registrar(), list[str]()
    gateway.ttl = 0.03
    async with serving(gateway) as url:
        async with running(url, said.append):
            what, document = await gateway.hears()
            assert what == "POST /agents/register"
            assert document["agent_id"] == "demo"
            for _ in range(3):
                assert await gateway.hears() == ("POST /agents/heartbeat", {"agent_id": "demo"})
        rest = [gateway.heard.get_nowait() for _ in range(gateway.heard.qsize())]
        assert rest[-1] == ("DELETE /agents/demo", None)
    assert len(said) == 1
    assert f"curl -s {url}/a2a/demo " in said[0]


async def test_it_registers_again_when_it_has_been_forgotten() -> None:
    """Contract 5.2: 400 to a heartbeat means that the agent must register again."""
    gateway = Registrar()
    gateway.ttl = 0.03
    async with serving(gateway) as url, running(url, [].append):
        await gateway.hears()
        await gateway.hears()
        gateway.known = False
        while (await gateway.hears())[0] != "POST /agents/register":
            pass
        assert (await gateway.hears())[0] == "POST /agents/heartbeat"


async def test_it_waits_for_a_gateway_that_is_not_there_and_survives_its_restart() -> None:
    gateway, said = Registrar(), asyncio.Queue[str]()
    gateway.ttl = 0.03
    with socket.create_server(("127.0.0.1", 0)) as claim:
        port = claim.getsockname()[1]
    async with running(f"http://127.0.0.1:{port}", said.put_nowait):
        for _ in range(2):
            while "is not available" not in await asyncio.wait_for(said.get(), 10):
                pass
            async with serving(gateway, socket.create_server(("127.0.0.1", port))):
                gateway.known = False
                while (await gateway.hears())[0] != "POST /agents/register":
                    pass
                assert (await gateway.hears())[0] == "POST /agents/heartbeat"
    rest = [said.get_nowait() for _ in range(said.qsize())]
    assert "the registration will expire" in rest[-1]


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        ((409, {"error": "the registry is full"}), "HTTP 409: the registry is full"),
        (
            (400, {"error": "invalid", "details": [{"field": "url", "message": "address not allowed"}]}),
            "HTTP 400: invalid (url: address not allowed)",
        ),
        ((402, "?"), "HTTP 402"),
        ((200, {}), "the answer to a heartbeat has no ttl_seconds: is this a gateway?"),
    ],
)
async def test_it_says_once_why_it_is_refused_and_keeps_trying(refusal: tuple[int, Any], reason: str) -> None:
    gateway, said = Registrar(), list[str]()
    gateway.refusal = refusal
    async with serving(gateway) as url, running(url, said.append, leave=False):
        for _ in range(4):
            await gateway.hears()
        told = [line for line in said if "refuses" in line]
        assert told[0] == f"{url} refuses the demo agent: {reason}; trying again"
        assert len(told) == 1 or refusal[0] == 200


async def test_a_port_in_use_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            StartError, match=f"^the demo agent cannot listen on 127.0.0.1:{port}: address already"
        ):
            await demo.serve(demo.Demo("demo", "http://127.0.0.1:9", port=port), asyncio.Event(), print)


async def test_in_a_thread_it_serves_and_ends_with_the_block() -> None:
    gateway, said = Registrar(), list[str]()
    async with serving(gateway) as url:
        with demo.beside(demo.Demo("demo", url), said.append):
            _, document = await gateway.hears()
            async with httpx.AsyncClient(trust_env=False) as client:
                response = await client.get(document["url"] + ".well-known/agent-card.json")
                assert response.json()["name"] == "Demo agent"
        async with httpx.AsyncClient(trust_env=False) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(document["url"])


async def test_the_process_deregisters_on_sigterm_and_ends_with_0() -> None:
    gateway = Registrar()
    async with serving(gateway) as url:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "gateway.cli",
            "demo",
            "--gateway",
            url,
            "--id",
            "an-echo",
            stdout=subprocess.PIPE,
        )
        try:
            assert (await gateway.hears())[1]["agent_id"] == "an-echo"
            process.send_signal(signal.SIGTERM)
            while (await gateway.hears())[0] != "DELETE /agents/an-echo":
                pass
            output, _ = await asyncio.wait_for(process.communicate(), 10)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0
    assert f"curl -s {url}/a2a/an-echo " in output.decode()


async def test_a_gateway_that_cannot_start_registers_no_demo_agent_at_the_one_that_has_its_port() -> None:
    """Two people try it on one machine: the second must not take the first one's agent away."""
    gateway = Registrar()
    async with serving(gateway) as url:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway.cli", "serve", "--demo", "--port", url.rpartition(":")[2]),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"VITALGATE_REGISTRY__URL": "memory://"},
        )
        output, errors = await asyncio.wait_for(process.communicate(), 30)
        assert (process.returncode, output) == (3, b"")
        assert errors.decode().endswith(": address already in use (--port or server.port chooses another)\n")
        assert gateway.heard.empty()


def test_the_printed_command_sends_a_request_the_agent_answers() -> None:
    """The command is pasted into a shell; the request in it is a message/send of protocol 0.3."""
    *words, data, body = shlex.split(demo.curl(demo.Demo("demo", "http://127.0.0.1:9090")))
    assert words == ["curl", "-s", "http://127.0.0.1:9090/a2a/demo", "-H", "Content-Type: application/json"]
    assert data == "-d"
    result = json.loads(EchoAgent().answer(body.encode()).body)["result"]
    assert result["status"]["state"] == "completed"
    assert result["artifacts"][0]["parts"] == [{"kind": "text", "text": "hello"}]


@pytest.mark.parametrize("protocol_version", ["1.0", "0.3"])
async def test_unmodified_sdk_clients_talk_to_it(protocol_version: str) -> None:
    """SDK 1.3 over protocol 1.0 and over 0.3: resolve the card, stream, send, get, cancel."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    async with serving(as_asgi(EchoAgent(), card(url, "1.2.3")), listener), httpx.AsyncClient() as http:
        agent_card = await A2ACardResolver(http, url).get_agent_card()
        assert agent_card.version == "1.2.3"
        spoken = [it for it in agent_card.supported_interfaces if it.protocol_version == protocol_version]
        del agent_card.supported_interfaces[:]
        agent_card.supported_interfaces.extend(spoken)
        client = ClientFactory(ClientConfig(httpx_client=http)).create(agent_card)
        message = Message(message_id="m", role=Role.ROLE_USER, parts=[Part(text="hello ü")], context_id="c")
        events = [it async for it in client.send_message(SendMessageRequest(message=message))]
        task, working, artifact, done = events
        assert task.task.status.state == TaskState.TASK_STATE_SUBMITTED
        assert working.status_update.status.state == TaskState.TASK_STATE_WORKING
        assert artifact.artifact_update.artifact.parts[0].text == "hello ü"
        assert done.status_update.status.state == TaskState.TASK_STATE_COMPLETED
        assert {it.task_id for it in (working.status_update, artifact.artifact_update, done.status_update)} == {
            task.task.id
        }
        with pytest.raises(UnsupportedOperationError):
            _ = [it async for it in client.subscribe(SubscribeToTaskRequest(id=task.task.id))]
        with pytest.raises(TaskNotFoundError):
            _ = [it async for it in client.subscribe(SubscribeToTaskRequest(id="nothing"))]
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(agent_card)
        (answer,) = [it async for it in client.send_message(SendMessageRequest(message=message))]
        assert answer.task.status.state == TaskState.TASK_STATE_COMPLETED
        assert answer.task.context_id == "c"
        assert answer.task.artifacts[0].parts[0].text == "hello ü"
        assert await client.get_task(GetTaskRequest(id=answer.task.id)) == answer.task
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id="nothing"))
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=answer.task.id))


async def test_its_streams_pass_through_the_gateway_unchanged() -> None:
    """Contract 3.4, 3.5: A2A events with the caller's id, the last one final, and the end at once."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    message = {"kind": "message", "role": "user", "messageId": "1", "parts": [{"kind": "text", "text": "hello"}]}
    call = {"jsonrpc": "2.0", "id": 7, "method": "message/stream", "params": {"message": message}}
    async with serving(as_asgi(EchoAgent(), card(url, "1.2.3")), listener), gateway_running() as gateway:
        await gateway.register(url, "demo")
        answer = await asyncio.wait_for(
            gateway.call(call, "demo"), 1.5
        )  # sooner than it gives up waiting for more
    *events, end = answer.text.split("\n\n")
    assert end == ""
    responses = [json.loads(event.removeprefix("data: ")) for event in events]
    assert [response["id"] for response in responses] == [7, 7, 7, 7]
    kinds = [response["result"]["kind"] for response in responses]
    assert kinds == ["task", "status-update", "artifact-update", "status-update"]
    assert [response["result"].get("final") for response in responses] == [None, False, None, True]


@pytest.mark.parametrize(
    ("body", "code", "request_id"),
    [
        (b"{", -32700, None),
        (b"[" * 100000, -32700, None),
        (b"[]", -32600, None),
        (b'{"id":1}', -32600, None),
        (b'{"id":"1","method":"tasks/list","params":{}}', -32601, "1"),
        (b'{"id":"1","method":"message/stream","params":{}}', -32602, "1"),
        (b'{"id":1,"method":"tasks/resubscribe","params":{"id":"x"}}', -32001, 1),
        (b'{"id":1,"method":"message/send"}', -32602, 1),
        (b'{"id":1,"method":"message/send","params":{"message":{"parts":3}}}', -32602, 1),
        (b'{"id":1,"method":"SendMessage","params":{"message":{"parts":[],"taskId":"x"}}}', -32001, 1),
        (b'{"id":1,"method":"CancelTask","params":{"id":"x"}}', -32001, 1),
    ],
)
def test_bad_requests_get_clear_errors(body: bytes, code: int, request_id: object) -> None:
    answer = json.loads(EchoAgent().answer(body).body)
    assert (answer["error"]["code"], answer["id"]) == (code, request_id)


async def test_other_paths_and_large_bodies_are_refused() -> None:
    async with (
        serving(as_asgi(EchoAgent(), {})) as url,
        httpx.AsyncClient(base_url=url, trust_env=False) as client,
    ):
        assert (await client.get("/")).status_code == 404
        assert (await client.post("/x")).status_code == 404
        assert (await client.post("/", content=b" " * (1024 * 1024 + 1))).status_code == 413


def test_old_tasks_make_room_for_new_ones() -> None:
    agent = EchoAgent()
    request = b'{"id":1,"method":"SendMessage","params":{"message":{"parts":[{"text":"a"}]}}}'
    ids = [json.loads(agent.answer(request).body)["result"]["task"]["id"] for _ in range(1001)]

    def get(task: str) -> Any:
        request = {"id": 1, "method": "GetTask", "params": {"id": task}}
        return json.loads(agent.answer(json.dumps(request).encode()).body)

    assert get(ids[0])["error"]["code"] == -32001
    assert get(ids[1])["result"]["id"] == ids[1]
