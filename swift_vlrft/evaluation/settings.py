"""Declare what an evaluation can be told: `vlrft eval` makes its options from these records.

    Settings("org/model", Path("data/held_out"), "detection", max_queries=100)
    Scoring(predictions=Path("runs/eval/after"), bootstrap=0)

A field with a description is an option of its name, type and default, with that help text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from swift_vlrft.files.records import as_json

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
DRAWS = 1000
CATEGORIES_HELP = (
    "Names, or lists: coco80, coco-base65, coco-novel15, virft-coco8, lvis-rare6, lvis-rare13; "
    "repeat, or put commas between."
)
HOW_COMPUTED = ("engine", "batch_size")


def told(text: str) -> Meta:
    """Describe an option."""
    return Meta(description=text)


class Scoring(msgspec.Struct, frozen=True, kw_only=True):
    """Holds which answers are scored, with which gold, and where the results go."""

    out: Annotated[Path | None, told("Folder to write; default: runs/eval/MODEL-DATASET.")] = None
    predictions: Annotated[
        Path | None,
        told(
            "Score this file instead of running a model: our predictions, lines of id "
            "and completion (--join id), ms-swift's completions.jsonl, or COCO detections."
        ),
    ] = None
    gold: Annotated[
        Path | None,
        told(
            "With --predictions: the COCO annotations or the data set they were made "
            "on; rows that are missing count as unanswered."
        ),
    ] = None
    join: Annotated[
        str | None, told("id: with --gold SET, lines belong to the rows with their ids.")
    ] = None
    workers: Annotated[
        Positive | None, told("Processes, each with a full model; default: one per GPU.")
    ] = None
    bootstrap: Annotated[Count, told("Draws for AP's intervals; 0: no intervals.")] = DRAWS


class Settings(msgspec.Struct, frozen=True):
    """Holds what determines the queries and how they are run; a part of ``run.json``."""

    model: str
    dataset: Path
    task: str
    categories: Annotated[tuple[str, ...], told(CATEGORIES_HELP)] = ()
    max_queries: Annotated[Positive | None, told("Ask a sample of the queries, by --seed.")] = None
    seed: Annotated[int, told("Seed of sample, engine and intervals.")] = 0
    split: Annotated[
        str | None, told("Split to ask. Default: test, else validation, else train.")
    ] = None
    images: Annotated[Path | None, told("Folder that relative image paths start from.")] = None
    engine: Annotated[
        str, told("vllm, transformers, or auto: vLLM if installed and with a GPU.")
    ] = "auto"
    batch_size: Annotated[Positive, told("Queries at once.")] = 8
    max_tokens: Annotated[Positive, told("Longest answer, in tokens.")] = 1024
    temperature: Annotated[float, Meta(ge=0, description="0: greedy.")] = 0.0
    samples: Annotated[
        Positive, told("Answers per row: the first counts in the metrics, all are written.")
    ] = 1
    max_turns: Annotated[
        Positive, told("Above 1, the model may call image_zoom_in_tool first.")
    ] = 1
    dtype: Annotated[
        str | None, told("bfloat16, float16 or float32; default: the checkpoint's.")
    ] = None
    base_model: Annotated[str | None, told("Base model of an adapter that does not name it.")] = (
        None
    )
    engine_options: Annotated[
        dict[str, Any], told('Flags of `swift infer`, as JSON: {"vllm_max_model_len": 4096}.')
    ] = {}
    box_format: str = msgspec.field(default="norm1000", name="frame")
    resolution: dict[str, str] = {}
    """The values of the variables that limit an image's size, such as ``MAX_PIXELS``."""

    def decisive(self) -> dict[str, Any]:
        """Return the settings that predictions depend on."""
        return {k: v for k, v in as_json(self).items() if k not in HOW_COMPUTED}
