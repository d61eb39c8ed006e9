"""Shell scripts, YAML and JSON configurations, from the shipped recipes and tests/recipe."""

# ruff: noqa: E501 - rows of a table stay on one line

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from fuzz import mutate
from fuzz.target import clean, refused

from swift_vlrft.commands.output import printable
from swift_vlrft.recipe.facts import facts
from swift_vlrft.recipe.fix import difference, fixed_text
from swift_vlrft.recipe.reader import RecipeError, read_text
from swift_vlrft.recipe.rules import check_recipe, check_recipes
from swift_vlrft.recipe.run import resolve

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
ROWS = (RECIPES.parent / "tests" / "recipe" / "scripts.jsonl").read_text().splitlines()
SCRIPTS = [json.loads(row)["script"].replace("@GRPO@", "swift rlhf") for row in ROWS]
SHIPPED = [file.read_text() for file in sorted(RECIPES.rglob("*.sh"))]
SECONDS, SHARE = 20.0, 1
PIECES = [
    *("$", "${", "}", "$(", ")", "((", "))", "`", '"', "'", "\\", "\\\n", "\n", "#", ";", "&&", "||"),
    *("|", "&", "<<EOF\n", "EOF", "<<<", "< <(", "> >(", "${A", "${A:-", "${#", "${!", "$((1/0))"),
    *("${A//b/", "${A:1:", "A=(", "A+=", "[0]=", "[[ ", " ]]", "if ", "then\n", "fi", "for x in "),
    *("do\n", "done", "while true; do\n", "case $A in", "esac", "*) ", ";;", "f() {", "function f",
      "eval ", "source ", ". /dev/zero", "trap 'x' EXIT", "set -e\n", "set -- ", "shift 9\n", "local "),
    *("readonly A\n", "unset A\n", "exit\n", "exec ", "return ", "$@", "$*", "$1", "$$", "$?", "$!"),
    *("swift rlhf ", "swift sft ", "megatron rlhf ", "torchrun ", "python -m swift.cli.rlhf ", "nohup "),
    *("--rlhf_type grpo ", "--num_generations ", "--reward_funcs ", "--dataset ", "--model ", "--", "-"),
    *("--num_generations=", "--beta nan", "--learning_rate 1e", "{1..9}", "{a,b}", "~root/", "*", "?"),
    *("[a-z]", "\r\n", "\t", "\x00", "\x1b[31m", "\u202e", "\udcff", "é", "0x", "9" * 400, "[red]"),
]  # fmt: skip
OF_YAML = [": ", "- ", "&a ", "*a", "<<: ", "!!python/object:os.system ", "? ", "|\n", "\t"]


@cache
def configurations() -> list[dict[str, Any]]:
    """The flags of the shipped recipes, as ms-swift's YAML has them."""
    commands = [read_text(text)[-1] for text in SHIPPED]
    return [
        {"ENV": {"MAX_PIXELS": 401408}, "rlhf_type": "grpo"}
        | {
            f.name: list(f.values) if len(f.values) > 1 else yaml.safe_load(*f.values)
            for f in c.flags
        }
        for c in commands
    ]


def make(rng: random.Random) -> tuple[str, bytes]:
    chance = rng.random()
    if chance < 0.3:
        flags = mutate.value(rng, rng.choice(configurations()))
        if chance < 0.15:
            return "recipe.json", _bytes(json.dumps(flags))
        try:
            text = yaml.safe_dump(flags, allow_unicode=rng.random() < 0.5)
        except yaml.YAMLError:
            text = json.dumps(flags)
        if rng.random() < 0.3:
            text = mutate.text(rng, text, [*OF_YAML, *PIECES], [text])
        return "recipe.yaml", _bytes(text)
    if chance < 0.6:
        text = rng.choice(SCRIPTS)
    elif chance < 0.75:
        text = "".join(rng.choices(PIECES, k=rng.randint(1, 40))) + "\nswift rlhf --model a"
    else:
        text = rng.choice(SHIPPED)
    return "recipe.sh", _bytes(mutate.text(rng, text, PIECES, [text, "swift rlhf --model a\n"]))


def check(name: str, content: bytes, folder: Path) -> int:
    path, text = Path(name), content.decode(errors="surrogateescape")
    try:
        commands = read_text(text, path)
    except RecipeError as error:
        refused(error, path)
        clean(printable(error))
        return 1
    again = read_text(text, path)
    assert list(map(vars, again)) == list(map(vars, commands))
    runs = [resolve(command, facts(False)) for command in commands]
    found = [check_recipe(run) for run in runs]
    for finding in check_recipes(runs):
        assert finding.text and finding.line >= 0, finding
        clean(printable(finding.text))
    edits = [[finding.edit for finding in some if finding.edit] for some in found]
    after, left = fixed_text(commands, edits)
    difference(text, after, path)
    assert all(isinstance(why, str) for why in left)
    if after != text:
        read_text(after, path)
    return 1


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape" if text.isascii() else "backslashreplace")
