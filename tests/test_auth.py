"""Tokens → callers: contract 6.1, pitfalls 135, 137, 138, 145."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.auth import LONGEST_TOKEN, MOST_REMEMBERED, Authenticator, FixedKey, TokenTerms
from gateway.headers import Headers
from gateway.identity import Identity, InvalidTokenError
from gateway.keys import Key, public_key, secret_key
from gateway.policy import Policy, Rule
from tests.fakes import issuer
from tests.fakes.issuer import SECRET

NOW = time.time()


def at_now() -> float:
    return NOW


def token(*key: Any, **changes: Any) -> str:
    return issuer.token(*key, **{"iat": NOW, "exp": NOW + 600} | changes)


def shown(*values: str | bytes) -> Headers:
    """Headers with these Authorization values."""
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    return [(b"host", b"h"), *((b"authorization", value) for value in encoded)]


def by_secret(terms: TokenTerms | None = None, **more: Any) -> Authenticator:
    return Authenticator(FixedKey(secret_key(SECRET)), terms or TokenTerms(), clock=at_now, **more)


def by_key(key: Any, wanted: tuple[str, ...] = ()) -> Authenticator:
    return Authenticator(FixedKey(public_key(issuer.public_pem(key), wanted)), TokenTerms(), clock=at_now)


def caller(text: str, auth: Authenticator | None = None) -> Identity:
    return (auth or by_secret()).verify(shown(f"Bearer {text}"))


def refused(text: str, auth: Authenticator | None = None) -> bool:
    """Whether a token is refused in the one way there is; anything else that is raised fails the test."""
    try:
        caller(text, auth)
    except InvalidTokenError as error:
        return str(error) == ""
    return False


# -- good tokens


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_shared_secret(algorithm: str) -> None:
    found = caller(token(algorithm=algorithm))
    assert (found.name, found.owner) == ("alice", "alice")


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_an_rsa_key(algorithm: str) -> None:
    assert caller(token(issuer.rsa_key(), algorithm), by_key(issuer.rsa_key())).name == "alice"


def test_an_elliptic_key_and_an_edwards_key() -> None:
    assert caller(token(issuer.ec_key(), "ES256"), by_key(issuer.ec_key())).name == "alice"
    assert caller(token(issuer.ed_key(), "EdDSA"), by_key(issuer.ed_key())).name == "alice"


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER  ", "bEaReR   "])
def test_the_scheme_is_read_in_any_case(scheme: str) -> None:
    """Pitfall 145."""
    assert by_secret().verify(shown(scheme + token())).name == "alice"


@pytest.mark.parametrize("changes", [{"exp": NOW - 10}, {"nbf": NOW + 10}, {"iat": NOW + 10}, {"iat": None}])
def test_clocks_may_differ_a_little(changes: dict[str, Any]) -> None:
    """Pitfall 137."""
    assert caller(token(**changes)).name == "alice"


@pytest.mark.parametrize(
    "principal", ["a", "ü" * 256, "a\r\nX-Evil: 1", "Alice Ärger", "*", "\u2028", "ANONYMOUS"]
)
def test_any_text_may_be_a_principal(principal: str) -> None:
    assert caller(token(sub=principal)).name == principal


def test_another_claim_names_the_caller() -> None:
    auth = by_secret(TokenTerms(principal_claim="client_id"))
    assert caller(token(client_id="ci"), auth).name == "ci"
    assert refused(token(), auth)


@pytest.mark.parametrize("audience", ["gw", ["other", "gw"]])
def test_issuer_and_audience(audience: Any) -> None:
    auth = by_secret(TokenTerms(issuer="https://idp", audience={"gw", "gw3"}))
    assert caller(token(iss="https://idp", aud=audience), auth).name == "alice"


def test_an_audience_does_not_matter_where_none_is_configured() -> None:
    """Pitfall 138: a choice, and documented as one."""
    assert caller(token(aud="whatever", iss="whoever")).name == "alice"


# -- bad tokens, which all end in the same way

DEEP = "[" * 5000 + "]" * 5000
PEM = issuer.public_pem(issuer.rsa_key())
BAD_CLAIMS: dict[str, dict[str, Any]] = {
    "expired": {"exp": NOW - 31},
    "long expired": {"exp": 1},
    "no exp": {"exp": None},
    "exp as text": {"exp": str(int(NOW + 100))},
    "exp true": {"exp": True},
    "exp list": {"exp": [NOW + 100]},
    "exp object": {"exp": {}},
    "exp null": {"raw": '{"sub":"alice","exp":null}'},
    "exp NaN": {"raw": '{"sub":"alice","exp":NaN}'},
    "exp Infinity": {"raw": '{"sub":"alice","exp":Infinity}'},
    "exp 1e999": {"raw": '{"sub":"alice","exp":1e999}'},
    "exp of 5000 digits": {"raw": '{"sub":"alice","exp":' + "9" * 5000 + "}"},
    "exp twice": {"raw": '{"sub":"alice","exp":1,"exp":99999999999}'},
    "not yet valid": {"nbf": NOW + 100},
    "nbf as text": {"nbf": "1"},
    "nbf null": {"raw": '{"sub":"alice","exp":99999999999,"nbf":null}'},
    "issued in the future": {"iat": NOW + 100},
    "iat as text": {"iat": "1"},
    "no principal": {"sub": None},
    "empty principal": {"sub": ""},
    "principal too long": {"sub": "a" * 257},
    "principal a number": {"sub": 5},
    "principal a list": {"sub": ["alice"]},
    "principal null": {"raw": '{"sub":null,"exp":99999999999}'},
    "principal with a lone surrogate": {"raw": '{"sub":"a\\ud800","exp":99999999999}'},
    "principal with NUL": {"sub": "a\0b"},
    "principal of nobody": {"sub": "anonymous"},
    "claims a list": {"raw": "[]"},
    "claims a string": {"raw": '"alice"'},
    "claims null": {"raw": "null"},
    "claims not JSON": {"raw": "{alice}"},
    "claims empty": {"raw": ""},
    "claims with a BOM": {"raw": '\ufeff{"sub":"alice","exp":99999999999}'},
    "claims nested deeply": {"raw": '{"sub":"alice","exp":99999999999,"x":' + DEEP + "}"},
    "claims not UTF-8": {"raw": '{"sub":"a\ud800","exp":99999999999}'},
    "header critical": {"header": {"crit": ["x"], "x": 1}},
    "header critical, not a list": {"header": {"crit": 5}},
    "payload not encoded": {"header": {"b64": False, "crit": ["b64"]}},
    "a token in the token": {"header": {"cty": "JWT"}},
    "compressed": {"header": {"zip": "DEF"}},
    "kid a number": {"header": {"kid": 5}},
    "kid a list": {"header": {"kid": ["../../etc/passwd"]}},
}


@pytest.mark.parametrize("changes", BAD_CLAIMS.values(), ids=BAD_CLAIMS)
def test_what_a_signed_token_must_not_say(changes: dict[str, Any]) -> None:
    assert refused(token(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"iss": "https://idp"},
        {"aud": "gw"},
        {"iss": "https://idp.evil", "aud": "gw"},
        {"iss": "https://id", "aud": "gw"},
        {"iss": ["https://idp"], "aud": "gw"},
        {"iss": "https://idp", "aud": "gw2"},
        {"iss": "https://idp", "aud": "g"},
        {"iss": "https://idp", "aud": []},
        {"iss": "https://idp", "aud": [["gw"]]},
        {"iss": "https://idp", "aud": {"gw": 1}},
        {"iss": "https://idp", "aud": 5},
        {"iss": "https://idp/", "aud": "gw"},
    ],
)
def test_issuer_and_audience_match_exactly_or_not_at_all(changes: dict[str, Any]) -> None:
    """Pitfall 138."""
    assert refused(token(**changes), by_secret(TokenTerms(issuer="https://idp", audience={"gw"})))


@pytest.mark.parametrize(
    "algorithm",
    ["none", "None", "NONE", "", "hs256", "HS1", "RS256", "ES256", "EdDSA", "dir", 5, None, ["HS256"], {}],
)
def test_the_algorithm_of_the_key_counts_whatever_the_header_says(algorithm: Any) -> None:
    """Pitfall 135; signed correctly with HS256 all the same, and unsigned."""
    payload = json.dumps(issuer.claims()).encode()
    assert refused(issuer.forged(payload, {"alg": algorithm}, SECRET, "HS256"))
    assert refused(issuer.forged(payload, {"alg": algorithm}, SECRET, "none"))


def test_a_token_without_an_algorithm() -> None:
    assert refused(issuer.forged(json.dumps(issuer.claims()).encode(), {}, SECRET, "HS256"))


@pytest.mark.parametrize(
    "signed_with",
    [PEM, PEM.strip(), PEM.replace(b"\n", b"\r\n"), PEM + b"\n", b""],
    ids=["as it is", "stripped", "crlf", "one more line", "nothing"],
)
@pytest.mark.parametrize("algorithm", ["HS256", "HS512"])
def test_a_public_key_is_no_secret(signed_with: bytes, algorithm: str) -> None:
    """Pitfall 135: key confusion."""
    payload = json.dumps(issuer.claims()).encode()
    text = issuer.forged(payload, {"alg": algorithm}, signed_with, algorithm)
    assert refused(text, by_key(issuer.rsa_key()))


def test_keys_of_others_and_of_another_type() -> None:
    auth = by_key(issuer.rsa_key())
    assert refused(token(issuer.rsa_key(1), "RS256"), auth)
    assert refused(token(issuer.ec_key(), "ES256"), auth)
    assert refused(token(issuer.ed_key(), "EdDSA"), auth)
    assert refused(token("another secret of 32 bytes or even more", "HS256"))  # pragma: allowlist secret


def test_configured_algorithms_narrow_those_of_the_key() -> None:
    auth = by_key(issuer.rsa_key(), wanted=("RS512",))
    assert refused(token(issuer.rsa_key(), "RS256"), auth)
    assert caller(token(issuer.rsa_key(), "RS512"), auth).name == "alice"


GOOD = token()
HEAD, BODY, SIGNATURE = GOOD.split(".")
OTHER = base64.urlsafe_b64encode(json.dumps(issuer.claims(sub="root")).encode()).decode().rstrip("=")
MANGLED = {
    "no dots": "x",
    "dots": "..",
    "many dots": "." * 100,
    "two parts": f"{HEAD}.{BODY}",
    "no signature": f"{HEAD}.{BODY}.",
    "four parts": f"{GOOD}.x",
    "other claims": f"{HEAD}.{OTHER}.{SIGNATURE}",
    "cut": GOOD[:-5],
    "one bit": GOOD[:-5] + ("A" if GOOD[-5] != "A" else "B") + GOOD[-4:],
    "trailing bits": f"{HEAD}.{BODY}.{SIGNATURE[:-1]}B",
    "header not JSON": f"x{HEAD}.{BODY}.{SIGNATURE}",
    "header a list": f"{base64.urlsafe_b64encode(b'[1]').decode().rstrip('=')}.{BODY}.{SIGNATURE}",
    "header nested": f"{base64.urlsafe_b64encode(DEEP[:9000].encode()).decode().rstrip('=')}.{BODY}.{SIGNATURE}",
    "huge": f"{HEAD}.{'A' * LONGEST_TOKEN}.{SIGNATURE}",
}


@pytest.mark.parametrize("text", MANGLED.values(), ids=MANGLED)
def test_what_is_no_token(text: str) -> None:
    assert refused(text)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [""],
        ["Bearer"],
        ["Bearer "],
        ["Bearer  "],
        [f"Bearer {GOOD} x"],
        [f"Bearer {GOOD},"],
        [f"Bearer\t{GOOD}"],
        [f"Bearer{GOOD}"],
        [GOOD],
        [f"Basic {GOOD}"],
        [f"Token {GOOD}"],
        [f"xBearer {GOOD}"],
        [f"Bearer {GOOD}", f"Bearer {GOOD}"],
        [f"Bearer {GOOD}", "Basic x"],
        [f"Bearer {GOOD}, Bearer {GOOD}"],
        [b"Bearer \xff"],
        [b"Bearer " + GOOD.encode() + b"\xc3\xa9"],
        [b"Bearer \x00"],
        ["Bearer " + "." * 60_000],
        [f"Bearer {GOOD}\n"],
    ],
)
def test_header_forms(values: list[str | bytes]) -> None:
    """Pitfall 145."""
    with pytest.raises(InvalidTokenError):
        by_secret().verify(shown(*values))


@given(st.binary(max_size=300), st.integers(0, 2))
def test_any_bytes_are_refused_and_never_a_crash(data: bytes, form: int) -> None:
    values = (data, b"Bearer " + data, b"Bearer " + base64.urlsafe_b64encode(data).rstrip(b"=") + b".e30.x")
    with pytest.raises(InvalidTokenError):
        by_secret().verify(shown(values[form]))


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)
)


@given(st.dictionaries(st.sampled_from(["sub", "exp", "nbf", "iat", "aud", "iss", "scope", "x"]), JSON))
def test_any_signed_claims_give_a_caller_or_the_refusal(said: dict[str, Any]) -> None:
    auth = by_secret(policy=Policy([Rule(principals=("*",), read=True)]))
    text = token(raw=json.dumps(said))
    if not refused(text, auth):
        assert isinstance(said["sub"], str)
        assert isinstance(said["exp"], int | float)


@given(st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jku", "x5u", "jwk"]), JSON))
@settings(max_examples=50)
def test_any_header_gives_a_caller_or_the_refusal(header: dict[str, Any]) -> None:
    text = issuer.forged(json.dumps(issuer.claims()).encode(), header, SECRET, "HS256")
    if not refused(text):
        assert header["alg"] == "HS256"


# -- what is remembered


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


class Counting:
    """A key source that counts how often it is asked, and changes its keys when told."""

    def __init__(self) -> None:
        self.key: Key | None = secret_key(SECRET)
        self.asked = 0
        self.changed: Callable[[], None] = lambda: None

    def find(self, kid: str | None, algorithm: str) -> list[Key]:
        self.asked += 1
        return [] if self.key is None else [self.key]

    async def refresh(self) -> bool:
        return False

    def on_change(self, callback: Callable[[], None]) -> None:
        self.changed = callback


def test_a_verified_token_is_verified_once() -> None:
    keys = Counting()
    auth = Authenticator(keys, TokenTerms(), clock=at_now)
    header = f"Bearer {token()}".encode()
    assert auth.remembered(header) is None
    first = auth.verify(shown(header))
    assert auth.remembered(header) is first
    assert auth.verify(shown(header)) is first
    assert keys.asked == 1


def test_nothing_is_remembered_beyond_exp() -> None:
    keys, clock = Counting(), Clock()
    auth = Authenticator(keys, TokenTerms(), clock=clock)
    header = f"Bearer {token(exp=clock.now + 60)}".encode()
    auth.verify(shown(header))
    clock.now += 61  # within the leeway: good, but verified each time
    assert auth.remembered(header) is None
    auth.verify(shown(header))
    assert (keys.asked, auth.remembered(header)) == (2, None)
    clock.now += 30
    with pytest.raises(InvalidTokenError):
        auth.verify(shown(header))


def test_what_is_remembered_is_dropped_when_keys_change() -> None:
    keys = Counting()
    auth = Authenticator(keys, TokenTerms(), clock=at_now)
    header = f"Bearer {token()}".encode()
    auth.verify(shown(header))
    keys.key = None
    keys.changed()
    assert auth.remembered(header) is None
    with pytest.raises(InvalidTokenError):
        auth.verify(shown(header))


def test_bad_tokens_are_not_remembered_and_good_ones_up_to_a_bound() -> None:
    auth = by_secret()
    for number in range(100):
        assert refused(f"{HEAD}.{BODY}.{number}", auth)
    assert len(auth._known) == 0
    first = f"Bearer {token(n=-1)}".encode()
    auth.verify(shown(first))
    for number in range(MOST_REMEMBERED):
        caller(token(n=number), auth)
    assert len(auth._known) == MOST_REMEMBERED
    assert auth.remembered(first) is None
    assert all(SECRET not in repr(entry) and GOOD not in repr(entry) for entry in auth._known.items())


def test_grants_come_from_the_policy() -> None:
    policy = Policy([Rule(scopes=("agents:call",), call=("echo-*",)), Rule(principals=("al*",), read=True)])
    auth = by_secret(policy=policy)
    without, text = caller(token(), auth), caller(token(scope="x agents:call y"), auth)
    listed = caller(token(scope=["agents:call"]), auth)
    assert (without.grants.read, without.grants.call("echo-1")) == (True, False)
    assert (text.grants.call("echo-1"), text.grants.call("other")) == (True, False)
    assert listed.grants.call("echo-1")
    for wrong in ("agents:cal", "agents:call2", 5, {"agents:call": 1}, None):
        assert not caller(token(scope=wrong), auth).grants.call("echo-1")
