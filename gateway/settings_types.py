"""Kinds of settings: bounds and forms. Error texts say what is expected and never hold the value."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from registry.redis_url import read_address
from registry.url import parse_url

_LONGEST = 1_000_000_000  # seconds; the timers of event loops overflow not far beyond
_MOST_BYTES = 2**40
_MOST = 2**31 - 1


def expected(text: str) -> PydanticCustomError:
    """The error of a value that has not the right form; `text` completes "section.field: "."""
    return PydanticCustomError("expected", "{text}", {"text": text})


def _matching(pattern: str, form: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if compiled.fullmatch(value) is None:
            raise expected(f"must be {form}")
        return value

    return AfterValidator(check)


def _whole_if_possible(seconds: float) -> float:
    return int(seconds) if seconds == int(seconds) else seconds


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _one_or_many(value: object) -> object:
    return (value,) if isinstance(value, str) else _as_tuple(value)


def _public_url(text: str) -> str:
    try:
        url = parse_url(text)
    except ValueError as error:
        raise expected(f"must be an absolute http(s) URL: {error}") from None
    if b"?" in url.target:
        raise expected("must be a URL without a query")
    return str(url).rstrip("/")


def _origin(text: str) -> str:
    if text in {"auto", "*", "null"}:
        return text
    try:
        url = parse_url(text)
    except ValueError:
        url = None
    if url is None or url.target != b"/" or text.endswith("/"):
        raise expected('must be "auto", "*", "null" or an origin such as https://app.example.com')
    return str(url).removesuffix("/")


def _jwks_url(text: str) -> str:
    try:
        parse_url(text)
    except ValueError as error:
        raise expected(f"must be an absolute http(s) URL: {error}") from None
    return text


def _network(text: str) -> str:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise expected("must be an IP address or a network such as 10.0.0.0/8") from None
    return text


def _host_rule(text: str) -> str:
    if "/" in text:
        try:
            ipaddress.ip_network(text)
        except ValueError:
            raise expected("must be a network such as 10.0.0.0/8, or a host pattern without /") from None
    return text.lower()


def _store_url(text: str) -> str:
    if re.match(r"rediss?:|redis\+sentinel:", text):
        try:
            read_address(text)
        except ValueError as error:
            raise expected(str(error)) from None
        return text
    if text != "memory://" and re.fullmatch(r"sqlite:///[^\x00-\x1f]+", text) is None:
        raise expected("must be memory://, sqlite:///FILE or a redis:// URL")
    if text.startswith("sqlite:///:memory:"):
        raise expected("is no file; registrations that need not last are kept by memory://")
    return text


AGENT_ID = r"[a-z0-9][a-z0-9-]{0,126}[a-z0-9]"

Seconds = Annotated[float, Field(gt=0, le=_LONGEST, allow_inf_nan=False), AfterValidator(_whole_if_possible)]
SecondsOrZero = Annotated[float, Field(ge=0, le=_LONGEST, allow_inf_nan=False), AfterValidator(_whole_if_possible)]
Interval = Annotated[float, Field(ge=0.1, le=_LONGEST, allow_inf_nan=False), AfterValidator(_whole_if_possible)]
Count = Annotated[int, Field(ge=1, le=_MOST)]
CountOrZero = Annotated[int, Field(ge=0, le=_MOST)]
Bytes = Annotated[int, Field(ge=1, le=_MOST_BYTES)]
HeadBytes = Annotated[int, Field(ge=1024, le=2**24)]
Port = Annotated[int, Field(ge=0, le=65535)]
_Printable = _matching(r"[^\x00-\x1f\x7f]*", "text without control characters")
Text = Annotated[str, Field(min_length=1, max_length=2048), _Printable]
Name = Annotated[str, Field(min_length=1, max_length=256), _Printable]
Host = Annotated[Text, _matching(r"[A-Za-z0-9._:%-]+", "an IP address or a host name, without a port")]
HostRule = Annotated[
    Text,
    _matching(r"[A-Za-z0-9._:/*?\[\]-]+", "a host, a host pattern or a network"),
    AfterValidator(_host_rule),
]
HeaderName = Annotated[Text, _matching(r"[A-Za-z0-9!#$%&'*+.^`|~-]+", "a header's name, without underscores")]
VariableName = Annotated[Text, _matching(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable")]
MetricName = Annotated[Text, _matching(r"[A-Za-z_][A-Za-z0-9_]*", "letters, digits and underscores")]
AgentId = Annotated[str, _matching(AGENT_ID, "an agent id: lower-case letters, digits and inner hyphens")]
PublicUrl = Annotated[Text, AfterValidator(_public_url)]
KeyPrefix = Annotated[
    str, Field(min_length=1, max_length=64), _matching(r"[\x21-\x7e]+", "visible ASCII without blanks")
]
StoreUrl = Annotated[Text, AfterValidator(_store_url)]
Origins = Annotated[tuple[Annotated[Text, AfterValidator(_origin)], ...], BeforeValidator(_as_tuple)]
Hosts = Annotated[tuple[Host, ...], BeforeValidator(_as_tuple)]
HostRules = Annotated[tuple[HostRule, ...], BeforeValidator(_as_tuple)]
HeaderNames = Annotated[tuple[HeaderName, ...], BeforeValidator(_as_tuple)]
Networks = Annotated[tuple[Annotated[Text, AfterValidator(_network)], ...], BeforeValidator(_as_tuple)]
JwksUrl = Annotated[Text, AfterValidator(_jwks_url)]
Audiences = Annotated[tuple[Text, ...], BeforeValidator(_one_or_many)]
Patterns = Annotated[tuple[Name, ...], BeforeValidator(_as_tuple)]
Scopes = Annotated[
    tuple[Annotated[Text, _matching(r"[\x21-\x7e]+", "a scope: visible ASCII without blanks")], ...],
    BeforeValidator(_as_tuple),
]
Leeway = Annotated[float, Field(ge=0, le=300, allow_inf_nan=False), AfterValidator(_whole_if_possible)]
Rate = Annotated[float, Field(ge=0, le=_MOST, allow_inf_nan=False), AfterValidator(_whole_if_possible)]
_Algorithm = Annotated[
    Text,
    _matching(r"HS256|HS384|HS512|[RP]S256|[RP]S384|[RP]S512|ES256|ES384|ES512|EdDSA", "such as RS256 or EdDSA"),
]
Algorithms = Annotated[tuple[_Algorithm, ...], BeforeValidator(_as_tuple)]
Dialect = Annotated[Literal["auto", "kubemq", "a2a"], BeforeValidator(_lower)]
Routing = Annotated[Literal["enforce", "observe"], BeforeValidator(_lower)]
EvictOn = Annotated[
    tuple[Annotated[Literal["UNREACHABLE", "UNHEALTHY"], BeforeValidator(_upper)], ...], BeforeValidator(_as_tuple)
]
CardForm = Annotated[Literal["gateway", "registry"], BeforeValidator(_lower)]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)]
LogFormat = Annotated[Literal["json", "text"], BeforeValidator(_lower)]
