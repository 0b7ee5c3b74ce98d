"""Pure: read a JSON-RPC request, judge an agent's answer, write an error (contract 2.1, 2.4).

The common case costs one msgspec decode that skips `params`. Whatever that decode refuses goes to
`_read_slowly`, which knows every rule and finds the exact fault (or the legal oddity: a lone surrogate).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gateway.faults import Fault

NULL: Final = b"null"


class Refused(Exception):
    """A request that breaks a rule of contract 2.1: the reason of the fault, a detail, the id if readable."""

    def __init__(self, reason: str, detail: str, id: bytes = NULL) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail
        self.id = id


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """What the gateway reads of a request; everything else is the agent's.

    Attributes:
        id: The raw JSON text of the id; None for a notification.
        method: The method's name.
        timeout: `params.configuration.timeout` in seconds, if given.
    """

    id: bytes | None
    method: str
    timeout: float | None = None


class _Request(msgspec.Struct, gc=False):
    jsonrpc: str
    method: str
    id: Raw | UnsetType = UNSET
    params: Raw | UnsetType = UNSET


class _Configuration(msgspec.Struct, gc=False):
    timeout: float | None = None


class _Params(msgspec.Struct, gc=False):
    configuration: _Configuration | None = None


class _Response(msgspec.Struct, gc=False):
    jsonrpc: Raw | UnsetType = UNSET
    id: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_decode_request = msgspec.json.Decoder(_Request).decode
_decode_params = msgspec.json.Decoder(_Params).decode
_decode_response = msgspec.json.Decoder(_Response).decode
_encode = msgspec.json.Encoder().encode
_INTEGER: Final = re.compile(r"-?\d+", re.ASCII).fullmatch


def read(body: bytes) -> Envelope:
    """Read and check a request body (contract 2.1, rules 3 to 9).

    Raises:
        Refused: The first rule that the body breaks.
    """
    try:
        request = _decode_request(body)
        id = None if request.id is UNSET else bytes(request.id)
        params = NULL if request.params is UNSET else bytes(request.params)
        if (
            request.jsonrpc == "2.0"
            and request.method
            and (id is None or _is_plain_id(id))
            and (params[0] == 0x7B or params == NULL)
            and _is_unambiguous(body, params)
            and (body.isascii() or body.decode())
        ):
            # Backwards because that is four times as quick in a long text.
            named = params.rfind(b'"timeout"') >= 0 or b"\\" in params
            return Envelope(id, request.method, _timeout(params) if named else None)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError):
        pass  # not the common case: the slow reader finds out which
    return _read_slowly(body)


def _is_plain_id(id: bytes) -> bool:
    return id[0] == 0x22 or id.isdigit() or id == NULL or (id[0] == 0x2D and id[1:].isdigit())


def _is_unambiguous(body: bytes, params: bytes) -> bool:
    """Tell whether the three keys that decide occur once, as far as a look without parsing can tell.

    The params are cut out first, being long and full of such names. Should the same text stand elsewhere before
    them, the cut hides no key of the top level all the same: a balanced object covers none.
    """
    at = body.find(b"{", body.find(b'"params"'))
    if body.startswith(params, at):
        body = body[:at] + body[at + len(params) :]
    return not (
        b"\\" in body or body.count(b'"id"') > 1 or body.count(b'"method"') > 1 or body.count(b'"jsonrpc"') > 1
    )


def _timeout(params: bytes) -> float | None:
    configuration = _decode_params(params).configuration
    timeout = None if configuration is None else configuration.timeout
    if timeout is not None and not 0 < timeout < math.inf:
        raise ValueError
    return timeout


# --- the slow reader ---


class _Number(str):
    """The text of a number literal: ids keep their digits, and nothing overflows."""

    __slots__ = ()


class _Integer(_Number):
    __slots__ = ()


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with its duplicate keys."""

    __slots__ = ()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_parse = json.JSONDecoder(
    object_pairs_hook=_Pairs, parse_int=_Integer, parse_float=_Number, parse_constant=_no_constant
).decode


def _read_slowly(body: bytes) -> Envelope:
    value = _parse_text(body)
    if not isinstance(value, _Pairs):
        raise Refused("INVALID_REQUEST", "a batch" if type(value) is list else "not an object")
    names = [name for name, _ in value]
    members = dict(value)
    id = _id_text(members.get("id"), "id" in members) if names.count("id") < 2 else NULL
    echo = id or NULL
    for name in ("jsonrpc", "id", "method"):
        if names.count(name) > 1:
            raise Refused("INVALID_REQUEST", f"more than one {name}", echo)
    method = members.get("method")
    if members.get("jsonrpc") != "2.0" or isinstance(members["jsonrpc"], _Number):
        raise Refused("INVALID_REQUEST", 'jsonrpc must be "2.0"', echo)
    if type(method) is not str or not method:
        raise Refused("INVALID_REQUEST", "method must be a non-empty string", echo)
    if id == b"":
        raise Refused("INVALID_REQUEST", "id must be a string, an integer or null")
    params = members.get("params")
    if not (params is None or isinstance(params, _Pairs)):
        raise Refused("INVALID_PARAMS", "params must be an object", echo)
    return Envelope(id, method, _slow_timeout(params, echo))


def _parse_text(body: bytes) -> Any:
    try:
        return _parse(body.decode())
    except RecursionError:
        raise Refused("PARSE_ERROR", "nested too deeply") from None
    except UnicodeDecodeError:
        raise Refused("PARSE_ERROR", "not UTF-8") from None
    except ValueError:
        raise Refused("PARSE_ERROR", "not JSON" if body.strip() else "empty body") from None


