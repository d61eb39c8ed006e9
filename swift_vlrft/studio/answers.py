"""What the page says, as HTML: the functions of ``vlrft plan``, ``vlrft check``, ``vlrft score``.

    plan("NPROC_PER_NODE=4 swift rlhf --rlhf_type grpo ...", "4x24")
    check("swift rlhf --model ...")
    why(["vlrft_detection_iou"], "norm1000", "<answer>...</answer>", "<answer>...</answer>")

Each raises a ValueError in one line for what cannot be used. None of them sees this machine:
a path in a script is not looked up. Whatever was pasted is escaped, by jinja2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import wraps
from typing import Any, NamedTuple

from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.diagnostics.reasons import STATED, Reason, explain
from swift_vlrft.files import machine
from swift_vlrft.files.completions import further
from swift_vlrft.geometry.box_format import box_format
from swift_vlrft.geometry.boxes import iou
from swift_vlrft.memory.recipe_plan import plan_read
from swift_vlrft.parsing.answers import Answer, BoxList, gold_text, read, read_boxes, with_prefix
from swift_vlrft.recipe.facts import facts
from swift_vlrft.recipe.reader import Recipe, only, read_text
from swift_vlrft.recipe.rules import PROBLEM, check_recipe, in_order
from swift_vlrft.recipe.run import resolve
from swift_vlrft.report.html import DrawnBox, render
from swift_vlrft.report.plan_text import plan_parts
from swift_vlrft.report.samples import boxes_drawn
from swift_vlrft.rewards import REWARDS, TASK_NAMES
from swift_vlrft.studio import limits
from swift_vlrft.studio.picture import picture

CONFIGURATION = re.compile(
    r"(?:\s|\ufeff|(?:#|%YAML|---(?=\s))[^\n]*\n)*"
    r"(?:(\{\s*(?:[\"}]|$))|([\"\']?)[\w-]+\2\s*:(?:\s|$))"
)
"""A JSON object, or a key of YAML, below comments and the like. `{ swift ...; }` is a script."""
SIZE = re.compile(r"(\d{1,6})\s*[x×*, ]\s*(\d{1,6})")
MOST_BOXES = 50
"""Boxes listed."""


def _unseen(function: Any) -> Any:
    """The function, where nothing of this machine is seen."""

    @wraps(function)
    def inner(*given: Any, **named: Any) -> str:
        with machine.unseen():
            return str(function(*given, **named))

    return inner


def _recipes(script: str) -> list[Recipe]:
    """The `swift` commands of a pasted script, or of ms-swift's YAML or JSON configuration."""
    if not script.strip():
        raise ValueError("paste a script with a `swift rlhf ...` command")
    limits.refuse_long("the script", script, limits.SCRIPT)
    found = CONFIGURATION.match(script)
    name = "script.sh" if not found else "script.json" if found[1] else "script.yaml"
    return read_text(script, name, {})


@_unseen
def plan(script: str, gpus: str, tokens: str = "", exact: bool = False) -> str:
    """``exact``: traced with torch, as ``vlrft plan`` does; else ``vlrft plan --quick``.
    ``tokens``: of a usual answer, as ``--answer-tokens``; empty: as long as allowed.
    """
    recipe = only(_recipes(script))
    limits.refuse_long("the field GPUs", gpus, limits.GPUS)
    if not gpus.strip():
        raise ValueError("name the GPUs of one node: 4x24 (GB), 4xA100-80G, 8xH20")
    if tokens.strip() and not re.fullmatch(r"[1-9][0-9]{0,5}", tokens.strip()):
        raise ValueError(f"tokens of a usual answer: {tokens[:20]!r} is no number from 1 to 999999")
    answer_tokens = int(tokens) if tokens.strip() else None
    planned = plan_read(recipe, gpus.strip(), quick=not exact)
    parts = plan_parts(planned, "the script", answer_tokens)
    return render("studio_plan.html", parts=list(parts))


@_unseen
def check(script: str) -> str:
    """Also what was not read, which ``vlrft check`` reports as findings."""
    commands = _recipes(script)
    known = facts()
    found = in_order(one for c in commands for one in check_recipe(resolve(c, known)))
    problems = sum(one.level == PROBLEM for one in found)
    return render(
        "studio_check.html",
        commands=[(one.line, " ".join(one.command)) for one in commands[: limits.FINDINGS]],
        problems=problems,
        findings=found[: limits.FINDINGS],
        left=max(0, len(found) - limits.FINDINGS),
        checked=f"ms-swift {known.versions['ms-swift']}",
    )


class Scored(NamedTuple):
    reward: str
    reason: Reason


class ListedBox(NamedTuple):
    """One box as it was read; ``best``: its largest IoU with a box of the other side."""

    numbers: str
    label: str
    confidence: str
    best: str


