"""Recipes' own files, run with bash on two CPU processes: tiny model of the same architecture, tiny
data set, real vLLM, real DeepSpeed. One recipe of each family and of each way to train runs; what
ms-swift makes of the flags of all others is asked in recipe/test_run.py.

What a CPU cannot do is overridden by flags and variables alone (recipe_run.py); two
steps, then a checkpoint that loads.
"""

import json
import math
import random
import re
from pathlib import Path

import pytest
from end_to_end.recipe_run import (
    RECIPES,
    read,
    run_on_two_nodes,
    run_recipe,
    run_with_server,
)
from support.clips import clip_rows
from support.drawn_rows import FIVE, boxed_rows, mixed_rows
from support.nightly import first_now
from support.stored_sets import write_table
from support.swift_run import Run
from support.written_sets import write_rows

from swift_vlrft.demo.rows import colour_rows, stored
from swift_vlrft.recipe.reader import Recipe
from swift_vlrft.rewards import REWARDS
from swift_vlrft.tiny.checkpoint import write_tiny
from tests.support.parquet import write_parquet

pytestmark = pytest.mark.end_to_end

# Of each family with vLLM one recipe, by the folder; of the ways to train all there are. LoRA with
# ZeRO-2: tests/test_scripts.py runs qwen2_5_vl_3b/detection_lora_1x24g.
RUN = {
    "qwen2_5_vl_3b/detection_4x80g": "qwen2_5_vl",  # all weights, ZeRO-3
    "qwen2_5_vl_3b/temporal_4x80g": "qwen2_5_vl",  # videos
    "qwen2_vl_2b/detection_8x24g": "qwen2_vl",  # all weights, ZeRO-3 in host memory
    "qwen3_vl_4b/mixed_4x80g": "qwen3_vl",  # several tasks
    "qwen3_5_4b/detection_4x80g": "qwen3_5",
    "internvl3_5_4b/grounding_4x80g": "internvl",
    "glm_4_6v_flash/detection_lora_4x80g": "glm46v",  # LoRA, ZeRO-3
    "glm_4_1v_9b/classification_lora_2x80g": "glm4v",
    "glm_4v_9b/classification_lora_1x80g": "chatglm4v",
    "glm_4v_9b/sft_lora_1x80g": "chatglm4v",  # supervised
    "cogagent_9b/grounding_lora_4x80g": "cogagent_9b",
    "qwen2_5_7b/text_4x80g": "qwen2",  # no images
    "minicpm_v_4_6/classification_lora_1x24g": "minicpmv4_6",
    "gemma_4_e4b/detection_lora_2x80g": "gemma4",
}
QWEN = RECIPES / "qwen2_5_vl_3b"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")

    def model(path: Path) -> Path:
        family = RUN.get(f"{path.parent.name}/{path.stem}", "qwen2_5_vl")
        if not (folder / family).exists():
            write_tiny(family, folder / family)
        return folder / family

    return model


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """A small set of every task, by the first word of the recipe's name."""
    folder = tmp_path_factory.mktemp("sets")
    found = boxed_rows(random.Random(0), 16)
    write_parquet(found, folder / "detection")
    write_parquet(colour_rows(random.Random(0), 16), folder / "classification")
    write_parquet(mixed_rows(random.Random(0), 25, FIVE), folder / "mixed")
    (folder / "temporal").mkdir()
    write_rows(folder / "temporal" / "rows.jsonl", *clip_rows(folder / "temporal", 16))
    (folder / "sft").symlink_to(folder / "classification")
    boxed = []
    for row in found:
        box = ", ".join(re.findall(r"\d+", row.solution.split("Confidence")[0])[:4])
        boxed.append(stored(row) | {"solution": f"<answer>[{box}]</answer>", "task": "grounding"})
    write_table(folder / "grounding" / "train.parquet", boxed)
    sums = [{"problem": f"What is {n} + 1?", "solution": f"${n + 1}$"} for n in range(16)]
    text = write_rows(folder / "text.jsonl", *sums)

    def data(path: Path) -> str:
        task = path.stem.split("_")[0]
        subset = ":pixels" if (read(path).get("dataset") or "").endswith(":pixels") else ""
        return str(text if task == "text" else folder / task) + subset

    return data


def test_every_folder_of_recipes_is_run():
    """But for larger and smaller models of a family that is."""
    folders, run = ({p.parent.name for p in RECIPES.glob("*/*.sh")}, {n.split("/")[0] for n in RUN})
    others = {"qwen2_5_vl_7b", "qwen3_vl_2b", "qwen3_vl_8b"}
    assert folders - run == others and run < folders


# make test runs the first way of training for each family in test_family_runs.py.
@pytest.mark.parametrize("path", first_now(*(RECIPES / f"{name}.sh" for name in RUN)),
                         ids=lambda p: f"{p.parent.name}-{p.stem}")  # fmt: skip
