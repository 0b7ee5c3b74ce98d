"""deploy/kubernetes and deploy/helm are valid, fit the gateway that they start, and make the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from gateway.settings import Settings, load
from healthcheck.config import read_config
from tests.fakes.gateway import GatewayProcess
from tests.fakes.program import ROOT, clean_environment, run

DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
CHART = DEPLOY / "helm" / "vitalgate"
BIN = Path(sys.executable).parent
END_SECONDS = 5
"""What the end of the process may take beside the delay and the drain (contract 8)."""

Document = dict[str, Any]


def settings_of(path: Path) -> Any:
    return load(str(path), {"HOME": "/"}).settings


def rendered(folder: Path) -> list[Document]:
    """What `kubectl apply -k` would send."""
    done = subprocess.run(
        [BIN / "kubectl", "kustomize", folder],
        env=clean_environment(), capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def charted(**values: Any) -> list[Document]:
    """What `helm install vitalgate` would send."""
    chart = pytest.importorskip("helm_python.chart").Chart.load(CHART)
    texts = chart.render(values, name="vitalgate", namespace="vitalgate").values()
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


MAKERS = {
    "base": lambda: rendered(KUBERNETES / "base"),
    "overlays/cluster": lambda: rendered(KUBERNETES / "overlays" / "cluster"),
    "chart": charted,
    "chart of a cluster": lambda: charted(replicas=2),
}


@pytest.fixture(scope="module", params=MAKERS)
def manifests(request: pytest.FixtureRequest) -> list[Document]:
    return MAKERS[request.param]()


def one(documents: list[Document], kind: str, name: str = "vitalgate") -> Document:
    [found] = [it for it in documents if it["kind"] == kind and it["metadata"]["name"] == name]
    return found


def pods(documents: list[Document]) -> Iterator[Document]:
    """The pod of each workload."""
    for document in documents:
        spec = document.get("spec", {})
        if "jobTemplate" in spec:
            spec = spec["jobTemplate"]["spec"]
        if "template" in spec:
            yield spec["template"]["spec"]


def configmap(documents: list[Document], pod: Document, volume: str) -> dict[str, str]:
    """The files of a pod's volume."""
    [name] = [it["configMap"]["name"] for it in pod["volumes"] if it["name"] == volume]
    return dict(one(documents, "ConfigMap", name)["data"])


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_kubernetes_knows_every_field(manifests: list[Document], version: str) -> None:
    """Strictly: fields that the schema does not have are mistakes, too."""
    for document in manifests:
        kubernetes_validate.validate(document, version, strict=True)


def test_pods_are_restricted(manifests: list[Document]) -> None:
    """The profile "restricted" of the Pod Security Standards, and nothing to write to but what is mounted."""
    found = list(pods(manifests))
    assert len(found) == 2
    for pod in found:
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        [container] = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["image"] == "registry.example.com/vitalgate:0.1.0"
        mounted = {mount["name"] for mount in container.get("volumeMounts", ())}
        assert mounted == {volume["name"] for volume in pod.get("volumes", ())}


def test_pods_have_the_time_they_need(manifests: list[Document], tmp_path: Path) -> None:
    """Contract 8: delay + drain + 5 s; the delay outlasts the readiness probe's period."""
    pod = one(manifests, "Deployment")["spec"]["template"]["spec"]
    file = tmp_path / "gateway.yaml"
    file.write_text(configmap(manifests, pod, "settings")["gateway.yaml"])
    server = settings_of(file).server
    assert pod["terminationGracePeriodSeconds"] >= (
        server.shutdown_delay_seconds + server.drain_seconds + END_SECONDS
    )
    ready = pod["containers"][0]["readinessProbe"]
    assert server.shutdown_delay_seconds > ready["periodSeconds"] * ready["failureThreshold"]


