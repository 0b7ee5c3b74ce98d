"""Tokens → callers (contract 6.1).

Every way in which a token can be bad ends in `InvalidTokenError`, and nothing tells one way from another. A token
that has been verified is remembered by its digest until it expires or the keys change; bad ones are not
remembered, so that they cannot fill the memory.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, NoReturn, Protocol

from jwt import PyJWS

from gateway.headers import Headers
from gateway.identity import ANONYMOUS_NAME, EVERYTHING, Identity, InvalidTokenError, UnknownKeyError
from gateway.keys import Key
from gateway.policy import Policy
from registry import strict_json

logger = logging.getLogger(__name__)

#: Characters; longer ones are refused unread.
LONGEST_TOKEN: Final = 16 * 1024
LONGEST_PRINCIPAL: Final = 256
MOST_REMEMBERED: Final = 4096

_BEARER: Final = re.compile(rb"bearer +([A-Za-z0-9\-._~+/]+=*)", re.IGNORECASE).fullmatch
_SURROGATE: Final = re.compile("[\ud800-\udfff]").search
#: Asks for what this reader does not do: extensions, unencoded payloads, a token inside the token.
_NOT_UNDERSTOOD: Final = ("crit", "b64", "cty", "zip", "enc")


@dataclass(frozen=True, slots=True)
class TokenTerms:
    """What a token must say.

    Attributes:
        issuer: Equal to `iss`; None: not looked at.
        audience: One of these is in `aud`; empty: not looked at.
        leeway: By how many seconds clocks may differ.
        principal_claim: The claim that names the caller.
    """

    issuer: str | None = None
    audience: Collection[str] = ()
    leeway: float = 30.0
    principal_claim: str = "sub"


class KeySource(Protocol):
    """Where keys come from."""

    def find(self, kid: str | None, algorithm: str) -> Sequence[Key] | None:
        """Give the keys that a token may be signed with; None if the key it names is unknown."""

    async def refresh(self) -> bool:
        """See whether there are other keys by now: True if there are."""

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back when the keys have changed."""


class FixedKey:
    """One key from the configuration, whatever `kid` a token bears."""

    def __init__(self, key: Key) -> None:
        self._key = key

    def find(self, kid: str | None, algorithm: str) -> Sequence[Key]:
        """Give the key, if it fits the algorithm."""
        return [self._key] if algorithm in self._key.algorithms else []

    async def refresh(self) -> bool:
        """There is never another."""
        return False

    def on_change(self, callback: Callable[[], None]) -> None:
        """It never changes."""


