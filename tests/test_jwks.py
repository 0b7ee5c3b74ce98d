"""Keys behind a URL that rotate, die, hang, and turn to garbage: contract 6.1, pitfalls 141, 143, 144."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway import jwks
from gateway.auth import Authenticator, TokenTerms
from gateway.identity import InvalidTokenError
from gateway.jwks import LARGEST_SET, JwksKeys
from gateway.upstream import AddressGuard, Upstream
from gateway.upstream.transport import PoolTransport
from tests.fakes import reply
from tests.fakes.agent import FaultAgent
from tests.fakes.issuer import jwk, key_set, published, rsa_key, token
from tests.fakes.running import eventually

OLD, NEW = jwk(rsa_key(0), "old"), jwk(rsa_key(1), "new")


@asynccontextmanager
async def following(url: str, *, loopback: bool = True) -> AsyncIterator[tuple[Authenticator, JwksKeys]]:
    upstream = Upstream(guard=AddressGuard(allow_loopback=loopback))
    keys = JwksKeys(url, PoolTransport(upstream))
    keys.start()
    try:
        yield Authenticator(keys, TokenTerms()), keys
    finally:
        await keys.aclose()
        await upstream.aclose()


def bearer(text: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", f"Bearer {text}".encode())]


def by_old(**changes: Any) -> list[tuple[bytes, bytes]]:
    return bearer(token(rsa_key(0), "RS256", changes.pop("kid", "old"), **changes))


def by_new(**changes: Any) -> list[tuple[bytes, bytes]]:
    return bearer(token(rsa_key(1), "RS256", changes.pop("kid", "new"), **changes))


async def refused(auth: Authenticator, headers: list[tuple[bytes, bytes]]) -> bool:
    try:
        await auth.authenticate(headers)
    except InvalidTokenError:
        return True
    return False


async def test_the_first_token_waits_for_the_first_set() -> None:
    async with FaultAgent() as idp, following(idp.at("/keys?v=1")) as (auth, keys):
        idp.always(published(OLD))
        found = await asyncio.gather(*(auth.authenticate(by_old(n=number)) for number in range(20)))
        assert {one.name for one in found} == {"alice"}
        assert keys.fetches == len(idp.requests) == 1
        asked = idp.requests[0]
        assert (asked.method, asked.target, asked.header("authorization")) == ("GET", "/keys?v=1", None)


async def test_known_keys_never_wait() -> None:
    async with FaultAgent() as idp, following(idp.url) as (auth, _):
        idp.always(published(OLD))
        await auth.authenticate(by_old())
        idp.always(reply.hang())
        assert auth.verify(by_old(n=1)).name == "alice"  # without an await


async def test_a_rotation_is_found_by_the_unknown_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "COOLDOWN_SECONDS", 0.0)
    async with FaultAgent() as idp, following(idp.url) as (auth, keys):
        idp.always(published(OLD))
        await auth.authenticate(by_old())
        kept = by_old()
        await auth.authenticate(kept)
        idp.always(published(NEW))
        assert (await auth.authenticate(by_new())).name == "alice"
        assert keys.fetches == 2
        assert auth.remembered(kept[0][1]) is None  # verified before, with a key that is withdrawn by now
        assert await refused(auth, kept)


async def test_both_keys_during_a_rotation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "COOLDOWN_SECONDS", 0.0)
    async with FaultAgent() as idp, following(idp.url) as (auth, _):
        idp.always(published(OLD, NEW))
        assert not await refused(auth, by_old())
        assert not await refused(auth, by_new())
        assert await refused(auth, by_old(kid="new"))  # signed by another key than it names


async def test_a_storm_of_unknown_keys_is_one_fetch_and_harms_nobody() -> None:
    """Pitfall 141."""
    async with FaultAgent() as idp, following(idp.url) as (auth, keys):
        idp.always(published(OLD))
        await auth.authenticate(by_old())
        for number in range(300):
            assert await refused(auth, by_new(kid=f"../../{number}"))
            assert auth.verify(by_old(n=number)).name == "alice"
        assert keys.fetches == 1  # the first one is no 30 s old
        keys._next = 0.0
        together = [refused(auth, by_new(kid=str(number))) for number in range(300)]
        assert all(await asyncio.gather(*together))
        assert keys.fetches == 2


@pytest.mark.parametrize("kid", ["", "/", "../../../etc/passwd", "x" * 5000, "' OR 1=1", "\u0000", "old\n"])
async def test_a_kid_is_only_looked_up(kid: str) -> None:
    async with FaultAgent() as idp, following(idp.url) as (auth, _):
        idp.always(published(OLD))
        assert await refused(auth, by_old(kid=kid))


async def test_a_token_without_kid_is_tried_with_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "COOLDOWN_SECONDS", 0.0)
    async with FaultAgent() as idp, following(idp.url) as (auth, _):
        idp.always(published(jwk(rsa_key(3), "other"), OLD))
        assert not await refused(auth, bearer(token(rsa_key(0), "RS256")))
        idp.always(published(NEW))  # a rotation: none of the known keys fits any more
        assert not await refused(auth, bearer(token(rsa_key(1), "RS256")))
        assert await refused(auth, bearer(token(rsa_key(2), "RS256")))


GARBAGE = {
    "refused": None,
    "500": reply.body(b"no", status=500),
    "404": reply.body(key_set(NEW), status=404),
    "html": reply.body(b"<html>", headers=[("Content-Type", "text/html")]),
    "empty": reply.body(b""),
    "no keys": reply.body(key_set()),
    "only unusable keys": reply.body(key_set({"kty": "oct", "k": "AAAA", "kid": "new"})),
    "a number": reply.body(b"5"),
    "cut": reply.short(key_set(NEW)[:-9], missing=9),
    "reset": reply.reset(),
    "not HTTP": reply.raw(b"SSH-2.0-x\r\n", close=True),
    "endless": reply.endless(),
    "huge": reply.body(key_set(NEW) + b" " * LARGEST_SET),
}


@pytest.mark.parametrize("what", GARBAGE)
async def test_tokens_of_known_keys_go_on_working(
    what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Pitfall 144."""
    monkeypatch.setattr(jwks, "COOLDOWN_SECONDS", 0.0)
    async with FaultAgent() as idp, following(idp.url) as (auth, keys):
        idp.always(published(OLD))
        await auth.authenticate(by_old())
        behaviour = GARBAGE[what]
        if behaviour is None:
            await idp.close()
        else:
            idp.always(behaviour)
        caplog.set_level(logging.INFO, "gateway.jwks")
        assert await refused(auth, by_new())
        assert await refused(auth, by_new(n=1))
        assert keys.fetches == 3
        assert (await auth.authenticate(by_old(n=1))).name == "alice"
        texts = [record.getMessage() for record in caplog.records]
        assert len(texts) == 1  # an outage, not a flood
        assert texts[0].startswith("the key set cannot be fetched, tokens of known keys go on working: ")
        if behaviour is not None:
            idp.always(published(OLD, NEW))
            assert (await auth.authenticate(by_new())).name == "alice"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_no_redirect_is_followed(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "COOLDOWN_SECONDS", 0.0)
    async with FaultAgent() as idp, FaultAgent() as other, following(idp.url) as (auth, _):
        other.always(published(NEW))
        idp.always(reply.redirect(other.url, status=status))
        assert await refused(auth, by_new())
        assert not other.requests


