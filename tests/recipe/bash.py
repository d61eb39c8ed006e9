"""Scripts run by bash itself, with programs that write down how they were called."""

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

STUB = """#!/bin/bash
{ printf '%s\\0' "${0##*/}" "$@"; printf '\\1\\0'; env -0; } > "$SEEN/.$$"
[ "$1" = rlhf ] || echo "${0##*/} ran"
mv "$SEEN/.$$" "$SEEN/$$"
if [ "$1" = rlhf ]; then  # what runs in the background has written too: CALLS in all
  until [ "$(ls "$SEEN" | wc -l)" -ge "${CALLS:-1}" ]; do sleep 0.05; done
  echo "${0##*/} ran"
fi
"""
OF_A_SHELL = {"PWD", "OLDPWD", "SHLVL", "_", "SEEN", "CALLS", "PATH", "LC_CTYPE"}
"""Variables of the shell that runs a script, not of the script."""


class Call(NamedTuple):
    program: str
    words: list[str]
    environment: dict[str, str]


def write_programs(folder: Path, names: Iterable[str], text: str = STUB) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def run_bash(
    script: Path,
    programs: Path,
    folder: Path,
    variables: Mapping[str, str],
    arguments: Sequence[str] = (),
) -> tuple[list[Call], subprocess.CompletedProcess[str]]:
    """What ``script`` called while it ran in ``folder``: our programs, with their variables."""
    seen = folder.with_name(f"{folder.name}.seen")
    seen.mkdir()
    environment = {
        **{"HOME": "/nowhere", "PATH": f"{programs}:/usr/bin:/bin", "SEEN": str(seen)},
        **variables,
    }
    ended = subprocess.run(
        ["bash", str(script), *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
    )
    calls = []
    for file in sorted(seen.glob("[0-9]*")):
        words, variables = file.read_bytes().decode().split("\1\0")
        program, *words = words.split("\0")[:-1]
        items = (item.split("=", 1) for item in variables.split("\0")[:-1])
        calls.append(Call(program, words, {k: v for k, v in items if k not in OF_A_SHELL}))
    return calls, ended
