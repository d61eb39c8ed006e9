"""The pages say what is true: commands are run by tests, or their options exist, examples print
what they show, links and names exist.
"""

import doctest
import json
import re
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.command_line import parsed, vlrft
from support.stored_sets import picture
from typer.main import get_command

from swift_vlrft import evaluation, rewards
from swift_vlrft.cli import app
from swift_vlrft.datasets.schemas import SCHEMAS
from swift_vlrft.files.environment import VARIABLES
from swift_vlrft.recipe.facts import facts
from swift_vlrft.rewards import REWARDS

ROOT = Path(__file__).resolve().parents[1]
README, CHINESE = ROOT / "README.md", ROOT / "README_CN.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = [README, CHINESE, CONTRIBUTING]
for folder in ("docs", "examples", "recipes"):
    PAGES += sorted((ROOT / folder).rglob("*.md"))
PAGES.append(ROOT / "dev" / "measurements.md")
# What other tests run of README.md: test_demo, test_try, test_wheel, test_readme_command ...
LISTS = ("average_precision", "precision_recall_f1", "task_metrics")
ELSEWHERE = (
    *("make demo", ".venv/bin/vlrft try", "pip install -r", "export NPROC_PER_NODE="),
    *("swift rlhf", "bash recipes/", "vlrft doctor"),
)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)


def commands(page: Path, program: str = "") -> list[str]:
    lines = "".join(blocks(page, "bash")).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and line.startswith(program)]


@pytest.mark.parametrize("line", commands(README))
def test_every_command_of_the_first_page_is_run(line, tmp_path, monkeypatch):
    if line.startswith(ELSEWHERE):
        return
    program, *words = shlex.split(line)
    assert program in ("vlrft", ".venv/bin/vlrft")
    monkeypatch.chdir(tmp_path if "new" in words else ROOT)
    done = vlrft(*words)
    assert done.exit_code < 2, done.output  # 1: an answer, too: it does not fit


def test_the_chinese_page_shows_the_same_code():
    assert re.findall(r"```.*?```", CHINESE.read_text(), re.S) == (
        re.findall(r"```.*?```", README.read_text(), re.S)
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_files_and_links_exist(page):
    text = page.read_text()
    for line in commands(page, "vlrft "):
        assert parsed(shlex.split(line)).command.name not in (None, "vlrft"), line
    assert set(re.findall(r"`vlrft (\w+)", text)) <= set(get_command(app).commands)
    folders = "tests|swift_vlrft|recipes|benchmarks|dev|examples"
    for path in re.findall(rf"(?:`|bash |python )((?:{folders})/[\w/.+]+\w)", text):
        assert (ROOT / path).exists(), path
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", prose):
        assert (page.parent / target).exists(), target


def test_the_examples_print_what_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("swift_vlrft.datasets.schemas.SCHEMAS", [*SCHEMAS])
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    for page in PAGES:
        names: dict[str, object] = {}
        for block in blocks(page, "python"):
            if ">>>" in block:
                runner.run(parser.get_doctest(block, names, page.name, str(page), 0))
    for function in (*REWARDS.values(), rewards.score, *map(partial(getattr, evaluation), LISTS)):
        assert "Source: " in function.__doc__ or function not in REWARDS.values(), function
        name, test = function.__name__, parser.get_doctest
        shown = test(function.__doc__, {name: function}, name, None, None)
        assert shown.examples, name
        runner.run(shown)
    assert runner.failures == 0


def test_the_rewards_shown_work():
    """The page's own reward is examples/my_reward.py, which test_examples.py runs."""
    (block,) = blocks(ROOT / "docs" / "how_to" / "own_reward.md", "python")
    assert (ROOT / "examples" / "my_reward.py").read_text().split('"""\n\n', 1)[1] == block
    (block,) = blocks(CONTRIBUTING, "python")
    scope: dict[str, Any] = {}
    exec("from swift_vlrft.rewards.classification import *\n" + block, scope)
    answers = ["<answer>cat</answer>", "<answer>dog</answer>", "no answer"]
    assert scope["vlrft_first_letter"](answers, ["cow"] * 3) == [1.0, 0.0, 0.0]


def test_tables_name_every_reward_and_every_recipe():
    table = (ROOT / "docs" / "reference" / "rewards.md").read_text()
    assert sorted(re.findall(r"^\| `(vlrft_\w+)` \|", table, re.M)) == sorted(REWARDS)
    table = (ROOT / "docs" / "reference" / "recipes.md").read_text()
    recipes = {str(path.relative_to(ROOT / "recipes")) for path in ROOT.glob("recipes/*/*.sh")}
    assert set(re.findall(r"^\| \[`(\w+/[\w+]+\.sh)`", table, re.M)) == recipes


def test_the_pages_are_short():
    pages = {page: page.read_text() for page in (ROOT / "docs").rglob("*.md")}
    assert sum(len(text.encode()) for text in pages.values()) <= 130_000
    assert len(README.read_bytes()) <= 8_000
    for page, text in pages.items():
        assert page.parent.name != "how_to" or len(text.split()) <= 400, page


def test_every_flag_of_a_recipe_is_explained():
    """Once, in the page's tables; and none is there that ms-swift does not know."""
    text = (ROOT / "docs" / "reference" / "flags.md").read_text()
    explained = re.findall(r"`--(\w+)", "".join(re.findall(r"^\| (`--.*?) \|", text, re.M)))
    assert len(explained) == len(set(explained))
    scripts = [path.read_text() for path in ROOT.glob("recipes/**/*.sh")]
    lines = [line for text in scripts for line in text.splitlines() if not line.startswith("#")]
    used = set(re.findall(r"(?<!\S)--([a-z]\w+)", "\n".join(lines)))
    known = [facts().flags(command) for command in ("rlhf", "sft", "rollout")]
    assert used <= set(explained) <= set().union(*known)


def test_every_variable_of_the_package_is_in_its_table_and_explained():
    text = (ROOT / "docs" / "reference" / "variables.md").read_text()
    code = "".join(path.read_text() for path in (ROOT / "swift_vlrft").rglob("*.py"))
    names = set(re.findall(r"\bVLRFT_[A-Z]+(?:_[A-Z]+)*\b", code))
    assert names == set(VARIABLES) == set(re.findall(r"^\| `(VLRFT_\w+)", text, re.M))


def test_the_script_of_the_tutorial_and_what_is_said_of_it(tmp_path, monkeypatch):
    page = ROOT / "docs" / "tutorial" / "ms_swift_script.md"
    old, new = [block for block in blocks(page, "bash") if "swift rlhf" in block]
    monkeypatch.chdir(tmp_path)
    Path("data/flowers").mkdir(parents=True)
    Path("data/flowers/1.png").write_bytes(picture())
    row = {"image": "1.png", "question": "Which flower?", "answer": "rose"}
    Path("data/flowers/train.jsonl").write_text((json.dumps(row) + "\n") * 64)
    Path("my_grpo.sh").write_text(old)
    done = vlrft("check", "my_grpo.sh", COLUMNS="200")
    for line in blocks(page, "text")[0].strip().splitlines():
        assert line in done.output
    Path("new.sh").write_text(new)
    done = vlrft("check", "--json", "new.sh")
    assert done.exit_code == 0, done.stdout
    assert [finding["rule"] for finding in json.loads(done.stdout)["findings"]] == ["steps"]
