"""What commands write: tables for people, documents for scripts; nothing foreign reaches a terminal as it is."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from rich.cells import cell_len, set_cell_size

from gateway.operator.failures import ERROR, Failed
from healthcheck.text import printable

#: Words that have a colour (SGR codes).
_COLOURS: Final = {
    "HEALTHY": "32",
    "in_service": "32",
    "DEGRADED": "33",
    "degraded": "33",
    "UNHEALTHY": "31",
    "UNREACHABLE": "31;1",
    "out_of_service": "31;1",
    "MISCONFIGURED": "35",
    "UNKNOWN": "36",
    "unchecked": "36",
}
_GAP: Final = "  "
_NARROWEST: Final = 8
_LINE_ENDS: Final = re.compile(r"[\r\n][\t\r\n ]*")
_FOREIGN: Final = re.compile(r"[^\n\t\x20-\x7e]+")
_BEYOND_ASCII: Final = re.compile(r"[^\n\r\t\x20-\x7e]")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: Its heading.
        whole: Its values are never shortened, since people copy them.
    """

    title: str
    whole: bool = False


def on_terminal() -> bool:
    """Whether people see standard output as it comes."""
    return sys.stdout is not None and sys.stdout.isatty()


def write(text: str) -> None:
    """Write to standard output at once.

    Raises:
        BrokenPipeError: the reader has gone.
        Failed: it is closed, or the disk is full.
    """
    stream = sys.stdout
    if stream is None:
        raise Failed(ERROR, "standard output is closed")
    try:
        stream.write(_narrowed(text, stream))
        stream.flush()
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "closed"
        raise Failed(ERROR, f"standard output cannot be written: {why}") from None


def say(line: str) -> None:
    """Write a line to standard error, foreign text in it made harmless; where nobody listens, it is lost."""
    stream = sys.stderr
    if stream is None:
        return
    try:
        stream.write(_narrowed(printable(line), stream) + "\n")
        stream.flush()
    except OSError:
        return


def _narrowed(text: str, stream: TextIO) -> str:
    """The text in what the stream can write; it must not stop in the middle because of an odd character."""
    encoding = stream.encoding or "ascii"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def silence() -> None:
    """Let what is left to be written go nowhere, so that the interpreter's own flush does not complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


# -- documents


def write_document(body: bytes) -> None:
    """Write a JSON document of the gateway on a line, member for member as it came."""
    write(on_a_line(harmless_json(body.decode("utf-8", "replace"))) + "\n")


def on_a_line(document: str) -> str:
    """Put JSON on one line: the ends of lines stand between its members only."""
    return _LINE_ENDS.sub(" ", document.strip())


def harmless_json(text: str) -> str:
    """Write characters that act on a terminal as JSON's escapes: the document stays the same."""
    return _BEYOND_ASCII.sub(
        lambda found: found[0] if printable(found[0]) == found[0] else _escaped(found[0]), text
    )


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"


def lines_of(text: str) -> str:
    """Foreign text for people: its lines stay, everything else that acts on a terminal is written out."""
    return _FOREIGN.sub(lambda found: printable(found[0]), text.replace("\r\n", "\n").replace("\r", "\n"))


# -- tables


def write_table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    """Write a table: fitted to the terminal, or, in a pipe, with every value whole."""
    write("".join(f"{line}\n" for line in table(columns, rows, terminal_size().columns if on_terminal() else 0)))


def terminal_size() -> os.terminal_size:
    """Columns and lines of the terminal."""
    return shutil.get_terminal_size((100, 30))


def table(columns: Sequence[Column], rows: Iterable[Sequence[object]], width: int) -> list[str]:
    """Give the lines of a table. Empty values are a hyphen, so that columns can be counted.

    Args:
        columns: The columns.
        rows: Values of any kind; foreign text in them is made harmless.
        width: Of the terminal, in cells; columns are shortened to it; 0: there is none, and nothing is.
    """
    titles = [column.title for column in columns]
    cells = [titles, *([printable(_shown(value)) or "-" for value in row] for row in rows)]
    widths = [max(cell_len(line[at]) for line in cells) for at in range(len(columns))]
    if width:
        _shrink(widths, columns, width)
    colour = coloured if width else str
    lines = []
    for line in cells:
        padded = [_fitted(cell, size) for cell, size in zip(line, widths, strict=True)]
        filled = [colour(cell) + " " * (size - cell_len(cell)) for cell, size in zip(padded, widths, strict=True)]
        lines.append(_GAP.join(filled).rstrip())
    return lines


def _shrink(widths: list[int], columns: Sequence[Column], width: int) -> None:
    """Take what is too much from the widest of the columns that may be shortened."""
    while sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        wide = [at for at, column in enumerate(columns) if not column.whole and widths[at] > _NARROWEST]
        if not wide:
            return
        widths[max(wide, key=widths.__getitem__)] -= 1


def _fitted(cell: str, width: int) -> str:
    return cell if cell_len(cell) <= width else set_cell_size(cell, width - 1).rstrip() + "…"


def write_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Write names and values below each other; those without a value are left out."""
    shown = [(name, _shown(value)) for name, value in pairs if value not in (None, "", [], {})]
    width = max((len(name) for name, _ in shown), default=0)
    write("".join(f"{name.ljust(width)}{_GAP}{coloured(printable(value))}\n" for name, value in shown))


def coloured(word: str) -> str:
    """A status in its colour, where there are colours."""
    code = _COLOURS.get(word)
    if code is None or not on_terminal() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return word
    return f"\x1b[{code}m{word}\x1b[0m"


def clear() -> None:
    """Empty the terminal."""
    write("\x1b[H\x1b[2J")


def redraw(lines: Sequence[str]) -> None:
    """Replace what is on the terminal by these lines, cut to its height."""
    room = lines[: max(1, terminal_size().lines - 1)]
    write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in room) + "\x1b[J")


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(_shown(one) for one in value)
    return str(value)
