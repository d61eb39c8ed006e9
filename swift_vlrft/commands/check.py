"""``vlrft check``: checks a recipe for the installed ms-swift, before anything is downloaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from swift_vlrft.commands.output import print_json, say, say_marked, say_styled

if TYPE_CHECKING:
    from swift_vlrft.recipe.facts import Facts
    from swift_vlrft.recipe.reader import Recipe
    from swift_vlrft.recipe.rules import Edit, Finding


def check(
    recipes: Annotated[
        list[str],
        typer.Argument(
            help="Shell scripts, YAML or JSON configurations, or a quoted `swift ...` command."
        ),
    ],
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Apply safe fixes, show the diff, keep NAME.orig."),
    ] = False,
    run: Annotated[
        bool,
        typer.Option(
            "--run",
            help="Let bash read a script, every turn and branch, with nothing in it able to start.",
        ),
    ] = False,
    fast: Annotated[
        bool,
        typer.Option("--fast", help="Never import ms-swift, not even a new version of it."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Read recipes without running them: flags, values, batches, engines, rewards, columns.

    Example: vlrft check recipes/qwen2_5_vl_3b/detection_4x80g.sh

    Needs neither GPU nor model nor network. For a new version of ms-swift, TRL or transformers
    ms-swift is imported once (seconds). Exit code 0: no problem; 1: problems; 2: a recipe cannot
    be read.
    """
    from swift_vlrft.recipe.facts import facts
    from swift_vlrft.recipe.reader import RecipeError

    if run and fix:
        raise typer.BadParameter("--run shows what bash makes of a script; --fix changes its text")
    findings: list[Finding] = []
    unreadable = []
    with Console(emoji=False, stderr=True, quiet=as_json).status("reading ..."):
        known = facts(not fast)
    for name in recipes:
        try:
            commands, found = _checked(name, fix, known, as_json, run)
        except RecipeError as error:
            unreadable.append(str(error))
            continue
        findings += found
        if not as_json:
            called = " + ".join(" ".join(recipe.command) for recipe in commands)
            label = "command" if _is_command(name) else name
            say_styled((label, "bold"), f"  {called}")
            _print(found)
    problems = sum(found.level == "problem" for found in findings)
    if as_json:
        listed = [found.as_dict() for found in findings]
        print_json({"findings": listed, "unreadable": unreadable})
    else:
        for text in unreadable:
            say_marked("error:", text, "red", error=True)
        if not run and any(found.rule in ("unread", "conditional") for found in findings):
            say("What was not read of a script: --run lets bash read it.")
        if read := len(recipes) - len(unreadable):
            counts = f"{read} recipe{'s' * (read != 1)}, {problems or 'no'} problem"
            say(counts + "s" * (problems != 1))
    raise typer.Exit(2 if unreadable else 1 if problems else 0)


def _is_command(text: str) -> bool:
    names = "swift " in text or "megatron " in text
    return names and not os.path.exists(text)  # no Path: it refuses a long command


def _checked(
    name: str, fix: bool, known: Facts, quiet: bool, run: bool = False
) -> tuple[list[Recipe], list[Finding]]:
    """The commands of a recipe, after a rewrite, and the findings for them."""
    from swift_vlrft.recipe.by_bash import run_recipes
    from swift_vlrft.recipe.reader import RecipeError, read_recipes, read_text
    from swift_vlrft.recipe.rules import check_recipe, in_order
    from swift_vlrft.recipe.run import resolve

    read = run_recipes if run else read_recipes
    if run and _is_command(name):
        raise RecipeError(f"--run reads a script; this is a command: {name[:60]}")
    commands = read_text(name) if _is_command(name) else read(name)
    found = in_order(one for c in commands for one in check_recipe(resolve(c, known)))
    edits = [one.edit for one in found if one.edit]
    if fix and not _is_command(name) and _rewrite(Path(name), commands[0].text, edits, quiet):
        return _checked(name, False, known, quiet)
    return commands, found


def _rewrite(path: Path, before: str, edits: Sequence[Edit], quiet: bool) -> bool:
    """Make all possible edits; whether the file has changed."""
    from swift_vlrft.files.writing import DiskFull
    from swift_vlrft.recipe.fix import difference, fixed_text, write_fixed
    from swift_vlrft.recipe.reader import RecipeError

    after, applied, rejected = fixed_text(before, path, edits)
    for why in () if quiet else rejected:
        say_marked("left as it is:", why, "yellow")
    if not applied:
        return False
    try:
        kept = write_fixed(path, after)
    except DiskFull:
        raise
    except OSError as error:
        raise RecipeError(f"{error.filename}: cannot be written: {error.strerror}") from None
    if quiet:
        return True
    for line in _shown(difference(before, after, path)).split("\n")[:-1]:
        say_styled((line, {"+": "green", "-": "red"}.get(line[:1], "dim")))
    say(f"{path} rewritten; backup: {kept}")
    return True


def _shown(text: str) -> str:
    """Bytes that are not UTF-8 as question marks."""
    return text.encode(errors="replace").decode()


def _print(findings: Sequence[Finding]) -> None:
    for found in findings:
        level = found.level, "red" if found.level == "problem" else "yellow"
        say_styled(f"  line {found.line}  ", level, f"  {_shown(found.text)}")
