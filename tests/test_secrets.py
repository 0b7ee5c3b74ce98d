"""Nothing that the product writes holds a secret: contract 4, 6.4, 6.5.

A run of the installed command that meets every secret there is, and fails in every way with it at hand: then
everything it has written is searched, as it is and encoded.
"""

from __future__ import annotations

import base64
import json
import subprocess
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import issuer, reply
from tests.fakes.agent import FaultAgent
from tests.fakes.gateway import COMMAND, GatewayProcess
from tests.fakes.program import clean_environment

JWT_SECRET = "jwt-S3CRET-of-thirty-two-bytes-and-more"  # pragma: allowlist secret
AGENT_TOKEN = "agent-S3CRET-token"  # pragma: allowlist secret
CALLERS_OWN = "callers-own-S3CRET"  # pragma: allowlist secret
IN_BODY = "body-S3CRET-text"  # pragma: allowlist secret
IN_QUERY = "query-S3CRET-text"  # pragma: allowlist secret
IN_COOKIE = "cookie-S3CRET-text"  # pragma: allowlist secret
BAD_TOKEN = "bad-S3CRET-token"  # pragma: allowlist secret
ENVIRONMENT = {"JWT_SECRET": JWT_SECRET, "AGENT_TOKEN": AGENT_TOKEN}


def forms(secret: str) -> set[str]:
    """The ways in which a secret may be written."""
    data = secret.encode()
    return {
        secret,
        urllib.parse.quote(secret, safe=""),
        base64.b64encode(data).decode().rstrip("="),
        base64.urlsafe_b64encode(data).decode().rstrip("="),
        data.hex(),
        repr(data)[2:-1],
    }


def found(text: str, secrets: list[str]) -> list[str]:
    return [secret for secret in secrets if any(form in text for form in forms(secret))]


def settings(level: str) -> dict[str, Any]:
    return {
        "auth": {"enable": True, "secret_env": "JWT_SECRET"},
        "upstream": {"caller_credentials": True, "credentials": {"echo": {"bearer_env": "AGENT_TOKEN"}}},
        "log": {"level": level},
        "a2a": {"max_timeout_seconds": 1, "default_timeout_seconds": 1},
    }


@pytest.mark.parametrize("level", ["info", "debug"])
async def test_no_secret_in_logs_metrics_errors_or_tracebacks(tmp_path: Path, level: str) -> None:
    good = issuer.token(JWT_SECRET)
    secrets = [JWT_SECRET, AGENT_TOKEN, CALLERS_OWN, IN_BODY, IN_QUERY, IN_COOKIE, BAD_TOKEN]
    secrets += [good, good.split(".")[2]]
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"text": IN_BODY}}
    headers = {**issuer.bearer(good), "cookie": IN_COOKIE, "X-Agent-Authorization": f"Bearer {CALLERS_OWN}"}
    told: list[str] = []
    gateway = GatewayProcess(tmp_path, settings(level), environment=ENVIRONMENT)

    async def ask(method: str, path: str, **more: Any) -> None:
        answer = await gateway.http.request(method, path, **{"headers": headers, **more})
        told.append(f"{answer.headers} {answer.text}")

    async with FaultAgent() as agent, gateway:
        card = {"agent_id": "echo", "name": "echo", "url": agent.at(f"/?key={IN_QUERY}")}
        assert (await gateway.http.post("/agents/register", json=card, headers=headers)).status_code == 200
        for behaviour in (
            reply.result("ok"),
            reply.reset(),
            reply.body(b"no", status=500),
            reply.body(b"<html>", status=200),
            reply.raw(b"garbage\r\n\r\n", close=True),
            reply.hang(),
            reply.body(b"x", headers=[("Content-Type", "text/event-stream")]),
        ):
            agent.next(behaviour)
            await ask("POST", f"/a2a/echo?token={IN_QUERY}", json=body)
        await ask("POST", "/a2a/echo", json=body, headers=issuer.bearer(BAD_TOKEN))
        await ask("POST", "/a2a/echo", json=body, headers={"authorization": f"Basic {BAD_TOKEN}"})
        await ask("POST", "/a2a/echo", json=body, headers=issuer.bearer(good) | {"X-Agent-Authorization": good})
        await ask("POST", "/a2a/echo", content=f'{{"id":1,"{IN_BODY}'.encode())
        await ask("POST", "/agents/register", content=f'{{"agent_id":"{IN_BODY}'.encode())
        wrong = {"agent_id": "x", "url": f"http://u:{IN_BODY}@h/", "name": IN_BODY}
        await ask("POST", "/agents/register", json=wrong)
        await ask("GET", f"/agents?token={IN_QUERY}&limit={IN_QUERY}", headers=issuer.bearer(BAD_TOKEN))
        await ask("GET", f"/agents?limit={IN_QUERY}")
        await ask("GET", f"/nope?token={IN_QUERY}")
        await ask("GET", "/health/agents")
        await ask("GET", "/metrics")
        await gateway.stop()
    assert not found("\n".join(told), secrets)
    assert not found("\n".join(gateway.lines), secrets)
    assert len([line for line in gateway.lines if '"audit"' in line]) >= 5  # it did write


