"""Contract 8: SIGHUP and POST /admin/reload read the settings again, take what can change, and name the rest."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec

from gateway.reload import RELOADED, Outcome, merged
from gateway.settings import Settings
from gateway.settings_sources import field_names
from tests.fakes import issuer, reply
from tests.fakes.agent import FaultAgent
from tests.fakes.gateway import GatewayProcess
from tests.fakes.health_peer import A2APeer
from tests.fakes.monitored import card_of
from tests.fakes.running import eventually, running

ENVIRONMENT = {"JWT_SECRET": issuer.SECRET, "TOKEN_A": "token-a", "TOKEN_B": "token-b"}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {}}


def rewrite(gateway: GatewayProcess, **sections: dict[str, Any]) -> None:
    """Lay these over the settings in the file."""
    for section, fields in sections.items():
        gateway.settings.setdefault(section, {}).update(fields)
    gateway.file.write_text(yaml.safe_dump(gateway.settings))


async def reload(gateway: GatewayProcess, **headers: str) -> tuple[int, dict[str, Any]]:
    answer = await gateway.http.post("/admin/reload", headers=headers)
    return answer.status_code, answer.json()


async def hang_up(gateway: GatewayProcess, event: str = "settings read again") -> dict[str, Any]:
    """SIGHUP, and the line that says what became of it."""
    before = len(gateway.events(event))
    os.kill(gateway.pid, signal.SIGHUP)
    await eventually(lambda: len(gateway.events(event)) > before)
    return gateway.events(event)[-1]


# -- pure


def test_what_is_reloaded_is_a_setting() -> None:
    assert set(field_names()) >= RELOADED


def test_only_what_can_change_is_taken() -> None:
    """Contract 8: the rest is named, and named again the next time."""
    held = Settings()
    read = Settings(log={"level": "debug"}, server={"port": 1}, health={"interval_seconds": 7})
    now, outcome = merged(held, read)
    assert outcome == Outcome(("health.interval_seconds", "log.level"), ("server.port",))
    assert (now.log.level, now.health.interval_seconds, now.server.port) == ("debug", 7, 9090)
    assert merged(now, read) == (now, Outcome((), ("server.port",)))


@pytest.mark.parametrize(
    ("held", "read"),
    [
        ({"auth": {}}, {"auth": {"enable": True, "secret_env": "S", "issuer": "i"}}),
        ({"auth": {"enable": True, "secret_env": "S"}}, {"auth": {"issuer": "i"}}),
        ({"health": {"enable": False}}, {"health": {"enable": True, "interval_seconds": 3}}),
    ],
)
def test_a_section_that_is_switched_stays_as_it_is_until_a_restart(held: Any, read: Any) -> None:
    before, after = Settings(**held), Settings(**read)
    now, outcome = merged(before, after)
    assert now == before
    assert outcome.changed == ()
    assert len(outcome.unchanged_until_restart) >= 2


# -- a real process


async def test_log_and_trusted_origins_and_a_port_that_cannot_change(tmp_path: Path) -> None:
    async with GatewayProcess(tmp_path) as gateway:
        rewrite(
            gateway, log={"format": "text"}, server={"port": 1}, a2a={"trusted_origins": ["https://app.example"]}
        )
        assert (await gateway.http.get("/agents", headers={"origin": "https://app.example"})).status_code == 403
        status, outcome = await reload(gateway)
        assert (status, outcome) == (
            200,
            {"changed": ["a2a.trusted_origins", "log.format"], "unchanged_until_restart": ["server.port"]},
        )
        answer = await gateway.http.get("/agents", headers={"origin": "https://app.example"})
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        await eventually(lambda: " audit action=reload" in gateway.lines[-1])
        assert any("settings read again" in line and "server.port" in line for line in gateway.lines)
        rewrite(gateway, log={"format": "json", "level": "error", "calls": False})
        assert (await reload(gateway))[1]["changed"] == ["log.calls", "log.format", "log.level"]
        await gateway.call("nobody", CALL)
        assert await gateway.stop() == 0
        assert not gateway.events("stopped")
        assert not gateway.events("call")


async def test_a_signal_does_the_same_and_the_log_tells(tmp_path: Path) -> None:
    async with GatewayProcess(tmp_path) as gateway:
        rewrite(gateway, log={"calls": False}, metrics={"namespace": "other"})
        line = await hang_up(gateway)
        assert (line["changed"], line["unchanged_until_restart"]) == (["log.calls"], ["metrics.namespace"])
        assert line["level"] == "warning"
        rewrite(gateway, metrics={"namespace": "kubemq_a2a"})
        line = await hang_up(gateway)
        assert (line["changed"], line["unchanged_until_restart"], line["level"]) == ([], [], "info")


async def test_a_wrong_file_changes_nothing_and_every_mistake_is_named(tmp_path: Path) -> None:
    async with GatewayProcess(tmp_path) as gateway:
        rewrite(gateway, log={"level": "debug", "calls": "S3CRET"}, a2a={"max_agents": -1})
        status, refusal = await reload(gateway)
        assert (status, refusal["error"]) == (400, "the configuration is wrong: nothing was changed")
        where = str(gateway.file)
        told = [one["message"] for one in refusal["details"]]
        assert [one.startswith(where) for one in told] == [True, True]
        assert [one.split(": ")[1] for one in told] == ["a2a.max_agents", "log.calls"]
        await hang_up(gateway, "settings not taken, nothing was changed")
        await eventually(lambda: len(gateway.events("settings not taken, nothing was changed")) == 4)
        assert [one["problem"] for one in gateway.events("settings not taken, nothing was changed")] == told * 2
        assert "S3CRET" not in "\n".join(gateway.lines)
        gateway.file.unlink()
        status, refusal = await reload(gateway)
        assert (status, refusal["details"][0]["message"]) == (
            400,
            f"{where}: cannot be read: No such file or directory",
        )
        gateway.file.write_text("log: {level: debug}\n")
        assert "log.level" in (await reload(gateway))[1]["changed"]


async def test_settings_that_came_through_a_pipe_cannot_be_read_again(tmp_path: Path) -> None:
    """`serve --config <(generate)`: opening the pipe again would wait for ever, and every later reload with it."""
    async with GatewayProcess(tmp_path) as gateway:
        text = gateway.file.read_text()
        gateway.file.unlink()
        os.mkfifo(gateway.file)
        for _ in range(2):
            status, answer = await reload(gateway)
            assert status == 400
            assert answer["details"][0]["message"] == f"{gateway.file}: is no file that can be read again: restart"
        gateway.file.unlink()
        gateway.file.write_text(text)
        assert (await reload(gateway))[0] == 200


async def test_credentials_for_agents(tmp_path: Path) -> None:
    """Contract 6.4, 8: known agents are shown another token from the next call on; so are they when checked."""
    with_token = {"upstream": {"credentials": {"peer": {"bearer_env": "TOKEN_A"}}}}
    async with FaultAgent() as agent, GatewayProcess(tmp_path, with_token, environment=ENVIRONMENT) as gateway:
        await gateway.register({"agent_id": "peer", "name": "Peer", "url": agent.url})
        agent.always(reply.result("pong"))
        shown = []
        for named in ("TOKEN_A", "TOKEN_B", "NOT_SET", None):
            rewrite(gateway, upstream={"credentials": {"peer": {"bearer_env": named}} if named else {}})
            assert (await reload(gateway))[0] == 200
            answer = (await gateway.call("peer", CALL)).json()
            shown.append(agent.requests[-1].header("authorization"))
            assert answer.get("error", {}).get("code") == (-32003 if named == "NOT_SET" else None)
        assert shown == ["Bearer token-a", "Bearer token-b", "Bearer token-b", None]
        assert len(agent.requests) == 3


async def test_policy_and_issuer(tmp_path: Path) -> None:
    """Contract 6.1, 8: a token that has been remembered is judged anew."""
    auth = {"enable": True, "secret_env": "JWT_SECRET", "policy": [{"principals": ["ops"], "administer": True}]}
    ops = issuer.bearer(issuer.token(issuer.SECRET, sub="ops"))
    async with GatewayProcess(tmp_path, {"auth": auth}, environment=ENVIRONMENT) as gateway:
        assert (await gateway.http.get("/agents", headers=ops)).status_code == 403
        rewrite(gateway, auth={"policy": [*auth["policy"], {"principals": ["*"], "read": True}]})  # type: ignore[misc]
        assert await reload(gateway, **ops) == (200, {"changed": ["auth.policy"], "unchanged_until_restart": []})
        assert (await gateway.http.get("/agents", headers=ops)).status_code == 200
        rewrite(gateway, auth={"issuer": "https://issuer.example"})
        await hang_up(gateway)
        assert (await gateway.http.get("/agents", headers=ops)).status_code == 401
        rewrite(gateway, auth={"enable": False, "policy": None})
        line = await hang_up(gateway)
        assert line["changed"] == []
        assert line["unchanged_until_restart"] == ["auth.enable", "auth.policy"]
        assert (await gateway.http.get("/agents", headers=ops)).status_code == 401


async def test_an_open_feed_ends_when_its_token_is_good_no_more(tmp_path: Path) -> None:
    """Contract 6.1: a principal that may read no more, or whose key is gone, is told of no further change."""
    old, new = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    pem = tmp_path / "key.pem"
    pem.write_bytes(issuer.public_pem(old))
    reading = [{"principals": ["*"], "read": True}]
    auth = {"enable": True, "public_key_file": str(pem), "policy": reading}
    token = issuer.bearer(issuer.token(old, "ES256"))
    async with GatewayProcess(tmp_path, {"auth": auth}) as gateway:
        async with gateway.http.stream("GET", "/events", headers=token, timeout=20) as feed:
            assert feed.status_code == 200
            rewrite(gateway, log={"level": "debug"})
            await hang_up(gateway)  # which has nothing to do with it
            rewrite(gateway, auth={"policy": [{"principals": ["nobody"], "read": True}]})
            await hang_up(gateway)
            await feed.aread()  # it has an end
        assert (await gateway.http.get("/events", headers=token)).status_code == 403
        rewrite(gateway, auth={"policy": reading})
        await hang_up(gateway)
        async with gateway.http.stream("GET", "/events", headers=token, timeout=20) as feed:
            assert feed.status_code == 200
            pem.write_bytes(issuer.public_pem(new))
            await hang_up(gateway)
            await feed.aread()
        assert (await gateway.http.get("/events", headers=token)).status_code == 401


async def test_a_new_key_in_the_same_file(tmp_path: Path) -> None:
    """Contract 8: files can change in a running process; one without a usable key changes nothing."""
    old, new = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    pem = tmp_path / "key.pem"
    pem.write_bytes(issuer.public_pem(old))
    auth = {"enable": True, "public_key_file": str(pem)}
    async with GatewayProcess(tmp_path, {"auth": auth}) as gateway:

        async def reads(key: Any) -> int:
            token = issuer.bearer(issuer.token(key, "ES256"))
            return (await gateway.http.get("/agents", headers=token)).status_code

        assert (await reads(old), await reads(new)) == (200, 401)
        pem.write_bytes(issuer.public_pem(new))
        assert (await hang_up(gateway))["changed"] == ["auth.public_key_file"]
        assert (await reads(old), await reads(new)) == (401, 200)
        assert (await hang_up(gateway))["changed"] == []
        pem.write_text("no key")
        rewrite(gateway, log={"level": "debug"})
        line = await hang_up(gateway, "settings not taken, nothing was changed")
        assert line["problem"].startswith("auth.public_key_file: ")
        assert (await reads(old), await reads(new)) == (401, 200)


async def test_how_often_agents_are_checked(tmp_path: Path) -> None:
    """Health contract 7, contract 8: the next check was an hour away."""
    seldom = {"health": {"enable": True, "interval_seconds": 3600}}
    async with A2APeer() as peer, GatewayProcess(tmp_path, seldom) as gateway:
        await gateway.register({"agent_id": "peer", "name": "Peer", "url": peer.base, **card_of(peer)})
        await gateway.http.post("/agents/peer/health/check")
        rewrite(gateway, health={"interval_seconds": 0.1, "concurrency": 3, "routing": "observe"})
        assert (await reload(gateway))[1]["changed"] == [
            "health.concurrency",
            "health.interval_seconds",
            "health.routing",
        ]

        asked = len(peer.requests)
        await eventually(lambda: len(peer.requests) >= asked + 10, within=10)


async def test_another_routing_rule_opens_and_closes_at_once() -> None:
    """Health contract 7: `observe` lets calls through to agents that are out of service."""
    from gateway.admission import Admission
    from healthcheck.state import FALL, Evidence

    admission = Admission(0.0)
    for _ in range(FALL):
        admission.apply(Evidence.DOWN, 0.0)
    assert not admission.open
    admission.change(enforce=False, trial_seconds=1)
    assert admission.open
    admission.change(enforce=True, trial_seconds=1)
    assert not admission.open


async def test_rates(tmp_path: Path) -> None:
    """Contract 6.5, 8: what somebody wants to change while callers are too many."""
    async with GatewayProcess(tmp_path) as gateway:
        rewrite(gateway, limits={"requests_per_second": 1})
        assert (await reload(gateway))[1]["changed"] == ["limits.requests_per_second"]
        statuses = [(await gateway.http.get("/agents")).status_code for _ in range(3)]
        assert statuses[-1] == 429
        rewrite(gateway, limits={"requests_per_second": 0})
        await hang_up(gateway)
        assert [(await gateway.http.get("/agents")).status_code for _ in range(3)] == [200] * 3


# -- who may


async def test_without_authentication_only_this_machine_may(tmp_path: Path) -> None:
    """A request that a proxy on this machine passes on is not from this machine."""
    async with running() as gateway:
        post = gateway.client.post
        assert (await post("/admin/reload")).json() == {"changed": [], "unchanged_until_restart": []}
        for header in ("X-Forwarded-For", "X-Forwarded-Proto", "Forwarded", "Via", "X-Real-IP"):
            assert (await post("/admin/reload", headers={header: "127.0.0.1"})).status_code == 403, header
        assert (await post("/admin/reload", headers={"origin": "https://app.example"})).status_code == 403
        assert (await gateway.client.get("/admin/reload")).status_code == 405
        assert (await post("/admin/other")).status_code == 404


async def test_a_web_page_may_not() -> None:
    """A page in a browser on this machine is not from this machine, however far its origin is trusted."""
    async with running(a2a={"trusted_origins": ["*"]}) as gateway:
        for origin in ("https://app.example", "null", gateway.api):
            answer = await gateway.client.post("/admin/reload", headers={"origin": origin})
            assert answer.status_code == 403, origin
        assert (await gateway.client.post("/admin/reload")).status_code == 200


async def test_an_address_elsewhere_may_not() -> None:
    async with running(server={"trusted_proxies": ["127.0.0.1"]}) as gateway:
        elsewhere = {"x-forwarded-for": "192.0.2.7"}
        assert (await gateway.client.post("/admin/reload", headers=elsewhere)).status_code == 403


async def test_with_authentication_a_rule_must_grant_it() -> None:
    """Contract 6.1: without a policy a valid token may do everything it owns, and nobody owns the gateway."""
    auth: dict[str, Any] = {"enable": True, "secret_env": "JWT_SECRET"}
    anybody = issuer.bearer(issuer.token(issuer.SECRET))
    async with running(environ=ENVIRONMENT, auth=auth) as gateway:
        assert (await gateway.client.post("/admin/reload")).status_code == 401
        assert (await gateway.client.post("/admin/reload", headers=anybody)).status_code == 403
        audited = [line for line in gateway.lines() if line["event"] == "audit"]
        assert {line["reason"] for line in audited} <= {"UNAUTHENTICATED", "FORBIDDEN"}
    auth["policy"] = [{"principals": ["*"], "read": True}, {"principals": ["ops"], "administer": True}]
    async with running(environ=ENVIRONMENT, auth=auth) as gateway:
        assert (await gateway.client.post("/admin/reload", headers=anybody)).status_code == 403
        ops = issuer.bearer(issuer.token(issuer.SECRET, sub="ops"))
        assert (await gateway.client.post("/admin/reload", headers=ops)).status_code == 200


async def test_another_key_set_and_the_same(tmp_path: Path) -> None:
    """Contract 6.1, 8: the set is fetched anew where its address changed, and kept where it did not."""
    old, new = issuer.ec_key(1), issuer.ec_key(2)
    async with FaultAgent() as first, FaultAgent() as second:
        first.always(issuer.published(issuer.jwk(old, "a")))
        second.always(issuer.published(issuer.jwk(new, "b")))
        async with GatewayProcess(tmp_path, {"auth": {"enable": True, "jwks_url": first.url}}) as gateway:

            async def reads(key: Any, kid: str) -> int:
                token = issuer.bearer(issuer.token(key, "ES256", kid))
                return (await gateway.http.get("/agents", headers=token)).status_code

            assert (await reads(old, "a"), await reads(new, "b")) == (200, 401)
            fetched = len(first.requests)
            rewrite(gateway, auth={"leeway_seconds": 5})
            assert (await hang_up(gateway))["changed"] == ["auth.leeway_seconds"]
            assert (await reads(old, "a"), len(first.requests)) == (200, fetched)
            rewrite(gateway, auth={"jwks_url": second.url})
            assert (await hang_up(gateway))["changed"] == ["auth.jwks_url"]
            assert (await reads(new, "b"), await reads(old, "a")) == (200, 401)
            assert await gateway.stop() == 0
