"""From the settings of `auth` to an authenticator: reads the secret or the key file, or follows the key set."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import urlsplit

from gateway.auth import Authenticator, FixedKey, TokenTerms
from gateway.errors import StartError
from gateway.hosts import is_loopback
from gateway.jwks import JwksKeys
from gateway.keys import GOOD_SECRET, Key, UnusableKeyError, public_key, secret_key
from gateway.logs import Logs
from gateway.policy import Policy, Rule
from gateway.settings import AuthSettings, Settings
from gateway.upstream import AddressGuard, Upstream
from gateway.upstream.transport import PoolTransport


@asynccontextmanager
async def authenticator(
    settings: Settings, environ: Mapping[str, str], logs: Logs, *, on_loopback: bool = False
) -> AsyncIterator[Authenticator]:
    """Open what `auth` names, for as long as the gateway serves; `on_loopback` tells where it listens.

    Raises:
        StartError: a key cannot be used; the text is one line and holds nothing of it.
    """
    auth = settings.auth
    _warn(auth, environ, logs)
    if auth.jwks_url is None:
        yield Authenticator(FixedKey(_fixed_key(auth, environ)), _terms(auth), _policy(auth))
        return
    upstream = _upstream(settings, on_loopback)
    keys = JwksKeys(auth.jwks_url, PoolTransport(upstream), wanted=auth.algorithms)
    keys.start()
    try:
        yield Authenticator(keys, _terms(auth), _policy(auth))
    finally:
        await keys.aclose()
        await upstream.aclose()


def _fixed_key(auth: AuthSettings, environ: Mapping[str, str]) -> Key:
    try:
        if auth.secret_env is not None:
            return secret_key(environ.get(auth.secret_env, ""), auth.algorithms)
        with open(auth.public_key_file or "", "rb") as file:
            return public_key(file.read(1024 * 1024), auth.algorithms)
    except UnusableKeyError as error:
        named = f"auth.secret_env: {auth.secret_env}" if auth.secret_env else "auth.public_key_file"
        raise StartError(f"{named}: {error}") from None
    except OSError as error:
        raise StartError(f"auth.public_key_file: {(error.strerror or 'cannot be read').lower()}") from None


def _upstream(settings: Settings, on_loopback: bool) -> Upstream:
    """Connections to the identity provider, of their own.

    The address guard holds there, too, but for `upstream.allow_hosts`, which lists agents. Whatever may be
    skipped for agents, the provider's certificate is verified, and it is not shown the one meant for agents.
    """
    upstream = settings.upstream
    guard = AddressGuard(
        allow_loopback=upstream.allow_loopback or on_loopback,
        allow_private=upstream.allow_private,
        deny_hosts=upstream.deny_hosts,
    )
    try:
        return Upstream(guard=guard, ca_file=upstream.ca_file)
    except ValueError as error:
        raise StartError(str(error)) from error


def _terms(auth: AuthSettings) -> TokenTerms:
    return TokenTerms(auth.issuer, frozenset(auth.audience), auth.leeway_seconds, auth.principal_claim)


def _policy(auth: AuthSettings) -> Policy | None:
    if auth.policy is None:
        return None
    return Policy(
        Rule(rule.principals, rule.scopes, rule.call, rule.register_, rule.read, rule.administer)
        for rule in auth.policy
    )


def _warn(auth: AuthSettings, environ: Mapping[str, str], logs: Logs) -> None:
    """Say what is allowed and still unwise."""
    warn = partial(logs.event, level="warning")
    if auth.secret_env is not None and len(environ.get(auth.secret_env, "").encode()) < GOOD_SECRET:
        warn(f"the secret in {auth.secret_env} is shorter than {GOOD_SECRET} bytes: it can be found by trying")
    if not auth.audience and auth.secret_env is None:
        warn("auth.audience is not set: tokens issued for other services are accepted")
    url = urlsplit(auth.jwks_url or "")
    if url.scheme == "http" and not is_loopback(url.hostname or ""):
        warn("auth.jwks_url is not https: whoever is on the way can replace the keys")
