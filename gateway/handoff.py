"""The handoff inspector: the engine of `vitalgate handoff` over what a page gives it (health contract 8).

An answer is a fixture, which nobody waits for, or that of a registered agent, to which the task is really sent:
to its registered address only, and past the checks that every call passes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import httpx

from gateway.handoff_examples import FIXTURES
from gateway.handoff_form import Fixture, Form
from gateway.lifecycle import Lifecycle
from gateway.peers import Peer
from healthcheck.exchange import Evidence, Reply, send
from healthcheck.handoff import Dispatch, Gate, Question, Trace, judge
from healthcheck.handoff_document import as_document
from healthcheck.handoff_remedies import REMEDIES
from healthcheck.handoff_response import accepted_text, settle
from healthcheck.model import Measurement
from healthcheck.trace import Trace as Notebook
from healthcheck.url import Origin, Url, UrlError, parse_url

#: The variable in which a fixture's credential is said to stand, and a token that never leaves this process.
FIXTURE_VARIABLE: Final = "HANDOFF_TOKEN"
_FIXTURE_TOKEN: Final = "not-a-token"  # noqa: S105
#: What the trace calls the place that holds an agent's real token.
_OWN_VARIABLE: Final = "upstream.credentials"
#: Final state of a send that the gateway itself does not make; the reason stands at the last gate.
REFUSED: Final = "refused-by-gateway"
_MOST_SHOWN: Final = 64 * 1024

_REMEDIES: Final[Mapping[str, str]] = {
    **REMEDIES,
    "address-not-registered": "The gateway sends only to the address under which the agent is registered: "
    "correct the card, or register the agent with the address in it.",
    "agent-out-of-service": "The agent is held out of service: see its checks.",
    "server-busy": "All of the agent's slots are taken: try again, or raise a2a.agent_max_concurrency.",
    "gateway-shutdown": "The gateway is closing down: ask another one.",
    "address-not-allowed": "The gateway may not connect to this address: see upstream.allow_hosts.",
}


@dataclass(frozen=True, slots=True)
class Route:
    """How a real send leaves the gateway.

    Attributes:
        transport: The gateway's own connections.
        lifecycle: Counts what is in flight, and tells when nothing more is sent.
        headers: What the agent is told beside the message.
    """

    transport: httpx.AsyncBaseTransport
    lifecycle: Lifecycle
    headers: Mapping[str, str]


def judged(form: Form) -> dict[str, Any]:
    """Walk the gates without a peer: a dry run, or with a fixture for an answer."""
    fixture = form.answer if isinstance(form.answer, Fixture) else None
    question = _question(form, FIXTURE_VARIABLE, form.destination, None if form.answer is None else form.text)
    trace, dispatch = judge(question, form.card, {FIXTURE_VARIABLE: _FIXTURE_TOKEN})
    if fixture is None or dispatch is None:
        return _document(trace, simulated=True)
    evidence = None if fixture.delay_ms >= form.deadline_ms else _evidence(fixture, dispatch, form.version)
    return _settled(trace, dispatch, evidence, form, fixture.delay_ms)


async def sent(form: Form, peer: Peer, route: Route) -> dict[str, Any]:
    """Walk the gates, and hand the task to a registered agent if all of them let it pass; once, or not at all."""
    registered = _address(peer)
    origin = registered.origin if registered else form.destination  # the token is that agent's, whatever is asked
    question = _question(form, _OWN_VARIABLE, origin, form.text)
    trace, dispatch = judge(question, form.card, {_OWN_VARIABLE: _token(peer)})
    if dispatch is None:
        return _document(trace, simulated=False)
    refused = "address-not-registered" if dispatch.ask.url != registered else _kept_back(peer, route.lifecycle)
    if refused:
        return _document(_refused(trace, refused), simulated=False)
    ask = replace(dispatch.ask, headers={**dispatch.ask.headers, **route.headers})
    began = time.monotonic()
    evidence = await _exchange(replace(dispatch, ask=ask), peer, route, form.deadline_ms / 1000)
    return _settled(trace, dispatch, evidence, form, round((time.monotonic() - began) * 1000), simulated=False)


def _address(peer: Peer) -> Url | None:
    """Where the agent is registered; None for an address that no gate lets pass."""
    try:
        return parse_url(peer.agent.url)
    except UrlError:
        return None


def _question(form: Form, variable: str, origin: Origin, text: str | None) -> Question:
    given = form.credential != "missing"
    return Question(
        skill=form.skill,
        policy=form.policy,
        origins=(form.destination,),
        credential=(origin, variable) if given else None,
        scope=form.credential if given else "bound",
        public=form.public,
        version=form.version,
        text=text,
    )


def _evidence(fixture: Fixture, dispatch: Dispatch, version: str) -> Evidence:
    """What a peer that answers so would have brought."""
    body = FIXTURES[fixture.name][1](dispatch.call.id, version)
    return Evidence(Reply(200, {"content-type": "application/json"}, body), None, Measurement(), first_byte=True)


def _token(peer: Peer) -> str:
    """The token that the agent is shown with every call; empty if there is none."""
    line = peer.prefix.removeprefix(peer.bare_prefix)
    return line.removeprefix(b"Authorization: Bearer ").rstrip().decode()


def _kept_back(peer: Peer, lifecycle: Lifecycle) -> str:
    """Why the gateway does not send now; empty if it does. Trial calls are left to those who really call."""
    if lifecycle.refusing:
        return "gateway-shutdown"
    if not peer.admission.open:
        return "agent-out-of-service"
    return "" if peer.slots.used < peer.slots.limit else "server-busy"


def _refused(trace: Trace, reason: str) -> Trace:
    gate = Gate("response", reason, {"status": None})
    return replace(trace, gates=(*trace.gates, gate), final_state=REFUSED)


async def _exchange(dispatch: Dispatch, peer: Peer, route: Route, seconds: float) -> Evidence | None:
    """One exchange in a slot of the agent's, under a total deadline; None if that passed."""
    peer.slots.take()
    route.lifecycle.begin()
    try:
        async with asyncio.timeout(seconds):
            return await send(route.transport, dispatch.ask, Notebook(time.monotonic))
    except TimeoutError:
        return None
    finally:
        route.lifecycle.end()
        peer.slots.give()


