"""The built site: no warning, no other host, and a search that finds the page that answers.

The search is asked through the site's own worker, the script that a browser runs, in node.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
from support.swift_run import REPOSITORY, SUPPORT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not importlib.util.find_spec("mkdocs"), reason="mkdocs is not installed"),
]
PAGES = {
    "docs/tutorial/own_data": [
        "my own COCO json",
        "use my own COCO json",
        "warm start",
        "vlrft try",
    ],
    "docs/tutorial/own_data_CN": ["热身", "框格式"],
    "README_CN": ["显存规划"],
    "docs/how_to/install": ["install", "docker container"],
    "docs/how_to/own_columns": ["columns with other names", "several tasks"],
    "docs/how_to/which_rewards": ["which rewards to combine"],
    "docs/how_to/own_reward": ["add a reward"],
    "docs/how_to/does_it_fit": ["fits 24 GB"],
    "docs/how_to/lora_with_vllm": ["LoRA with vLLM"],
    "docs/how_to/sleep_and_offloads": ["what sleep_level does", "sleep_level", "offload_optimizer"],
    "docs/how_to/two_nodes": ["2 nodes", "train on two nodes"],
    "docs/how_to/logging": ["wandb", "W&B", "swanlab"],
    "docs/how_to/reward_is_0": ["reward is 0"],
    "docs/how_to/resume": ["resume"],
    "docs/how_to/evaluate": ["evaluate", "evaluate a checkpoint"],
    "docs/how_to/publish": ["publish to Hugging Face"],
    "docs/how_to/glm_4v": ["GLM-4v"],
    "docs/how_to/ray_and_megatron": ["megatron"],
    "docs/reference/data": ["box format of Qwen3-VL", "held-out split", "streaming"],
    "docs/reference/evaluation": ["pass rate"],
    "docs/reference/flags": ["num_generations", "vllm_gpu_memory_utilization"],
    "docs/reference/variables": ["environment variables"],
    "docs/reference/troubleshooting": ["out of memory", "it hangs", "nan"],
    "docs/reference/visual_rft": ["Visual-RFT"],
    "docs/project/faults": ["disk full", "a process dies"],
    "docs/project/shared_prefix": ["shared prefix"],
}
"""Page -> what is typed into the search to find it."""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """mkdocs follows every link and anchor."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    return folder


def test_it_fetches_nothing_from_another_host_and_says_its_language(site):
    languages = {"index": "en", "README_CN": "zh-CN", "docs/tutorial/own_data_CN": "zh-CN"}
    for page, language in languages.items():
        assert f'lang="{language}"' in (site / f"{page}.html").read_text()
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert ' src="http' not in text and 'rel="stylesheet" href="http' not in text, page


def test_it_works_from_the_file_system(site):
    """No link leads to a folder; the index is a script; our worker comes before the theme's."""
    for page in site.rglob("*.html"):
        if page.name == "404.html":  # a server's, with addresses from the root
            continue
        for link in re.findall(r'<a [^>]*href="([^"#?]+)[^"]*"', page.read_text()):
            if not re.match(r"\w+:", link):
                assert (page.parent / unquote(link)).is_file(), (page, link)
    assert (site / "search/search_index.js").read_text().startswith("var __index = {")
    scripts = re.findall(r'<script src="([^"]+)"', (site / "index.html").read_text())
    assert scripts[0] == "docs/iframe-worker.js" and "/bundle." in scripts[-1]


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
def test_the_search_finds_the_page_that_answers(site):
    asked = [(question, page) for page, questions in PAGES.items() for question in questions]
    (worker,) = site.glob("assets/javascripts/workers/search.*.min.js")
    command = ["node", SUPPORT / "site_search.mjs", site, worker.name]
    questions = json.dumps([question for question, _ in asked])
    done = subprocess.run(command, input=questions, capture_output=True, text=True, check=True)
    found = {q: pages[:1] for (q, _), pages in zip(asked, json.loads(done.stdout), strict=True)}
    assert found == {question: [f"{page}.html"] for question, page in asked}


# ---- in a browser ------------------------------------------------------------------------------

chromium = pytest.mark.skipif(not shutil.which("chromium"), reason="chromium is not installed")
MEASURE = """<script>addEventListener("load", () => {
  const own = document.documentElement
  const cut = [...document.querySelectorAll(".md-typeset__scrollwrap")].filter(
    (box) => box.scrollWidth > box.clientWidth && getComputedStyle(box).overflowX !== "auto")
  parent.postMessage([location.pathname, innerWidth, own.scrollWidth, cut.length], "*")
})</script>"""
COLLECT = """<!doctype html><pre></pre><script>addEventListener("message", ({data}) => {
  document.querySelector("pre").append(JSON.stringify(data) + "\\n")
})</script>"""


def dumped(tmp_path: Path, address: str, *flags: str) -> str:
    """The page as it stands after its scripts have run."""
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", *flags]
    command += ["--virtual-time-budget=20000", f"--user-data-dir={tmp_path / 'user'}", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


@chromium
def test_the_search_works_in_a_browser_that_opened_a_file(site, tmp_path):
    text = dumped(tmp_path, f"file://{site}/docs/reference/data.html?q=resume")
    links = re.findall(r'href="([^"?]+)[^"]*" class="md-search-result__link', text)
    assert links[0] == f"file://{site}/docs/how_to/resume.html"


@chromium
@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_is_wider_than_the_screen_and_wide_tables_scroll(site, tmp_path, width):
    copy = tmp_path / "site"
    shutil.copytree(site, copy)
    (copy / "404.html").unlink()  # a server's, with addresses from the root
    pages = [*copy.glob("*.html"), *(copy / "docs").rglob("*.html")]
    frames = [f'<iframe width="{width}" height="800" src="{page}"></iframe>' for page in pages]
    for page in pages:
        page.write_text(page.read_text() + MEASURE)
    (copy / "all.html").write_text(COLLECT + "".join(frames))
    text = dumped(tmp_path, f"file://{copy}/all.html")
    measured = [json.loads(line) for line in re.findall(r'(\["/.*\])$', text, re.M)]
    assert len(measured) == len(pages) > 35
    for page, inner, whole, cut in measured:
        assert inner == width and whole <= width and not cut, page
