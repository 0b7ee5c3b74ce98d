"""registry.redis_url: what may stand in registry.url for Redis and Valkey, and how it is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import StoreError
from registry.redis_url import masked, read_address
from registry.stores import open_store


def test_one_server() -> None:
    address = read_address("redis://h")
    assert (address.hosts, address.service, address.database, address.tls) == ((("h", 6379),), None, 0, False)
    address = read_address("redis://us%40er:p%2Fw:x@[::1]:6380/3")
    assert (address.hosts, address.database) == ((("::1", 6380),), 3)
    assert (address.username, address.password) == ("us@er", "p/w:x")
    address = read_address("redis://:pw@h")
    assert (address.username, address.password) == (None, "pw")


def test_tls() -> None:
    address = read_address("rediss://h:6379/0?ssl_ca_certs=/etc/ca.pem&ssl_certfile=/c.pem")
    assert address.tls
    assert dict(address.options) == {"ssl_ca_certs": "/etc/ca.pem", "ssl_certfile": "/c.pem"}


def test_sentinel() -> None:
    address = read_address("redis+sentinel://user:pw@s1,s2:26380/my%20master/2?sentinel_password=sp")
    assert address.hosts == (("s1", 26379), ("s2", 26380))
    assert (address.service, address.database) == ("my master", 2)
    assert (address.username, address.password, address.sentinel_password) == ("user", "pw", "sp")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis://", "must be redis"),
        ("redis:/h", "must be redis"),
        ("redis://h:0", "must be redis"),
        ("redis://h:99999", "must be redis"),
        ("redis://h/x", "must end with the number of a database"),
        ("redis://h#0", "must be redis"),
        ("redis://h /0", "must be redis"),
        ("redis://h\n", "must be redis"),
        ("redis://user@h", "must give a password with the user"),
        ("redis://user:@h", "must give a password with the user"),
        ("redis://a,b/0", "must name one host; several are for redis+sentinel"),
        ("redis://h?db=3", "must have no parameters"),
        (
            "rediss://h?ssl_cert_reqs=none",
            "may have these parameters only: ssl_ca_certs, ssl_certfile, ssl_keyfile",
        ),
        ("rediss://h?ssl_ca_certs=", "may have these parameters only"),
        ("redis+sentinel://h", "must name the service"),
        ("redis+sentinel://h,/m", "must be redis"),
        ("redis+sentinel://h/m?x", "may have these parameters only: sentinel_password"),
    ],
)
def test_what_is_refused_says_why(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=r"^m[ua]") as caught:
        read_address(url)
    assert str(caught.value).startswith(problem)
    with pytest.raises(StoreError, match=r"^registry\.url: "):
        open_store(url)


@given(st.text("0123456789@:/?#%&", min_size=6, max_size=20))
def test_no_password_is_ever_in_an_error(password: str) -> None:
    for url in (
        f"redis://u:{password}@h:x",
        f"redis://{password}@h",
        f"redis+sentinel://h/m?sentinel_password={password}&y",
    ):
        try:
            shown = read_address(url).shown
        except ValueError as error:
            shown = str(error)
        assert password not in shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h/0", "redis://h/0"),
        ("redis://:hunter2@h", "redis://:***@h"),
        ("redis://user:hunter2@h:1/0", "redis://user:***@h:1/0"),
        ("redis://user:hun@ter2@h", "redis://user:***@h"),
        (
            "redis+sentinel://u:hunter2@a,b/m?sentinel_password=hunter2",
            "redis+sentinel://u:***@a,b/m?sentinel_password=***",
        ),
        ("rediss://u:hunter2@h?ssl_ca_certs=/a@b", "rediss://u:***@h?ssl_ca_certs=/a@b"),
        ("sqlite:////home/a@b/r.db", "sqlite:////home/a@b/r.db"),
        ("memory://", "memory://"),
    ],
)
def test_passwords_are_masked(url: str, shown: str) -> None:
    assert masked(url) == shown