# -- what the page is told


def _settled(
    trace: Trace,
    dispatch: Dispatch,
    evidence: Evidence | None,
    form: Form,
    elapsed_ms: int,
    *,
    simulated: bool = True,
) -> dict[str, Any]:
    after = settle(trace, dispatch, evidence, form.version)
    text = accepted_text(after, dispatch, evidence, form.version)
    elapsed = min(elapsed_ms, form.deadline_ms) if evidence is None else elapsed_ms
    return _document(after, simulated, _response(evidence, elapsed), text)


def _document(
    trace: Trace, simulated: bool, response: Mapping[str, Any] | None = None, text: str | None = None
) -> dict[str, Any]:
    """`trace` is what the command prints; the peer's own words stand beside it."""
    reason = next((gate.reason for gate in trace.gates if gate.reason is not None), None)
    return {
        "trace": as_document(trace),
        "simulated": simulated,
        "response": response,
        "artifact_text": None if text is None else _cut(text)[0],
        "remedy": _REMEDIES.get(reason or ""),
    }


def _response(evidence: Evidence | None, elapsed_ms: int) -> dict[str, Any]:
    """What came back, if anything did; `body` is the peer's text."""
    reply = None if evidence is None else evidence.reply
    failure = None if evidence is None else evidence.failure
    body, cut = _cut((reply.body or b"").decode("utf-8", "replace")) if reply else (None, False)
    return {
        "status": reply.status if reply else None,
        "failure": failure.code if failure else None,
        "elapsed_ms": elapsed_ms,
        "body": body,
        "truncated": cut or bool(reply and reply.truncated),
    }


def _cut(text: str) -> tuple[str, bool]:
    """At most so much of the peer's text as a page can show; without halves of pairs, which JSON cannot hold."""
    whole = text.encode("utf-8", "replace").decode()
    return whole[:_MOST_SHOWN], len(whole) > _MOST_SHOWN
