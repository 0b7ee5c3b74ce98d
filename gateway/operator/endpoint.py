"""Which gateway a command talks to, and who it says it is: from options and environment variables."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.operator.failures import USAGE, Failed
from registry.url import parse_url

DEFAULT_URL: Final = "http://127.0.0.1:9090"
URL_VARIABLE, TOKEN_VARIABLE, TOKEN_FILE_VARIABLE = "VITALGATE_URL", "VITALGATE_TOKEN", "VITALGATE_TOKEN_FILE"
_LARGEST_TOKEN: Final = 64 * 1024
#: What may follow `Bearer ` in a header.
_TOKEN: Final = re.compile(r"[\x21-\x7e]+").fullmatch


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A gateway as a command reaches it.

    Attributes:
        url: Base URL without a slash at its end.
        token: What it is shown; empty: nothing.
        ca_file: PEM file of an authority that is trusted in addition.
    """

    url: str
    token: str = field(default="", repr=False)
    ca_file: str | None = None


def read_endpoint(
    url: str | None,
    token: str | None,
    token_file: str | None,
    ca_file: str | None,
    environ: Mapping[str, str] = os.environ,
) -> Endpoint:
    """Put the endpoint together; options win over variables.

    Raises:
        Failed: USAGE; no value of a token is repeated.
    """
    if token is not None and token_file is not None:
        raise Failed(USAGE, "--token and --token-file: give one of them")
    if token is None and token_file is None:
        token = environ.get(TOKEN_VARIABLE) or None
        token_file = None if token else environ.get(TOKEN_FILE_VARIABLE) or None
    shown = _read_token(token_file) if token_file is not None else (token or "").strip()
    if shown and not _TOKEN(shown):
        raise Failed(USAGE, "the token must be visible ASCII without blanks; give it without the word Bearer")
    return Endpoint(_base_url(url or environ.get(URL_VARIABLE) or DEFAULT_URL), shown, ca_file)


def _base_url(text: str) -> str:
    try:
        url = parse_url(text)
    except ValueError as error:
        raise Failed(USAGE, f"the gateway's URL: {error}; such as {DEFAULT_URL}") from None
    if b"?" in url.target:
        raise Failed(USAGE, "the gateway's URL: must have no query")
    return str(url).rstrip("/")


def _read_token(path: str) -> str:
    try:
        with sys.stdin.buffer if path == "-" else open(path, "rb") as file:
            data = file.read(_LARGEST_TOKEN + 1)
    except (OSError, ValueError, AttributeError) as error:
        why = getattr(error, "strerror", None) or "cannot be read"
        raise Failed(USAGE, f"--token-file: {path}: {why}") from None
    text = data.decode("latin-1").strip()
    if not text or len(data) > _LARGEST_TOKEN:
        raise Failed(USAGE, f"--token-file: {path}: holds no token")
    return text
