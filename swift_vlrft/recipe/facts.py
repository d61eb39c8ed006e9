"""What ms-swift is: its flags with types, choices and defaults, its rewards, its templates.

    facts().flags("rlhf")["beta"]          Flag(kind="float", default=None, choices=())
    facts().flags("rlhf")["rlhf_type"]     Flag(kind="str", default="dpo", choices=("dpo", ...))

Importing ms-swift takes seconds, so they are kept: in ms_swift.json for the versions that this
package is tested with, in the user's cache folder for every other set of versions that was met.
swift_plugin/facts.py reads them from ms-swift itself, in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import msgspec

from swift_vlrft.files.writing import write_atomically

SHIPPED = Path(__file__).with_name("ms_swift.json")
PACKAGES = ("ms-swift", "trl", "transformers")
"""Whose versions decide the facts."""

SECONDS = 120


class FactsError(RuntimeError):
    """The installed ms-swift cannot be asked; the message says why."""


class Flag(msgspec.Struct, array_like=True, frozen=True):
    """A flag of a command; an array in the file, without what it does not need."""

    kind: Literal["bool", "bool value", "int", "float", "str", "json", "ints", "floats", "strs"]
    """``bool`` may stand without a value, ``bool value`` may not; ``json`` is an object or a file
    of it; a plural takes several values."""
    default: Any = None
    choices: tuple[str | int | float | None, ...] = ()


class Facts(msgspec.Struct, frozen=True):
    versions: dict[str, str]
    rewards: list[str]
    datasets: list[str]
    """Ids that ms-swift registers, of either hub."""
    prefixes: dict[str, tuple[str, str]]
    """By model type, what its template puts before a completion: with thinking on, and off."""
    commands: dict[str, dict[str, Flag]]
    """By name of a flag, then by the commands that take it so, as "sft pt"."""

    def flags(self, command: str) -> dict[str, Flag]:
        """The flags of `swift COMMAND`; empty for a command that is not known."""
        return {
            name: flag
            for name, kinds in self.commands.items()
            for commands, flag in kinds.items()
            if command in commands.split()
        }


@lru_cache
def facts(ask: bool = True) -> Facts:
    """Those of the installed versions; the shipped ones where nothing is installed.

    ``ask``: whether ms-swift may be imported (seconds) for versions that were never met; without
    it the shipped facts stand in. FactsError where ms-swift does not answer.
    """
    shipped = _decoded(SHIPPED.read_bytes())
    versions = installed_versions()
    if versions in (shipped.versions, {}):
        return shipped
    path = cache_folder() / ("_".join(versions.values()) + ".json")
    try:
        kept = _decoded(path.read_bytes())
        if kept.versions == versions:
            return kept
    except (OSError, msgspec.MsgspecError):
        pass  # never met, or written by another version of this package
    if not ask:
        return shipped
    data = _ask()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError:
        pass  # a home that cannot be written to: asked again next time
    return _decoded(data)


def installed_versions() -> dict[str, str]:
    """Versions of PACKAGES; empty where one is missing, as no recipe can run then."""
    try:
        return {name: metadata.version(name) for name in PACKAGES}
    except metadata.PackageNotFoundError:
        return {}


def cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "swift_vlrft"


def _decoded(data: bytes) -> Facts:
    return msgspec.json.decode(data, type=Facts)


def _ask() -> bytes:
    command = [sys.executable, "-m", "swift_vlrft.swift_plugin.facts"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise FactsError(f"ms-swift did not answer within {SECONDS} s") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise FactsError(f"the installed ms-swift cannot be imported: {said[-1]}")
    return done.stdout
