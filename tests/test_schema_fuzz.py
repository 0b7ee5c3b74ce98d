"""The OpenAPI document is what the gateway does, whatever is sent to the REST routes (contract 1, 5)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.fakes.beside import Beside
from tests.fakes.issuer import bearer, token

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)
#: An answer without end, which no client of this kind can take.
ENDLESS = {"/events"}


@pytest.fixture(params=[False, True], ids=["open", "authenticated"])
def api(request: pytest.FixtureRequest) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A gateway, and the headers to send: with authentication, a good token and a bad one."""
    if request.param:
        with Beside(auth={"enable": True, "secret_env": "JWT_SECRET"}) as base:
            yield base, [bearer(token()), bearer("bad")]
    else:
        with Beside() as base:
            yield base, [{}]


def operations(base: str) -> Iterator[Any]:
    schema = schemathesis.openapi.from_dict(httpx.get(f"{base}/schema", trust_env=False).json())
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path not in ENDLESS:
            yield operation


def send(base: str, senders: list[dict[str, str]], operation: Any, mode: Any, examples: int) -> None:
    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    def check(case: Any) -> None:
        for headers in senders:
            answer = case.call(base_url=base, headers=headers, timeout=20)
            case.validate_response(answer, checks=CHECKS)

    with suppress(Unsatisfiable):  # there is nothing that could be sent wrongly
        check()


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.name.lower())
def test_the_routes_do_what_the_document_says(api: tuple[str, list[dict[str, str]]], mode: Any) -> None:
    base, senders = api
    seen = 0
    for operation in operations(base):
        send(base, senders, operation, mode, 15)
        seen += 1
    assert seen > 8


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.name.lower())
def test_the_routes_do_what_the_document_says_for_long(api: tuple[str, list[dict[str, str]]], mode: Any) -> None:
    base, senders = api
    for operation in operations(base):
        send(base, senders, operation, mode, 300)
