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


def write_json(path: Path, content: dict) -> None:
    path.write_text(json.dumps(content))


def write_checkpoint(folder: Path, *, adapter: str | None = None, **args) -> Path:
    """``adapter``: the base model that adapter_config.json names."""
    (folder / "global_step4").mkdir(parents=True)
    for name in ("training_args.bin", "optimizer.pt", "rng_state.pth", "scheduler.pt"):
        (folder / name).write_bytes(b"pickle")
    write_json(folder / "trainer_state.json", {"log_history": [], "x": "/home/me"})
    write_json(folder / "args.json", ARGS | args)
    if adapter is not None:
        config = {"base_model_name_or_path": adapter, "peft_version": "0.20.0", "r": 8}
        write_json(folder / "adapter_config.json", config)
        (folder / "adapter_model.safetensors").write_bytes(tensors())
        (folder / "README.md").write_text(f"---\nbase_model: {adapter}\n---\n")
        return folder
    write_json(folder / "config.json", {"transformers_version": "5.19.0", "model_type": "internvl"})
    write_json(folder / "tokenizer_config.json", {"bos_token": "<s>"})
    for name in ("generation_config", "tokenizer", "preprocessor_config"):
        write_json(folder / f"{name}.json", {})
    (folder / "model.safetensors").write_bytes(tensors())
    return folder


def write_evaluation(folder: Path, model: Path | str, dataset: Path, right: int, **more) -> Path:
    """Of ten rows, the first ``right`` answered right."""
    folder.mkdir(parents=True)
    settings = Settings(str(model), dataset, "classification", **more)
    manifest = Manifest(settings, stamps(settings), versions())
    write_record(folder / "run.json", manifest)
    shared = {"prompt": "What colour?", "task": settings.task}
    shared |= {"solution": "<answer>red</answer>"}
    with (folder / "predictions.jsonl").open("w") as file:
        for n in range(10):
            answer = f"<think>t</think><answer>{'red' if n < right else 'blue'}</answer>"
            row = shared | {"id": str(n), "image_id": str(n), "row": n, "completion": answer}
            file.write(json.dumps(row) + "\n")
    summary = summarise(read_predictions(folder), bootstrap=100, run=as_json(settings))
    write_record(folder / "summary.json", summary)
    return folder


def write_run(folder: Path, *, adapter: str | None = None, steps: int = 20, **args) -> Path:
    """runs/demo: start, grpo/checkpoint-20, eval/before, eval/after."""
    start, data = folder / "start", folder / "data" / "held_out"
    for empty in (start, data):
        empty.mkdir(parents=True)
    write_json(start / "config.json", {})
    args = {"model": str(start), "model_dir": str(start)} | args
    checkpoint = write_checkpoint(folder / "grpo" / f"checkpoint-{steps}", adapter=adapter, **args)
    write_json(folder / "grpo" / "args.json", ARGS | args)
    (folder / "grpo" / "completions.jsonl").write_text("")
    with (folder / "grpo" / "logging.jsonl").open("w") as log:
        for n in range(steps):
            means = {"vlrft_classification": n / steps, "vlrft_format": 1.0}
            line = {f"rewards/{name}/mean": mean for name, mean in means.items()}
            log.write(json.dumps(line | {"global_step/max_steps": f"{n + 1}/{steps}"}) + "\n")
    write_evaluation(folder / "eval" / "before", start, data, 3)
    write_evaluation(folder / "eval" / "after", checkpoint, data, 9)
    return folder
