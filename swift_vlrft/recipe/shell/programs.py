"""The programs of a script: `swift`, what runs it, and other shells; all else is passed over.

MAX_PIXELS=1 srun bash -c "uv run swift rlhf --x 1" -> Command(words swift, rlhf, --x, 1)
"""

from __future__ import annotations

import re
from dataclasses import replace

from swift_vlrft.recipe.shell.expand import joined
from swift_vlrft.recipe.shell.grammar import Simple
from swift_vlrft.recipe.shell.reader import Command, Reader
from swift_vlrft.recipe.shell.state import State, Value, Variable
from swift_vlrft.recipe.shell.words import Note, Span
from swift_vlrft.recipe.shell.wrappers import (
    SHELLS,
    Unwrapped,
    base,
    command_at,
    not_read,
    unwrapped,
)

FOR_SWIFT = re.compile(
    r"NPROC_PER_NODE|NNODES|NODE_RANK|MASTER_(?:ADDR|PORT)|CUDA_VISIBLE_DEVICES|USE_HF|HF_\w+"
    r"|MODELSCOPE_CACHE|PYTORCH_\w*ALLOC_CONF|MAX_PIXELS|MIN_PIXELS|IMAGE_M(?:AX|IN)_TOKEN_NUM"
    r"|ROOT_IMAGE_DIR|VLRFT_\w+"
)
"""Variables that are of use only in the environment of `swift`."""


def external(shell: Reader, node: Simple, values: list[Value]) -> None:
    """A program: `swift`, what runs it, or another that is of no use here."""
    found = unwrapped([value for value in values if not value.vanishes])
    name = base(found.words[0]) if found and found.words else ""
    if found is not None and name in SHELLS:
        _another_shell(shell, node, found)
    elif found is not None and command_at(found.words) == 0:
        if not shell.quiet:
            _swift(shell, node, values, found)
    elif why := not_read(values, _handed_on(node, values)):
        shell.note(Note(values[0].line, "unread", why))


def _handed_on(node: Simple, values: list[Value]) -> str:
    """What a program reads, but for `cat <<EOF`, which shows it."""
    shows = values and base(values[0]) in ("cat", "tee") and not node.redirected
    return node.fed.text if node.fed and not shows else ""


def _another_shell(shell: Reader, node: Simple, found: Unwrapped) -> None:
    """`bash -c "text" name arguments`, and a script that is fed to it."""
    words, named, text = found.words[1:], None, None
    while words and (words[0].text[:1] in ("-", "+") or node.fed is None):
        word = words.pop(0)
        if re.fullmatch(r"-[a-z]*c", word.text) and words:
            code = words.pop(0)
            if not code.known:
                why = f"`{found.words[0].text} -c {code.text}` was not read"
                shell.note(Note(word.line, "unread", why))
                return
            text, named = code.text, words[:1]
            words = words[1:]
            break
        if not word.text.startswith(("-", "+")):
            why = f"`{found.words[0].text} {word.text}` runs another file: it was not read"
            shell.note(Note(word.line, "unread", why))
            return
    if text is None:
        fed = joined(shell, node.fed) if node.fed else None
        if fed is None or not fed.known:
            why = f"`{found.words[0].text}` reads commands, and which is not known: {{}}"
            notes = [note.text for note in fed.notes] if fed else []
            why = why.format("; ".join(notes) or "they come from a pipe or a file")
            shell.note(Note(found.words[0].line, "unread", why))
            return
        text = fed.text
    saved, script = shell.state, shell.script
    shell.state = saved.copy()
    _changed(shell, found)
    shell.state.variables = dict(shell.state.environment())
    shell.state.arguments = tuple(words)
    shell.state.functions = {}
    shell.script = named[0].text if named else None
    shell.run_text(text, found.words[0].line)
    shell.state, shell.script = saved, script


def _changed(shell: Reader, found: Unwrapped) -> None:
    """What wrappers do to the environment."""
    if found.cleared:
        shell.state.variables = {
            k: v for k, v in shell.state.variables.items() if v.exported is False
        }
    if found.hidden:
        shell.state.lose(
            Note(found.words[0].line, "unread", "which variables are handed on is not known")
        )
    for name in found.unset:
        shell.state.unset(name)
    for name, (value, place) in found.set.items():
        text = value.text if value.known else None
        shell.state.variables[name] = Variable(text, True, place, value.notes)


def _swift(shell: Reader, node: Simple, values: list[Value], found: Unwrapped) -> None:
    at = [i for i, value in enumerate(values) if value is found.words[0]]
    words = values[at[0] :] if at else found.words  # with those that vanish
    saved, shell.state = shell.state, shell.state.copy()
    _changed(shell, found)
    seen = shell.state.environment()
    before = shell.state
    shell.state = saved
    environment = {k: v.value for k, v in seen.items() if v.exported and isinstance(v.value, str)}
    unknown = frozenset(name for name in seen if name not in environment)
    first, last = words[0].span, _last(node)
    begins = [word.span for word in [*node.assigned, *node.words] if word.span]
    command = Command(
        words,
        environment,
        words[0].line,
        unknown,
        before.lost is not None,
        before.folder,
        {k: v.place for k, v in seen.items() if v.place and k in environment},
        Span(first.start, last, False) if first and last else None,
        Span(begins[0].start, last, False) if begins and last else None,
        found.launcher,
        found.processes,
        found.nodes,
        [
            replace(n, kind="needed") if n.kind == "unset" else n
            for name in sorted(unknown)
            for n in seen[name].notes
        ],
        dict(shell.written),
    )
    if shell.blocks:
        kind, line = shell.blocks[-1]
        text = f"inside the `{kind}` of line {line}: read as if it ran"
        shell.note(Note(words[0].line, "conditional", text))
    _remember(shell, before)
    shell.commands.append(command)


def _remember(shell: Reader, state: State) -> None:
    """Which variables that only `swift` has a use for it does not see."""
    for name, variable in state.variables.items():
        if FOR_SWIFT.fullmatch(name) and variable.place is not None:
            key = (name, variable.place.line)
            sees = variable.exported is not False or name in shell.used
            shell.unseen[key] = shell.unseen.get(key, True) and not sees


def not_exported(shell: Reader) -> None:
    for (name, line), unseen in shell.unseen.items():
        if unseen:
            shell.notes.append(
                Note(
                    line,
                    "not-exported",
                    f"{name} is set for this script alone, and `swift` does not see it: write "
                    f"`export {name}=...`, or end the line with a backslash",
                )
            )


def _last(node: Simple) -> int | None:
    spans = [word.span for word in node.words if word.span]
    return spans[-1].end if spans else None
