"""Write the cards of a data set and of a model, each from its template in ``templates/``.

dataset_card(Path("data/coco8"), "hf", "me/coco8", "cc-by-4.0")     Card({"README.md": ...}, ...)
model_card(open_checkpoint(Path("runs/demo")), "hf", "me/shapes")

A licence is what somebody states; the hub says whether it knows the name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from swift_vlrft.datasets import SOURCES
from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.datasets.schema import task_of
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.splits import by_split
from swift_vlrft.evaluation.summary import Summary
from swift_vlrft.families import family_of
from swift_vlrft.files.jsonl import LineError
from swift_vlrft.files.markdown import code, fenced, inline
from swift_vlrft.files.records import read_record
from swift_vlrft.hub.checkpoint import Checkpoint, name_of
from swift_vlrft.hub.refused import check_files
from swift_vlrft.parsing.answers import gold_text, read_boxes
from swift_vlrft.recipe.facts import facts
from swift_vlrft.rewards import PAYING, REWARDS, TASK_NAMES

FLAGS = (
    *("rlhf_type", "tuner_type", "lora_rank", "lora_alpha", "freeze_vit", "freeze_aligner"),
    *("torch_dtype", "learning_rate", "lr_scheduler_type", "warmup_ratio", "weight_decay"),
    *("loss_type", "advantage_estimator", "scale_rewards", "importance_sampling_level", "beta"),
    *("epsilon", "epsilon_high", "num_iterations", "num_generations", "temperature", "top_p"),
    *("top_k", "dynamic_sample", "overlong_filter", "max_length", "max_completion_length"),
    *("max_pixels", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("num_train_epochs", "max_steps", "seed"),
)
"""What a reader compares runs by; none of them holds a path."""
SAME = ("dataset", "split", "task", "frame", "protocol", "categories", "max_queries", "seed")
"""The settings in which two evaluations must agree to stand beside each other."""
NO_LICENCE = "the card states no licence; state it with --license NAME"


@dataclass
class Card:
    """Holds ``files``, which go up, and ``notes`` for the publisher."""

    files: dict[str, Path | bytes]
    licence: str | None = None
    notes: list[str] = field(default_factory=list)


def _from_template(kind: Any, name: str, data: Any, hub: str, repo: str, **values: Any) -> bytes:
    """The card of ``huggingface_hub``; text of others goes through inline, code or fenced."""
    path = str(Path(__file__).parent / "templates" / name)
    values |= {"hub": hub, "repo": repo, "name": repo.split("/")[1]}
    values |= {"inline": inline, "code": code, "fenced": fenced}
    return str(kind.from_template(data, template_path=path, **values)).encode()


def _meaning(reward: str) -> str:
    """What a reward pays, in its own words."""
    if reward not in REWARDS:
        return "of ms-swift, or of a plugin of the run"
    return " ".join((REWARDS[reward].__doc__ or "").split()).split(". ")[0].rstrip(".")


# ---- a data set --------------------------------------------------------------------------------


def dataset_card(folder: Path, hub: str, repo: str, licence: str | None = None) -> Card:
    """Return the card and the shards of a converted folder. A README.md that is there is the card,
    with ``licence`` put into its head. DataError if a shard is broken, or holds no images, and with
    the list of what must not go up.
    """
    from huggingface_hub import DatasetCard, DatasetCardData

    splits = {file: split or "train" for file, split in _shards(folder).items()}
    counts, boxes, columns, formats = _counted(folder, splits)
    tasks = [task for task in dict.fromkeys(task for _, task in counts) if task in TASK_NAMES]
    if not tasks:
        raise DataError(f"{folder}: no row is of a known task; vlrft data check {folder} says more")
    card, own = Card({}, licence), folder / "README.md"
    if own.is_file():
        card.notes.append(f"{own} goes up as the card")
        content = own.read_bytes()
        card.licence, content = _stated(own, licence)
    else:
        paths = {
            of: [f"data/{f.name}" for f in splits if splits[f] == of] for of in splits.values()
        }
        of_splits = [{"split": split, "path": path} for split, path in paths.items()]
        data = DatasetCardData(
            license=licence,
            task_categories=sorted({TASK_NAMES[task].hub_category for task in tasks}),
            tags=["virft", "grpo", "ms-swift"],
            configs=[{"config_name": "default", "data_files": of_splits}],
        )
        values: dict[str, Any] = {"counts": counts, "columns": columns, "formats": formats}
        values["evaluated"] = tasks[0]
        named = [(name, boxes[name]) for name in sorted(boxes, key=lambda n: -boxes[n].total())]
        values["boxes"] = [("all", sum(boxes.values(), Counter())), *filter(itemgetter(0), named)]
        rewards = {name: _meaning(name) for name in rewards_of(tasks)}
        content = _from_template(
            DatasetCard, "dataset.md", data, hub, repo, rewards=rewards, **values
        )
    if card.licence is None:
        card.notes.append(NO_LICENCE)
    card.files = {"README.md": content} | {f"data/{file.name}": file for file in splits}
    check_files(card.files, str(folder))
    return card


def _shards(folder: Path) -> Mapping[Path, str | None]:
    shards = sorted((folder / "data").glob("*.parquet"))
    if not shards:
        raise DataError(
            f"{folder} is no converted folder (it has no data/*.parquet); make one with: vlrft "
            f"data convert {folder} NEW_FOLDER"
        )
    return by_split(shards, folder)


def _counted(
    folder: Path, splits: Mapping[Path, str]
) -> tuple[Counter[tuple[str, str]], dict[str, Counter[str]], list[str], list[str]]:
    """Of every shard's texts: rows by split and task, boxes by category ("": it has none) and
    split, columns, box formats.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    counts, columns, formats = Counter[tuple[str, str]](), dict[str, None](), set[str]()
    boxes: dict[str, Counter[str]] = {}
    for file, split in splits.items():
        try:
            with pq.ParquetFile(file) as opened:
                names = opened.schema_arrow.names
                texts = [
                    name for name in ("task", "frame", "solution", "category") if name in names
                ]
                first = next(opened.iter_batches(1, columns=["image"]), None)
                for batch in opened.iter_batches(columns=texts):
                    for row in batch.to_pylist():
                        task = str(row.get("task") or task_of(row.get("solution")))
                        counts[split, task] += 1
                        if task in BOX_TASKS:
                            formats.add(str(row.get("frame") or "norm1000"))
                            gold = read_boxes(gold_text(row.get("solution")))
                            for label in gold.labels if gold is not None else ():
                                name = str(row.get("category") or label or "")
                                boxes.setdefault(name, Counter())[split] += 1
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{file} cannot be read as Parquet ({error}); make it again") from None
        columns |= dict.fromkeys(names)
        image = first.to_pylist()[0].get("image") if first is not None else None
        if not isinstance(image, dict) or not image.get("bytes"):
            raise DataError(
                f"{file}: its first row holds no image but {str(image)[:80]!r}, so nobody else "
                f"would have it; put images in with: vlrft data convert {folder} NEW_FOLDER"
            )
    return counts, boxes, list(columns), sorted(formats)