def _id_text(value: Any, present: bool) -> bytes | None:
    """Give the JSON text of an id; None if there is none, empty if its type is not allowed."""
    if not present:
        return None
    if value is None:
        return NULL
    if isinstance(value, _Integer):
        return value.encode()
    if type(value) is str:
        return json.dumps(value).encode()
    return b""


def _slow_timeout(params: _Pairs | None, echo: bytes) -> float | None:
    configuration = dict(params or ()).get("configuration")
    timeout = dict(configuration).get("timeout") if isinstance(configuration, _Pairs) else None
    if timeout is None:
        return None
    seconds = float(timeout) if isinstance(timeout, _Number) else math.nan
    if not 0 < seconds < math.inf:
        raise Refused("INVALID_PARAMS", "configuration.timeout must be a number of seconds above 0", echo)
    return seconds


# --- the agent's answer ---


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What an agent's 2xx or error body is worth: the bytes for the caller, or why it is none."""

    body: bytes | None
    is_error: bool = False
    problem: str = ""


def judge(body: bytes, id: bytes) -> Verdict:
    """Judge the body of a 2xx answer to the request with this raw id (contract 2.4, first four rows)."""
    try:
        response = _decode_response(body)
        if (
            response.jsonrpc is not UNSET
            and response.id is not UNSET
            and bytes(response.jsonrpc) == b'"2.0"'
            and bytes(response.id) == id
            and (body.isascii() or body.decode())
        ):
            return Verdict(body, response.error is not UNSET and bytes(response.error) != NULL)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass  # not the common case: the slow judge finds out which
    return _judge_slowly(body, id)


def _judge_slowly(body: bytes, id: bytes) -> Verdict:
    try:
        value = _parse_text(body)
    except Refused as refused:
        return Verdict(None, problem=refused.detail)
    members = dict(value) if isinstance(value, _Pairs) else {}
    if "jsonrpc" not in members:
        return Verdict(b'{"jsonrpc":"2.0","id":' + id + b',"result":' + body.strip(b" \t\r\n") + b"}")
    if members["jsonrpc"] != "2.0" or isinstance(members["jsonrpc"], _Number):
        return Verdict(None, problem='jsonrpc is not "2.0"')
    error = members.get("error")
    own = _id_text(members.get("id"), "id" in members)
    if own and (own == id or _same_string(own, id)):
        return Verdict(body, error is not None)
    if error is not None and own in (None, NULL):
        return _with_id(body, id)
    return Verdict(None, problem="another id" if own is not None else "no id")


def _same_string(one: bytes, other: bytes) -> bool:
    return one[:1] == other[:1] == b'"' and bool(json.loads(one) == json.loads(other))


def _with_id(body: bytes, id: bytes) -> Verdict:
    """Pass on an error that names no request, with the caller's id and the agent's own text."""
    try:
        error = _decode_response(body).error
    except (msgspec.DecodeError, RecursionError):
        return Verdict(None, problem="not readable")
    raw = NULL if error is UNSET else bytes(error)
    return Verdict(b'{"jsonrpc":"2.0","id":' + id + b',"error":' + raw + b"}", True)


def is_response(body: bytes, id: bytes) -> bool:
    """Tell whether this is a JSON-RPC response to the id: such a body passes under any HTTP error status."""
    verdict = judge(body, id)
    return verdict.body is body


# --- errors ---

_INFO: Final = "type.googleapis.com/google.rpc.ErrorInfo"
_VALUE: Final = "type.googleapis.com/google.protobuf.Value"
_FOREIGN_LIMIT: Final = 65536


def error(
    fault: Fault,
    id: bytes,
    *,
    detail: str = "",
    a2a: bool = False,
    metadata: Mapping[str, str] | None = None,
    foreign: bytes | None = None,
) -> bytes:
    """Write a gateway-made error with its `google.rpc.ErrorInfo` (contract 2.4).

    Args:
        fault: The row of the table.
        id: Raw JSON text of the request's id.
        detail: Fills the message.
        a2a: True for callers in the A2A dialect, whose codes differ.
        metadata: Further members; text only.
        foreign: The agent's body, added as a second entry, at most 64 KiB of it.
    """
    data = error_data(fault, metadata or {}, foreign)
    problem = {
        "code": fault.a2a_code if a2a else fault.code,
        "message": fault.message.format(detail),
        "data": data,
    }
    return _encode({"jsonrpc": "2.0", "id": Raw(id), "error": problem})


def error_data(fault: Fault, metadata: Mapping[str, str], foreign: bytes | None = None) -> list[dict[str, Any]]:
    """Give the `data` of an error: the ErrorInfo, and what the agent said."""
    info = {
        "source": "gateway",
        "reason": fault.reason,
        "category": fault.category,
        "executed": "true" if fault.executed else "false",
        "retry": fault.retry,
        **metadata,
    }
    data: list[dict[str, Any]] = [
        {"@type": _INFO, "reason": fault.reason, "domain": "vitalgate", "metadata": info}
    ]
    if foreign is not None:
        value, cut = _foreign_value(foreign)
        if cut:
            info["bodyTruncated"] = "true"
        data.append({"@type": _VALUE, "value": value})
    return data


def _foreign_value(body: bytes) -> tuple[Any, bool]:
    if len(body) <= _FOREIGN_LIMIT:
        try:
            msgspec.json.decode(body, type=Raw)
            body.decode()
            return Raw(body.strip(b" \t\r\n")), False
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            pass  # not JSON: its text
    return body[:_FOREIGN_LIMIT].decode(errors="replace"), len(body) > _FOREIGN_LIMIT
