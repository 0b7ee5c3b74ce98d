"""Making tokens for development and tests (`vitalgate token`); the gateway itself only verifies them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from gateway.keys import UnusableKeyError

_CURVES: Mapping[str, str] = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


def claims(
    principal: str,
    *,
    claim: str = "sub",
    seconds: float = 3600,
    issuer: str | None = None,
    audience: str | None = None,
    scope: str | None = None,
) -> dict[str, Any]:
    """Give what a token says that is good from now on, for so many seconds."""
    now = int(time.time())
    said = {"iss": issuer, "aud": audience, "scope": scope}
    return {
        claim: principal,
        "iat": now,
        "exp": now + int(seconds),
        **{name: value for name, value in said.items() if value is not None},
    }


def sign_with_secret(said: Mapping[str, Any], secret: str, algorithm: str = "HS256") -> str:
    """Sign with a shared secret."""
    return jwt.PyJWS().encode(_json(said), secret.encode("utf-8", "surrogateescape"), algorithm)


def sign_with_key(said: Mapping[str, Any], pem: bytes, kid: str | None = None) -> str:
    """Sign with a private key; its type decides the algorithm.

    Raises:
        UnusableKeyError: it is no private key in PEM form without a passphrase, or of an unknown type.
    """
    try:
        key: Any = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise UnusableKeyError("not a private key in PEM form, without a passphrase") from None
    return jwt.PyJWS().encode(_json(said), key, _algorithm(key), {"kid": kid} if kid else None)


def _algorithm(key: object) -> str:
    if isinstance(key, RSAPrivateKey):
        return "RS256"
    if isinstance(key, EllipticCurvePrivateKey) and key.curve.name in _CURVES:
        return _CURVES[key.curve.name]
    if isinstance(key, Ed25519PrivateKey | Ed448PrivateKey):
        return "EdDSA"
    raise UnusableKeyError("the key must be RSA, EC (P-256, P-384, P-521), Ed25519 or Ed448")


def _json(said: Mapping[str, Any]) -> bytes:
    return json.dumps(said).encode()
