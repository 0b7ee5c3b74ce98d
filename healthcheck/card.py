"""Agent cards of A2A 0.3 and 1.0: read strictly where it matters, absent lists read as empty.

Pure: bytes in, values out; a card that breaks a rule raises `CardFault` (health contract 3, card rules).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

V10, V03 = "1.0", "0.3.0"
VERSIONS = (V10, V03)
CAPABILITIES = {
    V10: ("streaming", "pushNotifications", "extendedAgentCard"),
    V03: ("streaming", "pushNotifications", "stateTransitionHistory"),
}
TEXT_PLAIN = "text/plain"

_WORD = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_MEDIA_TYPE = re.compile(rf"\s*({_WORD}/{_WORD})\s*(;.*)?", re.DOTALL)
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})(\.\d{1,6})?")


class CardFault(Exception):
    """A rule of the card was broken: `code` for the result, `reason` for the explanation."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Security(Enum):
    """What one alternative of the card's security asks for."""

    PUBLIC = "public"
    BEARER = "bearer"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Interface:
    """One address at which the agent says it can be called; `url` is not judged here."""

    url: str
    transport: str
    version: str | None
    tenant: str | None = None

    def speaks(self, version: str) -> bool:
        """Whether this is the asked version; the patch number does not count."""
        return self.version is not None and major_minor(self.version) == major_minor(version)


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill's id and its own modes; empty where the card's defaults hold."""

    id: str
    input_modes: frozenset[str]
    output_modes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Card:
    """The members of an agent card that checks and gates look at."""

    interfaces: tuple[Interface, ...]
    capabilities: frozenset[str]
    required_extensions: int
    input_modes: frozenset[str]
    output_modes: frozenset[str]
    skills: tuple[Skill, ...]
    security: tuple[Security, ...]

    @property
    def is_public(self) -> bool:
        """No credential is asked for, in at least one alternative."""
        return not self.security or Security.PUBLIC in self.security

    @property
    def takes_bearer(self) -> bool:
        """At least one alternative is HTTP bearer and nothing else."""
        return Security.BEARER in self.security

    def select(self, version: str) -> Interface:
        """The first JSON-RPC interface of this version, or `CardFault` saying what is wrong instead."""
        if self.required_extensions:
            raise CardFault("a2a_version", "extension_required")
        over_rpc = [one for one in self.interfaces if one.transport.upper() == "JSONRPC"]
        if not over_rpc:
            raise CardFault("a2a_version", "transport")
        if all(one.version is None for one in over_rpc):
            raise CardFault("a2a_card", "protocol_version_missing")
        for one in over_rpc:
            if one.speaks(version):
                return one
        raise CardFault("a2a_version", "version")


def read_json(body: bytes | None) -> Any:
    """Decode strict JSON in UTF-8, or raise `CardFault`: no BOM, no NaN, no endless nesting or digits."""
    try:
        return json.loads((body or b"").decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise CardFault("a2a_card", "json") from error


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def read_card(document: Any, version: str) -> Card:
    """Judge the shape of a card as one of `version` ("1.0" or "0.3.0"); raises `CardFault`."""
    card = _object(document, "json_object")
    for member in ("name", "version"):
        _text(card, member, f"{member}_blank")
    if not isinstance(card.get("description"), str):
        raise CardFault("a2a_card", "description")
    capabilities = _object(card.get("capabilities"), "capabilities")
    return Card(
        interfaces=_interfaces_10(card) if version == V10 else _interfaces_03(card),
        capabilities=_known_capabilities(capabilities, version),
        required_extensions=_required_extensions(capabilities),
        input_modes=_modes(card, "defaultInputModes"),
        output_modes=_modes(card, "defaultOutputModes"),
        skills=_skills(card),
        security=_security(card, version),
    )


def media_type(text: object) -> str:
    """The type and subtype in lower case, parameters dropped; ValueError for anything else."""
    match = _MEDIA_TYPE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError("not a media type")
    return match[1].lower()


def major_minor(version: str) -> tuple[int, int] | None:
    """(1, 0) for "1.0" and "1.0.3"; None for what is no version."""
    match = _VERSION.fullmatch(version)
    return (int(match[1]), int(match[2])) if match else None


def _object(value: object, reason: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise CardFault("a2a_card", reason)
    return value


def _list(owner: Mapping[str, Any], member: str, reason: str) -> list[Any]:
    """A list; absent and null count as empty, as official 1.x cards omit empty lists."""
    value = owner.get(member)
    if value is None:
        return []
    if not isinstance(value, list):
        raise CardFault("a2a_card", reason)
    return value


def _text(owner: Mapping[str, Any], member: str, reason: str) -> str:
    value = owner.get(member)
    if not isinstance(value, str) or not value.strip():
        raise CardFault("a2a_card", reason)
    return value


def _interfaces_10(card: Mapping[str, Any]) -> tuple[Interface, ...]:
    entries = _list(card, "supportedInterfaces", "interfaces")
    if not entries:
        raise CardFault("a2a_card", "interfaces_missing")
    return tuple(_interface_10(_object(entry, "interfaces")) for entry in entries)


def _interface_10(entry: Mapping[str, Any]) -> Interface:
    tenant = entry.get("tenant")
    if tenant is not None and not isinstance(tenant, str):
        raise CardFault("a2a_card", "interfaces")
    url, binding, version = (
        _text(entry, member, "interfaces") for member in ("url", "protocolBinding", "protocolVersion")
    )
    return Interface(url, binding, version, tenant or None)


def _interfaces_03(card: Mapping[str, Any]) -> tuple[Interface, ...]:
    if card.get("url") is None and card.get("supportedInterfaces"):
        raise CardFault("a2a_version", "version")
    url = _text(card, "url", "url_missing")
    transport = card.get("preferredTransport")
    version = card.get("protocolVersion")
    if transport is None:
        transport = "JSONRPC"
    if not isinstance(transport, str):
        raise CardFault("a2a_card", "transport")
    if version is not None and (not isinstance(version, str) or major_minor(version) is None):
        raise CardFault("a2a_card", "protocol_version")
    return (Interface(url, transport, version),)


def _known_capabilities(capabilities: Mapping[str, Any], version: str) -> frozenset[str]:
    offered = set()
    for name in CAPABILITIES[version]:
        value = capabilities.get(name)
        if value is not None and not isinstance(value, bool):
            raise CardFault("a2a_card", "capabilities")
        if value:
            offered.add(name)
    return frozenset(offered)


def _required_extensions(capabilities: Mapping[str, Any]) -> int:
    """How many extensions the agent insists on; this engine knows none, so each is unsupported."""
    count = 0
    for entry in _list(capabilities, "extensions", "extensions"):
        extension = _object(entry, "extensions")
        _text(extension, "uri", "extensions")
        required = extension.get("required")
        if required is not None and not isinstance(required, bool):
            raise CardFault("a2a_card", "extensions")
        count += bool(required)
    return count


def _modes(owner: Mapping[str, Any], member: str) -> frozenset[str]:
    try:
        return frozenset(media_type(mode) for mode in _list(owner, member, "modes"))
    except ValueError as error:
        raise CardFault("a2a_card", "modes") from error


def _skills(card: Mapping[str, Any]) -> tuple[Skill, ...]:
    skills = tuple(_skill(_object(entry, "skills")) for entry in _list(card, "skills", "skills"))
    if len({skill.id for skill in skills}) != len(skills):
        raise CardFault("a2a_card", "skills_duplicate")
    return skills


def _skill(entry: Mapping[str, Any]) -> Skill:
    _text(entry, "name", "skills")
    if not all(isinstance(tag, str) for tag in _list(entry, "tags", "skills")):
        raise CardFault("a2a_card", "skills")
    return Skill(_text(entry, "id", "skills"), _modes(entry, "inputModes"), _modes(entry, "outputModes"))


def _security(card: Mapping[str, Any], version: str) -> tuple[Security, ...]:
    """Each alternative of the card; two spellings exist, and cards for both versions carry both."""
    own, other = ("securityRequirements", "security")[:: 1 if version == V10 else -1]
    member = own if card.get(own) is not None else other
    schemes = card.get("securitySchemes")
    schemes = {} if schemes is None else _object(schemes, "security")
    return tuple(_alternative(_object(entry, "security"), schemes) for entry in _list(card, member, "security"))


def _alternative(requirement: Mapping[str, Any], schemes: Mapping[str, Any]) -> Security:
    nested = requirement.get("schemes")
    names: Iterable[str] = nested if isinstance(nested, dict) else requirement
    kinds = {_is_bearer(schemes.get(name)) for name in names}
    if not kinds:
        return Security.PUBLIC
    return Security.BEARER if kinds == {True} else Security.OTHER


def _is_bearer(scheme: object) -> bool:
    if not isinstance(scheme, dict):
        return False
    wrapped = scheme.get("httpAuthSecurityScheme")
    if isinstance(wrapped, dict):
        word = wrapped.get("scheme")
    else:
        word = scheme.get("scheme") if scheme.get("type") == "http" else None
    return isinstance(word, str) and word.lower() == "bearer"
