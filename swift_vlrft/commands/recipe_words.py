"""Read a recipe on the command line of `vlrft`, with flags after it as of `bash RECIPE`.

vlrft plan RECIPE --per_device_train_batch_size 1 --gpus 4x24        --gpus is vlrft's own
"""

import difflib
from collections.abc import Sequence

import typer

from swift_vlrft.recipe.facts import facts
from swift_vlrft.recipe.flags import flags_of, is_flag

WITH_FLAGS = {"ignore_unknown_options": True, "allow_extra_args": True}
"""A command's context in which an option that is not its own stays a word."""


def flags_after(words: Sequence[str], context: typer.Context) -> list[str]:
    """Return the words after a recipe; ValueError if they are no flags that ms-swift knows."""
    if words and not is_flag(words[0]):
        raise ValueError(f"{words[0]}: `{context.command_path}` takes no such argument")
    known = facts().commands if words else {}
    own = [name.lstrip("-") for option in context.command.params for name in option.opts]
    for flag in flags_of(words):
        if flag.name not in known:
            near = difflib.get_close_matches(flag.name, [*own, *known], n=3, cutoff=0.6)
            meant = f"; near names: {', '.join(f'--{name}' for name in near)}" if near else ""
            raise ValueError(
                f"{flag.option}: no flag of ms-swift, and no option of "
                f"`{context.command_path}` in this place{meant}"
            )
    return list(words)