def _stated(file: Path, licence: str | None) -> tuple[str | None, bytes]:
    """The licence of the owner's card, and its text: as it is, but for a licence that is given."""
    import yaml
    from huggingface_hub import DatasetCard

    try:
        card = DatasetCard(file.read_text(encoding="utf-8-sig"))
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise DataError(f"{file} is no card that a hub reads: {error}") from None
    if licence is not None:
        card.data["license"] = licence
        return licence, str(card).encode()
    stated = card.data.to_dict().get("license")
    return None if stated is None else str(stated), file.read_bytes()


def rewards_of(tasks: list[str]) -> list[str]:
    """Return the rewards that a first run on these tasks would take."""
    formats = {TASK_NAMES[task].format_reward for task in tasks}
    # Every answer can meet the plain format.
    chosen = formats if len(formats) == 1 else ["vlrft_format"]
    return [*(PAYING[task][0] for task in tasks), *chosen]


# ---- a model -----------------------------------------------------------------------------------


def model_card(
    opened: Checkpoint,
    hub: str,
    repo: str,
    *,
    before: Path | None = None,
    after: Path | None = None,
    licence: str | None = None,
) -> Card:
    """Return the card and the checkpoint's files that belong. ``before`` and ``after`` are
    evaluations, by default those that `vlrft demo` left, if they are of this checkpoint.

    DataError if an evaluation is of another model or other rows, and with the list of what must
    not go up.
    """
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

    card, args = Card({}, licence), opened.args
    results = _results(opened, before, after, card.notes)
    kind = str(args.get("rlhf_type") or "sft")
    sets = [str(name) for name in args.get("dataset") or []]
    known = {source.hub_id for source in SOURCES} | set(facts(may_import=False).datasets)
    ids = [re.split("[:#]", name.removeprefix("hf::").removeprefix("ms::"))[0] for name in sets]
    data = ModelCardData(
        model_name=repo.split("/")[1],
        license=licence,
        library_name="peft" if opened.is_adapter else "transformers",
        pipeline_tag="image-text-to-text",
        base_model=opened.base,
        datasets=[i for i in ids if i in known] or None,
        tags=["ms-swift", "visual-rft", kind, *(["lora"] if opened.is_adapter else [])],
        eval_results=[
            EvalResult(
                task_type="image-text-to-text",
                task_name=summary.task,
                dataset_type=name_of(str(summary.run["dataset"])),
                dataset_name=name_of(str(summary.run["dataset"])),
                dataset_split=summary.run.get("split"),
                metric_type=summary.headline,
                metric_value=summary.best,
            )
            for summary, _ in results
            if summary.best is not None
        ]
        or None,
    )
    if opened.base:
        data["base_model_relation"] = "adapter" if opened.is_adapter else "finetune"
    if hub == "modelscope":  # its own keys: https://modelscope.cn/docs/models/card
        data["tasks"], data["frameworks"] = ["image-text-to-text"], ["pytorch"]
    names = [name_of(str(name)) for name in args.get("reward_funcs") or []]
    weights = args.get("reward_weights") or [1] * len(names)
    family = family_of(model_type=str(args.get("model_type")))
    text = _from_template(
        *(ModelCard, "model.md", data, hub, repo),
        opened=opened,
        args=args,
        start=name_of(str(args.get("model"))),
        sets=[name_of(name) for name in sets],
        rewards=[(name, of, _meaning(name)) for name, of in zip(names, weights, strict=False)],
        ours=any(name in REWARDS for name in names),
        flags=FLAGS,
        plugin=bool(family and family.needs_plugin),
        results=results,
        limits={k: v for s, _ in results for k, v in (s.run.get("resolution") or {}).items()},
        name_of=name_of,
    )
    card.files = {"README.md": text, **opened.files}
    check_files(card.files, str(opened.folder))
    if not results:
        card.notes.append(
            "the card holds no evaluation; add folders of `vlrft eval` with --before and --after"
        )
    if licence is None:
        card.notes.append(NO_LICENCE)
    if opened.base is None:
        card.notes.append("the card names no base model on a hub; --base-model ORG/NAME does")
    if opened.left_out:
        card.notes.append(f"not published: {', '.join(opened.left_out)}")
    return card


