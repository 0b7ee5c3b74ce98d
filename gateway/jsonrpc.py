"""Pure: read a JSON-RPC request, judge an agent's answer, write an error (contract 2.1, 2.4).

The common case costs one msgspec decode that skips `params`. Whatever that decode refuses goes to
`_read_slowly`, which knows every rule and finds the exact fault (or the legal oddity: a lone surrogate).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gateway.faults import Fault
from gateway.json_text import LONG, condensed, open_text, repeated, string

NULL: Final = b"null"
#: How a string ends that may have been emptied.
_EMPTY: Final = b'""'
_COLONS: Final = frozenset((b":", b": "))
#: No backslash: then a quote begins or ends a string, and a name follows only where it begins one.
_BEFORE_NAME: Final = b"{, \n"
#: Bytes: so near the end of a long text something is looked for first.
_NEAR: Final = 2000


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


def read(body: bytes | memoryview) -> Envelope:
    """Read and check a request body (contract 2.1, rules 3 to 9).

    Raises:
        Refused: The first rule that the body breaks.
    """
    try:
        text = body if isinstance(body, bytes) and len(body) < LONG else condensed(body)  # spares a call
        request = _decode_request(text)
        id = None if request.id is UNSET else bytes(request.id)
        params = b"" if request.params is UNSET else request.params
        begin = _place(text, params) if params else 0
        end = begin + len(params)
        if (
            begin >= 0
            and request.jsonrpc == "2.0"
            and request.method
            and (id is None or (_is_plain_id(id) and id != _EMPTY))
            and _is_unambiguous(text[:begin] + text[end:])
            and (text.isascii() or text.decode())
        ):
            return Envelope(id, request.method, _find_timeout(text, begin, end))
    except (msgspec.DecodeError, RecursionError, ValueError):
        pass  # not the common case: the slow reader finds out which
    return _read_slowly(bytes(body))


def _is_plain_id(id: bytes) -> bool:
    return id[0] == 0x22 or id.isdigit() or id == NULL or (id[0] == 0x2D and id[1:].isdigit())


def _place(body: bytes, params: bytes | Raw) -> int:
    """Tell where the params begin; -1 if they are no object, or it takes a closer look to find them.

    Should the name stand earlier, inside some value, then an object there that ended with the request would have
    to be longer; and where the name is written with escapes, there is a backslash before. Should the whole text of
    the params stand there, that hides no key of the top level all the same: a balanced object covers none.
    """
    name = body.find(b'"params"')
    begin = body.find(b"{", name)
    if body[name + 8 : begin] in _COLONS and (
        begin + len(params) == len(body) - 1 or body.startswith(bytes(params), begin)
    ):
        return begin
    return -1


def _without(body: bytes, params: bytes) -> bytes:
    """Empty the params, being long and full of names.

    Should the same text stand elsewhere before them, that hides no key of the top level all the same: a balanced
    object covers none.
    """
    at = body.find(b"{", body.find(b'"params"'))
    return body[:at] + b"{}" + body[at + len(params) :] if body.startswith(params, at) else body


def _is_unambiguous(body: bytes) -> bool:
    """Tell whether the three keys that decide occur once, as far as a look without parsing can tell.

    No backslash: so none of their values was emptied behind an escaped quote.
    """
    return not (
        b"\\" in body or body.count(b'"id"') > 1 or body.count(b'"method"') > 1 or body.count(b'"jsonrpc"') > 1
    )


def _find_timeout(body: bytes, begin: int, end: int) -> float | None:
    """Give the timeout in the params that stand there, looking at as little of a long text as will do.

    A long message mostly stands before its configuration. If what follows the last `"configuration"` ends an
    object whose first member that is, then this object is the params: one that lies deeper would not be the last
    to end. And of two members with one name the last counts.
    """
    if end - begin >= LONG:
        last = body.rfind(b'"configuration"', max(begin, end - _NEAR), end)
        if last > 0 and body[last - 1] in _BEFORE_NAME:
            try:
                return _timeout(b"{" + body[last:end])
            except msgspec.DecodeError:
                pass  # it lies deeper, or is not acceptable: the whole text will tell
    # Backwards because that is four times as quick in a long text.
    named = body.find(b"\\", begin, end) >= 0 or body.rfind(b'"timeout"', begin, end) >= 0
    return _timeout(body[begin:end]) if named else None


def _timeout(params: bytes) -> float | None:
    configuration = _decode_params(params).configuration
    timeout = None if configuration is None else configuration.timeout
    if timeout is not None and not 0 < timeout < math.inf:
        raise ValueError
    return timeout


# --- the slow reader ---


def _read_slowly(body: bytes) -> Envelope:
    try:
        document = open_text(body)
    except ValueError as error:
        raise Refused("PARSE_ERROR", str(error)) from None
    if document.members is None:
        raise Refused("INVALID_REQUEST", "a batch" if body.lstrip()[:1] == b"[" else "not an object")
    id, method, params = document.get("id"), string(document.get("method")), _text(document.members.params)
    problem = "" if method else "method must be a non-empty string"
    if string(document.get("jsonrpc")) != "2.0":
        problem = 'jsonrpc must be "2.0"'
    if id is not None and not _is_plain_id(id):
        raise Refused("INVALID_REQUEST", problem or "id must be a string, an integer or null")
    rest = _without(document.text, params)
    twice = [] if _is_unambiguous(rest) else repeated(rest, id or b"", only_id=bool(problem))
    echo = NULL if id is None or "id" in twice else id
    if twice or problem:
        raise Refused("INVALID_REQUEST", f"more than one {twice[0]}" if twice else problem, echo)
    if not (params == NULL or params[0] == 0x7B):
        raise Refused("INVALID_PARAMS", "params must be an object", echo)
    return Envelope(id, method or "", _slow_timeout(params, echo))


class _Configured(msgspec.Struct, gc=False):
    configuration: Raw | UnsetType = UNSET


class _Timed(msgspec.Struct, gc=False):
    timeout: Raw | UnsetType = UNSET


_decode_configured = msgspec.json.Decoder(_Configured).decode
_decode_timed = msgspec.json.Decoder(_Timed).decode


def _slow_timeout(params: bytes, echo: bytes) -> float | None:
    configuration = NULL if params == NULL else _text(_decode_configured(params).configuration)
    timeout = _text(_decode_timed(configuration).timeout) if configuration[0] == 0x7B else NULL
    if timeout == NULL:
        return None
    seconds = float(timeout) if timeout[0] in b"-0123456789" else math.nan
    if not 0 < seconds < math.inf:
        raise Refused("INVALID_PARAMS", "configuration.timeout must be a number of seconds above 0", echo)
    return seconds


def _text(raw: Raw | UnsetType) -> bytes:
    return NULL if raw is UNSET else bytes(raw)


# --- the agent's answer ---


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What an agent's 2xx or error body is worth: the bytes for the caller, or why it is none."""

    body: bytes | memoryview | None
    is_error: bool = False
    problem: str = ""


