"""A table of image, problem, solution becomes the rows that ms-swift's GRPO trainer reads.

    in    image {"bytes", "path"}, problem "What is it?", solution "<answer>rose</answer>"
    out   messages [{"role": "user", "content": "<image>What is it?"}], images [{"bytes", "path"}],
          solution "<answer>rose</answer>", task "classification", frame None

The images are neither decoded nor copied: the column is wrapped where it lies (memory-mapped
Arrow).
"""

from __future__ import annotations

from typing import Any

from swift_vlrft.datasets.check import guess_task
from swift_vlrft.datasets.source import DataError

MADE = ("messages", "images", "task", "frame")


def with_prompt(problem: str) -> list[dict[str, str]]:
    """The user's turn; the image comes first, as ViRFT's own prompts have it."""
    return [{"role": "user", "content": problem if "<image>" in problem else f"<image>{problem}"}]


def training_rows(
    dataset: Any, *, task: str | None = None, frame: str | None = None, **_: Any
) -> Any:
    """A ``datasets.Dataset`` or ``IterableDataset`` with image, problem and solution, in ms-
    swift's form.

    Further keyword arguments (ms-swift passes num_proc, strict, ...) do not apply: nothing is
    computed per image.
    """
    from datasets import Dataset

    names = dataset.column_names
    if names is not None:
        missing = [name for name in ("image", "problem", "solution") if name not in names]
        if missing:
            raise DataError(
                f"the data set lacks the column(s) {', '.join(missing)}; it has {', '.join(names)}"
            )
    if isinstance(dataset, Dataset):
        return _table_rows(dataset, task, frame)
    from datasets import Image

    if dataset.features is not None and isinstance(dataset.features.get("image"), Image):
        dataset = dataset.cast_column("image", Image(decode=False))
    return dataset.map(
        _one_row, fn_kwargs={"task": task, "frame": frame}, remove_columns=["image", "problem"]
    )


def _one_row(row: dict[str, Any], *, task: str | None, frame: str | None) -> dict[str, Any]:
    row_task = row.get("task") or task or guess_task([row["solution"]])
    return {
        "messages": with_prompt(row["problem"]),
        "images": [row["image"]],
        "solution": row["solution"],
        "task": row_task,
        "frame": row.get("frame") or frame or default_frame(row_task),
    }


def default_frame(task: str) -> str | None:
    return "norm1000" if task in ("detection", "grounding") else None


def _table_rows(dataset: Any, task: str | None, frame: str | None) -> Any:
    import pyarrow as pa
    from datasets import Dataset, DatasetInfo, Features, Json, List, Value
    from datasets.fingerprint import update_fingerprint

    if dataset._indices is not None:
        dataset = dataset.flatten_indices()
    table = dataset.data.table
    solutions = table.column("solution").to_pylist()
    set_task = task or guess_task(solutions)
    tasks = [
        t or set_task
        for t in (
            table.column("task").to_pylist()
            if "task" in table.column_names
            else [None] * len(dataset)
        )
    ]
    given = (
        table.column("frame").to_pylist()
        if "frame" in table.column_names
        else [None] * len(dataset)
    )
    made = Dataset.from_dict(
        {
            "messages": [with_prompt(problem) for problem in table.column("problem").to_pylist()],
            "task": tasks,
            "frame": [g or frame or default_frame(t) for g, t in zip(given, tasks, strict=True)],
        },
        features=Features(
            {"messages": List(Json()), "task": Value("string"), "frame": Value("string")}
        ),
    )
    columns: dict[str, Any] = {
        name: made.data.table.column(name) for name in ("messages", "task", "frame")
    }
    columns["images"] = _as_lists(table.column("image"))
    kept = [name for name in table.column_names if name not in ("image", "problem", *MADE)]
    columns |= {name: table.column(name) for name in kept}

    features = Features(
        {**made.features, "images": List({"bytes": Value("binary"), "path": Value("string")})}
        | {name: dataset.features[name] for name in kept}
    )
    plain = pa.table(columns).replace_schema_metadata(None)
    # A fingerprint of our own: the default one would read every image.
    fingerprint = update_fingerprint(
        dataset._fingerprint, "vlrft.training_rows", {"task": task, "frame": frame}
    )
    return Dataset(
        plain,
        info=DatasetInfo(features=features.reorder_fields_as(features)),
        fingerprint=fingerprint,
    )


def _as_lists(image: Any) -> Any:
    """The image column with every value in a list of its own; only offsets are new."""
    import pyarrow as pa

    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    chunks = []
    for chunk in image.chunks:
        if pa.types.is_string(chunk.type):
            chunk = pa.StructArray.from_arrays(
                [pa.nulls(len(chunk), pa.binary()), chunk], names=["bytes", "path"]
            )
        if not pa.types.is_struct(chunk.type):
            raise DataError(
                f"the column image holds {chunk.type}; expected {{bytes, path}} or a path"
            )
        chunk = pa.StructArray.from_arrays(
            [chunk.field("bytes"), chunk.field("path")], names=["bytes", "path"]
        )
        offsets = pa.array(range(len(chunk) + 1), pa.int32())
        chunks.append(pa.ListArray.from_arrays(offsets, chunk.cast(kind)))
    return pa.chunked_array(chunks, pa.list_(kind))
