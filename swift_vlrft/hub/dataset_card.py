"""The card of a Parquet folder, with a picture, for one of the hubs.

dataset_files(Path("data/coco8"), "hf", "me/coco8", "cc-by-4.0")     Card(files={"README.md": ...})

What the folder's own README.md says outside the marks stays, and so does what its YAML states.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.card import MARK, MARK_END, card_data
from swift_vlrft.datasets.licence import licence_data
from swift_vlrft.datasets.source import DataError
from swift_vlrft.files.markdown import code, front_matter, inline
from swift_vlrft.geometry.box_format import BOX_FORMATS
from swift_vlrft.hub.cleaning import is_path
from swift_vlrft.hub.contact_sheet import contact_sheet, records
from swift_vlrft.hub.set_facts import SetFacts, read_facts
from swift_vlrft.hub.templates import render
from swift_vlrft.memory.rewrite import TASKS
from swift_vlrft.rewards import REWARDS

PICTURE = "assets/rows.jpg"
MODEL = "Qwen/Qwen3-VL-2B-Instruct"

MEANINGS = {
    "image": "the image: its bytes, and the name of its file",
    "problem": "the prompt",
    "solution": "the gold answer",
    "task": "the kind of question, which decides the rewards of the row",
    "frame": "what the numbers of boxes are measured in",
    "aliases": "further answers that are right",
    "tolerance": "how far a number may be off, as a share of the gold",
    "category": "the class that is asked for",
    "width": "width of the image, pixels",
    "height": "height of the image, pixels",
    "pass_rate": "share of a model's answers that were right",
    "reward_mean": "mean reward of these answers",
    "reward_std": "standard deviation of their rewards",
}

BOXES = {
    "norm1000": "A box is `[x1, y1, x2, y2]`, left, top, right and bottom edge, in thousandths of "
    "the image's width (x) and height (y): `[500, 0, 1000, 500]` is the upper right quarter.",
    "pixels": "A box is `[x1, y1, x2, y2]`, left, top, right and bottom edge, in pixels of the "
    "image as it is stored here.",
    "unit": "A box is `[x1, y1, x2, y2]`, left, top, right and bottom edge, in shares of the "
    "image's width (x) and height (y): `[0.5, 0, 1, 0.5]` is the upper right quarter.",
    "yx1000": "A box stands under `box_2d` as `[y1, x1, y2, x2]`, top, left, bottom and right "
    "edge, in thousandths of the image's height (y) and width (x): `[0, 500, 500, 1000]` is the "
    "upper right quarter.",
}
LICENCE_KEYS = ("license", "license_name", "license_link")
NO_LICENCE = (
    "Nobody has stated a licence for this set. Its images and annotations come from elsewhere: "
    "ask whoever published them before you use or pass them on."
)
LICENCE = (
    "{name}, as stated for the source of the images and annotations. Their makers' terms apply to "
    "this copy too."
)


@dataclass
class Card:
    """``files``: what goes up. ``notes``: what the publisher should know."""

    files: dict[str, Path | bytes]
    licence: str | None = None
    notes: list[str] = field(default_factory=list)


def dataset_files(folder: Path, hub: str, repo: str, licence: str | None = None) -> Card:
    """Card, picture and shards of a finished folder. ``licence``: instead of the one in its card.
    DataError if a file is missing or a shard is broken.
    """
    data, body = read_card(folder)
    facts = read_facts(folder)
    kept = {key: data.pop(key, None) for key in LICENCE_KEYS}
    stated = licence_data(licence) if licence is not None else _kept_licence(kept, folder)
    made = _made_data(facts, hub)
    if _counts(data) not in (None, {name: one.rows for name, one in facts.splits.items()}):
        for key in ("dataset_info", "configs", "size_categories"):  # of the shards as they were
            data.pop(key, None)
    own = data.get("tags")
    tags = [*made["tags"], *(map(str, own) if isinstance(own, list) else ())]
    data = stated | made | data | {"tags": list(dict.fromkeys(tags))}
    card = Card({}, stated.get("license"))
    shown = records(facts.places)
    _check_images(folder, shown)
    if named := _columns_with_paths(shown):
        card.notes.append(
            f"the rows go up as they are, and hold paths of a machine ({', '.join(named)}); leave "
            "the columns out if nobody should see them"
        )
    picture = contact_sheet(facts.places)
    if facts.without_gold:
        card.notes.append(
            f"{facts.without_gold} rows hold no gold answer; vlrft data check {folder} says which"
        )
    if picture is None:
        card.notes.append("no picture: no image of the rows that were tried can be read")
    if not stated:
        card.notes.append(
            "no licence is stated, and the card says so; state what the source of the images "
            "allows with --license, for instance --license cc-by-4.0"
        )
    part = _part(folder, facts, hub, repo, stated, picture is not None)
    card.files["README.md"] = f"{front_matter(data)}\n{placed(body, part)}".encode()
    if picture is not None:
        card.files[PICTURE] = picture
    card.files |= {
        f"data/{file.name}": file for file in sorted((folder / "data").glob("*.parquet"))
    }
    return card


def _check_images(folder: Path, rows: list[dict[str, Any]]) -> None:
    """DataError where the shards hold names of images instead of images."""
    for image in (row.get("image") for row in rows):
        path = image if isinstance(image, str) else None
        if isinstance(image, dict) and not image.get("bytes"):
            path = image.get("path")
        if path:
            raise DataError(
                f"{folder}: the column image holds names of files ({path}) and no images, so "
                f"nobody else would have them; put them in with: vlrft data convert {folder} "
                "NEW_FOLDER"
            )


def _columns_with_paths(rows: list[dict[str, Any]]) -> list[str]:
    """Columns in which one of these rows has an absolute path."""
    found: dict[str, None] = {}
    for row in rows:
        image = row.get("image")
        path = image.get("path") if isinstance(image, dict) else None
        for name, value in {**row, "image.path": path}.items():
            if isinstance(value, str) and len(value) < 4096 and is_path(value):
                found[name] = None
    return list(found)


def read_card(folder: Path) -> tuple[dict[str, Any], str]:
    """The YAML and the text of the folder's README.md; DataError as ``dataset_files``."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import yaml
    from huggingface_hub import DatasetCard

    files = sorted((folder / "data").glob("*.parquet"))
    card = folder / "README.md"
    if not card.is_file() or not files:
        raise DataError(
            f"{folder} is not a finished Parquet folder (README.md and data/*.parquet); make one "
            f"with: vlrft data convert {folder} NEW_FOLDER"
        )
    for file in files:
        try:
            pq.read_metadata(file)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{file} cannot be read as Parquet ({error}); make it again") from error
    try:
        text = card.read_text(encoding="utf-8-sig")
    except UnicodeError as error:
        raise DataError(f"{card} is not UTF-8 ({error}); save it as UTF-8") from None
    if not text.startswith("---"):
        return {}, text.strip()
    try:
        loaded = DatasetCard(text, ignore_metadata_errors=True)
        return loaded.data.to_dict(), loaded.text.strip()
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise DataError(f"{card}: the YAML at its head is broken: {error}") from error


