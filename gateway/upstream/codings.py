"""Content codings of answers: gzip and deflate, undone piece by piece and in bounded steps.

The gateway asks for `identity`, but some agents compress all the same (contract 2.4; pitfalls 20, 79).
"""

from __future__ import annotations

import zlib
from typing import Final

STEP: Final = 65_536  # most bytes that one `read` returns

_GZIP: Final = 31
_ZLIB: Final = 15
_RAW: Final = -15
_NAMES: Final[dict[bytes, bool]] = {b"gzip": True, b"x-gzip": True, b"deflate": False}


class UndecodableError(Exception):
    """The coding is unknown, or the data does not follow it."""


class Decoder:
    """Undoes one content coding. Feed it, then `read` until it returns less than `STEP` bytes."""

    __slots__ = ("_fed", "_gzip", "_held", "_inflate")

    def __init__(self, codings: tuple[bytes, ...]) -> None:
        """Prepare for the codings of an answer; unknown ones show when data comes (an empty body has none)."""
        self._gzip = _NAMES.get(codings[0]) if len(codings) == 1 else None
        self._held = b""
        self._fed = False
        self._inflate = zlib.decompressobj(_GZIP) if self._gzip else None

    @property
    def whole(self) -> bool:
        """Whether the data so far is complete; nothing at all counts as an empty body."""
        if not self._fed:
            return True
        return self._inflate is not None and self._inflate.eof and not self._held.strip(b"\0")

    def feed(self, data: bytes) -> None:
        """Take coded bytes.

        Raises:
            UndecodableError: the coding is unknown.
        """
        if self._gzip is None:
            raise UndecodableError
        self._fed = True
        self._held += data

    def read(self) -> bytes:
        """Decode at most `STEP` bytes of what was fed.

        Raises:
            UndecodableError: the data is broken.
        """
        decoded = b""
        while len(decoded) < STEP:
            inflate = self._ready()
            if inflate is None:
                break
            try:
                more = inflate.decompress(self._held, STEP - len(decoded))
            except zlib.error:
                raise UndecodableError from None
            self._held = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
            decoded += more
            if not more and not inflate.eof:
                break
        return decoded

    def _ready(self) -> zlib._Decompress | None:
        """The decompressor for what is held; None when more bytes are needed, or nothing may follow."""
        if self._inflate is None:
            if len(self._held) < 2:
                return None
            self._inflate = zlib.decompressobj(_ZLIB if _is_zlib(self._held) else _RAW)
        elif self._inflate.eof:
            if not self._held.strip(b"\0"):  # the end, or padding after it
                return None
            if not self._gzip:
                raise UndecodableError
            self._inflate = zlib.decompressobj(_GZIP)  # gzip files may be joined
        return self._inflate


def _is_zlib(data: bytes) -> bool:
    return data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
