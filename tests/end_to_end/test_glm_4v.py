"""GLM-4V through ms-swift's real commands, from a folder like the published one.

Supervised first, so that the tiny model answers and stops; its answers before and after merging;
then GRPO on it.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.glm4v_folder import write_published
from support.swift_run import (
    COIN,
    COLOCATED,
    DEEPSPEED_ON_CPU,
    REPOSITORY,
    VLLM_ON_CPU,
    Run,
    assert_trained,
    run_grpo,
    run_swift,
)
from support.written_sets import write_rows

from swift_vlrft.demo.rows import colour_rows

pytestmark = pytest.mark.end_to_end

PLUGIN = ("--external_plugins", str(REPOSITORY / "plugins" / "vlrft.py"))
ALL_WEIGHTS = ("--freeze_vit", "false", "--freeze_aligner", "false")
ANSWER = "<answer>red</answer>"


def conversation(text: str, *images: Path, answer: str | None = None) -> dict:
    turns = [{"role": "user", "content": text}]
    if answer:
        turns.append({"role": "assistant", "content": answer})
    return {"messages": turns, "images": [str(image) for image in images]}


@dataclass
class Trained:
    base: Path
    images: list[Path]
    run: Run
    adapter: Path
    merged: Path


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Trained:
    """The supervised run, with mixed rows in a batch, and its merged model."""
    folder = tmp_path_factory.mktemp("glm_4v")
    base = write_published(folder / "downloaded")
    images = []
    for i, row in enumerate(colour_rows(random.Random(0), 3)):
        images.append(folder / f"{i}.png")
        row.image.save(images[-1])
    rows = [conversation("<image>What colour is it?", image, answer=ANSWER) for image in images]
    rows.append(conversation("Which colour do you like?", answer=ANSWER))
    command = [
        *(
            "swift",
            "sft",
            "--model",
            str(base),
            "--dataset",
            str(write_rows(folder / "r.jsonl", *rows)),
        ),
        *(*PLUGIN, "--output_dir", str(folder / "sft"), "--add_version", "false"),
        *("--tuner_type", "lora", "--lora_dropout", "0"),
        *(*ALL_WEIGHTS, "--gradient_checkpointing", "true", "--vit_gradient_checkpointing", "true"),
        *("--torch_dtype", "float32", "--use_cpu", "true", "--report_to", "none"),
        *("--per_device_train_batch_size", "4", "--max_steps", "50", "--logging_steps", "1"),
        *("--learning_rate", "3e-3", "--lr_scheduler_type", "constant", "--warmup_ratio", "0"),
    ]
    run = run_swift(command, folder / "sft")
    adapter, merged = folder / "sft" / "checkpoint-50", folder / "merged"
    export = ("swift", "export", "--adapters", str(adapter), "--merge_lora", "true")
    run_swift([*export, "--output_dir", str(merged)], folder)
    return Trained(base, images, run, adapter, merged)


def answers(trained: Trained, folder: Path, *model: str) -> list[str]:
    rows = [
        conversation("Say a colour."),
        conversation("<image>What colour is it?", trained.images[0]),
    ]
    command = [
        *(
            "swift",
            "infer",
            *model,
            "--val_dataset",
            str(write_rows(folder / "asked.jsonl", *rows)),
        ),
        *("--max_new_tokens", "12", "--temperature", "0", "--max_batch_size", "2"),
        *("--result_path", str(folder / "answers.jsonl")),
    ]
    run_swift(command, folder)
    lines = (folder / "answers.jsonl").read_text().splitlines()
    return [json.loads(line)["response"] for line in lines]


def test_it_learns_supervised_and_says_so_before_and_after_merging(trained, tmp_path):
    assert f"{trained.base}: its own code (configuration_chatglm.py, " in trained.run.output
    assert "the code of the checkpoint was run" not in trained.run.output
    losses = [row["loss"] for row in trained.run.rows if "loss" in row]
    assert float(losses[0]) > 11 and float(losses[-1]) < 0.2
    merged = ("--model", str(trained.merged), *PLUGIN)
    for i, model in enumerate([("--adapters", str(trained.adapter)), merged]):
        (tmp_path / str(i)).mkdir()
        assert answers(trained, tmp_path / str(i), *model) == [ANSWER, ANSWER]


def test_vllm_says_what_the_trainer_says_after_every_step(trained, shapes, tmp_path):
    """Rollouts in vLLM, its weights sent by name after each step."""
    flags = (*COIN, *COLOCATED, "--log_rollout_offpolicy_metrics", "true", *ALL_WEIGHTS)
    flags += ("--learning_rate", "2e-3")
    run = run_grpo(trained.base, shapes, tmp_path, *flags, **VLLM_ON_CPU)
    assert_trained(run, 3)
    assert "the code of the checkpoint was run" not in run.output
    assert run.metric("kl")[2] > 1e-3  # far from where it began
    for name in ("k3_kl", "log_ppl_abs_diff"):
        assert all(abs(value) < 1e-4 for value in run.metric(f"rollout_correction/{name}"))


@pytest.mark.nightly
@pytest.mark.parametrize("sharding", [(), ("--deepspeed", "zero3")], ids=["DDP", "ZeRO-3"])
def test_a_process_without_an_image_stops_no_other(sharding, tmp_path):
    """Of two processes one has the row with an image, at every step; all weights train."""
    base, image = write_published(tmp_path / "model"), tmp_path / "0.png"
    colour_rows(random.Random(0), 1)[0].image.save(image)
    asked = [conversation("<image>What colour is it?", image), conversation("Say a colour.")]
    data = write_rows(tmp_path / "rows.jsonl", *[row | {"solution": ANSWER} for row in asked])
    flags = (*COIN, *sharding, *ALL_WEIGHTS, "--fp16", "false", "--bf16", "false")
    variables = DEEPSPEED_ON_CPU | {"NPROC_PER_NODE": "2"}
    assert_trained(run_grpo(base, data, tmp_path / "out", *flags, **variables), 3)
