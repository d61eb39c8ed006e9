"""Find `swift` in a command: behind nohup, env, timeout, torchrun, as a module, as a file.

unwrapped(["nohup", "env", "A=1", "swift", "rlhf"])  -> swift rlhf, A=1
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from swift_vlrft.recipe.words import Value, Variable

COMMANDS = ("rlhf", "sft", "pt", "rollout", "infer", "deploy", "export", "eval", "sample")
PROGRAMS = {"swift": COMMANDS, "megatron": ("rlhf", "sft", "pt", "export")}
"""ms-swift's programs and their commands (swift/cli/main.py, swift/cli/_megatron/main.py)."""
MODULE = re.compile(r"swift\.cli\.(?:(_megatron)\.)?(\w+)")
SCRIPT = re.compile(r"(?:^|.*/)swift/cli/(?:(_megatron)/)?(\w+)\.py")
LAUNCHERS = {
    "torchrun": ("nproc_per_node", "nnodes", "1"),
    "accelerate": ("num_processes", "num_machines", ""),
    "deepspeed": ("num_gpus", "num_nodes", ""),
}
"""They start the processes themselves, whatever NPROC_PER_NODE says: the flags for processes (of
each node; accelerate: of all) and nodes, and the processes where none are given.
"""
MODULES = {"torch.distributed.run": "torchrun", "accelerate.commands.launch": "accelerate"}
PYTHON = re.compile(r"python[\d.]*")
WRAPPERS = re.compile(
    r"nohup|setsid|exec|env|command|nice|timeout|stdbuf|uv|srun|(?:micro)?mamba|conda|"
    + "|".join([PYTHON.pattern, *LAUNCHERS])
)
PRINTS = re.compile(
    r"echo|printf|which|type|[ef]?grep|pgrep|p?kill|killall|ps|pip3?|test|\[|:|mkdir|chmod|ls|rm|tee"
)
"""Commands that run nothing of what they are given."""
SHELLS = ("bash", "sh", "dash", "zsh", "ksh")
MAKERS = re.compile(
    r"python[\d.]*|make|cp|mv|ln|tar|unzip|7z|gunzip|cat|touch|dd|wget|curl|aria2c|rsync|scp|clone"
    r"|lfs|pull|download|sync|vlrft|.*\.(?:sh|py)|" + "|".join(SHELLS)
)
"""Words, one of the first three of a command, that may make files which a run reads."""
ENVIRONMENT = re.compile(
    r"(?:source|\.)\s+\S*(?:/activate|(?:conda|mamba)\.sh|\.bashrc|\.(?:bash_)?profile)\b"
    r"|eval\s+\"?\$\(\S*(?:conda|mamba)\b"
)
"""What switches an environment on; it is taken to set no variable of a run."""
WITHIN = re.compile(
    r"(?:^|[\s;&|'\"/=(])(?:"
    + "|".join(rf"{name}\s+(?:{'|'.join(commands)})" for name, commands in PROGRAMS.items())
    + r")\b"
)
A_SCRIPT = re.compile(r"\.(?:sh|slurm|sbatch)[\"']?$")


@dataclass(slots=True)
class Unwrapped:
    """The inner command has variables that `env` sets for it. ``launcher``: torchrun and the like,
    with ``processes`` and ``nodes`` where it says them.
    """

    words: list[Value]
    variables: dict[str, Variable] = field(default_factory=dict)
    launcher: str = ""
    processes: str = "1"
    nodes: str = "1"


def base(word: Value) -> str:
    return os.path.basename(word.text) if word.known else ""


def command_at(words: Sequence[Value]) -> int | None:
    """Find where the command of ms-swift begins.

    It is `swift rlhf`, `-m swift.cli.rlhf`, `.../cli/rlhf.py`, or Megatron's.
    """
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
    if base(words[0]) in PROGRAMS:
        return (base(words[0]), words[1].text.replace("_", "-")), list(words[2:])
    match, rest = SCRIPT.fullmatch(words[0].text), list(words[1:])
    if not match:
        match, rest = MODULE.fullmatch(words[1].text), rest[1:]
    program, command = ("megatron" if match and match[1] else "swift"), match[2] if match else ""
    if command == "main" and rest:
        command = rest.pop(0).text
    return (program, command.replace("_", "-")), rest


def unwrapped(words: Sequence[Value]) -> Unwrapped | None:
    """Return the command inside of known wrappers; None if there is none, or an unknown one."""
    at = command_at(words)
    if at is None:
        return None
    inner, setter, wrapper = Unwrapped(list(words[at:])), False, True
    for i, word in enumerate(words[:at]):
        name, launcher = base(word), MODULES.get(word.text, base(word))
        if setter and (match := re.match(r"([A-Za-z_]\w*)=", word.text)):
            value = replace(word, text=word.text[match.end() :], span=None)
            inner.variables[match[1]] = Variable(value, exported=True)
            continue
        if wrapper and not WRAPPERS.fullmatch(name):
            return None  # also `env -u A`, which may clear what the command reads
        if word.text.startswith("--export"):
            return None
        setter = name == "env"
        wrapper = wrapper and name in ("nohup", "setsid", "exec", "env")
        if launcher in LAUNCHERS:
            _launched(inner, words[i:], launcher)
        elif PYTHON.fullmatch(name) and not inner.launcher:
            main = any(re.search(r"swift[./]cli[./](_megatron[./])?main", w.text) for w in words)
            inner.launcher = "python" * (base(words[at]) not in PROGRAMS and not main)
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
    inner.launcher, inner.nodes = name, options.get(nodes, "1")
    inner.processes = options.get(processes, default)
    if name == "accelerate":
        divides = inner.processes.isdecimal() and inner.nodes.isdecimal() and int(inner.nodes)
        inner.processes = str(int(inner.processes) // int(inner.nodes)) if divides else ""


def not_read(words: Sequence[Value], fed: str = "") -> str | None:
    """Say why a command that mentions `swift`, or is fed such a text, was not read. None if it
    does not mention it, or only prints.
    """
    name, texts = base(words[0]), [word.text for word in words]
    if PRINTS.fullmatch(name):
        return None
    begins = words[:3] if WRAPPERS.fullmatch(name) else words[:1]
    if any(base(word) in SHELLS or A_SCRIPT.search(word.text) for word in begins):
        shown = " ".join(texts[:3])[:80]
        return f"`{shown}` runs another script, which is not read: give it by itself"
    by_name = not words[0].known and texts[1:] and texts[1] in COMMANDS
    if command_at(words) is None and not any(map(WITHIN.search, (*texts, fed))) and not by_name:
        return None
    who = f"`{name}`" if name else f"`{texts[0]}`, a name that only bash knows,"
    return f"{who} is given a `swift` command, which is not read: give that command by itself"
