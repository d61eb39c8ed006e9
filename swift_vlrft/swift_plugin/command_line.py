"""Read the flags of the running `swift rlhf` command before ms-swift parses them.

ms-swift imports a plugin while it builds its arguments and passes it nothing, so what it parses is
read here. A YAML or JSON configuration (``swift rlhf cfg.yaml``) has already been turned into flags
by ms-swift's launcher.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from swift_vlrft.files.environment import truth
from swift_vlrft.recipe.flags import flags_of


@dataclass
class CommandLine:
    """Holds flags by name; ``external_plugins`` includes --custom_register_path."""

    dataset: list[str] = field(default_factory=list)
    val_dataset: list[str] = field(default_factory=list)
    cached_dataset: list[str] = field(default_factory=list)
    reward_funcs: list[str] = field(default_factory=list)
    external_plugins: list[str] = field(default_factory=list)
    adapters: list[str] = field(default_factory=list)
    columns: dict[str, str] = field(default_factory=dict)
    model: str | None = None
    model_type: str | None = None
    resume_from_checkpoint: str | None = None
    resume_only_model: bool = False
    system: str | None = None
    max_length: int | None = None
    max_pixels: int | None = None
    truncation_strategy: str | None = None
    strict: bool = False
    streaming: bool = False
    rlhf_type: str | None = None
    use_liger_kernel: bool = False
    use_hf: bool | None = None


def arguments() -> list[str]:
    """Return what ms-swift parses in this process: in a worker of Ray, which has a command line of
    its own, the driver's (swift/utils/utils.py: parse_args); for `megatron rlhf --use_ray true`,
    the flags of its configuration (swift/ray/megatron/driver_utils.py: parse_ray_yaml).
    """
    if handed := os.environ.get("RAY_SWIFT_ARGS"):
        return [str(word) for word in json.loads(handed)]
    words = sys.argv[1:]
    if "swift.ray.megatron.pipeline" not in sys.modules or "--config" not in words[:-1]:
        return words
    from swift_vlrft.recipe.reader import read_recipe

    flags = read_recipe(words[words.index("--config") + 1]).flags
    return [word for flag in flags for word in (f"--{flag.name}", *flag.values)]


def supervised() -> bool:
    """Return whether this is `swift sft`, `megatron sft`, or a worker of `swift sft` in Ray."""
    return Path(sys.argv[0]).stem == "sft" or os.environ.get("RAY_SWIFT_GROUP") == "default"


def running_command() -> CommandLine:
    """Return the command line of this process's run."""
    return read_command_line(arguments())


def read_command_line(argv: list[str]) -> CommandLine:
    """Read the values of the flags that matter here; ms-swift reports wrong values."""
    flags = {flag.name: list(flag.values) for flag in flags_of(argv)}
    if paths := flags.pop("custom_register_path", []):
        flags["external_plugins"] = flags.get("external_plugins", []) + paths
    known = [field for field in fields(CommandLine) if field.name in flags]
    values = {field.name: READ[str(field.type)](flags[field.name]) for field in known}
    return CommandLine(**values)


def _columns(values: list[str]) -> dict[str, str]:
    try:
        source = Path(values[0])
        is_file = source.suffix == ".json" and source.is_file()
        columns = json.loads(source.read_text() if is_file else values[0])
    except (ValueError, IndexError):
        return {}
    return columns if isinstance(columns, dict) else {}


READ: dict[str, Callable[[list[str]], Any]] = {
    "list[str]": list,
    "dict[str, str]": _columns,
    "str | None": lambda values: values[0] if values else None,
    "int | None": lambda values: int(v) if (v := "".join(values[:1])).isdecimal() else None,
    "bool": lambda values: bool(truth(values[0] if values else "true")),
    "bool | None": lambda values: truth(values[0] if values else "true"),
}
"""How the values of a flag are read, by the type of its field."""
