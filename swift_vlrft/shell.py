"""The part of bash that recipes are written in, read without running anything.

export MAX_PIXELS=${MAX_PIXELS:-401408}
NPROC_PER_NODE=4 \
swift rlhf --model "$MODEL" "$@"        -> Command(words swift, rlhf, --model, ...; line 2)

GPUS=$(seq -s, 0 $((NPROC_PER_NODE - 1)))  -> 0,1,2,3

What is beyond it (other arithmetic, most command substitutions, loops) becomes a ``Note`` with its
line, and the text stays as it was written, marked as not known: nothing is guessed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from swift_vlrft.shell_words import ASSIGNMENT, Lexer, Note, Operator, Part, Span, Word

NAME = re.compile(r"[A-Za-z_]\w*")
SUM = re.compile(r"\$\(\(\s*\$?([A-Za-z_]\w*)\s*([-+])\s*(\d{1,9})\s*\)\)")
LONGEST_SEQUENCE = 1000

OPENS = {"if", "for", "while", "until", "case", "select", "{"}
CLOSES = {"fi", "done", "esac", "}"}
PREFIXES = {"if", "then", "else", "elif", "while", "until", "do", "!", "time", "{"}
FOR_SWIFT = re.compile(
    r"NPROC_PER_NODE|NNODES|NODE_RANK|MASTER_(?:ADDR|PORT)|CUDA_VISIBLE_DEVICES|USE_HF|HF_\w+"
    r"|MODELSCOPE_CACHE|PYTORCH_\w*ALLOC_CONF|MAX_PIXELS|MIN_PIXELS|IMAGE_M(?:AX|IN)_TOKEN_NUM"
    r"|ROOT_IMAGE_DIR|VLRFT_\w+"
)
"""Variables that are of use only in the environment of `swift`."""
WRAPPERS = {"nohup", "setsid", "exec", "env", "command", "time", "stdbuf", "nice"}


@dataclass(frozen=True, slots=True)
class Value:
    """One argument as the command would get it; not ``known``: as it is written in the file."""

    text: str
    line: int
    known: bool = True
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Assigned:
    """Where a variable gets its value: ``name`` and ``value`` of NAME=value in the file."""

    line: int
    name: Span
    value: Span


@dataclass(slots=True)
class Command:
    """A simple command with what it finds in its environment.

    ``span``: from its first word (assignments and wrappers included) to its last argument.
    """

    words: list[Value]
    environment: dict[str, str]
    line: int
    assigned: dict[str, Assigned] = field(default_factory=dict)
    span: Span | None = None


class Shell:
    """Reads a script from top to bottom; ``commands`` are those that ``wanted`` accepts."""

    def __init__(
        self,
        environment: Mapping[str, str],
        arguments: Sequence[str] = (),
        substitutions: Mapping[str, Callable[[], str]] | None = None,
    ) -> None:
        self.environment = dict(environment)
        self.arguments = list(arguments)
        self.substitutions = dict(substitutions or {})
        self.variables: dict[str, str | list[str] | None] = {}
        self.arrays: dict[str, list[Value]] = {}
        self.assigned: dict[str, Assigned] = {}
        self.unset: set[str] = set()
        self.exported = set(environment)
        self.notes: list[Note] = []
        self.commands: list[Command] = []
        self.blocks: list[tuple[str, int]] = []
        self.exports_all = False
        self._plain: dict[str, int] = {}  # assigned as a command of its own: line by name
        self._used: set[str] = set()

    def read(self, text: str, line: int = 1) -> None:
        places = list(range(len(text) + 1))
        if text.startswith("\ufeff"):
            places = places[1:]
            mark = "the file begins with a byte order mark, which bash takes for a part of line 1. "
            remedy = "Take it away: sed -i '1s/^\\xef\\xbb\\xbf//' FILE"
            self.notes.append(Note(line, "syntax", mark + remedy))
            text = text[1:]
        if "\r" in text:
            at = text[: text.index("\r")].count("\n") + line
            self.notes.append(
                Note(
                    at,
                    "continuation",
                    "the line ends in a carriage return (Windows), which bash takes for a part of "
                    "it. Convert the file: sed -i 's/\\r$//' FILE",
                )
            )
            lone = re.sub("\r(?!\n)", "\n", text)
            kept = [i for i, character in enumerate(lone) if character != "\r"]
            places = [*(places[i] for i in kept), places[-1]]
            text = lone.replace("\r", "")
        lexer = Lexer(text, line, places)
        tokens = lexer.tokens()
        self.notes += lexer.notes
        written = dict(enumerate(text.split("\n"), line))
        simple: list[Word] = []
        swift: tuple[int, int] | None = None  # first and last line of a `swift` command before
        for token in [*tokens, Operator(lexer.line, "\n")]:
            if isinstance(token, Word):
                simple.append(token)
            elif token.text == "(" and simple:
                self.blocks.append(("function", token.line))  # NAME ( ) {
                simple = []
            elif token.text == ")" and self.blocks and self.blocks[-1][0] in ("case", "function"):
                simple = []  # a pattern of a case, or the brackets of a function
            elif simple:
                if swift and simple[0].line == swift[1] + 1:
                    self._indented(simple[0], written, *swift)
                swift = None
                if token.text == "\n" and any(word.plain == "swift" for word in simple):
                    swift = simple[0].line, token.line
                self._run(simple)
                simple = []
        self.notes.sort(key=lambda note: note.line)

    def _indented(self, word: Word, written: dict[int, str], first: int, last: int) -> None:
        """A line below `swift ...` that stands as if it belonged to it."""
        here, above = written[word.line], written[first]
        if len(here) - len(here.lstrip()) <= len(above) - len(above.lstrip()):
            return
        if not here.lstrip().startswith("-"):  # that one is said in any case
            self.notes.append(
                Note(
                    word.line,
                    "continuation",
                    f"no backslash ends line {last}, so bash takes `{here.strip()[:60]}` for a "
                    "command of its own: it and all below it are lost",
                )
            )

    def _run(self, words: list[Word]) -> None:
        words = self._enter(words)
        first = words[0].span if words else None
        stands: dict[str, Assigned] = {}
        assigned: dict[str, str] = {}
        unknown: set[str] = set()
        while words and (match := self._assignment(words[0])):
            word = words.pop(0)
            name, value = match, self._assigned(word)
            if (place := self._place(word)) is not None:
                stands[name] = place
            self._plain[name] = word.line
            self._used.discard(name)
            if words or isinstance(value, list):
                if isinstance(value, list):
                    self._set(name, value)
                elif value is None:
                    unknown.add(name)
                else:
                    assigned[name] = value
            else:
                self._set(name, value)
        if not words:
            for name, text in assigned.items():
                self._set(name, text)
            self.assigned.update(stands)
            return
        values = [value for word in words for value in self._expand(word)]
        if not values:
            return
        if values[0].known and self._builtin(values[0].text, words, values):
            return
        if values[0].text.startswith("-"):
            self._orphan(values)
            return
        if self.blocks:
            kind, line = self.blocks[-1]
            text = f"inside the `{kind}` of line {line}: read as if it ran"
            if values[0].text == "swift":
                self.notes.append(Note(values[0].line, "conditional", text))
        environment = {**self.environment, **assigned}
        for name in unknown:
            environment.pop(name, None)
        if any(os.path.basename(value.text) == "swift" for value in values):
            self._not_exported({*environment, *unknown})
        last = next((word.span for word in reversed(words) if word.span), None)
        span = Span(first.start, last.end, False) if first and last else None
        places = {k: v for k, v in {**self.assigned, **stands}.items() if k in environment}
        self.commands.append(Command(values, environment, words[0].line, places, span))

    def _place(self, word: Word) -> Assigned | None:
        """Where NAME=VALUE stands."""
        match = ASSIGNMENT.match(word.parts[0].text)
        if word.span is None or match is None:
            return None
        start, end = word.span.start, word.span.end
        return Assigned(
            word.line,
            Span(start, start + len(match[1])),
            Span(start + match.end(), end, word.span.literal),
        )

    def _not_exported(self, seen: set[str]) -> None:
        for name, line in self._plain.items():
            if FOR_SWIFT.fullmatch(name) and name not in {*seen, *self.exported, *self._used}:
                self.notes.append(
                    Note(
                        line,
                        "not-exported",
                        f"{name} is set for this script alone, and `swift` does not see it: write "
                        f"`export {name}=...`, or end the line with a backslash",
                    )
                )
                self._used.add(name)  # said once

    def _enter(self, words: list[Word]) -> list[Word]:
        """Follow the words that open and close blocks; what is left is a simple command."""
        while words and (text := words[0].plain) is not None:
            if text in CLOSES:
                if self.blocks:
                    self.blocks.pop()
                    if self.blocks and self.blocks[-1][0] == "function" and text == "}":
                        self.blocks.pop()
                return []
            if text in OPENS:
                self.blocks.append((text, words[0].line))
            if text in ("for", "select") and len(words) > 1 and words[1].plain:
                self._set(words[1].plain, None)
                return []
            if text in ("case", "function"):
                return []
            if text not in PREFIXES:
                return words
            words = words[1:]
        return words

    def _assignment(self, word: Word) -> str | None:
        if not word.parts or word.parts[0].kind != "text" or word.parts[0].quoted:
            return None
        match = ASSIGNMENT.match(word.parts[0].text)
        return match[1] if match else None

    def _assigned(self, word: Word) -> str | list[str] | None:
        """The value of NAME=VALUE; None where it is not known."""
        match = ASSIGNMENT.match(word.parts[0].text)
        assert match is not None
        name, adds = match[1], match[2] == "+"
        before = self._get(name)
        if word.array is not None:
            values = [value for item in word.array for value in self._expand(item)]
            self.arrays[name] = [*(self.arrays.get(name, []) if adds else []), *values]
            if any(not value.known for value in values):
                return None
            items = [value.text for value in values]
            return [*before, *items] if adds and isinstance(before, list) else items
        first = Part("text", word.parts[0].text[match.end() :], False)
        rest = Word(word.line, [first, *word.parts[1:]])
        value = self._join(rest)
        if not value.known:
            return None
        return (before if isinstance(before, str) else "") + value.text if adds else value.text

    def _join(self, word: Word) -> Value:
        """A word without splitting, as on the right of an assignment."""
        quoted = Word(word.line, [Part(p.kind, p.text, True) for p in word.parts])
        values = self._expand(quoted)
        return Value(
            " ".join(value.text for value in values),
            word.line,
            all(value.known for value in values),
        )

    def _get(self, name: str) -> str | list[str] | None:
        return self.variables[name] if name in self.variables else self.environment.get(name)

    def _set(self, name: str, value: str | list[str] | None) -> None:
        if self.blocks:
            value = None  # set in one branch: which one runs is not known here
        self.variables[name] = value
        if self.exports_all:
            self.exported.add(name)
        if name in self.exported:
            if isinstance(value, str):
                self.environment[name] = value
            else:
                self.environment.pop(name, None)

    def _builtin(self, name: str, words: list[Word], values: list[Value]) -> bool:
        if name in ("export", "declare", "local", "readonly", "typeset"):
            for word in words[1:]:
                target = self._assignment(word)
                if target is not None:
                    self._set(target, self._assigned(word))
                    if (place := self._place(word)) is not None:
                        self.assigned[target] = place
                target = target or word.plain
                value = self._get(target) if target else None
                if name == "export" and target:
                    self.exported.add(target)
                    if isinstance(value, str):
                        self.environment[target] = value
        elif name == "unset":
            for given in values[1:]:
                self.variables.pop(given.text, None)
                self.assigned.pop(given.text, None)
                self.environment.pop(given.text, None)
                self.exported.discard(given.text)
        elif name == "read":
            for given in values[1:]:
                self._set(given.text, None)
        elif name == "set":
            given_texts = {given.text for given in values[1:]}
            self.exports_all |= bool(given_texts & {"-a", "allexport"})
        elif name == "shift":
            self.arguments = self.arguments[1:]
        elif name in ("source", "."):
            self.notes.append(
                Note(
                    values[0].line,
                    "unread",
                    f"`{name} {' '.join(v.text for v in values[1:])}` may set variables; it was "
                    "not read",
                )
            )
        else:
            return name in (":", "cd", "echo", "printf", "trap", "wait", "[", "[[", "test")
        return True

    def _orphan(self, values: list[Value]) -> None:
        line = values[0].line
        self.notes.append(
            Note(
                line,
                "continuation",
                f"{values[0].text} stands alone: no backslash ends the line before it (or a "
                "comment stands between), so bash takes it for a command, and this flag and all "
                "below it are lost",
            )
        )

    def _expand(self, word: Word) -> list[Value]:
        """A word as the arguments that it becomes: none, one, or several."""
        fields: list[str] = []
        current: str | None = None
        known = True
        # "$@" of nothing is no argument at all, while "" is an empty one.
        vanishes = any(part.kind == "variable" and _is_list(part.text) for part in word.parts)
        for part in word.parts:
            texts: list[str] | None
            if part.kind == "text" and not part.text and vanishes:
                continue
            if part.kind == "text":
                texts = [part.text]
                if not part.quoted and part is word.parts[0] and part.text.startswith("~/"):
                    texts = [self.environment.get("HOME", "~") + part.text[1:]]
            elif part.kind == "variable":
                texts = self._variable(part.text, word.line, part.quoted)
            elif part.kind == "run":
                texts = self._substitution(part.text, word.line)
            elif (total := self._sum(part.text)) is not None:
                texts = [str(total)]
            else:
                if not part.text.startswith("<"):
                    self._unread(word.line, part.text)
                texts = None
            if texts is None:
                texts, known = [_source(part)], False
            elif part.kind != "text" and not part.quoted:
                texts = [piece for text in texts for piece in text.split()]
            for i, text in enumerate(texts):
                if i and current is not None:
                    fields.append(current)
                    current = None
                current = (current or "") + text
        if current is not None:
            fields.append(current)
        if (items := self._items(word)) is not None and [v.text for v in items] == fields:
            return items
        span = word.span if len(fields) == 1 else None
        return [Value(text, word.line, known, span) for text in fields]

    def _items(self, word: Word) -> list[Value] | None:
        """What was written into ARRAY, for a word that is nothing but "${ARRAY[@]}"."""
        parts = [part for part in word.parts if part.text or part.kind != "text"]
        if len(parts) != 1 or parts[0].kind != "variable" or not parts[0].quoted:
            return None
        return self.arrays.get(parts[0].text[:-3]) if parts[0].text.endswith("[@]") else None

    def _variable(self, inside: str, line: int, quoted: bool) -> list[str] | None:
        """The values of ``${inside}``; None where they are not known."""
        if inside in ("@", "*"):
            return [" ".join(self.arguments)] if inside == "*" and quoted else list(self.arguments)
        if inside == "#":
            return [str(len(self.arguments))]
        if inside in ("!", "?", "$", "-"):
            return None  # of the running shell; matters only where a flag takes it
        match = re.fullmatch(
            r"([A-Za-z_]\w*|[0-9])(\[[@*]\])?(?:(:?[-=?+])(.*))?", inside, re.DOTALL
        )
        if match is None:
            self._unread(line, "${" + inside + "}")
            return None
        name, whole, operator, word = match[1], match[2], match[3] or "", match[4] or ""
        self._used.add(name)
        if name.isdigit():
            index = int(name)
            value: str | list[str] | None
            value = self.arguments[index - 1] if 0 < index <= len(self.arguments) else None
            is_set = value is not None
            if index == 0:
                self._unread(line, "$0")
                return None
        else:
            value = self._get(name)
            is_set = name in self.variables or name in self.environment
        if name in self.unset and value is None:
            return None  # said once
        if is_set and value is None:
            self._unread(line, f"${name}", "it is set in a way that was not read")
            return None
        if isinstance(value, list):
            return list(value) if whole else value[:1]
        usable = is_set and (value != "" or not operator.startswith(":"))
        if operator.endswith("+"):
            return self._default(word if usable else "", line, quoted)
        if usable:
            assert value is not None
            return [value]
        if operator.endswith(("-", "=")):
            default = self._default(word, line, quoted)
            if operator.endswith("=") and default is not None:
                self._set(name, " ".join(default))
            return default
        why = f": {word}" if operator.endswith("?") and word else ""
        kind = "needed" if operator.endswith("?") else "unset"
        self.notes.append(Note(line, kind, f"${name} is not set{why}"))
        self.unset.add(name)
        return None

    def _default(self, text: str, line: int, quoted: bool) -> list[str] | None:
        if not text:
            return [""] if quoted else []
        lexer = Lexer(f'"{text}"' if quoted and '"' not in text else text, line)
        values = [
            value
            for token in lexer.tokens()
            if isinstance(token, Word)
            for value in self._expand(token)
        ]
        if any(not value.known for value in values):
            return None
        texts = [value.text for value in values]
        return [" ".join(texts)] if quoted else texts

    def _substitution(self, text: str, line: int) -> list[str] | None:
        known = self.substitutions.get(" ".join(text.split()))
        if known is not None:
            return [known()]
        if text.startswith("seq -s, "):
            said = len(self.notes)
            if (numbers := self._sequence(text, line)) is not None:
                return [numbers]
            del self.notes[said:]  # the whole is named below
        self._unread(line, f"$({text})")
        return None

    def _sum(self, text: str) -> int | None:
        """The value of ``$((NAME + 1))`` and ``$((NAME - 1))``; None for other arithmetic."""
        match = SUM.fullmatch(text)
        value = self._get(match[1]) if match else None
        if match is None or not isinstance(value, str) or not re.fullmatch(r"[1-9]\d{0,8}", value):
            return None
        self._used.add(match[1])
        return int(value) + int(match[2] + match[3])

    def _sequence(self, text: str, line: int) -> str | None:
        """What ``seq -s, FIRST LAST`` prints; None where a number is not known."""
        words = [token for token in Lexer(text, line).tokens() if isinstance(token, Word)]
        values = [value for word in words[2:] for value in self._expand(word)]
        if len(values) != 2 or not all(re.fullmatch(r"\d{1,9}", value.text) for value in values):
            return None
        first, last = (int(value.text) for value in values)
        if last - first >= LONGEST_SEQUENCE:
            return None
        return ",".join(map(str, range(first, last + 1)))

    def _unread(self, line: int, text: str, why: str = "its value is known only to bash") -> None:
        note = Note(line, "unread", f"{text} was not read: {why}")
        if note not in self.notes:
            self.notes.append(note)


def _is_list(variable: str) -> bool:
    return variable == "@" or variable.endswith("[@]")


def _source(part: Part) -> str:
    if part.kind == "variable":
        return f"${part.text}" if NAME.fullmatch(part.text) else "${" + part.text + "}"
    return f"$({part.text})" if part.kind == "run" else part.text


def unwrapped(command: Command) -> Command:
    """A command without ``nohup``, ``env A=b``, ``timeout 600`` and the like in front."""
    words, environment = list(command.words), dict(command.environment)
    assigned = dict(command.assigned)
    while words:
        name = os.path.basename(words[0].text)
        if match := ASSIGNMENT.match(words[0].text):
            word = words.pop(0)
            environment[match[1]] = word.text[match.end() :]
            assigned.pop(match[1], None)
            if (span := word.span) is not None:
                key = Span(span.start, span.start + len(match[1]))
                value = Span(span.start + match.end(), span.end, span.literal)
                assigned[match[1]] = Assigned(word.line, key, value)
        elif name in WRAPPERS:
            words = words[1:]
            while words and words[0].text.startswith("-"):
                words = words[1:]
        elif name == "timeout" and len(words) > 1:
            words = words[2:]
        else:
            break
    line = words[0].line if words else command.line
    return replace(command, words=words, environment=environment, assigned=assigned, line=line)
