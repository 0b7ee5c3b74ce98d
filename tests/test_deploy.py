"""What stands in deploy/ is valid by the tools of its readers, and fits the gateway that it starts.

Images are not built here: there is no container runtime where the tests run. The Dockerfile is linted, and what it
runs is run without it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.settings import load
from tests.fakes.gateway import GatewayProcess
from tests.fakes.program import clean_environment, run

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
BIN = Path(sys.executable).parent
SETTINGS = sorted(path for path in DEPLOY.rglob("*gateway.yaml") if "apiVersion" not in path.read_text())
END_SECONDS = 5
"""What the end of the process may take beside the delay and the drain (contract 8)."""

Document = dict[str, Any]


def tool(name: str, *arguments: str | Path, **environment: str) -> str:
    """What an installed tool prints; fails with its output unless it exits with 0."""
    done = subprocess.run(
        [str(BIN / name), *(str(one) for one in arguments)],
        cwd=ROOT,
        env=clean_environment() | environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def settings_of(path: Path, environment: Mapping[str, str] | None = None) -> Any:
    return load(str(path), {"HOME": "/", **(environment or {})}).settings


# --- Settings files ---


@pytest.mark.parametrize("path", SETTINGS, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_settings_file_is_right(path: Path) -> None:
    assert "fine" in tool("vitalgate", "config", "check", path)


def test_all_settings_files_are_found() -> None:
    assert len(SETTINGS) >= 6
    mounted = {
        path.parent / found
        for path in DEPLOY.rglob("*.yaml")
        for found in re.findall(r"gateway\.yaml=(\S+?\.yaml)|- \"?\./(\S+?\.yaml):", path.read_text())
        for found in found
        if found
    }
    assert mounted <= {*SETTINGS}


# --- Image ---


def test_the_dockerfile_is_lint_free() -> None:
    tool("hadolint", DOCKERFILE)


def test_the_image_copies_what_its_context_has() -> None:
    """What .dockerignore leaves out cannot be copied, and what is copied exists."""
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE.read_text(), re.MULTILINE)
        for source in line.split()[:-1]
    }
    assert copied == kept
    assert all((ROOT / source).exists() for source in copied)
    packages = re.search(r"^packages = (.*)$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert packages
    assert {*json.loads(packages[1])} <= copied


def test_what_the_image_copies_is_enough_to_build(tmp_path: Path) -> None:
    """The step `pip install .` of the image, up to the wheel."""
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE.read_text(), re.MULTILINE):
        for source in line.split()[:-1]:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, tmp_path / source)
            else:
                (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, tmp_path / source)
    tool("python", "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "dist", tmp_path)
    assert list((tmp_path / "dist").glob("*.whl"))


def test_the_image_runs_as_nobody_in_particular_and_writes_nowhere() -> None:
    text = DOCKERFILE.read_text()
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["10001:10001"]
    assert re.findall(r"^VOLUME (.*)$", text, re.MULTILINE) == ["/var/lib/vitalgate"]
    assert text.count("FROM ") == 2


async def test_the_health_check_of_the_image(tmp_path: Path) -> None:
    """0 while the gateway lives, 1 when it does not: Docker knows no other codes."""
    found = re.search(r"HEALTHCHECK .*?CMD (\[.*?\])$", DOCKERFILE.read_text(), re.MULTILINE | re.DOTALL)
    assert found
    command = json.loads(found[1])
    assert command[:2] == ["/bin/sh", "-c"]
    path = {"PATH": f"{BIN}:/usr/bin:/bin"}
    async with GatewayProcess(tmp_path) as gateway:
        command[2] = command[2].replace("http://127.0.0.1:9090", gateway.api)
        await run(command, environment=path)
    with pytest.raises(AssertionError, match="ended with 1"):
        await run(command, environment=path)


def test_the_image_keeps_its_registry_in_the_volume() -> None:
    environment = dict(re.findall(r"(XDG_STATE_HOME)=(\S+)", DOCKERFILE.read_text()))
    settings = settings_of(DEPLOY / "docker" / "gateway.yaml", environment)
    assert settings.registry.url == "sqlite:////var/lib/vitalgate/registry.db"


# --- Compose ---


def composed(name: str) -> Document:
    text = tool(
        "docker-compose", "-f", DEPLOY / "compose" / name, "config", "--format", "json",
        VALKEY_PASSWORD="given", GRAFANA_PASSWORD="given", HOME="/tmp",
    )  # fmt: skip
    return dict(json.loads(text))


@pytest.mark.parametrize("name", ["single.yaml", "cluster.yaml", "../compose.yaml"])
def test_compose_accepts_it(name: str) -> None:
    """And every file that it mounts exists, every port is published on loopback only."""
    services = composed(name)["services"]
    for service in services.values():
        for volume in service.get("volumes", ()):
            if volume["type"] == "bind":
                assert Path(volume["source"]).exists(), volume
        for port in service.get("ports", ()):
            assert port["host_ip"] == "127.0.0.1"
    ours = [service for service in services.values() if service["image"] == "vitalgate"]
    assert ours
    for service in ours:
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]


@pytest.mark.parametrize(
    ("name", "service", "file"),
    [("single.yaml", "gateway", "gateway.yaml"), ("cluster.yaml", "gateway-1", "cluster-gateway.yaml")],
)
def test_compose_waits_for_the_drain(name: str, service: str, file: str) -> None:
    """Contract 8: delay + drain + 5 s."""
    server = settings_of(DEPLOY / "compose" / file).server
    grace = composed(name)["services"][service]["stop_grace_period"]
    minutes, _, seconds = grace.rpartition("m")
    given = 60 * int(minutes or 0) + int(seconds.rstrip("s"))
    assert given >= server.shutdown_delay_seconds + server.drain_seconds + END_SECONDS


def test_the_passwords_are_given_by_whoever_starts_it() -> None:
    """None stands in the repository, and none has a default."""
    text = (DEPLOY / "compose" / "cluster.yaml").read_text()
    assert not re.findall(r"PASSWORD: (?!\$\{)", text)
    with pytest.raises(AssertionError, match="export it first"):
        tool("docker-compose", "-f", DEPLOY / "compose" / "cluster.yaml", "config", "-q", HOME="/tmp")


def test_what_the_demo_agents_run_exists() -> None:
    for name in ("single.yaml", "cluster.yaml"):
        command = composed(name)["services"]["demo"]["command"]
        options = {word for word in command if word.startswith("--")}
        assert options <= {*re.findall(r"--[a-z-]+", tool("vitalgate", command[0], "--help", COLUMNS="200"))}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_prometheus_accepts_its_configuration() -> None:
    done = subprocess.run(
        ["promtool", "check", "config", str(DEPLOY / "prometheus" / "prometheus.yml")],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_asks_the_gateways_and_grafana_asks_it() -> None:
    services = composed("cluster.yaml")["services"]
    document = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    targets = document["scrape_configs"][0]["static_configs"][0]["targets"]
    port = settings_of(DEPLOY / "compose" / "cluster-gateway.yaml").metrics.port
    assert targets == [f"gateway-{number}:{port}" for number in (1, 2)]
    assert {target.partition(":")[0] for target in targets} <= services.keys()
    provisioned = DEPLOY / "grafana" / "provisioning"
    [source] = yaml.safe_load((provisioned / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    [provider] = yaml.safe_load((provisioned / "dashboards" / "vitalgate.yaml").read_text())["providers"]
    folder = provider["options"]["path"]
    mounts = [volume["target"] for volume in services["grafana"]["volumes"]]
    assert f"{folder}/vitalgate.json" in mounts


# --- systemd ---

UNIT = DEPLOY / "systemd" / "vitalgate.service"
SYSTEMD = shutil.which("systemd-analyze")


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with the command where it is installed here."""
    file = tmp_path / UNIT.name
    file.write_text(UNIT.read_text().replace("/opt/vitalgate/bin/", f"{BIN}/"))
    return file


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    assert SYSTEMD
    command = [SYSTEMD, *(str(one) for one in arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)


@pytest.mark.skipif(SYSTEMD is None, reason="systemd-analyze is not installed (Debian: systemd)")
def test_systemd_accepts_the_unit(unit: Path) -> None:
    done = analyze("verify", "--recursive-errors=no", unit)
    assert done.returncode == 0, done.stderr
    assert unit.name not in done.stderr, done.stderr


@pytest.mark.skipif(SYSTEMD is None, reason="systemd-analyze is not installed (Debian: systemd)")
def test_the_unit_is_hardened(unit: Path) -> None:
    """By systemd's own measure, 0 to 100: the lower the better; 96 is a unit without hardening."""
    done = analyze("security", "--offline=true", "--threshold=20", unit)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


def test_the_unit_fits_the_gateway() -> None:
    text = UNIT.read_text()
    server = settings_of(DEPLOY / "systemd" / "gateway.yaml").server
    stop = int(re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)[0])
    assert stop >= server.shutdown_delay_seconds + server.drain_seconds + END_SECONDS
    assert "ExecReload=/bin/kill -HUP $MAINPID" in text  # contract 8
    [words] = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    assert words.split()[1:] == ["serve", "--config", "/etc/vitalgate/gateway.yaml"]


# --- The page about it ---


def test_the_readme_names_every_folder_and_its_links_lead_somewhere() -> None:
    text = (DEPLOY / "README.md").read_text()
    for folder in (path for path in DEPLOY.iterdir() if path.is_dir()):
        assert f"[{folder.name}/]({folder.name}/" in text
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (DEPLOY / link).exists(), link
