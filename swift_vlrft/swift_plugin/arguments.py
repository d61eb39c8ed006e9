"""What the installed ms-swift makes of a recipe's flags: its own argument parser, one flag at a
time.

--tuner_typ lora         unknown; did you mean --tuner_type?
--num_generations many   invalid int value
--scale_rewards sum      invalid choice: group, batch, none, gdpo

Importing ms-swift takes seconds; nothing else does. No model, no network, no GPU.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from swift_vlrft.recipe.reader import Flag, Recipe
from swift_vlrft.recipe.rules.finding import NOTE, PROBLEM, Edit, Finding
from swift_vlrft.recipe.rules.history import OLD_FLAGS, old_value

CLASSES = {
    "rlhf": "RLHFArguments",
    "sft": "SftArguments",
    "pt": "PretrainArguments",
    "rollout": "RolloutArguments",
    "infer": "InferArguments",
    "deploy": "DeployArguments",
    "export": "ExportArguments",
    "eval": "EvalArguments",
    "sample": "SamplingArguments",
}


class _Rejected(Exception):
    pass


def swift_version() -> str:
    from importlib.metadata import version

    return version("ms-swift")


def reward_names() -> list[str]:
    """The rewards that ms-swift has before any plugin is imported."""
    from swift.rewards import orms

    from swift_vlrft.rewards import REWARDS

    return [name for name in orms if name not in REWARDS]


def argument_parser(method: str) -> argparse.ArgumentParser | None:
    """ms-swift's parser of `swift METHOD`, which raises instead of ending the process."""
    import swift.arguments
    from swift.utils.utils import _patch_get_type_hints
    from transformers import HfArgumentParser

    name = CLASSES.get(method)
    if name is None:
        return None

    class Parser(HfArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise _Rejected(message)

    with _patch_get_type_hints():
        parser: argparse.ArgumentParser = Parser([getattr(swift.arguments, name)])
    for action in parser._actions:
        action.required = False  # one flag at a time
    return parser


def check_arguments(recipe: Recipe, parser: argparse.ArgumentParser) -> Iterator[Finding]:
    """Names, types and choices; flags that the history of ms-swift explains are left to it."""
    names = [option[2:] for option in parser._option_string_actions if option.startswith("--")]
    for flag in recipe.flags:
        if not flag.name or (flag.name in OLD_FLAGS and flag.name not in names):
            continue
        if old_value(flag):
            continue
        if flag.name not in names:
            whole = [name for name in names if name.startswith(flag.name)]
            if len(whole) == 1:
                yield Finding(
                    recipe.path,
                    flag.line,
                    NOTE,
                    "abbreviated-flag",
                    f"--{flag.name} is taken for --{whole[0]}; write it out",
                    Edit(flag.name, flag.line, name=whole[0]),
                )
                continue
            near = difflib.get_close_matches(flag.name, names, n=1, cutoff=0.7)
            yield Finding(
                recipe.path,
                flag.line,
                PROBLEM,
                "unknown-flag",
                f"ms-swift {swift_version()} has no --{flag.name}"
                + (f". Did you mean --{near[0]}?" if near else ""),
            )
            continue
        if flag.known and (why := _rejected(parser, flag)):
            yield Finding(recipe.path, flag.line, PROBLEM, "value", f"--{flag.name}: {why}")


def _rejected(parser: argparse.ArgumentParser, flag: Flag) -> str | None:
    """Why the parser refuses the value; None where it takes it."""
    action: Any = parser._option_string_actions[f"--{flag.name}"]
    if action.nargs in (None, "?") and len(flag.values) > 1:
        return f"takes one value, got {len(flag.values)}: {' '.join(flag.values)}"
    try:
        parser.parse_known_args([f"--{flag.name}", *flag.values])
    except _Rejected as error:
        return re.sub(r"^argument [^:]*: ", "", str(error))
    except (ValueError, TypeError) as error:
        return str(error)
    return None
