"""A script read by bash itself, in which nothing that it names can start: `vlrft check --run`.

    for N in 1 2; do swift rlhf --model m --learning_rate ${N}e-6; done     two commands

bash runs the script restricted (`set -r`) and without a program on its PATH. What is no builtin
arrives at `command_not_found_handle`, which writes the words, the line and the exported variables
to a descriptor of ours. No redirection of output stays in the text, and no `&`; builtins that reach
outside are disabled. What a program would have printed is marked, and no value of a flag.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import psutil

from swift_vlrft.files.shipped import shipped_file
from swift_vlrft.recipe.reader import (
    CONFIGURATION,
    SUBSTITUTIONS,
    Flag,
    Recipe,
    RecipeError,
    read_file,
    read_recipes,
    recipe_of,
)
from swift_vlrft.recipe.shell.shell import Shell
from swift_vlrft.recipe.shell.tree import Note, shfmt

SECONDS = 10.0
MOST_BYTES = 4_000_000
"""Of what is written about commands: about a thousand of them."""
MOST_PROCESSES = 100
MARK = "\1"
"""What a program that was not started would have printed."""
FIELD, HALF, RECORD = "\x1e", "\x1d", "\x1c"
RENAMED = {b"PATH": b"_pth", b"BASH_SOURCE": b"_vlrft_file"}
"""Read-only here, or empty in a text without a file; names of the same length."""
DISABLED = (
    "kill exec source . eval trap ulimit umask wait cd pushd popd fg bg jobs suspend history bind "
    "fc disown hash enable"
)
PRELUDE = r"""
command_not_found_handle() {
  case "$*" in
    "vlrft plugin") printf '%s' "$_vlrft_plugin"; return ;;
    cd*|pushd*|popd*|source*|.\ *|*swift*|*megatron*)
      local name record
      builtin printf -v record '%s\036' "${BASH_LINENO[0]}" "$@"
      record+=$'\035'
      for name in $(builtin compgen -e); do record+="$name=${!name}"$'\036'; done
      builtin printf '%s\034' "$record" 1<&3 ;;
  esac
  builtin printf '\1'
}
basename() { local a=${1%/}; a=${a##*/}; printf '%s\n' "${a%"${2-}"}"; }
dirname() {
  local a=${1%/}
  case $a in */*) a=${a%/*}; printf '%s\n' "${a:-/}" ;; *) printf '.\n' ;; esac
}
expr() {
  case "$#${2-}" in 3[-+*/%]|3[\<\>]) printf '%s\n' "$(($1 $2 $3))" ;; *) printf '\1' ;; esac
}
nproc() { printf '%s\n' "$_vlrft_cores"; }
seq() {
  local a=1 step=1 last between=$'\n' glue=
  case ${1-} in -s) between=$2; shift 2 ;; -s*) between=${1#-s}; shift ;; esac
  case $# in 1) last=$1 ;; 2) a=$1 last=$2 ;; 3) a=$1 step=$2 last=$3 ;; *) a=- ;; esac
  case "$a$step$last" in *[!-0-9]*|-) printf '\1'; return ;; esac
  for ((; step > 0 ? a <= last : step < 0 && a >= last; a += step)); do
    printf '%s%s' "$glue" "$a"; glue=$between
  done
}
: & # so that $! is set
readonly FUNCNEST=50 _vlrft_plugin _vlrft_cores SHELL ENV BASH_ENV
readonly -f command_not_found_handle basename dirname expr nproc seq
"""


@dataclass(slots=True)
class Started:
    """A command that bash would have started; a word or value with ``MARK`` is not known."""

    line: int
    words: list[str]
    environment: dict[str, str] = field(default_factory=dict)


def started(
    text: str, script: str, environment: Mapping[str, str], arguments: Sequence[str] = ()
) -> tuple[list[Started], list[Note]]:
    """The commands of ``text`` that mention `swift` or `megatron`, and those that change the folder
    or read another script, in bash's order; and where bash failed for want of what a program would
    have printed. ``script`` is `$0`.

    RecipeError if bash refuses the text, does not end, or prints without end.
    """
    prelude = PRELUDE + f"enable -n {DISABLED}\nreadonly PATH\nset -r\n"
    variables = {n: v for n, v in environment.items() if not n.startswith(("BASH", "SHELLOPTS"))}
    own = {
        "PATH": "/dev/null",
        "_pth": environment.get("PATH", ""),
        "_vlrft_file": script,
        "_vlrft_plugin": str(shipped_file("plugins", "vlrft.py")),
        "_vlrft_cores": str(os.cpu_count() or 1),
    }
    command = ["bash", "--norc", "--noprofile", "-c", prelude + _inert(text, script), script]
    with tempfile.TemporaryFile() as said:
        written = _written([*command, *arguments], variables | own, said)
        said.seek(0)
        errors = said.read(10_000).decode(errors="replace").splitlines()
    before = prelude.count("\n")
    found = [_read(record, before, variables) for record in written.split(RECORD)[:-1]]
    notes = []
    for error in errors:
        if match := re.match(rf"{re.escape(script)}: line (\d+): (.*)", error):
            line, why = int(match[1]) - before, match[2]
            if MARK in why:
                text = "bash computes or compares what only a program knows; give it by itself"
                notes.append(Note(line, "unread", text))
            elif "syntax error" in why:
                raise RecipeError(f"{script}: line {line}: bash refuses it: {why}")
    return found, notes


def _read(record: str, before: int, caller: Mapping[str, str]) -> Started:
    called, _, exported = record.partition(HALF)
    line, *words = called.split(FIELD)[:-1] or [""]
    if not line.isdecimal():
        raise RecipeError(f"what bash wrote about a command cannot be read: {record[:40]!r}")
    variables = dict(item.partition("=")[::2] for item in exported.split(FIELD)[:-1])
    variables["PATH"] = variables.pop("_pth", "")
    ours = {name for name in variables if name.startswith("_vlrft_")} | {"SHLVL", "_"} - {*caller}
    kept = {name: value for name, value in variables.items() if name not in ours}
    return Started(max(1, int(line) - before), words, kept)


def _written(command: list[str], environment: dict[str, str], said: BinaryIO) -> str:
    """What the handler wrote, until bash ends."""

    def bounded() -> None:
        os.dup2(end, 3, inheritable=True)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))

    with tempfile.TemporaryFile() as records:
        end = os.open(f"/proc/self/fd/{records.fileno()}", os.O_WRONLY | os.O_APPEND)
        try:
            bash = subprocess.Popen(
                command,
                executable=shutil.which("bash"),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
                close_fds=False,
                preexec_fn=bounded,
            )
        finally:
            os.close(end)
        try:
            _wait(bash, records, command[5])
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(bash.pid, signal.SIGKILL)
            bash.wait()
        records.seek(0)
        return records.read().decode(errors="surrogateescape")


def _wait(bash: subprocess.Popen[bytes], records: BinaryIO, script: str) -> None:
    end = time.monotonic() + SECONDS
    while bash.poll() is None:
        if time.monotonic() > end:
            raise RecipeError(f"{script}: bash has not come to its end in {SECONDS:g} seconds")
        with contextlib.suppress(psutil.NoSuchProcess):
            if len(psutil.Process(bash.pid).children(recursive=True)) > MOST_PROCESSES:
                raise RecipeError(
                    f"{script}: it starts more than {MOST_PROCESSES} processes at a time"
                )
        time.sleep(0.01)
    if os.fstat(records.fileno()).st_size >= MOST_BYTES:
        raise RecipeError(f"{script}: it starts commands without end")


def _inert(text: str, script: str) -> str:
    """The script without redirections of output or files and without `&`, line by line the same."""
    data = bytearray(text.encode(errors="surrogateescape"))
    done = subprocess.run([shfmt(), "--to-json", "-ln", "bash"], input=data, capture_output=True)
    if done.returncode:
        match = re.match(r"(?:<.*>:)?(\d+):(\d+): (.*)", done.stderr.decode(errors="replace"))
        line, column, why = match.groups() if match else (1, 1, "not bash")
        raise RecipeError(f"{script}: line {line}, column {column}: {why}")
    for node in _nodes(json.loads(done.stdout)):
        for redirection in node.get("Redirs") or ():
            if redirection["Op"] not in ("<<", "<<-", "<<<"):
                first, last = redirection["Pos"]["Offset"], redirection["End"]["Offset"]
                data[first:last] = b" " * (last - first)
                if not node.get("Cmd"):  # $(< FILE)
                    data[first : first + 1] = b"_"
        if node.get("Background"):
            at = node["Semicolon"]["Offset"]
            data[at : at + 1] = b";"
        for name in (node.get("Name"), node.get("Param")):
            if isinstance(name, dict) and (other := RENAMED.get(name["Value"].encode())):
                first = name["Pos"]["Offset"]
                data[first : first + len(other)] = other
    return data.decode(errors="surrogateescape")


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
    for inner in (
        tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    ):
        yield from _nodes(inner)


def run_recipes(
    path: str | Path,
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> list[Recipe]:
    """As ``reader.read_recipes``, with every command that bash reaches: each turn of a loop, the
    branch that is taken, a function where it is called. Nothing in it can be edited.

    RecipeError also where the script cannot be read by running it, or reaches no command.
    """
    path = Path(path)
    text = read_file(path)
    if path.suffix in CONFIGURATION:
        return read_recipes(path, environment)
    caller = os.environ if environment is None else environment
    commands, notes = started(text, str(path), caller, arguments)
    recipes: list[Recipe] = []
    moved = False
    for command in commands:
        name = command.words[0]
        if name in ("cd", "pushd", "popd"):
            moved = True
        elif name in ("source", "."):
            notes.append(Note(command.line, "unread", f"{name} is not followed under --run"))
        else:
            recipes += _recipes(command, path, text, moved, bool(notes))
    if not recipes:
        raise RecipeError(f"{path}: bash comes to its end and starts no `swift` or `megatron`")
    for recipe in recipes:
        recipe.notes += notes
    return recipes


def _recipes(
    command: Started, path: Path, text: str, moved: bool, sourced: bool
) -> Iterator[Recipe]:
    known = {name: value for name, value in command.environment.items() if MARK not in value}
    shell = Shell(known, (), SUBSTITUTIONS, str(path))
    shell.read(as_text(command.words))
    for recipe in map(lambda one: recipe_of(one, path), shell.commands):
        recipe.text, recipe.span, recipe.start, recipe.assigned = text, None, None, {}
        recipe.unknown = frozenset(command.environment.keys() - known.keys())
        recipe.lost = recipe.lost or sourced
        recipe.folder = None if moved else recipe.folder
        recipe.line = command.line
        recipe.notes = [replace(note, line=command.line) for note in recipe.notes]
        recipe.flags = [_placed(flag, text, command.line) for flag in recipe.flags]
        yield recipe


def _placed(flag: Flag, text: str, line: int) -> Flag:
    """With the line where the flag is written: below its command, else anywhere, else there."""
    lines = text.split("\n")
    word = re.compile(rf"(?<![\w-])--{re.escape(flag.name).replace('_', '[-_]')}(?![\w-])")
    places = [at for at, content in enumerate(lines, 1) if word.search(content)]
    at = next((at for at in places if at >= line), places[0] if places else line)
    return replace(flag, line=at, span=None, value_spans=(None,) * len(flag.values))


def as_text(words: Sequence[str]) -> str:
    """A command line that is read as these words; a part that is not known is `$(...)`."""
    return " ".join(
        '"$(...)"'.join(shlex.quote(part) if part else "" for part in word.split(MARK)) or "''"
        for word in words
    )
