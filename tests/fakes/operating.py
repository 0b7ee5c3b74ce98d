"""The operator commands as their users run them: in this process beside a gateway, or as one of their own."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner

from gateway.cli import cli
from tests.fakes.gateway import COMMAND
from tests.fakes.program import clean_environment


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The JSON on standard output: one document on one line."""
        assert self.out.count("\n") == 1, self
        return json.loads(self.out)

    @property
    def documents(self) -> list[Any]:
        """The JSON lines on standard output."""
        return [json.loads(line) for line in self.out.splitlines()]

    def rows(self) -> list[list[str]]:
        """The table on standard output as a script would cut it: without its heading, by two or more blanks."""
        return [[cell for cell in line.split("  ") if cell] for line in self.out.splitlines()[1:]]


def _environment(url: str, variables: dict[str, str]) -> dict[str, str]:
    return {"VITALGATE_URL": url, **variables}


async def vitalgate(*arguments: str, url: str = "", given: str | bytes = "", **variables: str) -> Done:
    """Run a command in a thread; `given` is its standard input. Variables of ours are only those named here."""
    environment: dict[str, str | None] = {name: None for name in os.environ if name.startswith("VITALGATE_")}
    environment |= _environment(url, variables) if url else variables

    def invoke() -> Done:
        result = CliRunner().invoke(cli, list(arguments), input=given, env=environment, prog_name="vitalgate")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Done(result.exit_code, result.stdout, result.stderr)

    return await asyncio.to_thread(invoke)


async def started(*arguments: str, url: str = "", **variables: str) -> asyncio.subprocess.Process:
    """Start a command as a process of its own, with pipes."""
    return await asyncio.create_subprocess_exec(
        str(COMMAND),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**clean_environment(), **_environment(url, variables)},
        start_new_session=True,
    )


async def ended(process: asyncio.subprocess.Process, within: float = 20.0) -> Done:
    """Wait for its end."""
    try:
        out, err = await asyncio.wait_for(process.communicate(), within)
    except TimeoutError:
        process.kill()
        raise
    return Done(process.returncode or 0, out.decode(), err.decode())


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """A server that answers everything with these bytes; its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
