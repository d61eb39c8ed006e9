"""Refuse by name what must not go up to a hub: pickles, paths of this machine, secrets.

    check_files({"config.json": b'{"_name_or_path": "/home/me/start"}'}, "runs/x")
    DataError: ... config.json: _name_or_path is the path /home/me/start; write the id on a hub ...

Nothing is rewritten, unpickled or run: whoever publishes mends the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.source import DataError
from swift_vlrft.files.secrets import has_secret_form, is_secret

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".npy", ".npz")
TEXTS = (".json", ".jinja", ".md", ".py", ".txt", "")
VOCABULARIES = ("tokenizer.json", "vocab.json", "added_tokens.json", "merges.txt", "vocab.txt")
_PATH = re.compile(r"(?:file://)?~?(?:/[^/\n]+){2,}/?|[A-Za-z]:[\\/][^\n]+|\\\\[\w.-]+\\[^\n]+")
_PATH_NAME = re.compile(r"path|dir|file|folder")
_LOCAL = re.compile(r"(?:/|~/|\.{1,2}/)[^\n]+")
"""What a setting that is named a path may not be: also a path of one name, or a relative one."""


def check_files(files: Mapping[str, Path | bytes], what: str) -> None:
    """Raise DataError with the list of what of the files must not go up, if there is any."""
    problems = [f"\n  {name}: {said}" for name, of in files.items() for said in _refused(name, of)]
    if problems:
        raise DataError(f"{what} holds files that must not go up:{''.join(problems)}")


def _refused(name: str, content: Path | bytes) -> Iterator[str]:
    """Yield what of a file must not go up, and what to do."""
    kind = Path(name).suffix
    if kind in PICKLES:
        yield "is a pickle, which can run code where it is loaded; write safetensors"
    elif kind in TEXTS and name not in VOCABULARIES and not name.endswith(".index.json"):
        data = content if isinstance(content, bytes) else content.read_bytes()
        text = data.decode("utf-8", errors="replace")
        try:
            yield from _in_setting("", json.loads(text) if kind == ".json" else text)
        except ValueError as error:
            yield f"is no JSON ({error}); repair it, or remove it"


def _in_setting(name: str, value: Any) -> Iterator[str]:
    """Yield what is wrong with a setting, or with those in it; a whole file's text has no name."""
    if isinstance(value, dict):
        for key, of in value.items():
            yield from _in_setting(f"{name}.{key}" if name else str(key), of)
    elif isinstance(value, list):
        for of in value:
            yield from _in_setting(name, of)
    elif isinstance(value, str):
        last = name.rpartition(".")[2]
        # A whole file, or a template, is a text with names and slashes of its own.
        text = last == "" or last.endswith("template")
        if has_secret_form(value) if text else is_secret(last, value):
            yield f"{name} holds a secret; remove it, and revoke it if others saw it".strip()
        elif not text and (
            _PATH.fullmatch(value.strip()) or _PATH_NAME.search(last) and _LOCAL.fullmatch(value)
        ):
            yield f"{name} is the path {value[:200]}; write the id on a hub instead, or remove it"