def test_references_lead_somewhere(manifests: list[Document], tmp_path: Path) -> None:
    pod = one(manifests, "Deployment")["spec"]["template"]
    labels = pod["metadata"]["labels"]
    names = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
    file = tmp_path / "gateway.yaml"
    file.write_text(configmap(manifests, pod["spec"], "settings")["gateway.yaml"])
    settings = settings_of(file)
    assert names == {"http": settings.server.port, "metrics": settings.metrics.port}
    for name, port in (("vitalgate", "http"), ("vitalgate-metrics", "metrics")):
        service = one(manifests, "Service", name)["spec"]
        assert service["selector"].items() <= labels.items()
        assert [it["targetPort"] for it in service["ports"]] == [port]
    variables = {it["name"]: it["valueFrom"]["secretKeyRef"]["key"] for it in pod["spec"]["containers"][0]["env"]}
    assert variables["JWT_SECRET"] == settings.auth.secret_env == "JWT_SECRET"
    assert all(it["kind"] != "Secret" for it in manifests), "secrets are made by whoever installs it"


def test_the_readme_makes_the_secret_that_the_pods_want(manifests: list[Document]) -> None:
    text = (DEPLOY / "README.md").read_text()
    for pod in pods(manifests):
        for variable in pod["containers"][0].get("env", ()):
            wanted = variable["valueFrom"]["secretKeyRef"]
            assert f"secret generic {wanted['name']}" in text
            assert f"--from-literal={wanted['key']}=" in text


async def test_the_probes_ask_what_the_gateway_answers(manifests: list[Document], tmp_path: Path) -> None:
    """Health contract 7: alive is /live, ready is /ready; also where only listed hosts may call."""
    pod = one(manifests, "Deployment")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startup": "/live", "liveness": "/live", "readiness": "/ready",
    }  # fmt: skip
    settings = yaml.safe_load(configmap(manifests, pod, "settings")["gateway.yaml"])
    settings["server"] |= {
        "host": "127.0.0.1",
        "shutdown_delay_seconds": 60,
        "allowed_hosts": ["elsewhere.example"],
    }
    settings["metrics"] |= {"host": "127.0.0.1"}
    async with GatewayProcess(tmp_path, settings, environment={"JWT_SECRET": "s" * 32}) as gateway:

        async def asked(name: str) -> int:
            headers = {it["name"]: it["value"] for it in probes[name]["httpHeaders"]}
            return (await gateway.http.get(probes[name]["path"], headers=headers)).status_code

        assert [await asked(name) for name in probes] == [200, 200, 200]
        stranger = await gateway.http.get("/ready", headers={"Host": "10.0.0.5:9090"})
        assert stranger.status_code == 421  # why the probes name a host
        gateway._process.terminate()
        while await asked("readiness") == 200:
            pass
        assert await asked("liveness") == 200  # a gateway that drains is not restarted
        await gateway.kill()


def test_one_node_has_one_owner_of_its_file() -> None:
    """SQLite: never two pods at once, and the volume is where the file goes."""
    documents = rendered(KUBERNETES / "base")
    deployment = one(documents, "Deployment")["spec"]
    assert deployment["replicas"] == 1
    assert deployment["strategy"] == {"type": "Recreate"}
    [container] = deployment["template"]["spec"]["containers"]
    [mount] = [mount for mount in container["volumeMounts"] if mount["name"] == "registry"]
    assert mount["mountPath"] == "/var/lib/vitalgate"
    one(documents, "PersistentVolumeClaim", "vitalgate-registry")