def test_recipe(path, models, sets, tmp_path):
    model, dataset = models(path), sets(path)
    out = tmp_path / "out"
    last = "4" if "mixed" in path.stem else "2"  # of several tasks: two rollouts
    run = run_recipe(path, model, dataset, out, "--max_steps", last, "--save_steps", last)
    assert_trains(path, run, model, last)
    if "mixed" in path.stem:
        assert_tasks(run)


@pytest.mark.nightly
def test_two_nodes_on_the_loopback(models, sets, tmp_path):
    path, steps = QWEN / "detection_2nodes_8x80g.sh", ("--max_steps", "2", "--save_steps", "2")
    run = run_on_two_nodes(path, models(path), sets(path), tmp_path / "out", *steps)
    assert_trains(path, run, models(path))


def test_server_and_trainer_on_the_loopback(models, sets, tmp_path):
    """Rollouts over HTTP from a real `swift rollout`; weights go over a TCP store, not NCCL."""
    path, steps = QWEN / "detection_server_6+2x80g.sh", ("--max_steps", "2", "--save_steps", "2")
    flags = (*steps, "--log_rollout_offpolicy_metrics", "true")
    run = run_with_server(path, models(path), sets(path), tmp_path / "out", *flags)
    assert_trains(path, run, models(path))
    # The second step's rollouts come from the weights after the first one.
    assert all(abs(value) < 1e-2 for value in run.metric("rollout_correction/k3_kl"))


def assert_trains(path: Path, run: Run, model: Path, last: str = "2") -> None:
    """Every step logged once, with finite numbers and the recipe's own rewards, and then a
    checkpoint that loads.
    """
    recipe = read(path)
    rows = [row for row in run.rows if "grad_norm" in row]
    steps = [row["global_step/max_steps"] for row in rows]
    assert steps == [f"{n}/{last}" for n in range(1, int(last) + 1)]
    assert all(math.isfinite(row["loss"]) and 0 < row["grad_norm"] < math.inf for row in rows)
    assert_loads(run.folder / f"checkpoint-{last}", model, recipe)
    if recipe.command[-1] == "sft":
        evaluated = f"eval_{recipe.get('eval_metric')}"
        (score,) = [row[evaluated] for row in run.rows if evaluated in row]
        assert 0 <= score <= 1
        return
    # Rewards are logged once for all updates of a rollout.
    rollouts = math.ceil(len(steps) / int(recipe.get("num_iterations")))
    for name in recipe.values("reward_funcs"):
        metric = "MathAccuracy" if name == "accuracy" else name
        key = f"rewards/{metric}/mean"
        # Of several tasks not every step has rows of each.
        values = [float(row[key]) for row in run.steps if key in row]
        assert len(values) == rollouts or "$DATASET:" in recipe.text
        assert all(0 <= value <= 1 for value in values)
    assert all(math.isfinite(v) for name in ("reward", "kl") for v in run.metric(name))


def assert_tasks(run: Run) -> None:
    """The curve of a task's reward is of that task's completions, of both processes."""
    lines = (run.folder / "completions.jsonl").read_text().splitlines()
    steps = {record["step"][0]: record for record in map(json.loads, lines)}
    seen = set()
    for row in run.steps:
        record = steps[row["global_step/max_steps"].split("/")[0]]
        for name in REWARDS.keys() & record.keys():
            pairs = zip(record["task"], record[name], strict=True)
            task = REWARDS[name].task
            scores = [score for of, score in pairs if task is not None and of == task.name]
            if scores:
                assert row[f"rewards/{name}/mean"] == pytest.approx(sum(scores) / len(scores))
                seen.add(name)
    assert len(seen) > 1


def assert_loads(checkpoint: Path, model: Path, recipe: Recipe) -> None:
    """transformers (and peft) load it, and training has moved it."""
    import torch
    import transformers

    from swift_vlrft.chatglm4v.modeling import ChatGLM4VForConditionalGeneration as ours

    name = json.loads((model / "config.json").read_text())["architectures"][0]
    architecture = ours if name == ours.__name__ else getattr(transformers, name)
    before = architecture.from_pretrained(model, dtype=torch.float32).state_dict()
    if recipe.get("tuner_type") == "lora":
        from peft import PeftModel

        loaded = PeftModel.from_pretrained(architecture.from_pretrained(model), checkpoint)
        moved = [p for n, p in loaded.named_parameters() if "lora_B" in n and p.abs().sum() > 0]
        assert moved
        return
    after = architecture.from_pretrained(checkpoint, dtype=torch.float32).state_dict()
    assert before.keys() == after.keys()
    assert all(torch.isfinite(value).all() for value in after.values())
    assert any(not torch.allclose(before[n], after[n], atol=1e-5) for n in before)
