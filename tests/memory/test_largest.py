"""`vlrft plan --largest`: the value fits, planned forwards, and the next one does not."""

import itertools
import json
import re

import pytest
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.memory.largest import EACH, MACHINES, VALUES, largest
from swift_vlrft.memory.recipe_plan import plan_recipe
from swift_vlrft.recipe.rules import check_recipe
from swift_vlrft.recipe.rules.batches import BATCHES
from swift_vlrft.recipe.shipped import shipped_recipes

SIZES = itertools.cycle(("24", "80"))  # one for every second recipe
ASKED = zip(sorted(shipped_recipes()), SIZES, strict=False)


def run(*words):
    return CliRunner().invoke(app, words)


def forwards(planned, gpus, flags, name, value):
    """Whether a plan with that value fits and breaks no further rule; the old way round."""
    given = dict(flags) | {name: str(value)}
    words = [word for n, v in given.items() if not n.isupper() for word in (f"--{n}", v)]
    with pytest.MonkeyPatch.context() as patch:
        for variable in filter(str.isupper, given):
            patch.setenv(variable, given[variable])
        try:
            again = plan_recipe(planned.path, gpus, arguments=words)
        except ValueError:
            return False
    known = {finding.rule for finding in check_recipe(planned.run, BATCHES)}
    rules = {finding.rule for finding in check_recipe(again.run, BATCHES)}
    return again.plan.verdict == "fits" and rules <= known


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "size"),
    [pytest.param(*one, marks=[pytest.mark.nightly] * (n % 3 > 0)) for n, one in enumerate(ASKED)],
)
def test_the_next_larger_value_does_not_fit(recipe, size):
    count = re.search(r"_(\d+)(?:\+\d+)?x\d+g$", recipe)
    gpus = f"{count[1] if count else 1}x{size}"
    for name in VALUES:
        try:
            planned = plan_recipe(recipe, gpus)
            (answer,) = largest(planned, [name])
        except ValueError:  # names that change nothing, runs that are not planned
            continue
        first = {n: v for n, v in answer.change.flags.items() if n != name}
        if answer.value is None:
            continue
        assert forwards(planned, gpus, first, name, answer.value), (gpus, answer)
        beyond = int(answer.bound.partition(":")[0]) if ": " in answer.bound else None
        step = VALUES[name].step
        assert beyond is None or name in EACH or beyond == answer.value + step
        if beyond and "its prompt takes" not in answer.bound:
            assert not forwards(planned, gpus, first, name, beyond), (gpus, answer)


def test_the_command_prints_value_bound_and_command():
    words = "plan qwen2_5_vl_3b/detection_lora_1x24g --gpus 1x24 --largest lora-rank"
    shown = run(*words.split())
    assert shown.exit_code == 0
    value = re.search(r"lora_rank: (\d+) fits; (\d+): .* GiB, too near", shown.output)
    assert int(value[1]) + 8 == int(value[2]) and f"--lora_rank {value[1]}" in shown.output
    words = ["plan", "qwen2_5_vl_3b/detection_4x80g", "--largest", "gpus", "--json"]
    (machine,) = json.loads(run(*words).stdout)
    assert machine["largest"] in MACHINES and machine["command"].startswith("NPROC_PER_NODE=")


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        ("--gpus 4x80 --largest lora_rank", "it changes no memory of this run", 2),
        ("--gpus 4x80 --largest beta", "known are max_completion_length, ", 2),
        ("--gpus 4x80 --largest gpus", "leave out --gpus", 2),
        ("--gpus 4x4 --largest max_completion_length", "nothing fits; 64: ", 1),
    ],
)
def test_what_cannot_be_answered(words, said, code):
    shown = run("plan", "qwen2_5_vl_3b/detection_4x80g", *words.split())
    assert (shown.exit_code, said in " ".join(shown.output.split())) == (code, True), shown.output
