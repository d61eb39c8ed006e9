"""Read a recipe as data: its `swift` command, with flags and environment.

recipes/qwen2_vl_2b/classification_4x24g.sh
  -> command ("swift", "rlhf"), NPROC_PER_NODE=4, --num_generations 8 (line 31), ...

Reads a shell script, a YAML or JSON configuration of ms-swift, or a command as text. Nothing is run
and ms-swift is not imported; what cannot be read is listed in ``notes``, never guessed. run.py
interprets the values.

Spans are offsets into ``Recipe.text``, for changes of the text (fix.py):

    NPROC_PER_NODE=4 nohup swift rlhf --num_generations 8 > log 2>&1 &
    flag.span                 "--num_generations"           flag.value_spans    ("8",)

A value of one word has that word's span, ``literal`` or not (``"$N"``). None: it is not one word of
this script (a part of ``$FLAGS``, of a configuration, or from the caller's environment).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import yaml

from swift_vlrft.files.text import InputError
from swift_vlrft.recipe.flags import Flag as Flag
from swift_vlrft.recipe.flags import flag_name, flags_of, is_flag
from swift_vlrft.recipe.lines import commands_of, makers_above, not_exported, wrong_lines
from swift_vlrft.recipe.script import Script
from swift_vlrft.recipe.tree import Mistake, Node, Note, Span, parse
from swift_vlrft.recipe.words import Command, Value
from swift_vlrft.recipe.wrappers import COMMANDS, called

TRAINS = ("rlhf", "sft", "pt")
CONFIGURATION = (".yaml", ".yml", ".json")

NOT_OURS = {"use_ray", "train", "micro_batch_size", "global_batch_size", "train_iters"}
"""Keys of a configuration that is for Ray or `megatron`."""
OTHERS = msgspec.toml.decode(
    Path(__file__).with_name("no_bash.toml").read_bytes(), type=dict[str, tuple[str, str]]
)
"""What is no bash script, by its name or its beginning."""
SLIPS = ("continuation", "not-exported", "stray-variable", "typographic", "comment")
"""Kinds of notes on words that are lost or spoilt."""


class RecipeError(InputError):
    """A file cannot be read as a recipe; the message names file, place and reason."""


@dataclass(kw_only=True)
class Recipe(Command):
    """A recipe is one `swift` command with its flags."""

    path: Path
    command: tuple[str, str]
    flags: list[Flag]
    may_add: bool = False
    """Whether words that were not read may add any flag."""
    missed: frozenset[str] = frozenset()
    """Flags that a slip of the script loses or spoils."""

    def flag(self, name: str) -> Flag | None:
        """Return the flag that counts: the last of its name, as in argparse."""
        return next((flag for flag in reversed(self.flags) if flag.name == name), None)

    def omits(self, *names: str) -> bool:
        """Return whether none of the flags is given, for certain."""
        return not self.may_add and not self.missed & {*names} and not any(map(self.flag, names))

    def is_known(self, *names: str) -> bool:
        """Return whether each flag is absent for certain, or has a value that was read."""
        return all(flag.known if (flag := self.flag(name)) else self.omits(name) for name in names)

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return the first value of a flag. ``default`` if it is absent or empty; None if its value
        is, or may be, unknown.
        """
        flag = self.flag(name)
        if not self.is_known(name):
            return None
        return flag.values[0] if flag and flag.values else default

    def values(self, name: str) -> tuple[str, ...]:
        """Return all values of a flag, none if it is absent or not known."""
        flag = self.flag(name)
        return flag.values if flag and flag.known else ()

    def may_be_unread(self, variable: str) -> bool:
        """Return whether a variable may have a value that was not read."""
        return variable in self.unknown or (self.lost and variable not in self.environment)

    def at(self, path: str) -> Path | None:
        """Return a path as the command sees it; None if its folder is not known."""
        expanded = Path(os.path.expanduser(path))
        if expanded.is_absolute():
            return expanded
        return self.folder / expanded if self.folder is not None else None

    @property
    def trains(self) -> bool:
        return self.command[-1] in TRAINS