def test_a_cluster_survives_a_node() -> None:
    documents = rendered(KUBERNETES / "overlays" / "cluster")
    deployment = one(documents, "Deployment")["spec"]
    pod = deployment["template"]["spec"]
    assert deployment["replicas"] >= 2
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert one(documents, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert {it["topologyKey"] for it in pod["topologySpreadConstraints"]} == {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    }
    assert not [it for it in documents if it["kind"] == "PersistentVolumeClaim"]
    [url] = [it for it in pod["containers"][0]["env"] if it["name"] == "VITALGATE_REGISTRY__URL"]
    assert url["valueFrom"]["secretKeyRef"] == {"name": "vitalgate-credentials", "key": "REGISTRY_URL"}


async def test_the_cron_job_runs(manifests: list[Document], tmp_path: Path) -> None:
    """With its own file, against a gateway: exit code 0."""
    pod = one(manifests, "CronJob", "vitalgate-check")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    [mount] = container["volumeMounts"]
    text = configmap(manifests, pod, mount["name"])["targets.yaml"]
    assert read_config(text).targets
    file = tmp_path / "targets.yaml"
    arguments = [one.replace(f"{mount['mountPath']}/targets.yaml", str(file)) for one in container["args"]]
    assert str(file) in arguments
    async with GatewayProcess(tmp_path) as gateway:
        file.write_text(text.replace("http://vitalgate:9090", gateway.api))
        out = await run([BIN / "vitalgate", *arguments])
    assert json.loads(out)["status"] == "HEALTHY"


def with_component(name: str, folder: Path) -> list[Document]:
    """The base with a component, as somebody's overlay has it."""
    relative = Path(*[".."] * (len(folder.parts) - 1)) / KUBERNETES.relative_to("/")
    (folder / "kustomization.yaml").write_text(
        f"resources: [{relative}/base]\ncomponents: [{relative}/components/{name}]\n"
    )
    return rendered(folder)


def test_the_service_monitor_fits_the_service(tmp_path: Path) -> None:
    """Its schema belongs to the Prometheus operator and is not at hand: what it refers to is compared."""
    documents = with_component("monitoring", tmp_path)
    monitor = one(documents, "ServiceMonitor")["spec"]
    service = one(documents, "Service", "vitalgate-metrics")
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [it["port"] for it in monitor["endpoints"]] == [it["name"] for it in service["spec"]["ports"]]


def test_the_ingress_fits_the_service(tmp_path: Path) -> None:
    documents = with_component("ingress", tmp_path)
    ingress = one(documents, "Ingress")
    kubernetes_validate.validate(ingress, "1.37", strict=True)
    [rule] = ingress["spec"]["rules"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    assert backend["port"]["name"] in [port["name"] for port in one(documents, "Service")["spec"]["ports"]]
    annotations = {key.partition("/")[2]: value for key, value in ingress["metadata"]["annotations"].items()}
    assert annotations["proxy-buffering"] == "off"
    assert int(annotations["proxy-read-timeout"]) > Settings().a2a.max_timeout_seconds


# --- Helm ---


def test_the_chart_is_lint_free() -> None:
    report = pytest.importorskip("helm_python.chart").lint(CHART, strict=True)
    assert report["errors"] == []
    assert {message["error"] for message in report["messages"]} <= {"icon is recommended"}


_HASHED = re.compile(r"^(vitalgate-(?:settings|health))-[a-z0-9]{10}$")


def essence(value: Any) -> Any:
    """A document without what differs by the tool that made it: hashes in names, labels of the tool, defaults."""
    if isinstance(value, list):
        return [essence(one) for one in value]
    if isinstance(value, dict):
        hidden = {"annotations", "imagePullPolicy", "app.kubernetes.io/instance", "app.kubernetes.io/name"}
        return {key: essence(one) for key, one in value.items() if key not in hidden}
    return (
        re.sub(r"^(vitalgate-(?:settings|health))-[a-z0-9]{10}$", r"\1", value)
        if isinstance(value, str)
        else value
    )


def by_name(documents: list[Document]) -> dict[tuple[str, str], Any]:
    return {
        (it["kind"], essence(it["metadata"]["name"])): (
            {name: yaml.safe_load(text) for name, text in it["data"].items()}
            if "data" in it
            else essence(it.get("spec"))
        )
        for it in documents
    }


@pytest.mark.parametrize(("overlay", "replicas"), [("base", 1), ("overlays/cluster", 2)])
def test_chart_and_kustomize_make_the_same(overlay: str, replicas: int) -> None:
    assert by_name(charted(replicas=replicas)) == by_name(rendered(KUBERNETES / overlay))


def test_the_chart_follows_its_values() -> None:
    """The time to end follows the settings; without a shared secret none is asked for; other names, other tags."""
    settings = {
        "server": {"drain_seconds": 100.5},
        "auth": {"secret_env": None, "jwks_url": "https://idp.example/"},
    }
    documents = charted(settings=settings, image={"tag": "9"}, serviceMonitor=True, check=None)
    pod = one(documents, "Deployment")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= 10 + 100.5 + END_SECONDS
    assert not pod["containers"][0].get("env")
    assert pod["containers"][0]["image"].endswith("/vitalgate:9")
    one(documents, "ServiceMonitor")
    open_to_all = one(charted(settings={"auth": {"enable": False}}), "Deployment")
    assert not open_to_all["spec"]["template"]["spec"]["containers"][0].get("env")
    assert not [it for it in documents if it["kind"] == "CronJob"]


def test_the_chart_has_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version
    assert chart["appVersion"] == version[1]
