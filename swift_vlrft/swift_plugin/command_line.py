"""What the `swift rlhf` command that is running asked for: read from its arguments, before ms-
swift parses them.

ms-swift imports a plugin while it builds its arguments, with nothing handed over; ``sys.argv`` is
what both see. A YAML or JSON configuration (``swift rlhf cfg.yaml``) has by then been turned into
flags by ms-swift's own launcher.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class CommandLine:
    datasets: list[str] = field(default_factory=list)
    val_datasets: list[str] = field(default_factory=list)
    cached_datasets: list[str] = field(default_factory=list)
    reward_funcs: list[str] = field(default_factory=list)
    external_plugins: list[str] = field(default_factory=list)
    columns: dict[str, str] = field(default_factory=dict)
    model: str | None = None
    model_type: str | None = None
    system: str | None = None
    max_length: int | None = None
    max_pixels: int | None = None
    truncation_strategy: str | None = None
    strict: bool = False
    use_hf: bool | None = None


def read_command_line(argv: list[str]) -> CommandLine:
    """The values of the flags that concern us; a flag given twice counts the last time, as in
    argparse.
    """
    values: dict[str, list[str]] = {}
    current: list[str] | None = None
    for arg in argv:
        if arg.startswith("--"):
            name, equals, value = arg[2:].partition("=")
            current = values[name.replace("-", "_")] = [value] if equals else []
        elif current is not None:
            current.append(arg)

    def one(name: str) -> str | None:
        return next(iter(values.get(name) or ()), None)

    def switch(name: str) -> bool | None:
        text = one(name)
        return None if text is None else text.lower() in ("true", "1", "yes", "t", "y")

    found = CommandLine(
        datasets=values.get("dataset", []),
        val_datasets=values.get("val_dataset", []),
        cached_datasets=values.get("cached_dataset", []),
        reward_funcs=values.get("reward_funcs", []),
        external_plugins=[
            *values.get("external_plugins", []),
            *values.get("custom_register_path", []),
        ],
        model=one("model"),
        model_type=one("model_type"),
        system=one("system"),
        max_length=_whole(one("max_length")),
        max_pixels=_whole(one("max_pixels")),
        truncation_strategy=one("truncation_strategy"),
        strict=bool(switch("strict")) or values.get("strict") == [],
        use_hf=switch("use_hf"),
    )
    text = one("columns") or "{}"
    try:
        source = Path(text)
        columns = json.loads(
            source.read_text() if text.endswith(".json") and source.is_file() else text
        )
    except ValueError:
        columns = {}  # ms-swift reports it
    found.columns = columns if isinstance(columns, dict) else {}
    return found


def _whole(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None  # ms-swift reports it
