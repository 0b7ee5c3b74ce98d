"""`vitalgate send` and `stream` through a real gateway, to SDK agents, KubeMQ's, and agents that fail."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gateway.faults import FAULTS
from gateway.operator.failures import AUTH, CONNECTION, ERROR, EXITS, NOT_FOUND, TIMEOUT, of_rpc_error
from gateway.operator.rpc import Said, Speech, Told, request, said, speech_of
from tests.fakes import issuer, reply
from tests.fakes.agent import FaultAgent
from tests.fakes.gateway import GatewayProcess
from tests.fakes.kubemq import KubemqAgent
from tests.fakes.operating import ended, started, vitalgate
from tests.fakes.ports import refusing_port
from tests.fakes.program import sdk03_agent, sdk13_agent
from tests.fakes.running import Running, running
from tests.fakes.stream_reply import sse

HOSTILE = "red \x1b[31m \x9b2J \u202e"


@pytest.fixture
async def gateway() -> AsyncIterator[Running]:
    async with running() as it:
        yield it


# -- SDK agents


@pytest.mark.parametrize("agent", ["sdk13", "sdk13-only-v1", "sdk03"])
async def test_sdk_agents_answer_and_stream(gateway: Running, agent: str) -> None:
    """Whatever protocol the agent's card says, its published card and a text are enough."""
    programs = {
        "sdk13": sdk13_agent,
        "sdk13-only-v1": lambda: sdk13_agent("--only-v1"),
        "sdk03": sdk03_agent,
    }
    async with programs[agent]() as program:
        async with httpx.AsyncClient(trust_env=False) as http:
            published = await http.get(f"{program.url}.well-known/agent-card.json", headers={"A2A-Version": "1.0"})
        done = await vitalgate("agents", "register", "-", "--id", agent, url=gateway.api, given=published.text)
        assert done.code == 0, done
        done = await vitalgate("send", agent, "hello there", url=gateway.api)
        assert (done.code, done.out) == (0, "hello there\n"), done
        document = (await vitalgate("send", agent, "hello", "--json", url=gateway.api)).document
        assert "result" in document
        task = document["result"].get("task", document["result"])
        assert (await vitalgate("send", agent, "say hi", url=gateway.api)).out.strip()
        done = await vitalgate(
            "send", agent, "again", "--context-id", task["contextId"], "--json", url=gateway.api
        )
        result = done.document["result"]
        assert result.get("task", result)["contextId"] == task["contextId"]
        done = await vitalgate("stream", agent, "hello there", url=gateway.api)
        assert (done.code, done.out) == (0, "hello there\n"), done
        assert done.err.splitlines()[-1].startswith("completed")
        events = (await vitalgate("stream", agent, "hello", "--json", url=gateway.api)).documents
        assert len(events) >= 3
        assert all("result" in event for event in events)
        done = await vitalgate("send", agent, "fail please", url=gateway.api)
        assert done.code == 1
        assert "failed" in done.err
        done = await vitalgate("stream", agent, "fail please", url=gateway.api)
        assert done.code == 1
        done = await vitalgate("send", agent, "x", "--task-id", "no-such-task", url=gateway.api)
        assert (done.code, done.out) == (1, "")
        assert "the agent answered with error -32001" in done.err


async def test_ctrl_c_leaves_a_stream(gateway: Running) -> None:
    """Contract 2.3: the caller gone, the exchange with the agent ends."""
    async with FaultAgent() as agent:
        await gateway.register(agent)
        agent.next(sse(event(_working("one")), end="hang"))
        process = await started("stream", "echo", "hello", url=gateway.api)
        assert process.stderr is not None
        assert await asyncio.wait_for(process.stderr.readline(), 15) == b"working: one\n"
        process.send_signal(signal.SIGINT)
        done = await ended(process)
        assert (done.code, done.err) == (130, "")
        await agent.all_closed()


def event(result: object) -> bytes:
    """A2A's event of a result."""
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}, ensure_ascii=False)
    return f"data: {text}\n\n".encode()


def _working(text: str) -> dict[str, object]:
    message = {"kind": "message", "parts": [{"kind": "text", "text": text}]}
    return {"kind": "status-update", "status": {"state": "working", "message": message}, "taskId": "t"}


# -- KubeMQ's


