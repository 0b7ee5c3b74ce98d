"""The one TLS context for all agents. Building it reads the CA bundle (tens of milliseconds): once, at start."""

from __future__ import annotations

import ssl


def client_context(
    *,
    ca_file: str | None = None,
    client_cert: str | None = None,
    client_key: str | None = None,
    skip_verify: bool = False,
) -> ssl.SSLContext:
    """Build the context: verified against the system's authorities and those of `ca_file`, HTTP/1.1 only.

    Args:
        ca_file: PEM file of further authorities.
        client_cert: PEM file of the certificate (chain) shown to agents that ask for one.
        client_key: PEM file of its key; None if `client_cert` holds it.
        skip_verify: Accept any certificate (`a2a.agent_tls_skip_verify`, for development).

    Raises:
        ValueError: naming the setting whose file cannot be used.
    """
    context = ssl.create_default_context()
    if skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=ca_file)
        except OSError as error:
            raise ValueError(f"upstream.ca_file: {_why(error)}") from error
    if client_cert is not None:
        try:
            # Without a password an encrypted key would make OpenSSL ask on the terminal.
            context.load_cert_chain(client_cert, client_key, password="")
        except OSError as error:
            raise ValueError(f"upstream.client_cert or upstream.client_key: {_why(error)}") from error
    return context


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return "not a usable PEM file (for keys: not encrypted, and fitting the certificate)"
    return (error.strerror or "cannot be read").lower()
