"""The files of the operator console over HTTP: contract 1 (`GET /`)."""

from __future__ import annotations

import asyncio
import gzip
import re
from importlib.resources import files
from pathlib import Path

import pytest

from gateway.gate import is_public
from tests.fakes.issuer import SECRET
from tests.fakes.running import running

FOLDER = Path(str(files("gateway") / "console"))
FILES = sorted(str(file.relative_to(FOLDER)) for file in FOLDER.rglob("*.*"))
SCRIPTS = [name for name in FILES if name.endswith(".js")]
AUTH = {"enable": True, "secret_env": "JWT_SECRET"}


async def test_the_page_and_its_files_are_public_and_everything_else_is_not() -> None:
    """Contract 1: page public, its data needs auth."""
    async with running(auth=AUTH, environ={"JWT_SECRET": SECRET}, health={"enable": True}) as gateway:
        page = await gateway.client.get("/")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        for name in FILES:
            if name != "index.html":
                answer = await gateway.client.get(f"/console/{name}")
                assert answer.status_code == 200, name
                assert answer.text == (FOLDER / name).read_text(), name
        for path in (
            "/agents",
            "/stats/agents",
            "/stats/agents/x1",
            "/gateway",
            "/events",
            "/agents/x1/health/card",
        ):
            assert (await gateway.client.get(path)).status_code == 401, path


async def test_what_may_run_in_the_page_is_said_strictly() -> None:
    async with running() as gateway:
        for path in ("/", "/console/js/app.js", "/console/app.css"):
            headers = (await gateway.client.get(path)).headers
            policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
            assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
            assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"


async def test_files_are_asked_for_again_and_sent_once() -> None:
    async with running() as gateway:
        for path in ("/", "/console/js/app.js"):
            first = await gateway.client.get(path, headers={"accept-encoding": "identity"})
            assert first.headers["cache-control"] == "no-cache"
            again = await gateway.client.get(path, headers={"if-none-match": first.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
            other = await gateway.client.get(path, headers={"if-none-match": '"other"'})
            assert other.status_code == 200
            async with gateway.client.stream("GET", path, headers={"accept-encoding": "gzip"}) as packed:
                assert packed.headers["content-encoding"] == "gzip"
                assert packed.headers["vary"] == "Accept-Encoding"
                body = b"".join([piece async for piece in packed.aiter_raw()])
            assert gzip.decompress(body) == first.content
            head = await gateway.client.head(path)
            assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/console",
        "/console/",
        "/console/index.html",
        "/console/js",
        "/console/js/",
        "/console/none.js",
        "/console/../app.py",
        "/console/js/%2e%2e/app.css",
        "/console//app.css",
        "/console/__init__.py",
    ],
)
async def test_there_are_no_other_files(path: str) -> None:
    async with running() as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        assert b" 404 " in (await reader.read()).split(b"\r\n")[0]
        writer.close()
        await writer.wait_closed()


async def test_only_reading() -> None:
    async with running() as gateway:
        for path in ("/", "/console/app.css"):
            answer = await gateway.client.post(path)
            assert (answer.status_code, answer.json()) == (405, {"error": "method not allowed"})


@pytest.mark.parametrize("name", [name for name in FILES if name != "index.html"])
def test_the_gate_knows_every_file_as_public(name: str) -> None:
    assert is_public("GET", f"/console/{name}".encode())
    assert not is_public("POST", f"/console/{name}".encode())


def test_the_page_names_files_that_there_are_and_nothing_inline() -> None:
    page = (FOLDER / "index.html").read_text()
    named = re.findall(r'(?:href|src)="(?!#)([^"]+)"', page)
    assert len(named) > 3
    for name in named:
        assert name.removeprefix("console/") in FILES, name
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page)


@pytest.mark.parametrize("name", SCRIPTS)
def test_text_never_becomes_markup(name: str) -> None:
    """What agents say is text."""
    script = (FOLDER / name).read_text()
    code = re.sub(r"^const READ_ONLY = .*$|//.*$|/\*.*?\*/", "", script, flags=re.MULTILINE | re.DOTALL)
    assert not re.search(
        r"(inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc", code
    )
    assert not re.search(r"https?://(?!www\.w3\.org)", re.sub(r"`[^`]*`", "", code)), "another host"
    for imported in re.findall(r'(?:from|import\() ?"\./([\w.]+)"', script):
        assert f"js/{imported}" in FILES, imported
