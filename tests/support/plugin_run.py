"""The plugin in a process of its own, as ms-swift imports it."""

import json
import shlex
from collections.abc import Sequence
from typing import Any

from support.swift_run import REPOSITORY, run_python

from swift_vlrft.recipe.reader import read_text
from swift_vlrft.recipe.rules import PROBLEM, check_recipe
from swift_vlrft.recipe.run import resolve

PLUGIN = REPOSITORY / "plugins" / "vlrft.py"


IMPORT = f"""
import json, sys
from swift.utils import import_external_file
import_external_file({str(PLUGIN)!r})
from swift_vlrft import register
register()
"""


def answer_of(*flags: str, then: str) -> tuple[Any, str]:
    """Import the plugin as `swift rlhf FLAGS` does, twice, then run ``then``: what that prints
    last, which is JSON, and everything that was said.
    """
    done = run_python(IMPORT + then, *flags)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1]), done.stdout + done.stderr


REGISTER = """
import json, sys
from swift_vlrft import register
errors = []
for sys.argv[1:] in json.loads(sys.argv[1]):
    try:
        register()
    except ValueError as error:
        errors.append(str(error))
    else:
        errors.append("")
print(json.dumps(errors))
"""


def refusals(commands: Sequence[str], **variables: str) -> tuple[list[str], str]:
    """What each `swift rlhf FLAGS` is refused with, "" where it is not, all in one process; and
    what was said besides.
    """
    words = json.dumps([command.split() for command in commands])
    done = run_python(REGISTER, words, **variables)
    assert done.returncode == 0, done.stderr[-3000:]
    said, _, errors = done.stdout.strip().rpartition("\n")
    return json.loads(errors), said + done.stderr


def check_refusals(**places: str) -> None:
    """Every command of refused.jsonl is refused as it says there, by `vlrft check`, too."""
    table = (REPOSITORY / "tests" / "swift_plugin" / "refused.jsonl").read_text()
    for name, place in places.items():
        table = table.replace(name, place)
    cases = [*map(json.loads, table.splitlines())]
    errors, _ = refusals([case["flags"] for case in cases])
    for case, error in zip(cases, errors, strict=True):
        assert case["named"] in error and bool(case["named"]) == bool(error), (case, error)
        words = ["swift", "rlhf", "--external_plugins", str(PLUGIN), *case["flags"].split()]
        (recipe,) = read_text(shlex.join(words))
        checked = [one.text for one in check_recipe(resolve(recipe)) if one.level == PROBLEM]
        assert not error or any(case["named"] in text for text in checked), case
