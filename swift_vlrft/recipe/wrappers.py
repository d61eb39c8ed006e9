"""Unwrap programs that run another command: nohup, env, uv run, srun, torchrun ...

unwrapped(["timeout", "-k", "10", "3600", "uv", "run", "swift", "rlhf", "--x"])  -> swift rlhf --x
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from swift_vlrft.recipe.words import Value, Variable

COMMANDS = ("rlhf", "sft", "pt", "rollout", "infer", "deploy", "export", "eval", "sample")
PROGRAMS = {"swift": COMMANDS, "megatron": ("rlhf", "sft", "pt", "export")}
"""ms-swift's programs and their commands (swift/cli/main.py, swift/cli/_megatron/main.py)."""
MODULE = re.compile(r"swift\.cli\.(?:(_megatron)\.)?(\w+)")
MAIN = re.compile(r"swift\.cli\.(?:_megatron\.)?main|.*/swift/cli/(?:_megatron/)?main\.py")
"""What `swift` and `megatron` start, which start the processes themselves."""
SCRIPT = re.compile(r"(?:^|.*/)swift/cli/(?:(_megatron)/)?(\w+)\.py")
LAUNCHERS = {
    "torchrun": ("nproc_per_node", "nnodes", "1"),
    "accelerate": ("num_processes", "num_machines", ""),
    "deepspeed": ("num_gpus", "num_nodes", ""),
    "mpirun": ("", "", ""),
    "mpiexec": ("", "", ""),
    "horovodrun": ("", "", ""),
}
"""They start the processes themselves, whatever NPROC_PER_NODE says: the flags for processes (of
each node; accelerate: of all) and nodes, and the processes where none are given.
"""
MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
}
WRAPPERS = re.compile(
    r"nohup|setsid|exec|env|command|builtin|time|stdbuf|nice|ionice|timeout|chrt|taskset|numactl"
    r"|sudo|doas|xvfb-run|uvx?|poetry|pixi|pdm|hatch|rye|pipenv|conda|mamba|micromamba|srun|nsys"
    r"|ncu|py-spy|flock|unbuffer|catchsegv|strace|perf|dotenv|direnv|caffeinate|systemd-run"
    r"|systemd-inhibit|setarch|prlimit|cgexec|chronic|tini|dumb-init|gosu|retry|viztracer"
    r"|scalene|memray|coverage|python[\d.]*|pypy[\d.]*|" + "|".join(LAUNCHERS)
)
PRINTS = re.compile(r"echo|printf|which|type|[ef]?grep|pgrep|pkill|kill|killall|ps|pip|test|\[|:")
SHELLS = ("bash", "sh", "dash", "zsh", "ksh")
PYTHON = re.compile(r"python[\d.]*|pypy[\d.]*")
WITHIN = re.compile(
    r"(?:^|[\s;&|'\"/=])(?:"
    + "|".join(rf"{name}\s+(?:{'|'.join(commands)})" for name, commands in PROGRAMS.items())
    + r")\b"
)
ANYTHING = "*"
"""For any path."""
A_SCRIPT = re.compile(r"\.(?:sh|slurm|sbatch)[\"']?$")
OUTPUT = re.compile(r"--(?:output|result|save)[\w-]*")
"""Flags of `swift` for what it writes."""
ARCHIVE = re.compile(r"\.(?:git|zip|tgz|tar(?:\.\w+)?)$")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=")


@dataclass(slots=True)
class Unwrapped:
    """The inner command has variables that `env` sets for it; others may be cleared, or not be
    handed on. ``launcher``: torchrun and the like, with ``processes`` and ``nodes`` where it says
    them.
    """

    words: list[Value]
    variables: dict[str, Variable] = field(default_factory=dict)
    clears: bool = False
    hides: bool = False
    moves: bool = False
    """Whether it runs in another folder."""
    launcher: str = ""
    processes: str = "1"
    nodes: str = "1"


def base(word: Value) -> str:
    return os.path.basename(word.text) if word.known else ""


def command_at(words: Sequence[Value]) -> int | None:
    """Find where `swift rlhf`, `-m swift.cli.rlhf`, `.../cli/rlhf.py` or Megatron's begins."""
    for i, word in enumerate(words):
        following = words[i + 1] if i + 1 < len(words) else None
        if word.known and base(word) in PROGRAMS and following is not None:
            if not following.known or following.text.replace("_", "-") in PROGRAMS[base(word)]:
                return i
        elif word.text in ("-m", "--module") and following is not None:
            if MODULE.fullmatch(following.text):
                return i
        elif SCRIPT.fullmatch(word.text):
            return i
    return None


def called(words: Sequence[Value]) -> tuple[tuple[str, str], list[Value]]:
    """Return program and command of words that ``command_at`` found, and the words behind."""
    first, second = words[0].text, words[1].text if len(words) > 1 else ""
    if match := SCRIPT.fullmatch(first):
        rest = words[1:]
    else:
        match, rest = MODULE.fullmatch(second), words[2:]
    if match and first not in PROGRAMS:
        program, command = "megatron" if match[1] else "swift", match[2]
        if command == "main" and rest:
            command, rest = rest[0].text, rest[1:]
    else:
        program, command = base(words[0]), second
    return (program, command.replace("_", "-")), list(rest)