@_unseen
def why(
    rewards: Sequence[str],
    frame: str,
    completion: str,
    solution: str,
    image: str = "",
    seen: str = "",
    columns: str = "",
) -> str:
    """``frame``: the box format. ``image``: a data URL, or nothing. ``seen``: width x height that
    pixels refer to, if that is not the image's own size. ``columns``: of the row, a JSON object.
    """
    if not rewards:
        raise ValueError("choose a reward")
    if unknown := [name for name in rewards if name not in REWARDS]:
        raise ValueError(f"unknown reward {unknown[0][:80]!r}; known: {', '.join(REWARDS)}")
    limits.refuse_long("the completion", completion, limits.COMPLETION)
    limits.refuse_long("the solution", solution, limits.SOLUTION)
    row, numbers = _columns(columns), box_format(frame)
    names = list(dict.fromkeys(rewards))
    scored = [Scored(name, explain(name, completion, solution, **row)) for name in names]
    answer = read(with_prefix(completion, row.get("response_prefix")))
    tasks = list(dict.fromkeys(t.name for name in names if (t := REWARDS[name].task)))
    shown = picture(image) if image else None
    placed = next((task for task in tasks if task in BOX_TASKS), None)
    boxes: list[DrawnBox] = []
    if placed and shown:
        size = numbers.edges(_size(seen) or shown.size)
        points = TASK_NAMES[placed].has_points
        given = answer.placed(points=points)
        boxes = boxes_drawn(read_boxes(gold_text(solution)), size, "gold")
        boxes += boxes_drawn(given, size, "answer point" if points else "answer")
    return render(
        "studio_why.html",
        scored=scored,
        answer=answer.text,
        well_formed=answer.well_formed,
        read_as=list(_read_as(answer, tasks)),
        tables=list(_box_tables(answer, solution, placed)),
        url=shown.url if shown else "",
        boxes=boxes,
        picture=f"{shown.size[0]} x {shown.size[1]} pixels, boxes in {numbers}" if shown else "",
        completion=completion,
        solution=solution,
        most=limits.SHOWN,
    )


def _columns(text: str) -> dict[str, Any]:
    limits.refuse_long("the field of further columns", text, limits.COLUMNS)
    try:
        found = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"further columns: not JSON ({error})") from None
    known = {"aliases", "tolerance", "response_prefix", "task"}
    if not isinstance(found, dict) or set(found) - known:
        raise ValueError(
            'further columns: an object is needed, as {"tolerance": 0.01}, with the names '
            + ", ".join(sorted(known))
        )
    return further(found)


def _size(text: str) -> tuple[int, int] | None:
    if not text.strip():
        return None
    match = SIZE.fullmatch(text.strip())
    if not match or not all(map(int, match.groups())):
        raise ValueError(f"size that pixels refer to: {text[:40]!r} is not like 644x476")
    return int(match[1]), int(match[2])


def _read_as(answer: Answer, tasks: Sequence[str]) -> Iterator[tuple[str, str]]:
    """For each task, what its rewards read in the answer."""
    for task in tasks:
        if task in BOX_TASKS:
            found = answer.placed(points=TASK_NAMES[task].has_points)
            what = "points" if TASK_NAMES[task].has_points else "boxes"
            if found is None:
                yield task, f"no list of {what}"
            else:
                invalid = f", {found.boxes.count(None)} invalid" if None in found.boxes else ""
                yield task, f"{what}: {len(found)}{invalid}"
        elif task in STATED:
            stated = getattr(answer, STATED[task][0])
            yield task, "nothing" if stated is None or stated == "" else str(stated)[:1000]


def _box_tables(
    answer: Answer, solution: str, task: str | None
) -> Iterator[tuple[str, list[ListedBox], int]]:
    """The boxes of answer and gold, and how many more there are."""
    if task is None:
        return
    given = answer.placed(points=TASK_NAMES[task].has_points)
    gold = read_boxes(gold_text(solution))
    for title, one, other in (("answer", given, gold), ("gold", gold, given)):
        if one is not None:
            listed = [_listed(one, n, other) for n in range(min(len(one), MOST_BOXES))]
            yield title, listed, max(0, len(one) - MOST_BOXES)


def _listed(found: BoxList, number: int, other: BoxList | None) -> ListedBox:
    box = found.boxes[number]
    if box is None:
        numbers, best = "invalid", ""
    elif box[:2] == box[2:]:
        numbers, best = ", ".join(f"{v:g}" for v in box[:2]), ""
    else:
        numbers = ", ".join(f"{v:g}" for v in box)
        near = [iou(box, b) for b in (other.boxes[:1000] if other else ()) if b is not None]
        best = f"{max(near):.2f}" if near else ""
    # Points have neither.
    label = found.labels[number] if found.labels else None
    confidence = found.confidences[number] if found.confidences else None
    certain = "" if confidence is None else f"{confidence:g}"
    return ListedBox(numbers, (label or "")[:100], certain, best)


ANSWERS = {"plan": plan, "check": check, "why": why}
