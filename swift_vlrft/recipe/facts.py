"""Facts of ms-swift: its flags with types, choices and defaults, its rewards, its templates.

    facts().flags("rlhf")["beta"]          Flag(kind="float", default=None, choices=())
    facts().flags("rlhf")["rlhf_type"]     Flag(kind="str", default="dpo", choices=("dpo", ...))

Importing ms-swift takes seconds, so they are stored: in ms_swift.json for the versions that this
package is tested with, in the user's cache folder for other versions. swift_plugin/facts.py reads
them from ms-swift in a separate process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import msgspec

from swift_vlrft.files.cache import remembered

SHIPPED = Path(__file__).with_name("ms_swift.json")
PACKAGES = ("ms-swift", "trl", "transformers")
"""The packages on whose versions the facts depend."""

SECONDS = 120


class Flag(msgspec.Struct, array_like=True, frozen=True):
    """A flag of a command; an array in the file, without trailing defaults."""

    kind: Literal["bool", "bool value", "int", "float", "str", "json", "ints", "floats", "strs"]
    """``bool`` needs no value, ``bool value`` does; ``json`` is an object or a file with one; a
    plural takes several values."""
    default: Any = None
    choices: tuple[str | int | float | None, ...] = ()


class Template(msgspec.Struct, array_like=True, frozen=True):
    """What a chat template writes before a completion."""

    usual: str
    """Without a flag: with thinking only if the model cannot but think."""
    thinking: str
    """With `--enable_thinking true`."""
    otherwise: str
    """With `--enable_thinking false`."""
    models: tuple[str, ...] = ()
    """Names on the hubs, without the owner and in lower case, of the models that it is for."""


class Facts(msgspec.Struct, frozen=True, omit_defaults=True):
    versions: dict[str, str]
    rewards: list[str]
    datasets: list[str]
    """Data-set ids that ms-swift registers, of either hub."""
    templates: dict[str, Template]
    """The templates that write something before a completion."""
    commands: dict[str, dict[str, Flag]]
    """By flag name, then by the commands that share the definition, as "sft pt"."""
    note: str = ""
    """Why these are not the facts of the installed versions, if they are not."""

    def flags(self, command: str) -> dict[str, Flag]:
        """The flags of `swift COMMAND`, or of `megatron rlhf` for megatron-rlhf; empty for a
        command that is not known.
        """
        return {
            name: flag
            for name, kinds in self.commands.items()
            for commands, flag in kinds.items()
            if command in commands.split()
        }


def of_megatron(known: Facts) -> Facts:
    """With the flags of `megatron`; ``note`` says so if they are of another version: without
    Megatron-Core ms-swift does not tell them.
    """
    if known.flags("megatron-rlhf"):
        return known
    shipped = msgspec.json.decode(SHIPPED.read_bytes(), type=Facts)
    theirs = {
        name: {commands: flag for commands, flag in kinds.items() if "megatron-" in commands}
        for name, kinds in shipped.commands.items()
    }
    both = {name: known.commands.get(name, {}) | kinds for name, kinds in theirs.items()}
    note = (
        f"the flags of `megatron` are those of ms-swift {shipped.versions['ms-swift']}: here they "
        "cannot be read without Megatron-Core"
    )
    return msgspec.structs.replace(known, commands=known.commands | both, note=known.note or note)


@lru_cache
def facts(may_import: bool = True) -> Facts:
    """The facts of the installed versions; the shipped ones if nothing is installed.

    ``may_import``: whether ms-swift is imported (seconds) for versions that are not cached. Without
    it, and if ms-swift does not answer, the shipped facts are used and their ``note`` says so.
    """
    shipped = msgspec.json.decode(SHIPPED.read_bytes(), type=Facts)
    versions = installed_versions()
    if versions in (shipped.versions, {}):
        return shipped
    key = [versions, Facts.__struct_fields__, Flag.__struct_fields__]
    read = _from_ms_swift if may_import else _without_import
    try:
        return msgspec.convert(remembered("facts", key, read), Facts)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        tested = f"those of {_listed(shipped.versions)}, the tested versions, are used"
        note = f"the flags of {_listed(versions)} were not read ({error}); {tested}"
        return msgspec.structs.replace(shipped, note=note)


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def installed_versions() -> dict[str, str]:
    """Versions of PACKAGES; empty if one is missing, as no recipe can run then."""
    try:
        return {name: metadata.version(name) for name in PACKAGES}
    except metadata.PackageNotFoundError:
        return {}


def _from_ms_swift() -> Any:
    """OSError says why ms-swift does not answer."""
    command = [sys.executable, "-m", "swift_vlrft.swift_plugin.facts"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"no answer within {SECONDS} s") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise OSError(lines[-1] if lines else "no message")
    return json.loads(done.stdout)


def _without_import() -> Any:
    raise OSError("ms-swift was not imported")
