"""Make a command's options from the fields of records.

@with_options(Settings)
def evaluate(model: ..., *, as_json: ..., **options: Any) -> None: ...
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from msgspec.inspect import (
    BoolType,
    CustomType,
    DictType,
    FloatType,
    IntType,
    Metadata,
    NoneType,
    StrType,
    UnionType,
    VarTupleType,
    type_info,
)

Command = TypeVar("Command", bound=Callable[..., None])

OPTION_TYPES: dict[type, Any] = {
    BoolType: bool,
    CustomType: Path,
    DictType: str,  # as JSON
    FloatType: float,
    IntType: int,
    StrType: str,
    VarTupleType: list[str],
}


def with_options(*records: type[msgspec.Struct]) -> Callable[[Command], Command]:
    """Give a command an option for each field with a description, in place of its ``**options``.

    Its own keyword-only parameters come last.
    """

    def decorate(command: Command) -> Command:
        own = [*inspect.signature(command, eval_str=True).parameters.values()]
        made = [parameter for record in records for parameter in _parameters(record)]
        last = [p for p in own if p.kind is inspect.Parameter.KEYWORD_ONLY]
        first = [p for p in own if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*made, *last)]
        command.__signature__ = inspect.Signature([*first, *keywords])  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in (*first, *keywords)}
        return command

    return decorate


def _parameters(record: type[msgspec.Struct]) -> Iterator[inspect.Parameter]:
    info = type_info(record)
    assert isinstance(info, msgspec.inspect.StructType)
    for field in info.fields:
        if not isinstance(field.type, Metadata):
            continue
        schema, extra = field.type.extra_json_schema or {}, field.type.extra or {}
        kind, optional = _inner(field.type.type)
        name = extra.get("option", "--" + field.name.replace("_", "-"))
        option = typer.Option(name, help=schema["description"], min=getattr(kind, "ge", None))
        python, default = OPTION_TYPES[type(kind)], field.default
        if isinstance(kind, VarTupleType):
            optional, default = True, None
        elif isinstance(kind, DictType):
            default = json.dumps(field.default_factory())
        annotation = Annotated[python | None if optional else python, option]
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )


def _inner(kind: Any) -> tuple[Any, bool]:
    """A field's type without None, and whether None is one of its values."""
    if isinstance(kind, UnionType):
        (inner,) = (one for one in kind.types if not isinstance(one, NoneType))
        return inner, True
    return kind, False
