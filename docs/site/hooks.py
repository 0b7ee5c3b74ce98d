"""How the documentation site is put together (mkdocs hooks): pages written by code, and files from outside docs/.

The pages link to files of the repository as they stand there, so that they can be read in the repository as well.
Whatever they link to outside docs/ is taken into the site below `repository/`, and the links are bent there.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MERMAID = Path(__file__).parent / "node_modules" / "mermaid" / "dist" / "mermaid.min.js"
"""Draws the diagrams, where `make docs` could install it; elsewhere they are shown as text."""
SEARCH = Path(__file__).parent / "node_modules" / "iframe-worker" / "shim" / "index.js"
"""Searches where the site is read from the disk, where a browser runs no worker; without it there is no search."""

_LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)#\s]*)((?:#[^)\s]*)?\))")
_FENCED = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the decisions into the navigation; without mermaid at hand, keep the theme from fetching it."""
    [design] = [tab["Design"] for tab in config.nav or () if "Design" in tab]
    design[-1:-1] = [f"decisions/{path.name}" for path in sorted((DOCS / "decisions").glob("0*.md"))]
    if MERMAID.exists():
        config.extra_javascript.append("assets/mermaid.min.js")
    else:
        config.mdx_configs["pymdownx.superfences"]["custom_fences"] = []
    config.plugins["material/offline"].config.enabled = SEARCH.exists()
    config.extra["polyfills"] = ["assets/iframe-worker.js"] if SEARCH.exists() else []  # the theme would fetch it
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are generated, and what the others link to outside docs/."""
    for name, text in reference.pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    if MERMAID.exists():
        files.append(File.generated(config, "assets/mermaid.min.js", abs_src_path=str(MERMAID)))
    if SEARCH.exists():
        files.append(File.generated(config, "assets/iframe-worker.js", abs_src_path=str(SEARCH)))
    waiting = [path for path in DOCS.rglob("*.md") if "node_modules" not in path.parts]
    taken: set[Path] = set()
    while waiting:
        for target in _outside(waiting.pop()):
            if target not in taken:
                taken.add(target)
                files.append(_added(target, config))
                waiting += [target] if target.suffix == ".md" else []
    return files


def _added(target: Path, config: MkDocsConfig) -> File:
    """A file of the repository; for a folder a page with what is in it."""
    if target.is_file():
        return File.generated(config, _place(target), abs_src_path=str(target))
    inside = sorted(it for it in target.iterdir() if it.is_file())
    texts = [f"## {it.name}\n\n```{it.suffix[1:]}\n{it.read_text()}\n```\n" for it in inside]
    return File.generated(config, _place(target), content=f"# {target.name}\n\n" + "\n".join(texts))


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:
    """Bend links to files outside docs/ to where they are in the site."""
    uri: str = page.file.src_uri
    here = ROOT / uri.removeprefix("repository/") if uri.startswith("repository/") else DOCS / uri
    if uri.startswith("reference/"):
        return markdown
    parts = _FENCED.split(markdown)
    parts[::2] = [_LINK.sub(lambda match: _bent(match, here, uri), part) for part in parts[::2]]
    return "".join(parts)


def _bent(match: re.Match[str], page: Path, uri: str) -> str:
    target = _target(page, match[2])
    if target is None:
        return match[0]
    place = str(target.relative_to(DOCS)) if target.is_relative_to(DOCS) else _place(target)
    return match[1] + posixpath.relpath(place, posixpath.dirname(uri) or ".") + match[3]


def _outside(page: Path) -> Iterator[Path]:
    text = "".join(_FENCED.split(page.read_text())[::2])
    for link in _LINK.findall(text):
        target = _target(page, link[1])
        if target is not None and not target.is_relative_to(DOCS):
            yield target


def _target(page: Path, link: str) -> Path | None:
    """The file that a link names, or the folder; None for generated pages and what does not exist."""
    if not link:
        return None
    path = Path(posixpath.normpath(page.parent / link))
    if path.is_dir() and (path / "README.md").exists():
        path /= "README.md"
    return path if path.exists() and path.is_relative_to(ROOT) else None


def _place(target: Path) -> str:
    return f"repository/{target.relative_to(ROOT)}" + ("/README.md" if target.is_dir() else "")
