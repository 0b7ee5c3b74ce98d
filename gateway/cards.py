"""pure: an agent card whose addresses point at the gateway (contract 5.4, 5.5).

`served_card` writes the card that SDK clients resolve, `rewrite_extended_card` does to the answer of the two
extended-card methods what a client needs to stay on its way through the gateway, `platform_card` is the
gateway's own. Registration checks cards loosely, so nothing here takes a member's type for granted.
"""

from __future__ import annotations

import enum
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gateway.card_protocols import JSONRPC, V0_3, V1_0, Interface, declared, listed, objects
from gateway.card_shape import fit_card, is_other_spelling

_ADDRESSES: Final = dict.fromkeys(("url", "supportedInterfaces", "additionalInterfaces"))
_LEGACY: Final = ("url", "preferredTransport", "protocolVersion", "additionalInterfaces")
_NEVER_SERVED: Final = frozenset(
    {
        *("agent_id", "registered_at", "last_seen", "registered_by", "protocolVersions", "metadata"),
        *("supportedInterfaces", "signatures", *_LEGACY),
    }
)
_SCHEME: Final = "vitalgate"
_SECURITY: Final = ("securitySchemes", "security", "securityRequirements")


_HOST: Final = re.compile(
    rb"(?:[a-z0-9](?:[a-z0-9._-]{0,251}[a-z0-9.])?|\[[0-9a-f:.]{2,45}\])(?::\d{1,5})?", re.IGNORECASE
)


class Security(enum.Enum):
    """Whose security schemes a served card shows (contract 5.4)."""

    NONE = "none"
    """The agent's would mislead: callers' credentials do not reach it."""
    AGENT = "agent"
    """The agent's own: callers bring its credentials."""
    GATEWAY = "gateway"
    """The gateway's: callers must show it a token."""


def public_base(public_url: str | None, scheme: str, hosts: Sequence[bytes]) -> str | None:
    """Give the URL under which clients reach the gateway, without a slash at its end.

    X-Forwarded-* headers count only from `server.trusted_proxies`, since anybody can send them: scheme and host
    come with them in mind already. A proxy that changes the path needs `server.public_url`.

    Args:
        public_url: `server.public_url`, which may have a path.
        scheme: How this request came, http or https.
        hosts: The request's Host headers.

    Returns:
        None if it takes a Host header and the request has none that may stand in a card.
    """
    if public_url is not None:
        return public_url.rstrip("/")
    if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
        return None
    return f"{scheme}://{hosts[0].decode('ascii').lower()}"


def address(public_base: str, agent_id: str) -> str:
    """Give the URL at which the gateway takes calls for an agent: G of contract 5.4."""
    return f"{public_base}/a2a/{agent_id}"


# --- the card that clients resolve ---