def placed(body: str, part: str) -> str:
    """The body with our part between its marks; behind it, where it has none."""
    before, mark, rest = body.partition(MARK)
    _, end, after = rest.rpartition(MARK_END)
    parts = (before, part, after) if mark and end else (body, part)
    return "\n\n".join(filter(None, map(str.strip, parts))) + "\n"


def _made_data(facts: SetFacts, hub: str) -> dict[str, Any]:
    """The head of the card as the shards are now."""
    made = card_data({name: one.rows for name, one in facts.splits.items()}, facts.tasks)
    for entry in made["configs"][0]["data_files"]:
        files = facts.splits[entry["split"]].files
        if not all(file.startswith(f"data/{entry['split']}-") for file in files):
            entry["path"] = files
    return made | (_domain(made["task_categories"][0]) if hub == "modelscope" else {})


def _counts(data: dict[str, Any]) -> dict[str, int] | None:
    """Rows by split as the head of a card states them, which ``datasets`` checks on loading."""
    try:
        return {one["name"]: one["num_examples"] for one in data["dataset_info"]["splits"]}
    except (KeyError, TypeError):
        return None


def _domain(category: str) -> dict[str, Any]:
    """ModelScope's own key: one category under a field (its docs: datasets/dataset-card)."""
    of_images = category in ("object-detection", "image-classification")
    return {"image" if of_images else "multi-modal": {category: {"color_space": ["rgb"]}}}


