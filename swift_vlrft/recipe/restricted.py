"""Run a script in a bash that can start nothing that the script names.

    for N in 1 2; do swift rlhf --beta $N; done     two commands, with their words and variables

bash is restricted (`set -r`), and PATH names no program. A command that is no builtin arrives at
`command_not_found_handle` (prelude.sh), which writes its words, its line and the exported variables
to a descriptor of ours. No redirection of output stays in the text, and no `&`; builtins that reach
outside are disabled. What a program would have printed is marked: it is not known.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import psutil

from swift_vlrft.files.shipped import shipped_file
from swift_vlrft.recipe.reader import RecipeError
from swift_vlrft.recipe.tree import COMMENT_GOES_ON, Node, Note, tree_of

SECONDS = 10.0
MOST_BYTES = 4_000_000
"""Of what is written about commands, and of what bash says."""
MOST_COMMANDS, MOST_PROCESSES = 1_000, 100
MARK = "\1"
"""What a program that was not started would have printed."""
FIELD, HALF, RECORD = "\x1e", "\x1d", "\x1c"
RENAMED = {"PATH": "_pth", "BASH_SOURCE": "_vlrft_file"}
"""Read-only here, or empty in a text without a file; names of the same length."""
DISABLED = (
    "kill exec source . eval trap ulimit umask wait cd pushd popd fg bg jobs suspend history bind "
    "fc disown hash enable"
)
PRELUDE = Path(__file__).with_name("prelude.sh")


@dataclass(slots=True)
class Started:
    """bash would have started this command; a word or value with ``MARK`` is not known."""

    line: int
    words: list[str]
    environment: dict[str, str] = field(default_factory=dict)


def started(
    inert: str, script: str, environment: Mapping[str, str], arguments: Sequence[str] = ()
) -> tuple[list[Started], list[Note]]:
    """Return the commands of an inert script that matter here, in bash's order, and notes.

    These commands mention `swift`, change the folder or read other commands; the
    notes say what bash could not do, as no program ran. ``script`` is `$0`. RecipeError if it does
    not end, or starts commands or processes without end.
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
        prelude = PRELUDE.read_text().replace("@FD@", str(end)) + f"enable -n {DISABLED}\nset -r\n"
        command = ["bash", "--norc", "--noprofile", "-c", prelude + inert, script, *arguments]
        try:
            _run(command, variables | own, end, said)
        finally:
            os.close(end)
        records.seek(0)
        said.seek(0)
        written = records.read().decode(errors="surrogateescape").split(RECORD)[:-1]
        errors = said.read().decode(errors="replace").splitlines()
    if len(written) > MOST_COMMANDS:
        raise RecipeError(f"{script} starts commands without end")
    before = prelude.count("\n")
    commands = [_read(record, before, variables, script) for record in written]
    notes = []
    for error in errors:
        if match := re.match(rf"{re.escape(script)}: line (\d+): (.*)", error):
            line, why = max(1, int(match[1]) - before), match[2].replace(MARK, "?")[:200]
            notes.append(Note(line, "unread", f"under --run bash says: {why}"))
    return commands, list(dict.fromkeys(notes))


def _read(record: str, before: int, caller: Mapping[str, str], script: str) -> Started:
    called, _, exported = record.partition(HALF)
    lines, *words = called.split(FIELD)[:-1] or [""]
    # Of the functions that it was called from, ours first; the last is that of the whole text: 0.
    called_at = [int(line) for line in lines.split() if line.isdecimal() and len(line) < 9]
    line = next((line - before for line in called_at if line > before), 0)
    if not (line and words):
        raise RecipeError(f"{script}: what bash wrote about a command cannot be read")
    variables = dict(item.partition("=")[::2] for item in exported.split(FIELD)[:-1])
    variables["PATH"] = variables.pop("_pth", "")
    ours = {name for name in variables if name.startswith("_vlrft_")} | {"SHLVL", "_"} - {*caller}
    environment = {name: value for name, value in variables.items() if name not in ours}
    return Started(line, words, environment)


