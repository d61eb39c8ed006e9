"""What `make docs` adds to mkdocs, as a hook: the site has the repository's paths.

A page's name is its path in the repository: docs/reference/rewards.md, README.md. So a link that
works on GitHub works in the site as it stands. Pages also link to files that are no pages (recipes,
examples, results): each of those becomes a page that shows its text, outside of the navigation.
No page is a folder, so that the site also works from the file system.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = (
    *("README.md", "README_CN.md", "CONTRIBUTING.md", "CHANGELOG.md"),
    *("examples/README.md", "examples/space/README.md", "dev/measurements.md"),
)
"""Pages of the site that are not in docs/."""
PICTURES = (".png", ".svg")
FENCES = {".sh": "bash", ".py": "python", ".toml": "toml", ".json": "json", ".jsonl": "json"}
LINK = re.compile(r"\]\(([^)#\s]+)")


class Shown(File):
    """A file of the repository as a page."""

    def is_documentation_page(self) -> bool:
        return True


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The theme's files, and ours under their paths in the repository."""
    ours = {ROOT / path: path for path in OUTSIDE}
    for file in list(files):
        if file.src_dir == config.docs_dir:
            ours[ROOT / "docs" / file.src_uri] = f"docs/{file.src_uri}"
            files.remove(file)
    pages = {path: name for path, name in ours.items() if path.suffix == ".md"}
    for name in ours.values():
        files.append(File(name, str(ROOT), config.site_dir, use_directory_urls=False))
    for name in sorted({link for page, at in pages.items() for link in links(page, at)}):
        path = ROOT / name
        if path.is_file() and path not in ours:
            files.append(shown(path, name, config))
    return files


def links(page: Path, name: str) -> Iterator[str]:
    """The paths in the repository that a page links to."""
    for target in LINK.findall(page.read_text("utf-8")):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
        if "://" not in target and not path.startswith(("..", "/")):
            yield path


def shown(path: Path, name: str, config: MkDocsConfig) -> File:
    if path.suffix in PICTURES:
        return File(name, str(ROOT), config.site_dir, use_directory_urls=False)
    page = Shown(
        name,
        None,
        config.site_dir,
        use_directory_urls=False,
        dest_uri=f"{name}.html",
        inclusion=InclusionLevel.NOT_IN_NAV,
    )
    head = f"---\ntitle: {path.name}\nsearch:\n  exclude: true\n---\n\n# `{name}`\n\n"
    page.content_string = head + text_of(path)
    return page


def text_of(path: Path) -> str:
    """A file as Markdown: a notebook by its cells, any other in one block of code."""
    text = path.read_text("utf-8")
    if path.suffix != ".ipynb":
        return fenced(text, FENCES.get(path.suffix, "text"))
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    return "\n\n".join(fenced(t, "python") if kind == "code" else t for kind, t in cells)


def fenced(text: str, language: str) -> str:
    return f"`````{language}\n{text.rstrip()}\n`````\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> None:
    """Leave out the navigation of a page whose tabs on top are enough."""
    if "/" not in page.file.src_uri:
        page.meta["hide"] = ["navigation"]
