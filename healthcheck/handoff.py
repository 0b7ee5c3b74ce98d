"""May this peer be handed this task? Six gates, in order, the first failure stops (health contract 8).

Gates 1 to 5 are pure. `judge` gives the trace and, if all of them passed, what is to be sent; `handoff_response`
adds what the answer says. Dispatch is never reported as completion: no retry, no cancel, no polling.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from healthcheck.card import TEXT_PLAIN, V03, V10, Card, CardFault, Interface, major_minor, read_card, read_json
from healthcheck.exchange import MIB, Ask
from healthcheck.rpc import MAX_TEXT, Call, send_message
from healthcheck.url import Origin, Url, UrlError, parse_url

GATES = ("card", "endpoint", "contract", "credential", "request", "response")
PLACEHOLDER = "(the task's text)"
_TOKEN = re.compile(r"[!-~]+")

Shown = dict[str, str | int | bool | list[str] | None]


@dataclass(frozen=True, slots=True)
class Question:
    """What the user wants to know; `text` is None for a dry run, `credential` an origin and a variable."""

    skill: str
    policy: str = "allowlist"
    origins: tuple[Origin, ...] = ()
    credential: tuple[Origin, str] | None = None
    scope: str = "bound"
    public: bool = False
    version: str = V10
    text: str | None = None
    input_mode: str = TEXT_PLAIN
    output_mode: str = TEXT_PLAIN


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate: `reason` is None if it passed; `looked_at` holds no text of the peer's."""

    name: str
    reason: str | None
    looked_at: Shown


@dataclass(frozen=True, slots=True)
class Trace:
    """All that was decided and done."""

    gates: tuple[Gate, ...] = ()
    sends: int = 0
    destination: str | None = None
    credential_exposed: bool = False
    final_state: str = "ready"
    artifact: str = "none"
    task_id: str | None = None
    request: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What is to be sent once all gates have passed."""

    call: Call
    ask: Ask


class _Stop(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass
class _Walk:
    """What the gates have found out so far."""

    question: Question
    environ: Mapping[str, str]
    body: bytes
    looked_at: Shown = field(default_factory=dict)
    card: Card | None = None
    interface: Interface | None = None
    url: Url | None = None
    bearer: str | None = None
    exposed: bool = False
    call: Call | None = None

    @property
    def found(self) -> tuple[Card, Interface]:
        """Known once the endpoint gate has run."""
        if self.card is None or self.interface is None:
            raise _Stop("card-malformed")
        return self.card, self.interface


def judge(question: Question, card: bytes | str, environ: Mapping[str, str]) -> tuple[Trace, Dispatch | None]:
    """Gates 1 to 5. `card` is the document's bytes, or the reason why there is none."""
    body = card if isinstance(card, bytes) else b""
    walk = _Walk(question, environ, body)
    gates: list[Gate] = []
    for name, gate in _GATES.items():
        walk.looked_at = {}
        try:
            if isinstance(card, str):
                raise _Stop(card)
            gate(walk)
        except _Stop as stop:
            gates.append(Gate(name, stop.reason, walk.looked_at))
            return _trace(walk, gates, stop.reason), None
        gates.append(Gate(name, None, walk.looked_at))
    return _trace(walk, gates, "ready"), _dispatch(walk)


def _trace(walk: _Walk, gates: list[Gate], state: str) -> Trace:
    request = read_json(walk.call.body) if walk.call else None
    destination = str(walk.url) if walk.url else None
    return Trace(tuple(gates), 0, destination, walk.exposed, state, request=request)


def _dispatch(walk: _Walk) -> Dispatch | None:
    if walk.call is None or walk.url is None:
        return None
    credential = {"Authorization": f"Bearer {walk.bearer}"} if walk.bearer else {}
    headers = {**walk.call.headers, **credential}
    ask = Ask("send", "POST", walk.url, headers, walk.call.body, MIB, passive=False, cut_code="a2a_limit")
    return Dispatch(walk.call, ask)


# -- gates 1 to 5


def _card_gate(walk: _Walk) -> None:
    walk.looked_at = {"bytes": len(walk.body)}
    try:
        document = read_json(walk.body)
        walk.card = read_card(document, _shape(document, walk.question.version))
    except CardFault as error:
        walk.looked_at["fault"] = error.reason
        raise _Stop("card-malformed") from error
    walk.looked_at |= {"interfaces": len(walk.card.interfaces), "skills": len(walk.card.skills)}


def _shape(document: Any, asked: str) -> str:
    """The version in whose form the card is written; the one asked for if it is written in both."""
    if not isinstance(document, dict):
        return V10
    has_10, has_03 = "supportedInterfaces" in document, "url" in document
    if has_10 and has_03:
        return V10 if asked == V10 else V03
    return V03 if has_03 else V10


