"""An identity provider: it has keys, signs tokens (good ones and all kinds of bad ones), publishes its keys."""

from __future__ import annotations

import base64
import json
import time
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tests.fakes import reply
from tests.fakes.agent import Behaviour

SECRET = "the secret of the tests, which has 32 bytes"  # pragma: allowlist secret


@cache
def rsa_key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    """The same key for the same number, made once: that takes a while."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@cache
def ec_key(number: int = 0) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def ed_key(number: int = 0) -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def public_pem(key: Any) -> bytes:
    pem: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return pem


def private_pem(key: Any) -> bytes:
    pem: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem


def claims(**changes: Any) -> dict[str, Any]:
    """What a good token says; a change to None leaves the claim out."""
    said = {"sub": "alice", "iat": int(time.time()), "exp": int(time.time()) + 600} | changes
    return {name: value for name, value in said.items() if value is not None}


def token(key: Any = SECRET, algorithm: str = "HS256", kid: str | None = None, **changes: Any) -> str:
    """A signed token; `raw` in the changes replaces the claims by text, `header` adds members to the header."""
    header = {**changes.pop("header", {}), **({} if kid is None else {"kid": kid})}
    raw = changes.pop("raw", None)
    payload = raw.encode("utf-8", "surrogatepass") if raw is not None else json.dumps(claims(**changes)).encode()
    return forged(payload, {"typ": "JWT", "alg": algorithm, **header}, key, algorithm)


def forged(payload: bytes, header: dict[str, Any], key: Any, algorithm: str) -> str:
    """Whatever the header says, signed with an algorithm of our choosing (none: not at all)."""
    signed = b".".join((_b64(json.dumps(header).encode()), _b64(payload)))
    if algorithm == "none":
        return (signed + b".").decode()
    maker = jwt.PyJWS().get_algorithm_by_name(algorithm)
    prepared = key if isinstance(key, bytes) else maker.prepare_key(key)  # bytes: no check of what they are
    return b".".join((signed, _b64(maker.sign(signed, prepared)))).decode()


def _b64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


# -- key sets


def jwk(key: Any, kid: str | None = None, **members: Any) -> dict[str, Any]:
    """The public half as a JSON Web Key."""
    public = key.public_key()
    kinds = jwt.algorithms
    if isinstance(key, rsa.RSAPrivateKey):
        made = kinds.RSAAlgorithm.to_jwk(public, as_dict=True)
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        made = kinds.ECAlgorithm.to_jwk(public, as_dict=True)
    else:
        made = kinds.OKPAlgorithm.to_jwk(public, as_dict=True)
    made.pop("key_ops", None)
    return {**made, **({} if kid is None else {"kid": kid}), **members}


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def published(*keys: dict[str, Any]) -> Behaviour:
    """Answers with a key set."""
    return reply.body(key_set(*keys))
