"""resume.sh: how a run was started, beside its checkpoints, so that it can be started again.

    cd /home/me/work || exit
    export NPROC_PER_NODE=4
    swift rlhf \
        --model Qwen/Qwen2.5-VL-3B-Instruct \
        "$@"

Written by the plugin (swift_plugin/resuming.py) when training begins, read by `vlrft resume`. Flags
and variables that carry secrets are left out, and named as left out in the JSON of its third line.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from swift_vlrft.families.resize import RESOLUTION
from swift_vlrft.files.checkpoints import STATE, checkpoints
from swift_vlrft.files.environment import VARIABLES
from swift_vlrft.files.jsonl import LineError
from swift_vlrft.files.secrets import holds_secret, is_secret_name
from swift_vlrft.files.writing import beside
from swift_vlrft.recipe.flags import GivenFlag, flags_of

FILE = "resume.sh"
OF_A_NODE = ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
"""What another node, or another start of several, has otherwise."""
_HEAD = (
    "#!/usr/bin/env bash\n# How this run was started, without secrets; to go on: vlrft resume\n# "
)
_VARIABLE = re.compile(
    "|".join(
        (
            *(*VARIABLES, *RESOLUTION, *OF_A_NODE),
            *(r"SWIFT_(?!CONFIG_FILE)\w+", r"(VLLM|NCCL|GLOO|DS|PYTORCH|OMP)_\w+"),
            *("CUDA_VISIBLE_DEVICES", "NPROC_PER_NODE", "NNODES"),
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


class Record(msgspec.Struct):
    """``script``: the commands; empty if the run was not started by `swift`. ``ended``: the step
    after which the run ended by itself. ``earlier``: checkpoints of an earlier run in its folder,
    and when they were written (nanoseconds).
    """

    script: str
    left_out: list[str]
    gpus: int
    host: str
    pid: int
    started: float
    ended: int | None = None
    earlier: dict[str, int] = {}


def record(argv: Sequence[str], environment: Mapping[str, str], *, gpus: int) -> Record:
    """Of this process; ``argv`` as in sys.argv, ``gpus`` that it sees."""
    flags = list(flags_of(argv[1:]))
    secret = [f for f in flags if is_secret_name(f.name) or any(map(holds_secret, f.words))]
    process = psutil.Process()
    return Record(
        script=_script(Path(argv[0]), [f for f in flags if f not in secret], environment),
        left_out=[f"--{flag.name}" for flag in secret],
        gpus=gpus,
        host=socket.gethostname(),
        pid=process.pid,
        started=process.create_time(),
    )


def _script(program: Path, flags: Sequence[GivenFlag], environment: Mapping[str, str]) -> str:
    """The commands; a flag a line, the last of a name, as argparse takes it."""
    if program.parent.name != "cli" or program.stem not in ("rlhf", "sft", "pt"):
        return ""
    lines = [f"cd {quoted(os.getcwd())} || exit"]
    for name, value in kept_variables(started_by_torchrun(environment)).items():
        plain = name in OF_A_NODE and re.fullmatch(r"[\w.:-]+", value)
        default = f'"${{{name}:-{value}}}"' if plain else quoted(value)
        lines.append(f"export {name}={default}")
    words = {flag.name: " ".join(map(quoted, flag.words)) for flag in flags}
    command = [f"swift {program.stem}", *(f"    {text}" for text in words.values()), '    "$@"']
    return "\n".join([*lines, " \\\n".join(command), ""])


def quoted(word: str) -> str:
    """For bash, in one line: control characters are written as bash's escapes."""
    if not re.search(r"[\x00-\x1f\x7f]", word):
        return shlex.quote(word)
    plain = (f"\\x{ord(c):02x}" if c < " " or c in "'\\\x7f" else c for c in word)
    return f"$'{''.join(plain)}'"


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


def write_record(folder: Path, kept: Record) -> None:
    """resume.sh of a run; what was there is replaced in one step."""
    facts = {name: getattr(kept, name) for name in kept.__struct_fields__ if name != "script"}
    with beside(folder / FILE) as unfinished:
        text = f"{_HEAD}{msgspec.json.encode(facts).decode()}\n{kept.script}"
        unfinished.write_text(text, errors="surrogateescape")
        unfinished.chmod(0o755)


def record_of_run(folder: Path) -> Record | None:
    """None if the run has none; LineError if it cannot be read."""
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        lines = file.read_text(errors="surrogateescape").split("\n", 3)
        facts = msgspec.json.decode(lines[2].removeprefix("# "))
        return msgspec.convert(facts | {"script": lines[3]}, Record)
    except (OSError, ValueError, TypeError, IndexError) as error:
        raise LineError(f"{file}: its third line is no record of a run: {error}") from None


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
