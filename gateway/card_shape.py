"""pure: the members of an agent card (A2A 0.3.0 and 1.0), and the JSON types SDK clients insist on.

One member of a wrong type makes a client refuse the whole card, and registration looks only at the fields of
contract 5.1. So a member of a wrong type is left out here; a member that A2A does not know stays as it came.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Members:
    """The shape of an object: its members' shapes, and the members without which it says nothing."""

    shapes: Mapping[str, Shape]
    required: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListOf:
    """The shape of an array: items that do not fit are left out."""

    item: Shape


Shape: TypeAlias = type | Members | ListOf

_OBJECT: Final = Members({})
_TEXTS: Final = ListOf(str)
_EXTENSION: Final = Members(
    {"uri": str, "description": str, "required": bool, "params": _OBJECT}, required=("uri",)
)
_CAPABILITIES: Final = Members(
    {
        "streaming": bool,
        "pushNotifications": bool,
        "stateTransitionHistory": bool,
        "extendedAgentCard": bool,
        "extensions": ListOf(_EXTENSION),
    }
)
_REQUIREMENTS: Final = ListOf(_OBJECT)
_SKILL: Final = Members(
    {
        "id": str,
        "name": str,
        "description": str,
        "tags": _TEXTS,
        "examples": _TEXTS,
        "inputModes": _TEXTS,
        "outputModes": _TEXTS,
        "security": _REQUIREMENTS,
        "securityRequirements": _REQUIREMENTS,
    },
    required=("id", "name"),
)
CARD: Final = Members(
    {
        "name": str,
        "description": str,
        "version": str,
        "url": str,
        "protocolVersion": str,
        "preferredTransport": str,
        "additionalInterfaces": ListOf(_OBJECT),
        "supportedInterfaces": ListOf(_OBJECT),
        "provider": Members({"organization": str, "url": str}, required=("organization", "url")),
        "documentationUrl": str,
        "iconUrl": str,
        "capabilities": _CAPABILITIES,
        "supportsAuthenticatedExtendedCard": bool,
        "defaultInputModes": _TEXTS,
        "defaultOutputModes": _TEXTS,
        "skills": ListOf(_SKILL),
        "securitySchemes": _OBJECT,
        "security": _REQUIREMENTS,
        "securityRequirements": _REQUIREMENTS,
        "signatures": ListOf(_OBJECT),
    }
)

_MISFIT: Final = object()


def fit_card(card: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a card without the members whose JSON type no A2A client accepts."""
    return _fit_members(card, CARD)


def is_other_spelling(name: str, shapes: Mapping[str, object]) -> bool:
    """Tell whether `name` is the snake_case spelling of a known member.

    ProtoJSON and the 0.3 SDK's models read `additional_interfaces` as `additionalInterfaces`: what is taken
    out under one spelling must not come back under the other.
    """
    return "_" in name and re.sub(r"_+(.)?", lambda found: (found[1] or "").upper(), name) in shapes


def _fit(value: Any, shape: Shape) -> Any:
    if isinstance(shape, Members):
        return _fit_object(value, shape)
    if isinstance(shape, ListOf):
        if not isinstance(value, list):
            return _MISFIT
        items = (_fit(item, shape.item) for item in value)
        return [item for item in items if item is not _MISFIT]
    return value if isinstance(value, shape) else _MISFIT


def _fit_object(value: Any, shape: Members) -> Any:
    if not isinstance(value, dict):
        return _MISFIT
    fitting = _fit_members(value, shape)
    return fitting if all(name in fitting for name in shape.required) else _MISFIT


def _fit_members(value: Mapping[str, Any], shape: Members) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, member in value.items():
        if name not in shape.shapes:
            if not is_other_spelling(name, shape.shapes):
                kept[name] = member
            continue
        fitting = _fit(member, shape.shapes[name])
        if fitting is not _MISFIT:
            kept[name] = fitting
    return kept
