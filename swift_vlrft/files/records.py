"""Records on disk are msgspec Structs as JSON, with one form of error.

write_record(Path("runs/eval/summary.json"), summary)
read_record(Path("runs/eval/run.json"), Manifest)      LineError: file, field, what to do
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from swift_vlrft.files.jsonl import LineError, read_json
from swift_vlrft.files.writing import write_atomically

Record = TypeVar("Record", bound=msgspec.Struct)


def as_json(record: msgspec.Struct) -> Any:
    """Return the record in dicts and lists; paths are text."""
    return msgspec.to_builtins(record, enc_hook=str)


def write_record(path: Path, record: msgspec.Struct) -> None:
    write_atomically(path, json.dumps(as_json(record), indent=2) + "\n")


def strict_json(data: Any) -> str:
    """Write JSON as other programs read it, in printable ASCII; numbers not finite become null."""
    finite = json.loads(json.dumps(data), parse_constant=lambda _: None)
    return json.dumps(finite, indent=2).replace("\x7f", "\\u007f")


def read_record(path: Path, kind: type[Record]) -> Record:
    """Read a record; LineError names the field if the file holds none, FileNotFoundError if there
    is no file.
    """
    value = read_json(path)
    try:
        return msgspec.convert(value, kind, dec_hook=lambda expected, raw: expected(raw))
    except (msgspec.ValidationError, TypeError, UnicodeError) as error:
        raise LineError(
            path,
            f"cannot be read: it is no {kind.__name__} of `vlrft` ({error}); write it again, or "
            "move it aside",
        ) from None
