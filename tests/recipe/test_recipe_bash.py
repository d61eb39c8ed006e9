"""What the straight reader calls known is what bash says under `--run`; no rule finds a fault."""

import json
import os
from pathlib import Path

import pytest

from swift_vlrft.recipe.by_bash import run_recipes
from swift_vlrft.recipe.reader import RecipeError, read_recipes
from swift_vlrft.recipe.rules import PROBLEM, check_recipe, check_recipes
from swift_vlrft.recipe.run import resolve

TABLE = Path(__file__).with_name("scripts.jsonl")
ROWS = [json.loads(line) for line in TABLE.read_text().splitlines()]
"""``unknown``: the flags and variables that the reader leaves unknown, or * for anything."""

GRPO = (
    "swift rlhf --rlhf_type grpo --model m --dataset d --reward_funcs format"
    " --gradient_accumulation_steps 1 --num_generations 8 --per_device_train_batch_size"
)
# A command without a fault; one for 8 processes, so that a wrong count of them is a problem.
TOKENS = {"@GRPO@": f"{GRPO} 8", "@WIDE@": f"{GRPO} 1"}
CALLER = {"GIVEN": "given by the caller", "HOME": "/nowhere", "PATH": "/usr/bin:/bin"}


def disagreement(ours, by_bash, unknown):
    """What we call known and bash does not say; None where all is right."""
    if ours.command != by_bash.command:
        return "command", ours.command
    for name in {flag.name for recipe in (ours, by_bash) for flag in recipe.flags}:
        if not ours.is_known(name):
            if unknown != "*" and name not in unknown.split():
                return name, "is unknown"
        elif by_bash.is_known(name) and ours.values(name) != by_bash.values(name):
            return name, ours.values(name), by_bash.values(name)
    if not unknown and [f.values for f in ours.flags] != [f.values for f in by_bash.flags]:
        return "order", ours.flags
    for name in {*ours.environment, *by_bash.environment} - {"PWD", "OLDPWD", "SHLVL", "_"}:
        if ours.may_be_unread(name):
            if unknown != "*" and name not in unknown.split():
                return name, "is unknown"
        elif ours.environment.get(name) != by_bash.environment.get(name):
            return name, ours.environment.get(name), by_bash.environment.get(name)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["why"][:50])
def test_what_is_known_is_what_bash_says_and_nothing_is_wrong_with_it(row, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, arguments = row["script"], row.get("arguments", ())
    for token, command in TOKENS.items():
        text = text.replace(token, command)
    Path("recipe.sh").write_text(text)
    (tmp_path / "data").mkdir()
    recipes = read_recipes("recipe.sh", CALLER, arguments)
    by_bash = run_recipes("recipe.sh", CALLER, arguments)
    said = [
        disagreement(*pair, row.get("unknown", "")) for pair in zip(recipes, by_bash, strict=True)
    ]
    assert said == [None] * len(said)
    made_up = ("unknown-flag", "value", "reward", "stray-word", "plugin", "placeholder")  # --x $A
    findings = [f for r in recipes for f in check_recipe(resolve(r)) if f.rule not in made_up]
    assert [f.text for f in findings if f.level == PROBLEM] == []


MS_SWIFT = os.environ.get("VLRFT_MS_SWIFT", "")
TRUE = {"placeholder", "not-installed"}
"""What is wrong with examples of ms-swift: they hold placeholders, and need other packages."""


@pytest.mark.skipif(
    not (MS_SWIFT and Path(MS_SWIFT, "examples").is_dir()),
    reason="VLRFT_MS_SWIFT names no checkout of ms-swift",
)
def test_the_examples_of_ms_swift_have_no_other_problem(monkeypatch):
    """All of its scripts and their configurations; none of them is kept here. In muonclip.sh the
    lines with variables lack their backslashes; loss_scale.sh names a loss that is no more.
    """
    monkeypatch.chdir(MS_SWIFT)
    problems = {}
    for path in [
        *sorted(Path("examples").rglob("*.sh")),
        *sorted(Path("examples/yaml").rglob("*.yaml")),
    ]:
        try:
            recipes = read_recipes(path, {})
        except RecipeError as error:
            if "Ray" in str(error) or "bash refuses it" in str(error):  # <node1_port>
                continue
            lines = path.read_text().splitlines()
            assert not any(line.lstrip().startswith(("swift rlhf", "swift sft")) for line in lines)
            continue
        findings = [f for f in check_recipes(map(resolve, recipes)) if f.level == PROBLEM]
        problems[path.name] = [(f.line, f.text) for f in findings if f.rule not in TRUE]
    assert {path for path, said in problems.items() if said} == {"loss_scale.sh", "muonclip.sh"}
    assert len(problems) > 150
