"""docs/architecture.md shows the tree as it is, and the directions it names hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PACKAGES = ("gateway", "registry", "healthcheck")


def drawn() -> Iterator[str]:
    """The paths in the picture; two spaces of indentation for each folder."""
    found = re.search(r"^## The tree\n\n```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    folders: list[str] = []
    for line in found[1].splitlines():
        name = line.split()[0]
        del folders[(len(line) - len(line.lstrip())) // 2 :]
        yield "".join([*folders, name])
        folders.append(name)


def modules() -> set[str]:
    """Every module of the packages; an `__init__.py` counts if it holds more than a docstring."""
    files = {file for package in PACKAGES for file in (ROOT / package).rglob("*.py")}
    told = {file for file in files if file.name != "__init__.py" or len(ast.parse(file.read_text()).body) > 1}
    return {str(file.relative_to(ROOT)) for file in told}


def importers(package: str) -> set[str]:
    """The modules that import a package, or one below it."""
    pattern = re.compile(rf"^\s*(from|import) {package}\b", re.MULTILINE)
    return {name for name in modules() if pattern.search((ROOT / name).read_text())}


def test_everything_in_the_picture_exists() -> None:
    assert [path for path in drawn() if not (ROOT / path).exists()] == []


def test_every_module_is_in_the_picture() -> None:
    assert modules() - set(drawn()) == set()


def test_nothing_is_drawn_twice() -> None:
    paths = list(drawn())
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize("path", sorted({*re.findall(r"\]\((?!https?:)([^)#]+)", PAGE)}))
def test_links_lead_somewhere(path: str) -> None:
    assert (ROOT / "docs" / path).exists()


DECISIONS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))


@pytest.mark.parametrize("file", DECISIONS, ids=lambda file: file.stem)
def test_a_decision_is_short_and_listed_and_its_links_lead_somewhere(file: Path) -> None:
    text = file.read_text()
    assert text.startswith(f"# {file.stem[:4]}: ")
    assert "**Context.**" in text
    assert "**Decision.**" in text
    assert len(text.splitlines()) <= 60
    title = text.splitlines()[0].partition(": ")[2]
    assert f"[{file.stem[:4]}]({file.name}) | {title} |" in (file.parent / "README.md").read_text()
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (file.parent / link).exists(), link


def test_who_imports_the_frameworks() -> None:
    edge = {"gateway/app.py", *(name for name in modules() if name.startswith("gateway/routes/"))}
    assert importers("litestar") <= edge
    demo = "gateway/demo.py"
    assert importers("uvicorn") <= {
        demo,
        *(
            f"gateway/{name}.py"
            for name in ("app", "answering", "cycles", "flow", "protocol", "request_heads", "server")
        ),
    }
    on_the_way = {f"gateway/{name}.py" for name in ("dispatch", "protocol", "proxy", "call", "relay", "peers")}
    assert on_the_way <= modules()
    on_the_way |= {f"gateway/upstream/{name}.py" for name in ("pool", "connection", "exchange", "dial")}
    assert importers("httpx").isdisjoint(on_the_way)


def test_upstream_knows_nothing_of_the_gateway() -> None:
    for name in modules():
        if name.startswith("gateway/upstream/"):
            imported = re.findall(
                r"^\s*from ((?:gateway|registry|healthcheck)[\w.]*)", (ROOT / name).read_text(), re.M
            )
            assert {one for one in imported if not one.startswith("gateway.upstream")} <= {"registry.url"}


def test_paths_and_names_in_the_text_exist() -> None:
    """`file.py` in the text is a file of the tree, by its name or its end."""
    paths = set(drawn())
    for name in re.findall(r"`([\w/]+\.py)`", PAGE):
        assert any(path == name or path.endswith(f"/{name}") for path in paths) or "X.py" in name, name
