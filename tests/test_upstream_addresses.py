"""Where the gateway may connect: contract 6.3, pitfalls 48, 151, 152, 154."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest

from gateway.upstream import AddressGuard, FailureKind
from gateway.upstream.addresses import effective, literal
from gateway.upstream.resolver import AddressInfo
from registry.url import parse_url
from tests.fakes.agent import FaultAgent
from tests.fakes.wire import wired

# The whole table of pitfall 151, as hosts of a URL. Everything is refused under the strictest policy.
SSRF = [
    "169.254.169.254",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "0.0.0.0",
    "[::]",
    "100.100.100.200",
    "168.63.129.16",
    "[fd00:ec2::254]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::]",
    "2130706433",
    "0x7f.1",
    "127.1",
    "017700000001",
]
ALWAYS_REFUSED = [
    *SSRF[:10],
    "2852039166",  # 169.254.169.254
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "0",
    "0.0.0.1",
    "224.0.0.1",
    "239.1.2.3",
    "255.255.255.255",
    "[fe80::1]",
    "[ff02::1]",
    "[::169.254.169.254]",
    "[64:ff9b:1::a9fe:a9fe]",
    "[64:ff9b:1:a9fe:a9:fe00::]",
    "[2001:0:a9fe:a9fe::1]",  # Teredo: the server
    "[2001:0:808:808::5601:5601]",  # Teredo: the client, inverted
]
LOOPBACK = ["127.0.0.1", "127.1", "2130706433", "0x7f.1", "017700000001", "127.255.255.254", "[::1]"]
LOOPBACK += ["[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"]
PRIVATE = ["10.0.0.5", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "198.18.0.1", "240.0.0.1"]
PRIVATE += ["[fc00::1]", "[fd12:3456::1]", "[::ffff:10.0.0.5]", "[64:ff9b::a00:5]", "[2002:a00:5::]"]
PUBLIC = ["8.8.8.8", "172.32.0.1", "100.128.0.1", "[2606:4700::1111]", "[64:ff9b::808:808]", "[2002:808:808::]"]
PUBLIC += ["134744072", "[::ffff:8.8.8.8]", "[64:ff9b:1::808:808]", "[64:ff9b:1:808:8:800::]"]

STRICT = AddressGuard(allow_private=False)
DEFAULT = AddressGuard()
OPEN = AddressGuard(allow_loopback=True)


def refused(guard: AddressGuard, host: str) -> str | None:
    return guard.check_url(parse_url(f"http://{host}/x"))


@pytest.mark.parametrize("host", SSRF)
def test_pitfall_151_all_refused_under_the_strict_policy(host: str) -> None:
    assert refused(STRICT, host)


@pytest.mark.parametrize("host", ALWAYS_REFUSED)
@pytest.mark.parametrize("guard", [STRICT, DEFAULT, OPEN, AddressGuard(allow_loopback=True, allow_hosts=["*"])])
def test_some_addresses_are_refused_whatever_is_allowed(guard: AddressGuard, host: str) -> None:
    """Contract 6.3: link-local, unspecified, multicast, broadcast; metadata services."""
    assert refused(guard, host)


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_needs_permission(host: str) -> None:
    assert refused(DEFAULT, host) == "loopback addresses are not allowed"
    assert refused(OPEN, host) is None


@pytest.mark.parametrize("host", PRIVATE)
def test_private_networks_can_be_forbidden(host: str) -> None:
    assert refused(STRICT, host) == "private addresses are not allowed"
    assert refused(DEFAULT, host) is None


@pytest.mark.parametrize("host", PUBLIC)
def test_public_addresses_are_allowed(host: str) -> None:
    assert refused(STRICT, host) is None


@pytest.mark.parametrize(
    ("rules", "allowed", "denied"),
    [
        (
            {"allow_hosts": ["*.agents.example", "10.1.0.0/16"]},
            ["10.1.2.3", "a.agents.example", "b.test"],
            ["10.2.0.1", "[::ffff:10.2.0.1]"],
        ),
        ({"allow_hosts": ["*.Agents.example."]}, ["a.agents.example", "a.agents.example."], ["b.test", "8.8.8.8"]),
        (
            {"deny_hosts": ["10.1.0.0/16", "bad.*"]},
            ["10.2.0.1", "good.test"],
            ["10.1.0.1", "167837697", "[::ffff:10.1.0.1]", "bad.test", "bad.test."],
        ),
        ({"deny_hosts": ["10.*"]}, ["11.0.0.1"], ["10.0.0.1", "0xa.1"]),
        ({"allow_hosts": ["10.0.0.0/8"], "deny_hosts": ["10.0.0.5"]}, ["10.0.0.6"], ["10.0.0.5", "11.0.0.1"]),
        ({"deny_hosts": ["2001:db8::/32"]}, ["[2001:db9::1]"], ["[2001:db8::1]"]),
    ],
)
def test_host_lists_narrow_what_is_allowed(rules: dict[str, Any], allowed: list[str], denied: list[str]) -> None:
    """Contract 6.3. A name that only a network could allow is judged when it is resolved."""
    guard = AddressGuard(**rules)
    assert [host for host in allowed if refused(guard, host)] == []
    assert [host for host in denied if not refused(guard, host)] == []


def test_host_lists_cannot_widen() -> None:
    assert refused(AddressGuard(allow_hosts=["127.0.0.1", "169.254.0.0/16"]), "127.0.0.1")


def test_a_malformed_network_is_named() -> None:
    with pytest.raises(ValueError, match=r"not a network: 10\.0\.0\.0/99"):
        AddressGuard(deny_hosts=["10.0.0.0/99"])


def test_zone_ids_are_refused() -> None:
    """Pitfall 48."""
    assert OPEN.refuses("h", ipaddress.IPv6Address("2606::1%eth0"))


@pytest.mark.parametrize("host", ["example.test", "a.b", "1.2.3.4.5", "0x7g", "256.1.1.1", "xn--a"])
def test_names_are_not_literals(host: str) -> None:
    assert literal(host) is None


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "017700000001", "0x7f000001", "127.0.1"])
def test_odd_forms_are_read_as_the_resolver_reads_them(host: str) -> None:
    """Pitfall 154: guard and connection must agree."""
    resolved = socket.getaddrinfo(host, 80, type=socket.SOCK_STREAM)[0][4][0]
    assert str(literal(host)) == resolved


def test_an_ordinary_address_stands_for_itself() -> None:
    for text in ("8.8.8.8", "2606::1", "::1", "::"):
        assert effective(ipaddress.ip_address(text)) == (ipaddress.ip_address(text),)


# At connect time


def info(address: str, port: int) -> AddressInfo:
    return socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]


class StubResolver:
    """Answers look-ups from a list, one entry per look-up; counts them."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> list[AddressInfo]:
        self.asked.append((host, port))
        return [info(address, port) for address in self.answers[len(self.asked) - 1]]


