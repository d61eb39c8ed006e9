"""Tell which checkpoints of a run are complete: a kill or a full disk leaves half a checkpoint.

    good_checkpoints(Path("output/v0-..."))     [.../checkpoint-20, .../checkpoint-40]
    why_not(Path("output/v0-.../checkpoint-60"))
        'trainer_state.json, which is written last, is missing: ...'

transformers writes into the folder of a checkpoint itself, in the order: weights, DeepSpeed's
states or the optimizer's, each rank's random state, trainer_state.json; and takes the folder with
the highest number for the last checkpoint, whatever is in it. Only names, sizes and headers are
read here: no weights, and nothing is unpickled.
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from swift_vlrft.files.jsonl import LineError, read_json

STATE = "trainer_state.json"
_NAME = re.compile(r"checkpoint-(\d+)")
_MAX_HEADER = 1 << 27  # a header of safetensors is JSON: megabytes at most
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
    """Say why the weights in a folder are not complete; '' if they are. It may be a checkpoint, or
    a model or adapter that a hub holds, which has no states of a training.
    """
    return next(_of_weights(folder), "")


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a model: those that its index names, else all."""
    index = folder / _SHARDED[0]
    names = read_json(index)["weight_map"].values() if index.is_file() else ()
    return sorted({folder / name for name in names}) or sorted(folder.glob("*.safetensors"))


