"""The dataset card: README.md with the YAML that both hubs read, and counts for people.

---
task_categories: [object-detection]
configs: [{config_name: default, data_files: [{split: train, path: data/train-*}]}]
dataset_info: {features: [{name: image, dtype: image}, ...], splits: [...]}
---
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_vlrft.datasets.shard import features_of

if TYPE_CHECKING:
    import pyarrow as pa

    from swift_vlrft.datasets.writer import Shard

CATEGORIES = {
    "detection": "object-detection",
    "grounding": "object-detection",
    "classification": "image-classification",
}
"""Our tasks as the hubs name them; all others are questions about a picture."""

LICENCE = "# license: state here what the images and their annotations allow, e.g. cc-by-4.0\n"


def write_card(
    path: Path, title: str, shards: Sequence[Shard], schema: pa.Schema, notes: str
) -> None:
    """Write the card, beside and then renamed: it is the last file of a folder."""
    import yaml

    splits = list(dict.fromkeys(shard.split for shard in shards))
    rows = {split: sum(s.rows for s in shards if s.split == split) for split in splits}
    size = {split: sum(s.image_bytes for s in shards if s.split == split) for split in splits}
    tasks: Counter[str] = Counter()
    for shard in shards:
        tasks.update(shard.tasks)
    head: dict[str, Any] = {
        "task_categories": sorted({CATEGORIES.get(t, "visual-question-answering") for t in tasks}),
        "tags": ["virft", "grpo", "ms-swift"],
        "size_categories": [size_category(sum(rows.values()))],
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": s, "path": f"data/{s}-*"} for s in splits],
            }
        ],
        "dataset_info": {
            "features": features_of(schema)._to_yaml_list(),
            "splits": [
                {"name": split, "num_bytes": size[split], "num_examples": rows[split]}
                for split in splits
            ],
            "dataset_size": sum(size.values()),
        },
    }
    text = "---\n" + LICENCE + yaml.safe_dump(head, sort_keys=False, allow_unicode=True) + "---\n\n"
    text += f"# {title}\n\n{notes.strip()}\n\n" if notes.strip() else f"# {title}\n\n"
    text += "| split | rows | image bytes | tasks | frames |\n|---|---|---|---|---|\n"
    for split in splits:
        mine = [shard for shard in shards if shard.split == split]
        text += (
            f"| {split} | {rows[split]} | {size[split]} "
            f"| {_counts(s.tasks for s in mine)} | {_counts(s.frames for s in mine)} |\n"
        )
    text += _FOOT
    beside = path.with_name(path.name + ".writing")
    beside.write_text(text, encoding="utf-8")
    beside.rename(path)


def size_category(rows: int) -> str:
    """The hubs' own words for a size: n<1K, 1K<n<10K, ..."""
    names = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M")
    return next((n for i, n in enumerate(names) if rows < 10 ** (3 + i)), "10M<n<100M")


def _counts(parts: Any) -> str:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return ", ".join(f"{name} {count}" for name, count in sorted(total.items())) or "-"


_FOOT = """
Columns: `image`, `problem` (the prompt), `solution` (gold), `task`, `frame` (what the boxes are
measured in: `norm1000` is thousandths of the image's width and height), and what the source had
besides. It trains with swift-vlrft as
`swift rlhf --rlhf_type grpo --external_plugins "$(vlrft plugin)" --dataset THIS_FOLDER ...`.
"""
