"""Well-behaved peers for the health engine, on the scriptable agent: what a test changes is all that is wrong.

async with A2APeer() as peer:
    peer.card["skills"] = []                    # the card it serves
    peer.rpc["GetTask"] = reply.error(-32601)   # what a method does
    peer.paths["/x"] = reply.reset()            # what a path does, whatever the method
"""

from __future__ import annotations

import json
import ssl
from collections import Counter
from typing import Any

import httpx

from healthcheck.engine import Engine
from healthcheck.model import Result, Target
from tests.fakes import reply
from tests.fakes.agent import Behaviour, Connection, FaultAgent, Received

CARD_PATH = "/.well-known/agent-card.json"


def card_10(url: str) -> dict[str, Any]:
    """A card of 1.0 that offers one skill and takes text."""
    return {
        "name": "peer",
        "description": "a test peer",
        "version": "1.0.0",
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "echo", "name": "Echo", "description": "echoes", "tags": ["test"]}],
    }


def card_03(url: str) -> dict[str, Any]:
    """The same in 0.3."""
    card = card_10(url)
    del card["supportedInterfaces"]
    return {**card, "url": url, "protocolVersion": "0.3.0", "preferredTransport": "JSONRPC"}


class _Routed(FaultAgent):
    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls=tls)
        self.paths: dict[str, Behaviour] = {}
        self.always(Behaviour("route", self._route))

    async def _route(self, connection: Connection, request: Received | None) -> None:
        assert request is not None
        path = request.target.partition("?")[0]
        behaviour = self.paths.get(path) or self.answer(request)
        await behaviour.run(connection, request)

    def answer(self, request: Received) -> Behaviour:
        return reply.body(b"not found", status=404)

    @property
    def counts(self) -> Counter[str]:
        """Requests by method and path, calls by the JSON-RPC method too."""
        return Counter(
            f"{one.method} {one.target} {one.json().get('method', '') if one.body else ''}".strip()
            for one in self.requests
        )

    @property
    def base(self) -> str:
        return self.at("/rpc")


class A2APeer(_Routed):
    """An A2A agent of either version."""

    def __init__(self, version: str = "1.0", *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls=tls)
        self.version = version
        self.card: Any = None
        self.rpc: dict[str, Behaviour] = {}

    async def __aenter__(self) -> A2APeer:
        await super().__aenter__()
        self.card = (card_10 if self.version == "1.0" else card_03)(self.base)
        unknown = reply.error(-32001, "task not found")
        done = {"id": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_COMPLETED"}}
        self.rpc = (
            {"GetTask": unknown, "SendMessage": reply.result({"task": done})}
            if self.version == "1.0"
            else {
                "tasks/get": unknown,
                "message/send": reply.result({**done, "kind": "task", "status": {"state": "completed"}}),
            }
        )
        return self

    def answer(self, request: Received) -> Behaviour:
        if request.method == "GET" and request.target == CARD_PATH:
            return reply.body(self.card if isinstance(self.card, bytes) else json.dumps(self.card).encode())
        if request.method == "POST" and request.target == "/rpc":
            return self.rpc.get(request.json()["method"], reply.error(-32601, "method not found"))
        return super().answer(request)


DOCUMENT: dict[str, Any] = {
    "version": "v1",
    "name": "assistant",
    "live": True,
    "ready": True,
    "capabilities": ["answer"],
    "dependencies": [],
}


class AgentPeer(_Routed):
    """A runtime with a health resource at /health."""

    def __init__(self) -> None:
        super().__init__()
        self.document: Any = dict(DOCUMENT)
        self.task: Any = {"completed": True, "success": True}
        self.methods: dict[str, Behaviour] = {}

    @property
    def base(self) -> str:
        return self.at("/health")

    def answer(self, request: Received) -> Behaviour:
        if request.method in self.methods:
            return self.methods[request.method]
        if request.method == "HEAD":
            return reply.raw(reply.head(200, [*reply.JSON, ("Content-Length", "2")]))
        return reply.json(self.document if request.method == "GET" else self.task)


async def run(
    *targets: Target,
    transport: httpx.AsyncBaseTransport | None = None,
    environ: dict[str, str] | None = None,
    ca_file: str | None = None,
    **options: Any,
) -> list[Result]:
    """A run with the engine's own transport, unless another is given."""
    from healthcheck.transport import ProbeTransport, tls_context

    own = transport
    if own is None:
        # as the command does: no deadline pays for imports or for loading the roots
        context = tls_context(ca_file) if any(one.endpoint.startswith("https:") for one in targets) else None
        own = ProbeTransport(lambda: context or tls_context(ca_file))
        await own.warm_up()
    try:
        return await Engine(own, environ=environ or {}, **options).run(targets)
    finally:
        await own.aclose()


async def check(target: Target, **options: Any) -> Result:
    """A run with one target."""
    [result] = await run(target, **options)
    return result


def statuses(result: Result) -> dict[str, str]:
    """Check → status, in the order reported."""
    return {check.value: finding.status.value for check, finding in result.checks.items()}


def codes(result: Result) -> dict[str, str | None]:
    """Check → code, of the checks that carry one."""
    return {check.value: finding.code for check, finding in result.checks.items() if finding.code}