def tensor_shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every tensor of a safetensors file, from its header. ValueError if
    the file is not complete.
    """
    size = file.stat().st_size
    with file.open("rb") as opened:
        head = opened.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if head == b"version ":
            raise ValueError("is a pointer of Git LFS, not the weights: run git lfs pull")
        if not 2 <= length <= min(_MAX_HEADER, size - 8):
            raise ValueError(f"is no complete safetensors file ({size} bytes)")
        try:
            header = json.loads(opened.read(length))
            header.pop("__metadata__", None)
            ends = [tensor["data_offsets"][1] for tensor in header.values()]
            shapes = {name: tuple(tensor["shape"]) for name, tensor in header.items()}
            expected = 8 + length + max(ends, default=0)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            raise ValueError("has a header that cannot be read") from None
    if size != expected:
        raise ValueError(f"has {size} bytes, its header says {expected}")
    return shapes


def _problems(folder: Path) -> Iterator[str]:
    if not folder.is_dir():
        yield "there is no such folder"
        return
    if not (folder / STATE).exists():
        yield f"{STATE}, which is written last, is missing: the run ended while it was saved"
        return
    read: dict[str, Any] = {}
    yield from _of_settings(folder, (STATE, "args.json"), read)
    yield from _of_weights(folder)
    yield from _of_states(folder, read.get("args.json", {}))
    for pattern in ("*.pt", "*.pth", "*.bin", "*/*.pt", "*/*.bin"):
        for file in sorted(folder.glob(pattern)):
            if problem := _pickle_problem(file):
                yield f"{file.relative_to(folder)} {problem}"


def _of_settings(folder: Path, names: Sequence[str], read: dict[str, Any]) -> Iterator[str]:
    """Fill ``read`` with what these files hold, those that are there."""
    for name in names:
        if (folder / name).exists():
            try:
                read[name] = read_json(folder / name)
            except LineError:
                yield f"{name} is no complete JSON file"
            else:
                if not isinstance(read[name], dict):
                    yield f"{name} holds no JSON object"


def _of_weights(folder: Path) -> Iterator[str]:
    read: dict[str, Any] = {}
    yield from _of_settings(folder, ("config.json", "adapter_config.json", *_SHARDED), read)
    for index in (name for name in _SHARDED if name in read):
        shards = read[index].get("weight_map")
        shards = sorted({str(v) for v in shards.values()}) if isinstance(shards, dict) else []
        missing = [name for name in shards if not (folder / name).is_file()]
        if missing or not shards:
            yield f"{', '.join(missing[:5]) or 'every shard'}, named in {index}, is missing"
    whole = any(any(folder.glob(pattern)) for pattern in _WEIGHTS)
    # ZeRO-3 without stage3_gather_16bit_weights_on_model_save, or FSDP: in shards of their own.
    sharded = any(folder.glob("*/*model_states.pt")) or any(folder.glob("pytorch_model_fsdp*"))
    indexed = any(name in read for name in _SHARDED)
    if any(folder.glob("*model-*-of-*")) and not indexed:
        yield "the index of the shards of the weights is missing"
    if not (whole or sharded or indexed):
        yield "there are no weights"
    adapter = any(folder.glob("adapter_model.*"))
    settings = "adapter_config.json" if adapter else "config.json"
    in_folders = any(folder.glob("*/adapter_model.*"))  # of several adapters
    if settings not in read and not in_folders:
        yield f"{settings} is missing"
    for pattern in ("*.safetensors", "*/*.safetensors"):
        for file in sorted(folder.glob(pattern)):
            try:
                tensor_shapes(file)
            except ValueError as problem:
                yield f"{file.relative_to(folder)} {problem}"


def _of_states(folder: Path, args: dict[str, Any]) -> Iterator[str]:
    """The problems of optimizer, scheduler and random states; --save_only_model leaves them out."""
    # Where every node saves on a disk of its own, this folder holds what one node wrote.
    world = args.get("local_world_size" if args.get("save_on_each_node") else "global_world_size")
    ranks = world if isinstance(world, int) and world > 0 else 1
    tags = [d.name for d in folder.glob("global_step*") if d.is_dir()]
    random = list(folder.glob("rng_state*.pth"))
    optimizer = [n for n in ("optimizer.pt", "scheduler.pt") if (folder / n).exists()]
    if args.get("save_only_model"):
        return
    if not (tags or random or optimizer):
        if args.get("save_only_model") is False:
            yield "optimizer and random states, which its run saved, were removed"
        return
    if len(random) < ranks:
        lost = ranks - len(random)
        yield f"the random states of {lost} of {ranks} ranks (rng_state*.pth) are missing"
    if tags:
        latest = folder / "latest"
        tag = latest.read_text("utf-8", "replace").strip() if latest.is_file() else ""
        if tag not in tags:
            yield f"'latest', DeepSpeed's last file, names none of {', '.join(sorted(tags))}"
        else:
            parts = [file.name for file in (folder / tag).glob("*_states.pt")]
            of_model = [name for name in parts if "model_states" in name]
            of_ranks = {"optimizer": len(parts) - len(of_model)}  # stage 0 has none, stage 3 both
            if any(name.startswith("zero_pp_rank") for name in of_model) or not of_model:
                of_ranks["model"] = len(of_model)
            for what, count in of_ranks.items():
                if count < ranks and (count or what == "model"):
                    yield f"{tag} holds the states of the {what} of {count} of {ranks} ranks"
        return
    of_fsdp = [*folder.glob("pytorch_model_fsdp_*/"), *folder.glob("optimizer_*/")]
    for part in of_fsdp:  # how much is in whole only its pickle knows
        if not ((part / ".metadata").is_file() and any(part.glob("*.distcp"))):
            yield f"{part.name} has no .metadata, or no *.distcp"
    whole = any(folder.glob("optimizer_*")) or (folder / "optimizer.bin").exists()  # FSDP's
    for name in ("optimizer.pt", "scheduler.pt"):
        if name not in optimizer and not (whole and name == "optimizer.pt"):
            yield f"{name} is missing"


def _pickle_problem(file: Path) -> str | None:
    """Why a file of torch.save is not complete: a zip file ends with its table of contents."""
    with file.open("rb") as opened:
        head = opened.read(4)
    if head == b"PK\x03\x04":
        try:
            zipfile.ZipFile(file).close()
        except (zipfile.BadZipFile, OSError):
            return f"is no complete file of torch.save ({file.stat().st_size} bytes)"
    elif not head.startswith(b"\x80"):  # a pickle, of torch's older form
        return f"is no file of torch.save ({file.stat().st_size} bytes)"
    return None
