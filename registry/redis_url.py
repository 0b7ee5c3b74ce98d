"""Pure: a ``registry.url`` of Redis or Valkey taken apart, and shown without its passwords."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

DEFAULT_PREFIX = "_AGENTS_."
"""What the names of all keys begin with, if nothing else is set (contract 4)."""
SCHEMES = ("redis://", "rediss://", "redis+sentinel://")
_PORT, _SENTINEL_PORT = 6379, 26379
_OPTIONS = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})
_FORM = "must be redis[s]://[user:password@]host[:port][/db] or redis+sentinel://[user:password@]host[:port],.../service[/db]"
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?")


@dataclass(frozen=True, slots=True)
class Address:
    """Where the store is.

    Attributes:
        hosts: the server, or the Sentinels, each with its port.
        service: the master's name at the Sentinels; None without Sentinel.
        options: files for TLS, by the names that redis-py gives them.
        sentinel_password: what the Sentinels ask for, if anything.
        shown: the URL without passwords.
    """

    hosts: tuple[tuple[str, int], ...]
    service: str | None
    database: int
    tls: bool
    shown: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    options: tuple[tuple[str, str], ...] = ()
    sentinel_password: str | None = field(default=None, repr=False)


def masked(url: str) -> str:
    """A URL that `read_address` takes (or another kind of store), with ``***`` in place of its passwords."""
    if not url.startswith(SCHEMES):
        return url
    scheme, mark, rest = url.partition("://")
    rest, question, query = rest.partition("?")
    credentials, at, place = rest.rpartition("@")
    if at:
        rest = f"{credentials.partition(':')[0]}:***@{place}"
    return scheme + mark + rest + question + re.sub(r"(password=)[^&]*", r"\1***", query)


def read_address(url: str) -> Address:
    """Takes a URL apart.

    Raises:
        ValueError: its text says what is expected, and holds nothing of the URL.
    """
    scheme = next((one for one in SCHEMES if url.startswith(one)), None)
    if scheme is None or not url.isprintable() or " " in url or "#" in url:
        raise ValueError(_FORM)
    rest, _, query = url.removeprefix(scheme).partition("?")
    credentials, at, place = rest.rpartition("@")
    username, password = _credentials(credentials) if at else (None, None)
    hosts, _, path = place.partition("/")
    sentinel = scheme == "redis+sentinel://"
    service, database = _path(path, sentinel)
    options, sentinel_password = _options(query, scheme)
    return Address(
        hosts=_hosts(hosts, sentinel),
        service=service,
        database=database,
        tls=scheme == "rediss://",
        shown=masked(url),
        username=username,
        password=password,
        options=options,
        sentinel_password=sentinel_password,
    )


def _credentials(text: str) -> tuple[str | None, str]:
    username, colon, password = text.partition(":")
    if not colon or not password:
        raise ValueError("must give a password with the user, as in redis://user:password@host, or neither")
    return unquote(username) or None, unquote(password)


def _hosts(text: str, sentinel: bool) -> tuple[tuple[str, int], ...]:
    names = text.split(",")
    if not sentinel and len(names) > 1:
        raise ValueError("must name one host; several are for redis+sentinel:// (Redis Cluster is not supported)")
    return tuple(_host(name, _SENTINEL_PORT if sentinel else _PORT) for name in names)


def _host(text: str, port: int) -> tuple[str, int]:
    match = _HOST.fullmatch(text)
    if match is None or not 0 < int(match["port"] or port) <= 65535:
        raise ValueError(_FORM)
    return match["host"].strip("[]"), int(match["port"] or port)


def _path(path: str, sentinel: bool) -> tuple[str | None, int]:
    service, _, database = path.partition("/") if sentinel else (None, "", path)
    if sentinel and not service:
        raise ValueError("must name the service, as in redis+sentinel://host1,host2/mymaster")
    if database and re.fullmatch(r"[0-9]{1,5}", database) is None:
        raise ValueError("must end with the number of a database, or without one")
    return None if service is None else unquote(service), int(database or 0)


def _options(query: str, scheme: str) -> tuple[tuple[tuple[str, str], ...], str | None]:
    allowed = {
        "redis://": frozenset[str](),
        "rediss://": _OPTIONS,
        "redis+sentinel://": frozenset({"sentinel_password"}),
    }[scheme]
    try:
        given = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    except ValueError:
        given = {"": ""}
    if not given.keys() <= allowed or not all(given.values()):
        names = ", ".join(sorted(allowed))
        raise ValueError(f"may have these parameters only: {names}" if names else "must have no parameters")
    sentinel_password = given.pop("sentinel_password", None)
    return tuple(given.items()), sentinel_password
