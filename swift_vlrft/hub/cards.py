"""Write the cards of a data set and of a model, each from its template in ``templates/``.

dataset_files(Path("data/coco8"), "hf", "me/coco8", "cc-by-4.0")
{"data/train-00000-of-00001.parquet": Path(...), "README.md": b"..."}
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.datasets.schema import task_of
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.splits import by_split
from swift_vlrft.evaluation.summary import Summary
from swift_vlrft.families import family_of
from swift_vlrft.files.markdown import code, fenced, inline
from swift_vlrft.files.records import read_record
from swift_vlrft.hub.checkpoint import Checkpoint, is_hub_id, name_of
from swift_vlrft.hub.refused import check_files
from swift_vlrft.rewards import PAYING, REWARDS, TASK_NAMES

FLAGS = (
    *("lora_rank", "lora_alpha", "freeze_vit", "learning_rate", "loss_type", "beta", "epsilon"),
    *("num_generations", "temperature", "max_length", "max_completion_length", "max_pixels"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs", "seed"),
)
"""What a reader compares runs by; none of them holds a path."""


def _from_template(kind: Any, name: str, data: Any, hub: str, repo: str, values: Any) -> bytes:
    """The card of ``huggingface_hub``; text of others goes through inline, code or fenced."""
    values |= {"hub": hub, "repo": repo, "name": repo.split("/")[1]}
    values |= {"inline": inline, "code": code, "fenced": fenced}
    path = str(Path(__file__).parent / "templates" / name)
    return str(kind.from_template(data, template_path=path, **values)).encode()


def _meaning(reward: str) -> str:
    """What a reward pays, in its own words."""
    if reward not in REWARDS:
        return "of ms-swift, or of a plugin of the run"
    return " ".join((REWARDS[reward].__doc__ or "").split()).split(". ")[0].rstrip(".")


def dataset_files(
    folder: Path, hub: str, repo: str, licence: str | None = None
) -> dict[str, Path | bytes]:
    """Return the card and the shards of a converted folder; its README.md is the card."""
    from huggingface_hub import DatasetCard, DatasetCardData

    shards = sorted((folder / "data").glob("*.parquet"))
    if not shards:
        raise DataError(f"{folder} has no data/*.parquet; make one with vlrft data convert")
    splits = {file: split or "train" for file, split in by_split(shards, folder).items()}
    counts, columns, formats = _counted(splits)
    tasks = [task for task in dict.fromkeys(task for _, task in counts) if task in TASK_NAMES]
    if not tasks:
        raise DataError(f"{folder}: no row is of a known task; vlrft data check {folder} says more")
    files: dict[str, Path | bytes] = {f"data/{file.name}": file for file in splits}
    if (own := folder / "README.md").is_file():
        files["README.md"] = own
    else:
        data = DatasetCardData(
            license=licence,
            task_categories=sorted({TASK_NAMES[task].hub_category for task in tasks}),
            tags=["virft", "grpo", "ms-swift"],
        )
        values = {
            **{"counts": counts, "columns": columns, "formats": formats, "evaluated": tasks[0]},
            "rewards": {name: _meaning(name) for name in rewards_of(tasks)},
        }
        files["README.md"] = _from_template(DatasetCard, "dataset.md", data, hub, repo, values)
    check_files(files, str(folder))
    return files


def _counted(splits: Mapping[Path, str]) -> tuple[Counter[tuple[str, str]], list[str], list[str]]:
    """Count rows by split and task; list columns and box formats."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    counts, columns, formats = Counter[tuple[str, str]](), dict[str, None](), set[str]()
    for file, split in splits.items():
        try:
            with pq.ParquetFile(file) as opened:
                names = opened.schema_arrow.names
                texts = [n for n in ("task", "frame", "solution") if n in names]
                first = next(opened.iter_batches(1, columns=["image"])).to_pylist()[0].get("image")
                rows = opened.read(columns=texts).to_pylist()
        except (pa.ArrowException, OSError, StopIteration) as error:
            raise DataError(f"{file} cannot be read as Parquet ({error}); make it again") from None
        if not isinstance(first, dict) or not first.get("bytes"):
            raise DataError(f"{file} holds no images; put them in with: vlrft data convert")
        columns |= dict.fromkeys(names)
        for row in rows:
            task = str(row.get("task") or task_of(row.get("solution")))
            counts[split, task] += 1
            if task in BOX_TASKS:
                formats.add(str(row.get("frame") or "norm1000"))
    return counts, list(columns), sorted(formats)


def rewards_of(tasks: list[str]) -> list[str]:
    """Return the rewards that a first run on these tasks would take."""
    formats = {TASK_NAMES[task].format_reward for task in tasks}
    # Every answer can meet the plain format.
    chosen = formats if len(formats) == 1 else ["vlrft_format"]
    return [*(PAYING[task][0] for task in tasks), *chosen]


def model_files(
    opened: Checkpoint,
    hub: str,
    repo: str,
    *,
    before: Path | None = None,
    after: Path | None = None,
    licence: str | None = None,
) -> dict[str, Path | bytes]:
    """Return the card and the checkpoint's files; ``before``, ``after``: of `vlrft eval`."""
    from huggingface_hub import ModelCard, ModelCardData

    args, (first, last) = opened.args, _evaluations(opened, before, after)
    sets = [str(name) for name in args.get("dataset") or []]
    ids = [re.sub("^(hf|ms)::|[:#].*", "", name) for name in sets]
    data = ModelCardData(
        model_name=repo.split("/")[1],
        license=licence,
        library_name="peft" if opened.is_adapter else "transformers",
        pipeline_tag="image-text-to-text",
        base_model=opened.base,
        datasets=[name for name in ids if is_hub_id(name)] or None,
        tags=["ms-swift", "visual-rft", str(args.get("rlhf_type") or "sft")],
    )
    names = [name_of(str(name)) for name in args.get("reward_funcs") or []]
    weights = args.get("reward_weights") or [1] * len(names)
    family = family_of(model_type=str(args.get("model_type")))
    values = {
        **{"opened": opened, "args": args, "flags": FLAGS, "name_of": name_of},
        **{"before": first, "after": last, "sets": [name_of(name) for name in sets]},
        "start": name_of(str(args.get("model"))),
        "rewards": [(name, of, _meaning(name)) for name, of in zip(names, weights, strict=False)],
        "ours": any(name in REWARDS for name in names),
        "plugin": bool(family and family.needs_plugin),
    }
    content = _from_template(ModelCard, "model.md", data, hub, repo, values)
    files: dict[str, Path | bytes] = {"README.md": content, **opened.files}
    check_files(files, str(opened.folder))
    return files


def _evaluations(
    opened: Checkpoint, before: Path | None, after: Path | None
) -> tuple[Summary | None, Summary | None]:
    """The summaries before and after the training; DataError if they cannot be compared."""
    rows = ("dataset", "split", "task", "frame", "protocol", "categories", "max_queries", "seed")
    first, last = (read_record(f / "summary.json", Summary) if f else None for f in (before, after))
    # A run may have been moved: its name and the checkpoint's stay.
    if last and Path(str(last.run.get("model"))).parts[-2:] != opened.folder.parts[-2:]:
        raise DataError(f"--after {after} is of {last.run.get('model')}, not of {opened.folder}")
    if first and (last is None or any(first.run.get(key) != last.run.get(key) for key in rows)):
        raise DataError(f"--before {before} is not of the rows of --after {after}")
    return first, last
