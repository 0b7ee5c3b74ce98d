"""Commands of the documentation, as it marks them: what is run, in the background or not, and what it prints.

    <!-- run -->                             the block is run; it must end with 0
    <!-- run: background -->                 it goes on until the page's end, and listens on a port it names
    <!-- run: background until TEXT -->      the same; it is ready when it has printed TEXT
    <!-- file: NAME -->                      the block is saved under that name
    <!-- output -->                          what the block before it printed; `…` stands for anything
    <!-- not run: REASON -->                 why a block cannot be run on one machine, or what runs it

The blocks of a page are run from top to bottom in an empty folder with `examples` and `deploy` in it. Well-known
ports are replaced by free ones; exported variables last from block to block.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.program import ROOT, clean_environment

SECONDS = 30.0
SHELL = {"sh", "bash", "console", "shell"}
COMMANDS = {
    "vitalgate", "curl", "make", "python", "python3", "docker", "kubectl", "export", "pip", "npm", "git",
}  # fmt: skip
PORTS = re.compile(r"(?<![\d.\w])(9090|9091|8080|8000|8001|9000|8701|8702|9099)(?![\d.])")
_BLOCK = re.compile(
    r"^(?P<indent> *)(?:<!-- (?P<mark>[^\n]*?) -->\n)?(?P=indent)"
    r"```(?P<language>[^\n]*)\n(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    mark: str
    language: str
    body: str

    @property
    def kind(self) -> str:
        return self.mark.partition(":")[0]

    @property
    def option(self) -> str:
        return self.mark.partition(": ")[2]

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_shell(self) -> bool:
        """By its language, or, without one, by its first word."""
        word = self.body.split(maxsplit=1)[0] if self.body.strip() else ""
        return self.language in SHELL or (not self.language and word in COMMANDS)


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in their order."""
    text = page.read_text()
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        body = textwrap.dedent(match["body"])
        yield Block(page, line, match["mark"] or "", match["language"], body)


class Page:
    """A page whose blocks are run. Use as `async with`; whatever it started ends with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables = folder / ".variables"
        self.variables.touch()
        self.output = ""
        self._ports: dict[str, str] = {}
        self._running: list[asyncio.subprocess.Process] = []
        (folder / "deploy").symlink_to(ROOT / "deploy")
        self._copy(ROOT / "examples", folder / "examples")
        self._environment = clean_environment() | {
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "GATEWAY_URL": self.moved("http://127.0.0.1:9090"),
            "VITALGATE_SERVER__PORT": self.moved("9090"),
            "VITALGATE_METRICS__PORT": self.moved("8080"),
            "COLUMNS": "200",
            "PYTHONUNBUFFERED": "1",
        }

    def _copy(self, source: Path, target: Path) -> None:
        """The examples name ports, too."""
        target.mkdir()
        for path in source.iterdir():
            if path.is_dir() and path.name != "__pycache__":
                self._copy(path, target / path.name)
            elif path.is_file():
                (target / path.name).write_text(self.moved(path.read_text()))
                (target / path.name).chmod(path.stat().st_mode)

    async def __aenter__(self) -> Page:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in reversed(self._running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), 10)
            except TimeoutError:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    def moved(self, text: str) -> str:
        """The text with free ports in place of well-known ones: the same for the same one throughout a page."""
        return PORTS.sub(lambda match: self._port(match[0]), text)

    def _port(self, known: str) -> str:
        if known not in self._ports:
            with socket.socket() as bound:
                bound.bind(("127.0.0.1", 0))
                self._ports[known] = str(bound.getsockname()[1])
        return self._ports[known]

    async def do(self, block: Block) -> None:
        """What the block's mark says."""
        if block.kind == "file":
            (self.folder / block.option).write_text(self.moved(block.body))
        elif block.mark == "run":
            await self._run(block)
        elif block.kind == "run":
            await self._start(block)
        elif block.kind == "output":
            self._compare(block)

    async def _run(self, block: Block) -> None:
        script = f"set -eu; . {self.variables}\n{self.moved(block.body)}\nexport -p >{self.variables}\n"
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", script, cwd=self.folder, env=self._environment, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            out, _ = await asyncio.wait_for(process.communicate(), SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise AssertionError(f"{block.place} did not end") from None
        self.output = out.decode()
        assert process.returncode == 0, f"{block.place} ended with {process.returncode}:\n{self.output}"

    async def _start(self, block: Block) -> None:
        command, log = self.moved(block.body), self.folder / f".log-{block.line}"
        script = f"set -eu; . {self.variables}\n{command}"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                "bash", "-c", script, cwd=self.folder, env=self._environment, stdin=asyncio.subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        self._running.append(process)
        awaited = block.option.removeprefix("background").removeprefix(" until ")
        async with asyncio.timeout(SECONDS):
            while not (awaited in log.read_text() if awaited else self._listens(command)):
                assert process.returncode is None, f"{block.place} ended:\n{log.read_text()}"
                await asyncio.sleep(0.05)  # nobody tells when another program is ready

    def _listens(self, command: str) -> bool:
        """Somebody answers on the ports that the command names; if it names none, on those of its files."""
        files = [self.folder / word for word in command.split() if (self.folder / word).is_file()]
        ports = self._ports_in(command) or self._ports_in("".join(file.read_text() for file in files))
        assert ports, f"no port in {command!r}"
        for port in ports:
            with socket.socket() as trying:
                if trying.connect_ex(("127.0.0.1", int(port))):
                    return False
        return True

    def _ports_in(self, text: str) -> set[str]:
        return {port for known, port in self._ports.items() if known != "9090" and port in text}

    def _compare(self, block: Block) -> None:
        at = 0
        for line in filter(None, self.moved(block.body).splitlines()):
            pattern = ".*?".join(re.escape(part) for part in line.split("…"))
            found = re.compile(pattern, re.DOTALL).search(self.output, at)
            assert found, f"{block.place}: {line!r} is not in\n{self.output}"
            at = found.end()
