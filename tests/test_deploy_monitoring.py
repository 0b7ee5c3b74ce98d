"""The Prometheus rules and the Grafana dashboard in deploy/ use metrics that exist, and the rules work."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.worker_pages import merged
from tests.fakes import reply
from tests.fakes.certs import Authority
from tests.fakes.health_peer import A2APeer
from tests.fakes.monitored import card_of
from tests.fakes.running import running

DEPLOY = Path(__file__).parent.parent / "deploy"
RULES = DEPLOY / "prometheus" / "vitalgate.rules.yml"
TESTS = DEPLOY / "prometheus" / "vitalgate.rules.test.yml"
DASHBOARD = DEPLOY / "grafana" / "vitalgate.json"

_METRIC = re.compile(r"\b((?:vitalgate|kubemq_a2a|process)[a-z0-9_:]*[a-z0-9])\b")


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load(RULES.read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def expressions() -> dict[str, str]:
    """Every expression in the rules and the dashboard, by its place."""
    found = {rule.get("alert") or rule["record"]: rule["expr"] for rule in rules()}
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            found[f"{panel['title']} {target['refId']}"] = target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            found[f"${variable['name']}"] = variable["definition"]
    return found


async def test_every_metric_and_label_is_on_the_page(tmp_path: Path) -> None:
    """With the labels that the expressions select or group by."""
    authority = Authority(tmp_path)
    async with A2APeer(tls=authority.server()) as peer:
        settings = {"health": {"enable": True}, "upstream": {"ca_file": str(authority.ca_file)}}
        async with running(**settings) as gateway:
            await gateway.register(peer.at("/rpc"), "peer", **card_of(peer, name="peer"))
            assert (await gateway.client.post("/agents/peer/health/check")).json()["status"] == "HEALTHY"
            peer.rpc["SendMessage"] = reply.reset()
            await gateway.call({"jsonrpc": "2.0", "id": 1, "method": "SendMessage"}, "peer")
            page = (await gateway.client.get("/metrics")).text
    page += merged({0: page}, {0: 0})  # and as several workers have it
    labels: dict[str, set[str]] = {}
    for line in page.splitlines():
        if not line.startswith("#"):
            name, _, rest = line.partition("{")
            told = re.findall(r'(\w+)="', rest) if rest else []
            labels.setdefault(name.split()[0], set()).update(told)
    labels |= {rule["record"]: {"instance", "agent_id", "status", "state"} for rule in rules() if "record" in rule}
    for place, expression in expressions().items():
        used = [name for name in _METRIC.findall(expression) if not name.startswith("kubemq_a2a_requests_total:")]
        assert used, place
        for name in used:
            assert name in labels, f"{place}: {name}"
        known = {"instance", "job", "le"}.union(*(labels[name] for name in used))
        asked = re.findall(r"(\w+)=~?\"", expression)
        for group in re.findall(r"by \(([^)]*)\)", expression):
            asked += [one.strip() for one in group.split(",")]
        assert {*asked} <= known, place


def test_every_alert_is_tested() -> None:
    tested = {
        case["alertname"]
        for test in yaml.safe_load(TESTS.read_text())["tests"]
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    assert tested == {rule["alert"] for rule in rules() if "alert" in rule}


def test_every_alert_says_what_to_do() -> None:
    for rule in rules():
        if "alert" in rule:
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert {"summary", "description"} == rule["annotations"].keys()


def test_the_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
@pytest.mark.parametrize("command", [["check", "rules", RULES.name], ["test", "rules", TESTS.name]], ids=" ".join)
def test_promtool_agrees(command: list[str]) -> None:
    done = subprocess.run(
        ["promtool", *command], cwd=RULES.parent, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