async def test_a_server_that_hangs_or_dribbles_holds_nobody_else_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pitfall 143."""
    monkeypatch.setattr(jwks, "COOLDOWN_SECONDS", 0.0)
    monkeypatch.setattr(jwks, "FETCH_SECONDS", 0.4)
    async with FaultAgent() as idp, following(idp.url) as (auth, keys):
        idp.always(published(OLD))
        await auth.authenticate(by_old())
        for behaviour in (
            reply.hang(),
            reply.hang(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"),
            reply.dribble(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + b" " * 99),
        ):
            idp.always(behaviour)
            waiting = [asyncio.ensure_future(refused(auth, by_new(n=number))) for number in range(5)]
            await idp.requests.reach(len(idp.requests) + 1, 5)
            began = asyncio.get_running_loop().time()
            assert auth.verify(by_old(n=2)).name == "alice"
            assert asyncio.get_running_loop().time() - began < 0.1
            assert not any(one.done() for one in waiting)
            assert all(await asyncio.wait_for(asyncio.gather(*waiting), 3))
        assert keys.fetches == 4


async def test_a_start_during_an_outage_heals_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "FIRST_RETRY_SECONDS", 0.01)
    async with FaultAgent() as idp:
        idp.next(reply.reset(), reply.body(b"no", status=503))
        idp.always(published(OLD))
        async with following(idp.url) as (auth, keys):
            await eventually(lambda: keys.fetches >= 3)
            assert (await auth.authenticate(by_old())).name == "alice"


async def test_withdrawn_keys_go_without_being_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "LIFETIME_SECONDS", 0.02)
    async with FaultAgent() as idp, following(idp.url) as (auth, keys):
        idp.always(published(OLD))
        headers = by_old()
        await auth.authenticate(headers)
        idp.always(published(NEW))
        seen = keys.fetches
        await eventually(lambda: keys.fetches >= seen + 2)
        assert auth.remembered(headers[0][1]) is None
        assert await refused(auth, headers)


async def test_the_address_guard_holds_for_key_sets() -> None:
    """Contract 6.3."""
    async with FaultAgent() as idp:
        idp.always(published(OLD))
        async with following(idp.url, loopback=False) as (auth, keys):
            assert await refused(auth, by_old())
            await eventually(lambda: keys.fetches > 0)
        assert not idp.connections


async def test_nothing_runs_on_after_the_end() -> None:
    async with FaultAgent() as idp:
        idp.always(reply.hang())
        async with following(idp.url) as (_, keys):
            await idp.received(1)
        await idp.all_closed()
        assert keys._keeping is not None
        assert keys._keeping.done()
