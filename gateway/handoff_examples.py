"""Pure: what the handoff inspector is tried with: named cards, answers of a peer, and the inputs to begin with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from healthcheck.card import V10

ORIGIN: Final = "https://agent.example"
SKILL: Final = "advise-retries"
ACCEPTED: Final = "Use a finite retry budget."

#: Milliseconds: how late a fixture answers unless told otherwise, and the deadlines to choose from.
PEER_DELAY_MS: Final = 150
DEADLINES_MS: Final = {"fixture": [100, 200, 300], "send": [1000, 5000, 10_000, 30_000]}


def _card(url: str = f"{ORIGIN}/a2a", **members: Any) -> dict[str, Any]:
    return {
        "name": "Retry adviser",
        "description": "Says how often a failed call may be tried again.",
        "version": "1.2.0",
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [_SKILL],
        "securitySchemes": {"token": {"httpAuthSecurityScheme": {"scheme": "bearer"}}},
        "securityRequirements": [{"schemes": {"token": {"list": []}}}],
        **members,
    }


_SKILL: Final = {
    "id": SKILL,
    "name": "Advise on retries",
    "description": "Answers in one sentence.",
    "tags": ["reliability"],
}
_IMAGES: Final = {"inputModes": ["image/png"], "outputModes": ["image/png"]}


def _without_version() -> dict[str, Any]:
    """A card of 0.3 says its version at the top, and this one does not."""
    card = _card(url=f"{ORIGIN}/a2a", preferredTransport="JSONRPC")
    del card["supportedInterfaces"], card["securityRequirements"]
    card["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return {**card, "url": f"{ORIGIN}/a2a", "security": [{"token": []}]}


def _text(card: dict[str, Any]) -> str:
    return json.dumps(card, indent=2)


#: Id, what it is called, and the text of the card.
CARDS: Final = (
    ("valid", "Valid card", _text(_card())),
    ("wrong-origin", "Wrong origin", _text(_card("https://elsewhere.example/a2a"))),
    (
        "wrong-transport",
        "Wrong transport",
        _text(
            _card(
                supportedInterfaces=[{"url": f"{ORIGIN}/a2a", "protocolBinding": "GRPC", "protocolVersion": "1.0"}]
            )
        ),
    ),
    ("image-only", "Image-only skill", _text(_card(skills=[_SKILL | _IMAGES]))),
    ("no-version", "No protocol version", _text(_without_version())),
    ("broken-json", "Broken JSON", _text(_card())[:-40]),
)

DEFAULTS: Final[Mapping[str, Any]] = {
    "card": CARDS[0][2],
    "destination": ORIGIN,
    "skill": SKILL,
    "policy": "allowlist",
    "credential": "bound",
    "public": False,
    "protocol_version": V10,
    "text": "How often may a failed call be tried again?",
    "deadline_ms": DEADLINES_MS["fixture"][1],
    "answer": {"fixture": "completed", "delay_ms": PEER_DELAY_MS},
}
"""A request to `POST /handoff/trace` that ends with the accepted text."""


def _task(version: str, state: str, text: str = "") -> dict[str, Any]:
    """A task as the result of a send, in either version."""
    word = f"TASK_STATE_{state.upper()}" if version == V10 else state
    part = {"text": text} if version == V10 else {"kind": "text", "text": text}
    task: dict[str, Any] = {"id": "task-1", "contextId": "context-1", "status": {"state": word}}
    if text:
        task["artifacts"] = [{"artifactId": "artifact-1", "parts": [part]}]
    return {"task": task} if version == V10 else {"kind": "task", **task}


def _answered(request_id: str, result: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}).encode()


Answer = Callable[[str, str], bytes]  # (id of the request, protocol version) → the body of a 200

#: Id → what it is called, and what it answers.
FIXTURES: Final[Mapping[str, tuple[str, Answer]]] = {
    "completed": ("Completed task", lambda id, version: _answered(id, _task(version, "completed", ACCEPTED))),
    "working": ("Working task", lambda id, version: _answered(id, _task(version, "working"))),
    "failed": ("Failed task", lambda id, version: _answered(id, _task(version, "failed"))),
    "wrong-id": (
        "Wrong correlation id",
        lambda id, version: _answered(f"not-{id}", _task(version, "completed", ACCEPTED)),
    ),
    "malformed": (
        "Malformed JSON",
        lambda id, version: _answered(id, _task(version, "completed", ACCEPTED))[:-30],
    ),
}


def document() -> dict[str, Any]:
    """All of it, as `GET /handoff/examples` gives it."""
    return {
        "cards": [{"id": id, "label": label, "card": card} for id, label, card in CARDS],
        "fixtures": [{"id": id, "label": label} for id, (label, _) in FIXTURES.items()],
        "deadlines_ms": DEADLINES_MS,
        "defaults": DEFAULTS,
    }
