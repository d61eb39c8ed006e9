"""Checkpoints of a run are complete or not: a kill or a full disk leaves half a checkpoint.

    good_checkpoints(Path("output/v0-..."))     [.../checkpoint-20, .../checkpoint-40]
    why_not(Path("output/v0-.../checkpoint-60"))
        'trainer_state.json, which is written last, is missing: ...'

transformers writes into the folder of a checkpoint itself, in the order: weights, DeepSpeed's
states or the optimizer's, each rank's random state, trainer_state.json; and takes the folder with
the highest number for the last checkpoint, whatever is in it. Only names and headers are read here:
no weights, and nothing is unpickled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from swift_vlrft.files.jsonl import LineError, read_json

STATE = "trainer_state.json"
_NAME = re.compile(r"checkpoint-(\d+)")
_WEIGHTS = (
    *("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin"),
    *("*/adapter_model.safetensors", "*/adapter_model.bin"),
)
_SHARDED = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


def good_checkpoints(run: Path) -> list[Path]:
    """Return ``run``'s complete folders checkpoint-N, the last step last."""
    return [folder for folder in checkpoints(run) if not why_not(folder)]


def checkpoints(run: Path) -> list[Path]:
    """Return ``run``'s folders checkpoint-N, complete or not, the last step last."""
    folders = [f for f in run.iterdir() if _NAME.fullmatch(f.name) and f.is_dir()]
    return sorted(folders, key=lambda folder: int(folder.name.partition("-")[2]))


def why_not(checkpoint: Path) -> str:
    """Say why a checkpoint is not complete; '' if it is.

    A checkpoint of --save_only_model true is complete without the states of optimizer and random
    numbers; its args.json says ``save_only_model``.
    """
    return next(_problems(checkpoint), "")


def weights_problem(folder: Path) -> str:
    """Say why the weights of a model, adapter or checkpoint are not complete; '' if they are."""
    return next(_weight_problems(folder), "")


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a model: those that its index names, else all."""
    index = folder / _SHARDED[0]
    names = read_json(index)["weight_map"].values() if index.is_file() else ()
    return sorted({folder / name for name in names}) or sorted(folder.glob("*.safetensors"))


def tensor_shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every tensor of a safetensors file, from its header. ValueError if
    the file is not complete.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="np") as tensors:
            names = tensors.keys()
            return {name: tuple(tensors.get_slice(name).get_shape()) for name in names}
    except SafetensorError as error:
        with file.open("rb") as opened:
            if opened.read(8) == b"version ":
                raise ValueError(
                    "is a pointer of Git LFS, not the weights: run git lfs pull"
                ) from None
        raise ValueError(f"is no complete safetensors file ({error})") from None


def _problems(folder: Path) -> Iterator[str]:
    if not folder.is_dir():
        yield "there is no such folder"
        return
    if not (folder / STATE).exists():
        yield f"{STATE}, which is written last, is missing: the run ended while it was saved"
        return
    settings: dict[str, Any] = {}
    yield from _setting_problems(folder, (STATE, "args.json"), settings)
    yield from _weight_problems(folder)
    if settings.get("args.json", {}).get("save_only_model") is not False:
        return
    # Without both, transformers goes on with new ones and says nothing; all else ends the loading.
    of_deepspeed = any(folder.glob("global_step*"))
    for name in ("optimizer", "scheduler"):
        if not (of_deepspeed or any(folder.glob(f"{name}*"))):
            yield f"the states of the {name}, which its run saved, are missing"


def _setting_problems(
    folder: Path, names: Sequence[str], settings: dict[str, Any]
) -> Iterator[str]:
    """Fill ``settings`` with the objects in those of these files that are there."""
    for name in names:
        if (folder / name).exists():
            try:
                settings[name] = read_json(folder / name)
            except LineError:
                yield f"{name} is no complete JSON file"
            else:
                if not isinstance(settings[name], dict):
                    yield f"{name} holds no JSON object"


def _weight_problems(folder: Path) -> Iterator[str]:
    settings: dict[str, Any] = {}
    names = ("config.json", "adapter_config.json", *_SHARDED)
    yield from _setting_problems(folder, names, settings)
    indices = [name for name in _SHARDED if name in settings]
    for index in indices:
        shards = settings[index].get("weight_map")
        shards = sorted({str(v) for v in shards.values()}) if isinstance(shards, dict) else []
        missing = [name for name in shards if not (folder / name).is_file()]
        if missing or not shards:
            yield f"{', '.join(missing[:5]) or 'every shard'}, named in {index}, is missing"
    if any(folder.glob("*model-*-of-*")) and not indices:
        yield "the index of the shards of the weights is missing"
    # ZeRO-3 without stage3_gather_16bit_weights_on_model_save, or FSDP: in shards of their own.
    patterns = (*_WEIGHTS, "*/*model_states.pt", "pytorch_model_fsdp*")
    if not indices and not any(any(folder.glob(pattern)) for pattern in patterns):
        yield "there are no weights"
    needed = "adapter_config.json" if any(folder.glob("adapter_model.*")) else "config.json"
    if needed not in settings and not any(folder.glob("*/adapter_model.*")):  # several adapters
        yield f"{needed} is missing"
    for file in sorted((*folder.glob("*.safetensors"), *folder.glob("*/*.safetensors"))):
        try:
            tensor_shapes(file)
        except ValueError as problem:
            yield f"{file.relative_to(folder)} {problem}"