async def test_kubemq_agents(gateway: Running) -> None:
    """No published card, no envelope: what they answer is shown as it is."""
    async with KubemqAgent() as agent, KubemqAgent("bare", bare=True) as bare:
        documents = [one.document for one in (agent, bare) if isinstance(one, KubemqAgent)]
        for document in documents:
            await gateway.client.post("/agents/register", json=document)
            done = await vitalgate("send", document["agent_id"], "hello", url=gateway.api)
            assert done.code == 0, done
            assert "hello" in done.out


async def test_kubemqs_envelope(gateway: Running) -> None:
    """Contract 3.4: the forms of payloads are their agents' own."""
    events = (
        (b"task.status", {"state": "working"}),
        (b"task.artifact", {"parts": [{"kind": "text", "text": "one"}]}),
        (b"task.artifact", {"answer": 2}),
        (b"task.done", {"text": "done"}),
    )
    wire = b"".join(b"event: %s\ndata: %s\n\n" % (name, json.dumps(data).encode()) for name, data in events)
    async with FaultAgent() as agent:
        await gateway.register(agent)
        agent.next(sse(wire))
        done = await vitalgate("stream", "echo", "hello", url=gateway.api)
        assert (done.code, done.out) == (0, 'one\n{"answer": 2}\n{"text": "done"}\n')
        agent.next(sse(b'event: task.error\ndata: {"code": -32000, "message": "no paper"}\n\n'))
        done = await vitalgate("stream", "echo", "hello", url=gateway.api)
        assert (done.code, done.out) == (1, "")
        assert "no paper" in done.err


# -- failures


async def test_failures_say_who_must_act(gateway: Running) -> None:
    """Contract 2.4: the gateway's errors by their exit codes; an agent's own error is told from them."""
    done = await vitalgate("send", "nobody", "hello", url=gateway.api)
    assert (done.code, done.err.splitlines()[0]) == (3, "vitalgate: agent not found: nobody")
    with refusing_port() as port:
        await gateway.register(f"http://127.0.0.1:{port}/", "away")
        done = await vitalgate("send", "away", "hello", url=gateway.api)
    assert done.code == CONNECTION
    first, second, third = done.err.splitlines()
    assert first.endswith("(AGENT_UNREACHABLE)")
    assert second.startswith("vitalgate: what to do (agent): ")
    assert third == "vitalgate: Sending it again is safe."
    async with FaultAgent() as agent:
        await gateway.register(agent)
        agent.next(reply.error(-32001, "task not found"))
        done = await vitalgate("send", "echo", "hello", "--json", url=gateway.api)
        assert done.code == 1
        assert done.document["error"]["code"] == -32001
        assert done.err.splitlines()[0] == "vitalgate: the agent answered with error -32001: task not found"
        agent.next(reply.json({"detail": HOSTILE}, status=500))
        done = await vitalgate("send", "echo", "hello", url=gateway.api)
        assert (done.code, "AGENT_HTTP_ERROR" in done.err) == (1, True)
        agent.next(reply.reset())
        done = await vitalgate("stream", "echo", "hello", url=gateway.api)
        assert (done.code, "CONNECTION_LOST" in done.err) == (CONNECTION, True)
        agent.next(sse(event(_working("x")), end="reset"))
        done = await vitalgate("stream", "echo", "hello", url=gateway.api)
        assert (done.code, "STREAM_BROKEN" in done.err) == (CONNECTION, True)


async def test_a_gateway_that_dies_in_mid_stream(tmp_path: Path) -> None:
    """Nobody can say whether the agent goes on; the connection did not."""
    async with FaultAgent() as agent, GatewayProcess(tmp_path) as gateway:
        await gateway.register({"agent_id": "echo", "name": "Echo", "url": agent.url})
        agent.next(sse(event(_working("one")), end="hang"))
        process = await started("stream", "echo", "hello", url=gateway.api)
        assert process.stderr is not None
        assert await asyncio.wait_for(process.stderr.readline(), 15) == b"working: one\n"
        await gateway.kill()
        done = await ended(process)
        assert done.code == CONNECTION
        assert "may have been done all the same" in done.err