def judge(body: bytes | memoryview, id: bytes) -> Verdict:
    """Judge the body of a 2xx answer to the request with this raw id (contract 2.4, first four rows)."""
    try:
        text = body if isinstance(body, bytes) and len(body) < LONG else condensed(body)  # spares a call
        response = _decode_response(text)
        if (
            response.jsonrpc is not UNSET
            and response.id is not UNSET
            and bytes(response.jsonrpc) == b'"2.0"'
            and bytes(response.id) == id
            and id[-2:] != _EMPTY
            and (text.isascii() or text.decode())
        ):
            return Verdict(body, response.error is not UNSET and bytes(response.error) != NULL)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass  # not the common case: the slow judge finds out which
    return _judge_slowly(bytes(body), id)


def _judge_slowly(body: bytes, id: bytes) -> Verdict:
    try:
        document = open_text(body)
    except ValueError as problem:
        return Verdict(None, problem=str(problem))
    version = None if document.members is None else document.get("jsonrpc")
    if document.members is None or version is None:
        return Verdict(b'{"jsonrpc":"2.0","id":' + id + b',"result":' + body.strip(b" \t\r\n") + b"}")
    if string(version) != "2.0":
        return Verdict(None, problem='jsonrpc is not "2.0"')
    error = document.get("error") or NULL
    own = document.get("id")
    if own is not None and _is_same_id(own, id):
        return Verdict(body, error != NULL)
    if error != NULL and own in (None, NULL):
        return Verdict(b'{"jsonrpc":"2.0","id":' + id + b',"error":' + error + b"}", True)
    return Verdict(None, problem="another id" if own is not None else "no id")


def _is_same_id(one: bytes, other: bytes) -> bool:
    """Tell whether two ids have the same type and value: JSON knows two spellings of an integer, `-0` and `0`."""
    if one[:1] == other[:1] == b'"':
        return string(one) == string(other)
    return one == other or {one, other} == {b"0", b"-0"}


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