def unwrapped(words: Sequence[Value]) -> Unwrapped | None:
    """Return the command inside of known wrappers; None if the first word is not known."""
    texts, at = [word.text for word in words], command_at(words)
    shell = next((i for i, word in enumerate(words) if base(word) in SHELLS), at)
    at = shell if at is None or (shell is not None and shell < at) else at
    if at is None or (at and not WRAPPERS.fullmatch(base(words[0]))):
        return None
    inner, setter = Unwrapped(list(words[at:])), ""
    for i, word in enumerate(words[:at]):
        name, text = base(word), word.text
        exports = name == "srun" and any(re.match("--export=(?!ALL$)", part) for part in texts[:at])
        inner.hides |= exports or name in ("sudo", "doas", "dotenv", "direnv", "systemd-run")
        inner.hides |= text.startswith("--env-file")
        inner.moves |= setter == "env" and text.startswith(("-C", "--chdir"))
        if name in ("env", "sudo", "doas"):
            setter = name
        elif setter and (match := ASSIGNMENT.match(text)):
            value = replace(word, text=text[match.end() :], span=None)
            inner.variables[match[1]] = Variable((value,), exported=True)
        elif setter == "env" and (match := re.fullmatch(r"(?:-u|--unset=)(.+)", text)):
            inner.variables[match[1]] = Variable()
        elif setter == "env" and texts[i - 1] in ("-u", "--unset"):
            inner.variables[text] = Variable()
        elif setter == "env" and text in ("-i", "-", "--ignore-environment"):
            inner.clears = True
        elif setter == "env" and text.startswith("-"):
            inner.hides |= text not in ("-u", "--unset", "--")
        if name in LAUNCHERS or text in MODULES:
            _launched(inner, words[i:], MODULES.get(text, name))
        elif PYTHON.fullmatch(name) and not inner.launcher:
            starts = base(inner.words[0]) in PROGRAMS or any(
                map(MAIN.fullmatch, texts[at : at + 2])
            )
            inner.launcher = "python" * (not starts)
    return inner


def _launched(inner: Unwrapped, words: Sequence[Value], name: str) -> None:
    """Read how many processes a launcher starts on each node."""
    options: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], Value("", 0)], strict=True):
        option, equals, value = word.text.partition("=")
        known = word.known if equals else following.known
        value = value if equals else following.text
        options.setdefault(option.lstrip("-").replace("-", "_"), value if known else "")
    processes, nodes, default = LAUNCHERS[name]
    inner.launcher = name
    inner.nodes = options.get(nodes, "1") if nodes else ""
    inner.processes = options.get(processes, default)
    if name == "accelerate":
        divides = inner.processes.isdecimal() and inner.nodes.isdecimal() and int(inner.nodes)
        inner.processes = str(int(inner.processes) // int(inner.nodes)) if divides else ""


def made_by(words: Sequence[Value], is_swift: bool) -> Iterator[str]:
    """Yield the paths that a command may make: all its arguments, as `models/q`, and the name of
    a download or an archive; a user's program may make any path. `swift` makes --output_dir
    and the like.
    """
    texts = [word.text for word in words if word.known]
    if is_swift:
        behind = zip(texts, texts[1:], strict=False)
        yield from (value for flag, value in behind if OUTPUT.fullmatch(flag))
        return
    for name in map(os.path.basename, texts[:1]):
        texts = [] if PRINTS.fullmatch(name) else texts
        yield from [ANYTHING] * bool(PYTHON.fullmatch(name) or name in (*SHELLS, "make"))
    for text in texts[1:]:
        text = text.partition("=")[2] if text.startswith("-") else text
        name = os.path.basename(text.rstrip("/")) if "://" in text else text
        yield from {name, ARCHIVE.sub("", name)} - {""}


def not_read(words: Sequence[Value], fed: str = "") -> str | None:
    """Say why a command that mentions `swift`, or is fed such a text, was not read; None if it
    does not mention it, or only prints.
    """
    name = base(words[0]) if words else ""
    if PRINTS.fullmatch(name) or not words:
        return None
    scripts = [word.text for word in words[:3] if A_SCRIPT.search(word.text)]
    if scripts and name not in ("chmod", "cat", "cp", "mv", "rm", "ls", "sed", "tee", "touch"):
        return f"{scripts[0]} is another script: it is not read"
    mentions = any(WITHIN.search(text) for text in (*(word.text for word in words), fed))
    by_name = not words[0].known and words[1:] and words[1].text in COMMANDS
    if command_at(words) is None and not mentions and not by_name:
        return None
    who = f"`{name}`" if name else f"`{words[0].text}`, a name that only bash knows,"
    return (
        f"{who} is given a `swift` command and may change it: it is not read. Give that "
        "command by itself"
    )
