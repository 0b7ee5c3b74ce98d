"""Configuration files, `version: v1` (health contract 5). Every invalid file is paired with its message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from healthcheck.config import read_config, schema
from healthcheck.model import A2AFunctional, AgentFunctional, Check
from healthcheck.strict_yaml import ConfigError

HERE = Path(__file__).parent
FILES = HERE / "health_configs"
INVALID = sorted(path.stem for path in (FILES / "invalid").glob("*.yaml"))
VALID = sorted(path.stem for path in (FILES / "valid").glob("*.yaml"))
SCHEMA = HERE.parent / "docs" / "schemas" / "health-config.schema.json"
EXAMPLES = sorted((HERE.parent / "examples" / "health").glob("*.yaml"))

# what a JSON Schema cannot say: the form of the YAML itself, rules between keys, the graph, bytes
BEYOND_THE_SCHEMA = set(
    """
    alias binary capability-not-checked capability-of-the-other-version control-character cycle
    cycle-self duplicate-key duplicate-root-key functional-block-without-check functional-too-long
    functional-without-block http-head-body http-header-secret http-router-head id-twice
    latency-infinite merge-key nested-lists not-yaml options-of-another-type ref-unknown surrogate tag
    timeout-float timeout-octal timeout-sexagesimal too-deep too-many two-documents
    """.split()  # noqa: SIM905 - words read better than a list
)


@pytest.mark.parametrize("name", INVALID)
def test_invalid_files(name: str) -> None:
    """Health contract 5: the path of every mistake and no values, word for word."""
    path = FILES / "invalid" / f"{name}.yaml"
    with pytest.raises(ConfigError) as caught:
        read_config(path.read_text())
    message = str(caught.value)
    assert message == path.with_suffix(".txt").read_text().rstrip("\n")
    assert "s3cr3t" not in message
    assert message.isprintable()


@pytest.mark.parametrize(
    "path", [*(FILES / "valid" / f"{name}.yaml" for name in VALID), *EXAMPLES], ids=lambda path: path.stem
)
def test_valid_files_and_the_schema(path: Path) -> None:
    """The files that are read are the ones that the published schema takes; the examples are among them."""
    read_config(path.read_text())
    jsonschema.validate(yaml.safe_load(path.read_text()), json.loads(SCHEMA.read_text()))


@pytest.mark.parametrize("name", sorted(set(INVALID) - BEYOND_THE_SCHEMA))
def test_the_schema_refuses_them_too(name: str) -> None:
    """Whatever a JSON Schema can say, ours says."""
    value = yaml.safe_load((FILES / "invalid" / f"{name}.yaml").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, json.loads(SCHEMA.read_text()))


def test_the_published_schema_is_the_codes() -> None:
    """docs/schemas is held against the code: every rule makes its own schema."""
    published = json.loads(SCHEMA.read_text())
    assert published == json.loads(json.dumps(schema()))
    jsonschema.Draft202012Validator.check_schema(published)
    assert set(INVALID) >= BEYOND_THE_SCHEMA


def test_everything_arrives() -> None:
    """Health contract 5: each key has its place in a target."""
    front, db = read_config((FILES / "valid" / "everything.yaml").read_text()).targets
    assert (front.id, front.name, front.type, front.bearer_env) == ("front", "Front desk", "a2a", "FRONT_TOKEN")
    assert front.checks == (Check.FUNCTIONAL, Check.CAPABILITY, Check.LATENCY, Check.DEPENDENCY)
    assert (front.timeout_ms, front.check_timeouts_ms) == (1000, {Check.FUNCTIONAL: 30000})
    assert (front.retries, front.retry_delay_ms, front.budget_ms, front.latency_ms) == (3, 0, 60000, 250.5)
    assert (front.a2a.protocol_version, front.a2a.card_url) == ("0.3.0", "https://front.example/card")
    assert (front.a2a.required_skills, front.a2a.functional) == (("echo",), A2AFunctional("hello"))
    first, second = front.dependencies
    assert first.target is db, "a reference and the node itself are one target"
    assert (first.critical, first.relationship) == (False, "downstream")
    assert (second.critical, second.relationship) == (True, "path")
    assert second.target.agent.functional == AgentFunctional("hello", None), 'downstream "" counts as absent'
    assert second.target.dependencies[0].target is db
    assert (db.http.expected_status, db.http.headers) == ((200, 204), (("X-Probe", "1"),))
    assert (db.http.body_contains, db.http.max_body_bytes) == ("ok", 1000)


def test_a_json_file_may_hold_any_character() -> None:
    """JSON escapes what lies beyond U+FFFF as a pair of surrogates; YAML alone would leave two halves."""
    [target] = read_config((FILES / "valid" / "json.yaml").read_text()).targets
    assert target.name == "\U0001f600"


def test_defaults() -> None:
    """Health contract 2 and 5: 5000 ms, no retries, 100 ms between, 60 s, 16 at once, critical, supporting."""
    config = read_config((FILES / "valid" / "minimal.yaml").read_text())
    [target] = config.targets
    assert (target.timeout_ms, target.retries, target.retry_delay_ms, target.budget_ms) == (5000, 0, 100, 60_000)
    assert (config.concurrency, target.checks, target.a2a.protocol_version) == (16, None, "1.0")
    assert target.label == "h"


def chain(length: int, width: int = 1) -> str:
    targets: list[Any] = [
        {
            "id": f"n{at}",
            "type": "http",
            "endpoint": "http://h/",
            "dependencies": [{"ref": f"n{at + 1}"}] * width,
        }
        for at in range(length)
    ]
    targets.append({"id": f"n{length}", "type": "http", "endpoint": "http://h/"})
    return json.dumps({"version": "v1", "targets": targets})


def test_the_edges_of_depth_and_number() -> None:
    """Health contract 5: 64 levels and 10,000 entries pass, one more does not."""
    assert len(read_config(chain(64)).targets) == 65
    with pytest.raises(ConfigError, match="deeper than 64"):
        read_config(chain(65))
    for length, fits in ((64, True), (65, False)):  # whatever the order in which they are written
        document = json.loads(chain(length))
        document["targets"].reverse()
        if fits:
            assert len(read_config(json.dumps(document)).targets) == 65
        else:
            with pytest.raises(ConfigError, match="deeper than 64"):
                read_config(json.dumps(document))
    assert len(read_config(chain(11, width=2)).targets) == 12  # 2^13 - 14 = 8178 entries
    with pytest.raises(ConfigError, match="more than 10000"):
        read_config(chain(12, width=2))


def test_deep_inline_nesting_is_a_mistake_and_no_crash() -> None:
    """Pitfall 6: recursion ends in a message."""
    inner: dict[str, Any] = {"type": "http", "endpoint": "http://h/"}
    for _ in range(70):
        inner = {"type": "http", "endpoint": "http://h/", "dependencies": [inner]}
    with pytest.raises(ConfigError, match="deeper than 64"):
        read_config(json.dumps({"version": "v1", "targets": [inner]}))
