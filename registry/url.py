"""The one URL parser: registration, the address guard and the upstream connection all read URLs here.

Two parsers that disagree about the host of a tricky URL are a hole in the guard, so there is one, and it
accepts only what every HTTP client reads in the same way. Pure, no I/O.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal, cast

Scheme = Literal["http", "https"]

DEFAULT_PORTS: dict[Scheme, int] = {"http": 80, "https": 443}

_URL = re.compile(r"(https?)://([^/?]*)(.*)", re.IGNORECASE | re.DOTALL)
_OTHER_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([^:\[\]]*))?")
_LABEL = re.compile(r"[a-z0-9_\-]{1,63}")
_PORT = re.compile(r"[0-9]{1,5}")
# RFC 3986 plus "[", "]" and "|", which clients send as they are. Everything else has to be percent-encoded.
_TARGET = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?\[\]|]|%[0-9A-Fa-f]{2})*")
_MAX_HOST = 253


@dataclass(frozen=True, slots=True)
class Url:
    """An absolute http(s) URL, taken apart.

    Attributes:
        scheme: "http" or "https".
        host: lower case, ASCII, without brackets. A trailing dot (absolute name) is kept, for the resolver.
        port: the effective port, 1-65535.
        authority: value of the ``Host`` header: the default port is left out, IPv6 stands in brackets.
        target: path and query as registered, percent-encoding untouched; starts with "/".
    """

    scheme: Scheme
    host: str
    port: int
    authority: bytes
    target: bytes

    @property
    def server_name(self) -> str:
        """The host without the trailing dot: what certificates and host patterns are written for."""
        return self.host.removesuffix(".")

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority.decode()}{self.target.decode()}"


def parse_url(text: str) -> Url:
    """Reads an absolute http(s) URL (contract 5.1).

    Raises:
        ValueError: with a short reason that never repeats the URL (it may hold a password).
    """
    _refuse_characters(text)
    match = _URL.fullmatch(text)
    if match is None:
        raise ValueError(_why_no_url(text))
    scheme = cast(Scheme, match[1].lower())
    host, port = _authority(match[2], DEFAULT_PORTS[scheme])
    name = f"[{host}]" if ":" in host else host
    authority = name if port == DEFAULT_PORTS[scheme] else f"{name}:{port}"
    return Url(scheme, host, port, authority.encode(), _target(match[3]))


def _refuse_characters(text: str) -> None:
    if any(character <= " " or character == "\x7f" for character in text):
        raise ValueError("spaces and control characters are not allowed")
    if "\\" in text:
        raise ValueError("backslashes are not allowed")
    if "#" in text:
        raise ValueError("a fragment is not allowed")
    if not text.isascii():
        raise ValueError("only ASCII is allowed: write the host in its xn-- form and percent-encode the path")


def _why_no_url(text: str) -> str:
    if _OTHER_SCHEME.match(text) and not text.lower().startswith(("http:", "https:")):
        return "the scheme must be http or https"
    return "must be an absolute http or https URL"


def _authority(text: str, default_port: int) -> tuple[str, int]:
    if "@" in text:
        raise ValueError("credentials in the URL are not allowed")
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise ValueError("the host is malformed (an IPv6 address belongs in brackets)")
    host = _ipv6(match[1][1:-1]) if match[1].startswith("[") else _name(match[1].lower())
    return host, default_port if match[2] is None else _port(match[2])


def _ipv6(text: str) -> str:
    if "%" in text:
        raise ValueError("IPv6 zone ids are not allowed")
    try:
        return str(ipaddress.IPv6Address(text))
    except ValueError:
        raise ValueError("the IPv6 address is malformed") from None


def _name(text: str) -> str:
    if not text:
        raise ValueError("the host is missing")
    labels = text.removesuffix(".").split(".")
    if len(text) > _MAX_HOST or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("the host is malformed")
    return text


def _port(text: str) -> int:
    if not _PORT.fullmatch(text) or not 1 <= int(text) <= 65535:
        raise ValueError("the port must be a number from 1 to 65535")
    return int(text)


def _target(text: str) -> bytes:
    if not _TARGET.fullmatch(text):
        raise ValueError("the path or query holds a character that must be percent-encoded")
    return (text if text.startswith("/") else f"/{text}").encode()
