"""`vlrft plan --largest`: the value fits, planned forwards, and the next one does not."""

import itertools
import json
import re
import shlex

import pytest
from support.command_line import vlrft

from swift_vlrft.memory.largest import EACH, MACHINES, VALUES, largest_values
from swift_vlrft.memory.recipe_plan import plan_recipe
from swift_vlrft.recipe.rules import check_recipe
from swift_vlrft.recipe.rules.batches import BATCHES
from swift_vlrft.recipe.shipped import shipped_recipes

YAML = """rlhf_type: grpo
model: Qwen/Qwen2.5-VL-3B-Instruct
dataset: x
reward_funcs: format
tuner_type: full
torch_dtype: bfloat16
deepspeed: zero3
use_vllm: true
vllm_mode: colocate
vllm_max_model_len: 4096
sleep_level: 1
vllm_gpu_memory_utilization: 0.4
"""
SIZES = itertools.cycle(("24", "80"))  # one for every second recipe
ASKED = zip(sorted(shipped_recipes()), SIZES, strict=False)


def forwards(planned, gpus, answer, value):
    """Whether its command with that value fits and breaks no further rule; the old way round."""
    words = shlex.split(answer.command)
    start = words.index("bash")
    given = dict(word.split("=") for word in words[:start])
    if answer.name.isupper():
        given[answer.name] = str(value)
    else:
        words += [f"--{answer.name}", str(value)]
    with pytest.MonkeyPatch.context() as patch:
        for variable, text in given.items():
            patch.setenv(variable, text)
        try:
            again = plan_recipe(planned.path, gpus, arguments=words[start + 2 :])
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
            (answer,) = largest_values(planned, [name])
        except ValueError:  # runs that are not planned
            continue
        if answer.largest is None:
            continue
        assert forwards(planned, gpus, answer, answer.largest), (gpus, answer)
        beyond = int(answer.bound.partition(":")[0]) if ": " in answer.bound else None
        step = VALUES[name].step
        assert beyond is None or name in EACH or beyond == answer.largest + step
        if beyond and "tokens exceeds" not in answer.bound:
            assert not forwards(planned, gpus, answer, beyond), (gpus, answer)


def test_the_command_prints_value_bound_and_command(tmp_path):
    names = ["--largest", "lora-rank", "--largest", "vllm_max_model_len", "--largest", "MAX_PIXELS"]
    shown = vlrft("plan", "qwen2_5_vl_3b/detection_lora_1x24g", "--gpus", "1x24", *names)
    assert shown.exit_code == 0
    value = re.search(r"lora_rank +(\d+) +(\d+): .* GiB, too near", shown.output)
    assert int(value[1]) + 8 == int(value[2]) and f"--lora_rank {value[1]}" in shown.output
    assert shown.output.count("run it: ") == 3
    words = ["plan", "qwen2_5_vl_3b/detection_4x80g", "--largest", "gpus", "--json"]
    (machine,) = json.loads(vlrft(*words).stdout)
    assert machine["largest"] in MACHINES and machine["command"].startswith("NPROC_PER_NODE=")
    (tmp_path / "run.yaml").write_text(YAML)
    shown = vlrft("plan", tmp_path / "run.yaml", "--largest", "gpus")
    assert re.search(r"gpus +2x80 ", shown.output) and "NPROC_PER_NODE=2 swift" in shown.output


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        ("4x80g --largest beta", "known are max_completion_length, ", 2),
        ("4x80g --gpus 4x80 --largest gpus", "gpus, alone, without --gpus", 2),
        ("4x80g --largest max_pixels", "none what limits the pictures of this run is MAX_PIX", 1),
        ("4x80g --gpus 4x4 --largest max_completion_length", "none 64: ", 1),
        ("4x80g --largest lora_rank --largest MAX_PIXELS", "lora_rank none it changes no mem", 1),
        ("4x80g --largest lora_rank --num_generations 7", "7 does not divide the 32", 2),
        ("4x80g --largest vllm_max_model_len", "128064: a row of 128064 tokens", 0),
        ("server_6+2x80g --largest vllm_max_model_len", "it changes no memory", 1),
        ("server_6+2x80g --largest gpus", "beside `swift rollout`", 2),
    ],
)
def test_what_cannot_be_answered(words, said, code):
    shown = vlrft("plan", *f"qwen2_5_vl_3b/detection_{words}".split())
    assert (shown.exit_code, said in " ".join(shown.output.split())) == (code, True), shown.output


def test_a_context_a_little_longer_than_the_rows_is_found():
    """A rule between flags says of half the values that they are too short, not too long."""
    words = "--gpus 1x12 --max_completion_length 4000 --vllm_max_model_len 6144 --json"
    words += " --vllm_gpu_memory_utilization 0.62 --largest vllm_max_model_len"
    shown = vlrft("plan", "qwen3_vl_2b/detection_lora_1x24g", *words.split())
    (answer,) = json.loads(shown.stdout)
    assert 6048 < answer["largest"] < 8192, answer
