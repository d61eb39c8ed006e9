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
from swift_vlrft.recipe.shell.words import ASSIGNMENT, Span

COMMANDS = ("rlhf", "sft", "pt", "rollout", "infer", "deploy", "export", "eval", "sample")
SHELLS = ("bash", "sh", "dash", "zsh", "ksh")
LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "horovodrun")
"""They start the processes themselves, whatever NPROC_PER_NODE says."""
WRAPPERS = re.compile(
    r"nohup|setsid|exec|env|command|builtin|time|stdbuf|nice|ionice|timeout|chrt|taskset|numactl"
    r"|sudo|doas|xvfb-run|uvx?|poetry|pixi|pdm|hatch|rye|pipenv|conda|mamba|micromamba|srun|nsys"
    r"|ncu|py-spy|flock|unbuffer|catchsegv|strace|perf|dotenv|direnv|caffeinate|systemd-run"
    r"|systemd-inhibit|setarch|prlimit|cgexec|chronic|tini|dumb-init|gosu|coproc|retry|viztracer"
    r"|scalene|memray|coverage|" + "|".join(LAUNCHERS)
)
PRINTS = re.compile(r"echo|printf|which|type|[ef]?grep|pgrep|pkill|kill|killall|ps|pip|test|\[|:")
PYTHON = re.compile(r"python[\d.]*|pypy[\d.]*")
ENV_VALUES = ("-u", "--unset", "-C", "--chdir", "-S", "--split-string")
SUDO_VALUES = ("-u", "-g", "-h", "-p", "-C", "-T", "-D", "-R", "-r", "-t", "--user", "--group")
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
        if not word.known:
            continue
        if os.path.basename(word.text) == "swift" and following is not None:
            if following.text.replace("_", "-") in COMMANDS or (i == 0 and not following.known):
                return i
        elif word.text in ("-m", "--module") and following is not None:
            if following.text.startswith("swift.cli."):
                return i
        elif re.search(r"(?:^|/)swift/cli/\w+\.py$", word.text):
            return i
    return None


def unwrapped(words: Sequence[Value]) -> Unwrapped | None:
    """The command inside of known wrappers; None where the first word is none that is known."""
    found = Unwrapped(list(words))
    while found.words:
        name = base(found.words[0])
        if command_at(found.words) == 0:
            return found
        if name == "env":
            _env(found)
        elif name in ("sudo", "doas"):
            _sudo(found)
        elif name in SHELLS:
            return found
        elif PYTHON.fullmatch(name):
            return _python(found)
        elif WRAPPERS.fullmatch(name):
            if not _inside(found, name):
                return None
        else:
            return None
    return None


def _inside(found: Unwrapped, name: str) -> bool:
    """Go on at what a wrapper runs, past its own options."""
    words = found.words
    if name in LAUNCHERS:
        _launched(found, name, words)
    inner = [
        i
        for i, word in enumerate(words[1:], 1)
        if base(word) in ("env", "sudo", "doas", *LAUNCHERS)
        or (base(word) in SHELLS and any(_runs_text(other) for other in words[i + 1 : i + 3]))
        or PYTHON.fullmatch(base(word))
    ]
    at = command_at(words)
    steps = [i for i in inner if at is None or i < at]
    if name == "srun":
        _srun(found, words[: at or len(words)])
    if steps and (at is None or base(words[steps[0]]) in ("env", "sudo", "doas", *LAUNCHERS)):
        found.words = words[steps[0] :]
        return True
    python = [i for i in steps if PYTHON.fullmatch(base(words[i]))]
    if at is None:
        return False
    found.words = words[python[-1] if python and words[at].text != "swift" else at :]
    return True


def _runs_text(word: Value) -> bool:
    return bool(re.fullmatch(r"-[a-z]*c[a-z]*", word.text))


def _python(found: Unwrapped) -> Unwrapped | None:
    words = found.words
    at = command_at(words)
    if at is None:
        return None
    modules = [w.text for w in words[1:at]]
    if any(m in ("torch.distributed.run", "torch.distributed.launch") for m in modules):
        _launched(found, "torchrun", words)
    elif "accelerate.commands.launch" in modules:
        _launched(found, "accelerate", words)
    found.launcher = found.launcher or ("" if base(words[at]) == "swift" else "python")
    found.words = words[at:]
    return found


def _launched(found: Unwrapped, name: str, words: Sequence[Value]) -> None:
    """The processes that a launcher says it starts, on each node."""
    found.launcher, found.processes, found.nodes = name, "", ""
    given: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], Value("", 0)], strict=True):
        option, equals, value = word.text.partition("=")
        value = value if equals else following.text
        known = word.known if equals else following.known
        given.setdefault(option.lstrip("-").replace("-", "_"), value if known else "")
    if name == "torchrun":
        found.processes = given.get("nproc_per_node", "1")
        found.nodes = given.get("nnodes", "1")
    elif name == "accelerate":
        found.nodes, total = given.get("num_machines", "1"), given.get("num_processes", "")
        if total.isdigit() and found.nodes.isdigit() and int(found.nodes):
            found.processes = str(int(total) // int(found.nodes))
    elif name == "deepspeed":
        found.processes, found.nodes = given.get("num_gpus", ""), given.get("num_nodes", "1")


def _srun(found: Unwrapped, words: Sequence[Value]) -> None:
    for word in words:
        if word.text.startswith("--export="):
            names = word.text.removeprefix("--export=").split(",")
            found.hidden |= "ALL" not in names or not word.known
            for name, equals, value in (one.partition("=") for one in names):
                if equals:
                    found.set[name] = (replace(word, text=value, span=None), None)


def _env(found: Unwrapped) -> None:
    words = found.words[1:]
    while words:
        text = words[0].text
        if text in ("-i", "-", "--ignore-environment"):
            found.cleared = True
            found.set.clear()
        elif text in ENV_VALUES and len(words) > 1:
            if text in ("-u", "--unset"):
                found.unset.append(words[1].text)
            elif text in ("-S", "--split-string"):
                parts = words[1].text.split()
                words[2:2] = [replace(words[1], text=part, span=None) for part in parts]
            words = words[1:]
        elif re.match(r"-u.|--unset=", text):
            found.unset.append(re.sub(r"^-u|^--unset=", "", text))
        elif match := ASSIGNMENT.match(text):
            found.set[match[1]] = assignment(words[0], match)
        elif not text.startswith("-"):
            break
        words = words[1:]
    found.words = words


def assignment(word: Value, match: re.Match[str]) -> tuple[Value, Assigned | None]:
    """The value and the place of NAME=value given as a word."""
    value, span = replace(word, text=word.text[match.end() :], span=None), word.span
    if span is None or not span.literal:
        return value, None
    key = Span(span.start, span.start + len(match[1]))
    return value, Assigned(word.line, key, Span(span.start + match.end(), span.end))


def _sudo(found: Unwrapped) -> None:
    words = found.words[1:]
    keeps = False
    while words:
        text = words[0].text
        if text in ("-E", "--preserve-env"):
            keeps = True
        elif text in SUDO_VALUES:
            words = words[1:]
        elif match := ASSIGNMENT.match(text):
            found.set[match[1]] = assignment(words[0], match)
        elif not text.startswith("-"):
            break
        words = words[1:]
    found.hidden |= not keeps
    found.words = words


def not_read(words: Sequence[Value], fed: str = "") -> str | None:
    """Why a command that mentions `swift`, or is fed a text that does, was not read; None where it
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
