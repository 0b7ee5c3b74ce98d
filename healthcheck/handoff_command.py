"""The command `vitalgate handoff`: reads the card, walks the gates, sends if asked, prints the trace."""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import dataclass
from typing import Any

import httpx

from healthcheck.command import make_transport, read_file, write
from healthcheck.exchange import MIB, Ask, Evidence, send
from healthcheck.handoff import EXIT_CODES, STOPPED, Question, judge
from healthcheck.handoff import Trace as Handoff
from healthcheck.handoff_document import as_document
from healthcheck.handoff_remedies import REMEDIES
from healthcheck.handoff_response import settle
from healthcheck.rpc import version_headers
from healthcheck.text import printable
from healthcheck.trace import Trace
from healthcheck.url import UrlError, parse_url

CARD_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Order:
    """What the command line says."""

    card: str
    question: Question
    deadline_ms: int
    ca_file: str | None
    format: str


def run(order: Order) -> int:
    """Walk the gates and print the trace; the exit code follows the final state."""
    trace = asyncio.run(_walk(order))
    write(_as_json(trace) if order.format == "json" else _as_text(trace))
    return EXIT_CODES.get(trace.final_state, STOPPED)


async def _walk(order: Order) -> Handoff:
    transport = make_transport(order.ca_file, tls=True)
    try:
        await transport.warm_up()
        card = await _card(order, transport)
        trace, dispatch = judge(order.question, card, os.environ)
        if dispatch is None or order.question.text is None:
            return trace
        evidence = await _exchange(transport, dispatch.ask, order.deadline_ms / 1000)
        return settle(trace, dispatch, evidence, order.question.version)
    finally:
        await transport.aclose()


async def _card(order: Order, transport: httpx.AsyncBaseTransport) -> bytes | str:
    """The card's bytes, or why there is none; a URL is fetched without any credential."""
    if not order.card.lower().startswith(("http://", "https://")):
        return read_file(order.card)
    try:
        url = parse_url(order.card)
    except UrlError:
        return "card-url"
    headers = {"Accept": "application/json", **version_headers(order.question.version)}
    evidence = await _exchange(transport, Ask("card", "GET", url, headers, limit=MIB), CARD_SECONDS)
    if evidence is None or evidence.reply is None:
        return "card-unreachable"
    reply = evidence.reply
    if not reply.is_success:
        return "card-http-status"
    return "card-too-large" if reply.truncated else (reply.body or b"")


async def _exchange(transport: httpx.AsyncBaseTransport, ask: Ask, seconds: float) -> Evidence | None:
    """One exchange under a total deadline; None if it passed."""
    try:
        async with asyncio.timeout(seconds):
            return await send(transport, ask, Trace(time.monotonic))
    except TimeoutError:
        return None


def _as_json(trace: Handoff) -> str:
    return json.dumps(as_document(trace), indent=2) + "\n"


def _as_text(trace: Handoff) -> str:
    document = as_document(trace)
    lines = []
    for number, gate in enumerate(document["gates"], 1):
        reason = f": {gate['reason']}" if "reason" in gate else ""
        lines.append(f"{number} {gate['gate']:<10} {gate['result']}{reason}")
        for name, value in gate.get("looked_at", {}).items():
            if value is not None:
                lines.append(f"    {name}: {_plain(value)}")
        if gate.get("reason") in REMEDIES:
            lines.append(f"    try: {REMEDIES[gate['reason']]}")
    for name in ("sends", "destination", "credential_exposed", "final_state", "artifact", "task_id"):
        lines.append(f"{name}: {_plain(document[name])}")
    if trace.sends == 0 and trace.request is not None:
        lines.append(f"request, not sent: {json.dumps(trace.request)}")
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return ", ".join(map(printable, value)) or "none" if isinstance(value, list) else printable(str(value))