def _run(command: list[str], environment: dict[str, str], end: int, said: BinaryIO) -> None:
    """Run bash to its end, or to the limit; no process of it is left afterwards."""

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
            f"{script}: bash does not accept it as one text: {error.strerror}"
        ) from None
    try:
        last = time.monotonic() + SECONDS
        while bash.poll() is None:
            if time.monotonic() > last:
                raise RecipeError(
                    f"{script}: bash did not come to its end in {SECONDS:g} seconds. A loop may "
                    "wait for a program, and no program runs here: check it without --run"
                )
            if len(_session(bash.pid)) > MOST_PROCESSES:
                raise RecipeError(f"{script} starts more than {MOST_PROCESSES} processes at a time")
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
    alive = []
    for process in psutil.pids():
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if os.getsid(process) == leader and (
                psutil.Process(process).status() != psutil.STATUS_ZOMBIE
            ):
                alive.append(process)
    return alive


def make_inert(text: str, script: str) -> tuple[str, list[Note]]:
    """Return the script, line by line, without redirections of output, and notes; RecipeError, with
    its place, where we refuse it.
    """
    inert, notes = COMMENT_GOES_ON.sub(lambda match: f"{match[0][:-1]} ", text), list[Note]()
    edits: list[tuple[int, int, str]] = []
    for node in tree_of(text).walk():
        for redirection in node.Redirs:
            edits += _without(redirection, node, script, notes)
        if node.Background:
            at = node.Semicolon.at
            edits += [(node.Pos.at, node.Pos.at, "( "), (at, at + 1, " );")]
        if node.Type == "CallExpr" and node.Args and {*"/$"} & {*node.Args[0].text}:
            edits.append((node.Args[0].Pos.at, node.Args[0].Pos.at, "_vlrft_run "))
        for name in (node.Name, node.Param):
            if name and (other := RENAMED.get(name.Value)):
                edits.append((name.Pos.at, name.Pos.at + len(other), other))
        if _depends(node):
            why = "a program decides which command runs, and no program was started"
            notes.append(Note(node.line, "unread", why))
    gone = [(first, last) for first, last, other in edits if not other.strip(" _")]
    for first, last, other in sorted(edits, reverse=True):
        # What stands in a redirection that goes, as in > >(tee log), goes with it.
        if not any(begin < first and last <= end for begin, end in gone):
            inert = inert[:first] + other + inert[last:]
    return inert, notes


def _without(
    redirection: Node, node: Node, script: str, notes: list[Note]
) -> list[tuple[int, int, str]]:
    """The edit that takes a redirection of output, or from a file, out of a command."""
    if redirection.Op in ("<<", "<<-", "<<<"):
        return []
    written, first = redirection.text, redirection.Pos.at
    last = first + len(written) + (redirection.source[redirection.End.at :][:1] == "\r")
    if "\n" in written:
        where = f"{script}: line {redirection.line}"
        raise RecipeError(f"{where}: a redirection over several lines; use one line")
    name = redirection.Word.text.strip("'\"") if redirection.Word else ""
    if redirection.Op == "<" and name != "/dev/null":
        why = f"what is read from {name} is not known under --run"
        notes.append(Note(redirection.line, "unread", why))
    blank = " " * (last - first)
    return [(first, last, blank if node.Cmd else f"_{blank[1:]}")]  # $(< FILE)


def _depends(node: Node) -> bool:
    """Say whether a program decides what runs: in `if`, `while` and `case`, and behind `||`."""
    tests = [*node.Cond]
    if node.Type == "CaseClause":
        tests = [node.Word]
    elif node.Type == "BinaryCmd" and node.Op == "||":
        behind = [inner.Value for inner in node.Y.walk() if inner.Type == "Lit"]
        tests = [node.X] if "swift" in behind else []
    calls = [n for test in tests for n in test.walk() if n.Type == "CallExpr" and n.Args]
    return any(call.Args[0].text not in BUILTINS for call in calls)


BUILTINS = {
    *("[", "[[", "test", "true", "false", ":", "echo", "printf", "read", "return", "exit", "set"),
    *("shift", "let", "declare", "local", "export", "basename", "dirname", "expr", "seq", "nproc"),
}
