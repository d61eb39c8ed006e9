"""Find `swift` in a command: behind nohup, env, torchrun, as a module, as a file.

unwrapped(["nohup", "env", "A=1", "swift", "rlhf"])      swift rlhf, A=1
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace

from swift_vlrft.recipe.words import Command, Value, Variable, calculated, number

COMMANDS = ("rlhf", "sft", "pt", "rollout", "infer", "deploy", "export", "eval", "sample")
"""Of ms-swift (swift/cli/main.py)."""
MODULE = re.compile(r"swift\.cli\.(\w+)|(?:.*/)?swift/cli/(\w+)\.py")
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
PRINTS = re.compile(r"echo|printf|cat|tee|which|type|command|[ef]?grep|p?kill|killall|ps|pip3?|:")
"""Commands that run nothing of what they are given."""
ENVIRONMENT = re.compile(
    r"(?:source|\.)\s+(?:\S*/)?(?:activate|(?:conda|mamba)\.sh|\.bashrc|\.(?:bash_)?profile)\b"
    r"|eval\s+\"?\$\(\S*(?:conda|mamba)\b"
)
"""What switches an environment on; it is taken to set no variable of a run."""
WITHIN = re.compile(
    rf"(?:^|[\s;&|'\"/=(])(?:swift|megatron|\$\S+|[\"']?\$\(which swift\)[\"']?)"
    rf"\s+(?:{'|'.join(COMMANDS)})\b|swift[./]cli[./]"
)
"""Text that has a command of ms-swift in it."""
UNKNOWN = re.compile(r"(?:\S*/)?swift\s+(?!(?:web.ui|app|merge.lora|-\S*)(?!\S))[\w-]+(?!\S)")
A_SCRIPT = re.compile(r"(?:nohup\s+)?(?:(?:ba|da|z|k)?sh(?!\S)|\S*\.(?:sh|slurm|sbatch)(?!\S))")


def base(word: Value) -> str:
    return os.path.basename(word.text) if word.known else ""


def command_at(words: Sequence[Value]) -> int | None:
    """Find where the command begins: at `swift rlhf`, swift.cli.rlhf or swift/cli/rlhf.py."""
    for i, word in enumerate(words):
        if base(word) == "swift" and words[i + 1 :]:
            following = words[i + 1]
            if not following.known or following.text.replace("_", "-") in COMMANDS:
                return i
        elif MODULE.fullmatch(word.text):
            return i
    return None


def called(words: Sequence[Value]) -> tuple[str, list[Value]]:
    """Return the command of words that ``command_at`` found, and the words behind."""
    match, rest = MODULE.fullmatch(words[0].text), list(words[1:])
    command = match and (match[1] or match[2])
    if command in (None, "main") and rest:
        command = rest.pop(0).text
    return (command or "").replace("_", "-"), rest


def unwrapped(words: Sequence[Value]) -> tuple[Command, dict[str, Variable]] | None:
    """Return the command behind nohup, env, a launcher or python, and the variables of `env`; None
    if there is none, or if it stands behind anything else.
    """
    at = command_at(words)
    if at is None:
        return None
    here, line = [*words[at:]], words[at].line
    inner = Command(environment={}, line=line, words=here, launched=("1", "1"))
    variables, setter, options = dict[str, Variable](), False, False
    for i, word in enumerate(words[:at]):
        name = MODULES.get(word.text, base(word))
        if setter and (match := re.match(r"([A-Za-z_]\w*)=", word.text)):
            value = replace(word, text=word.text[match.end() :], span=None)
            variables[match[1]] = Variable(value, exported=True)
        elif name in LAUNCHERS:
            _launched(inner, words[i:], name)
            options = True
        elif PYTHON.fullmatch(name) and not options:
            main = base(words[at]) == "swift" or MODULE.sub(r"\1\2", words[at].text) == "main"
            inner.launcher, options = "" if main else "python", True
        elif not options and name not in ("env", "nohup", "setsid", "exec"):
            return None  # also `env -u A`, which may clear what the command reads
        else:
            setter = name == "env"
    return inner, variables


def _launched(inner: Command, words: Sequence[Value], name: str) -> None:
    """Read how many processes a launcher starts on each node."""
    options: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], Value("", 0)], strict=True):
        option, equals, value = word.text.partition("=")
        known = word.known if equals else following.known
        value = value if equals else following.text
        options.setdefault(option.lstrip("-").replace("-", "_"), value if known else "")
    processes, nodes, default = LAUNCHERS[name]
    on_each, on = options.get(processes, default), options.get(nodes, "1")
    if name == "accelerate":
        on_each = str(calculated(number(on_each), "/", number(on)) or "")
    inner.launcher, inner.launched = name, (on_each, on)


def not_read(text: str) -> str | None:
    """Say why a command that mentions `swift`, or runs another script, was not read. None if it
    does neither, or only prints.
    """
    name, shown = text.split(maxsplit=1)[0], text.splitlines()[0][:80]
    if PRINTS.fullmatch(name):
        return None
    if A_SCRIPT.match(text):
        return f"`{shown}` runs another script, which is not read: give it by itself"
    if UNKNOWN.match(text):
        return f"`{shown}`: ms-swift has no such command; known are {', '.join(COMMANDS)}"
    if name == "megatron":
        return "`megatron` is not read: flags of `swift` are checked"
    if WITHIN.search(text):
        return f"`{name}` is given a `swift` command, which is not read: give that by itself"
    return None
