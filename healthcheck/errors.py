"""What ends a command of this package with exit code 6 (health contract 1)."""

from __future__ import annotations


class ToolFailed(Exception):
    """The tool itself failed: the text is the one line for standard error, without any secret."""
