"""The folder of a finished `swift rlhf` run, as ms-swift 4.6.0 leaves it, without running it: what
`vlrft demo` leaves, with a checkpoint of a few numbers.
"""

import json
import struct
from pathlib import Path

from swift_vlrft.evaluation.predictions import read_predictions
from swift_vlrft.evaluation.queries import Settings
from swift_vlrft.evaluation.run import Manifest, stamps, versions
from swift_vlrft.evaluation.summary import summarise
from swift_vlrft.files.records import as_json, write_record

SECRETS = {
    "hub_token": "hf_abcdefghijklmnopqrstuvwxyz0123",
    "swanlab_token": "swan-lab-token-of-me",
    "swanlab_secret": "swan-lab-secret-of-me",
    "swanlab_webhook_url": "https://hooks.example/services/T0/B0/xyz",
    "vllm_engine_kwargs": {"api_key": "key-of-mine-123", "seed": 1},
}
ARGS = {
    "rlhf_type": "grpo",
    "dataset": ["/data/of/me/shapes:pixels#500", "hf::laolao77/ViRFT_COCO_base65"],
    "reward_funcs": ["vlrft_classification", "vlrft_format"],
    "reward_weights": [1.0, 0.5],
    "external_plugins": ["/home/me/plugins/vlrft.py"],
    "model_type": "internvl",
    "template": "internvl_hf",
    "tuner_type": "full",
    "learning_rate": 1e-6,
    "num_generations": 8,
    "system": "Say it.\n<img src=x onerror=alert(1)> | `rm` in /home/me/place",
    "output_dir": "/home/me/runs/grpo",
    "logging_dir": "/home/me/runs/grpo/runs",
    "swift_version": "4.6.0",
    **SECRETS,
}


def tensors(values: int = 4) -> bytes:
    """A safetensors file of one tensor."""
    shape = {"dtype": "F32", "shape": [values], "data_offsets": [0, 4 * values]}
    header = json.dumps({"w": shape}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4 * values)


def write_checkpoint(folder: Path, *, adapter: str | None = None, **args) -> Path:
    """``adapter``: the base model that adapter_config.json names."""
    folder.mkdir(parents=True)
    for name in ("training_args.bin", "optimizer.pt", "rng_state.pth", "scheduler.pt"):
        (folder / name).write_bytes(b"pickle")
    (folder / "global_step4").mkdir()
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": [], "x": "/home/me"}))
    (folder / "args.json").write_text(json.dumps(ARGS | args))
    if adapter is not None:
        config = {"base_model_name_or_path": adapter, "peft_version": "0.20.0", "r": 8}
        (folder / "adapter_config.json").write_text(json.dumps(config))
        (folder / "adapter_model.safetensors").write_bytes(tensors())
        (folder / "README.md").write_text(f"---\nbase_model: {adapter}\n---\n")
        return folder
    config = {"transformers_version": "5.19.0"}
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "internvl"}))
    (folder / "generation_config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>"}))
    (folder / "preprocessor_config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(tensors())
    return folder


def write_evaluation(folder: Path, model: Path | str, dataset: Path, right: int, **more) -> Path:
    """Of ten rows, the first ``right`` answered right."""
    folder.mkdir(parents=True)
    settings = Settings(str(model), dataset, "classification", **more)
    manifest = Manifest(settings, settings.identity(), stamps(settings), versions())
    write_record(folder / "run.json", manifest)
    rows = [
        {
            "id": str(n),
            "completion": f"<think>t</think><answer>{'red' if n < right else 'blue'}</answer>",
            "solution": "<answer>red</answer>",
            "image_id": str(n),
            "prompt": "What colour?",
            "task": settings.task,
            "row": n,
        }
        for n in range(10)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "predictions.jsonl").write_text(text)
    summary = summarise(read_predictions(folder), bootstrap=100, run=as_json(settings))
    write_record(folder / "summary.json", summary)
    return folder


def write_run(folder: Path, *, adapter: str | None = None, steps: int = 20, **args) -> Path:
    """runs/demo: start, grpo/checkpoint-20, eval/before, eval/after."""
    start = folder / "start"
    start.mkdir(parents=True)
    (start / "config.json").write_text("{}")
    args = {"model": str(start), "model_dir": str(start)} | args
    checkpoint = folder / "grpo" / f"checkpoint-{steps}"
    write_checkpoint(checkpoint, adapter=adapter, **args)
    (folder / "grpo" / "args.json").write_text(json.dumps(ARGS | args))
    (folder / "grpo" / "completions.jsonl").write_text("")
    lines = [
        {
            "rewards/vlrft_classification/mean": n / steps,
            "rewards/vlrft_format/mean": 1.0,
            "global_step/max_steps": f"{n + 1}/{steps}",
        }
        for n in range(steps)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "grpo" / "logging.jsonl").write_text(text)
    data = folder / "data" / "held_out"
    data.mkdir(parents=True)
    write_evaluation(folder / "eval" / "before", start, data, 3)
    write_evaluation(folder / "eval" / "after", checkpoint, data, 9)
    return folder
