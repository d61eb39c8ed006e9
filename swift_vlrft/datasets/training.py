"""A set in any form becomes the ``datasets.Dataset`` that ms-swift's GRPO trainer reads.

    in    image {"bytes", "path"}, problem "What is it?", solution "<answer>rose</answer>"
    out   messages [{"role": "user", "content": "<image>What is it?"}], images [{"bytes", "path"}],
          solution "<answer>rose</answer>", task "classification", frame None

Stored images are not copied where nothing has to change: the column is wrapped
where it lies (memory-mapped Arrow). Only a picture that ms-swift would show wrongly (turned by its
EXIF tag, 16 bits a pixel) is written once more, upright, into the cache.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_vlrft.datasets.arrow_cache import (
    ImageInfos,
    cached_parquet,
    image_infos,
    image_infos_of_files,
    joined,
    threads,
)
from swift_vlrft.datasets.box_format import ImageResize, row_in_box_format
from swift_vlrft.datasets.check import left_out_notes
from swift_vlrft.datasets.forms import Form
from swift_vlrft.datasets.image import (
    ImageError,
    ImageInfo,
    ImageInfoReader,
    try_image_info,
    upright_bytes,
)
from swift_vlrft.datasets.read import image_of, image_root, rows_of, schema_of_form
from swift_vlrft.datasets.report import Report
from swift_vlrft.datasets.routing import routed
from swift_vlrft.datasets.row import BadRow, Row, RowLocation
from swift_vlrft.datasets.row_check import NotRead, row_problem
from swift_vlrft.datasets.source import DataError
from swift_vlrft.geometry.box_format import BOX_FORMATS

if TYPE_CHECKING:
    import pyarrow as pa

MADE = ("messages", "images", "solution", "task", "frame")
STRUCT = ("bytes", "path")


@dataclass(frozen=True)
class LoadOptions:
    """What the command asks of a set. ``frame`` is the subset; ``view`` is needed for pixels."""

    cache: Path
    frame: str = "norm1000"
    view: ImageResize | None = None
    strict: bool = False
    too_long: Callable[[Row, ImageInfo], str | None] | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    task: str | None = None
    row_box_format: str | None = None
    """Frame and task of a set that does not state them."""
    rewards: tuple[str, ...] = ()
    """The rewards that the command names: they score the rows that state no task."""
    root: Path | None = None
    num_proc: int = 1


def box_format_of_subsets(subsets: list[str], dataset: str) -> str:
    """The frame that ``--dataset PATH:subset`` names."""
    if len(subsets) > 1 or (subsets and subsets[0] not in (*BOX_FORMATS, "default")):
        raise DataError(
            f"{dataset}: unknown subset {'/'.join(subsets)!r}; known: {', '.join(BOX_FORMATS)}"
        )
    return "norm1000" if not subsets or subsets[0] == "default" else subsets[0]


def with_prompt(problem: str) -> list[dict[str, str]]:
    """The user's turn; the image comes first, as ViRFT's own prompts have it."""
    return [{"role": "user", "content": problem if "<image>" in problem else f"<image>{problem}"}]


def training_set(form: Form, wanted: LoadOptions) -> tuple[Any, Report]:
    """The Dataset of a set on disk, and what was found in it."""
    single = form.kind in ("parquet", "arrow") and schema_of_form(form, wanted.rename).single
    image = _original("image", form.columns, wanted.rename) if single else ""
    if not single or not form.lies_ready(image):
        return from_rows(form, wanted)
    if form.kind == "parquet":
        infos: ImageInfos | None
        cached = cached_parquet(form.files, image, wanted.cache, wanted.num_proc)
        table, infos, origin = cached.table, cached.infos, cached.origin
        form.broken += cached.broken
    else:
        table, origin = _mapped(form)
        infos = None
    return training_table(table, origin, form, wanted, infos)


def training_table(
    table: pa.Table,
    origin: list[tuple[Path, int]],
    form: Form,
    wanted: LoadOptions,
    infos: ImageInfos | None = None,
    features: Mapping[str, Any] | None = None,
) -> tuple[Any, Report]:
    """The same of a table in memory or memory-mapped, whose records are one row each."""
    from datasets import Features

    image = _original("image", table.column_names, wanted.rename)
    form = replace(form, kind="table", content=(table, origin), files=[form.path])
    if infos is None:
        with threads(wanted.num_proc) as pool:
            infos = [h for chunk in table.column(image).chunks for h in image_infos(chunk, pool)]
    # The features that were stored with the table name classes, dates and the like.
    known = features if features is not None else Features.from_arrow_schema(table.schema)
    root = image_root(wanted.root)
    images = table.column(image)
    rows: list[tuple[int, Row, ImageInfo]] = []
    report = Report(form.path)
    number = -1
    files = _files(images, infos, form, root)
    of_file = image_infos_of_files(
        [str(i["path"] or "") for i in files.values() if isinstance(i, dict)], wanted.cache,
        wanted.num_proc,
    )  # fmt: skip
    for row in rows_of(
        form, root=wanted.root, rename=wanted.rename, task=wanted.task, frame=wanted.row_box_format,
        without_images=True,
    ):  # fmt: skip
        if row.place.row is None:
            report.problems.append((row.place, row.problem))
            continue
        number += 1
        info = infos[number]
        if number in files:
            found = files[number]
            info = (
                ImageError(found) if isinstance(found, str) else of_file[str(found["path"] or "")]
            )
            if isinstance(row, Row) and isinstance(found, dict):
                row = replace(row, image=found)
        elif isinstance(row, Row) and row.drawn is not None:
            row = replace(row, image=_named(images[number]))
        assert info is not None
        for good in _validated(row, info, wanted, report):
            rows.append((number, *good))
    report.notes += left_out_notes(form)
    _finish(report, rows, wanted)
    pieces = _Pieces(images, files, wanted, root, form.folder)
    for number, row, info in rows:
        pieces.add(number, row, info)
    columns = _made_columns([(row, info) for _, row, info in rows], wanted)
    keep = {
        (wanted.rename.get(name, name)): name
        for name in table.column_names
        if wanted.rename.get(name, name) not in ("image", "problem", *columns, *MADE)
    }
    further = {name: _kept(table.column(original), pieces.runs) for name, original in keep.items()}
    types = {name: known[original] for name, original in keep.items() if original in known}
    return _dataset(columns, pieces.column(), further, types, form, wanted, table), report


def _validated(
    row: Row | BadRow, info: ImageInfo | ImageError, wanted: LoadOptions, report: Report
) -> Iterator[tuple[Row, ImageInfo]]:
    """The row in the frame that is wanted; nothing where something is wrong, which is reported."""
    report.rows += 1
    if isinstance(row, BadRow):
        report.problems.append((row.place, row.problem))
        return
    if isinstance(info, ImageError):
        report.problems.append((row.place, info.problem))
        return
    row = routed(row, wanted.rewards)
    problem = row_problem(row, info, every_reward=False, rewards=wanted.rewards)
    # Where no row of the set is read, it is for other rewards: _finish knows.
    unread = problem if isinstance(problem, NotRead) else None
    problem = None if unread else problem
    if problem is None and wanted.view is not None:
        problem = wanted.view.problem(info.width, info.height)
    if problem is None and wanted.too_long is not None:
        problem = wanted.too_long(row, info)
        report.too_long += problem is not None
    if problem is None:
        try:
            row = in_asked_box_format(row, info, wanted)
        except DataError:
            raise
        except ValueError as error:
            problem = str(error)
    if problem is not None:
        report.problems.append((row.place, problem))
        return
    if unread:
        report.problems.append((row.place, unread))
        # No named reward reads it; what it looks like keeps them from trying.
        row = replace(row, columns=row.columns | {"task": row.guess})
    else:
        report.add_good(row, wanted.rewards)
    yield row, info


def in_asked_box_format(row: Row, info: ImageInfo, wanted: LoadOptions) -> Row:
    """The row with its boxes and prompt in the frame of the subset."""
    if not row.has_boxes:
        return row
    size = seen = info.width, info.height
    if wanted.frame != "norm1000":
        if wanted.view is None:
            raise DataError("the subset pixels needs the model's family; give --model_type")
        seen = wanted.view.size(*size)
    return row_in_box_format(row, wanted.frame, size, seen)


def _finish(report: Report, rows: list[Any], wanted: LoadOptions) -> None:
    """Stop where nothing is left, where a gold solution cannot be read, and where ``--strict true``
    asks for no bad row at all.
    """
    report.leave_unread()
    bad = len(report.problems) - report.too_long
    if (bad and wanted.strict) or report.unreadable or not rows:
        if not report.rows and not report.problems:
            raise DataError("\n".join([f"{report.path} has no rows", *report.notes]))
        raise DataError(f"{report.bad_rows}:\n{report.listed()}")


# ---- sets whose records are rows -------------------------------------------------------------


def _original(name: str, columns: list[str], rename: Mapping[str, str]) -> str:
    return next(column for column in columns if rename.get(column, column) == name)


def _mapped(form: Form) -> tuple[pa.Table, list[tuple[Path, int]]]:
    import pyarrow as pa

    tables, origin = [], []
    for file in form.files:
        try:
            tables.append(pa.ipc.open_stream(pa.memory_map(str(file))).read_all())
            origin.append((file, len(tables[-1])))
        except (pa.ArrowException, OSError) as error:
            form.broken.append(
                BadRow(RowLocation(file), f"{file} breaks off ({error}); copy it again")
            )
    if not tables:
        raise DataError(f"{form.path}: no file of the set can be read")
    return joined(tables, origin), origin


def _files(
    images: Any, infos: ImageInfos, form: Form, root: Path | None
) -> dict[int, dict[str, Any] | str]:
    """By row, the pictures that are files, or what is wrong with their paths."""
    files: dict[int, dict[str, Any] | str] = {}
    for number, info in enumerate(infos):
        if info is None:
            try:
                files[number] = image_of(images[number].as_py(), form.folder, root)
            except ValueError as error:
                files[number] = str(error)
    return files


def _named(image: Any) -> dict[str, Any]:
    """What a stored picture is called, without its bytes."""
    import pyarrow as pa

    named = pa.types.is_struct(image.type) and image.type.get_field_index("path") >= 0
    return {"bytes": None, "path": image["path"].as_py() if named else None}


class _Pieces:
    """The images column of the rows that are kept: runs of it where it lies, and single values for
    those that have to change.
    """

    def __init__(
        self,
        images: Any,
        files: Container[int],
        wanted: LoadOptions,
        root: Path | None,
        folder: Path,
    ) -> None:
        self.images, self.files = images, files
        self.wanted, self.root, self.folder = wanted, root, folder
        self.runs: list[tuple[int, int]] = []
        self.parts: list[tuple[int, int] | dict[str, Any]] = []

    def add(self, number: int, row: Row, info: ImageInfo) -> None:
        if self.runs and self.runs[-1][1] == number:
            self.runs[-1] = (self.runs[-1][0], number + 1)
        else:
            self.runs.append((number, number + 1))
        if not info.plain:
            value = image_of(self.images[number].as_py(), self.folder, self.root)
            self.parts.append(upright_file(value, row.place, self.wanted.cache))
        elif number in self.files:
            self.parts.append(row.image)
        elif self.parts and isinstance(self.parts[-1], tuple) and self.parts[-1][1] == number:
            self.parts[-1] = (self.parts[-1][0], number + 1)
        else:
            self.parts.append((number, number + 1))

    def column(self) -> pa.ChunkedArray:
        import pyarrow as pa

        kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
        chunks: list[pa.Array] = []
        values: list[dict[str, Any]] = []

        def flush() -> None:
            if values:
                chunks.append(pa.array([[value] for value in values], pa.list_(kind)))
                values.clear()

        for part in self.parts:
            if isinstance(part, dict):
                values.append(part)
                continue
            flush()
            for chunk in self.images.slice(part[0], part[1] - part[0]).chunks:
                chunks.append(_as_list(chunk, kind))
        flush()
        return pa.chunked_array(chunks, pa.list_(kind))


def _as_list(chunk: Any, kind: Any) -> Any:
    """Pictures with every value in a list of its own; only offsets are new, and the paths: ms-swift
    takes one that leads somewhere from where it runs for the picture, rather than the bytes.
    """
    import pyarrow as pa

    if pa.types.is_struct(chunk.type):
        fields = [
            chunk.field(name)
            if chunk.type.get_field_index(name) >= 0
            else pa.nulls(len(chunk), kind.field(name).type)
            for name in STRUCT
        ]
    else:
        fields = [chunk, pa.nulls(len(chunk), pa.string())]
    if not pa.types.is_null(fields[1].type):
        paths = fields[1].to_pylist()
        if any(p and os.path.exists(p) for p in paths):
            fields[1] = pa.array([None if p and os.path.exists(p) else p for p in paths])
    made = pa.StructArray.from_arrays(
        [f.cast(kind.field(n).type) for n, f in zip(STRUCT, fields, strict=True)],
        names=list(STRUCT),
    )
    offsets = pa.array(range(len(chunk) + 1), pa.int32())
    return pa.ListArray.from_arrays(offsets, made)


def _kept(column: Any, runs: list[tuple[int, int]]) -> Any:
    import pyarrow as pa

    chunks = [chunk for a, b in runs for chunk in column.slice(a, b - a).chunks]
    return pa.chunked_array(chunks, column.type)


def upright_file(image: Mapping[str, Any], place: RowLocation, cache: Path) -> dict[str, Any]:
    """The picture as the model should see it, in a file of the cache."""
    content = image.get("bytes")
    if content is None:
        content = Path(str(image["path"])).read_bytes()
    folder = cache / "upright"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{sha256(content).hexdigest()[:32]}.png"
    if not file.is_file():
        _write_whole(
            file, upright_bytes({"bytes": content, "path": image.get("path")}, place)["bytes"]
        )
    return {"bytes": None, "path": str(file)}


def _write_whole(file: Path, content: bytes) -> None:
    half = file.with_suffix(f".{os.getpid()}.writing")
    half.write_bytes(content)
    os.replace(half, file)


# ---- sets whose records are several rows, or name files --------------------------------------


def from_rows(form: Form, wanted: LoadOptions) -> tuple[Any, Report]:
    """Rows made in Python; stored pictures are written once, as files, since several rows show
    the same one.
    """
    import pyarrow as pa

    report = Report(form.path)
    rows: list[tuple[Row, ImageInfo]] = []
    found: list[tuple[Row | BadRow, ImageInfo | ImageError | None, dict[str, Any] | None]] = []
    read = ImageInfoReader(as_files=True)
    for row in rows_of(
        form, root=wanted.root, rename=wanted.rename, task=wanted.task, frame=wanted.row_box_format
    ):
        info: ImageInfo | ImageError | None = None
        stored = None
        if isinstance(row, Row) and row.image.get("bytes") is not None:
            info = read(row.image)
            if isinstance(info, ImageInfo):
                stored = _stored_file(row, wanted.cache)
            row = replace(row, image={"bytes": None, "path": row.image["path"]})
        found.append((row, info, stored))
    files = [str(r.image["path"] or "") for r, info, _ in found if isinstance(r, Row) and not info]
    of_file = image_infos_of_files(files, wanted.cache, wanted.num_proc)
    for row, info, stored in found:
        if isinstance(row, BadRow):
            report.rows += row.place.row is not None
            report.problems.append((row.place, row.problem))
        else:
            info = info or of_file[str(row.image["path"] or "")]
            for good, seen in _validated(row, info, wanted, report):
                rows.append((replace(good, image=stored or good.image), seen))
    report.notes += left_out_notes(form)
    _finish(report, rows, wanted)
    images = [
        row.image if info.plain else upright_file(row.image, row.place, wanted.cache)
        for row, info in rows
    ]
    kind = pa.list_(pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    column = pa.chunked_array([pa.array([[image] for image in images], kind)])
    columns = _made_columns(rows, wanted)
    further = {}
    names = dict.fromkeys(name for row, _ in rows for name in row.columns)
    for name in names:
        if name not in (*columns, *MADE) and form.kind != "json":
            further[name] = pa.chunked_array([pa.array([row.columns.get(name) for row, _ in rows])])
    if form.kind == "json":
        further = _json_columns(rows, [n for n in names if n not in (*columns, *MADE)])
    return _dataset(columns, column, further, {}, form, wanted, None), report


def _stored_file(row: Row, cache: Path) -> dict[str, Any]:
    content = row.image["bytes"]
    folder = cache / "images"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / sha256(content).hexdigest()[:32]
    if not file.is_file():
        _write_whole(file, content)
    return {"bytes": None, "path": str(file)}


def _json_columns(rows: list[tuple[Row, ImageInfo]], names: list[str]) -> dict[str, Any]:
    """Further columns of JSON rows; one whose values are of several types becomes JSON text."""
    import json

    import pyarrow as pa

    made = {}
    for name in names:
        values = [row.columns.get(name) for row, _ in rows]
        try:
            column = pa.array(values)
        except (pa.ArrowException, UnicodeEncodeError):
            column = pa.array([None if value is None else json.dumps(value) for value in values])
        if not pa.types.is_null(column.type):
            made[name] = pa.chunked_array([column])
    return made


# ---- what is made in both cases --------------------------------------------------------------


def _made_columns(rows: list[tuple[Row, ImageInfo]], wanted: LoadOptions) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        "messages": [with_prompt(row.problem) for row, _ in rows],
        "solution": [row.solution for row, _ in rows],
        "task": [row.columns["task"] for row, _ in rows],
        "frame": [row.columns.get("frame") for row, _ in rows],
    }
    if wanted.frame == "pixels":
        # The size that boxes in pixels are measured in, for rewards and checks in training.
        for name in ("width", "height"):
            columns[name] = [row.columns.get(name) for row, _ in rows]
    return columns


def _dataset(
    columns: dict[str, list[Any]],
    images: pa.ChunkedArray,
    further: dict[str, Any],
    types: Mapping[str, Any],
    form: Form,
    wanted: LoadOptions,
    table: pa.Table | None,
) -> Any:
    import pyarrow as pa
    from datasets import Dataset, DatasetInfo, Features, Json, List, Value
    from datasets.features.features import generate_from_arrow_type

    texts = {name: Value("string") for name in ("solution", "task", "frame")}
    made = Dataset.from_dict(
        columns,
        features=Features(
            {"messages": List(Json())}
            | texts
            | {name: Value("int64") for name in ("width", "height") if name in columns}
        ),
    )
    all_columns = {name: made.data.table.column(name) for name in made.column_names}
    all_columns["images"] = images
    all_columns |= further
    features = Features(
        {**made.features, "images": List({"bytes": Value("binary"), "path": Value("string")})}
        | {n: types.get(n) or generate_from_arrow_type(c.type) for n, c in further.items()}
    )
    # A fingerprint of our own: the default one would read every image.
    words = [str(made.data.table.column(n).to_pylist()) for n in ("solution", "messages")]
    text = "".join([str(form.path), repr(wanted.frame), *words])
    return Dataset(
        pa.table(all_columns).replace_schema_metadata(None),
        info=DatasetInfo(features=features),
        fingerprint=sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16],
    )


# ---- streaming -------------------------------------------------------------------------------


def streamed_rows(
    rows: Iterator[Row | BadRow], wanted: LoadOptions, report: Report
) -> Iterator[Any]:
    """One row after the other, for ``--streaming true``; problems are counted as they come."""
    for row in rows:
        if isinstance(row, BadRow):
            report.rows += row.place.row is not None
            report.problems.append((row.place, row.problem))
            if wanted.strict:
                _finish(report, [], wanted)
            continue
        before = len(report.problems)
        kept = list(_validated(row, try_image_info(row.image), wanted, report))
        # Rows that no named reward reads train while none of the set was read, as in _finish.
        unread = kept and not report.scored
        if len(report.problems) > before and not unread:
            if wanted.strict and len(report.problems) > report.too_long:
                _finish(report, [], wanted)
            continue
        ((good, seen),) = kept
        image = good.image if seen.plain else upright_bytes(good.image, good.place)
        # Several sets stream as one only if no half of a picture is null in one of them.
        content = image["bytes"]
        if content is None:
            content = Path(image["path"]).read_bytes()
        path = image.get("path") or ""
        image = {"bytes": content, "path": "" if os.path.exists(path) else path}
        made = {name: values[0] for name, values in _made_columns(kept, wanted).items()}
        further = {k: v for k, v in good.columns.items() if k not in (*made, *MADE)}
        yield further | made | {"images": [image]}
    report.leave_unread()