async def test_timeouts() -> None:
    """The agent's, which the gateway tells, and the command's own."""
    async with FaultAgent() as agent, running(a2a={"default_timeout_seconds": 0.2}) as gateway:
        await gateway.register(agent)
        agent.next(reply.hang())
        done = await vitalgate("send", "echo", "hello", url=gateway.api)
        assert (done.code, "AGENT_TIMEOUT" in done.err) == (TIMEOUT, True)
    async with FaultAgent() as agent, running() as gateway:
        await gateway.register(agent)
        agent.next(reply.hang())
        done = await vitalgate("send", "echo", "hello", "--timeout", "0.5", url=gateway.api)
        assert (done.code, "not done within 0.5 s" in done.err) == (TIMEOUT, True)
        await agent.all_closed()


async def test_authentication() -> None:
    """Contract 2.6: in KubeMQ's dialect the refusal comes with HTTP 200, in A2A's with 401."""
    auth = {
        "enable": True,
        "secret_env": "JWT_SECRET",
        "policy": [{"principals": ["*"], "call": ["mine"], "register": ["*"], "read": True}],
    }
    token = issuer.token(issuer.SECRET)
    async with FaultAgent() as agent, running(environ={"JWT_SECRET": issuer.SECRET}, auth=auth) as gateway:
        for agent_id, version in (("mine", "0.3.0"), ("other", "1.0")):
            interface = {"url": agent.url, "protocolBinding": "JSONRPC", "protocolVersion": version}
            await gateway.client.post(
                "/agents/register",
                json={"agent_id": agent_id, "name": "x", "url": agent.url, "supportedInterfaces": [interface]},
                headers=issuer.bearer(token),
            )
            done = await vitalgate("send", agent_id, "hello", url=gateway.api)
            assert (done.code, done.out) == (AUTH, ""), done
            assert "UNAUTHENTICATED" in done.err
        done = await vitalgate("send", "other", "hello", "--token", token, url=gateway.api)
        assert (done.code, "FORBIDDEN" in done.err) == (AUTH, True)
        agent.next(reply.result({"kind": "message", "parts": [{"kind": "text", "text": "yes"}]}))
        done = await vitalgate("send", "mine", "hello", "--token", token, url=gateway.api)
        assert (done.code, done.out) == (0, "yes\n")


async def test_headers_and_usage(gateway: Running) -> None:
    async with FaultAgent() as agent:
        await gateway.register(agent)
        agent.always(reply.result({"kind": "message", "parts": [{"kind": "text", "text": "yes"}]}))
        done = await vitalgate(
            "send", "echo", "-", "--header", "X-Mark: m", url=gateway.api, given="from\nstdin\n"
        )
        assert done.out == "yes\n"
        assert agent.requests[-1].header("x-mark") == "m"
        assert agent.requests[-1].json()["params"]["message"]["parts"][0]["text"] == "from\nstdin"
        asked = len(agent.requests)
        for wrong in (
            ["echo", " "],
            ["echo", "x", "--header", "no colon"],
            ["echo", "x", "--header", "X-A: \x1b"],
            ["echo", "x", "--header", "Content-Type: text/plain"],
            ["echo", "x", "--header", "Authorization: Bearer a", "--token", "b"],
            ["echo", "x", "--protocol", "2"],
            ["Echo", "x"],
        ):
            done = await vitalgate("send", *wrong, url=gateway.api)
            assert (done.code, done.out) == (2, ""), wrong
        assert len(agent.requests) == asked


async def test_hostile_answers_reach_nobodys_terminal(gateway: Running) -> None:
    async with FaultAgent() as agent:
        await gateway.register(agent)
        result = {"kind": "message", "parts": [{"kind": "text", "text": f"one\n{HOSTILE}\r\ttwo"}]}
        for arguments in (["send"], ["stream"], ["send", "--json"], ["stream", "--json"]):
            agent.next(sse(event(result)) if arguments[0] == "stream" else reply.result(result))
            done = await vitalgate(*arguments, "echo", "hello", url=gateway.api)
            assert done.code == 0, done
            assert not set(done.out) & {"\x1b", "\x9b", "\u202e", "\r"}, arguments
            if arguments[1:]:
                assert done.document["result"] == result
            else:
                assert done.out == "one\nred \\x1b[31m \\x9b2J \\u202e\n\ttwo\n"
        agent.next(reply.error(-1, HOSTILE))
        assert "\x1b" not in (await vitalgate("send", "echo", "hello", url=gateway.api)).err


