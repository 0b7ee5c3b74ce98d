"""The Prometheus page: contract 7."""

from __future__ import annotations

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from gateway.metrics import RETENTION_SECONDS, Metrics
from tests.fakes.clock import ManualClock


async def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    page = (await metrics.page()).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


async def test_calls_are_counted_by_agent_method_and_status() -> None:
    metrics = Metrics("kubemq_a2a", "1.2.3")
    cells = metrics.cells("echo")
    cells.request("message/send", "success", 0.02)
    cells.request("message/send", "success", 0.005)
    cells.request("SendMessage", "transport_error", 1000)
    cells.error(-32001)
    metrics.unknown.error(-32002)
    metrics.call("SendMessage", "transport_error")
    metrics.operation("register", "ok")
    found = await samples(metrics)
    requests = "kubemq_a2a_requests_total"
    assert found[key(requests, agent_id="echo", method="message/send", status="success")] == 2
    assert found[key(requests, agent_id="echo", method="unknown", status="transport_error")] == 1
    bucket = "kubemq_a2a_request_duration_seconds_bucket"
    assert found[key(bucket, agent_id="echo", le="0.005")] == 1
    assert found[key(bucket, agent_id="echo", le="0.025")] == 2
    assert found[key(bucket, agent_id="echo", le="300.0")] == 2
    assert found[key(bucket, agent_id="echo", le="+Inf")] == 3
    assert found[key("kubemq_a2a_request_duration_seconds_count", agent_id="echo")] == 3
    assert found[key("kubemq_a2a_request_duration_seconds_sum", agent_id="echo")] == 1000.025
    assert found[key("kubemq_a2a_errors_total", agent_id="echo", error_code="-32001")] == 1
    assert found[key("kubemq_a2a_errors_total", agent_id="unknown", error_code="-32002")] == 1
    assert found[key("vitalgate_calls_total", method="SendMessage", outcome="transport_error")] == 1
    assert found[key("kubemq_a2a_registry_operations_total", op="register", status="ok")] == 1
    assert found[key("vitalgate_build_info", version="1.2.3")] == 1
    assert any(name == "process_open_fds" for name, _ in found)


async def test_methods_of_callers_make_no_series() -> None:
    """Pitfall 171: only the five names and `unknown`; in our own counter the closed set of A2A's names."""
    metrics = Metrics("kubemq_a2a", "1")
    for method in ["tasks/get\u0000", "TASKS/GET", "\ud83d", 'x"\n', *(f"m{number}" for number in range(10_000))]:
        metrics.cells("a").request(method, "success", 0.1)
        metrics.call(method, "success")
    found = await samples(metrics)
    assert found[key("kubemq_a2a_requests_total", agent_id="a", method="unknown", status="success")] == 10_004
    assert found[key("vitalgate_calls_total", method="unknown", outcome="success")] == 10_004
    assert len([name for name, _ in found if name == "kubemq_a2a_requests_total"]) == 1


async def test_series_of_a_removed_agent_disappear_after_an_hour() -> None:
    """Pitfall 173; an agent that comes back keeps its series."""
    clock = ManualClock()
    metrics = Metrics("kubemq_a2a", "1", clock=clock.clock.monotonic)
    for agent in ("stays", "goes", "returns"):
        metrics.cells(agent).request("tasks/get", "success", 0.1)
    metrics.retire("goes")
    metrics.retire("returns")
    clock.tick(RETENTION_SECONDS - 1)
    metrics.cells("returns")
    assert "goes" in (await metrics.page()).decode()
    clock.tick(1)
    page = (await metrics.page()).decode()
    assert "goes" not in page
    assert 'agent_id="stays"' in page
    assert 'agent_id="returns"' in page


async def test_two_gateways_count_separately_in_one_process() -> None:
    """Pitfall 178."""
    one, other = Metrics("kubemq_a2a", "1"), Metrics("kubemq_a2a", "1")
    one.cells("a").request("tasks/get", "success", 0.1)
    assert "agent_id" in (await one.page()).decode()
    assert "agent_id" not in (await other.page()).decode()


async def test_a_scrape_of_a_thousand_agents_lets_others_work() -> None:
    """Performance target: a scrape never holds the loop for long; here: others get many turns."""
    metrics = Metrics("kubemq_a2a", "1")
    for number in range(1000):
        metrics.cells(f"agent-{number}").request("message/send", "success", 0.1)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    page = await metrics.page()
    task.cancel()
    assert page.count(b"_duration_seconds_count") == 1000
    assert turns >= 100


async def test_the_namespace_is_a_setting() -> None:
    metrics = Metrics("mine", "1")
    metrics.cells("a").request("tasks/get", "success", 0.1)
    assert b"\nmine_requests_total{" in await metrics.page()
