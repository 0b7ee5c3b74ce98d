"""Reading the URLs that a user, or an agent card, gives us: strictly, and with one parser."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

MAX_URL = 2048
_DEFAULT_PORTS = {"http": 80, "https": 443}
_VISIBLE = re.compile(r"[!-~]+")
_SCHEME = re.compile(r"https?:", re.IGNORECASE)
_URL = re.compile(r"(https?)://([^/?#]*)([^#]*)(#.*)?", re.IGNORECASE)
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?")
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")
# RFC 3986 plus "[", "]" and "|", which clients send as they are
_TARGET = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?\[\]|-]|%[0-9A-Fa-f]{2})*")


class UrlError(ValueError):
    """The text is not a URL that may be probed; `reason` is one of the words of `REASONS`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


REASONS = ("url_malformed", "url_scheme", "url_userinfo", "url_fragment")


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host (lower case, no brackets) and effective port: what decides who may see a credential."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if _DEFAULT_PORTS[self.scheme] == self.port else f":{self.port}"
        return f"{self.scheme}://{host}{port}"


@dataclass(frozen=True, slots=True)
class Url:
    """A parsed absolute http or https URL: its origin and the request target (path and query)."""

    origin: Origin
    target: str

    def __str__(self) -> str:
        return f"{self.origin}{self.target}"


def parse_url(text: str) -> Url:
    """Parse an absolute URL, or raise `UrlError`; a userinfo or a fragment is an error of its own."""
    if not 0 < len(text) <= MAX_URL or not _VISIBLE.fullmatch(text):
        raise UrlError("url_malformed")
    match = _URL.fullmatch(text)
    if match is None:
        raise UrlError("url_malformed" if _SCHEME.match(text) else "url_scheme")
    scheme, authority, target, fragment = match.groups()
    if "\\" in text:  # some parsers end the host there, others do not
        raise UrlError("url_malformed")
    if "@" in authority:
        raise UrlError("url_userinfo")
    if fragment is not None:
        raise UrlError("url_fragment")
    if not _TARGET.fullmatch(target):
        raise UrlError("url_malformed")
    return Url(_origin(scheme.lower(), authority), target if target.startswith("/") else f"/{target}")


def _origin(scheme: str, authority: str) -> Origin:
    match = _AUTHORITY.fullmatch(authority.lower())
    if match is None:
        raise UrlError("url_malformed")
    host = _ipv6(match[1][1:-1]) if match[1].startswith("[") else match[1]
    port = _DEFAULT_PORTS[scheme] if match[2] is None else int(match[2])
    if not 1 <= port <= 65535 or not (":" in host or _NAME.fullmatch(host)):
        raise UrlError("url_malformed")
    return Origin(scheme, host, port)


def _ipv6(text: str) -> str:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError as error:
        raise UrlError("url_malformed") from error
    if address.scope_id:
        raise UrlError("url_malformed")
    return str(address)


def authority_of(text: str) -> str | None:
    """Host and port of a URL for display; None if the text cannot be shown safely (a userinfo, say)."""
    try:
        return str(parse_url(text).origin).partition("://")[2]
    except UrlError:
        return None
