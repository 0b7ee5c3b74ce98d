"""Configuration files, `version: v1` (health contract 5): read strictly, every mistake named by its path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from healthcheck.card import CAPABILITIES, V10, VERSIONS
from healthcheck.model import (
    A2AFunctional,
    A2AOptions,
    AgentFunctional,
    AgentOptions,
    Check,
    Dependency,
    HttpOptions,
    Target,
)
from healthcheck.references import References, walk
from healthcheck.rpc import MAX_TEXT
from healthcheck.rules import (
    Reader,
    Rule,
    boolean,
    choice,
    constant,
    either,
    integer,
    listing,
    mapping,
    number,
    pattern,
    table,
    text,
    utf8,
)
from healthcheck.strict_yaml import ConfigError, Invalid, Mistake, join, load

MAX_CONCURRENCY = 16
MAX_FILE_BYTES = 16 << 20
RELATIONSHIPS = ("supporting", "downstream", "path", "gateway", "router")

_ID = pattern("[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", "1 to 64 letters, digits, dots, underscores or hyphens")
_ENV = pattern("[A-Za-z_][A-Za-z0-9_]{0,255}", "the name of an environment variable")
_HEADER = pattern("[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", "a header name")
_HEADER_VALUE = pattern("[ -~]{0,4096}", "printable ASCII text")
_CHECK = choice(*(check.value for check in Check))
_TIMEOUT = integer(1, 300_000)
_NAME = text(256)
_STATUS = integer(100, 599)
_SAFE = constant(True, "true: the message must be safe to send")

_A2A = mapping(
    {
        "protocol_version": choice(*VERSIONS),
        "card_url": text(2048),
        "required_skills": listing(_NAME),
        "required_capabilities": listing(
            choice(*dict.fromkeys(name for names in CAPABILITIES.values() for name in names))
        ),
        "functional": mapping({"safe": _SAFE, "text": utf8(MAX_TEXT)}, required=("safe", "text")),
    }
)
_AGENT = mapping(
    {
        "required_capabilities": listing(_NAME),
        "functional": mapping(
            {
                "safe": _SAFE,
                "text": utf8(MAX_TEXT),
                "downstream": pattern(r"|(?=[\s\S]*\S)[\s\S]{1,1024}", "at most 1024 characters, not blank"),
            },
            required=("safe", "text"),
        ),
    }
)
_HTTP = mapping(
    {
        "method": choice("GET", "HEAD"),
        "expected_status": either(_STATUS, listing(_STATUS, least=1), lambda value: isinstance(value, list)),
        "headers": table(_HEADER, _HEADER_VALUE),
        "body_contains": utf8(4096),
        "max_body_bytes": integer(1, 16 << 20),
    }
)

_TARGET: dict[str, Rule] = {
    "id": _ID,
    "name": _NAME,
    "type": text(64),
    "endpoint": text(2048),
    "auth": mapping({"bearer_env": _ENV}, required=("bearer_env",)),
    "checks": listing(_CHECK),
    "timeout_ms": _TIMEOUT,
    "check_timeouts_ms": table(_CHECK, _TIMEOUT),
    "retries": integer(0, 3),
    "retry_delay_ms": integer(0, 60_000),
    "budget_ms": integer(1, 60_000),
    "thresholds": mapping({"latency_ms": number(0)}),
    "a2a": _A2A,
    "agent": _AGENT,
    "http": _HTTP,
}
_EDGE = {"critical": boolean(), "relationship": choice(*RELATIONSHIPS)}
_REFERENCE = mapping({"ref": _ID, **_EDGE}, required=("ref",))
_REQUIRED = ("type", "endpoint")


def _read_dependencies(reader: Reader, value: Any, path: str) -> Any:
    return listing(_DEPENDENCY, unique=False).read(reader, value, path)


_DEPENDENCIES = Rule({"type": "array", "items": {"$ref": "#/$defs/dependency"}}, _read_dependencies)
_INLINE = mapping({**_TARGET, **_EDGE, "dependencies": _DEPENDENCIES}, required=_REQUIRED)
_DEPENDENCY = either(_INLINE, _REFERENCE, lambda value: isinstance(value, dict) and "ref" in value)
_ROOT = mapping({**_TARGET, "dependencies": _DEPENDENCIES}, required=_REQUIRED)
_FILE = mapping(
    {
        "version": constant("v1", '"v1"'),
        "targets": listing(_ROOT, least=1, unique=False),
        "concurrency": integer(1, MAX_CONCURRENCY),
    },
    required=("version", "targets"),
)

_OPTIONS_OF = {
    "a2a": "a2a",
    "agent": "agent",
    "multi-agent": "agent",
    "http": "http",
    "api": "http",
    "gateway": "http",
    "router": "http",
}
_NOT_WRITTEN = {"authorization", "proxy-authorization", "cookie", "host", "connection", "content-length"} | {
    "transfer-encoding",
    "te",
    "upgrade",
}


@dataclass(frozen=True, slots=True)
class Config:
    """A file that may be run."""

    targets: tuple[Target, ...]
    concurrency: int = MAX_CONCURRENCY


def schema() -> dict[str, Any]:
    """The JSON Schema of the file; what it cannot say (references, cycles, rules between keys) is below."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "vitalgate health configuration, version v1",
        **_FILE.schema,
        "$defs": {"dependency": _DEPENDENCY.schema},
    }


