"""README says what is true: its examples run, its commands are those that tests run."""

import doctest
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from swift_vlrft.rewards import REWARDS

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()

DATA_COMMANDS = ("coco", "convert", "show", "push", "list")

# Every shell command of the README's code blocks, by its first words, and the test that runs it.
RUN_BY = {
    "make demo": "end_to_end/test_demo.py: the same command that the Makefile calls",
    "make test": "is what runs this",
    # The GPU set is not installed by a test; the package is, by end_to_end/test_wheel.py.
    "pip install -r requirements/gpu.txt && pip": "test_the_gpu_set_holds_what_the_package_needs",
    "export NPROC_PER_NODE=": "end_to_end/test_readme_command.py: the variables, 2 processes",
    "swift rlhf": "end_to_end/test_readme_command.py",
    "vlrft data check": "test_data_check.py",
    "bash recipes/": "end_to_end/test_recipes.py",
    'bash "$(vlrft recipe': "end_to_end/test_recipes.py; the path: test_cli.py",
    "MODEL=/models/": "end_to_end/test_recipes.py: the same file with the same variables",
    "vlrft plan recipes/": "test_memory.py: test_apply..., test_a_run_is_compared...",
    "vlrft plan --model": "test_memory.py: test_a_recipe_from_nothing_fits",
    "VLRFT_TRACK_MEMORY=1 bash": "end_to_end/test_engines.py and test_recipes.py",
    "vlrft check": "test_recipe_check.py",
    "vlrft doctor": "test_doctor.py",
    "export VLRFT_SHARED_PREFIX=1": "end_to_end/test_shared_prefix_training.py",
    **{f"vlrft data {name}": "test_readme_data.py" for name in DATA_COMMANDS},
    "vlrft eval": "end_to_end/test_demo.py and end_to_end/test_model_evaluation.py",
    "vlrft compare": "end_to_end/test_demo.py",
    "vlrft report": "end_to_end/test_demo.py",
    "vlrft score": "end_to_end/test_demo.py",
    "vlrft tiny": "end_to_end/test_wheel.py",
}


def test_the_gpu_set_holds_what_the_package_needs():
    """`pip install --no-deps .` after it leaves nothing out."""
    root = Path(__file__).resolve().parents[1]
    lines = (root / "requirements" / "gpu.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    needed = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    for need in map(Requirement, [*needed, "vllm", "deepspeed", "math-verify", "tensorboard"]):
        assert need.specifier.contains(pins[need.name]), need


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def test_every_command_shown_is_run_by_a_test():
    lines = [
        line
        for block in blocks("bash")
        for line in block.replace("\\\n", " ").splitlines()
        if line.strip()
    ]
    assert lines
    for line in lines:
        assert any(line.startswith(known) for known in RUN_BY), f"no test runs: {line}"


def test_the_examples_print_what_is_shown():
    shown = [block for block in blocks("python") if ">>>" in block]
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    names: dict[str, object] = {}
    for block in shown:
        runner.run(parser.get_doctest(block, names, "README.md", "README.md", 0))
    assert runner.tries >= len(REWARDS)
    assert runner.failures == 0


def test_the_table_names_every_reward():
    named = re.findall(r"^\| `(vlrft_\w+)` \|", README, re.M)
    assert sorted(named) == sorted(REWARDS)


def test_the_reward_shown_as_an_example_works():
    (block,) = [b for b in blocks("python") if "def vlrft_short" in b]
    scope: dict[str, object] = {}
    exec("from swift_vlrft.parsing.answers import read\n" + block, scope)
    assert scope["vlrft_short"](["<answer>4</answer>", "no answer"], ["", ""]) == [1.0, 0.0]


def test_the_table_names_every_recipe():
    recipes = Path(__file__).resolve().parents[1] / "recipes"
    there = {str(path.relative_to(recipes)) for path in recipes.rglob("*.sh")} - {"demo_cpu.sh"}
    assert set(re.findall(r"^\| `(\w+/[\w+]+\.sh)` \|", README, re.M)) == there