def _kept_licence(stated: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What the folder's card states, as the hubs name it."""
    licence = stated["license"]
    if isinstance(licence, list) and len(licence) == 1:
        (licence,) = licence
    if licence is None:
        return {}
    if not isinstance(licence, str):
        raise DataError(
            f"{folder / 'README.md'} states the license {licence}; one name is needed, such as "
            "cc-by-4.0: put it there, or give --license"
        )
    further = {key: str(of) for key, of in stated.items() if key != "license" and of}
    return licence_data(licence) | further


def rewards_of(tasks: list[str]) -> list[str]:
    """The rewards that a first run on these tasks would take."""
    named = [
        name
        for task in tasks
        for name in TASKS.get(task, (f"vlrft_{task} vlrft_format",))[0].split()
    ]
    found = [name for name in dict.fromkeys(named) if not REWARDS[name].scores_format]
    formats = dict.fromkeys(name for name in named if REWARDS[name].scores_format)
    # Of several tasks the one that every answer can meet.
    return [*found, *(formats if len(formats) == 1 else ["vlrft_format"])]


def meaning(reward: str) -> str:
    """What a reward of this package pays, in its own words."""
    text = " ".join((REWARDS[reward].__doc__ or "").split())
    return text.split(". ")[0].rstrip(".")


def train_command(hub: str, repo: str, tasks: list[str]) -> str:
    """LoRA on one GPU, as recipes/qwen3_vl_2b/detection_lora_1x24g.sh; `vlrft check` finds nothing
    in it.
    """
    on_hf = ["--use_hf true"] if hub == "hf" else []
    flags = [
        f"--model {MODEL}",
        *on_hf,
        f"--dataset {shlex.quote(repo)}",
        '--external_plugins "$(vlrft plugin)"',
        f"--reward_funcs {' '.join(rewards_of(tasks))}",
        "--tuner_type lora --lora_rank 16 --lora_alpha 32 --target_modules all-linear",
        "--torch_dtype bfloat16 --deepspeed zero2",
        "--use_vllm true --vllm_mode colocate --vllm_gpu_memory_utilization 0.55",
        "--vllm_max_model_len 3072 --sleep_level 1 --offload_model true --offload_optimizer true",
        "--per_device_train_batch_size 2 --gradient_accumulation_steps 4",
        "--num_generations 8 --num_generations_eval 1 --temperature 1.0 --beta 0.04",
        "--max_length 2048 --truncation_strategy delete --max_completion_length 512",
        "--learning_rate 1e-5 --num_train_epochs 1 --save_steps 50 --log_completions true",
        f"--output_dir {shlex.quote('output/' + repo.split('/')[1])}",
    ]
    lines = " \\\n    ".join(["swift rlhf --rlhf_type grpo", *flags])
    return f"export CUDA_VISIBLE_DEVICES=0 MAX_PIXELS=524288\n{lines}"


def evaluate_command(hub: str, repo: str, task: str) -> str:
    name = repo.split("/")[1]
    if hub == "hf":
        load = f"hf download {repo} --repo-type dataset --local-dir {name}\nexport USE_HF=1"
    else:
        load = f"modelscope download --dataset {repo} --local_dir {name}"
    return f"{load}\nvlrft eval {MODEL} {name} --task {task}"


def _part(
    folder: Path, facts: SetFacts, hub: str, repo: str, licence: dict[str, Any], picture: bool
) -> str:
    from swift_vlrft.evaluation.predictions import EVALUATED

    tasks = facts.tasks
    if not tasks:
        raise DataError(f"{folder}: no row is of a known task; vlrft data check {folder} says more")
    counts = [
        (split, task, count)
        for split, one in facts.splits.items()
        for task, count in one.tasks.most_common()
    ]
    columns = [
        (one.name, _type(one.name, str(one.type)), MEANINGS.get(one.name, "as in the source"))
        for one in facts.schema
    ]
    found = facts.box_formats
    several = len(found) > 1
    formats = [
        f"- Rows whose `frame` is {code(name)}: {BOXES[name]}" if several else BOXES[name]
        for name in found
        if name in BOX_FORMATS
    ]
    example = ""
    if facts.places:
        (row,) = records(facts.places[:1])
        example = f"{row.get('problem')}\n\n{row.get('solution')}"
    evaluated = [task for task in tasks if task in EVALUATED]
    return render(
        "dataset.md",
        picture=PICTURE if picture else "",
        rows=facts.rows,
        counts=counts,
        guessed=facts.guessed,
        columns=columns,
        formats=formats,
        example=example[:2000],
        train=train_command(hub, repo, tasks),
        dataset=repo,
        rewards=[(name, meaning(name)) for name in rewards_of(tasks)],
        evaluate=evaluate_command(hub, repo, evaluated[0]) if evaluated else "",
        licence=licence_text(licence, LICENCE) or NO_LICENCE,
    )


def licence_text(licence: dict[str, Any], sentence: str) -> str:
    """The sentence with the licence's name, linked where a link is stated; "" for none."""
    if not licence:
        return ""
    name = inline(licence.get("license_name") or licence["license"])
    link = str(licence.get("license_link"))
    link = link if re.fullmatch(r"https?://[^\s\"'<>]+", link) else ""
    return sentence.format(name=f"[{name}](<{link}>)" if link else name)


def _type(column: str, stored: str) -> str:
    return "image" if column == "image" else stored if len(stored) < 60 else stored[:57] + "..."
