"""The commands that bash runs itself and that change what later ones see."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from swift_vlrft.shell_expand import Expander
from swift_vlrft.shell_state import NOTHING, Assigned, Value, Variable, flags_in, union
from swift_vlrft.shell_words import ASSIGNMENT, Note, Span, Word

NAME = re.compile(r"[A-Za-z_]\w*")
SUCCEEDS = re.compile(r"export|declare|typeset|local|readonly|set|shopt|echo|true|:")
OWN = ("local", "declare", "typeset")
DECLARES = ("export", "readonly", *OWN)
SILENT = re.compile(
    r"\[|test|:|true|false|echo|printf|trap|wait|kill|jobs|umask|ulimit|type|hash|let|times|pwd|dirs"
    r"|history|logout|disown|suspend|getopts|enable|help|alias|unalias|complete"
)
"""They run nothing that is of use here; those that set something are handled before."""
ENVIRONMENTS = re.compile(
    r"(?:^|/)(?:activate|conda\.sh|mamba\.sh|\.?bashrc|\.?bash_profile|\.?profile|nvm\.sh"
    r"|set_env\.sh|setvars\.sh|modules?\.sh|lmod\.sh)\b"
)
HOOKS = re.compile(r"\b(?:conda|mamba|micromamba|ssh-agent|pyenv|direnv|modulecmd|brew|starship)\b")
"""Scripts and hooks that switch an environment on: PATH and the like, no setting of a run."""


class Builtins(Expander):
    inside: int
    depth: int

    def run_text(self, text: str, line: int) -> None:
        raise NotImplementedError

    def builtin(self, name: str, words: Sequence[Word], values: list[Value]) -> bool:
        """Run it; False where it is none of bash's own."""
        handler: Callable[..., None] | None
        if name in DECLARES:
            self._declare(name, words[1:], values[0].line)
            return True
        handler = getattr(self, "_do_" + {".": "source"}.get(name, name), None)
        if handler is not None:
            handler(values[1:], values[0].line)
            return True
        if name in ("[", "test"):
            self.asks(words)
        return bool(SILENT.fullmatch(name))

    def assign(self, word: Word, match: re.Match[str], exported: bool = False) -> Variable:
        """Carry out NAME=VALUE, NAME+=VALUE, NAME=(...) or NAME[...]=VALUE."""
        name, index, adds = match[1], match[2], match[3] == "+"
        before = self.state.get(name)
        place = _place(word, match)
        if word.array is not None:
            items = tuple(v for item in word.array for v in self.expand(item) if not v.vanishes)
            if any(re.match(r"\[.*\]\+?=", item.text) for item in items):
                variable = self._odd(name, word.line)
            elif adds and before is not None and not isinstance(before.value, tuple):
                found = union([before.flags(), flags_in(item.text for item in items)])
                value = None if before.value is None else (Value(before.value, word.line), *items)
                variable = Variable(value, False, place, before.notes, found)
            else:
                old = before.value if adds and before and isinstance(before.value, tuple) else ()
                variable = Variable((*old, *items), False, place)
        elif index:
            variable = self._odd(name, word.line)
        else:
            variable = self._scalar(name, word, match.end(), adds, place)
        self.used.discard(name)
        if name in self.state.references:
            text = f"{name} stands for another variable, and which was not read"
            self.lose(Note(word.line, "unread", text))
        self.state.set(name, replace(variable, exported=exported))
        return self.state.variables[name]

    def asks(self, words: Iterable[Word]) -> None:
        """A condition on variables."""
        parts = [part for word in words for part in word.parts if part.kind == "variable"]
        self.asked.update(name[0] for part in parts if (name := NAME.match(part.text)))

    def _odd(self, name: str, line: int) -> Variable:
        notes = (Note(line, "unread", f"${name} was not read: its items are set one by one"),)
        return Variable(None, notes=notes, may=None)

    def _scalar(
        self, name: str, word: Word, at: int, adds: bool, place: Assigned | None
    ) -> Variable:
        first = replace(word.parts[0], text=word.parts[0].text[at:])
        behind = replace(word, parts=[first, *word.parts[1:]])
        asked, self.asked = self.asked, {*self.asked, name}  # A="$A more" needs no A
        value = self.joined(replace(behind, text=word.text[at:]))
        self.asked = asked
        before = self.state.get(name) if adds else None
        if before is None:
            return Variable(
                value.text if value.known else None, False, place, value.notes, value.may
            )
        if isinstance(before.value, tuple):
            return self._odd(name, word.line)
        if before.value is None or not value.known:
            may = union([before.flags(), flags_in(value.text.split()), value.may])
            return Variable(None, False, None, (*before.notes, *value.notes), may)
        return Variable(before.value + value.text, False, None)

    def unknown(self, name: str, line: int, by: str) -> None:
        if NAME.fullmatch(name):
            self.used.discard(name)
            notes = (Note(line, "unread", f"${name} was not read: `{by}` sets it"),)
            self.state.set(name, Variable(None, notes=notes, may=None))

    def _declare(self, name: str, words: Sequence[Word], line: int) -> None:
        options = ""
        for word in [replace(w, parts=p) for w in words for p in self.choices(w)]:
            match = word.assigns
            if match is None:
                for value in self.expand(word):
                    if value.text[:1] in ("-", "+") and value.known:
                        options += value.text
                    elif inner := ASSIGNMENT.match(value.text):
                        new = value.text[inner.end() :] if value.known else None
                        variable = Variable(new, notes=value.notes)
                        self._declared(name, options, inner[1], variable, line)
                    elif not value.known and not value.vanishes:
                        text = f"`{name} {value.text}` may set any variable: it was not read"
                        self.lose(Note(line, "unread", text))
                    elif NAME.fullmatch(value.text):
                        self._declared(name, options, value.text, None, line)
                continue
            odd = any(letter in options for letter in "ilunA") and not options.startswith("+")
            if name in OWN:
                self._own(options, match[1])
            variable = self.assign(word, match)
            if "n" in options and name != "export":
                self.state.references |= {match[1]}
            if odd and not (name == "export" and options == "-n"):
                self.unknown(match[1], line, f"{name} {options}")
                variable = self.state.variables[match[1]]
            self._declared(name, options, match[1], variable, line)

    def _own(self, options: str, variable: str) -> bool:
        """A variable that a function has for itself; whether it is new."""
        if not self.inside or "g" in options or variable in self.state.locals:
            return False
        self.state.locals[variable] = self.state.get(variable)
        return True

    def _declared(
        self, name: str, options: str, variable: str, new: Variable | None, line: int
    ) -> None:
        fresh = name in OWN and self._own(options, variable)
        if new is not None:
            self.state.set(variable, new)
        elif fresh:
            outside = self.state.locals[variable]
            if outside is not None and outside.exported is not False:
                self.unknown(variable, line, name)  # a program still sees the one outside
            else:
                self.state.unset(variable)
        exports: bool | None = None
        if name == "export":
            exports = "n" not in options
        elif "x" in options:
            exports = options.startswith("-")
        current = self.state.get(variable)
        if exports is not None and current is not None:
            self.state.variables[variable] = replace(current, exported=exports)
        elif exports:
            self.state.exported_later |= {variable}

    def lose(self, note: Note) -> None:
        self.note(note)
        self.state.lose(note)

    def _do_unset(self, values: Sequence[Value], line: int) -> None:
        names = [value for value in values if not value.text.startswith("-")]
        if any(value.text == "-f" for value in values):
            return
        for value in names:
            if not value.known:
                self.lose(Note(line, "unread", f"`unset {value.text}` was not read"))
            elif "[" in value.text:
                self.unknown(value.text.partition("[")[0], line, "unset")
            else:
                self.state.unset(value.text)

    def _do_read(self, values: Sequence[Value], line: int) -> None:
        for value in values:
            self.unknown(value.text, line, "read")
        self.unknown("REPLY", line, "read")

    def _do_mapfile(self, values: Sequence[Value], line: int) -> None:
        for value in values:
            self.unknown(value.text, line, "mapfile")

    _do_readarray = _do_mapfile
    _do_getopts = _do_read

    def _do_printf(self, values: Sequence[Value], line: int) -> None:
        for option, value in zip(values, values[1:], strict=False):
            if option.text == "-v":
                self.unknown(value.text, line, "printf -v")
            break

    def _do_wait(self, values: Sequence[Value], line: int) -> None:
        for option, value in zip(values, values[1:], strict=False):
            if option.text == "-p":
                self.unknown(value.text, line, "wait -p")

    def _do_let(self, values: Sequence[Value], line: int) -> None:
        for value in values:
            self.changes(value.text, line)

    def _do_set(self, values: Sequence[Value], line: int) -> None:
        rest = list(values)
        while rest and re.match(r"[-+]", rest[0].text) and rest[0].known:
            text = rest.pop(0).text
            on = text[0] == "-"
            if text == "--":
                break
            if text[1:] in ("o", "eo", "euo", "eux", "ueo", "euxo", "uo") and rest:
                option = rest.pop(0).text
            else:
                option = ""
            if "a" in text[1:].replace("allexport", "") or option == "allexport":
                self.state.exports_all = on
            if "u" in text[1:] or option == "nounset":
                self.state.strict = on
            if "f" in text[1:] or option == "noglob":
                self.state.globs = not on
        else:
            if not rest:
                return
        known = all(value.known or value.may == NOTHING for value in rest)
        self.state.arguments = tuple(v for v in rest if not v.vanishes) if known else None

    def _do_shopt(self, values: Sequence[Value], line: int) -> None:
        if any("glob" in v.text or not v.known for v in values):
            self.state.globs = False

    def _do_shift(self, values: Sequence[Value], line: int) -> None:
        arguments = self.state.arguments
        count = values[0].text if values else "1"
        if arguments is None or not count.isdigit():
            self.state.arguments = None
        elif int(count) <= len(arguments):
            self.state.arguments = arguments[int(count) :]

    def _do_cd(self, values: Sequence[Value], line: int) -> None:
        targets = [v for v in values if not re.fullmatch(r"-[LPe@]+|--", v.text)]
        folder = self.state.folder
        self.state.folder = None
        home = self.state.get("HOME")
        if not targets and home and isinstance(home.value, str):
            self.state.folder = home.value
        elif targets and targets[0].known and targets[0].text != "-":
            found = os.path.normpath(os.path.join(folder or "", targets[0].text))
            if os.path.isabs(found) and os.path.isdir(found):
                self.state.folder = found

    _do_pushd = _do_cd

    def _do_popd(self, values: Sequence[Value], line: int) -> None:
        self.state.folder = None

    def _do_source(self, values: Sequence[Value], line: int) -> None:
        said = " ".join(value.text for value in values)
        note = Note(line, "unread", f"`source {said}` may set variables; it was not read")
        text = self._file(values[0]) if values else None
        if values and ENVIRONMENTS.search(values[0].text):
            self.note(note)
        elif text is None or self.depth > 8:
            self.lose(note)
        else:
            saved = self.state.arguments
            if values[1:]:
                self.state.arguments = tuple(values[1:])
            self.run_text(text, line)
            self.state.arguments = saved

    def _file(self, value: Value) -> str | None:
        if not value.known or not (os.path.isabs(value.text) or self.state.folder):
            return None
        path = Path(self.state.folder or "/", value.text)
        try:
            return path.read_text() if path.is_file() else None
        except (OSError, UnicodeError):
            return None

    def _do_eval(self, values: Sequence[Value], line: int) -> None:
        text = " ".join(value.text for value in values if not value.vanishes)
        if all(value.known or value.vanishes for value in values):
            self.run_text(text, line)
        elif HOOKS.search(text):
            self.note(Note(line, "unread", f"`eval {text}` was not read"))
        else:
            self.lose(Note(line, "unread", f"`eval {text}` may do anything; it was not read"))


def _place(word: Word, match: re.Match[str]) -> Assigned | None:
    if word.span is None:
        return None
    start, end = word.span.start, word.span.end
    name = Span(start, start + len(match[1]))
    return Assigned(word.line, name, Span(start + match.end(), end, word.span.literal))
