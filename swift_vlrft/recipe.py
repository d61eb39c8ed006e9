"""A recipe as data: what `swift` command it would run, with which flags and in which environment.

recipes/qwen2_vl_2b/classification_4x24g.sh
  -> command ("swift", "rlhf"), NPROC_PER_NODE=4, --num_generations 8 (line 31), ...

Reads a shell script, a YAML or JSON configuration of ms-swift, or a command as text. Nothing is run
and ms-swift is not imported; what cannot be read is said in ``notes``, never guessed.

Where it stands, for those who change the text (offsets into ``Recipe.text``, see ``Span``):

    NPROC_PER_NODE=4 nohup swift rlhf --num_generations 8 > log 2>&1 &
    recipe.span               "swift rlhf --num_generations 8"
    recipe.whole              "NPROC_PER_NODE=4 nohup swift rlhf --num_generations 8"
    flag.span                 "--num_generations"           flag.value_spans    ("8",)
    recipe.assigned["NPROC_PER_NODE"].name and .value       "NPROC_PER_NODE", "4"

A value of one word has that word's span, ``literal`` or not (``"$N"``); words of an array stand
where the array is written (``ARGS=(--num_generations 8)``). None: it stands nowhere as one word (a
part of ``$FLAGS``, of a default, of another file), or it is not of the file (the caller's
environment). A redirection between two arguments lies inside ``span``; none behind the last does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from swift_vlrft.shell import Assigned, Command, Shell, Value, unwrapped
from swift_vlrft.shell_words import Note, Span
from swift_vlrft.shipped import shipped_file

COMMANDS = ("rlhf", "sft", "pt", "rollout", "infer", "deploy", "export", "eval", "sample")
TRAINS = ("rlhf", "sft", "pt")
CONFIGURATION = (".yaml", ".yml", ".json")

SUBSTITUTIONS = {"vlrft plugin": lambda: str(shipped_file("plugins", "vlrft.py"))}
"""Commands whose output is known without running them."""


class RecipeError(ValueError):
    """A file that cannot be read as a recipe; the message says which, where and why."""


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


@dataclass(slots=True)
class Recipe:
    """One `swift` command. ``environment`` is all that the command would find in it."""

    path: Path
    environment: dict[str, str]
    command: tuple[str, ...]
    flags: list[Flag]
    line: int = 1
    notes: list[Note] = field(default_factory=list)
    text: str = ""
    """The file as it was decoded; spans count its characters."""
    span: Span | None = None
    """`swift rlhf ...` to its last argument."""
    whole: Span | None = None
    """The same with the assignments and wrappers in front."""
    others: list[tuple[str, ...]] = field(default_factory=list)
    """Words of the file's other commands, which an edit of this one must not change."""
    assigned: dict[str, Assigned] = field(default_factory=dict)
    """By name, what gives a variable of ``environment`` its value."""

    def flag(self, name: str) -> Flag | None:
        """The flag that counts: the last of its name, as in argparse."""
        found = [flag for flag in self.flags if flag.name == name]
        return found[-1] if found else None

    def get(self, name: str, default: str | None = None) -> str | None:
        """The first value of a flag; ``default`` where it is absent, empty or not known."""
        flag = self.flag(name)
        return flag.values[0] if flag and flag.values and flag.known else default

    def values(self, name: str) -> tuple[str, ...]:
        """All values of a flag; empty where it is absent or not known."""
        flag = self.flag(name)
        return flag.values if flag and flag.known else ()

    @property
    def trains(self) -> bool:
        return self.command[-1] in TRAINS


