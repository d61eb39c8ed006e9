"""The dataset card: README.md with the YAML that both hubs read, and counts for people.

---
task_categories: [object-detection]
configs: [{config_name: default, data_files: [{split: train, path: data/train-*}]}]
dataset_info: {features: [{name: image, dtype: image}, ...], splits: [...]}
---

`vlrft data push` writes the part between the two marks again, with more (hub/dataset_card.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_vlrft.datasets.licence import licence_data
from swift_vlrft.files.markdown import front_matter, inline

if TYPE_CHECKING:
    import pyarrow as pa

CATEGORIES = {
    "detection": "object-detection",
    "grounding": "object-detection",
    "classification": "image-classification",
    "ocr": "image-to-text",
}
"""Our tasks as the hubs name them; all others are questions about an image."""

SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M")

MARK = "<!-- vlrft: written by vlrft from here ... -->"
MARK_END = "<!-- ... to here; what stands around it is yours -->"

CARD = """\
{head}
# {title}

{about}

{mark}

| split | rows | image bytes | tasks | box formats |
|---|---|---|---|---|
{table}

Columns: `image`, `problem` (the prompt), `solution` (gold), `task`, `frame` (the format of the
boxes), and what the source had besides. `vlrft data push` puts a picture and the commands here.

{mark_end}
"""


@dataclass
class SplitCounts:
    """Counts of a split."""

    rows: int = 0
    image_bytes: int = 0
    tasks: Counter[str] = field(default_factory=Counter)
    box_formats: Counter[str] = field(default_factory=Counter)

    def add(self, row: Mapping[str, Any]) -> None:
        self.rows += 1
        self.image_bytes += len(row["image"]["bytes"])
        self.tasks.update(filter(None, [row.get("task")]))
        self.box_formats.update(filter(None, [row.get("frame")]))


def features_of(schema: pa.Schema) -> Any:
    """The schema as ``datasets`` and the hubs name it."""
    from datasets import Features, Image

    return Features(Features.from_arrow_schema(schema) | {"image": Image()})


def card_data(splits: Mapping[str, int], tasks: Iterable[str]) -> dict[str, Any]:
    """What both hubs read at the head of every card; ``splits``: rows of each."""
    rows = sum(splits.values())
    files = [{"split": split, "path": f"data/{split}-*"} for split in splits]
    return {
        "task_categories": sorted({CATEGORIES.get(t, "visual-question-answering") for t in tasks}),
        "tags": ["virft", "grpo", "ms-swift"],
        "size_categories": [SIZES[min(max(0, len(str(rows)) - 3), len(SIZES) - 1)]],
        "configs": [{"config_name": "default", "data_files": files}],
    }


def write_card(
    path: Path,
    title: str,
    splits: Mapping[str, SplitCounts],
    schema: pa.Schema,
    about: str,
    licence: str | None = None,
) -> None:
    """``licence``: as the source's own card states it; None: the card asks its owner for it."""
    tasks = {task for one in splits.values() for task in one.tasks}
    info = {
        "features": features_of(schema)._to_yaml_list(),
        "splits": [
            {"name": split, "num_bytes": one.image_bytes, "num_examples": one.rows}
            for split, one in splits.items()
        ],
        "dataset_size": sum(one.image_bytes for one in splits.values()),
    }
    data = card_data({split: one.rows for split, one in splits.items()}, tasks)
    head = front_matter(licence_data(licence) | data | {"dataset_info": info})
    if licence is None:
        ask = "# license: state here what the images and their annotations allow, e.g. cc-by-4.0"
        head = head.replace("---\n", f"---\n{ask}\n", 1)
    table = [
        f"| {split} | {one.rows} | {one.image_bytes} "
        f"| {listed(one.tasks)} | {listed(one.box_formats)} |"
        for split, one in splits.items()
    ]
    marks = {"mark": MARK, "mark_end": MARK_END}
    text = CARD.format(head=head, title=inline(title), about=about, table="\n".join(table), **marks)
    path.write_text(text, encoding="utf-8")


def listed(counts: Counter[str]) -> str:
    """The counts as a cell of a table."""
    return ", ".join(f"{inline(name)} {count}" for name, count in sorted(counts.items())) or "-"
