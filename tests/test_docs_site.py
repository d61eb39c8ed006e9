"""The documentation site: it builds without a warning, and a crawl of our own finds every link,
anchor and picture, and nothing that is fetched from another host.
"""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest

pytest.importorskip("mkdocs")
pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]
HOST = "http://site.test/"
OF_SITE = ("mkdocs.yml", "README.md", "README_CN.md", "CONTRIBUTING.md", "CHANGELOG.md")
FOLDERS = ("docs", "dev", "examples", "recipes", "benchmarks", "swift_vlrft")


def build(project: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(site)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=project, capture_output=True, text=True, env=environment)


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        """What a browser gets without being asked."""
        self.language = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[key] for key in ("id", "name") if key in given}
        if tag == "html":
            self.language = given.get("lang", "")
        if "href" in given:
            self.links.append(given["href"])
            if tag == "link":
                self.fetched.append(given["href"])
        if "src" in given:
            self.links.append(given["src"])
            self.fetched.append(given["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    """Every page by its address."""
    return {
        HOST + str(file.relative_to(site)).removesuffix("index.html"): Page(file.read_text())
        for file in site.rglob("*.html")
    }


def test_every_link_anchor_and_picture_resolves(site, pages):
    broken = []
    for address, page in pages.items():
        for link in page.links:
            target = urlsplit(urljoin(address, link))
            whole = target._replace(fragment="").geturl()
            if not whole.startswith(HOST):
                continue
            file = site / unquote(target.path.lstrip("/"))
            file = file / "index.html" if file.is_dir() else file
            ids = pages[whole].ids | {"__top"} if whole in pages else set()
            if not file.is_file() or (target.fragment and unquote(target.fragment) not in ids):
                broken.append((address, link))
    assert not broken
    assert len(pages) > 20


def test_nothing_is_fetched_from_another_host(site, pages):
    for address, page in pages.items():
        assert all(urljoin(address, each).startswith((HOST, "data:")) for each in page.fetched)
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style.read_text()), style


def test_landing_pages_and_search(site, pages):
    assert pages[HOST].language == "en"
    assert pages[HOST + "README_CN/"].language == "zh-CN"
    assert "显存规划" in (site / "README_CN" / "index.html").read_text()
    assert "vlrft_detection_iou" in (site / "search" / "search_index.json").read_text()


@pytest.mark.parametrize(
    ("page", "old", "new", "message"),
    [
        ("docs/demo.md", "# Demos", "[a](nowhere.md)\n# Demos", "'docs/nowhere.md'"),
        ("docs/demo.md", "# Demos", "[a](../recipes/no.sh)\n# Demos", "'recipes/no.sh'"),
        ("docs/demo.md", "# Demos", "[a](data.md#no-such-part)\n# Demos", "#no-such-part"),
        ("docs/demo.md", "# Demos", "![a](no.png)\n# Demos", "no.png"),
        ("README.md", "# swift", "[a](docs/nowhere.md)\n# swift", "docs/nowhere.md"),
        ("docs/new.md", "", "# A page that the navigation lacks", "docs/new.md"),
        ("mkdocs.yml", "docs/demo.md", "docs/demos.md", "docs/demos.md"),
    ],
)  # fmt: skip
def test_what_is_wrong_ends_the_build(tmp_path, page, old, new, message):
    for name in FOLDERS:
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in OF_SITE:
        shutil.copy(ROOT / name, tmp_path)
    file = tmp_path / page
    text = file.read_text() if file.exists() else ""
    assert old in text
    file.write_text(text.replace(old, new, 1))
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 1
    assert message in done.stderr