def vitalgate(*arguments: str, home: Path, **environment: str) -> str:
    done = subprocess.run(
        [COMMAND, *arguments],
        env={**clean_environment(), "HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.stdout + done.stderr


def test_no_secret_in_what_the_commands_say(tmp_path: Path) -> None:
    """Contract 4: `config show`, and every way in which a start fails."""
    file = tmp_path / "it.yaml"
    base = {"auth": {"enable": True, "secret_env": "JWT_SECRET"}, "registry": {"url": "memory://"}}
    pem = issuer.private_pem(issuer.ec_key()).decode()
    (tmp_path / "key.pem").write_text(pem)
    texts = []
    for changes, environment in (
        ({}, ENVIRONMENT),
        ({"auth": {"enable": True, "secret_env": "JWT_SECRET", "algorithms": ["RS256"]}}, ENVIRONMENT),
        ({"auth": {"enable": True, "secret_env": "JWT_SECRET"}}, {"JWT_SECRET": pem}),
        ({"auth": {"enable": True, "secret_env": "JWT_SECRET"}}, {"JWT_SECRET": ""}),
        ({"auth": {"enable": True, "public_key_file": str(tmp_path / "key.pem")}}, {}),
        ({"auth": {"enable": True, "secret_env": JWT_SECRET}}, {}),
        ({"auth": {"enable": True, "secret": JWT_SECRET, "jwks_url": f"https://u:{JWT_SECRET}@idp/"}}, {}),
        ({"upstream": {"credentials": {"echo": {"bearer": AGENT_TOKEN}}}}, ENVIRONMENT),
    ):
        file.write_text(json.dumps(base | changes))
        texts.append(vitalgate("config", "show", "--config", str(file), home=tmp_path, **environment))
        if changes:
            serving = ("serve", "--config", str(file), "--host", "256.0.0.1")
            texts.append(vitalgate(*serving, home=tmp_path, **environment))
    secrets = [JWT_SECRET, AGENT_TOKEN, *pem.splitlines()[1:-1]]
    assert all(texts)
    assert not found("\n".join(texts), secrets)


def test_what_stops_a_start_with_authentication(tmp_path: Path) -> None:
    """One line each, and exit code 3."""
    file = tmp_path / "it.yaml"
    (tmp_path / "key.pem").write_bytes(issuer.private_pem(issuer.ec_key()))
    quiet = {"server": {"port": 0}, "metrics": {"port": 0}, "registry": {"url": "memory://"}}
    for auth, environment, line in (
        ({"secret_env": "NOT_SET"}, {}, "auth.secret_env: NOT_SET: not set, or empty; the secret belongs there"),
        ({"public_key_file": "/nope.pem"}, {}, "auth.public_key_file: no such file or directory"),
        (
            {"public_key_file": str(tmp_path / "key.pem")},
            {},
            "auth.public_key_file: the file holds a private key; the gateway needs the public one only",
        ),
        (
            {"secret_env": "JWT_SECRET", "algorithms": ["RS256"]},
            ENVIRONMENT,
            "auth.secret_env: JWT_SECRET: auth.algorithms leaves nothing of the key's algorithms: "
            "HS256, HS384, HS512",
        ),
    ):
        file.write_text(json.dumps({**quiet, "auth": {"enable": True, **auth}}))
        said = vitalgate("serve", "--config", str(file), home=tmp_path, **environment).splitlines()
        assert [one for one in said if not one.startswith("{")] == [f"vitalgate: {line}"]


def test_a_token_for_development(tmp_path: Path) -> None:
    """`vitalgate token` makes what a gateway with the same configuration accepts."""
    from gateway.auth import Authenticator, FixedKey, TokenTerms
    from gateway.keys import public_key, secret_key

    file = tmp_path / "it.yaml"
    auth = {"enable": True, "secret_env": "JWT_SECRET", "issuer": "me", "audience": "gw", "principal_claim": "who"}
    file.write_text(json.dumps({"auth": auth}))
    terms = TokenTerms("me", {"gw"}, principal_claim="who")
    made = vitalgate("token", "alice", "--config", str(file), "--scope", "a b", home=tmp_path, **ENVIRONMENT)
    header = [(b"authorization", f"Bearer {made.strip()}".encode())]
    assert Authenticator(FixedKey(secret_key(JWT_SECRET)), terms).verify(header).name == "alice"
    for key in (issuer.rsa_key(), issuer.ec_key(), issuer.ed_key()):
        (tmp_path / "key.pem").write_bytes(issuer.private_pem(key))
        pem = str(tmp_path / "key.pem")
        made = vitalgate("token", "bob", "--config", str(file), "--key", pem, "--kid", "k", home=tmp_path)
        header = [(b"authorization", f"Bearer {made.strip()}".encode())]
        verifier = Authenticator(FixedKey(public_key(issuer.public_pem(key))), terms)
        assert verifier.verify(header).name == "bob"
    assert "nothing to sign with: give a --config" in vitalgate("token", "alice", home=tmp_path)
    assert "not a private key" in vitalgate("token", "a", "--key", str(file), home=tmp_path)