def read_recipes(
    path: str | Path,
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> list[Recipe]:
    """Every `swift` command of a recipe, in its order; ``arguments`` are what `"$@"` stands for.

    ``environment`` is the caller's (default: this process's). RecipeError where the file cannot be
    read or holds no such command.
    """
    path = Path(path)
    return read_text(_text(path), path, environment, arguments)


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode()  # with its carriage returns
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise RecipeError(f"{path}: cannot be read: {why}") from None


def read_recipe(
    path: str | Path,
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> Recipe:
    """The command of a recipe that trains; where none does, the only one there is."""
    recipes = read_recipes(path, environment, arguments)
    training = [recipe for recipe in recipes if recipe.trains] or recipes
    if len(training) > 1:
        lines = ", ".join(str(recipe.line) for recipe in training)
        raise RecipeError(f"{path}: several commands train (lines {lines}); give one of them")
    return training[0]


def read_text(
    text: str,
    path: str | Path = "command",
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> list[Recipe]:
    """As ``read_recipes``, from the text of a script, of one command or of a configuration."""
    path = Path(path)
    if path.suffix in CONFIGURATION:
        return [
            _configuration(path, text, dict(os.environ if environment is None else environment))
        ]
    shell = Shell(os.environ if environment is None else environment, arguments, SUBSTITUTIONS)
    shell.read(text)
    recipes, others = [], []
    for command in shell.commands:
        if recipe := _recipe(command, path):
            recipes.append(recipe)
        else:
            others.append(tuple(word.text for word in command.words))
    if not recipes:
        said = "; ".join(f"line {note.line}: {note.text}" for note in shell.notes)
        raise RecipeError(
            f"{path}: no `swift {'|'.join(COMMANDS[:4])}` command in it." + (said and f" {said}")
        )
    for recipe in recipes:
        recipe.notes, recipe.text, recipe.others = shell.notes, text, others
    return recipes


def _recipe(command: Command, path: Path) -> Recipe | None:
    command = unwrapped(command)
    words = command.words
    name = _swift_command(words)
    if name is None:
        return None
    at, method = name
    rest = words[at:]
    environment, flags = command.environment, []
    assigned, whole = command.assigned, command.span
    first = words[0].span
    span = Span(first.start, whole.end, False) if first and whole else None
    if rest and rest[0].text.endswith(CONFIGURATION):
        source = path.parent / rest[0].text if path.parent != Path() else Path(rest[0].text)
        source = source if source.is_file() else Path(rest[0].text)
        if not rest[0].known:
            flags = _flags(rest)
        elif not source.is_file():
            raise RecipeError(f"{path}: line {rest[0].line}: {source}: no such file")
        else:
            inner = _configuration(source, _text(source), environment)
            environment = inner.environment
            nowhere = [replace(f, line=rest[0].line, span=None) for f in inner.flags]
            flags = [replace(f, value_spans=(None,) * len(f.values)) for f in nowhere]
            flags += _flags(rest[1:])
    else:
        flags = _flags(rest)
    return Recipe(
        path,
        environment,
        ("swift", method),
        flags,
        command.line,
        span=span,
        whole=whole,
        assigned=assigned,
    )


def _swift_command(words: Sequence[Value]) -> tuple[int, str] | None:
    """(where the flags begin, "rlhf"), for `swift rlhf` and for `python .../swift/cli/rlhf.py`."""
    if not words:
        return None
    if os.path.basename(words[0].text) == "swift" and len(words) > 1:
        return 2, words[1].text.replace("_", "-")
    for i, word in enumerate(words):
        if word.text.startswith("swift.cli.") and i and words[i - 1].text == "-m":
            return i + 1, word.text.removeprefix("swift.cli.")
        folder, file = os.path.split(word.text)
        if folder.endswith("swift/cli") and file.endswith(".py"):
            return i + 1, file.removesuffix(".py")
    return None


def _flags(words: Sequence[Value]) -> list[Flag]:
    """Arguments to flags; a word before the first flag becomes a flag of no name."""
    flags: list[tuple[str, list[Value], int, Span | None]] = []
    for word in words:
        if _is_flag(word.text):
            name, equals, value = word.text.partition("=")
            span, behind = word.span, None
            if equals and span:
                at = span.start + len(name)
                span, behind = Span(span.start, at), Span(at + 1, span.end, span.literal)
            given = [Value(value, word.line, word.known, behind)] if equals else []
            flags.append((name.lstrip("-").replace("-", "_"), given, word.line, span))
        elif flags:
            flags[-1][1].append(word)
        else:
            flags.append(("", [word], word.line, None))
    return [
        Flag(
            name,
            tuple(v.text for v in values),
            line,
            all(v.known for v in values),
            span,
            tuple(v.span for v in values),
        )
        for name, values, line, span in flags
    ]


def _is_flag(text: str) -> bool:
    """``--name`` or ``-n``; not the -1 of `--top_k -1`, nor (as in argparse) text with a blank."""
    if " " in text.partition("=")[0]:
        return False
    return text.startswith("--") or (text.startswith("-") and text[1:2].isalpha())


def _configuration(path: Path, text: str, environment: dict[str, str]) -> Recipe:
    """`swift rlhf cfg.yaml`, by ms-swift's own rules: ENV holds variables, the caller's win."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data: Any = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RecipeError(f"{path}: does not parse: {error}") from None
    if not isinstance(data, dict) or not isinstance(node, yaml.MappingNode):
        raise RecipeError(f"{path}: is not a table of flags (`num_generations: 8`)")
    places = {str(key.value): (key, value) for key, value in node.value}
    variables = data.pop("ENV", None) or {}
    if not isinstance(variables, dict):
        raise RecipeError(f"{path}: ENV is not a table of variables (`MAX_PIXELS: 401408`)")
    flags = [
        _entry(str(name), value, *places.get(str(name), (None, None)))
        for name, value in data.items()
    ]
    method = "rlhf" if "rlhf_type" in data else "rollout" if _rolls_out(data) else "sft"
    return Recipe(
        path,
        {**{str(k): str(v) for k, v in variables.items()}, **environment},
        ("swift", method),
        flags,
        text=text,
    )


def _entry(name: str, value: Any, key: yaml.Node | None, node: yaml.Node | None) -> Flag:
    """`name: value`; the items of a list stand each at its place."""
    values = _configured(value)
    if key is None or node is None:
        return Flag(name, values, 1, value_spans=(None,) * len(values))
    nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
    spans = tuple(_marked(item) for item in nodes)
    return Flag(name, values, key.start_mark.line + 1, True, _marked(key), spans)


def _marked(node: yaml.Node) -> Span:
    return Span(node.start_mark.index, node.end_mark.index)


def _configured(value: Any) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(str(item) for item in value)
    return (json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value),)


def _rolls_out(data: dict[str, Any]) -> bool:
    return "dataset" not in data and any(str(name).startswith("vllm_") for name in data)
