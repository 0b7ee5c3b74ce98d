"""From the settings of `auth` to an authenticator: reads the secret or the key file, or follows the key set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from urllib.parse import urlsplit

from gateway.auth import Authenticator, FixedKey, KeySource, TokenTerms
from gateway.errors import StartError
from gateway.hosts import is_loopback
from gateway.jwks import JwksKeys
from gateway.keys import GOOD_SECRET, Key, UnusableKeyError, public_key, secret_key
from gateway.logs import Logs
from gateway.policy import Policy, Rule
from gateway.settings import AuthSettings, Settings
from gateway.upstream import AddressGuard, Upstream
from gateway.upstream.transport import PoolTransport


class Authentication:
    """The authenticator of a process; `async with` keeps open what `auth` names. `prepare` changes it.

    Attributes:
        authenticator: Tells who calls.
    """

    authenticator: Authenticator

    def __init__(
        self, settings: Settings, environ: Mapping[str, str], logs: Logs, *, on_loopback: bool = False
    ) -> None:
        """Nothing is read yet; `on_loopback` tells where the gateway listens."""
        self._settings = settings
        self._environ = environ
        self._logs = logs
        self._on_loopback = on_loopback
        self._key: Key | None = None
        self._keys: JwksKeys | None = None
        self._open = AsyncExitStack()
        self._closing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Authentication:
        """Open it.

        Raises:
            StartError: a key cannot be used; the text is one line and holds nothing of it.
        """
        auth = self._settings.auth
        _warn(auth, self._environ, self._logs)
        found = self._found(self._settings)
        self.authenticator = Authenticator(self._opened(auth, found), _terms(auth), _policy(auth))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()
        if self._closing:
            await asyncio.wait(self._closing)

    def prepare(self, settings: Settings) -> Callable[[], list[str]]:
        """Read what these settings name; calling the result takes it, and names what is new in files.

        Raises:
            StartError: see `__aenter__`; nothing has changed.
        """
        found = self._found(settings)
        return lambda: self._take(settings, found)

    def _found(self, settings: Settings) -> Key | Upstream | None:
        """Read the one key, or make the way to the key set; None: the present key set stays."""
        if settings.auth.jwks_url is None:
            return fixed_key(settings.auth, self._environ)
        if self._keys is not None and _same_key_set(settings.auth, self._settings.auth):
            return None
        return _upstream(settings, self._on_loopback)

    def _take(self, settings: Settings, found: Key | Upstream | None) -> list[str]:
        auth, before = settings.auth, self._settings.auth
        renewed = auth.public_key_file == before.public_key_file and not _same_key(found, self._key)
        if auth == before and not renewed:
            return []
        if found is not None:
            self._retire()
        self._settings = settings
        _warn(auth, self._environ, self._logs)
        self.authenticator.change(self._opened(auth, found), _terms(auth), _policy(auth))
        return ["auth.public_key_file"] if renewed and auth.public_key_file is not None else []

    def _opened(self, auth: AuthSettings, found: Key | Upstream | None) -> KeySource:
        if isinstance(found, Key):
            self._key = found
            return FixedKey(found)
        if found is not None:
            self._keys = JwksKeys(auth.jwks_url or "", PoolTransport(found), wanted=auth.algorithms)
            self._keys.start()
            self._open.push_async_callback(found.aclose)
            self._open.push_async_callback(self._keys.aclose)
        assert self._keys is not None  # noqa: S101 - None is found only beside a key set
        return self._keys

    def _retire(self) -> None:
        """Close the key set that is not used any more, if there is one."""
        if self._keys is not None:
            task = asyncio.create_task(self._open.pop_all().aclose())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        self._key = self._keys = None


def _same_key(found: Key | Upstream | None, key: Key | None) -> bool:
    return not isinstance(found, Key) or (key is not None and bool(found.material == key.material))


def _same_key_set(one: AuthSettings, other: AuthSettings) -> bool:
    return (one.jwks_url, one.algorithms) == (other.jwks_url, other.algorithms)


def fixed_key(auth: AuthSettings, environ: Mapping[str, str]) -> Key:
    """Read the one key that `auth` names.

    Raises:
        StartError: it cannot be used; the text is one line and holds nothing of it.
    """
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
    if auth.secret_env is not None and 0 < len(environ.get(auth.secret_env, "").encode()) < GOOD_SECRET:
        warn(f"the secret in {auth.secret_env} is shorter than {GOOD_SECRET} bytes: it can be found by trying")
    if not auth.audience and auth.secret_env is None:
        warn("auth.audience is not set: tokens issued for other services are accepted")
    url = urlsplit(auth.jwks_url or "")
    if url.scheme == "http" and not is_loopback(url.hostname or ""):
        warn("auth.jwks_url is not https: whoever is on the way can replace the keys")