async def test_pitfall_152_the_judged_address_is_the_one_connected_to() -> None:
    """A resolver that changes its mind gains nothing: it is asked once per connection."""
    async with FaultAgent() as agent:
        resolver = StubResolver(["127.0.0.1"], ["169.254.169.254"], ["127.0.0.1"])
        async with wired(resolve=resolver) as wire:
            pool = wire.pool(f"http://agent.test:{agent.port}/x")
            first = await wire.call(pool)
            pool.close()
            second = await wire.call(pool)
        assert first.failure is None
        assert second.failure is not None
        assert second.failure.kind is FailureKind.ADDRESS_NOT_ALLOWED
        assert (second.failure.connecting, second.failure.what) == (True, "address not allowed")
        assert resolver.asked == [("agent.test", agent.port)] * 2
        assert (await agent.received(1)).header("host") == f"agent.test:{agent.port}"


async def test_pitfall_152_public_first_then_loopback_is_refused() -> None:
    async with FaultAgent() as agent:
        guard = AddressGuard()
        async with wired(resolve=StubResolver(["127.0.0.1"]), guard=guard) as wire:
            exchange = await wire.call(f"http://agent.test:{agent.port}/")
        assert exchange.failure is not None
        assert exchange.failure.kind is FailureKind.ADDRESS_NOT_ALLOWED
        assert len(agent.connections) == 0


async def test_of_several_addresses_the_allowed_ones_are_used() -> None:
    """Contract 6.3, pitfall 151 (mixed A records)."""
    async with FaultAgent() as agent:
        resolver = StubResolver(["169.254.169.254", "0.0.0.0", "127.0.0.1", "::"])
        async with wired(resolve=resolver) as wire:
            exchange = await wire.call(f"http://agent.test:{agent.port}/")
        assert (exchange.failure, exchange.status) == (None, 200)
        assert len(agent.connections) == 1


async def test_a_name_in_a_private_network_is_refused_when_those_are() -> None:
    """Pitfall 151: a name resolving to 10.0.0.5."""
    async with wired(resolve=StubResolver(["10.0.0.5"]), guard=STRICT) as wire:
        exchange = await wire.call("http://agent.test/")
    assert exchange.failure is not None
    assert exchange.failure.kind is FailureKind.ADDRESS_NOT_ALLOWED


async def test_an_address_with_a_zone_is_refused() -> None:
    async def resolve(host: str, port: int) -> list[AddressInfo]:
        return [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2606::1", port, 0, 3))]

    async with wired(resolve=resolve) as wire:
        exchange = await wire.call("http://agent.test/")
    assert exchange.failure is not None
    assert exchange.failure.kind is FailureKind.ADDRESS_NOT_ALLOWED


async def test_literals_are_not_looked_up() -> None:
    async with FaultAgent() as agent:
        resolver = StubResolver()
        async with wired(resolve=resolver) as wire:
            for host in ("127.0.0.1", "2130706433", "127.1"):
                assert (await wire.call(f"http://{host}:{agent.port}/")).failure is None
        assert resolver.asked == []


async def test_ipv6_literals_work_with_brackets_in_the_host_header() -> None:
    """Pitfall 48."""
    async with FaultAgent(host="::1") as agent:
        async with wired() as wire:
            exchange = await wire.call(f"http://[::1]:{agent.port}/x")
        assert exchange.failure is None
        assert (await agent.received(1)).header("host") == f"[::1]:{agent.port}"
