"""``vlrft check``: what this ms-swift makes of a recipe, before anything is downloaded."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from swift_vlrft.recipe.fix import difference, fixed_text, write_fixed
from swift_vlrft.recipe.reader import Recipe, RecipeError, read_recipes, read_text
from swift_vlrft.recipe.rules import PROBLEM, Finding, check_recipe, in_order

Read = Sequence[tuple[str, list[Recipe]]]


def check(
    recipes: Annotated[
        list[str],
        typer.Argument(
            help="Shell scripts, YAML or JSON configurations, or a quoted `swift ...` command."
        ),
    ],
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Rewrite what is safe to, show the diff, keep NAME.orig."),
    ] = False,
    fast: Annotated[
        bool,
        typer.Option("--fast", help="Leave out what needs the import of ms-swift (seconds)."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Read recipes without running them: flags, batches, engines, rewards, columns.

    Example: vlrft check recipes/qwen2_5_vl_3b/detection_4x80g.sh

    Needs neither GPU nor model nor network. Exit code 0: no problem; 1: problems; 2: a recipe
    cannot be read.
    """
    console, errors = Console(), Console(stderr=True)
    read: list[tuple[str, list[Recipe]]] = []
    unreadable = []
    for name in recipes:
        try:
            found = read_text(name) if _is_command(name) else read_recipes(name)
        except RecipeError as error:
            unreadable.append(str(error))
        else:
            read.append((name, found))
    for place, (name, found) in enumerate(read if fix else []):
        try:
            read[place] = name, _fixed(console, name, found, as_json)
        except OSError as error:
            unreadable.append(f"{error.filename}: cannot be written: {error.strerror}")
    findings = _static(console, read, as_json)
    if not fast:
        findings += _by_ms_swift(console, read, as_json)
    problems = sum(found.level == PROBLEM for found in findings)
    if as_json:
        listed = [found.as_dict() for found in findings]
        typer.echo(json.dumps({"findings": listed, "unreadable": unreadable}, indent=2))
    else:
        for text in unreadable:
            errors.print(f"[red]error:[/red] {escape(text)}", soft_wrap=True)
        if read:
            counts = f"{len(read)} recipe{'s' * (len(read) != 1)}, {problems or 'no'} problem"
            console.print(counts + "s" * (problems != 1), highlight=False)
    raise typer.Exit(2 if unreadable else 1 if problems else 0)


def _is_command(text: str) -> bool:
    return "swift " in text and not os.path.exists(text)  # no Path: it refuses a long command


def _static(console: Console, read: Read, quiet: bool) -> list[Finding]:
    """What can be said at once; printed recipe by recipe."""
    everything = []
    for name, commands in read:
        findings = in_order(found for recipe in commands for found in check_recipe(recipe))
        everything += findings
        if not quiet:
            called = " + ".join(" ".join(recipe.command) for recipe in commands)
            label = "command" if _is_command(name) else name
            console.print(f"[bold]{escape(label)}[/bold]  {called}", highlight=False)
            _print(console, findings)
    return everything


def _by_ms_swift(console: Console, read: Read, quiet: bool) -> list[Finding]:
    """Flags, types, choices and reward names, by the installed ms-swift."""
    from contextlib import nullcontext

    os.environ.setdefault("LOG_LEVEL", "ERROR")  # ms-swift logs what it registers
    errors = Console(stderr=True)
    waiting = nullcontext() if quiet else errors.status("asking the installed ms-swift ...")
    everything = []
    with waiting:
        from swift_vlrft.recipe.rules.data import rewards
        from swift_vlrft.swift_plugin.arguments import (
            argument_parser,
            check_arguments,
            reward_names,
            swift_version,
        )

        for name, commands in read:
            findings: list[Finding] = []
            for recipe in commands:
                parser = argument_parser(recipe.command[-1])
                findings += check_arguments(recipe, parser) if parser else []
                if recipe.command[-1] == "rlhf":
                    findings += rewards(recipe, reward_names())
            everything += findings
            if findings and not quiet:
                label = "command" if _is_command(name) else name
                console.print(f"[bold]{escape(label)}[/bold]  ms-swift {swift_version()}:")
                _print(console, in_order(findings))
    return everything


def _fixed(console: Console, name: str, commands: list[Recipe], quiet: bool) -> list[Recipe]:
    """Rewrite what the rules know how to; the recipe as it then reads."""
    if _is_command(name):
        return commands
    path = Path(name)
    edits = [f.edit for recipe in commands for f in check_recipe(recipe) if f.edit]
    before = commands[0].text
    after, made, refused = fixed_text(before, path, edits)
    if not quiet:
        for why in refused:
            console.print(f"[yellow]left as it is:[/yellow] {escape(why)}", soft_wrap=True)
    if not made:
        return commands
    original = write_fixed(path, after)
    if not quiet:
        for line in _shown(difference(before, after, path)).splitlines():
            colour = {"+": "green", "-": "red"}.get(line[:1], "dim")
            console.print(f"[{colour}]{escape(line)}[/{colour}]", highlight=False, soft_wrap=True)
        console.print(
            f"{escape(str(path))} rewritten; as it was: {escape(str(original))}", soft_wrap=True
        )
    return read_recipes(path)


def _shown(text: str) -> str:
    """Bytes that are not UTF-8 as question marks."""
    return text.encode(errors="replace").decode()


def _print(console: Console, findings: Sequence[Finding]) -> None:
    for found in findings:
        colour = "red" if found.level == PROBLEM else "yellow"
        text = escape(_shown(found.text))
        console.print(
            f"  line {found.line}  [{colour}]{found.level}[/{colour}]  {text}",
            highlight=False,
            soft_wrap=True,
        )
