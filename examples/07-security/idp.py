"""A tiny identity provider: makes a key, keeps the private half in key.pem, and publishes the public half.

    python examples/07-security/idp.py                       # http://127.0.0.1:9099/jwks.json
    python examples/07-security/idp.py --port 0 --key /tmp/key.pem

Needs `cryptography` and `PyJWT`, which vitalgate brings. For trying things out: it knows no users.
"""

from __future__ import annotations

import argparse
import json
import os
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

HERE = Path(__file__).parent


def make_key(file: Path) -> bytes:
    """Write a new private key to the file, for its owner only, and give the key set with the public half."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.unlink(missing_ok=True)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(pem)
    public = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return json.dumps({"keys": [{**public, "kid": "example-1", "use": "sig", "alg": "RS256"}]}).encode()


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=9099)
    parser.add_argument("--key", type=Path, default=HERE / "key.pem", help="where to put the private key")
    options = parser.parse_args()
    document = make_key(options.key)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/jwks.json"
            body = document if found else b"{}"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/jwk-set+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", options.port), Handler)
    print(f"http://127.0.0.1:{server.server_port}/jwks.json", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
