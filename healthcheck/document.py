"""The result document (health contract 6): defined members first, what is ours beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from healthcheck.codes import CODES
from healthcheck.config import RELATIONSHIPS
from healthcheck.model import Check, DependencyResult, Finding, Result, Status

SPEC_VERSION = "v1"
STEPS = ("dns", "tcp", "tls", "http")
TIMINGS = ("dns", "connect", "tls", "first_byte", "total")


def document(results: Sequence[Result]) -> dict[str, Any]:
    """One root stands for itself; several are a list, in the order asked."""
    if len(results) == 1:
        return {"spec_version": SPEC_VERSION, **_result(results[0])}
    return {"spec_version": SPEC_VERSION, "results": [_result(result) for result in results]}


def _result(result: Result) -> dict[str, Any]:
    target = result.target
    shown = {"name": target.label, "type": target.type}
    return {
        "target": {"id": target.id, **shown} if target.id is not None else shown,
        "status": result.status.value,
        "latency_ms": result.latency_ms,
        "checks": {check.value: _finding(finding) for check, finding in result.checks.items()},
        "dependencies": [_dependency(one) for one in result.dependencies],
    }


def _dependency(one: DependencyResult) -> dict[str, Any]:
    return {**_result(one.result), "critical": one.critical, "relationship": one.relationship}


def _finding(finding: Finding) -> dict[str, Any]:
    entry: dict[str, Any] = {"status": finding.status.value}
    if finding.code:
        entry = {"code": finding.code, **entry, "message": finding.message}
    if finding.reason:
        entry["reason"] = finding.reason
    if finding.subject is not None:
        entry["subject"] = finding.subject
    measured = finding.measured
    if measured is not None:
        entry["steps"] = {step: status.value for step, status in measured.steps.items()}
        entry["timings_ms"] = dict(measured.timings_ms)
        if measured.certificate_expires_at:
            entry["certificate_expires_at"] = measured.certificate_expires_at
    return entry


def schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    status = {"$ref": "#/$defs/status"}
    members = {
        "target": {
            "type": "object",
            "additionalProperties": False,
            "required": ["name", "type"],
            "properties": {name: {"type": "string"} for name in ("id", "name", "type")},
        },
        "status": status,
        "latency_ms": {"type": ["number", "null"], "minimum": 0},
        "checks": _members(tuple(check.value for check in Check), {"$ref": "#/$defs/finding"}),
        "dependencies": {"type": "array", "items": {"$ref": "#/$defs/dependency"}},
    }
    edge = {"critical": {"type": "boolean"}, "relationship": {"enum": list(RELATIONSHIPS)}}
    version = {"spec_version": {"const": SPEC_VERSION}}
    many = {"type": "array", "items": {"$ref": "#/$defs/result"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "vitalgate health result, version v1",
        "oneOf": [_object({**version, **members}), _object({**version, "results": many})],
        "$defs": {
            "status": {"enum": [one.value for one in Status]},
            "finding": _finding_schema(status),
            "result": _object(members),
            "dependency": _object({**members, **edge}),
        },
    }


def _finding_schema(status: dict[str, Any]) -> dict[str, Any]:
    properties = {
        "code": {"enum": list(CODES)},
        "status": status,
        "message": {"type": "string"},
        "reason": {"type": "string", "pattern": "^[a-z0-9_]+$"},
        "subject": {"type": "string"},
        "steps": _members(STEPS, status),
        "timings_ms": _members(TIMINGS, {"type": "number", "minimum": 0}),
        "certificate_expires_at": {"type": "string", "format": "date-time"},
    }
    return {**_object(properties), "required": ["status"]}


def _members(names: Sequence[str], value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": dict.fromkeys(names, value)}


def _object(members: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(members),
        "properties": members,
    }
