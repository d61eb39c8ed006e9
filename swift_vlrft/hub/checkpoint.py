"""Read a checkpoint of `swift rlhf`: which of its files belong on a hub, and what trained it.

Files go up as they are, but two: of args.json what `swift infer` needs, and adapter_config.json
with the hub id of its base model, where ms-swift writes the folder that it was loaded from.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.source import DataError
from swift_vlrft.files.checkpoints import checkpoints, weights_problem
from swift_vlrft.files.jsonl import read_json

ADAPTER = "adapter_config.json"
BELONGING = (
    *("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin", "adapter_model*.bin"),
    *("*config.json", "*token*.json", "*.tiktoken", "*.model", "vocab.*", "merges.txt"),
    *("chat_template.*", "*.py", "LICENSE*", "NOTICE*"),
)
"""Names of a model's files; weights in a .bin are among them to be refused by name."""
INFER_ARGUMENTS = (
    *("swift_version", "task_type", "tuner_type", "model_type", "template", "system"),
    *("norm_bbox", "response_prefix", "agent_template"),
)
"""What `swift infer` reads from the args.json of a model that was downloaded."""


@dataclass
class Checkpoint:
    """Holds ms-swift's args.json (``args``), and the hub id of the base model (``base``)."""

    folder: Path
    args: dict[str, Any]
    base: str | None
    files: dict[str, Path | bytes] = field(default_factory=dict)

    @property
    def is_adapter(self) -> bool:
        return ADAPTER in self.files


def open_checkpoint(path: Path, base_model: str | None = None) -> Checkpoint:
    """Open a checkpoint, or the last one of the run in ``path``; ``base_model`` is a hub id."""
    if base_model is not None and not is_hub_id(base_model):
        raise DataError(f"--base-model {base_model}: expected the id of a model on a hub, ORG/NAME")
    folder = path.resolve()
    if not any((folder / name).is_file() for name in ("config.json", ADAPTER)):
        if not (folder.is_dir() and (saved := checkpoints(folder))):
            raise DataError(f"{path} holds neither config.json nor {ADAPTER}, nor a checkpoint-N")
        folder = saved[-1]
    if problem := weights_problem(folder):
        raise DataError(f"{folder}: {problem}; is it still being written, or was it cut off?")
    args = read_json(folder / "args.json")
    model = str(args.get("model"))
    # A folder may look like an id: what was downloaded lies in a hub's cache, below models.
    named = is_hub_id(model) and "/models" in str(args.get("model_dir") or "/models")
    opened = Checkpoint(folder, args, base_model or (model if named else None))
    for file in sorted(folder.iterdir()):
        if file.is_file() and any(fnmatch(file.name, pattern) for pattern in BELONGING):
            opened.files[file.name] = file
    public = {name: args[name] for name in INFER_ARGUMENTS if args.get(name)}
    if opened.is_adapter:
        if opened.base is None:
            raise DataError(
                f"{folder} is an adapter of {model}, a folder of this machine, which nobody else "
                "could load; name the model on a hub with --base-model ORG/NAME"
            )
        public["model"] = opened.base
        adapter = read_json(folder / ADAPTER) | {"base_model_name_or_path": opened.base}
        opened.files[ADAPTER] = json.dumps(adapter, indent=2).encode()
    elif "tokenizer_config.json" not in opened.files:
        raise DataError(f"{folder} has no tokenizer_config.json, so nobody could load it")
    opened.files["args.json"] = json.dumps(public, indent=2).encode()
    return opened


def is_hub_id(text: str) -> bool:
    """Tell whether this is ORG/NAME and no folder here."""
    return bool(re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", text, re.ASCII)) and not Path(text).exists()


def name_of(path: str) -> str:
    """Return a hub id as it is, of a path its last name."""
    return path if is_hub_id(re.sub("^(hf|ms)::|[:#].*", "", path)) else Path(path).name