def read_config(document: str) -> Config:
    """Read a file's text; raises `ConfigError` with every mistake, by path and without values."""
    value, mistakes = load(document)
    reader = Reader()
    reader.mistakes.extend(mistakes)
    try:
        parsed = _FILE.read(reader, value, "")
        if not isinstance(parsed, Invalid) and isinstance(parsed.get("targets"), list):
            _judge_targets(reader, parsed["targets"])
    except RecursionError as error:
        raise ConfigError([Mistake("", "nested too deeply")]) from error
    if reader.mistakes:
        raise ConfigError(reader.mistakes)
    targets = References(reader, parsed["targets"], make_target).build()
    if reader.mistakes:
        raise ConfigError(reader.mistakes)
    return Config(targets, parsed.get("concurrency", MAX_CONCURRENCY))


# -- rules between keys


def _judge_targets(reader: Reader, nodes: list[Any]) -> None:
    seen: dict[str, str] = {}
    for node, path in walk(nodes, "targets"):
        if "ref" in node:
            continue
        name = node.get("id")
        if isinstance(name, str):
            if name in seen:
                reader.fail(join(path, "id"), f"the same id as {seen[name]}")
            seen.setdefault(name, join(path, "id"))
        _judge_options(reader, node, path)
        _judge_checks(reader, node, path)
        _judge_http(reader, node, path)
        _judge_capabilities(reader, node, path)


def _block(node: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    block = node.get(name) if name else None
    return block if isinstance(block, dict) else {}


def _own_block(node: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    kind = node.get("type")
    name = _OPTIONS_OF.get(kind) if isinstance(kind, str) else None
    return name, _block(node, name)


def _judge_options(reader: Reader, node: Mapping[str, Any], path: str) -> None:
    own, _ = _own_block(node)
    for name in ("a2a", "agent", "http"):
        if own is not None and name in node and name != own:
            reader.fail(join(path, name), "these options belong to another type")


def _judge_checks(reader: Reader, node: Mapping[str, Any], path: str) -> None:
    """`required_*` needs `capability` where checks are listed; `functional` and its block need each other."""
    name, block = _own_block(node)
    if name is None:
        return
    checks = node.get("checks")
    listed = checks if isinstance(checks, list) else None
    for member in ("required_skills", "required_capabilities"):
        if block.get(member) and listed is not None and "capability" not in listed:
            reader.fail(join(path, "checks"), f'{name}.{member} needs "capability" among the checks')
    asked = listed is not None and "functional" in listed
    if asked and name != "http" and "functional" not in block:
        reader.fail(join(path, "checks"), f'"functional" needs {name}.functional')
    if "functional" in block and not asked:
        reader.fail(join(path, name), 'functional needs "functional" among the checks')


def _judge_http(reader: Reader, node: Mapping[str, Any], path: str) -> None:
    block = _block(node, "http")
    if node.get("type") in {"gateway", "router"} and block.get("method") == "HEAD":
        reader.fail(join(path, "http.method"), "gateway and router are asked with GET")
    if block.get("method") == "HEAD" and "body_contains" in block:
        reader.fail(join(path, "http.body_contains"), "a HEAD request has no body")
    headers = block.get("headers")
    for name in headers if isinstance(headers, dict) else ():
        if name.lower() in _NOT_WRITTEN:
            reader.fail(
                join(path, f"http.headers.{name}"),
                "this header is not for the file; credentials come from auth.bearer_env",
            )


def _judge_capabilities(reader: Reader, node: Mapping[str, Any], path: str) -> None:
    block = _block(node, "a2a")
    version = block.get("protocol_version", V10)
    wanted = block.get("required_capabilities")
    if not isinstance(wanted, list) or version not in CAPABILITIES:
        return
    for at, name in enumerate(wanted):
        if isinstance(name, str) and name not in CAPABILITIES[version]:
            reader.fail(join(path, f"a2a.required_capabilities[{at}]"), f"unknown in protocol {version}")


# -- values that obey the rules


def make_target(node: Mapping[str, Any], dependencies: tuple[Dependency, ...] = ()) -> Target:
    """A target from values that obey the rules."""
    simple = {
        name: node[name]
        for name in ("id", "name", "type", "endpoint", "timeout_ms", "retries", "retry_delay_ms", "budget_ms")
        if name in node
    }
    return Target(
        **simple,
        bearer_env=node.get("auth", {}).get("bearer_env"),
        checks=tuple(Check(name) for name in node["checks"]) if "checks" in node else None,
        check_timeouts_ms={Check(name): value for name, value in node.get("check_timeouts_ms", {}).items()},
        latency_ms=node.get("thresholds", {}).get("latency_ms"),
        a2a=_a2a(node.get("a2a", {})),
        agent=_agent(node.get("agent", {})),
        http=_http(node.get("http", {})),
        dependencies=dependencies,
    )


def _a2a(block: Mapping[str, Any]) -> A2AOptions:
    functional = block.get("functional")
    return A2AOptions(
        protocol_version=block.get("protocol_version", V10),
        card_url=block.get("card_url"),
        required_skills=tuple(block.get("required_skills", ())),
        required_capabilities=tuple(block.get("required_capabilities", ())),
        functional=A2AFunctional(functional["text"]) if functional else None,
    )


def _agent(block: Mapping[str, Any]) -> AgentOptions:
    functional = block.get("functional")
    return AgentOptions(
        required_capabilities=tuple(block.get("required_capabilities", ())),
        functional=AgentFunctional(functional["text"], functional.get("downstream") or None)
        if functional
        else None,
    )


def _http(block: Mapping[str, Any]) -> HttpOptions:
    expected = block.get("expected_status", ())
    return HttpOptions(
        method=block.get("method", "GET"),
        expected_status=(expected,) if isinstance(expected, int) else tuple(expected),
        headers=tuple(block.get("headers", {}).items()),
        body_contains=block.get("body_contains"),
        max_body_bytes=block.get("max_body_bytes", HttpOptions().max_body_bytes),
    )
