"""A recipe as data: the `swift` command it would run, with its flags and environment.

recipes/qwen2_vl_2b/classification_4x24g.sh
  -> command ("swift", "rlhf"), NPROC_PER_NODE=4, --num_generations 8 (line 31), ...

Reads a shell script, a YAML or JSON configuration of ms-swift, or a command as text. Nothing is run
and ms-swift is not imported; what cannot be read is listed in ``notes``, never guessed. run.py
interprets the values.

Spans are offsets into ``Recipe.text``, for changes of the text (edit.py):

    NPROC_PER_NODE=4 nohup swift rlhf --num_generations 8 > log 2>&1 &
    recipe.span               "swift rlhf --num_generations 8"
    recipe.start              offset of NPROC_PER_NODE, the first word of the line
    flag.span                 "--num_generations"           flag.value_spans    ("8",)
    recipe.assigned["NPROC_PER_NODE"].name and .value       "NPROC_PER_NODE", "4"

A value of one word has that word's span, ``literal`` or not (``"$N"``). None: it is not one word of
this text (a part of ``$FLAGS``, of another file, or from the caller's environment).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from swift_vlrft.files import machine
from swift_vlrft.files.shipped import shipped_file
from swift_vlrft.files.text import InputError
from swift_vlrft.recipe.shell.shell import Command, Shell
from swift_vlrft.recipe.shell.state import Assigned, May, Value, union
from swift_vlrft.recipe.shell.tree import Note, Span
from swift_vlrft.recipe.shell.wrappers import COMMANDS

TRAINS = ("rlhf", "sft", "pt")
CONFIGURATION = (".yaml", ".yml", ".json")

REMARK = re.compile(r"(?:^|^[^'\"]*\s)#.*")

PLUGIN = "plugins/vlrft.py"


def _our_plugin() -> Path:
    return shipped_file(*PLUGIN.split("/"))


SUBSTITUTIONS = {"vlrft plugin": lambda: str(_our_plugin()) if machine.seen() else PLUGIN}
"""Commands whose output is known without running them."""


class RecipeError(InputError):
    """A file that cannot be read as a recipe; the message names file, place and reason."""


@dataclass(frozen=True, slots=True)
class Flag:
    """``--name value ...``; not ``known``: a value that only bash knows, as written in the file."""

    name: str
    values: tuple[str, ...]
    line: int
    known: bool = True
    span: Span | None = None
    """Of ``--name``, without an ``=value``."""
    value_spans: tuple[Span | None, ...] = ()
    """One for each of ``values``."""


@dataclass(kw_only=True)
class Recipe(Command):
    """One `swift` command, with its flags."""

    path: Path
    command: tuple[str, ...]
    flags: list[Flag]
    text: str = ""
    """The decoded file; spans count its characters."""
    maybe: May = frozenset()
    """Flags that unread words may add; None: any."""
    others: list[tuple[str, ...]] = field(default_factory=list)
    """The other commands of the script."""

    def flag(self, name: str) -> Flag | None:
        """The flag that counts: the last of its name, as in argparse."""
        found = [flag for flag in self.flags if flag.name == name]
        return found[-1] if found else None

    def lacks(self, *names: str) -> bool:
        """Whether certainly none of the flags is given."""
        return not any(
            self.flag(name) or self.maybe is None or name in self.maybe for name in names
        )

    def knows(self, *names: str) -> bool:
        """Whether each of the flags is certainly absent, or has a value that was read."""
        return all(flag.known if (flag := self.flag(name)) else self.lacks(name) for name in names)

    def get(self, name: str, default: str | None = None) -> str | None:
        """The first value of a flag; ``default`` if it is absent or empty; None if its value is, or
        may be, unknown.
        """
        flag = self.flag(name)
        if not self.knows(name):
            return None
        return flag.values[0] if flag and flag.values else default

    def values(self, name: str) -> tuple[str, ...]:
        """All values of a flag; empty if it is absent or not known."""
        flag = self.flag(name)
        return flag.values if flag and flag.known else ()

    def hides(self, *variables: str) -> bool:
        """Whether one of the variables may have a value that was not read."""
        return any(
            name in self.unknown or (self.lost and name not in self.environment)
            for name in variables
        )

    def at(self, path: str) -> Path | None:
        """A path as the command sees it; None if its folder is not known, or no file is seen."""
        if not machine.seen():
            return None
        found = Path(machine.expanded(path))
        if found.is_absolute():
            return found
        return self.folder / found if self.folder is not None else None

    def plugin(self, path: str) -> Path | None:
        """As ``at``; ours is found by its name where no file is seen."""
        ours = Path(path).name == Path(PLUGIN).name
        return _our_plugin() if ours and not machine.seen() else self.at(path)

    @property
    def trains(self) -> bool:
        return self.command[-1] in TRAINS


def read_recipes(
    path: str | Path,
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> list[Recipe]:
    """Every `swift` command of a recipe, in order; ``arguments`` are the values of `"$@"`.

    ``environment`` is the caller's (default: this process's). RecipeError if the file cannot be
    read or holds no such command.
    """
    path = Path(path)
    return read_text(_text(path), path, environment, arguments)


def _text(path: Path) -> str:
    """With carriage returns, and with bytes of comments that are not UTF-8 as surrogates."""
    try:
        text = path.read_bytes().decode(errors="surrogateescape")
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read: {error.strerror or error}") from None
    for number, line in enumerate(text.split("\n"), 1):
        code = line if path.suffix in CONFIGURATION else REMARK.sub("", line)
        if odd := re.search("[\udc80-\udcff]", code):
            raise RecipeError(
                f"{path}: cannot be read: line {number}: byte 0x{ord(odd[0]) - 0xDC00:02x} is not "
                f"UTF-8; convert the file, with `iconv -f GB18030 -t UTF-8` if it is Chinese"
            )
    return text


def read_recipe(
    path: str | Path,
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> Recipe:
    """The command of a recipe that trains; if none does, its only command."""
    return only(read_recipes(path, environment, arguments))


def only(recipes: Sequence[Recipe]) -> Recipe:
    """The one command of these, of the same file, that trains; if none does, the only one."""
    path = recipes[0].path
    training = [recipe for recipe in recipes if recipe.trains] or recipes
    if len(training) > 1:
        lines = ", ".join(str(recipe.line) for recipe in training)
        raise RecipeError(f"{path}: several commands train (lines {lines}); keep one of them")
    return training[0]


def read_text(
    text: str,
    path: str | Path = "command",
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> list[Recipe]:
    """As ``read_recipes``, from the text of a script, of one command or of a configuration."""
    path = Path(path)
    caller = machine.environment() if environment is None else environment
    if path.suffix in CONFIGURATION:
        return [_configuration(path, text, dict(caller))]
    script = str(path) if machine.is_file(path) else None
    shell = Shell(caller, arguments, SUBSTITUTIONS, script)
    shell.read(text)
    recipes = [_recipe(command, path) for command in shell.commands]
    if not recipes:
        reasons = "; ".join(f"line {note.line}: {note.text}" for note in shell.notes)
        raise RecipeError(
            f"{path}: no `swift {'|'.join(COMMANDS[:4])}` command in it."
            + (reasons and f" {reasons}")
        )
    notes = [*shell.notes, *(note for recipe in recipes for note in recipe.notes)]
    notes = sorted(dict.fromkeys(notes), key=lambda note: note.line)
    for recipe in recipes:
        recipe.notes, recipe.text, recipe.others = notes, text, shell.others
    return recipes


def _recipe(found: Command, path: Path) -> Recipe:
    words = found.words
    script = words[0].text.endswith(".py")
    method = Path(words[0].text).stem if script else words[1].text.removeprefix("swift.cli.")
    command = ("swift", method.replace("_", "-"))
    recipe = Recipe(path=path, command=command, flags=[], **vars(found))
    rest = words[1 if script else 2 :]
    if rest and rest[0].known and rest[0].text.endswith(CONFIGURATION):
        source = recipe.at(rest[0].text)
        beside = path.parent / rest[0].text
        source = source if source and machine.is_file(source) else beside
        made = rest[0].text in found.written
        written = found.written.get(rest[0].text)
        if written or (machine.is_file(source) and not made):
            inner = _configuration(source, written or _text(source), recipe.environment)
            recipe.environment = inner.environment
            recipe.unknown -= set(inner.environment)
            nowhere = [replace(f, line=rest[0].line, span=None) for f in inner.flags]
            recipe.flags = [replace(f, value_spans=(None,) * len(f.values)) for f in nowhere]
        elif recipe.folder is not None and not made:
            name = rest[0].text
            raise RecipeError(f"{path}: line {rest[0].line}: {name}: no such file")
        else:
            recipe.maybe = None
            why = "the script writes it" if made else "the folder it is in is not known"
            text = f"{rest[0].text} was not read: {why}"
            recipe.notes.append(Note(rest[0].line, "unread", text))
        rest = rest[1:]
    _take_flags(recipe, rest)
    return recipe


def _take_flags(recipe: Recipe, words: Sequence[Value]) -> None:
    """Arguments to flags; a word before the first flag becomes a flag without a name.

    An unread word is the value of a flag that has none yet; elsewhere it may add flags.
    """
    flags: list[tuple[str, list[Value], Span | None, int]] = []
    opens: list[tuple[int, May]] = []
    for word in words:
        notes = list(word.notes)
        bare = bool(flags) and not flags[-1][1]
        if word.vanishes and not bare:  # nothing, unless the caller sets it
            notes = [replace(note, kind="needed") for note in notes]
        elif _is_flag(word.text):
            name, equals, value = word.text.partition("=")
            span, behind = word.span, None
            if equals and span:
                at = span.start + len(name)
                span, behind = Span(span.start, at), Span(at + 1, span.end, span.literal)
            given = [replace(word, text=value, span=behind)] if equals else []
            name = name.lstrip("-").replace("-", "_")
            if not word.known and not re.fullmatch(r"[\w-]+", name):  # --$NAME
                opens.append((len(flags), None))
                name, given, span = "", given or [word], None
            flags.append((name, given, span, word.line))
        else:
            may = word.may
            if not word.known and (may or (may is None and not bare)):
                opens.append((len(flags), may))
            if may and "" not in may and not bare:
                pass  # only flags, or nothing
            elif flags:
                flags[-1][1].append(word)
            elif word.known or may == frozenset():
                flags.append(("", [word], None, word.line))
        recipe.notes += notes
    for i, (name, values, span, line) in enumerate(flags):
        again = any(i < at and (may is None or name in may) for at, may in opens)
        known = not again and all(value.known for value in values)
        texts = tuple(value.text for value in values)
        spans = tuple(value.span for value in values)
        recipe.flags.append(Flag(name, texts, line, known, span, spans))
    recipe.maybe = (
        None if recipe.maybe is None else union([recipe.maybe, *(may for _, may in opens)])
    )


def _is_flag(text: str) -> bool:
    """``--name`` or ``-n``; not the -1 of `--top_k -1`, nor (as in argparse) text with a blank."""
    if " " in text.partition("=")[0]:
        return False
    return text.startswith("--") or (text.startswith("-") and text[1:2].isalpha())


def _configuration(path: Path, text: str, environment: dict[str, str]) -> Recipe:
    """`swift rlhf cfg.yaml`, by ms-swift's rules: ENV holds variables, the caller's win."""
    try:
        as_json = path.suffix == ".json"
        # YAML takes no tabs for blanks; a JSON string holds none.
        node = yaml.compose(text.replace("\t", " ") if as_json else text, Loader=yaml.SafeLoader)
        data: Any = json.loads(text) if as_json else yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RecipeError(f"{path}: does not parse: {error}") from None
    if not isinstance(data, dict) or not isinstance(node, yaml.MappingNode):
        raise RecipeError(f"{path}: is not a table of flags (`num_generations: 8`)")
    yaml.SafeLoader("").flatten_mapping(node)
    tables = {str(key.value): value for key, value in node.value}
    variables = data.pop("ENV", None) or {}
    if not isinstance(variables, dict):
        raise RecipeError(f"{path}: ENV is not a table of variables (`MAX_PIXELS: 401408`)")
    assigned = {
        str(key.value): Assigned(key.start_mark.line + 1, _marked(key), _marked(value))
        for key, value in (tables["ENV"].value if variables else [])
        if str(key.value) not in environment
    }
    method = "rlhf" if "rlhf_type" in data else "rollout" if _rolls_out(data) else "sft"
    return Recipe(
        path=path,
        environment={**{str(k): str(v) for k, v in variables.items()}, **environment},
        command=("swift", method),
        flags=[_entry(key, value) for key, value in node.value if key.value != "ENV"],
        text=text,
        assigned=assigned,
    )


def _entry(key: yaml.Node, node: yaml.Node) -> Flag:
    """`name: value`; each item of a list has its own span."""
    value = yaml.SafeLoader("").construct_object(node, deep=True)
    nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
    spans, line = tuple(_marked(item) for item in nodes), key.start_mark.line + 1
    name = str(key.value).replace("-", "_")
    return Flag(name, _configured(value), line, True, _marked(key), spans)


def _marked(node: yaml.Node) -> Span:
    return Span(node.start_mark.index, node.end_mark.index)


def _configured(value: Any) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(str(item) for item in value)
    return (json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value),)


def _rolls_out(data: dict[str, Any]) -> bool:
    return "dataset" not in data and any(str(name).startswith("vllm_") for name in data)
