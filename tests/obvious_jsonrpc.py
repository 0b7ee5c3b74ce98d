"""The obvious reader of contract 2.1 and 2.4: it builds the whole tree, and so costs seconds for a large body."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


class Number(str):
    """The text of a number."""


class Integer(Number):
    """The text of a number without fraction and exponent."""


class Pairs(list[tuple[str, Any]]):
    """An object with its repeated names."""


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


_parse = json.JSONDecoder(
    object_pairs_hook=Pairs, parse_int=Integer, parse_float=Number, parse_constant=_no_constant
).decode


def parse(body: bytes) -> Any:
    """Read a body, or raise ValueError or RecursionError."""
    return _parse(body.decode())


def read(body: bytes) -> tuple[Any, ...]:
    """Give (id, method, timeout), or (reason, id) of the refusal; ids decoded, integers as their digits."""
    try:
        value = parse(body)
    except (ValueError, RecursionError):
        return "PARSE_ERROR", None
    if not isinstance(value, Pairs):
        return "INVALID_REQUEST", None
    names = [name for name, _ in value]
    members = dict(value)
    id = members.get("id")
    allowed = id is None or isinstance(id, Integer) or type(id) is str
    echo = id if allowed and names.count("id") < 2 else None
    method = members.get("method")
    if (
        any(names.count(name) > 1 for name in ("jsonrpc", "id", "method"))
        or members.get("jsonrpc") != "2.0"
        or isinstance(members["jsonrpc"], Number)
        or type(method) is not str
        or not method
        or not allowed
    ):
        return "INVALID_REQUEST", echo
    params = members.get("params")
    configuration = dict(params).get("configuration") if isinstance(params, Pairs) else None
    timeout = dict(configuration).get("timeout") if isinstance(configuration, Pairs) else None
    seconds = float(timeout) if isinstance(timeout, Number) else math.nan
    if not (params is None or isinstance(params, Pairs)) or not (timeout is None or 0 < seconds < math.inf):
        return "INVALID_PARAMS", echo
    return id, method, None if timeout is None else seconds


def judge(body: bytes, id: bytes) -> str:
    """Give what an answer is: own, error, wrapped, nameless (an error without id) or none."""
    try:
        value = parse(body)
    except (ValueError, RecursionError):
        return "none"
    members = dict(value) if isinstance(value, Pairs) else {}
    if "jsonrpc" not in members:
        return "wrapped"
    if members["jsonrpc"] != "2.0" or isinstance(members["jsonrpc"], Number):
        return "none"
    own, expected = members.get("id"), _parse(id.decode())
    zeros = isinstance(own, Integer) and isinstance(expected, Integer) and {own, expected} == {"0", "-0"}
    if "id" in members and (zeros or (type(own) is type(expected) and own == expected)):
        return "own" if members.get("error") is None else "error"
    return "nameless" if own is None and members.get("error") is not None else "none"
