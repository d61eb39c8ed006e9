"""``vlrft check`` checks a recipe for the installed ms-swift, before anything is downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from swift_vlrft.commands.output import print_json, say, say_marked, say_styled
from swift_vlrft.commands.recipe_words import flags_after
from swift_vlrft.files.writing import DiskFull
from swift_vlrft.recipe.flags import is_flag
from swift_vlrft.recipe.reader import Recipe, RecipeError, hands_on, read_recipes, read_text
from swift_vlrft.recipe.shipped import is_command, recipe_path

if TYPE_CHECKING:
    from swift_vlrft.recipe.rules import Finding


def check(
    context: typer.Context,
    recipes: Annotated[
        list[str],
        typer.Argument(
            help="Shell scripts, YAML or JSON configurations, names that `vlrft recipe` prints, "
            "or a quoted `swift ...` command; behind a single recipe, flags of ms-swift."
        ),
    ],
    fix: Annotated[
        bool,
        typer.Option(
            "--fix", help="Rename and leave out what is old, show the diff, keep NAME.orig."
        ),
    ] = False,
    run: Annotated[
        bool,
        typer.Option(
            "--run",
            help="Let bash read a script, with every loop and branch; nothing in it can start.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Read recipes without running them: flags, values, batches, engines, rewards, columns.

    Example: vlrft check recipes/qwen2_5_vl_3b/detection_4x80g.sh

    It needs neither GPU nor model nor network. Exit code 0: no problem; 1: problems; 2: a recipe
    cannot be read.
    """
    if run and fix:
        raise typer.BadParameter("--run shows what bash makes of a script; --fix changes its text")
    first = next((n for n, word in enumerate(recipes) if is_flag(word)), len(recipes))
    recipes, arguments = recipes[:first], flags_after([*recipes[first:], *context.args], context)
    if arguments and (len(recipes) != 1 or fix or is_command(recipes[0])):
        raise ValueError(f"{arguments[0]}: put flags after a single recipe, without --fix")
    findings: list[Finding] = []
    unreadable = []
    for name in recipes:
        try:
            commands, of_recipe = _checked(name, fix, as_json, run, arguments)
        except RecipeError as error:
            unreadable.append(str(error))
            continue
        findings += of_recipe
        if not as_json:
            called = " + ".join(" ".join(recipe.command) for recipe in commands)
            label = "command" if is_command(name) else name
            say_styled((label, "bold"), f"  {called}")
            _print(of_recipe, name)
    problems = sum(finding.level == "problem" for finding in findings)
    if as_json:
        listed = [finding.as_dict() for finding in findings]
        print_json({"findings": listed, "unreadable": unreadable})
    else:
        for text in unreadable:
            say_marked("error:", text, "red", error=True)
        if read := len(recipes) - len(unreadable):
            counts = f"{read} recipe{'s' * (read != 1)}, {problems or 'no'} problem"
            part = " in what was read" * any(finding.rule == "unread" for finding in findings)
            say(counts + "s" * (problems != 1) + part)
    raise typer.Exit(2 if unreadable else 1 if problems else 0)


def _checked(
    name: str, fix: bool, quiet: bool, run: bool = False, arguments: Sequence[str] = ()
) -> tuple[list[Recipe], list[Finding]]:
    """The commands of a recipe, after a rewrite, and the findings for them."""
    from swift_vlrft.recipe.by_bash import run_recipes
    from swift_vlrft.recipe.rules import check_recipes
    from swift_vlrft.recipe.run import resolve

    if is_command(name):
        if run:
            raise RecipeError(f"--run reads a script; this is a command: {name[:60]}")
        commands = read_text(name)
    else:
        read = run_recipes if run else read_recipes
        commands = read(recipe_path(name), arguments=arguments)
        hands_on(commands, arguments)
        if fix and _rewrite(commands[0], quiet):
            return _checked(name, False, quiet)
    return commands, check_recipes(resolve(command) for command in commands)


def _rewrite(recipe: Recipe, quiet: bool) -> bool:
    """Make all changes that findings propose; whether the file has changed."""
    from swift_vlrft.recipe.fix import difference, patched, write_fixed
    from swift_vlrft.recipe.rules import check_recipes
    from swift_vlrft.recipe.run import resolve

    path, before = recipe.path, recipe.text
    after = before
    for _ in range(4):  # a line that arrives again may hold another fault
        read = (resolve(command) for command in read_text(after, path))
        after = patched(after, check_recipes(read))
    if after == before:
        return False
    read_text(after, path)
    try:
        backup = write_fixed(path, after)
    except DiskFull:
        raise
    except OSError as error:
        raise RecipeError(f"{error.filename}: cannot be written: {error.strerror}") from None
    if quiet:
        return True
    for line in difference(before, after, path):
        say_styled((line, {"+": "green", "-": "red"}.get(line[:1], "dim")))
    say(f"{path} rewritten; backup: {backup}")
    return True


def _print(findings: Sequence[Finding], name: str) -> None:
    for finding in findings:
        level = finding.level, "red" if finding.level == "problem" else "yellow"
        here = str(finding.path) in (name, "command")
        place = f"line {finding.line}" if here else f"{finding.path}:{finding.line}"
        place += f", column {finding.column}" if finding.column else ""
        say_styled(f"  {place}  ", level, f"  {finding.text}")
