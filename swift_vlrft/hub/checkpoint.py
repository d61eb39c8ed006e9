"""Read a checkpoint of `swift rlhf`: which of its files belong on a hub, and what trained it.

    opened = open_checkpoint(Path("runs/demo"))
    opened.folder                    runs/demo/grpo/checkpoint-100
    opened.files["config.json"]      what goes up: where it lies, or its content
    opened.left_out                  ["optimizer.pt", "training_args.bin", ...]

Files go up as they are, but two: of args.json what `swift infer` needs, and adapter_config.json
with the hub id of its base model, where ms-swift writes the folder that it was loaded from.
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
from swift_vlrft.files.checkpoints import STATE, checkpoints, weights_problem
from swift_vlrft.files.jsonl import LineError, read_json

ADAPTER = "adapter_config.json"
BELONGING = (
    *("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json"),
    *(ADAPTER, "additional_config.json", "*processor_config.json", "tokenizer_config.json"),
    *("tokenizer.json", "tokenizer.model", "*.tiktoken", "vocab.json", "vocab.txt", "merges.txt"),
    *("added_tokens.json", "special_tokens_map.json", "spiece.model", "sentencepiece.bpe.model"),
    *("chat_template.*", "LICENSE*", "NOTICE*"),
)
OF_ARGS = (
    *("swift_version", "task_type", "tuner_type", "model_type", "template", "system"),
    *("norm_bbox", "response_prefix", "agent_template"),
)
"""What `swift infer` reads from the args.json of a model that was downloaded."""


@dataclass
class Checkpoint:
    """Holds ms-swift's args.json (``args``), and the hub id of the base model (``base``)."""

    folder: Path
    args: dict[str, Any]
    base: str | None = None
    files: dict[str, Path | bytes] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @property
    def step(self) -> int | None:
        """Return N of checkpoint-N, also of checkpoint-N-merged."""
        match = re.fullmatch(r"checkpoint-(\d+)(-merged)?", self.folder.name)
        return int(match[1]) if match else None

    @property
    def is_adapter(self) -> bool:
        return ADAPTER in self.files


def open_checkpoint(path: Path, base_model: str | None = None) -> Checkpoint:
    """Open a checkpoint, a run (its last checkpoint), or the folder of a demo. ``base_model``: hub
    id of the model that it was trained from, where args.json names a folder.

    DataError where there is none, or its weights are not whole.
    """
    if base_model is not None and not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", base_model, re.ASCII):
        raise DataError(
            f"--base-model {base_model}: expected the id of a model on a hub, ORG/NAME, such as "
            "Qwen/Qwen3-VL-2B-Instruct"
        )
    folder = find_checkpoint(path)
    if problem := weights_problem(folder):
        raise DataError(f"{folder}: {problem}; is it still being written, or was it cut off?")
    saving = folder.name.startswith("checkpoint-") and (folder / "training_args.bin").exists()
    if saving and not (folder / STATE).exists():
        raise DataError(
            f"{folder} has no {STATE}, which is written last: it is still being written, or the "
            "run was killed meanwhile; take an earlier checkpoint"
        )
    opened = Checkpoint(folder, _args(folder))
    belonging = [*BELONGING, *_own_code(folder)]
    if not any(folder.glob("*.safetensors")):
        belonging += ["pytorch_model*.bin", "adapter_model*.bin"]  # which are refused by name
    for file in sorted(folder.iterdir()):
        if file.is_file() and any(fnmatch(file.name, pattern) for pattern in belonging):
            opened.files[file.name] = file
        elif file.name != "args.json":
            opened.left_out.append(file.name)
    if not opened.is_adapter and "tokenizer_config.json" not in opened.files:
        raise DataError(f"{folder} has no tokenizer_config.json, so nobody could load it")
    adapter = _settings(folder / ADAPTER) if opened.is_adapter else {}
    opened.base = base_model or _base_of(opened.args, adapter.get("base_model_name_or_path"))
    public = {name: value for name in OF_ARGS if (value := opened.args.get(name)) not in (None, [])}
    if opened.is_adapter:
        if opened.base is None:
            raise DataError(
                f"{folder} is an adapter of {opened.args.get('model')}, a folder of this machine; "
                "nobody else could load it. Name the model on a hub with --base-model ORG/NAME"
            )
        public["model"] = adapter["base_model_name_or_path"] = opened.base
        opened.files[ADAPTER] = _json(adapter)
    opened.files["args.json"] = _json(public)
    return opened


