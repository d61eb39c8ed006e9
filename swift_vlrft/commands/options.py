"""Make a command's options from the fields of records.

@with_options(Settings)
def evaluate(model: ..., *, as_json: ..., **options: Any) -> None: ...
"""

import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from msgspec import inspect as kinds

Command = TypeVar("Command", bound=Callable[..., None])

OPTION_TYPES: dict[type, Any] = {
    kinds.BoolType: bool,
    kinds.CustomType: Path,
    kinds.DictType: str,  # as JSON
    kinds.FloatType: float,
    kinds.IntType: int,
    kinds.StrType: str,
    kinds.VarTupleType: list[str],
}
NAMED, KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY


def with_options(*records: type[msgspec.Struct]) -> Callable[[Command], Command]:
    """Give a command an option for each field with a description, in place of its ``**options``.

    Its own keyword-only parameters come last.
    """

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters.values()
        made = [parameter for record in records for parameter in _parameters(record)]
        parameters = [
            *(p for p in own if p.kind == NAMED),
            *made,
            *(p for p in own if p.kind == KEYWORD),
        ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


def _parameters(record: type[msgspec.Struct]) -> Iterator[inspect.Parameter]:
    info = kinds.type_info(record)
    assert isinstance(info, kinds.StructType)
    for field in info.fields:
        if not isinstance(field.type, kinds.Metadata):
            continue
        text = (field.type.extra_json_schema or {})["description"]
        name = (field.type.extra or {}).get("option", "--" + field.name.replace("_", "-"))
        kind, default, optional = field.type.type, field.default, False
        if isinstance(kind, kinds.UnionType):
            (kind,) = (one for one in kind.types if not isinstance(one, kinds.NoneType))
            optional = True
        elif isinstance(kind, kinds.VarTupleType):
            default, optional = None, True
        elif isinstance(kind, kinds.DictType):
            default = json.dumps(field.default_factory())
        python = OPTION_TYPES[type(kind)]
        option = typer.Option(name, help=text, min=getattr(kind, "ge", None))
        annotation: Any = Annotated[python | None if optional else python, option]
        yield inspect.Parameter(field.name, KEYWORD, default=default, annotation=annotation)
