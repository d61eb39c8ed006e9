"""Referring expressions as VLM-R1 writes them: JSON Lines of conversations.

RefCOCO, RefCOCO+ and RefCOCOg, with images below a root.

    {"id": 1, "image": "train2014/COCO_train2014_000000581857.jpg", "conversations": [
        {"from": "human", "value": "<image>Please provide the bounding box coordinate of the
                                    region this sentence describes: the lady with the blue shirt."},
        {"from": "gpt", "value": "[103, 93, 305, 480]"}]}

or its first form, one object a row:

    {"image": "...", "problem": "...", "solution": [103, 93, 305, 480],
     "normalized_solution": [160, 193, 476, 1000]}

Boxes are in pixels of the image as it is stored. All other columns are kept.
"""

from __future__ import annotations

from collections.abc import Iterator

from swift_vlrft.datasets.schema import (
    ANSWER_FORM,
    EXPLICIT,
    Context,
    RawExample,
    RecordSchema,
    conversation,
    solution_problem,
    task_of,
    text_in,
)
from swift_vlrft.datasets.storage import Record
from swift_vlrft.parsing.answers import gold_text, read_boxes

TURNS = "conversations", ("system", "human", "gpt"), ("from", "value")
ADVICE = "\n" + ANSWER_FORM.format("[x1, y1, x2, y2]")


def _matches(columns: set[str]) -> bool:
    if columns >= EXPLICIT:
        return "normalized_solution" in columns
    return {"conversations", "image"} <= columns and "problem" not in columns


def _rows(record: Record, context: Context) -> Iterator[RawExample]:
    example = dict(record) if "problem" in record else conversation(record, *TURNS)
    text_in(example, "problem")
    problem, solution = example["problem"], example["solution"]
    if problem.count("<image>") == 1:
        problem = problem.removeprefix("<image>").strip()
    task, frame = record.get("task"), record.get("frame")
    if solution_problem(solution) is None:
        solution = gold_text(solution) if not isinstance(solution, str) else solution
        # One box is what these sets ask for; what else a solution holds tells no task.
        task = task or ("grounding" if task_of(solution) == "grounding" else None)
        pixels = context.stored.box_format or "pixels"
        frame = frame or (pixels if read_boxes(gold_text(solution)) else None)
        if frame == "pixels" and ("<box>" in solution or "<|box_start|>" in solution):
            raise ValueError("boxes in Qwen's own tokens are in norm1000: say so in a column frame")
        if "<answer>" not in solution:
            solution = f"<answer>{solution.strip()}</answer>"
    if "<answer>" not in problem and task == "grounding":
        problem += ADVICE
    yield example | {"problem": problem, "solution": solution, "task": task, "frame": frame}


REC_SCHEMA = RecordSchema("rec", _matches, _rows)
