"""The examples run as their comments say (the files themselves are also read by test_health_config)."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from healthcheck.config import read_config
from healthcheck.model import Check, Status
from tests.fakes.health_peer import codes, run, statuses

EXAMPLES = Path(__file__).parent.parent / "examples" / "health"


@asynccontextmanager
async def runtime(*options: str, environ: dict[str, str] | None = None) -> AsyncIterator[str]:
    """The example runtime on a free port; its URL."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / "runtime.py"), "--port", "0", *options),
        stdout=asyncio.subprocess.PIPE,
        env=environ,
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 20)
        yield line.decode().split()[1]
    finally:
        process.terminate()
        await process.wait()


def example(name: str, front: str, worker: str) -> str:
    text = (EXAMPLES / f"{name}.yaml").read_text()
    return text.replace("http://127.0.0.1:8701/health", front).replace("http://127.0.0.1:8702/health", worker)


async def test_graph_and_path_probe() -> None:
    """Required: examples for graph and path probe, with a small runtime that implements the safe POST."""
    async with runtime("--name", "worker", "--capability", "work") as worker:
        way = ("--downstream", f"worker={worker}")
        async with runtime("--name", "front", "--capability", "answer", *way) as front:
            graph = read_config(example("graph", front, worker))
            front_result, worker_result = await run(*graph.targets)
            assert worker_result.status is Status.HEALTHY
            assert front_result.status is Status.DEGRADED, "nothing serves the optional metrics"
            assert codes(front_result) == {"dependency": "dependency_degraded"}
            [path] = await run(*read_config(example("path-probe", front, worker)).targets)
            assert (path.status, statuses(path)["functional"]) == (Status.HEALTHY, "HEALTHY")
        async with runtime("--name", "front", "--downstream", "worker=http://127.0.0.1:1/health") as front:
            [path] = await run(*read_config(example("path-probe", front, worker)).targets)
            assert codes(path) == {"functional": "agent_task"}, "both are well, the way between them is not"
            assert path.dependencies[0].result.status is Status.HEALTHY


async def test_the_runtime_wants_its_token() -> None:
    """The bearer works against the runtime too."""
    async with runtime("--token-env", "T", environ={"T": "secret"}) as url:
        target = {"type": "agent", "endpoint": url, "auth": {"bearer_env": "T"}}
        config = read_config(json.dumps({"version": "v1", "targets": [target]}))
        [good] = await run(*config.targets, environ={"T": "secret"})
        [bad] = await run(*config.targets, environ={"T": "wrong"})
        assert good.status is Status.HEALTHY
        assert set(codes(bad).values()) == {"agent_auth"}


@pytest.mark.parametrize("name", ["passive", "bearer", "custom-card", "functional", "graph", "path-probe"])
def test_every_example_of_the_list_is_there(name: str) -> None:
    """Required: passive, bearer, custom card, functional, graph and path probe."""
    config = read_config((EXAMPLES / f"{name}.yaml").read_text())
    first = config.targets[0]
    shows = {
        "passive": first.checks is None and first.a2a.functional is None,
        "bearer": first.bearer_env is not None,
        "custom-card": first.a2a.card_url is not None,
        "functional": first.a2a.functional is not None,
        "graph": len(first.dependencies) == 2,
        "path-probe": first.agent.functional is not None
        and first.agent.functional.downstream == "worker"
        and Check.FUNCTIONAL in (first.checks or ()),
    }
    assert shows[name]