def _results(
    opened: Checkpoint, before: Path | None, after: Path | None, notes: list[str]
) -> list[tuple[Summary, Summary | None]]:
    """The summaries after the training, each with that before it, on the same rows."""
    if before is not None and after is None:
        raise DataError("--before needs --after, the evaluation of the published model")
    demo = opened.folder.parents[1] / "eval"
    of_demo = after is None and (demo / "after").is_dir() and (demo / "before").is_dir()
    if of_demo:
        before, after = demo / "before", demo / "after"
    first = [] if before is None else _summaries(before, "--before")
    try:
        return [
            (_of_this(opened, summary, after), _on_same_rows(first, summary, before))
            for summary in ([] if after is None else _summaries(after, "--after"))
        ]
    except DataError as error:
        if not of_demo:
            raise
        notes.append(f"the evaluations in {demo} are left out: {error}")
        return []


def _summaries(folder: Path, flag: str) -> list[Summary]:
    """Those in a folder of `vlrft eval`, or of several tasks each."""
    files = [folder / "summary.json", *sorted(folder.glob("*/summary.json"))]
    try:
        summaries = [read_record(file, Summary) for file in files if file.is_file()]
    except LineError as error:
        raise DataError(str(error)) from None
    if not summaries:
        raise DataError(f"{flag} {folder} holds no summary.json of vlrft eval (from {Path.cwd()})")
    return summaries


def _of_this(opened: Checkpoint, summary: Summary, folder: Path | None) -> Summary:
    model = Path(str(summary.run.get("model")))
    # Where it is not there any more (it was moved), run and checkpoint are called the same.
    same = model.resolve() == opened.folder if model.exists() else False
    if not same and (model.exists() or model.parts[-2:] != opened.folder.parts[-2:]):
        raise DataError(
            f"--after {folder} is of the model {model}, not of {opened.folder}; evaluate this "
            "checkpoint with `vlrft eval`, or publish that model"
        )
    return summary


def _on_same_rows(first: list[Summary], last: Summary, folder: Path | None) -> Summary | None:
    """The summary of ``first`` on the rows of ``last``; DataError if none or the same model's."""
    if not first:
        return None
    rows = {name: last.run.get(name) for name in SAME}
    matches = [s for s in first if {name: s.run.get(name) for name in SAME} == rows]
    if not matches or matches[0].run.get("model") == last.run.get("model"):
        said = ", ".join(f"{name} {value}" for name, value in rows.items() if value)
        raise DataError(
            f"--before {folder} holds no evaluation of another model on the rows of --after "
            f"({said}); evaluate both on the same rows"
        )
    return matches[0]
