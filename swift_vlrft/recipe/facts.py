"""Look up facts of ms-swift: its flags with types, choices, bounds and defaults, its variables,
and rewards.

    facts().flags("rlhf")["beta"]          Flag(kind="float", default=None, choices=())
    facts().flags("rlhf")["rlhf_type"]     Flag(kind="str", default="dpo", choices=("dpo", ...))
    OLD_FLAGS["train_type"]                Old(since="4.1.0", now="tuner_type")

Importing ms-swift takes seconds, so they are stored: ms_swift.json has them for the versions that
this package is tested with (dev/ms_swift_facts.py reads them).
"""

from __future__ import annotations

from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import msgspec

SHIPPED = Path(__file__).with_name("ms_swift.json")
PACKAGES = ("ms-swift", "trl", "transformers")
"""The packages on whose versions the facts depend."""


class Flag(msgspec.Struct, array_like=True, frozen=True):
    """A flag of a command is an array in the file, without trailing defaults."""

    kind: Literal["bool", "bool value", "int", "float", "str", "json", "ints", "floats", "strs"]
    """``bool`` needs no value, ``bool value`` does; ``json`` is an object or a file with one; a
    plural takes several values."""
    default: Any = None
    choices: tuple[str | int | float | None, ...] = ()


class Old(msgspec.Struct, frozen=True):
    """ms-swift 4.6.0 with transformers 5 rejects this flag of an older version.

    ``now`` is the flag that takes its values; without one, drop it (``drop``) or see ``hint``.
    """

    since: str
    """The version of ms-swift, as found in its releases."""
    now: str | None = None
    hint: str = ""
    drop: bool = False


OLD_FLAGS = msgspec.json.decode(
    SHIPPED.with_name("old_flags.json").read_bytes(), type=dict[str, Old]
)
OF_OTHERS = msgspec.json.decode(
    SHIPPED.with_name("other_flags.json").read_bytes(), type=dict[str, str]
)
"""By names of TRL, verl, OpenRLHF, LLaMA-Factory and EasyR1, the flags of the same meaning."""


class Facts(msgspec.Struct, frozen=True, omit_defaults=True):
    versions: dict[str, str]
    rewards: list[str]
    datasets: list[str]
    """Data-set ids that ms-swift registers, of either hub."""
    names: dict[str, list[str]]
    """What a text flag may name beside files and ids of a hub; `loss_type grpo`: with that
    --rlhf_type; `template of text`: of templates, those of models without images.
    """
    bounds: dict[str, str]
    """By flag or variable, the interval that its number lies in, as `(0, 1]`."""
    variables: dict[str, Literal["int", "float", "bool", "str"]]
    """Of the environment; those that are texts are of ms-swift's libraries, too."""
    commands: dict[str, dict[str, Flag]]
    """By flag name, then by the commands that share the definition, as "sft pt"."""
    models: list[str]
    """Ids of the models that ms-swift registers, of either hub."""
    note: str = ""
    """What is installed, if it is not what these are the facts of."""

    def flags(self, command: str) -> dict[str, Flag]:
        """Return the flags of `swift COMMAND`."""
        return {
            name: flag
            for name, kinds in self.commands.items()
            for commands, flag in kinds.items()
            if command in commands.split()
        }


@lru_cache
def facts() -> Facts:
    """Return the facts of the tested versions; the ``note`` says where others are installed."""
    shipped = msgspec.json.decode(SHIPPED.read_bytes(), type=Facts)
    other = {n: v for n, v in installed_versions().items() if v != shipped.versions[n]}
    if not other:
        return shipped
    tested = _listed({name: shipped.versions[name] for name in other})
    note = f"flags are judged as those of {tested}; installed: {_listed(other)}"
    return msgspec.structs.replace(shipped, note=note)


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def installed_versions() -> dict[str, str]:
    """Return the versions of PACKAGES, or none if a package is missing: no recipe can run then."""
    try:
        return {name: metadata.version(name) for name in PACKAGES}
    except metadata.PackageNotFoundError:
        return {}
