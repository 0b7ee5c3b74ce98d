"""Keys and key sets: contract 6.1, pitfalls 135, 144."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, x25519
from hypothesis import given
from hypothesis import strategies as st

from gateway.keys import SECRET, UnusableKeyError, public_key, read_key_set, secret_key
from tests.fakes import issuer
from tests.fakes.certs import Authority
from tests.fakes.issuer import ec_key, ed_key, jwk, rsa_key


def names(key: Any) -> set[str]:
    return set(public_key(issuer.public_pem(key)).algorithms)


def test_each_type_of_key_has_its_algorithms_and_no_other() -> None:
    assert set(secret_key("x").algorithms) == set(SECRET)
    assert names(rsa_key()) == {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
    assert names(ec_key()) == {"ES256"}
    assert names(ec.generate_private_key(ec.SECP384R1())) == {"ES384"}
    assert names(ec.generate_private_key(ec.SECP521R1())) == {"ES512"}
    assert names(ed_key()) == names(ed448.Ed448PrivateKey.generate()) == {"EdDSA"}


def test_a_certificate_holds_a_key(tmp_path: Any) -> None:
    files = Authority(tmp_path).issue("valid")
    assert set(public_key(files.certificate.read_bytes()).algorithms) == {"ES256"}


@pytest.mark.parametrize(
    ("pem", "why"),
    [
        (b"", "holds no public key"),
        (b"hello", "holds no public key"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "holds no public key"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "holds no public key"),
        (issuer.private_pem(ec_key()), "holds a private key"),
        (issuer.public_pem(rsa_key(bits=1024)), "must have 2048"),
        (issuer.public_pem(ec.generate_private_key(ec.SECP256K1())), "must be RSA, EC"),
        (issuer.public_pem(dsa.generate_private_key(1024)), "must be RSA, EC"),
        (issuer.public_pem(x25519.X25519PrivateKey.generate()), "must be RSA, EC"),
    ],
    ids=[
        "empty",
        "text",
        "key of nothing",
        "certificate of nothing",
        "private",
        "short",
        "secp256k1",
        "dsa",
        "x25519",
    ],
)
def test_keys_that_cannot_be_used_say_why(pem: bytes, why: str) -> None:
    with pytest.raises(UnusableKeyError, match=why):
        public_key(pem)


@pytest.mark.parametrize(
    "secret",
    ["", issuer.public_pem(rsa_key()).decode(), issuer.private_pem(ec_key()).decode()],
    ids=["empty", "public key", "private key"],
)
def test_what_is_no_secret(secret: str) -> None:
    with pytest.raises(UnusableKeyError) as caught:
        secret_key(secret)
    assert "BEGIN" not in str(caught.value)


def test_an_ssh_key_is_no_secret() -> None:
    text = ed_key().public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    with pytest.raises(UnusableKeyError):
        secret_key(text.decode())


def test_configured_algorithms_must_leave_something() -> None:
    with pytest.raises(UnusableKeyError, match="leaves nothing of the key's algorithms: HS256"):
        secret_key("x" * 40, ("RS256",))
    with pytest.raises(UnusableKeyError, match="leaves nothing"):
        public_key(issuer.public_pem(ec_key()), ("RS256",))


# -- key sets

GOOD = jwk(rsa_key(), "good")
BAD: dict[str, Any] = {
    "not an object": 5,
    "null": None,
    "no type": {"kid": "x"},
    "type a list": {**GOOD, "kty": ["RSA"]},
    "unknown type": {"kty": "LATTICE", "kid": "x"},
    "a secret": {"kty": "oct", "kid": "x", "k": "c2VjcmV0"},
    "for encryption": jwk(rsa_key(1), "x", use="enc"),
    "use a list": jwk(rsa_key(1), "x", use=["sig"]),
    "to sign only": jwk(rsa_key(1), "x", key_ops=["sign"]),
    "key_ops a number": jwk(rsa_key(1), "x", key_ops=5),
    "no modulus": {"kty": "RSA", "kid": "x", "e": "AQAB"},
    "modulus not base64": {**GOOD, "kid": "x", "n": "!!!"},
    "modulus a number": {**GOOD, "kid": "x", "n": 5},
    "modulus zero": {**GOOD, "kid": "x", "n": "AA"},
    "exponent one": {**GOOD, "kid": "x", "e": "AQ"},
    "too short": jwk(rsa_key(bits=1024), "x"),
    "point not on its curve": {**jwk(ec_key(), "x"), "x": "AAAA"},
    "unknown curve": {**jwk(ec_key(), "x"), "crv": "P-999"},
    "curve for agreement": {"kty": "OKP", "crv": "X25519", "x": "AAAA", "kid": "x"},
    "algorithm of another type": jwk(rsa_key(1), "x", alg="ES256"),
    "algorithm none": jwk(rsa_key(1), "x", alg="none"),
    "algorithm HS256": jwk(rsa_key(1), "x", alg="HS256"),
    "algorithm a list": jwk(rsa_key(1), "x", alg=["RS256"]),
    "kid a number": jwk(rsa_key(1), kid=None) | {"kid": 5},
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_bad_key_does_not_spoil_the_set(bad: Any) -> None:
    """Pitfall 144."""
    found = read_key_set(json.dumps({"keys": [bad, GOOD]}).encode())
    assert {kid: len(keys) for kid, keys in found.items()} == {"good": 1}


def test_an_algorithm_in_the_set_pins_the_key_to_it() -> None:
    (key,) = read_key_set(issuer.key_set(jwk(rsa_key(), "k", alg="RS384")))["k"]
    assert set(key.algorithms) == {"RS384"}


def test_keys_of_one_id_are_kept_side_by_side_and_so_are_keys_without() -> None:
    """Pitfall 144: duplicate kids."""
    keys = [jwk(rsa_key(), "k"), jwk(rsa_key(1), "k"), jwk(ec_key(), "k"), jwk(ed_key())]
    found = read_key_set(issuer.key_set(*keys))
    assert {kid: len(same) for kid, same in found.items()} == {"k": 3, None: 1}


def test_private_members_are_not_read() -> None:
    private = jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key(), as_dict=True)
    (key,) = read_key_set(issuer.key_set({**private, "key_ops": ["verify"], "kid": "k"}))["k"]
    assert not hasattr(key.material, "private_numbers")


@pytest.mark.parametrize(
    "document",
    [
        *(b"", b"<html>", b"[]", b"null", b"5", b"{}", b"\xff", b"[" * 9999),
        *(b'{"keys":5}', b'{"keys":{}}', b'{"keys":[]}', issuer.key_set(jwk(rsa_key(), "k", use="enc"))),
    ],
    ids=lambda _: "document",
)
def test_what_is_no_key_set(document: bytes) -> None:
    with pytest.raises(UnusableKeyError):
        read_key_set(document)


@given(st.binary(max_size=200))
def test_any_document_is_a_key_set_or_refused(document: bytes) -> None:
    with pytest.raises(UnusableKeyError):
        read_key_set(document)


MEMBERS = st.sampled_from(["kty", "kid", "n", "e", "crv", "x", "y", "use", "alg", "key_ops", "d"])
VALUES = (
    st.sampled_from(["RSA", "EC", "OKP", "P-256", "Ed25519", "AQAB", "", "sig"]) | st.text(max_size=8) | st.none()
)


@given(st.lists(st.dictionaries(MEMBERS, VALUES | st.integers() | st.lists(VALUES, max_size=2)), max_size=3))
def test_any_keys_beside_a_good_one(keys: list[dict[str, Any]]) -> None:
    assert "good" in read_key_set(json.dumps({"keys": [*keys, GOOD]}).encode())
