"""resume.sh stands beside a run's checkpoints and holds the commands that resume the run.

    # {"pid": 4711, ...}
    cd /home/me/work || exit
    export NPROC_PER_NODE=4
    swift rlhf \
        --model Qwen/Qwen2.5-VL-3B-Instruct \
        "${@:?...}"

The plugin (swift_plugin/resuming.py) writes it when training begins; the JSON is a ``Record``.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import msgspec
import psutil

from swift_vlrft.files.checkpoints import STATE, checkpoints
from swift_vlrft.files.environment import truth
from swift_vlrft.files.jsonl import LineError
from swift_vlrft.files.secrets import holds_secret, is_secret_name
from swift_vlrft.files.writing import beside
from swift_vlrft.recipe.flags import GivenFlag, flags_of
from swift_vlrft.recipe.lines import is_read

FILE = "resume.sh"
GIVEN = '"${@:?give --resume_from_checkpoint CHECKPOINT, or use vlrft resume}"'
NODE_VARIABLES = ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
"""What another node, or another start of several, has otherwise."""
_HEAD = "#!/usr/bin/env bash\n# How this run goes on, without secrets: vlrft resume prints it\n# "
_PACKAGES = (
    *("swift-vlrft", "ms-swift", "transformers", "trl", "peft", "torch", "deepspeed", "vllm"),
    "faster-coco-eval",
)
_READ = re.compile("dataset|model|adapters|plugins|register_path|deepspeed|system")


class Record(msgspec.Struct):
    """``script`` is empty if `swift` did not start the run. ``paths``: what it read, by flag.
    ``begun_at``: the checkpoint that the run resumed, if any. ``ended``: the step after which the
    run ended by itself. ``earlier``: an earlier run's checkpoints in its folder (nanoseconds).
    """

    script: str
    left_out: list[str]
    paths: list[tuple[str, str]]
    begun_at: str
    versions: dict[str, str]
    gpus: int
    host: str
    pid: int
    started: float
    ended: int | None = None
    earlier: dict[str, int] = {}


def record(
    argv: Sequence[str], environment: Mapping[str, str], *, gpus: int, ref_model: str | None = None
) -> Record:
    """Return the record of this process; ``argv`` as in sys.argv, ``gpus`` that it sees."""
    flags = {flag.name: flag for flag in flags_of(argv[1:])}  # argparse takes the last of a name
    begun = flags.pop("resume_from_checkpoint", None)
    alone = flags.pop("resume_only_model", None)
    if alone and truth((*alone.values, "true")[0]):
        # The next start goes on with steps, rows and optimizer. The reference is by default
        # --model, in whose place ms-swift had put the checkpoint.
        begun = None
        flags.pop("ignore_data_skip", None)
        if ref_model and "ref_model" not in flags:
            flags |= {flag.name: flag for flag in flags_of(["--ref_model", ref_model])}
    start = os.path.abspath(os.path.expanduser(begun.values[-1])) if begun else ""
    secret = [
        f for f in flags.values() if is_secret_name(f.name) or any(map(holds_secret, f.words))
    ]
    others = [flag for flag in flags.values() if flag not in secret]
    process = psutil.Process()
    return Record(
        script=_script(Path(argv[0]), others, environment, gpus),
        left_out=[f"--{flag.name}" for flag in secret],
        paths=[("cd", os.getcwd()), *_paths(others)],
        begun_at=start if os.path.isdir(start) else "",
        versions=versions(),
        gpus=gpus,
        host=socket.gethostname(),
        pid=process.pid,
        started=process.create_time(),
    )


def _script(
    program: Path, flags: Sequence[GivenFlag], environment: Mapping[str, str], gpus: int
) -> str:
    swift = program.parent.name == "cli" and program.stem in ("rlhf", "sft", "pt")
    by_torchrun = environment.get("WORLD_SIZE", "1") != "1"  # where `swift` did not call it
    if not swift or (by_torchrun and not environment.keys() & {"NPROC_PER_NODE", "NNODES"}):
        return ""
    variables = kept_variables(environment)
    if gpus and not any(name.endswith("VISIBLE_DEVICES") for name in variables):
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(gpus)))  # there may be more
    lines = [f"cd {quoted(os.getcwd())} || exit"]
    for name, value in variables.items():
        default = f"${{{name}:-{quoted(value)}}}" if name in NODE_VARIABLES else quoted(value)
        lines.append(f"export {name}={default}")
    command = [f"swift {program.stem}", *(" ".join(map(quoted, f.words)) for f in flags), GIVEN]
    return "\n".join([*lines, " \\\n    ".join(command), ""])


def quoted(word: str) -> str:
    """Quote a word for bash, with control characters and what is no text as bytes."""
    if word.replace("\n", "").isprintable():
        return shlex.quote(word)
    with_both_quotes = b'"' + os.fsencode(word)  # so that Python takes ' and escapes it
    return f"$'{repr(with_both_quotes)[3:-1]}'"


def kept_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a run depends on; addresses of nodes only if there are several."""
    several = environment.get("NNODES", "1") != "1"
    return {
        name: value
        for name, value in sorted(environment.items())
        if is_read(name)
        and not (is_secret_name(name) or holds_secret(value))
        and (several or name not in NODE_VARIABLES)
    }


