"""Pure: the members of a JSON object that decide, out of a text that may be long, odd or hostile.

Nothing here builds the tree of a text, which for 10 MiB takes seconds and a hundred times the memory: msgspec
passes over what is not asked for, and checks it on the way. It refuses lone surrogates, which are legal JSON.
"""

from __future__ import annotations

import json
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType
from stringzilla import find_first_not_of, rfind

#: Bytes: shorter texts are read as they are.
LONG: Final = 8192
#: ASCII without control characters, quotes and backslashes: stands in a string for itself.
_PLAIN: Final = bytes(set(range(0x20, 0x80)) - set(b'"\\'))


class _Members(msgspec.Struct, gc=False):
    """The members of a request or response that decide, as their last occurrence says."""

    jsonrpc: Raw | UnsetType = UNSET
    id: Raw | UnsetType = UNSET
    method: Raw | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class Document(msgspec.Struct, gc=False):
    """A JSON text: itself, or with its surrogates marked; without members if it is no object."""

    text: bytes
    members: _Members | None
    marked: bool

    def get(self, name: str) -> bytes | None:
        """Give the text of a member's value; None if there is none."""
        raw: Raw | UnsetType = getattr(self.members, name)
        if raw is UNSET:
            return None
        return _unmarked(bytes(raw)) if self.marked else bytes(raw)


_decode_members = msgspec.json.Decoder(_Members).decode
_decode_any = msgspec.json.Decoder(Raw).decode


def open_text(body: bytes) -> Document:
    """Check a JSON text and find its members (contract 2.1 rule 3).

    Raises:
        ValueError: Why it is no JSON text.
    """
    try:
        if not body.isascii():
            body.decode()
        try:
            return Document(body, _members(body), False)
        except msgspec.DecodeError:
            marked = _marked(body)
            if marked is body:
                raise
        return Document(marked, _members(marked), True)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 (byte {error.start})") from None
    except msgspec.DecodeError as error:
        raise ValueError(_malformed(str(error)) if body.strip() else "empty body") from None


def _malformed(problem: str) -> str:
    """Say what msgspec has found, and where: it counts bytes from 0."""
    what = problem.removeprefix("JSON is malformed: ")
    return "not JSON: it ends too early" if what == "Input data was truncated" else f"not JSON: {what}"


def condensed(text: bytes | memoryview) -> bytes:
    """Empty the long plain strings of a long text: if what is left is JSON, so is the text.

    A file in a message is one such string; the search takes an eighth of the time in which msgspec passes over it.
    What is cut stands between two quotes, and has neither quotes nor backslashes. A parser that has come to the
    first of them without a fault

    - is then inside a string, which this quote began, or in which it is escaped: what is cut is content, of which
      any amount will do, and the second quote ends the string;
    - or has just ended a string: then what is left is no JSON, having a string behind a string.

    The cut lies between ASCII bytes: it makes no UTF-8. More than LONG / 4 bytes are cut at a time: no name that
    anybody looks for. What was cut, be it a name or a value, is empty now, or ends with an escaped quote.
    """
    while len(text) >= LONG:
        middle = len(text) // 2
        begin = rfind(text, b'"', 0, middle) + 1
        end = find_first_not_of(text, _PLAIN, begin)
        if not begin or end - begin <= middle // 2 or text[end] != 0x22:
            break
        text = b"".join((text[:begin], text[end:]))
    return bytes(text)


def _members(text: bytes) -> _Members | None:
    try:
        return _decode_members(text)
    except msgspec.ValidationError:
        _decode_any(text)  # no object: raises unless it is JSON
        return None


def _marked(text: bytes) -> bytes:
    r"""Spell a JSON text so that msgspec takes lone surrogates: `\ud83d` as `\uE83d`, `\uE000` as `\ue000`.

    Escaped backslashes become bytes that no text has: then every backslash left begins an escape.
    """
    if rb"\ud" not in text and rb"\uD" not in text:
        return text
    text = text.replace(rb"\\", b"\xff\xff").replace(rb"\uE", rb"\ue")
    return text.replace(rb"\ud", rb"\uE").replace(rb"\uD", rb"\uE")


def _unmarked(value: bytes) -> bytes:
    return value.replace(rb"\uE", rb"\ud").replace(b"\xff\xff", rb"\\")


def string(text: bytes | None) -> str | None:
    """Read a value that is a string; None for any other."""
    return str(json.loads(text.decode())) if text is not None and text[0] == 0x22 else None


# How often a name occurs is told by a hook, which msgspec calls for each occurrence. It is handed the value, so
# types refuse containers before: a name whose last value is none and that has one occurs twice.

#: The longest integer that msgspec reads.
_DIGITS: Final = 4300


#: Makes marked strings UTF-8 again.
_READABLE: Final = bytes.maketrans(b"\xff", b"_")


class _PlainId(msgspec.Struct, gc=False):
    id: str | int | None = None


class _Plain(_PlainId, gc=False):
    jsonrpc: str = ""
    method: str = ""


class _Id:
    __slots__ = ()


class _Version:
    __slots__ = ()


class _Method:
    __slots__ = ()


class _CountedId(msgspec.Struct, gc=False):
    id: _Id = UNSET  # type: ignore[assignment]  # a union would hide null from the hook


class _Counted(_CountedId, gc=False):
    jsonrpc: _Version = UNSET  # type: ignore[assignment]
    method: _Method = UNSET  # type: ignore[assignment]


def repeated(text: bytes, id: bytes, *, only_id: bool) -> list[str]:
    """Give which of the names that decide are repeated: `id`, and one of the others (contract 2.1 rule 5).

    Args:
        text: The request.
        id: The text of its last id, which is one that is allowed.
        only_id: The last value of another name is not allowed: those are not looked at.
    """
    text = text.translate(_READABLE)
    if len(id) > _DIGITS:  # in the middle of an escape, too, four digits do
        text = text.replace(id, b"1111")
    first = "" if only_id else _first_repeated(text, _Plain, _Counted)
    if only_id or first not in ("", "id"):  # of the id itself nothing is known yet
        return [name for name in (_first_repeated(text, _PlainId, _CountedId), first) if name]
    return [first] if first else []


def _first_repeated(text: bytes, plain: type[_PlainId], counted: type[_CountedId]) -> str:
    seen: set[type] = set()

    def note(kind: type, _: object) -> object:
        if kind in seen:
            raise ValueError
        seen.add(kind)
        return kind()

    try:
        msgspec.json.decode(text, type=plain)
        msgspec.json.decode(text, type=counted, dec_hook=note)
    except msgspec.ValidationError as error:
        return str(error).rpartition("$.")[2].rstrip("`")
    return ""
