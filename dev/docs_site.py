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
CHINESE = ("README_CN.md", "docs/tutorial/own_data_CN.md")
SCRIPT = "docs/tutorial/ms_swift_script.md"
BOOSTS = {
    **dict.fromkeys(("README.md", "README_CN.md", "CONTRIBUTING.md", SCRIPT), 0.2),
    "docs/reference/flags.md": 3,
    "docs/reference/troubleshooting.md": 2,
}
"""Pages that name everything stand behind the page that explains it."""
SYNONYMS = {"docs/how_to/logging.md": ["W&B"]}
"""Words that the search's own splitting of words loses."""
UNSEARCHED = ("CHANGELOG.md", "dev/measurements.md", "docs/README.md")
"""Pages whose many words would stand in front of the page that answers."""
PICTURES = (".png", ".svg")
FENCES = {".sh": "bash", ".py": "python", ".toml": "toml", ".json": "json", ".jsonl": "json"}
HAN = "[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]"
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


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """What the search leaves out; Chinese lines are joined without a browser's blank."""
    if page.file.src_uri in UNSEARCHED:
        page.meta["search"] = {"exclude": True}
    elif boost := BOOSTS.get(page.file.src_uri):
        page.meta["search"] = {"boost": boost}
    if "/" not in page.file.src_uri:
        page.meta["hide"] = ["navigation"]  # the tabs on top are enough
    if words := SYNONYMS.get(page.file.src_uri):
        page.meta["tags"] = words
    if page.file.src_uri in CHINESE:
        markdown = re.sub(rf"(?<={HAN})\n(?={HAN})", "", markdown)
    return markdown


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """The Chinese page says its language, by which a browser chooses the shapes of characters."""
    if page.file.src_uri in CHINESE:
        output = output.replace('<html lang="en"', '<html lang="zh-CN"', 1)
    return output
