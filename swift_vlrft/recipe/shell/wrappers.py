"""What runs another command: nohup, env, uv run, srun, torchrun ...

unwrapped(["timeout", "-k", "10", "3600", "uv", "run", "swift", "rlhf", "--x"])  -> swift rlhf --x
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from swift_vlrft.recipe.shell.state import Assigned, Value
from swift_vlrft.recipe.shell.tree import ASSIGNMENT, Span

COMMANDS = ("rlhf", "sft", "pt", "rollout", "infer", "deploy", "export", "eval", "sample")
TEXT = re.compile(r"-[a-z]*c[a-z]*")
"""The option of a shell that a text of commands follows."""
SHELLS = ("bash", "sh", "dash", "zsh", "ksh")
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
    r"|scalene|memray|coverage|" + "|".join(LAUNCHERS)
)
PRINTS = re.compile(r"echo|printf|which|type|[ef]?grep|pgrep|pkill|kill|killall|ps|pip|test|\[|:")
PYTHON = re.compile(r"python[\d.]*|pypy[\d.]*")
ENVIRONMENT = {
    "env": ("-u", "--unset", "-C", "--chdir"),
    **dict.fromkeys(
        ("sudo", "doas"),
        ("-u", "-g", "-h", "-p", "-C", "-T", "-D", "-R", "-r", "-t", "--user", "--group"),
    ),
}
"""What sets variables for a command, and its options that take a value."""
WITHIN = re.compile(r"(?:^|[\s;&|'\"/=])swift\s+(?:" + "|".join(COMMANDS) + r")\b")


@dataclass(slots=True)
class Unwrapped:
    """``set``: variables given on the way; ``unset``: those taken away; ``cleared``: all others
    are (``env -i``); ``hidden``: which are left is not known (``sudo``). ``launcher``: torchrun and
    the like, with ``processes`` and ``nodes`` where it says them.
    """

    words: list[Value]
    set: dict[str, tuple[Value, Assigned | None]] = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)
    cleared: bool = False
    hidden: bool = False
    launcher: str = ""
    processes: str = "1"
    nodes: str = "1"


def base(word: Value) -> str:
    return os.path.basename(word.text) if word.known else ""


def command_at(words: Sequence[Value]) -> int | None:
    """Where `swift rlhf`, `-m swift.cli.rlhf` or `.../swift/cli/rlhf.py` begins."""
    for i, word in enumerate(words):
        following = words[i + 1] if i + 1 < len(words) else None
        if word.known and base(word) == "swift" and following is not None:
            if following.text.replace("_", "-") in COMMANDS or (i == 0 and not following.known):
                return i
        elif word.text in ("-m", "--module") and following is not None:
            if following.text.startswith("swift.cli."):
                return i
        elif word.known and re.search(r"(?:^|/)swift/cli/\w+\.py$", word.text):
            return i
    return None


def unwrapped(words: Sequence[Value]) -> Unwrapped | None:
    """The command inside of known wrappers; None if the first word is none that is known."""
    found = Unwrapped(list(words))
    while found.words:
        name, at = base(found.words[0]), command_at(found.words)
        if at == 0 or name in SHELLS:
            return found
        if name in ENVIRONMENT:
            _environment(found, name)
            continue
        if PYTHON.fullmatch(name):
            inner = [MODULES.get(word.text, "") for word in found.words[1 : at or 1]]
            if at is None:
                return None
            if any(inner):
                _launched(found, "".join(inner))
            elif not found.launcher and base(found.words[at]) != "swift":
                found.launcher = "python"
        elif not WRAPPERS.fullmatch(name):
            return None
        elif name in LAUNCHERS:
            _launched(found, name)
        elif name == "srun":
            exports = [w.text for w in found.words if w.text.startswith("--export=")]
            found.hidden |= any(text != "--export=ALL" for text in exports)
        steps = (i for i in range(1, at or len(found.words)) if _runs(found.words[i:], at is None))
        following = next(steps, at)
        if following is None:
            return None
        found.words = found.words[following:]
    return None


def _runs(words: Sequence[Value], anywhere: bool) -> bool:
    """Whether the first word, behind a wrapper, is one that runs the rest."""
    name = base(words[0])
    if name in SHELLS:
        return anywhere and any(TEXT.fullmatch(word.text) for word in words[1:3])
    return name in ENVIRONMENT or name in LAUNCHERS or PYTHON.fullmatch(name) is not None


def _launched(found: Unwrapped, name: str) -> None:
    """The processes that a launcher says it starts, on each node."""
    given: dict[str, str] = {}
    for word, following in zip(found.words, [*found.words[1:], Value("", 0)], strict=True):
        option, equals, value = word.text.partition("=")
        known = word.known if equals else following.known
        value = value if equals else following.text
        given.setdefault(option.lstrip("-").replace("-", "_"), value if known else "")
    processes, nodes, default = LAUNCHERS[name]
    found.launcher = name
    found.nodes = given.get(nodes, "1") if nodes else ""
    found.processes = given.get(processes, default)
    if name == "accelerate":
        divides = found.processes.isdigit() and found.nodes.isdigit() and int(found.nodes)
        found.processes = str(int(found.processes) // int(found.nodes)) if divides else ""


def _environment(found: Unwrapped, name: str) -> None:
    """env, sudo and doas: assignments and options, up to the command."""
    words, keeps = found.words[1:], name == "env"
    while words:
        text = words[0].text
        if text in ("-i", "-", "--ignore-environment") and name == "env":
            found.cleared = True
            found.set.clear()
        elif text in ("-E", "--preserve-env"):
            keeps = True
        elif text in ENVIRONMENT[name]:
            found.unset += [word.text for word in words[1:2] if text in ("-u", "--unset")]
            words = words[1:]
        elif text.startswith(("-S", "--split-string")):
            found.words = []
            return  # a command within a word
        elif match := re.match(r"-u(.+)|--unset=(.*)", text):
            found.unset.append(match[1] or match[2])
        elif match := ASSIGNMENT.match(text):
            found.set[match[1]] = _assigned(words[0], match)
        elif not text.startswith("-"):
            break
        words = words[1:]
    found.hidden |= not keeps
    found.words = words


def _assigned(word: Value, match: re.Match[str]) -> tuple[Value, Assigned | None]:
    """The value and the place of NAME=value given as a word."""
    value, span = replace(word, text=word.text[match.end() :], span=None), word.span
    if span is None or not span.literal:
        return value, None
    key = Span(span.start, span.start + len(match[1]))
    return value, Assigned(word.line, key, Span(span.start + match.end(), span.end))


def not_read(words: Sequence[Value], fed: str = "") -> str | None:
    """Why a command that mentions `swift`, or is fed a text that does, was not read; None if it
    does not, or only prints.
    """
    name = base(words[0]) if words else ""
    if PRINTS.fullmatch(name) or not words:
        return None
    if any(base(a) == "megatron" and b.text in COMMANDS for a, b in pairwise(words)):
        return "`megatron` trains with Megatron-Core; its flags are not checked here"
    given = any(WITHIN.search(text) for text in (*(word.text for word in words), fed))
    by_name = not words[0].known and words[1:] and words[1].text in COMMANDS
    if command_at(words) is None and not given and not by_name:
        return None
    who = f"`{name}`" if name else f"`{words[0].text}`, a name that only bash knows,"
    return (
        f"{who} is given a `swift` command, and what it makes of it is not known: it was not read. "
        "Give that command by itself"
    )