def find_checkpoint(path: Path) -> Path:
    """Return the folder itself if it holds a model; else the last checkpoint in it."""
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise DataError(f"{path} {what} (from {Path.cwd()}); give a checkpoint's folder")
    path = path.resolve()
    if path.name.startswith("tmp-checkpoint"):
        raise DataError(f"{path} is still being written; wait until it is checkpoint-N")
    if any((path / name).is_file() for name in ("config.json", ADAPTER)):
        return path
    # v10-20261122-101500 comes after v9-20261122-093000
    versions = sorted(path.glob("v*-*"), key=lambda run: (len(run.name.split("-")[0]), run.name))
    for run in (path, path / "grpo", *reversed(versions)):
        if run.is_dir() and (saved := checkpoints(run)):
            return saved[-1]
    raise DataError(
        f"{path} holds no model: neither config.json nor {ADAPTER}, nor a folder checkpoint-N; "
        "give a checkpoint, or the --output_dir of a `swift rlhf` run"
    )


def _json(settings: dict[str, Any]) -> bytes:
    return (json.dumps(settings, indent=2) + "\n").encode()


def _settings(file: Path) -> dict[str, Any]:
    try:
        value = read_json(file)
    except (LineError, OSError) as error:
        raise DataError(f"{error}; is the checkpoint still being written?") from None
    if not isinstance(value, dict):
        raise DataError(f"{file} is no JSON object; copy the checkpoint again")
    return value


def _args(folder: Path) -> dict[str, Any]:
    """Those of the training: what `swift export` merged may hold its own."""
    files = [folder / "args.json", folder.parent / "args.json"]
    settings = [_settings(file) for file in files if file.is_file()]
    if not settings:
        raise DataError(
            f"neither {folder} nor {folder.parent} has args.json, which `swift rlhf` writes and "
            "from which the card says what ran"
        )
    return next((args for args in settings if "rlhf_type" in args), settings[0])


def _base_of(args: dict[str, Any], of_adapter: object) -> str | None:
    """The hub id of the model that training started from, where it is named or was downloaded."""
    model, folder = args.get("model"), args.get("model_dir")
    for text in (folder, model, of_adapter):
        if isinstance(text, str) and (hub_id := _cached_id(text)):
            return hub_id
    # "runs/start" may be a folder, seen from elsewhere: then it was loaded from .../runs/start.
    downloaded = not isinstance(folder, str) or Path(folder).parent.parent.name == "models"
    return model if isinstance(model, str) and _is_hub_id(model) and downloaded else None


def _own_code(folder: Path) -> list[str]:
    """The files of the model's own code: those that auto_map names, and what they import. Other
    scripts in the folder, a reward or DeepSpeed's, are none of it.
    """
    maps = [_settings(file).get("auto_map") for file in sorted(folder.glob("*config.json"))]
    values = [value for of in maps if isinstance(of, dict) for value in of.values()]
    names = [name for of in values for name in (of if isinstance(of, list) else [of])]
    modules = {name.split(".")[0] for name in names if isinstance(name, str) and "--" not in name}
    files = [folder / f"{name}.py" for name in sorted(modules) if (folder / f"{name}.py").is_file()]
    if files:
        from transformers.dynamic_module_utils import get_relative_import_files

        try:
            files += [Path(path) for file in files for path in get_relative_import_files(file)]
        except (OSError, UnicodeError) as error:
            raise DataError(f"{folder}: the model's own code is not whole: {error}") from None
    return [file.name for file in files]


_HUB_ID = re.compile(r"(?:(?:hf|ms)::)?\w[\w.-]*/\w[\w.-]*(?::[\w/:.-]+)?(?:#\d+)?", re.ASCII)
_HF_CACHE = re.compile(r"models--([\w.-]+?)--([\w.-]+)(?:/|$)", re.ASCII)
_MS_CACHE = re.compile(r"modelscope.*?/models/([\w.-]+)/([\w.-]+)(?:/?$|/snapshots/)")


def name_of(path: str) -> str:
    """Return a hub id as it is, the last name of a path, or the name of a checkpoint's run. A
    format or a count behind it (":pixels#500") stays.
    """
    if _is_hub_id(path):
        return path
    parts = [part for part in re.split(r"[/\\]", path) if part not in ("", ".", "..", "~")]
    return "/".join(parts[-2:] if parts and parts[-1].startswith("checkpoint-") else parts[-1:])


def _is_hub_id(text: str) -> bool:
    """Return whether this is ORG/NAME and no folder here; "hf::" or "ms::" may stand before it."""
    if not _HUB_ID.fullmatch(text):
        return False
    return text.startswith(("hf::", "ms::")) or not Path(re.split("[:#]", text)[0]).exists()


def _cached_id(path: str) -> str | None:
    """The id under which a hub's library keeps a model at ``path``, in its cache."""
    if match := _HF_CACHE.search(path):
        return f"{match[1]}/{match[2]}"
    match = _MS_CACHE.search(path)
    return f"{match[1]}/{match[2]}".replace("___", ".") if match else None
