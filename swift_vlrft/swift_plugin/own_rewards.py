"""Import plugin files with rewards outside of a training, as ms-swift does it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from swift.rewards import orms
from swift.utils import import_external_file

from swift_vlrft.recipe.facts import facts
from swift_vlrft.recipe.plugins import clash, read_plugin
from swift_vlrft.rewards import REWARDS, RewardFunction


def own_rewards(files: Sequence[Path]) -> dict[str, RewardFunction]:
    """Return what the files register, by name; ValueError for a file that cannot be imported."""
    for file in files:
        read = read_plugin(file.expanduser())
        if why := read.fault or clash(read):
            raise ValueError(f"--external_plugins {file}: {why}")
        try:
            import_external_file(str(file))
        except Exception as error:
            raise ValueError(f"--external_plugins {file}: {error!r}") from error
    others = {*REWARDS, *facts().rewards}
    return {name: make(args=None) for name, make in orms.items() if name not in others}
