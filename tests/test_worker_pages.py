"""One page made of several workers' (contract 7, pitfall 177)."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from gateway.metrics import Metrics
from gateway.worker_pages import merged

PAGE = (
    "# HELP a_total Some.\n# TYPE a_total counter\n"
    'a_total{x="}{ 1"} 1\n'
    'a_total{x="a b"} 2.5\n'
    "# HELP b Other.\n# TYPE b gauge\nb 7\n"
    "b{} 8\n"
)


def test_every_sample_bears_its_worker_and_every_metric_one_head() -> None:
    other = (
        "# HELP b Other.\n# TYPE b gauge\nb 9\n# HELP c_total New.\n# TYPE c_total counter\nc_total 1 1700000000\n"
    )
    assert merged({0: PAGE, 1: other}, {0: 0, 1: 3}) == (
        "# HELP vitalgate_worker_up Whether it serves.\n# TYPE vitalgate_worker_up gauge\n"
        'vitalgate_worker_up{worker="0"} 1\nvitalgate_worker_up{worker="1"} 1\n'
        "# HELP vitalgate_worker_restarts_total How often the worker was started again.\n"
        "# TYPE vitalgate_worker_restarts_total counter\n"
        'vitalgate_worker_restarts_total{worker="0"} 0\nvitalgate_worker_restarts_total{worker="1"} 3\n'
        "# HELP a_total Some.\n# TYPE a_total counter\n"
        'a_total{worker="0",x="}{ 1"} 1\n'
        'a_total{worker="0",x="a b"} 2.5\n'
        "# HELP b Other.\n# TYPE b gauge\n"
        'b{worker="0"} 7\nb{worker="0"} 8\nb{worker="1"} 9\n'
        "# HELP c_total New.\n# TYPE c_total counter\n"
        'c_total{worker="1"} 1 1700000000\n'
    )


def test_a_worker_without_a_page_is_left_out_and_shown() -> None:
    page = merged({0: None, 1: "# HELP b Other.\n# TYPE b gauge\nb 9\n"}, {0: 2, 1: 0})
    assert 'vitalgate_worker_up{worker="0"} 0\n' in page
    assert [line for line in page.splitlines() if line.startswith("b")] == ['b{worker="1"} 9']


async def test_real_pages_stay_readable() -> None:
    """Merged from two gateways' pages, histograms and all, it says what they say, per worker."""
    pages, values = {}, {}
    for number in (0, 1):
        metrics = Metrics("kubemq_a2a", "1.2.3")
        metrics.cells("echo").request("message/send", "success", 0.01 * (number + 1))
        metrics.call("message/send", "success")
        pages[number] = (await metrics.page()).decode()
        values[number] = samples(pages[number])
    found = samples(merged(pages, {0: 0, 1: 0}))
    own = {key: value for key, value in found.items() if key[0].startswith("vitalgate_worker_")}
    assert len(own) == 4
    expected = {
        (name, frozenset({*labels, ("worker", str(number))})): value
        for number, page in values.items()
        for (name, labels), value in page.items()
    }
    assert {key: value for key, value in found.items() if key not in own} == expected


def samples(page: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = list(text_string_to_metric_families(page))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}
