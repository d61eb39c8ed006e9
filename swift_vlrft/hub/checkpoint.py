"""A checkpoint of `swift rlhf` on disk: which of its files belong on a hub, and what trained it.

    opened = open_checkpoint(Path("runs/demo"))
    opened.folder                    runs/demo/grpo/checkpoint-100
    opened.files["config.json"]      what goes up: where it lies, or its content without our paths
    opened.left_out                  {"training_args.bin": "pickle", ...}

Of args.json only what `swift infer` needs goes along.

Nothing here unpickles a file or reads a tensor.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.source import DataError
from swift_vlrft.files.checkpoints import STATE, tensor_file_problem
from swift_vlrft.files.jsonl import LineError, read_json
from swift_vlrft.hub.cleaning import cached_id, clean, is_hub_id, without_secrets

CLEANED = (
    *("config.json", "generation_config.json", "adapter_config.json", "tokenizer_config.json"),
    *("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"),
    *("additional_config.json",),
)
"""Settings that may hold paths of this machine: written again without them."""
AS_THEY_ARE = (
    *(
        "*.safetensors",
        "*.safetensors.index.json",
        "tokenizer.json",
        "tokenizer.model",
        "*.tiktoken",
    ),
    *("vocab.json", "vocab.txt", "merges.txt", "added_tokens.json", "special_tokens_map.json"),
    *("spiece.model", "sentencepiece.bpe.model", "chat_template.jinja", "chat_template.json"),
    *("LICENSE*", "NOTICE*"),
)
OF_ARGS = (
    *("swift_version", "task_type", "tuner_type", "model_type", "template", "system"),
    *("norm_bbox", "response_prefix", "agent_template"),
)
"""What `swift infer` reads from the args.json of a model that was downloaded."""
WEIGHTS = ("model*.safetensors", "adapter_model*.safetensors")
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle", "*.npy", "*.npz")
ADAPTER = "adapter_config.json"
_IMPORTED = re.compile(r"^\s*(?:from|import)\s+\.(\w+)", re.MULTILINE)
_PLAIN = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


class CheckpointError(DataError):
    """What is wrong with a checkpoint, where, and what to do."""


@dataclass
class Checkpoint:
    """``args``: ms-swift's args.json. ``base``: the hub id of the model it was trained from."""

    folder: Path
    args: dict[str, Any]
    base: str | None = None
    files: dict[str, Path | bytes] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def run(self) -> Path:
        """The --output_dir, which holds the logs."""
        return self.folder.parent if self.step is not None else self.folder

    @property
    def step(self) -> int | None:
        found = re.fullmatch(r"checkpoint-(\d+)(-merged)?", self.folder.name)
        return int(found[1]) if found else None

    @property
    def is_adapter(self) -> bool:
        return ADAPTER in self.files


def open_checkpoint(path: Path, base_model: str | None = None) -> Checkpoint:
    """``path``: a checkpoint, the run that holds it (its last one), or the folder of a demo.
    ``base_model``: hub id of the model that it was trained from, where args.json names a folder.

    CheckpointError where there is none, or it cannot be published as it is.
    """
    folder = find_checkpoint(path)
    args = _args(folder)
    opened = Checkpoint(folder, args)
    if base_model is not None and not (is_hub_id(base_model) and _PLAIN.fullmatch(base_model)):
        raise CheckpointError(
            f"--base-model {base_model}: expected the id of a model on a hub, ORG/NAME, such as "
            "Qwen/Qwen3-VL-2B-Instruct"
        )
    opened.base = base_model or base_of(folder, args)
    _sort_files(opened)
    _check_weights(opened)
    if opened.is_adapter and opened.base is None:
        named = args.get("model") or _config(folder / ADAPTER).get("base_model_name_or_path")
        raise CheckpointError(
            f"{folder} is an adapter of {named}, which is a folder of this machine; nobody else "
            "could load it. Name the model on a hub with --base-model ORG/NAME"
        )
    for name in CLEANED:
        if isinstance(file := opened.files.get(name), Path):
            settings = clean(_config(file))
            if name == ADAPTER:
                settings["base_model_name_or_path"] = opened.base
            opened.files[name] = _json(settings)
    kept = {name: value for name in OF_ARGS if (value := args.get(name)) not in (None, [])}
    kept |= {"model": opened.base} if opened.is_adapter else {}
    opened.files["args.json"] = _json(without_secrets(kept))
    opened.left_out.pop("args.json", None)
    return opened


def _json(settings: dict[str, Any]) -> bytes:
    return (json.dumps(settings, indent=2) + "\n").encode()


def find_checkpoint(path: Path) -> Path:
    """The folder itself if it holds a model; else the last checkpoint in it."""
    if not path.exists():
        raise CheckpointError(f"{path} does not exist (from {Path.cwd()})")
    if not path.is_dir():
        raise CheckpointError(f"{path} is a file; give the folder of a checkpoint")
    path = path.resolve()
    if path.name.startswith("tmp-checkpoint"):
        raise CheckpointError(
            f"{path} is still being written; wait until it is called checkpoint-N"
        )
    if any((path / name).is_file() for name in ("config.json", ADAPTER)):
        return path
    for pattern in ("checkpoint-*", "grpo/checkpoint-*", "v*-*/checkpoint-*"):
        found = [one for one in path.glob(pattern) if one.name[11:].isdecimal() and one.is_dir()]
        if found:
            newest = max(found, key=lambda one: _version(one.parent)).parent
            return max(
                (one for one in found if one.parent == newest), key=lambda one: int(one.name[11:])
            )
    raise CheckpointError(
        f"{path} holds no model: neither config.json nor {ADAPTER}, nor a folder checkpoint-N; "
        "give a checkpoint, or the --output_dir of a `swift rlhf` run"
    )