class Authenticator:
    """Tells who calls."""

    def __init__(
        self,
        keys: KeySource,
        terms: TokenTerms,
        policy: Policy | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the keys and what tokens must say.

        Args:
            keys: The keys.
            terms: What a token must say.
            policy: What callers may do; None: everything they own.
            clock: Seconds since 1970.
        """
        self._keys = keys
        self._terms = terms
        self._policy = policy
        self._clock = clock
        self._known: dict[bytes, tuple[Identity, float]] = {}
        self._jws = PyJWS()
        keys.on_change(self._known.clear)

    def change(self, keys: KeySource, terms: TokenTerms, policy: Policy | None) -> None:
        """Judge by these from now on; see `__init__`. Tokens that were verified before are verified again."""
        if keys is not self._keys:
            keys.on_change(self._known.clear)
        self._keys, self._terms, self._policy = keys, terms, policy
        self._known.clear()

    def remembered(self, authorization: bytes) -> Identity | None:
        """Give the caller whose `Authorization` has been verified before; None: verify it."""
        found = self._known.get(sha256(authorization).digest())
        return found[0] if found is not None and self._clock() < found[1] else None

    def verify(self, headers: Headers) -> Identity:
        """Give the caller with these headers, without waiting for anything.

        Raises:
            UnknownKeyError: a fresh set of keys may help, see `authenticate`.
            InvalidTokenError: the token is bad, or there is none, or more than one.
        """
        values = [value for name, value in headers if name == b"authorization"]
        if len(values) != 1:
            raise InvalidTokenError
        known = self.remembered(values[0])
        return known if known is not None else self._learn(values[0])

    async def authenticate(self, headers: Headers) -> Identity:
        """Give the caller with these headers; waits for fresh keys if the token's key is unknown.

        Raises:
            InvalidTokenError: see `verify`.
        """
        try:
            return self.verify(headers)
        except UnknownKeyError:
            if not await self._keys.refresh():
                raise
        return self.verify(headers)

    def _learn(self, authorization: bytes) -> Identity:
        found = _BEARER(authorization)
        if found is None or len(found[1]) > LONGEST_TOKEN:
            raise InvalidTokenError
        claims = self._claims(found[1])
        expires = _check_times(claims, self._clock(), self._terms.leeway)
        _check_issuer(claims, self._terms)
        identity = self._identity(claims, expires + self._terms.leeway)
        if self._clock() < expires:
            self._remember(authorization, identity, expires)
        return identity

    def _claims(self, token: bytes) -> Mapping[str, Any]:
        """Read what a token says, once its signature is found to be good."""
        try:
            parts = self._jws.decode_complete(token, options={"verify_signature": False})
            self._check_signature(token, parts["header"], parts["signature"])
            claims = strict_json.read(parts["payload"])
        except InvalidTokenError:
            raise
        except Exception as error:  # the edge: what a hostile token makes a library raise is no fault of ours
            logger.debug("a token could not be read: %s", type(error).__name__)
            raise InvalidTokenError from None
        return claims if isinstance(claims, dict) else _refuse()

    def _check_signature(self, token: bytes, header: Mapping[str, Any], signature: bytes) -> None:
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or not (kid is None or isinstance(kid, str)):
            raise InvalidTokenError
        if any(name in header for name in _NOT_UNDERSTOOD):
            raise InvalidTokenError
        keys = self._keys.find(kid, algorithm)
        if keys is None:
            raise UnknownKeyError
        signed = token.rpartition(b".")[0]
        if not any(key.verifies(algorithm, signed, signature) for key in keys):
            raise UnknownKeyError if kid is None else InvalidTokenError

    def _identity(self, claims: Mapping[str, Any], until: float) -> Identity:
        principal = claims.get(self._terms.principal_claim)
        if not isinstance(principal, str) or not 0 < len(principal) <= LONGEST_PRINCIPAL:
            raise InvalidTokenError
        if principal == ANONYMOUS_NAME or _SURROGATE(principal) or "\0" in principal:
            raise InvalidTokenError
        grants = EVERYTHING if self._policy is None else self._policy.grants(principal, _scopes(claims))
        return Identity(principal, principal, grants, until)

    def _remember(self, authorization: bytes, identity: Identity, expires: float) -> None:
        if len(self._known) >= MOST_REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[sha256(authorization).digest()] = (identity, expires)


def _refuse() -> NoReturn:
    raise InvalidTokenError


def _check_times(claims: Mapping[str, Any], now: float, leeway: float) -> float:
    """Judge `exp`, `nbf` and `iat`; give the time at which the token expires."""
    expires = _time(claims["exp"]) if "exp" in claims else _refuse()
    begins = [_time(claims[name]) for name in ("nbf", "iat") if name in claims]
    if now >= expires + leeway or any(now < begin - leeway for begin in begins):
        raise InvalidTokenError
    return expires


def _time(value: object) -> float:
    """Read a NumericDate (RFC 7519): a JSON number, and neither text nor a truth value."""
    return value if isinstance(value, float) and math.isfinite(value) else _refuse()


def _check_issuer(claims: Mapping[str, Any], terms: TokenTerms) -> None:
    if terms.issuer is not None and claims.get("iss") != terms.issuer:
        raise InvalidTokenError
    if terms.audience and not any(one in terms.audience for one in _texts(claims.get("aud"))):
        raise InvalidTokenError


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """Read `scope`, which is text with blanks between (RFC 8693), or, as some write it, a list."""
    scope = claims.get("scope")
    return frozenset(scope.split(" ") if isinstance(scope, str) else _texts(scope)) - {""}


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        return [value]
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
