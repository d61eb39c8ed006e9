"""Full-size GRPO steps through ms-swift on a real GPU, against the plan.

    python benchmarks/gpu_memory.py --models Qwen2-VL-2B Qwen2.5-VL-3B
    python benchmarks/gpu_memory.py --tiny --grid small        the same on a CPU with a tiny model

Weights are random: memory does not ask what they say, so nothing is downloaded. Every run is the
real `swift rlhf` with the transformers rollout and VLRFT_TRACK_MEMORY=1, a few steps long; its
peaks per phase stand beside the plan for the same flags. Results go to benchmarks/results/ as JSON
with the machine's name. Disk: the weights of each model once.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "benchmarks" / "results"

GRIDS = {
    # batch, completion, MAX_PIXELS, checkpointing, tuning
    "small": [(2, 8, 50176, True, "full"), (2, 8, 50176, False, "lora")],
    "full": [
        *itertools.product((2, 4), (256, 1024), (200704, 602112), (True,), ("lora", "full")),
        *itertools.product((2,), (256,), (200704, 602112), (False,), ("lora", "full")),
    ],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["Qwen2-VL-2B", "Qwen2.5-VL-3B"])
    parser.add_argument("--tiny", action="store_true", help="a tiny model, on the CPU")
    parser.add_argument("--grid", choices=GRIDS, default="full")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None, help="default: benchmarks/results/")
    parser.add_argument("--work", type=Path, default=None, help="where checkpoints and runs go")
    arguments = parser.parse_args()
    import torch

    if not arguments.tiny and not torch.cuda.is_available():
        print("no CUDA GPU here; --tiny runs the same at a tiny scale on the CPU", file=sys.stderr)
        return 2
    work = arguments.work or Path(tempfile.mkdtemp(prefix="vlrft-memory-"))
    rows = []
    for name in ["tiny"] if arguments.tiny else arguments.models:
        checkpoint = make_checkpoint(name, work)
        for point in GRIDS[arguments.grid]:
            row = measure(name, checkpoint, point, work, arguments)
            rows.append(row)
            print(json.dumps(row), flush=True)
    report = {
        "machine": machine(),
        "date": datetime.date.today().isoformat(),
        "versions": versions(),
        "rows": rows,
        "error": errors(rows),
    }
    out = arguments.out or RESULTS / f"gpu_memory_{machine()['slug']}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = out.with_suffix(".new")
    beside.write_text(json.dumps(report, indent=1) + "\n")
    os.replace(beside, out)
    print(f"written: {out}; error: {report['error']}")
    return 0


def make_checkpoint(name: str, work: Path) -> Path:
    """A folder that ms-swift loads: a tiny checkpoint's tokenizer and processor, and weights of
    the full shape drawn at random.
    """
    from swift_vlrft.memory.models import read_model

    folder = work / name
    if (folder / "config.json").is_file():
        return folder
    family = "qwen2_5_vl" if name == "tiny" else read_model(name).type
    subprocess.run(["vlrft", "tiny", family, str(folder)], check=True)
    if name == "tiny":
        return folder
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    config = json.loads((folder / "config.json").read_text())
    full = read_model(name).config
    for part in ("text_config", "vision_config"):
        config[part] = {**config.get(part, {}), **full[part]}
        config[part].pop("layer_types", None)
    config["tie_word_embeddings"] = full["tie_word_embeddings"]
    head = full["text_config"]["hidden_size"] // full["text_config"]["num_attention_heads"]
    half = head // 2
    section = [half // 4, (half - half // 4) // 2, half - half // 4 - (half - half // 4) // 2]
    config["text_config"].pop("rope_scaling", None)
    config["text_config"]["rope_parameters"] = {
        "rope_type": "default",
        "rope_theta": 1e6,
        "mrope_section": section,
    }
    for old in folder.glob("*.safetensors*"):
        old.unlink()
    (folder / "config.json").write_text(json.dumps(config))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        made = AutoConfig.from_pretrained(folder)
        model = AutoModelForImageTextToText.from_config(made, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    return folder


def dataset(work: Path, pixels: int) -> Path:
    """Rows whose images are as large as the limit, in ms-swift's own form."""
    from PIL import Image

    folder = work / f"data-{pixels}"
    folder.mkdir(parents=True, exist_ok=True)
    side = int(pixels**0.5) // 28 * 28
    rows = []
    for number in range(32):
        file = folder / f"{number}.png"
        Image.effect_noise((side, side), 80).convert("RGB").save(file)
        rows.append(
            {
                "messages": [{"role": "user", "content": "<image>What is this? " + "word " * 100}],
                "images": [str(file)],
                "solution": "<answer>cat</answer>",
            }
        )
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def measure(
    name: str, checkpoint: Path, point: tuple[Any, ...], work: Path, arguments: Any
) -> dict[str, Any]:
    from measured_memory import compared, read_run

    from swift_vlrft.memory.estimate import estimate
    from swift_vlrft.memory.from_recipe import settings_of
    from swift_vlrft.memory.images import longest_row
    from swift_vlrft.memory.models import read_model
    from swift_vlrft.memory.row_tokens import rule_of
    from swift_vlrft.memory.settings import Gpus
    from swift_vlrft.recipe.reader import read_recipe
    from swift_vlrft.recipe.run import resolve

    batch, completion, pixels, checkpoints, tuning = point
    label = f"{name}-b{batch}-c{completion}-p{pixels}-{'ckpt' if checkpoints else 'all'}-{tuning}"
    run = work / "runs" / label
    data = dataset(work, pixels)
    flag = "true" if checkpoints else "false"
    script = work / f"{label}.sh"
    script.write_text(
        "#!/usr/bin/env bash\n"
        f"export MAX_PIXELS={pixels}\n"
        "swift rlhf --rlhf_type grpo "
        f"--model {checkpoint} --dataset {data} --output_dir {run} --add_version false "
        '--external_plugins "$(vlrft plugin)" --reward_funcs vlrft_classification '
        f"--tuner_type {tuning} --torch_dtype bfloat16 --use_vllm false "
        f"--per_device_train_batch_size {batch} --gradient_accumulation_steps 2 "
        f"--num_generations {batch} --max_completion_length {completion} --max_length 4096 "
        f"--gradient_checkpointing {flag} --vit_gradient_checkpointing {flag} "
        f"--beta 0.04 --max_steps {arguments.steps} --logging_steps 1 --save_strategy no "
        "--report_to none --learning_rate 1e-6 --dataset_num_proc 1 "
        + ("--use_cpu true " if arguments.tiny else "")
        + '"$@"\n'
    )
    environment = os.environ | {"VLRFT_TRACK_MEMORY": "1"}
    if arguments.tiny:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    done = subprocess.run(
        ["bash", str(script)], env=environment, capture_output=True, text=True, timeout=3600
    )
    row: dict[str, Any] = {"run": label, "rc": done.returncode}
    model = read_model(str(checkpoint))
    recipe = resolve(read_recipe(script))
    longest = longest_row(data, rule_of(recipe, model))
    plan = estimate(settings_of(recipe, Gpus(1, 141.0, "this"), longest=longest))
    row["planned_gib"] = {phase.name: round(phase.total / 2**30, 3) for phase in plan.phases}
    if done.returncode:
        row["error"] = done.stdout[-500:] + done.stderr[-500:]
        return row
    try:
        measured = read_run(run)
        row["measured"] = measured
        row["compared"] = compared(plan, measured)
    except ValueError as error:  # the CPU's resident memory cannot be compared
        row["measured"] = str(error)
    return row


def errors(rows: list[dict[str, Any]]) -> dict[str, float] | None:
    """Of the fullest phase of each run: planned over allocated, median and worst."""
    found = []
    for row in rows:
        if row.get("compared"):
            top = max(row["compared"], key=lambda phase: phase["allocated"])
            planned = max(phase["planned"] for phase in row["compared"])
            found.append(planned / top["allocated"] - 1)
    if not found:
        return None
    sizes = [abs(error) for error in found]
    return {"median": statistics.median(sizes), "worst": max(sizes), "runs": len(sizes)}


def machine() -> dict[str, str]:
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    slug = "".join(c if c.isalnum() else "_" for c in gpu.lower())
    return {"gpu": gpu, "slug": slug, "system": platform.system()}


def versions() -> dict[str, str]:
    from importlib import metadata

    return {name: metadata.version(name) for name in ("torch", "transformers", "ms-swift")}


if __name__ == "__main__":
    raise SystemExit(main())
