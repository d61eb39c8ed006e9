"""The flags of the running `swift rlhf` command, read before ms-swift parses them.

ms-swift imports a plugin while it builds its arguments and passes it nothing, so ``sys.argv`` is
read here. A YAML or JSON configuration (``swift rlhf cfg.yaml``) has already been turned into flags
by ms-swift's launcher.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swift_vlrft.files.environment import truth


@dataclass
class CommandLine:
    datasets: list[str] = field(default_factory=list)
    val_datasets: list[str] = field(default_factory=list)
    cached_datasets: list[str] = field(default_factory=list)
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
    num_generations: int | None = None
    truncation_strategy: str | None = None
    strict: bool = False
    streaming: bool = False
    rlhf_type: str | None = None
    use_liger_kernel: bool = False
    use_hf: bool | None = None


def read_command_line(argv: list[str]) -> CommandLine:
    """The values of the flags that matter here; wrong values are left for ms-swift to report."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)

    def add(name: str, **options: Any) -> None:
        parser.add_argument(*{f"--{name}", f"--{name.replace('_', '-')}"}, **options)

    for name in ("dataset", "val_dataset", "cached_dataset"):
        add(name, dest=f"{name}s", nargs="*", default=[])
    for name in ("reward_funcs", "external_plugins", "custom_register_path", "adapters"):
        add(name, dest=name, nargs="*", default=[])
    add("resume_from_checkpoint", dest="resume_from_checkpoint", nargs="?")
    for name in ("model", "model_type", "system", "truncation_strategy", "rlhf_type"):
        add(name, dest=name, nargs="?")
    for name in ("max_length", "max_pixels", "num_generations"):
        add(name, dest=name, nargs="?", type=lambda text: int(text) if text.isdecimal() else None)
    add("columns", nargs="?", type=_columns, default={})
    for name in ("strict", "streaming", "use_liger_kernel", "resume_only_model"):
        add(name, dest=name, nargs="?", type=truth, const=True, default=False)
    add("use_hf", dest="use_hf", nargs="?", type=truth, const=True)
    values = vars(parser.parse_known_args(argv)[0])
    values["external_plugins"] = [*values["external_plugins"], *values.pop("custom_register_path")]
    return CommandLine(**values)


def _columns(text: str) -> dict[str, str]:
    try:
        source = Path(text)
        is_file = text.endswith(".json") and source.is_file()
        columns = json.loads(source.read_text() if is_file else text)
    except ValueError:
        return {}
    return columns if isinstance(columns, dict) else {}
