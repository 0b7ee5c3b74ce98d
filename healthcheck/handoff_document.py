"""A handoff's trace as plain values: what `--format json` prints and the console shows (health contract 8)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from healthcheck.handoff import GATES, Gate, Trace


def as_document(trace: Trace) -> dict[str, Any]:
    """The trace as plain values: all six gates, those not reached as `not reached`."""
    walked = {gate.name: gate for gate in trace.gates}
    values = asdict(trace)
    values["gates"] = [_gate(name, walked.get(name)) for name in GATES]
    return values


def _gate(name: str, gate: Gate | None) -> dict[str, Any]:
    if gate is None:
        return {"gate": name, "result": "not reached"}
    stopped = gate.reason is not None
    shown: dict[str, Any] = {"gate": name, "result": "stop" if stopped else "pass"}
    if stopped:
        shown["reason"] = gate.reason
    return {**shown, "looked_at": gate.looked_at}
