"""Refuse by name what must not go up to a hub: pickles, paths of this machine, secrets.

    refused({"config.json": b'{"_name_or_path": "/home/me/start"}'})
    [Refused("config.json", "_name_or_path is the path /home/me/start", "write the model's id ...")]

Nothing is rewritten: whoever publishes mends the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from swift_vlrft.datasets.source import DataError
from swift_vlrft.files.secrets import has_secret_form, is_secret

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".npy", ".npz")
TEXTS = (".json", ".jinja", ".md", ".py", ".txt")
OTHER_TEXTS = ("LICENSE", "NOTICE")
"""What texts without a suffix begin with."""
VOCABULARIES = ("tokenizer.json", "vocab.json", "added_tokens.json", "merges.txt", "vocab.txt")
_PATH = re.compile(r"(?:file://)?~?(?:/[^/\n]+){2,}/?|[A-Za-z]:[\\/][^\n]+|\\\\[\w.-]+\\[^\n]+")
_OF_A_PATH = re.compile(r"path|dir|file|folder")
_LOCAL = re.compile(r"(?:/|~/|\.{1,2}/)[^\n]+")
"""What a setting that is named a path may not be: also a path of one name, or a relative one."""


class Refused(NamedTuple):
    """Says ``what`` is wrong with ``file``, by its name in the repository, and what to ``do``."""

    file: str
    what: str
    do: str


def check_files(files: Mapping[str, Path | bytes], what: str) -> None:
    """Raise DataError with the list of ``refused`` files, if there are any."""
    if problems := list(refused(files)):
        lines = [f"\n  {problem.file}: {problem.what}; {problem.do}" for problem in problems]
        raise DataError(f"{what} holds files that must not go up:{''.join(lines)}")


def refused(files: Mapping[str, Path | bytes]) -> Iterator[Refused]:
    """Yield what of the files must not go up; none of them is unpickled or run."""
    for name, content in files.items():
        kind = Path(name).suffix
        if kind in PICKLES:
            do = "write safetensors: --safe_serialization true, or `swift export`"
            yield Refused(name, "is a pickle, which can run code where it is loaded", do)
        elif name not in VOCABULARIES and not name.endswith(".index.json"):
            if kind not in TEXTS and not name.startswith(OTHER_TEXTS):
                continue
            data = content if isinstance(content, bytes) else content.read_bytes()
            text = data.decode("utf-8", errors="replace")
            try:
                read = json.loads(text) if kind == ".json" else text
            except ValueError as error:
                yield Refused(name, f"is no JSON ({error})", "repair it, or remove it")
            else:
                yield from (Refused(name, *problem) for problem in _of_settings("", read))


def _of_settings(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """What is wrong with a setting, and what to do; with those below it, if it holds some. The text
    of a whole file has no name.
    """
    if isinstance(value, dict):
        for key, of in value.items():
            yield from _of_settings(f"{name}.{key}" if name else str(key), of)
    elif isinstance(value, list):
        for of in value:
            yield from _of_settings(name, of)
    elif isinstance(value, str):
        last = name.rpartition(".")[2]
        # A whole file, or a template, is a text with names and slashes of its own.
        text = last == "" or last.endswith("template")
        if has_secret_form(value) if text else is_secret(last, value):
            yield f"{name} holds a secret".strip(), "remove it, and revoke it if others saw it"
        elif not text and (
            _PATH.fullmatch(value.strip()) or _OF_A_PATH.search(last) and _LOCAL.fullmatch(value)
        ):
            yield f"{name} is the path {value[:200]}", "write the id on a hub instead, or remove it"
