"""Pure: the keys that tokens are verified with, each tied to the algorithms of its type (contract 6.1).

What a token says of its algorithm only picks among those of a key that we hold, so that neither `none` nor a
public key used as a secret can verify anything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509 import load_pem_x509_certificate
from jwt import PyJWTError
from jwt.algorithms import (
    Algorithm,
    ECAlgorithm,
    OKPAlgorithm,
    RSAAlgorithm,
    get_default_algorithms,
)

from registry import strict_json

SECRET: Final = ("HS256", "HS384", "HS512")
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {"secp256r1": ("ES256",), "secp384r1": ("ES384",), "secp521r1": ("ES512",)}
#: Everything that `auth.algorithms` may name.
ALGORITHMS: Final = (*SECRET, *_RSA, "ES256", "ES384", "ES512", "EdDSA")

#: Bytes; a shorter secret can be found by trying (RFC 7518, section 3.2).
GOOD_SECRET: Final = 32
_SMALLEST_RSA, _LARGEST_RSA = 2048, 16384  # bits
_MOST_KEYS: Final = 100
_JWK_READERS: Final[Mapping[str, tuple[type[Algorithm], tuple[str, ...]]]] = {
    "RSA": (RSAAlgorithm, ("kty", "n", "e")),
    "EC": (ECAlgorithm, ("kty", "crv", "x", "y")),
    "OKP": (OKPAlgorithm, ("kty", "crv", "x")),
}
#: What the libraries raise for keys that they cannot use.
_UNREADABLE: Final = (PyJWTError, ValueError, TypeError, KeyError, UnsupportedAlgorithm, OverflowError)


class UnusableKeyError(ValueError):
    """A key cannot be used; the text says why and holds nothing of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """A key and the algorithms it may be used with."""

    algorithms: Mapping[str, Algorithm]
    material: Any

    def verifies(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        """Tell whether the signature is this key's, by an algorithm that it may be used with."""
        used = self.algorithms.get(algorithm)
        return used is not None and used.verify(signed, self.material, signature)


#: Keys by id; those without one under None.
KeySet = Mapping[str | None, Sequence[Key]]


def secret_key(secret: str, wanted: Collection[str] = ()) -> Key:
    """Make the key of a shared secret; `wanted` narrows the algorithms.

    Raises:
        UnusableKeyError: it is empty, or is no secret at all but a key in PEM form.
    """
    if not secret:
        raise UnusableKeyError("not set, or empty; the secret belongs there")
    data = secret.encode("utf-8", "surrogateescape")
    if b"-----BEGIN " in data:
        raise UnusableKeyError("the secret is a key in PEM form; use auth.public_key_file")
    return _key(data, SECRET, wanted)


def public_key(pem: bytes, wanted: Collection[str] = ()) -> Key:
    """Make a key of a PEM file: a public key, or a certificate that holds one.

    Raises:
        UnusableKeyError: it holds something else, or a key of an unknown or weak kind.
    """
    if b"PRIVATE KEY" in pem:
        raise UnusableKeyError("the file holds a private key; the gateway needs the public one only")
    try:
        certified = b"BEGIN CERTIFICATE" in pem
        material = load_pem_x509_certificate(pem).public_key() if certified else load_pem_public_key(pem)
    except _UNREADABLE:
        raise UnusableKeyError("the file holds no public key in PEM form") from None
    return _key(material, _algorithms(material), wanted)


def read_key_set(document: bytes, wanted: Collection[str] = ()) -> KeySet:
    """Read a JSON Web Key Set (RFC 7517). Keys that cannot verify tokens are passed over.

    Raises:
        UnusableKeyError: it is no key set, or no key in it can be used.
    """
    try:
        members = strict_json.read(document)
    except ValueError:
        raise UnusableKeyError("not JSON") from None
    listed = members.get("keys") if isinstance(members, dict) else None
    if not isinstance(listed, list):
        raise UnusableKeyError("not a key set")
    found: dict[str | None, list[Key]] = {}
    for jwk in listed[:_MOST_KEYS]:
        try:
            kid, key = _read_jwk(jwk, wanted)
        except UnusableKeyError:
            continue
        found.setdefault(kid, []).append(key)
    if not found:
        raise UnusableKeyError("no key in the set can be used")
    return found


def _read_jwk(jwk: object, wanted: Collection[str]) -> tuple[str | None, Key]:
    if not isinstance(jwk, dict) or not _is_for_verifying(jwk):
        raise UnusableKeyError("not for verifying")
    kid = jwk.get("kid")
    if not (kid is None or isinstance(kid, str)):
        raise UnusableKeyError("kid is no text")
    reader, names = _JWK_READERS[jwk["kty"]]
    try:
        # Only the public members: a set that shows its private ones must not make us hold them.
        material = reader.from_jwk({name: jwk[name] for name in names})
    except _UNREADABLE:
        raise UnusableKeyError("not readable") from None
    usable = _algorithms(material)
    if "alg" in jwk:
        usable = tuple(name for name in usable if name == jwk["alg"])
    return kid, _key(material, usable, wanted)


def _is_for_verifying(jwk: Mapping[str, Any]) -> bool:
    operations = jwk.get("key_ops", ["verify"])
    return (
        isinstance(jwk.get("kty"), str)
        and jwk["kty"] in _JWK_READERS
        and jwk.get("use", "sig") == "sig"
        and isinstance(operations, list)
        and "verify" in operations
    )


def _algorithms(material: object) -> tuple[str, ...]:
    if isinstance(material, RSAPublicKey):
        if not _SMALLEST_RSA <= material.key_size <= _LARGEST_RSA:
            raise UnusableKeyError(f"the RSA key must have {_SMALLEST_RSA} to {_LARGEST_RSA} bits")
        return _RSA
    if isinstance(material, EllipticCurvePublicKey) and material.curve.name in _CURVES:
        return _CURVES[material.curve.name]
    if isinstance(material, Ed25519PublicKey | Ed448PublicKey):
        return ("EdDSA",)
    raise UnusableKeyError("keys must be RSA, EC (P-256, P-384, P-521), Ed25519 or Ed448")


def _key(material: Any, usable: Sequence[str], wanted: Collection[str]) -> Key:
    names = [name for name in usable if not wanted or name in wanted]
    if not names:
        meant = ", ".join(usable) or "none that we know"
        raise UnusableKeyError(f"auth.algorithms leaves nothing of the key's algorithms: {meant}")
    known = get_default_algorithms()
    try:
        return Key({name: known[name] for name in names}, known[names[0]].prepare_key(material))
    except PyJWTError:
        raise UnusableKeyError("the secret is a key of another kind") from None
