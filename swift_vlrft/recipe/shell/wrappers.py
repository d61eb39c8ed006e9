"""What runs another command: nohup, env, uv run, srun, torchrun ...

unwrapped(["timeout", "-k", "10", "3600", "uv", "run", "swift", "rlhf", "--x"])  -> swift rlhf --x
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from swift_vlrft.recipe.shell.state import UNSET, Assigned, State, Value, Variable
from swift_vlrft.recipe.shell.tree import ASSIGNMENT, Note, Span

COMMANDS = ("rlhf", "sft", "pt", "rollout", "infer", "deploy", "export", "eval", "sample")
PROGRAMS = {"swift": COMMANDS, "megatron": ("rlhf", "sft", "pt", "export")}
"""ms-swift's programs and their commands (swift/cli/main.py, swift/cli/_megatron/main.py)."""
MODULE = re.compile(r"swift\.cli\.(?:(_megatron)\.)?(\w+)")
SCRIPT = re.compile(r"(?:^|.*/)swift/cli/(?:(_megatron)/)?(\w+)\.py")
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
    r"|scalene|memray|coverage|python[\d.]*|pypy[\d.]*|" + "|".join(LAUNCHERS)
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
WITHIN = re.compile(
    r"(?:^|[\s;&|'\"/=])(?:"
    + "|".join(rf"{name}\s+(?:{'|'.join(commands)})" for name, commands in PROGRAMS.items())
    + r")\b"
)


@dataclass(slots=True)
class Unwrapped:
    """A command with what it finds; ``launcher``: torchrun and the like, with ``processes`` and
    ``nodes`` where it says them.
    """

    words: list[Value]
    state: State
    launcher: str = ""
    processes: str = "1"
    nodes: str = "1"


def base(word: Value) -> str:
    return os.path.basename(word.text) if word.known else ""


def command_at(words: Sequence[Value]) -> int | None:
    """Where `swift rlhf`, `-m swift.cli.rlhf` or `.../swift/cli/rlhf.py` begins, or Megatron's."""
    for i, word in enumerate(words):
        following = words[i + 1] if i + 1 < len(words) else None
        if word.known and base(word) in PROGRAMS and following is not None:
            known = following.text.replace("_", "-") in PROGRAMS[base(word)]
            if known or (i == 0 and not following.known):
                return i
        elif word.text in ("-m", "--module") and following is not None:
            if MODULE.fullmatch(following.text):
                return i
        elif word.known and SCRIPT.fullmatch(word.text):
            return i
    return None


def called(words: Sequence[Value]) -> tuple[tuple[str, str], list[Value]]:
    """Program and command of words that ``command_at`` found, and the words behind them."""
    first, second = words[0].text, words[1].text if len(words) > 1 else ""
    if match := SCRIPT.fullmatch(first):
        rest = words[1:]
    else:
        match, rest = MODULE.fullmatch(second), words[2:]
    if match and first not in PROGRAMS:
        program, command = "megatron" if match[1] else "swift", match[2]
    else:
        program, command = base(words[0]), second
    return (program, command.replace("_", "-")), list(rest)


def unwrapped(words: Sequence[Value], before: State) -> Unwrapped | None:
    """The command inside of known wrappers; None if the first word is none that is known."""
    texts = [word.text for word in words]
    shells = (
        i
        for i, word in enumerate(words)
        if base(word) in SHELLS and (not i or any(map(TEXT.fullmatch, texts[i + 1 : i + 3])))
    )
    begins = [at for at in (command_at(words), next(shells, None)) if at is not None]
    if not begins or (min(begins) and not WRAPPERS.fullmatch(base(words[0]))):
        return None
    found, setter = Unwrapped(list(words[min(begins) :]), before.copy()), ""
    state = found.state
    for i, word in enumerate(words[: min(begins)]):
        name, text = base(word), word.text
        hides = name == "srun" and any(re.match("--export=(?!ALL$)", one) for one in texts)
        if name in ENVIRONMENT:
            setter = name
            hides = name != "env" and not {"-E", "--preserve-env"} & set(texts)
        elif setter and (match := ASSIGNMENT.match(text)):
            state.variables[match[1]] = _assigned(word, match)
        elif setter == "env" and texts[i - 1] in ("-u", "--unset"):
            state.variables[text] = UNSET
        elif setter == "env" and (match := re.match(r"-u(.+)|--unset=(.*)", text)):
            state.variables[match[1] or match[2]] = UNSET
        elif setter == "env" and text in ("-i", "-", "--ignore-environment"):
            own = {k: v for k, v in state.variables.items() if v.exported is False}
            state.variables = own
        elif setter == "env" and text.startswith(("-S", "--split-string")):
            return None  # a command within a word
        elif setter and not text.startswith("-") and texts[i - 1] not in ENVIRONMENT[setter]:
            setter = ""
        if hides:
            state.lose(Note(word.line, "unread", "which variables are handed on is not known"))
        if name in LAUNCHERS or text in MODULES:
            _launched(found, words[i:], MODULES.get(text, name))
        elif PYTHON.fullmatch(name) and not found.launcher:
            found.launcher = "python" * (base(found.words[0]) not in PROGRAMS)
    return found


def _launched(found: Unwrapped, words: Sequence[Value], name: str) -> None:
    """The processes that a launcher says it starts, on each node."""
    given: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], Value("", 0)], strict=True):
        option, equals, value = word.text.partition("=")
        known = word.known if equals else following.known
        value = value if equals else following.text
        given.setdefault(option.lstrip("-").replace("-", "_"), value if known else "")
    processes, nodes, default = LAUNCHERS[name]
    found.launcher = name
    found.nodes = given.get(nodes, "1") if nodes else ""
    found.processes = given.get(processes, default)
    if name == "accelerate":
        divides = found.processes.isdecimal() and found.nodes.isdecimal() and int(found.nodes)
        found.processes = str(int(found.processes) // int(found.nodes)) if divides else ""


def _assigned(word: Value, match: re.Match[str]) -> Variable:
    """NAME=value given as a word."""
    value, span, place = replace(word, text=word.text[match.end() :], span=None), word.span, None
    if span is not None and span.literal:
        key = Span(span.start, span.start + len(match[1]))
        place = Assigned(word.line, key, Span(span.start + match.end(), span.end))
    return Variable((value,), exported=True, place=place)


def not_read(words: Sequence[Value], fed: str = "") -> str | None:
    """Why a command that mentions `swift`, or is fed a text that does, was not read; None if it
    does not, or only prints.
    """
    name = base(words[0]) if words else ""
    if PRINTS.fullmatch(name) or not words:
        return None
    given = any(WITHIN.search(text) for text in (*(word.text for word in words), fed))
    by_name = not words[0].known and words[1:] and words[1].text in COMMANDS
    if command_at(words) is None and not given and not by_name:
        return None
    who = f"`{name}`" if name else f"`{words[0].text}`, a name that only bash knows,"
    return (
        f"{who} is given a `swift` command, and what it makes of it is not known: it was not read. "
        "Give that command by itself"
    )
