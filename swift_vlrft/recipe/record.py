"""vlrft_run.json: how a run was started, beside its checkpoints, so that it can be started again.

    {"command": "rlhf", "argv": ["--model", ...], "variables": {"NPROC_PER_NODE": "4", ...}, ...}

Written by the plugin (swift_plugin/resuming.py) when training begins, read by `vlrft resume`. Flags
and variables that carry secrets are left out, and named as left out.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import msgspec
import psutil

from swift_vlrft.families.resize import RESOLUTION
from swift_vlrft.files.checkpoints import STATE, checkpoints
from swift_vlrft.files.environment import VARIABLES
from swift_vlrft.files.records import read_record
from swift_vlrft.files.secrets import holds_secret, is_secret_name
from swift_vlrft.recipe.flags import GivenFlag, flags_of

FILE = "vlrft_run.json"
_VARIABLE = re.compile(
    "|".join(
        (
            *(*VARIABLES, *RESOLUTION),
            *(r"SWIFT_(?!CONFIG_FILE)\w+", r"(VLLM|NCCL|GLOO|DS|PYTORCH|OMP)_\w+"),
            *("CUDA_VISIBLE_DEVICES", "NPROC_PER_NODE", "NNODES", "NODE_RANK", r"MASTER_\w+"),
            *("USE_HF", "HF_HOME", r"HF_(HUB|DATASETS)_\w+", r"MODELSCOPE_\w+", "ROOT_IMAGE_DIR"),
            *(r"(VIDEO|FPS|FRAME|IMAGE)_\w+", "FPS", "MAX_NUM", "INPUT_SIZE", "MAX_RATIO"),
            *("QWENVL_BBOX_FORMAT", "SPATIAL_MERGE_SIZE", "TORCH_COMPILE_DISABLE"),
            *("(BASE|IMG)_SIZE", "(HD_NUM|NUM_CROPS|MAX_PARTITION|CROP_MODE|DOWNSAMPLE_MODE)"),
            *("(MAX_)?NUM_FRAMES", "NFRAMES", "(ENABLE_)?THINKING(_MODE|_BUDGET)?"),
            *(r"CUDA_DEVICE_\w+", "CELOSS_PARALLEL_SIZE", "HF_ENDPOINT"),
            *("(HIP|ASCEND_RT)_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG", "WANDB_(PROJECT|MODE)"),
        )
    )
)
"""Variables that ms-swift, its engines or this package read."""
_PATHS = (
    *("model", "ref_model", "reward_model", "teacher_model", "adapters", "ref_adapters", "dataset"),
    *("val_dataset", "chord_sft_dataset", "external_plugins", "custom_register_path"),
    *("custom_dataset_info", "deepspeed", "system"),
)
_PACKAGES = ("swift-vlrft", "ms-swift", "transformers", "trl", "peft", "torch", "deepspeed", "vllm")


class Record(msgspec.Struct):
    """``command``: rlhf, sft or pt; None if the run was not started by `swift`. ``paths``: what
    flags name that was on this machine's disk, (flag, path).
    """

    command: str | None
    argv: list[str]
    left_out: list[str]
    variables: dict[str, str]
    folder: str
    paths: list[tuple[str, str]]
    gpus: int
    versions: dict[str, str]
    host: str
    pid: int
    started: float
    ended: int | None = None
    """The step after which it ended by itself."""
    earlier: dict[str, int] = {}
    """What lay in its folder when it began and is not what it began with: an earlier run's
    checkpoints, and when they were written (nanoseconds).
    """


def record(argv: Sequence[str], environment: Mapping[str, str], *, gpus: int) -> Record:
    """Of this process; ``argv`` as in sys.argv, ``gpus`` that it sees."""
    script = Path(argv[0])
    known = script.parent.name == "cli" and script.stem in ("rlhf", "sft", "pt")
    flags = list(flags_of(argv[1:]))
    secret = [f for f in flags if is_secret_name(f.name) or any(map(holds_secret, f.words))]
    process = psutil.Process()
    return Record(
        command=script.stem if known else None,
        argv=[word for flag in flags if flag not in secret for word in flag.words],
        left_out=[f"--{flag.name}" for flag in secret],
        variables=kept_variables(started_by_torchrun(environment)),
        folder=os.getcwd(),
        paths=[(f"--{flag.name}", path) for flag in flags for path in _existing(flag)],
        gpus=gpus,
        versions=versions(),
        host=socket.gethostname(),
        pid=process.pid,
        started=process.create_time(),
    )


def started_by_torchrun(environment: Mapping[str, str]) -> dict[str, str]:
    """With the variables of which `swift` makes the same processes, where torchrun was called with
    swift/cli/rlhf.py itself.
    """
    found = dict(environment)
    for ours, torchs in (("NPROC_PER_NODE", "LOCAL_WORLD_SIZE"), ("NNODES", "GROUP_WORLD_SIZE")):
        if (count := found.get(torchs, "1")) != "1":  # ms-swift itself sets one process
            found.setdefault(ours, count)
    if "NNODES" in found:
        found.setdefault("NODE_RANK", found.get("GROUP_RANK", "0"))
    return found


def kept_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Those that a run depends on; of the addresses of nodes only where there are several."""
    several = environment.get("NNODES", "1") != "1"
    return {
        name: value
        for name, value in sorted(environment.items())
        if _VARIABLE.fullmatch(name)
        and not is_secret_name(name)
        and not holds_secret(value)
        and (several or not name.startswith(("MASTER_", "NODE_")))
    }


def versions() -> dict[str, str]:
    """Of the packages that a run depends on, as far as they are installed."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def record_of_run(folder: Path) -> Record | None:
    """None if the run has none; LineError if it cannot be read."""
    file = folder / FILE
    return read_record(file, Record) if file.is_file() else None


def earlier_checkpoints(folder: Path, step: int) -> dict[str, int]:
    """Those of more than ``step`` steps; ``Record.earlier``."""
    found = {}
    for one in checkpoints(folder):
        with suppress(OSError):
            if int(one.name.partition("-")[2]) > step:
                found[one.name] = (one / STATE).stat().st_mtime_ns
    return found


def own_checkpoints(folder: Path, kept: Record | None) -> list[Path]:
    """A run's folders checkpoint-N, complete or not, without an earlier run's (--add_version
    false: they share the folder).
    """
    found = checkpoints(folder)
    if kept is None or not kept.earlier:
        return found
    now = earlier_checkpoints(folder, -1)
    return [one for one in found if kept.earlier.get(one.name, -1) != now.get(one.name)]


def is_running(kept: Record) -> bool:
    """Whether the process that wrote it is alive, if it is one of this machine."""
    if kept.host != socket.gethostname():
        return False
    try:
        return bool(abs(psutil.Process(kept.pid).create_time() - kept.started) < 1)
    except psutil.Error:
        return False


def _existing(flag: GivenFlag) -> Iterator[str]:
    """The paths among a flag's values."""
    from swift_vlrft.datasets.syntax import parse

    if flag.name not in _PATHS:
        return
    for value in flag.values:
        with suppress(ValueError):  # what is wrong with it, the run says
            path = parse(value).name
            yield from [os.path.abspath(path)] * os.path.exists(path)
