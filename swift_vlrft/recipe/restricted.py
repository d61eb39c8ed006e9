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
"""Of what is written about commands, and of what bash says."""
MOST_COMMANDS, MOST_PROCESSES = 1_000, 100
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
_vlrft_record() {
  local IFS=$' \t\n' _vlrft_r _vlrft_n
  builtin printf -v _vlrft_r '%s\036' "$@"
  _vlrft_r+=$'\035'
  for _vlrft_n in $(builtin compgen -e); do _vlrft_r+="$_vlrft_n=${!_vlrft_n-}"$'\036'; done
  builtin printf '%s\034' "$_vlrft_r" 1<&@FD@
}
command_not_found_handle() {
  local IFS=$' \t\n'
  case "$*" in
    "vlrft plugin") builtin printf '%s' "$_vlrft_plugin"; return ;;
    source*|.\ *|eval*|bash*|sh\ *|sbatch*|ssh\ *|xargs*|*swift*|*megatron*|$'\1'*)
      _vlrft_record "${BASH_LINENO[0]}" "$@" ;;
  esac
  builtin printf '\1\n'
}
cd() { _vlrft_record "${BASH_LINENO[0]}" cd "$@"; PWD=$'\1'; }
pushd() { cd "$@"; }
popd() { cd; }
pwd() { builtin printf '%s\n' "$PWD"; }
exec() { [ $# = 0 ] || { _vlrft_record "${BASH_LINENO[0]}" "$@"; exit; } }
command() { case ${1-} in -*) builtin printf '\1\n' ;; *) "$@" ;; esac; }
type() { builtin printf '\1\n'; }
nproc() { builtin printf '%s\n' "$_vlrft_cores"; }
basename() {
  case $#${1--} in *$'\1'*|[!12]*|?-*) builtin printf '\1\n'; return ;; esac
  local _vlrft_a=${1%/}
  _vlrft_a=${_vlrft_a##*/}
  builtin printf '%s\n' "${_vlrft_a%"${2-}"}"
}
dirname() {
  case $#${1--} in *$'\1'*|[!1]*|?-*) builtin printf '\1\n'; return ;; esac
  local _vlrft_a=${1%/}
  case $_vlrft_a in
    */*) _vlrft_a=${_vlrft_a%/*}; builtin printf '%s\n' "${_vlrft_a:-/}" ;;
    *) builtin printf '.\n' ;;
  esac
}
expr() {
  case "${1-}${3-}" in *[!-0-9]*) builtin printf '\1\n'; return ;; esac
  case "$#${2-}" in
    3[-+*/%]) builtin printf '%s\n' "$(($1 $2 $3))" ;;
    *) builtin printf '\1\n' ;;
  esac
}
seq() {
  local _vlrft_a=1 _vlrft_s=1 _vlrft_z _vlrft_b=$'\n' _vlrft_g=
  case ${1-} in -s) _vlrft_b=$2; shift 2 ;; -s*) _vlrft_b=${1#-s}; shift ;; esac
  case $# in
    1) _vlrft_z=$1 ;; 2) _vlrft_a=$1 _vlrft_z=$2 ;; 3) _vlrft_a=$1 _vlrft_s=$2 _vlrft_z=$3 ;;
    *) _vlrft_z=x ;;
  esac
  case "$_vlrft_a$_vlrft_s$_vlrft_z" in *[!-0-9]*|-) builtin printf '\1\n'; return ;; esac
  for ((; _vlrft_s > 0 ? _vlrft_a <= _vlrft_z : _vlrft_s < 0 && _vlrft_a >= _vlrft_z;
          _vlrft_a += _vlrft_s)); do
    builtin printf '%s%s' "$_vlrft_g" "$_vlrft_a"; _vlrft_g=$_vlrft_b
  done
}
: & # so that $! is set
HISTFILE=
readonly FUNCNEST=10 PATH HISTFILE HISTSIZE HISTFILESIZE _vlrft_plugin _vlrft_cores
readonly -f $(builtin compgen -A function)
"""
NOT_READ = ("bash", "sh", "sbatch", "ssh", "xargs", "eval")
"""What is given commands that are not followed, but for a `swift` that is written out."""


@dataclass(slots=True)
class Started:
    """A command that bash would have started; a word or value with ``MARK`` is not known."""

    line: int
    words: list[str]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Inert:
    """A script in which no redirection of output is left, line by line the same."""

    text: str
    written: dict[str, str | None] = field(default_factory=dict)
    """The files that it would write, by their names; their text is not known."""
    notes: list[Note] = field(default_factory=list)


def started(
    inert: Inert, script: str, environment: Mapping[str, str], arguments: Sequence[str] = ()
) -> tuple[list[Started], list[Note]]:
    """The commands of a script that mention `swift` or `megatron`, and those that change the folder
    or read other commands, in bash's order; and what bash could not do, for want of what a program
    would have printed, say. ``script`` is `$0`.

    RecipeError if it does not end, or starts commands or processes without end.
    """
    variables = {n: v for n, v in environment.items() if not n.startswith(("BASH", "SHELLOPTS"))}
    own = {
        "PATH": "/dev/null",
        "_pth": environment.get("PATH", ""),
        "_vlrft_file": script,
        "_vlrft_plugin": str(shipped_file("plugins", "vlrft.py")),
        "_vlrft_cores": str(len(os.sched_getaffinity(0))),
    }
    with tempfile.TemporaryFile() as records, tempfile.TemporaryFile() as said:
        end = os.open(f"/proc/self/fd/{records.fileno()}", os.O_WRONLY | os.O_APPEND)
        prelude = PRELUDE.replace("@FD@", str(end)) + f"enable -n {DISABLED}\nset -r\n"
        command = ["bash", "--norc", "--noprofile", "-c", prelude + inert.text, script, *arguments]
        try:
            _run(command, variables | own, end, said)
        finally:
            os.close(end)
        records.seek(0)
        said.seek(0)
        written = records.read().decode(errors="surrogateescape").split(RECORD)[:-1]
        errors = said.read().decode(errors="replace").splitlines()
    if len(written) > MOST_COMMANDS:
        raise RecipeError(f"{script}: it starts commands without end")
    before = prelude.count("\n")
    found = [_read(record, before, variables, script) for record in written]
    notes = []
    for error in errors:
        if match := re.match(rf"{re.escape(script)}: line (\d+): (.*)", error):
            line, why = max(1, int(match[1]) - before), match[2].replace(MARK, "?")[:200]
            text = f"bash, without the programs that the script starts: {why}"
            notes.append(Note(line, "unread", text))
    return found, list(dict.fromkeys(notes))


def _read(record: str, before: int, caller: Mapping[str, str], script: str) -> Started:
    called, _, exported = record.partition(HALF)
    line, *words = called.split(FIELD)[:-1] or [""]
    if not (line.isdecimal() and len(line) < 9 and words):
        raise RecipeError(f"{script}: what bash wrote about a command cannot be read")
    variables = dict(item.partition("=")[::2] for item in exported.split(FIELD)[:-1])
    variables["PATH"] = variables.pop("_pth", "")
    ours = {name for name in variables if name.startswith("_vlrft_")} | {"SHLVL", "_"} - {*caller}
    kept = {name: value for name, value in variables.items() if name not in ours}
    return Started(max(1, int(line) - before), words, kept)


def _run(command: list[str], environment: dict[str, str], end: int, said: BinaryIO) -> None:
    """To its end, and nothing of it is left then."""

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))

    script = command[5]
    try:
        bash = subprocess.Popen(
            command,
            executable=shutil.which("bash"),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
            pass_fds=(end,),
            preexec_fn=bounded,
        )
    except OSError as error:
        raise RecipeError(
            f"{script}: bash does not take it as one text: {error.strerror}"
        ) from None
    try:
        last = time.monotonic() + SECONDS
        while bash.poll() is None:
            if time.monotonic() > last:
                raise RecipeError(
                    f"{script}: bash has not come to its end in {SECONDS:g} seconds. A loop may "
                    "wait for a program, and none runs here: check it without --run"
                )
            if len(_session(bash.pid)) > MOST_PROCESSES:
                raise RecipeError(
                    f"{script}: it starts more than {MOST_PROCESSES} processes at a time"
                )
            time.sleep(0.01)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(bash.pid, signal.SIGKILL)  # all at once: they may fork faster than we look
        while left := _session(bash.pid):
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            bash.poll()
        bash.wait()
    if bash.returncode < 0:
        raise RecipeError(f"{script}: bash was ended by signal {-bash.returncode}")


def _session(leader: int) -> list[int]:
    """The processes of a session: `set -m` gives them other groups, but no other session."""
    found = []
    for process in psutil.pids():
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if os.getsid(process) == leader and (
                psutil.Process(process).status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process)
    return found


def make_inert(text: str, script: str) -> Inert:
    """RecipeError where bash or we refuse the script, with line and column."""
    data = text.encode(errors="surrogateescape")
    if b"\0" in data:
        line = data[: data.index(b"\0")].count(b"\n") + 1
        raise RecipeError(f"{script}: line {line}: a byte 0, which bash does not take")
    done = subprocess.run([shfmt(), "--to-json", "-ln", "bash"], input=data, capture_output=True)
    if done.returncode:
        match = re.match(r"(?:<.*>:)?(\d+):(\d+): (.*)", done.stderr.decode(errors="replace"))
        line_, column, why = match.groups() if match else (1, 1, "not bash")
        raise RecipeError(f"{script}: line {line_}, column {column}: {why}")
    inert, edits = Inert(""), []
    try:
        nodes = list(_nodes(json.loads(done.stdout)))
    except RecursionError:
        raise RecipeError(f"{script}: commands are nested too deeply for --run") from None
    for node in nodes:
        for redirection in node.get("Redirs") or ():
            edits += _without(redirection, node, data, script, inert)
        if node.get("Background"):
            at = node["Semicolon"]["Offset"]
            edits += [(node["Pos"]["Offset"],) * 2 + (b"(",), (at, at + 1, b");")]
        for name in (node.get("Name"), node.get("Param")):
            if isinstance(name, dict) and (other := RENAMED.get(name["Value"].encode())):
                first = name["Pos"]["Offset"]
                edits.append((first, first + len(other), other))
        if node.get("Type") in ("IfClause", "WhileClause", "CaseClause"):
            tests = node.get("Word") if node["Type"] == "CaseClause" else node.get("Cond")
            if any(map(_starts, _nodes(tests))):
                why = "which branch is taken depends on a program, and none was started"
                inert.notes.append(Note(node["Pos"]["Line"], "unread", why))
    for first, last, other in sorted(edits, reverse=True):
        data = data[:first] + other + data[last:]
    inert.text = data.decode(errors="surrogateescape")
    return inert


def _without(
    redirection: dict[str, Any], node: dict[str, Any], data: bytes, script: str, inert: Inert
) -> list[tuple[int, int, bytes]]:
    """The edit that takes a redirection of output, or from a file, out of a command."""
    if redirection["Op"] in ("<<", "<<-", "<<<"):
        return []
    first, last = redirection["Pos"]["Offset"], redirection["End"]["Offset"]
    line, written = redirection["Pos"]["Line"], data[first:last]
    if b"\n" in written:
        raise RecipeError(f"{script}: line {line}: a redirection over several lines; use one line")
    word = redirection.get("Word") or {}
    name = data[word["Pos"]["Offset"] : word["End"]["Offset"]].decode(errors="replace").strip("'\"")
    if redirection["Op"] != "<":
        inert.written[name] = None
    elif name != "/dev/null":
        why = f"what is read from {name} is not known under --run"
        inert.notes.append(Note(line, "unread", why))
    blank = b" " * len(written)
    return [(first, last, blank if node.get("Cmd") else b"_" + blank[1:])]  # $(< FILE)


BUILTINS = {
    *("[", "[[", "test", "true", "false", ":", "echo", "printf", "read", "return", "exit", "set"),
    *("shift", "let", "declare", "local", "export", "basename", "dirname", "expr", "seq", "nproc"),
}


def _starts(node: dict[str, Any]) -> bool:
    """Whether it is a command that bash does not know itself."""
    if node.get("Type") != "CallExpr" or not node.get("Args"):
        return False
    parts = node["Args"][0]["Parts"]
    return not (len(parts) == 1 and parts[0].get("Value") in BUILTINS)


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
    inert = make_inert(text, str(path))
    commands, notes = started(inert, str(path), caller, arguments)
    notes = [*inert.notes, *notes]
    recipes: list[Recipe] = []
    moved = sourced = False
    for command in commands:
        name, made = command.words[0], []
        if name == "cd":
            moved = True
        elif name not in ("source", "."):
            made = list(_recipes(command, path, text, moved, sourced, inert.written))
        if not made and (name in ("source", ".", *NOT_READ) or MARK in name):
            shown = name.replace(MARK, "$(...)")
            notes.append(Note(command.line, "unread", f"{shown} is not followed under --run"))
            sourced = sourced or name in ("source", ".", "eval")
        recipes += made
    notes = sorted(dict.fromkeys(notes), key=lambda note: note.line)
    if not recipes:
        why = "; ".join(f"line {note.line}: {note.text}" for note in notes[-3:])
        raise RecipeError(
            f"{path}: bash comes to its end and starts no `swift` or `megatron`"
            + (why and f". {why}")
        )
    for recipe in recipes:
        recipe.notes += notes
    return recipes


def _recipes(
    command: Started,
    path: Path,
    text: str,
    moved: bool,
    sourced: bool,
    written: dict[str, str | None],
) -> Iterator[Recipe]:
    known = {name: value for name, value in command.environment.items() if MARK not in value}
    shell = Shell(known, (), SUBSTITUTIONS, str(path))
    shell.read(as_text(command.words))
    for one in shell.commands:
        one.written = written
        one.folder = None if moved else one.folder
        recipe = recipe_of(one, path)
        recipe.text, recipe.span, recipe.start, recipe.assigned = text, None, None, {}
        recipe.unknown = frozenset(command.environment.keys() - known.keys())
        recipe.lost = recipe.lost or sourced
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