def served_card(
    card: Mapping[str, Any],
    at: str,
    *,
    security: Security = Security.NONE,
    published: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write the card through which an unmodified SDK client talks to the agent by way of the gateway.

    Args:
        card: The card as registered.
        at: The agent's address at the gateway, see `address`.
        security: Whose security schemes it shows.
        published: What the agent publishes of itself; it tells the protocols that the registered card does not.
    """
    spoken = declared(card) or declared(published or {}) or {V0_3: Interface("0.3.0")}
    served = {name: value for name, value in fit_card(card).items() if name not in _NEVER_SERVED}
    _complete(served, default_name=at.rpartition("/")[2])
    _state_extended_card(served, spoken)
    _secure(served, security, old=V0_3 in spoken, new=V1_0 in spoken)
    if V1_0 in spoken:
        served["supportedInterfaces"] = [interface.at(at) for interface in spoken.values()]
    if V0_3 in spoken:
        served |= {"url": at, "preferredTransport": JSONRPC, "protocolVersion": spoken[V0_3].version}
    return served


def _complete(served: dict[str, Any], default_name: str) -> None:
    """Add what SDK clients require and KubeMQ's minimum lacks: a card they can read, and nothing invented."""
    served["name"] = served.get("name") or default_name
    served["description"] = served.get("description") or served["name"]
    served["version"] = served.get("version") or "0.0.0"
    served.setdefault("capabilities", {})
    for modes in ("defaultInputModes", "defaultOutputModes"):
        served[modes] = served.get(modes) or ["text/plain"]
    served["skills"] = [
        {**skill, "description": skill.get("description") or skill["name"], "tags": skill.get("tags", [])}
        for skill in served.get("skills", ())
    ]


def _state_extended_card(served: dict[str, Any], spoken: Mapping[str, Interface]) -> None:
    """Say where each protocol looks for it whether the agent has an extended card, and nowhere else."""
    capabilities = served["capabilities"]
    legacy = served.pop("supportsAuthenticatedExtendedCard", False)
    extended = capabilities.get("extendedAgentCard", legacy)
    if V1_0 not in spoken:
        capabilities.pop("extendedAgentCard", None)
    elif extended:
        capabilities["extendedAgentCard"] = True
    if V0_3 not in spoken:
        capabilities.pop("stateTransitionHistory", None)
    elif extended:
        served["supportsAuthenticatedExtendedCard"] = True


def _secure(card: dict[str, Any], security: Security, *, old: bool, new: bool) -> None:
    """Show the right security schemes, in the form of protocol 0.3, of 1.0, or of both at once."""
    if security is Security.AGENT:
        return
    _drop_security(card)
    if security is Security.NONE:
        return
    scheme: dict[str, Any] = {}
    if old:
        scheme |= {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
        card["security"] = [{_SCHEME: []}]
    if new:
        scheme["httpAuthSecurityScheme"] = {"scheme": "Bearer", "bearerFormat": "JWT"}
        card["securityRequirements"] = [{"schemes": {_SCHEME: {"list": []}}}]
    card["securitySchemes"] = {_SCHEME: scheme}


def _drop_security(card: dict[str, Any]) -> None:
    for owner in (card, *objects(card.get("skills"))):
        for name in [name for name in owner if _is_one_of(name, _SECURITY)]:
            del owner[name]


def _is_one_of(name: str, names: tuple[str, ...]) -> bool:
    return name in names or is_other_spelling(name, dict.fromkeys(names))


# --- the extended card: an answer of the agent, rewritten on its way back ---


def rewrite_extended_card(body: bytes, at: str, *, security: Security = Security.NONE) -> bytes:
    """Make the card in a JSON-RPC response point at the gateway; every other byte stays as it is.

    The form is kept: nothing is added that the agent did not write, because a 1.0 reader may refuse 0.3
    members. A response without a card (an error, something else as its result) comes back unchanged.
    """
    try:
        text = body.decode()
        spans = [(start, end) for name, start, end in _members(text) if name == "result"]
        for start, end in reversed(spans):
            result = _loads(text[start:end])
            if isinstance(result, dict) and any(_is_one_of(name, tuple(_ADDRESSES)) for name in result):
                moved = _moved(result, at, security=security)
                text = text[:start] + dump(moved).decode() + text[end:]
    except (ValueError, RecursionError):  # not JSON that could be read: no client reads a card in it either
        return body
    return text.encode()


def _moved(card: dict[str, Any], at: str, *, security: Security) -> dict[str, Any]:
    gone = ("additionalInterfaces", "signatures")
    moved = {name: value for name, value in card.items() if not _is_one_of(name, gone)}
    for name in [name for name in moved if is_other_spelling(name, _ADDRESSES)]:
        del moved[name]
    moved |= {name: value for name, value in (("url", at), ("preferredTransport", JSONRPC)) if name in moved}
    if "supportedInterfaces" in moved:
        moved["supportedInterfaces"] = [interface.at(at) for interface in listed(card).values()]
    _secure(moved, security, old="url" in moved, new="supportedInterfaces" in moved)
    return moved


_SPACE: Final = re.compile(r"[ \t\n\r]*")


def _members(text: str) -> Iterator[tuple[str, int, int]]:
    """Find the members of the object that `text` holds: each name, and where its value starts and ends.

    Raises:
        ValueError: The text is not a JSON object.
    """
    skip = json.JSONDecoder(parse_int=len, parse_float=len)  # values are not looked at, only passed over
    at = _past(text, 0, "{")
    while text[at : at + 1] != "}":
        name, at = skip.raw_decode(text, at)
        start = _past(text, at, ":")
        _, end = skip.raw_decode(text, start)
        yield name, start, end
        at = _blank(text, end)
        if text[at : at + 1] != "}":
            at = _past(text, at, ",")


def _past(text: str, at: int, sign: str) -> int:
    at = _blank(text, at)
    if text[at : at + 1] != sign:
        raise ValueError(f"{sign} expected")
    return _blank(text, at + 1)


def _blank(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


# --- the gateway's own card ---


def platform_card(public_base: str, *, name: str, version: str) -> dict[str, Any]:
    """Write the card of the gateway itself, in KubeMQ's form (contract 5.5)."""
    return {
        "name": name,
        "description": "A2A gateway: registers agents and relays calls to them",
        "version": version,
        "url": public_base,
        "capabilities": {},
        "skills": [],
        "defaultInputModes": ["text"],
        "defaultOutputModes": ["text"],
        "protocolVersions": [V1_0],
    }


# --- bytes ---


def parse_card(text: bytes) -> dict[str, Any]:
    """Read a registered card; anything but an object reads as an empty card."""
    card = _loads(text.decode(errors="replace"))
    return card if isinstance(card, dict) else {}


def dump(card: Mapping[str, Any]) -> bytes:
    """Write a card as UTF-8 JSON. Half a surrogate pair, legal in JSON but in no UTF-8, becomes `?`."""
    return json.dumps(card, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _loads(text: str) -> Any:
    return json.loads(text, parse_float=_finite, parse_int=_integer, parse_constant=lambda name: None)


def _finite(text: str) -> float:
    """Read a number that JSON allows and a double does not hold: `Infinity` must never be written."""
    most = sys.float_info.max
    return min(max(float(text), -most), most)


def _integer(text: str) -> int | float:
    return int(text) if len(text) <= 4000 else _finite(text)
