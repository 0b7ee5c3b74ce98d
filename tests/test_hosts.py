"""The host check of contract 1."""

from __future__ import annotations

import pytest

from gateway.hosts import HostCheck
from tests.fakes.agent import FaultAgent
from tests.fakes.running import running


def allows(check: HostCheck, host: str) -> bool:
    return check.allows_host(host.encode())


@pytest.mark.parametrize(
    ("host", "verdict"),
    [
        ("127.0.0.1:9090", True),
        ("localhost", True),
        ("LOCALHOST:9090", True),
        ("app.localhost", True),
        ("localhost.", True),
        ("[::1]:9090", True),
        ("127.8.9.1", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("evil.example:9090", False),
        ("u@localhost", False),
        ("localhost/x", False),
        ("", False),
        ("localhost:999999", False),
        ("[::1", False),
        ("localhost#", False),
        ("169.254.169.254", False),
    ],
)
def test_on_loopback_only_loopback_names_pass(host: str, verdict: bool) -> None:
    """It stops DNS rebinding: a page of evil.example whose name now points at 127.0.0.1."""
    assert allows(HostCheck("127.0.0.1", [], None), host) is verdict


def test_the_public_url_and_allowed_hosts_pass() -> None:
    check = HostCheck("127.0.0.1", ["Gateway.Internal"], "https://a2a.example.com/base")
    assert allows(check, "gateway.internal:80")
    assert allows(check, "A2A.example.com")
    assert not allows(check, "example.com")


def test_on_other_addresses_there_is_no_check_unless_hosts_are_listed() -> None:
    """Service names vary; a list is a wish to have them checked, and the bind address and loopback still pass."""
    assert allows(HostCheck("0.0.0.0", [], None), "anything.example")
    listed = HostCheck("10.1.2.3", ["a2a.example"], None)
    assert allows(listed, "10.1.2.3:9090")
    assert allows(listed, "localhost")
    assert not allows(listed, "anything.example")


@pytest.mark.parametrize("host", ["127.1", "2130706433", "::ffff:127.0.0.1", "localhost", "127.0.0.2"])
async def test_loopback_is_what_the_listener_is_bound_to(host: str) -> None:
    """Contract 1 and 6.3, however it is spelt: the host check is on, and agents on loopback may register."""
    async with FaultAgent() as agent, running(server={"host": host}) as gateway:
        refused = await gateway.client.get("/agents", headers={"host": "evil.example"})
        assert refused.status_code == 421
        named = f"[{host}]" if ":" in host else host
        assert (await gateway.client.get("/agents", headers={"host": f"{named}:1"})).status_code == 200
        await gateway.register(agent)


def test_with_authentication_loopback_needs_no_check() -> None:
    """A page of a stranger has no token."""
    assert allows(HostCheck("127.0.0.1", [], None, authenticated=True), "gateway.internal")
    assert not allows(HostCheck("127.0.0.1", ["a"], None, authenticated=True), "gateway.internal")


def test_verdicts_are_remembered_up_to_a_bound() -> None:
    check = HostCheck("127.0.0.1", [], None)
    for number in range(3000):
        assert not allows(check, f"evil-{number}.example")
        assert allows(check, "localhost")
    assert len(check._known) <= 1024
