"""The dataset card: README.md with the YAML that both hubs read, and counts for people.

---
task_categories: [object-detection]
configs: [{config_name: default, data_files: [{split: train, path: data/train-*}]}]
dataset_info: {features: [{name: image, dtype: image}, ...], splits: [...]}
---
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

CATEGORIES = {
    "detection": "object-detection",
    "grounding": "object-detection",
    "classification": "image-classification",
}
"""Our tasks as the hubs name them; all others are questions about an image."""

SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M")

CARD = """\
---
# license: state here what the images and their annotations allow, e.g. cc-by-4.0
{data}
---

# {title}

{about}

| split | rows | image bytes | tasks | box formats |
|---|---|---|---|---|
{table}

Columns: `image`, `problem` (the prompt), `solution` (gold), `task`, `frame` (what the boxes are
measured in: `norm1000` is thousandths of the image's width and height, `pixels` those of the image,
`unit` shares of 1, `yx1000` thousandths under `box_2d`, y first), and what the source had
besides. It trains with swift-vlrft as
`swift rlhf --rlhf_type grpo --external_plugins "$(vlrft plugin)" --dataset THIS_FOLDER ...`.
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


def write_card(
    path: Path, title: str, splits: Mapping[str, SplitCounts], schema: pa.Schema, about: str
) -> None:
    from huggingface_hub import DatasetCardData

    rows = sum(one.rows for one in splits.values())
    tasks = {task for one in splits.values() for task in one.tasks}
    files = [{"split": split, "path": f"data/{split}-*"} for split in splits]
    data = DatasetCardData(
        task_categories=sorted({CATEGORIES.get(t, "visual-question-answering") for t in tasks}),
        tags=["virft", "grpo", "ms-swift"],
        size_categories=[SIZES[min(max(0, len(str(rows)) - 3), len(SIZES) - 1)]],
        configs=[{"config_name": "default", "data_files": files}],
        dataset_info={
            "features": features_of(schema)._to_yaml_list(),
            "splits": [
                {"name": split, "num_bytes": one.image_bytes, "num_examples": one.rows}
                for split, one in splits.items()
            ],
            "dataset_size": sum(one.image_bytes for one in splits.values()),
        },
    )
    table = [
        f"| {split} | {one.rows} | {one.image_bytes} "
        f"| {_listed(one.tasks)} | {_listed(one.box_formats)} |"
        for split, one in splits.items()
    ]
    text = CARD.format(data=data.to_yaml(), title=title, about=about, table="\n".join(table))
    path.write_text(text, encoding="utf-8")


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "-"
