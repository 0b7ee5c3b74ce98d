"""Certificates for TLS tests, made on the spot: a CA of our own and what servers may do wrong with it."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Kind = Literal["valid", "self-signed", "expired", "wrong-name", "client"]
LOCAL = ("localhost", "127.0.0.1", "::1")
DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Files:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority in a folder: `ca_file` is what a client has to trust."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("Test CA")
        certificate = _sign(self._name, self._key, self._name, self._key, names=(), days=(-1, 1), ca=True)
        self._certificate = certificate
        self.ca_file = folder / "ca.pem"
        self.ca_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, kind: Kind = "valid") -> Files:
        """A certificate of that kind with its key, valid for localhost unless the kind says otherwise."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(kind)
        names = ("elsewhere.test",) if kind == "wrong-name" else LOCAL
        days = (-3, -2) if kind == "expired" else (-1, 1)
        issuer, signer = (name, key) if kind == "self-signed" else (self._name, self._key)
        certificate = _sign(name, key, issuer, signer, names=names, days=days, ca=False)
        files = Files(self._folder / f"{kind}.pem", self._folder / f"{kind}.key")
        files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files

    def server(self, kind: Kind = "valid", *, client_required: bool = False) -> ssl.SSLContext:
        """The context of a server with such a certificate; it may ask for one of ours from its clients."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        files = self.issue(kind)
        context.load_cert_chain(files.certificate, files.key)
        if client_required:
            context.load_verify_locations(self.ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client(self) -> ssl.SSLContext:
        """The context of a client that trusts this authority and no other."""
        return ssl.create_default_context(cafile=str(self.ca_file))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _sign(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    signer: ec.EllipticCurvePrivateKey,
    *,
    names: Sequence[str],
    days: tuple[int, int],
    ca: bool,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + days[0] * DAY)
        .not_valid_after(now + days[1] * DAY)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(_usage(ca), critical=True)
    )
    if names:
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.SubjectAlternativeName([_san(name) for name in names]), False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), False)
    return builder.sign(signer, hashes.SHA256())


def _usage(ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )


def _san(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