async def test_text_of_one_artifact_goes_on_where_it_ended(gateway: Running) -> None:
    """Events come as they arrive: the first piece is there before the second one was sent."""

    def piece(text: str, artifact: str, append: bool) -> bytes:
        update = {
            "kind": "artifact-update",
            "taskId": "t",
            "artifact": {"artifactId": artifact, "parts": [{"kind": "text", "text": text}]},
            "append": append,
        }
        return event(update)

    done_event = {"kind": "status-update", "taskId": "t", "status": {"state": "completed"}, "final": True}
    last = event(done_event)
    second = asyncio.Event()
    async with FaultAgent() as agent:
        await gateway.register(agent)
        agent.next(
            sse(
                piece("Once ", "a", False),
                second,
                piece("upon\n", "a", True) + piece("\na\n", "a", True) + piece("b\n", "b", False) + last,
            )
        )
        process = await started("stream", "echo", "hello", url=gateway.api)
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.read(5), 15) == b"Once "
        second.set()
        done = await ended(process)
        assert (done.code, done.out, done.err) == (0, "upon\n\na\nb\n", "completed\n")


# -- pure


def test_every_reason_has_words_and_a_code() -> None:
    for reason, fault in FAULTS.items():
        metadata = {"reason": reason, "retry": fault.retry}
        failed = of_rpc_error({"message": "m", "data": [{"domain": "vitalgate", "metadata": metadata}]}, "a")
        assert len(failed.lines) == 3, reason
        assert failed.code == EXITS.get(reason, ERROR)
    assert set(EXITS) <= set(FAULTS)
    assert set(EXITS.values()) == {NOT_FOUND, AUTH, CONNECTION, TIMEOUT}


@pytest.mark.parametrize("error", [None, "text", [], {}, {"data": "x"}, {"data": [1, {"domain": "vitalgate"}]}])
def test_odd_errors_are_the_agents(error: object) -> None:
    assert of_rpc_error(error, "a").code == ERROR


@pytest.mark.parametrize(
    ("card", "speech"),
    [
        ({}, Speech("0.3")),
        ([], Speech("0.3")),
        ({"protocolVersions": ["1.0"]}, Speech("0.3")),
        ({"protocolVersion": "0.3.0"}, Speech("0.3")),
        (
            {"supportedInterfaces": [{"url": "u", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]},
            Speech("1.0"),
        ),
        (
            {
                "supportedInterfaces": [
                    {"url": "u", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "t"}
                ]
            },
            Speech("1.0", "t"),
        ),
    ],
)
def test_how_an_agent_is_spoken_to(card: object, speech: Speech) -> None:
    """Contract 5.4: KubeMQ's field says nothing of the protocol."""
    assert speech_of(card) == speech


def test_requests() -> None:
    headers, body = request(Speech("1.0", "t"), Told("hi", "c", "k"), stream=True)
    assert (headers["A2A-Version"], headers["Accept"]) == ("1.0", "text/event-stream, application/json")
    call = json.loads(body)
    assert (call["method"], call["params"]["tenant"]) == ("SendStreamingMessage", "t")
    message = call["params"]["message"]
    assert {**message, "messageId": ""} == {
        "messageId": "",
        "role": "ROLE_USER",
        "parts": [{"text": "hi"}],
        "contextId": "c",
        "taskId": "k",
    }
    headers, body = request(Speech("0.3"), Told("hi"), stream=False)
    assert "A2A-Version" not in headers
    assert json.loads(body)["method"] == "message/send"


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (None, Said("null")),
        (7, Said("7")),
        ({"x": 1}, Said('{"x": 1}')),
        ({"message": {"parts": [{"text": "a"}, {"data": {"b": 1}}]}}, Said('a\n{"b": 1}')),
        (
            {"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_INPUT_REQUIRED"}}},
            Said("", "input-required", "", "t", "c"),
        ),
        (
            {"kind": "message", "parts": [{"kind": "file", "file": {"name": "a.png", "mimeType": "image/png"}}]},
            Said("[file: a.png image/png]"),
        ),
        ({"kind": "task", "artifacts": [None, {"parts": "x"}, {"parts": [{"text": "a"}]}]}, Said("a")),
        ({"statusUpdate": {"status": None}}, Said()),
        ({"artifactUpdate": {"artifact": []}}, Said()),
        ({"kind": "message", "parts": [{"kind": "file", "file": "x"}]}, Said("[file: without a name]")),
    ],
)
def test_what_people_read(result: object, shown: Said) -> None:
    assert said(result) == shown
