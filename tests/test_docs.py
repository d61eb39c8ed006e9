"""The pages say what is true: commands are run by tests, examples print what they show, links and
names exist.
"""

import doctest
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from typer.main import get_command

import swift_vlrft
from swift_vlrft import datasets, evaluation
from swift_vlrft.cli import app
from swift_vlrft.rewards import REWARDS

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*.md")),
    *sorted((ROOT / "recipes").rglob("*.md")),
]
DATA_COMMANDS = ("coco", "convert", "show", "push", "list")

# Every shell command of the code blocks, by its first words, and the test that runs it.
RUN_BY = {
    "make demo": "end_to_end/test_demo.py: the same command that the Makefile calls",
    "vlrft demo --task coins": "the same with another task",
    "vlrft demo --out": "end_to_end/test_demo.py: the same with another folder",
    "make test": "is what runs this",
    "make nightly": "the rest of the end-to-end tests",
    "make docs": "test_docs_site.py: the same command",
    "python benchmarks/time_to_reward.py": "measured by hand, hours; its tables: below",
    "make check": "a part of make test",
    "make dist && DS_BUILD_OPS=0 pip wheel": "end_to_end/test_wheel.py; the rest needs a network",
    "pip install --no-index": "the same",
    "docker build": "hadolint in make style; no test has a builder",
    "docker run": "the same",
    # The GPU set is not installed by a test; the package is, by end_to_end/test_wheel.py.
    "pip install -r requirements/gpu.txt && pip": "test_the_gpu_set_holds_what_the_package_needs",
    "export NPROC_PER_NODE=": "end_to_end/test_readme_command.py: the variables, 2 processes",
    "swift rlhf": "end_to_end/test_readme_command.py",
    "vlrft data check": "datasets/test_data_check.py",
    "bash recipes/": "end_to_end/test_recipes.py",
    'bash "$(vlrft recipe': "end_to_end/test_recipes.py; the path: commands/test_cli.py",
    "MODEL=/models/": "end_to_end/test_recipes.py: the same file with the same variables",
    "vlrft plan ": "memory/test_memory.py",
    "vlrft plan-compare": "memory/test_memory.py",
    "vlrft recipe ": "memory/test_plan_written.py",
    "VLRFT_TRACK_MEMORY=1 bash": "end_to_end/test_engines.py and test_recipes.py",
    "vlrft check": "recipe/test_recipe_check.py",
    "vlrft agree": "end_to_end/test_agreement.py",
    "vlrft resume": "recipe/test_resume.py and end_to_end/test_exact_resume.py",
    "export VLRFT_AGREEMENT=1": "end_to_end/test_agreement.py",
    "vlrft doctor": "diagnostics/test_doctor.py",
    "torchrun --nnodes 2": "diagnostics/test_nodes.py: the same but for the address",
    "export VLRFT_SHARED_PREFIX=1": "end_to_end/test_shared_prefix_training.py",
    **{f"vlrft data {name}": "test_docs_data.py" for name in DATA_COMMANDS},
    "vlrft eval": "end_to_end/test_demo.py and end_to_end/test_model_evaluation.py",
    "vlrft compare": "end_to_end/test_demo.py",
    "vlrft report": "end_to_end/test_demo.py",
    "vlrft score": "end_to_end/test_demo.py",
    "vlrft publish": "hub/test_publish.py",
    "DATASET=": "test_docs_visual_rft.py: recipes and options exist; end_to_end/test_recipes.py",
    "vlrft tiny": "end_to_end/test_wheel.py",
}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)


def test_the_first_page_is_short():
    assert len(README.read_bytes()) <= 10_240


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_shown_is_run_by_a_test(page):
    for block in blocks(page, "bash"):
        for line in filter(str.strip, block.replace("\\\n", " ").splitlines()):
            assert any(line.startswith(known) for known in RUN_BY), f"no test runs: {line}"


def test_the_examples_print_what_is_shown():
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    for page in PAGES:
        names: dict[str, object] = {}
        for block in blocks(page, "python"):
            if ">>>" in block:
                runner.run(parser.get_doctest(block, names, page.name, str(page), 0))
    assert runner.tries >= len(REWARDS)
    assert runner.failures == 0


def test_the_reward_shown_is_the_one_of_the_examples():
    (block,) = blocks(README, "python")
    assert (ROOT / "examples" / "my_reward.py").read_text().split('"""\n\n', 1)[1] == block


def test_the_table_names_every_reward():
    named = re.findall(r"^\| `(vlrft_\w+)` \|", (ROOT / "docs" / "rewards.md").read_text(), re.M)
    assert sorted(named) == sorted(REWARDS)


def test_the_table_names_every_public_name():
    page = (ROOT / "examples" / "README.md").read_text()
    tables = re.findall(r"^\| `(swift_vlrft[\w.]*)` \| (.*) \|$", page, re.M)
    named = {module: sorted(re.findall(r"`(\w+)`", names)) for module, names in tables}
    rooms = {room.__name__: sorted(room.__all__) for room in (datasets, evaluation)}
    assert named == {"swift_vlrft": sorted(swift_vlrft._PUBLIC)} | rooms


def test_the_table_names_every_recipe():
    there = {str(path.relative_to(ROOT / "recipes")) for path in ROOT.glob("recipes/*/*.sh")}
    table = (ROOT / "docs" / "recipes.md").read_text()
    assert set(re.findall(r"^\| `(\w+/[\w+]+\.sh)` \|", table, re.M)) == there


def test_the_gpu_set_holds_what_the_package_needs():
    """`pip install --no-deps .` after it leaves nothing out."""
    lines = (ROOT / "requirements" / "gpu.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for need in map(Requirement, [*needed, "vllm", "deepspeed", "math-verify", "tensorboard"]):
        assert need.specifier.contains(pins[need.name]), need


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_named_tests_files_and_links_exist(page):
    text = page.read_text()
    for path, test in re.findall(
        r"`((?:tests|swift_vlrft|recipes|benchmarks|dev|examples)/[\w/.]+)(?:::(\w+))?`", text
    ):
        assert (ROOT / path).exists(), path
        assert not test or f"def {test}(" in (ROOT / path).read_text(), test
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", prose):
        assert (page.parent / target).exists(), target


def test_named_commands_exist():
    known = set(get_command(app).commands)
    for page in PAGES:
        named = set(re.findall(r"`vlrft (\w+)", page.read_text()))
        assert named <= known, f"{page.name}: {named - known}"


def test_the_reward_that_contributing_shows_works():
    (block,) = blocks(ROOT / "CONTRIBUTING.md", "python")
    scope: dict[str, object] = {}
    exec("from swift_vlrft.rewards.classification import *\n" + block, scope)
    shown = scope["vlrft_first_letter"]
    assert shown.__name__ == "vlrft_first_letter"
    answers = ["<answer>cat</answer>", "<answer>dog</answer>", "no answer"]
    assert shown(answers, ["cow"] * 3) == [1.0, 0.0, 0.0]


def test_the_tables_are_the_results_kept():
    command = [sys.executable, str(ROOT / "benchmarks" / "time_to_reward.py"), "--table"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for table in printed.strip().split("\n\n"):
        assert table in (ROOT / "docs" / "what_to_set.md").read_text()