def _paths(flags: Iterable[GivenFlag]) -> Iterator[tuple[str, str]]:
    """The paths among the values of flags, by flag."""
    from swift_vlrft.datasets.syntax import parse  # slow

    for flag in flags:
        for value in flag.values if _READ.search(flag.name) else ():
            with suppress(ValueError):  # what is wrong with it, the run says
                path = parse(value).name
                yield from [(f"--{flag.name}", os.path.abspath(path))] * os.path.exists(path)


def versions() -> dict[str, str]:
    """Return the versions of the packages that a run depends on, if they are installed."""
    installed = {name: [*metadata.distributions(name=name)] for name in _PACKAGES}
    return {name: copies[0].version for name, copies in installed.items() if copies}


def write_record(folder: Path, record: Record) -> None:
    """Write a run's resume.sh, and replace an older file in one step."""
    facts = {name: getattr(record, name) for name in record.__struct_fields__ if name != "script"}
    with beside(folder / FILE) as unfinished:
        text = f"{_HEAD}{json.dumps(facts)}\n{record.script}"
        unfinished.write_text(text, encoding="utf-8")
        unfinished.chmod(0o755)


def record_of_run(folder: Path) -> Record | None:
    """Read the record in a run's resume.sh; None without the file, LineError if that fails."""
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        lines = file.read_text(encoding="utf-8").split("\n", 3)
        facts = json.loads(lines[2].removeprefix("# "))
        return msgspec.convert(facts | {"script": lines[3]}, Record)
    except (ValueError, TypeError, IndexError) as error:
        raise LineError(file, f"its third line is no record of a run: {error}") from None


def earlier_checkpoints(folder: Path, step: int) -> dict[str, int]:
    """Return the checkpoints of more than ``step`` steps, for ``Record.earlier``."""
    later = [path for path in checkpoints(folder) if int(path.name.partition("-")[2]) > step]
    states = {path.name: path / STATE for path in later}
    return {name: file.stat().st_mtime_ns for name, file in states.items() if file.exists()}


def own_checkpoints(folder: Path, record: Record | None) -> list[Path]:
    """Return a run's folders checkpoint-N, complete or not, without an earlier run's.

    With --add_version false both share a folder.
    """
    earlier, now = record.earlier if record else {}, earlier_checkpoints(folder, -1)
    return [
        path for path in checkpoints(folder) if earlier.get(path.name, -1) != now.get(path.name)
    ]


def is_running(record: Record) -> bool:
    """Say whether the process that wrote the record is alive on this machine."""
    with suppress(psutil.Error):
        here = record.host == socket.gethostname()
        return here and bool(abs(psutil.Process(record.pid).create_time() - record.started) < 1)
    return False
