"""The engine against agents made with the official SDKs; docs/interoperability.md is held against this file.

Python a2a-sdk 1.3 (1.0 alone, and 1.0 with 0.3 compatibility) and 0.3.26 (in an environment of its own).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from healthcheck.model import A2AFunctional, A2AOptions, Check, Status, Target
from tests.fakes.certs import Authority
from tests.fakes.health_peer import check, codes, statuses
from tests.fakes.program import FAKES, SDK03, SDK13, Program

pytestmark = pytest.mark.asyncio(loop_scope="module")

HERE = Path(__file__)
PAGE = HERE.parent.parent / "docs" / "interoperability.md"
TOKEN = "sdk-token"
FUNCTIONAL = (Check.FUNCTIONAL,)


def agent(sdk: str, *options: str) -> Program:
    python = SDK03 if sdk == "sdk03" else SDK13
    return Program(python, FAKES / "health_sdk.py", sdk, *options)


def _read(path: Path) -> str:
    return path.read_text()


class Fleet:
    """Every agent that the tests need, started together."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder)
        good, expired = authority.issue(), authority.issue("expired")
        self.ca_file = str(authority.ca_file)
        self.programs: dict[str, Program] = {}
        for name, sdk, more in (
            ("1.3", "sdk13", []),
            ("1.3 only 1.0", "sdk13", ["--only-v1"]),
            ("0.3.26", "sdk03", []),
        ):
            tls = ["--certificate", str(good.certificate), "--key", str(good.key)]
            late = ["--certificate", str(expired.certificate), "--key", str(expired.key)]
            self.programs[name] = agent(sdk, *more)
            self.programs[f"{name}, token"] = agent(sdk, *more, "--token", TOKEN)
            if name != "1.3 only 1.0":
                self.programs[f"{name}, elsewhere"] = agent(sdk, *more, "--elsewhere", "http://127.0.0.1:1")
                self.programs[f"{name}, tls"] = agent(sdk, *more, *tls)
                self.programs[f"{name}, expired"] = agent(sdk, *more, *late)

    async def judge(self, name: str, version: str, **more: Any) -> tuple[str, dict[str, str]]:
        """The status, and check → code of what is not healthy."""
        options = {"required_skills", "functional"} & set(more)
        target = Target(
            type="a2a",
            endpoint=more.pop("endpoint", self.programs[name].url),
            a2a=A2AOptions(protocol_version=version, **{one: more.pop(one) for one in options}),
            **{
                "timeout_ms": 10_000,
                **{key: more.pop(key) for key in ("checks", "bearer_env", "timeout_ms") if key in more},
            },
        )
        result = await check(target, **more)
        found = codes(result)
        assert set(found) == {one for one, status in statuses(result).items() if status != "HEALTHY"}
        return result.status.value, {one: code for one, code in found.items() if code is not None}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    agents = Fleet(tmp_path_factory.mktemp("sdk"))
    async with AsyncExitStack() as stack:
        started = [stack.enter_async_context(program) for program in agents.programs.values()]
        await asyncio.gather(*started)
        yield agents


HEALTHY: tuple[str, dict[str, str]] = ("HEALTHY", {})
RIGHT = [("1.3", "1.0"), ("1.3", "0.3.0"), ("1.3 only 1.0", "1.0"), ("0.3.26", "0.3.0")]
BOTH = pytest.mark.parametrize(("name", "version"), RIGHT, ids=lambda value: value)
ONE_EACH = pytest.mark.parametrize(("name", "version"), [RIGHT[0], RIGHT[1], RIGHT[3]], ids=lambda value: value)


def both(code: str) -> dict[str, str]:
    return {"authentication": code, "protocol": code}


@BOTH
async def test_healthy_with_the_right_options(fleet: Fleet, name: str, version: str) -> None:
    """Required: 1.0, 0.3 compatibility and 0.3.26; passive checks, and the skill that is there."""
    assert await fleet.judge(name, version, required_skills=("echo",)) == HEALTHY


