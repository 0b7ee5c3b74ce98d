"""What the settings name and the present environment lacks: variables with secrets, files with keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gateway.credentials import usable
from gateway.settings import Settings, UpstreamSettings

_NO_START = "serve would not start here"
_NO_CALLS = "calls to this agent would fail here"


def lacking(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    """Give a line for each, in the words in which the gateway would say it, and what would come of it.

    None is a mistake in the settings: a machine that checks them need not hold the secrets. Nothing of a secret
    is repeated. Files are read, nobody is asked.
    """
    for problem in (*_key(settings, environ), *_certificates(settings.upstream)):
        yield f"{problem} ({_NO_START})"
    for agent_id, one in settings.upstream.credentials.items():
        if not usable(environ.get(one.bearer_env)):
            yield f"upstream.credentials.{agent_id}: {one.bearer_env}: not set, or not a token ({_NO_CALLS})"


def _key(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    if not settings.auth.enable or settings.auth.jwks_url is not None:
        return
    from gateway.errors import StartError
    from gateway.key_sources import fixed_key  # not needed by most, and slow to import

    try:
        fixed_key(settings.auth, environ)
    except StartError as error:
        yield str(error)


def _certificates(upstream: UpstreamSettings) -> Iterator[str]:
    if upstream.ca_file is None and upstream.client_cert is None:
        return
    from gateway.upstream.tls import client_context

    try:
        client_context(ca_file=upstream.ca_file, client_cert=upstream.client_cert, client_key=upstream.client_key)
    except ValueError as error:
        yield str(error)
