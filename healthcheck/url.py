"""Reading the URLs that a user, or an agent card, gives us: strictly, and with one parser."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

MAX_URL = 2048
_DEFAULT_PORTS = {"http": 80, "https": 443}
_VISIBLE = re.compile(r"[!-~]+")
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*\.?")
_FORBIDDEN = re.compile(r'[\\<>"{}|^`]')


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
    if not 0 < len(text) <= MAX_URL or not _VISIBLE.fullmatch(text) or _FORBIDDEN.search(text):
        raise UrlError("url_malformed")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UrlError("url_malformed") from error
    if parts.scheme not in _DEFAULT_PORTS:
        raise UrlError("url_scheme")
    if "@" in parts.netloc:
        raise UrlError("url_userinfo")
    if "#" in text:
        raise UrlError("url_fragment")
    if port == 0 or parts.netloc.endswith(":"):
        raise UrlError("url_malformed")
    origin = Origin(parts.scheme, _host(parts), port or _DEFAULT_PORTS[parts.scheme])
    return Url(origin, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))


def _host(parts: SplitResult) -> str:
    host = parts.hostname or ""
    if parts.netloc.startswith("["):
        return _ipv6(host)
    if not _NAME.fullmatch(host):
        raise UrlError("url_malformed")
    return host


def _ipv6(host: str) -> str:
    try:
        address = ipaddress.IPv6Address(host)
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