def _endpoint_gate(walk: _Walk) -> None:
    question, card = walk.question, walk.card
    if card is None:
        raise _Stop("card-malformed")
    walk.interface = _choose(card, question.version)
    allowed = [str(origin) for origin in question.origins] if question.policy == "allowlist" else None
    walk.looked_at = {"policy": question.policy, "allowed": allowed}
    try:
        url = parse_url(walk.interface.url)
    except UrlError as error:
        words = {"url_userinfo": "endpoint-userinfo", "url_fragment": "endpoint-fragment"}
        raise _Stop(words.get(error.reason, "endpoint-malformed")) from error
    walk.url = url
    walk.looked_at["origin"] = str(url.origin)
    if url.origin.scheme != "https":
        raise _Stop("endpoint-not-https")
    if question.policy == "allowlist" and url.origin not in question.origins:
        raise _Stop("endpoint-not-allowed")


def _choose(card: Card, version: str) -> Interface:
    """The interface that fits; else the nearest one, so that the contract gate can say what is wrong."""
    over_rpc = [one for one in card.interfaces if one.transport.upper() == "JSONRPC"]
    fitting = [one for one in over_rpc if one.speaks(version)]
    return (fitting or over_rpc or list(card.interfaces))[0]


def _contract_gate(walk: _Walk) -> None:
    card, interface = walk.found
    question = walk.question
    found = major_minor(interface.version) if interface.version else None
    walk.looked_at = {
        "protocol_version": ".".join(map(str, found)) if found else None,
        "asked_version": question.version,
        "skill": question.skill,
        "input_mode": question.input_mode,
        "output_mode": question.output_mode,
    }
    if not interface.speaks(question.version):
        raise _Stop("protocol-version")
    if interface.transport.upper() != "JSONRPC":
        raise _Stop("transport")
    if card.required_extensions:
        raise _Stop("extension-required")
    skill = next((one for one in card.skills if one.id == question.skill), None)
    walk.looked_at["advertised"] = skill is not None
    if skill is None:
        raise _Stop("skill-not-advertised")
    if question.input_mode not in (skill.input_modes or card.input_modes):
        raise _Stop("input-mode")
    if question.output_mode not in (skill.output_modes or card.output_modes):
        raise _Stop("output-mode")


def _credential_gate(walk: _Walk) -> None:
    card, _ = walk.found
    question = walk.question
    walk.looked_at = {
        "security": sorted({one.value for one in card.security}),
        "public": question.public,
        "scope": question.scope,
        "credential_origin": str(question.credential[0]) if question.credential else None,
        "variable": question.credential[1] if question.credential else None,
    }
    if not card.is_public and not card.takes_bearer:
        raise _Stop("security-unsupported")
    if question.credential is None:
        _without_credential(card, question)
    else:
        _with_credential(walk, card, *question.credential)


def _without_credential(card: Card, question: Question) -> None:
    if not card.is_public:
        raise _Stop("credential-missing")
    if not question.public:
        raise _Stop("security-missing")


def _with_credential(walk: _Walk, card: Card, origin: Origin, variable: str) -> None:
    token = walk.environ.get(variable, "")
    if not _TOKEN.fullmatch(token):
        raise _Stop("credential-missing")
    if not card.takes_bearer:
        _without_credential(card, walk.question)  # a card that asks for none is sent none
        return
    own = walk.url is not None and walk.url.origin == origin
    if walk.question.scope == "bound" and not own:
        raise _Stop("credential-origin")
    walk.bearer = token
    walk.exposed = not own


def _request_gate(walk: _Walk) -> None:
    _, interface = walk.found
    text = walk.question.text
    size = len((text or "").encode("utf-8", "surrogatepass"))
    walk.looked_at = {"dry_run": text is None, "bytes": size}
    if text is not None and (not text.strip() or size > MAX_TEXT or not _is_text(text)):
        raise _Stop("request-invalid")
    shown = PLACEHOLDER if text is None else text
    walk.call = send_message(walk.question.version, shown, interface.tenant)


def _is_text(text: str) -> bool:
    """False where an argument held bytes that are not UTF-8."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


_GATES: Mapping[str, Callable[[_Walk], None]] = {
    "card": _card_gate,
    "endpoint": _endpoint_gate,
    "contract": _contract_gate,
    "credential": _credential_gate,
    "request": _request_gate,
}


EXIT_CODES: Mapping[str, int] = {
    "ready": 0,
    "completed": 0,
    "completed-no-text": 1,
    "working-not-complete": 1,
    "needs-input": 1,
    "peer-failed": 2,
    "unsupported-form": 2,
    "response-rejected": 2,
    "unreachable": 3,
    "needs-auth": 4,
    "timeout-unknown": 5,
    "connection-unknown": 5,
}
"""By final state; a stop at gates 1 to 5 is 4 (section 1: configuration or credentials prevent it)."""

STOPPED = 4