@BOTH
async def test_functional(fleet: Fleet, name: str, version: str) -> None:
    """Health contract 3: task and message replies, a failing task, one that does not end in time."""
    for text, wanted in (
        ("hello", HEALTHY),
        ("say hello", HEALTHY),
        ("fail hello", ("UNHEALTHY", {"functional": "a2a_functional"})),
    ):
        assert await fleet.judge(name, version, checks=FUNCTIONAL, functional=A2AFunctional(text)) == wanted, text
    slow = await fleet.judge(
        name, version, checks=FUNCTIONAL, functional=A2AFunctional("slow work"), timeout_ms=700
    )
    assert slow == ("UNREACHABLE", {"functional": "deadline"})


async def test_the_wrong_version(fleet: Fleet) -> None:
    """Required: no silent downgrade, neither way."""
    assert await fleet.judge("1.3 only 1.0", "0.3.0") == ("UNHEALTHY", both("a2a_version"))
    assert await fleet.judge("0.3.26", "1.0") == ("UNHEALTHY", both("a2a_card"))


@BOTH
async def test_tokens(fleet: Fleet, name: str, version: str) -> None:
    """Required: the right token, a wrong one, none at all, an unset variable."""
    protected = f"{name}, token"
    assert await fleet.judge(protected, version, bearer_env="T", environ={"T": TOKEN}) == HEALTHY
    refused = ("MISCONFIGURED", both("a2a_auth"))
    assert await fleet.judge(protected, version, bearer_env="T", environ={"T": "wrong"}) == refused
    assert await fleet.judge(protected, version) == refused
    assert await fleet.judge(protected, version, bearer_env="T") == (
        "MISCONFIGURED",
        {"configuration": "bearer_env"},
    )


@ONE_EACH
async def test_a_missing_skill(fleet: Fleet, name: str, version: str) -> None:
    """Health contract 3: `a2a_required`."""
    wanted = ("UNHEALTHY", {"capability": "a2a_required"})
    assert await fleet.judge(name, version, required_skills=("translate",)) == wanted


@ONE_EACH
async def test_another_origin_in_the_card(fleet: Fleet, name: str, version: str) -> None:
    """Health contract 3: `a2a_origin`; nothing is sent there."""
    assert await fleet.judge(f"{name}, elsewhere", version) == ("MISCONFIGURED", both("a2a_origin"))


@ONE_EACH
async def test_tls(fleet: Fleet, name: str, version: str) -> None:
    """A certificate of a known authority, of an unknown one, and one that has expired."""
    wanted = ("UNREACHABLE", {"reachability": "tls_certificate"})
    assert await fleet.judge(f"{name}, tls", version, ca_file=fleet.ca_file) == HEALTHY
    assert await fleet.judge(f"{name}, tls", version) == wanted
    assert await fleet.judge(f"{name}, expired", version, ca_file=fleet.ca_file) == wanted


@ONE_EACH
async def test_the_endpoint_of_something_else(fleet: Fleet, name: str, version: str) -> None:
    """A wrong scheme; a path that the card does not name makes no difference: the card decides."""
    url = fleet.programs[name].url
    assert (await fleet.judge(name, version, endpoint=url.replace("http:", "https:")))[1] == {
        "reachability": "tls_failed"
    }
    assert await fleet.judge(name, version, endpoint=url.rstrip("/") + "/other") == HEALTHY


async def test_a_dead_port() -> None:
    """An agent that has just ended is UNREACHABLE."""
    async with agent("sdk03") as program:
        url = program.url
    result = await check(Target(type="a2a", endpoint=url))
    assert (result.status, codes(result)) == (Status.UNREACHABLE, {"reachability": "connect_refused"})


async def test_the_page_says_what_is_tested_here() -> None:
    """docs/interoperability.md: every row names a test that exists, and every test of this file is named."""
    page = _read(PAGE)
    named = set(re.findall(r"`(test_[a-z0-9_]+)`", page))
    sources = "".join(map(_read, HERE.parent.glob("test_health_*.py")))
    assert named <= set(re.findall(r"def (test_[a-z0-9_]+)", sources))
    own = set(re.findall(r"def (test_[a-z0-9_]+)", _read(HERE)))
    assert own - {"test_the_page_says_what_is_tested_here"} <= named
