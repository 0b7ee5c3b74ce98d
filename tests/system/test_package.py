"""What is released: wheel and source archive install into a clean environment and run there (pitfall 181)."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib.metadata import distribution, packages_distributions, requires
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement

from tests.fakes.program import ROOT, clean_environment
from tests.floors import constraints

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
PACKAGES = ("gateway", "registry", "healthcheck")
SECONDS = 55
HALVES = {"pydantic-core"}
"""Distributions that another one is made of and pins: pydantic's documentation imports from this one itself."""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(one) for one in command], cwd=cwd, env=clean_environment() | {"PYTHONNOUSERSITE": "1"},
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both files, as `make dist` builds them: the wheel out of the source archive."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    [file] = dist.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def archive(dist: Path) -> Path:
    [file] = dist.glob("*.tar.gz")
    return file


def files_of_the_packages() -> set[str]:
    """Everything below the packages that git knows: modules, `py.typed`, pages, styles, scripts."""
    listed = run("git", "ls-files", *PACKAGES, cwd=ROOT).split()
    return {name for name in listed if (ROOT / name).is_file()}


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    names = {*zipfile.ZipFile(wheel).namelist()}
    assert files_of_the_packages() - names == set()
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    tops = {name.partition("/")[0] for name in names}
    assert tops == {*PACKAGES, f"vitalgate-{VERSION}.dist-info"}


def test_the_archive_can_build_and_test_itself(archive: Path) -> None:
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert files_of_the_packages() - names == set()
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "mkdocs.yml"):
        assert name in names
    assert not [name for name in names if name.startswith((".venv", "build/")) or "node_modules" in name]


def test_the_files_have_the_version_of_the_project(wheel: Path, archive: Path) -> None:
    assert wheel.name == f"vitalgate-{VERSION}-py3-none-any.whl"
    assert archive.name == f"vitalgate-{VERSION}.tar.gz"
    kustomization = (ROOT / "deploy" / "kubernetes" / "base" / "kustomization.yaml").read_text()
    assert f"newTag: {VERSION}" in kustomization
    assert f"## [{VERSION}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it asks for, and nothing else: the `bin` folder of it.

    Nothing is downloaded: the distributions that the wheel needs, and those need, are linked from here.
    """
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False)
    [site] = (folder / "lib").glob("python*/site-packages")
    python = folder / "bin" / "python"
    for name in needed(PROJECT["dependencies"]):
        link(name, site)
    run(
        sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet",
        "--disable-pip-version-check", wheel,
    )  # fmt: skip
    return folder / "bin"


def needed(requirements: list[str]) -> set[str]:
    """The distributions that follow from requirements, extras and markers minded."""
    found: set[str] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        found.add(requirement.name)
        for wanted in ("", *requirement.extras):
            if (requirement.name, wanted) not in seen:
                seen.add((requirement.name, wanted))
                waiting += [(Requirement(text), wanted) for text in requires(requirement.name) or ()]
    return found


def link(name: str, site: Path) -> None:
    """Make a distribution that is installed here visible there too, and no other."""
    files = distribution(name).files or ()
    for top in {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}:
        source, target = Path(str(distribution(name).locate_file(top))), site / top
        if source.exists() and not target.exists():
            target.symlink_to(source)


def test_the_commands_run(environment: Path) -> None:
    assert run(environment / "vitalgate", "version").strip().endswith(VERSION)
    assert "serve" in run(environment / "vitalgate", "--help")
    program = "import gateway, registry.client, healthcheck; print(gateway.__file__)"
    out = run(environment / "python", "-c", program, cwd=environment)
    assert str(environment.parent) in out, "the installed package, not the checkout"


def test_it_serves(environment: Path, tmp_path: Path) -> None:
    """/live, a call through the demo agent, and the console's page with the files that it names."""
    settings = tmp_path / "gateway.yaml"
    settings.write_text('server: {port: 0}\nmetrics: {port: 0}\nregistry: {url: "memory://"}\n')
    variables = clean_environment() | {"HOME": str(tmp_path), "PYTHONNOUSERSITE": "1"}
    with subprocess.Popen(
        [environment / "vitalgate", "serve", "--config", settings],
        cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            listening = next(json.loads(line) for line in process.stderr if '"listening"' in line)
            with httpx.Client(base_url=listening["api"], trust_env=False, timeout=20) as client:
                assert client.get("/live").status_code == 200
                assert client.get("/schema").json()["info"]["version"] == VERSION
                the_console_is_whole(client)
        finally:
            process.terminate()


def the_console_is_whole(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.status_code == 200
    named = re.findall(r'(?:src|href)="(console/[^"#?]+)"', page.text)
    assert named
    for path in {*named}:
        assert client.get(f"/{path}").status_code == 200, path


def named_by_the_project() -> set[str]:
    """The distributions that the project names, and those that it names by an extra of theirs."""
    names = {*HALVES}
    for requirement in map(Requirement, PROJECT["dependencies"]):
        names.add(requirement.name)
        for more in map(Requirement, requires(requirement.name) or ()):
            if more.marker and any(more.marker.evaluate({"extra": extra}) for extra in requirement.extras):
                names.add(more.name)
    return {name.lower().replace("_", "-") for name in names}


def imported(file: Path) -> set[str]:
    """The top-level modules that a file imports from elsewhere."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.partition(".")[0] for name in names} - {*PACKAGES, *sys.stdlib_module_names}


def test_no_dependency_is_there_by_chance() -> None:
    """Pitfall 181: what is imported belongs to a distribution that the project names."""
    named, owners = named_by_the_project(), packages_distributions()
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            for module in imported(file):
                assert {owner.lower().replace("_", "-") for owner in owners[module]} & named, f"{file}: {module}"


def test_every_dependency_has_one_lower_bound() -> None:
    """Pitfall 183: what `make test-floors` installs."""
    assert len(constraints()) == len(PROJECT["dependencies"])