def read_recipes(
    path: str | Path,
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> list[Recipe]:
    """Return every `swift` command of a recipe; ``arguments`` are the values of `"$@"`.

    ``environment`` is the caller's (default: this process's). RecipeError if the file cannot be
    read or holds no such command.
    """
    path = Path(path)
    return read_text(read_file(path), path, environment, arguments)


def read_file(path: Path) -> str:
    """Read a file; carriage returns stay."""
    try:
        data = path.read_bytes()
        text = data.decode()
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        at = error.start
        place, byte = data.count(b"\n", 0, at) + 1, f"byte 0x{data[at]:02x} is not UTF-8"
        mend = "convert the file, with `iconv -f GB18030 -t UTF-8` if it is Chinese"
        raise RecipeError(f"{path}: cannot be read: line {place}: {byte}; {mend}") from None
    for kind, (name, begins) in OTHERS.items():
        if re.search(name, path.name.lower()) or re.match(begins, text):
            why = "bash scripts and ms-swift's configurations are read: write its `swift` command "
            raise RecipeError(f"{path} is {kind}; {why}into a script that begins with #!/bin/bash")
    if "\0" in text:
        place = text[: text.index("\0")].count("\n") + 1
        raise RecipeError(f"{path}: line {place}: a byte 0, which bash does not accept")
    return text


def only(recipes: Sequence[Recipe]) -> Recipe:
    """Return the only command of a file that trains; if none does, its only command."""
    path = recipes[0].path
    training = [recipe for recipe in recipes if recipe.trains] or recipes
    if len(training) > 1:
        lines = ", ".join(str(recipe.line) for recipe in training)
        raise RecipeError(f"{path}: several commands train (lines {lines}); keep one of them")
    return training[0]


def kept_from(recipes: Sequence[Recipe], arguments: Sequence[str]) -> Iterator[str]:
    """Say why flags behind a script's name do not reach its commands that train."""
    flags = {flag.name: flag.values for flag in flags_of(arguments)}
    for recipe in [recipe for recipe in recipes if recipe.trains] or recipes:
        place = f"{recipe.path}:{max([recipe.line, *(f.line for f in recipe.flags if f.span)])}"
        if not recipe.is_known(*flags):
            yield f"{place}: it is not known where the arguments go; write them into the script"
        elif any(recipe.values(name) != values for name, values in flags.items()):
            yield f'{place}: the script does not pass "$@" on: write it behind the last flag'


def hands_on(recipes: Sequence[Recipe], arguments: Sequence[str]) -> None:
    """Raise RecipeError where a flag of ``arguments`` does not reach a command that trains."""
    if why := "; ".join(kept_from(recipes, arguments)):
        raise RecipeError(why)


def read_text(
    text: str,
    path: str | Path = "command",
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> list[Recipe]:
    """Read recipes from the text of a script, of a command or of a configuration."""
    path = Path(path)
    caller = os.environ if environment is None else environment
    if path.suffix in CONFIGURATION:
        recipe = _configuration(path, text, dict(caller))
        if not any(map(recipe.flag, ("rlhf_type", "dataset", "cached_dataset"))):
            why = "has neither rlhf_type nor dataset, so its command is not known"
            raise RecipeError(f"{path}: {why}; check a script with `swift COMMAND {path.name}`")
        _take_flags(recipe, [Value(word, recipe.line) for word in arguments])
        return [recipe]
    script = Script(caller, arguments)
    try:
        statements, blanks = parse(text)
        script.run(statements)
        script.notes += blanks
        return recipes_of(script, path, text, statements)
    except Mistake as mistake:
        raise RecipeError(f"{path}: {mistake}") from None
    except RecursionError:
        raise RecipeError(f"{path}: commands are nested too deeply") from None


def recipes_of(script: Script, path: Path, text: str, statements: Sequence[Node]) -> list[Recipe]:
    """Return the recipes of a script that was read, with all notes; RecipeError if there is none.

    Flags and variables that a slip of the script loses or spoils are not known: what follows is no
    fault of its own.
    """
    for command in script.commands:
        command.made = makers_above(commands_of(statements), command.line)
    recipes = [recipe_of(command, path) for command in script.commands]
    notes = [note for recipe in recipes for note in recipe.notes] + script.notes
    notes += [*wrong_lines(text, statements), *not_exported(text, statements, recipes)]
    said = {note.line for note in notes if note.kind == "not-exported"}
    notes = [note for note in notes if note.kind != "unread" or note.line not in said]
    notes = sorted(dict.fromkeys(notes), key=lambda note: note.line)
    if not recipes:
        reasons = "; ".join(f"line {note.line}: {note.text}" for note in notes)
        known = f"`swift {'|'.join(COMMANDS[:4])}`"
        raise RecipeError(f"{path}: no {known} command is read{reasons and f'. {reasons}'}")
    for recipe in recipes:
        recipe.notes, recipe.text = notes, text
    for note in (note for note in notes if note.kind in SLIPS):
        lost = {*note.variable.split(" ")} - {""}
        above = max((r.line for r in recipes if r.line <= note.line), default=0)
        for recipe in (r for r in recipes if above in (0, r.line) or note.kind == "not-exported"):
            spoilt = {name for name, value in recipe.environment.items() if value in lost}
            recipe.unknown |= lost | spoilt
            recipe.environment = {n: v for n, v in recipe.environment.items() if n not in spoilt}
            recipe.missed |= {*map(flag_name, lost)}
            recipe.flags = [
                replace(f, known=False) if f.name in recipe.missed or lost & {*f.values} else f
                for f in recipe.flags
            ]
    return recipes


def recipe_of(parsed: Command, path: Path) -> Recipe:
    """Return the recipe of a command; RecipeError if it runs on Ray."""
    command, rest = called(parsed.words)
    recipe = Recipe(path=path, command=("swift", command), flags=[], **vars(parsed))
    if rest and rest[0].known and rest[0].text.endswith(CONFIGURATION):
        _include(recipe, rest.pop(0), path)
    _take_flags(recipe, rest)
    if (ray := recipe.flag("use_ray")) and "".join(ray.values).lower() != "false":
        raise RecipeError(f"{path}: line {recipe.line}: runs on Ray (--use_ray) are not read")
    return recipe


def _include(recipe: Recipe, word: Value, path: Path) -> None:
    """The flags and variables of a configuration that a command names."""
    name, line = word.text, word.line
    source = recipe.at(name)
    source = source if source and os.path.isfile(source) else path.parent / name
    if name not in recipe.made and os.path.isfile(source):
        inner = _configuration(source, read_file(source), recipe.environment)
        recipe.environment = inner.environment
        recipe.unknown -= set(inner.environment)
        recipe.flags = [replace(flag, line=line) for flag in inner.flags]
    elif name in recipe.made or recipe.folder is None:
        recipe.may_add = True
        why = "the script may write it" if name in recipe.made else "its folder is not known"
        recipe.notes.append(Note(line, "unread", f"{name} was not read: {why}"))
    else:
        raise RecipeError(f"{path}: line {line}: {name}: no such file")


def _take_flags(recipe: Recipe, words: Sequence[Value]) -> None:
    """Arguments to flags; a word before the first flag becomes a flag without a name.

    An unread word is the value of a flag that has none yet; elsewhere it may add flags.
    """
    flags: list[tuple[str, list[Value], Span | None, int, bool]] = []
    opens = -1  # how many flags stand before the last word that may add some
    for word in words:
        bare = bool(flags) and not flags[-1][1]
        if word.vanishes:
            continue
        if is_flag(word.text):
            name, equals, value = word.text.partition("=")
            span, behind = word.span, None
            if equals and span:
                at = span.start + len(name)
                span, behind = Span(span.start, at), Span(at + 1, span.end, span.literal)
            values = [replace(word, text=value, span=behind)] if equals else []
            name = flag_name(name)
            if not word.known and not re.fullmatch(r"[\w-]+", name):  # --$NAME
                opens, name, values, span = len(flags), "", values or [word], None
            flags.append((name, values, span, word.line, bool(equals)))
        else:
            opens = len(flags) if word.many and not bare else opens
            if flags:
                flags[-1][1].append(word)
            elif word.known or not word.many:
                flags.append(("", [word], None, word.line, False))
        recipe.notes += word.notes
    for i, (name, values, span, line, inline) in enumerate(flags):
        known = i >= opens and all(value.known for value in values)
        texts = tuple(value.text for value in values)
        spans = tuple(value.span for value in values)
        recipe.flags.append(Flag(name, texts, line, known, span, spans, inline))
    recipe.may_add |= opens >= 0


def _configuration(path: Path, text: str, environment: dict[str, str]) -> Recipe:
    """`swift rlhf cfg.yaml`, by ms-swift's rules: ENV holds variables, the caller's win."""
    try:
        as_json = path.suffix == ".json"
        # YAML takes no tabs for blanks; a JSON string holds none.
        node = yaml.compose(text.replace("\t", " ") if as_json else text, Loader=yaml.SafeLoader)
        data: Any = json.loads(text) if as_json else yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.context_mark or error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        why = f"{place}{error.problem}; a blank stands behind a name's colon, no tab before it"
        raise RecipeError(f"{path}: does not parse: {why}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RecipeError(f"{path}: does not parse: {error}") from None
    if not isinstance(data, dict) or not isinstance(node, yaml.MappingNode):
        raise RecipeError(f"{path}: is not a table of flags (`num_generations: 8`)")
    yaml.SafeLoader("").flatten_mapping(node)
    variables = data.pop("ENV", None) or {}
    if not isinstance(variables, dict):
        raise RecipeError(f"{path}: ENV is not a table of variables (`MAX_PIXELS: 401408`)")
    if others := {name for name in NOT_OURS if data.get(name)}:
        raise RecipeError(f"{path}: is for Ray or `megatron` ({min(others)}), which are not read")
    return Recipe(
        path=path,
        environment={**{str(k): str(v) for k, v in variables.items()}, **environment},
        command=("swift", "rlhf" if "rlhf_type" in data else "sft"),
        flags=[_entry(key, value) for key, value in node.value if key.value != "ENV"],
        text=text,
    )


def _entry(key: yaml.Node, node: yaml.Node) -> Flag:
    """`name: value`, each item of a list."""
    value: Any = yaml.SafeLoader("").construct_object(node, deep=True)
    name, line = str(key.value).replace("-", "_"), key.start_mark.line + 1
    if isinstance(value, list):
        return Flag(name, tuple(map(str, value)), line)
    return Flag(name, (json.dumps(value) if isinstance(value, dict) else str(value),), line)
