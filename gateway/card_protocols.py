"""pure: which protocols an agent says it speaks, read from its card (contract 5.4)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

V0_3: Final = "0.3"
V1_0: Final = "1.0"
JSONRPC: Final = "JSONRPC"

_FAMILIES: Final = (V1_0, V0_3)
_VERSION: Final = re.compile(r"v?(\d{1,9})(?:\.\d{1,9}){0,3}(?:[+-][0-9A-Za-z.+-]{1,64})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Interface:
    """What an agent says of the way it speaks JSON-RPC in one protocol family.

    Attributes:
        version: The protocol version as the agent wrote it, such as 1.0 or 0.3.0.
        tenant: The opaque text that clients of 1.0 repeat in every request, if the agent asks for it.
    """

    version: str
    tenant: str | None = None

    def at(self, address: str) -> dict[str, str]:
        """Write the entry of `supportedInterfaces` for this interface at the gateway."""
        entry = {"url": address, "protocolBinding": JSONRPC, "protocolVersion": self.version}
        return entry if self.tenant is None else entry | {"tenant": self.tenant}


def declared_protocols(card: Mapping[str, Any]) -> frozenset[str]:
    """Tell which protocols the agent says it speaks over JSON-RPC: V0_3, V1_0, both, or none (contract 5.4).

    None means undeclared, which counts as 0.3.
    """
    return frozenset(declared(card))


def declared(card: Mapping[str, Any]) -> dict[str, Interface]:
    """Collect the interfaces by family, 1.0 first: the listed ones, then what the 0.3 members say."""
    found = listed(card, card.get("url"))
    version = _version_text(card.get("protocolVersion"))
    if version is not None and (not found or _legacy_is_jsonrpc(card)):
        found.setdefault(_family(version), Interface(version))
    return {family: found[family] for family in _FAMILIES if family in found}


def listed(card: Mapping[str, Any], home: Any = None) -> dict[str, Interface]:
    """Read the JSON-RPC entries of `supportedInterfaces`, one per family.

    Every call goes to the registered URL, `home`. Where some entries name it, the others are out of reach and
    do not count; where none does, the agent has another name for it and all count.
    """
    entries = [entry for entry in objects(card.get("supportedInterfaces")) if _is_jsonrpc(entry)]
    at_home = [entry for entry in entries if _same_url(entry.get("url"), home)]
    found: dict[str, Interface] = {}
    for entry in at_home or entries:
        version = _version_text(entry.get("protocolVersion")) or V1_0
        tenant = entry.get("tenant")
        interface = Interface(version, tenant if isinstance(tenant, str) and tenant else None)
        family = _family(version)
        if family not in found or (_is_plain(version) and not _is_plain(found[family].version)):
            found[family] = interface
    return found


def _is_jsonrpc(entry: Mapping[str, Any]) -> bool:
    binding = entry.get("protocolBinding")
    return isinstance(binding, str) and binding.upper() == JSONRPC


def _legacy_is_jsonrpc(card: Mapping[str, Any]) -> bool:
    offered = [card.get("preferredTransport") or JSONRPC]
    offered += [entry.get("transport") for entry in objects(card.get("additionalInterfaces"))]
    return JSONRPC in offered


def _same_url(one: Any, other: Any) -> bool:
    return isinstance(one, str) and isinstance(other, str) and one.rstrip("/") == other.rstrip("/")


def _version_text(value: Any) -> str | None:
    """Read a version; drafts before 0.3, which clients refuse by their number, are spoken to like 0.3."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not _VERSION.fullmatch(value):
        return None
    return value if _family(value) == V1_0 or _is_plain(value) else "0.3.0"


def _family(version: str) -> str:
    found = _VERSION.fullmatch(version)
    return V0_3 if found and int(found[1]) == 0 else V1_0


def _is_plain(version: str) -> bool:
    """Tell whether every client of 1.0 or 0.3 takes this for its own version; the patch number is ignored."""
    return version in _FAMILIES or version.startswith(tuple(f"{family}." for family in _FAMILIES))


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Give the objects in a list, whatever else there may be in it or in its place."""
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())