def _version(run: Path) -> tuple[int, str]:
    """v10-20261122-101500 comes after v9-20261122-093000."""
    found = re.match(r"v(\d+)-", run.name)
    return int(found[1]) if found else -1, run.name


def _args(folder: Path) -> dict[str, Any]:
    """Those of the training: what `swift export` merged may hold its own."""
    found = []
    for file in (folder / "args.json", folder.parent / "args.json"):
        if file.is_file():
            found.append(_config(file))
            if "rlhf_type" in found[-1]:
                return found[-1]
    if found:
        return found[0]
    raise CheckpointError(
        f"{folder} has no args.json, neither has {folder.parent}: `swift rlhf` writes it, and the "
        "card says from it what ran"
    )


def _config(file: Path) -> dict[str, Any]:
    try:
        value = read_json(file)
    except (LineError, OSError) as error:
        raise CheckpointError(f"{error}; is the checkpoint still being written?") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{file} is no JSON object; copy the checkpoint again")
    return value


def base_of(folder: Path, args: dict[str, Any]) -> str | None:
    """The hub id of the model that training started from, where it is named or was downloaded."""
    named = [args.get("model"), args.get("model_dir")]
    if (folder / ADAPTER).is_file():
        named.append(_config(folder / ADAPTER).get("base_model_name_or_path"))
    texts = [name for name in named if isinstance(name, str)]
    if texts and is_hub_id(texts[0]):
        # "runs/start" may be a folder, seen from elsewhere: then it was loaded from .../runs/start.
        loaded = args.get("model_dir")
        loaded = Path(loaded) if isinstance(loaded, str) else Path("models", texts[0])
        if loaded.parts[-2:] != Path(texts[0]).parts or loaded.parent.parent.name == "models":
            return texts[0]
    return next(filter(None, map(cached_id, texts)), None)


def _sort_files(opened: Checkpoint) -> None:
    """What belongs, and why the rest does not."""
    folder = opened.folder
    settings = [_config(folder / name) for name in CLEANED if (folder / name).is_file()]
    belonging = (*CLEANED, *AS_THEY_ARE, *_own_code(folder, settings))
    for file in sorted(folder.iterdir()):
        name = file.name
        if file.is_dir():
            opened.left_out[f"{name}/"] = "a folder: states of the optimizer or of another run"
        elif any(fnmatch(name, pattern) for pattern in belonging):
            if not file.exists():
                raise CheckpointError(f"{file} is a link to {file.readlink()}, which is not there")
            opened.files[name] = file
        elif any(fnmatch(name, pattern) for pattern in PICKLES):
            opened.left_out[name] = "pickle or state of the training"
        else:
            opened.left_out[name] = "not needed to load the model"
    for name in ("config.json", "tokenizer_config.json"):
        if name not in opened.files and not opened.is_adapter:
            raise CheckpointError(f"{folder} has no {name}, and no one could load it; is it whole?")


def _own_code(folder: Path, settings: list[dict[str, Any]]) -> list[str]:
    """The files of the model's own code: those that auto_map names, and what they import. Other
    scripts in the folder, a reward with a key in it or DeepSpeed's, are none of it.
    """
    maps = [one["auto_map"] for one in settings if isinstance(one.get("auto_map"), dict)]
    values = [v for one in maps for v in one.values()]
    names = [v for of in values for v in (of if isinstance(of, list) else [of])]
    wanted = [n.split(".")[0] for n in names if isinstance(n, str) and "--" not in n]
    found: list[str] = []
    while wanted:
        name = f"{wanted.pop()}.py"
        if name not in found and (folder / name).is_file():
            found.append(name)
            wanted += _IMPORTED.findall((folder / name).read_text("utf-8", errors="replace"))
    return found


def _check_weights(opened: Checkpoint) -> None:
    """Whether all weights are there and complete, by their headers alone."""
    folder = opened.folder
    there = [n for n in opened.files if any(fnmatch(n, pattern) for pattern in WEIGHTS)]
    if not there:
        pickled = [n for n in opened.left_out if n.endswith((".bin", ".pt", ".pth"))]
        pickled = [n for n in pickled if n.startswith(("pytorch_model", "adapter_model", "model"))]
        if pickled:
            raise CheckpointError(
                f"the weights in {folder} are pickles ({', '.join(pickled)}), which can run code "
                "where they are loaded, and are not published; write safetensors: "
                "--safe_serialization true, or `swift export`"
            )
        raise CheckpointError(
            f"{folder} holds no weights (*.safetensors); is it still being written?"
        )
    for index in [n for n in opened.files if n.endswith(".safetensors.index.json")]:
        shards = _config(folder / index).get("weight_map")
        shards = sorted({str(v) for v in shards.values()}) if isinstance(shards, dict) else []
        if missing := [name for name in shards if name not in opened.files]:
            raise CheckpointError(
                f"{folder} lacks {', '.join(missing[:5])}, of {len(shards)} shards that {index} "
                "names; is it still being written?"
            )
    for name in there:
        if problem := tensor_file_problem(folder / name):
            raise CheckpointError(
                f"{folder / name} {problem}: still being written, or cut off by a full disk or a "
                "killed run"
            )
    states = ("training_args.bin", "optimizer.pt", "scheduler.pt")
    written_last = folder / STATE
    unfinished = opened.step is not None and not written_last.exists()
    if unfinished and any((folder / name).exists() for name in states):
        raise CheckpointError(
            f"{folder} has no {STATE}, which is written last: it is still being "
            "written, or the run was killed meanwhile; take an earlier checkpoint"
        )
