"""From an agent card, in whatever form an author has it, to the body of a registration (contract 5.1). Pure."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from typing import Any

from registry.agent import is_agent_id


def registration(
    card: Mapping[str, Any] | object, agent_id: str | None = None, url: str | None = None
) -> tuple[str, bytes]:
    """Give the agent's id and the JSON document to register it with.

    Args:
        card: a mapping, a protobuf message (a2a-sdk 1.x), or a pydantic model (a2a-sdk 0.3).
        agent_id: takes precedence over the card's member `agent_id`.
        url: takes precedence over the card's `url`, which takes precedence over its first JSON-RPC interface.

    Raises:
        ValueError: what is missing, or cannot be written as JSON. All else is judged by the gateway.
    """
    document = _as_mapping(card)
    document["agent_id"] = document.get("agent_id") if agent_id is None else agent_id
    document["url"] = (document.get("url") or _interface(document)) if url is None else url
    found = document["agent_id"]
    if not isinstance(found, str) or not is_agent_id(found):
        raise ValueError("agent_id must be 2-128 of a-z, 0-9 and hyphens, with no hyphen at either end")
    if not document["url"]:
        raise ValueError("url is missing: where does the gateway reach the agent?")
    try:
        return found, json.dumps(document, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the card cannot be written as JSON: {error}") from None


def _as_mapping(card: Mapping[str, Any] | object) -> dict[str, Any]:
    if isinstance(card, Mapping):
        return dict(card)
    if hasattr(card, "DESCRIPTOR"):  # protobuf is there where one of its messages is
        return dict(importlib.import_module("google.protobuf.json_format").MessageToDict(card))
    if hasattr(card, "model_dump"):
        return dict(card.model_dump(mode="json", by_alias=True, exclude_none=True))
    raise ValueError(f"a card is a mapping or a card of the a2a-sdk, not {type(card).__name__}")


def _interface(document: Mapping[str, Any]) -> str | None:
    """The first address at which the card says that JSON-RPC is spoken."""
    interfaces = document.get("supportedInterfaces")
    for interface in interfaces if isinstance(interfaces, list) else ():
        if isinstance(interface, Mapping) and interface.get("protocolBinding") == "JSONRPC":
            url = interface.get("url")
            return url if isinstance(url, str) else None
    return None
