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
    reward_funcs: list[str] = field(default_factory=list)
    external_plugins: list[str] = field(default_factory=list)
    columns: dict[str, str] = field(default_factory=dict)


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
    found = CommandLine(
        datasets=[*values.get("dataset", []), *values.get("val_dataset", [])],
        reward_funcs=values.get("reward_funcs", []),
        external_plugins=[
            *values.get("external_plugins", []),
            *values.get("custom_register_path", []),
        ],
    )
    text = (values.get("columns") or ["{}"])[0]
    try:
        source = Path(text)
        columns = json.loads(
            source.read_text() if text.endswith(".json") and source.is_file() else text
        )
    except ValueError:
        columns = {}  # ms-swift reports it
    found.columns = columns if isinstance(columns, dict) else {}
    return found
