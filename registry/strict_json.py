"""JSON from strangers: what is accepted here can be kept, searched and sent out again without surprises."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from registry.errors import Invalid, TooLarge

MAX_DEPTH = 100
"""Levels of nesting: far above any card, far below what a decoder anywhere on the way would choke on."""

_BOM = b"\xef\xbb\xbf"
_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"


def read(document: bytes) -> Any:
    """Decodes UTF-8 JSON strictly: no BOM, NaN, duplicate keys or nesting over `MAX_DEPTH`.

    Numbers come back as floats whatever their size: they are good for telling a number from a string, nothing
    else. Whoever keeps a document keeps its bytes.

    Raises:
        ValueError: with a reason that is fit for the sender.
    """
    if document.startswith(_BOM):
        raise ValueError("a byte order mark is not allowed")
    try:
        value = _decoder.decode(document.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if _is_deeper_than(MAX_DEPTH, value):
        raise ValueError(_TOO_DEEP)
    return value


def read_object(document: bytes, most_bytes: int) -> dict[str, Any]:
    """Decodes the body of a request that must be a JSON object, as strictly.

    Raises:
        TooLarge: over `most_bytes`.
        Invalid: it is none; with the reason.
    """
    if len(document) > most_bytes:
        raise TooLarge(f"the body is larger than {most_bytes} bytes")
    try:
        value = read(document)
    except ValueError as error:
        raise Invalid(f"invalid JSON: {error}") from None
    if not isinstance(value, dict):
        raise Invalid("the body must be a JSON object")
    return value


def printable(key: str) -> str:
    """A key from a stranger in a form that any answer and any log can hold."""
    return key[:64].encode("ascii", "backslashreplace").decode()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f'duplicate key "{printable(key)}"')
        result[key] = value
    return result


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_int=float)


def _is_deeper_than(limit: int, value: Any) -> bool:
    level = _containers([value])
    for _ in range(limit):
        level = [child for item in level for child in _containers(item)]
        if not level:
            return False
    return True


def _containers(parent: dict[str, Any] | list[Any]) -> list[dict[str, Any] | list[Any]]:
    children = parent.values() if isinstance(parent, dict) else parent
    return [child for child in children if isinstance(child, dict | list)]
