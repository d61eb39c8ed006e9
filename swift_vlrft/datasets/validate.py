"""This module alone decides whether a row can be trained on: for training, conversion and checks.

    the solution "a dog" cannot be read as a list of boxes (detection)
    the box (10, 20, 1400, 90) reaches beyond norm1000 (0 to 1000)

A row is scored by the rewards of the task that its set states; else by each reward that the
command names and that reads its gold. What a row looks like decides only where no reward is named.

    solution    task column    --reward_funcs                          scored by
    4           counting       vlrft_counting vlrft_classification     vlrft_counting
    4           none           vlrft_counting vlrft_detection_iou      vlrft_counting: it reads it
    4           none           vlrft_counting vlrft_classification     both (a note says so)
    four        none           vlrft_counting                          none: an error
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from swift_vlrft.datasets.box_format import UnknownSentence, all_under, row_in_box_format
from swift_vlrft.datasets.image import ImageSize, size_problem
from swift_vlrft.datasets.prompt_sentences import SAME, contradiction
from swift_vlrft.datasets.row import BOX_TASKS, BadRow, Kind, Row
from swift_vlrft.datasets.schema import solution_problem, task_of
from swift_vlrft.families.image_resize import ImageResize
from swift_vlrft.families.marks import first_mark
from swift_vlrft.geometry.box_format import FORMATS, BoxFormat
from swift_vlrft.geometry.readings import ROUNDING, is_dot
from swift_vlrft.parsing.answers import Box, BoxList, gold_text, read_boxes
from swift_vlrft.rewards import PAYING, REWARDS, TASK_NAMES
from swift_vlrft.rewards.contract import Asked

BEYOND = 2.0
"""So many seconds may a span end behind the video: 14 % of Charades-STA's do, by up to 1.5."""
Problems = Iterator[tuple[str, Kind]]
TooLong = Callable[[Row, ImageSize], str | None]
ASKED: set[Asked] = {asked for reward in REWARDS.values() for asked in reward.asks or ()}
"""What the prompts of some rewards must ask for."""
OF_COLUMNS = [reward.problem_of for reward in REWARDS.values() if reward.problem_of is not None]
"""What says whether the columns that a reward reads are in order."""


@dataclass(frozen=True, kw_only=True)
class RowRules:
    """A command asks this of rows: ``rewards`` are those that it names; boxes are to be in
    ``box_format``, under ``box_key`` if given; ``resize`` says how the model sees an image, needed
    to train in pixels; under ``every_reward`` the gold answer must earn 1.0, not only under the
    first reward of its task; if ``tasks`` are given, rows of others are passed over. ``system`` is
    the system turn of rows without one.
    """

    rewards: tuple[str, ...] = ()
    box_format: str = "norm1000"
    box_key: str | None = None
    resize: ImageResize | None = None
    too_long: TooLong | None = None
    every_reward: bool = False
    tasks: tuple[str, ...] = ()
    system: str = ""


def training_row(
    row: Row, size: ImageSize | str | None, rules: RowRules, tasks: Sequence[str]
) -> tuple[Row | None, BadRow | None]:
    """Return the row as it trains, or its problem; ``size`` is its image's, or what is wrong with
    that, ``tasks`` are those that ``routed`` gives. Return both if only no named reward reads its
    gold: the rewards may be for the other sets of the command.
    """
    if isinstance(size, str):
        return None, BadRow(row.place, size)
    found = next(_problems(row, size, rules, tasks), None)
    problem = BadRow(row.place, *found) if found else None
    # `vlrft data check` knows of no other set that the rewards could be for.
    unread = problem is not None and problem.kind is Kind.NOT_READ and not rules.every_reward
    if problem is not None and not unread:
        return None, problem
    if size is not None:
        if rules.resize is not None and (text := rules.resize.problem(size.width, size.height)):
            return None, BadRow(row.place, text)
        if rules.too_long is not None and (text := rules.too_long(row, size)):
            return None, BadRow(row.place, text, Kind.TOO_LONG)
    seen = sides = (size.width, size.height) if size is not None else (1000, 1000)
    try:  # numbers need the image's size, the prompt does not
        if rules.box_format == "pixels":  # an unknown model sees the image in another size
            seen = rules.resize.size(*sides) if rules.resize else (sides[0] + 1, sides[1] + 1)
        shown = row_in_box_format(row, rules.box_format, sides, seen, rules.box_key)
        row = replace(row, problem=shown.problem) if size is None else shown
    except ValueError as error:
        if size is not None or isinstance(error, UnknownSentence):
            return None, problem or BadRow(row.place, str(error))
    if unread:  # what it looks like keeps the named rewards from trying
        row = replace(row, columns=row.columns | {"task": row.guess})
    return row, problem


def length_check(resize: ImageResize, limit: int, text_tokens: Callable[[str], int]) -> TooLong:
    """Report the length of a prompt that is longer than ``limit`` tokens."""

    def too_long(row: Row, size: ImageSize) -> str | None:
        try:
            image = resize.tokens(size.width, size.height)
        except ValueError as error:
            return str(error)
        text = text_tokens(f"{row.columns.get('system') or ''}{row.problem}")
        if image + text <= limit:
            return None
        return f"the prompt takes {image + text} tokens ({image} for the image), over {limit}"

    return too_long


def _problems(row: Row, size: ImageSize | None, rules: RowRules, tasks: Sequence[str]) -> Problems:
    """The problems of a row as it is stored, of which the first counts."""
    task, system = row.columns.get("task"), row.columns.get("system")
    if not isinstance(row.problem, str) or not row.problem.strip():
        yield f"the problem is {row.problem!r}; a prompt is needed", Kind.ROW
    if system is not None and not isinstance(system, str):
        yield f"the system is {system!r}; a text is needed", Kind.ROW
    for said in _of_the_template(str(row.problem), str(system or "")):
        yield said, Kind.ROW
    if task is not None and task not in TASK_NAMES:
        yield f"unknown task {task!r}; known: {', '.join(TASK_NAMES)}", Kind.GOLD
    if text := solution_problem(row.solution):
        yield text, Kind.GOLD
    for problem_of in OF_COLUMNS:
        if problem := problem_of(row.columns):
            yield problem, Kind.GOLD
    gold = gold_text(row.solution)
    for name, value in (("problem", row.problem), ("system", system or ""), ("solution", gold)):
        if half := re.search("[\ud800-\udfff]", value):
            text = f"the {name} holds {half[0]!r}, half a character, which no file can store"
            yield text, Kind.ROW
    if not tasks and (asked := named_tasks(rules.rewards)):
        holds = [f"{TASK_NAMES[t].holds} ({', '.join(names)})" for t, names in asked.items()]
        text = f"the solution {gold[:80]!r} cannot be read as {' or '.join(holds)}"
        yield text, Kind.NOT_READ
    for task in tasks:
        yield from _task_problems(task, row, gold, size, rules.every_reward)


@lru_cache(SAME)
def _of_the_template(problem: str, system: str) -> list[str]:
    """What a row's texts hold that ms-swift's template writes, or would take for an image."""
    found = [
        f"the {name} holds {mark}, which the chat template writes itself; write the plain text, "
        "with <image> where the image belongs"
        for name, text in (("problem", problem), ("system", system))
        if (mark := first_mark(text))
    ]
    count = problem.count("<image>")
    if count > 1 or "<image>" in system:
        where = f"{count} times in the problem" if count > 1 else "in the system turn"
        found.append(f"<image> stands {where}; write it once, in the problem, or leave it out")
    return found


def _task_problems(
    task: str, row: Row, text: str, size: ImageSize | None, every_reward: bool
) -> Problems:
    """The problems of a row as a row of ``task``."""
    if TASK_NAMES[task].has_spans != bool(row.image.get("video")):
        of = "a video, in a column videos" if TASK_NAMES[task].has_spans else "an image"
        yield f"a row of the task {task} is of {of}", Kind.GOLD
        return
    gold = TASK_NAMES[task].read_gold(row.solution)
    if gold is None:
        why = ""
        parsed = read_boxes(text) if task in BOX_TASKS else None
        if parsed is not None and None in parsed.boxes:
            number = parsed.boxes.index(None) + 1
            why = f": box {number} of {len(parsed)} is not four numbers with an area, x1 < x2 and "
            why += "y1 < y2 (a width and height, or a polygon, is not read here)"
        elif parsed is not None and parsed.unread:
            instead = "rename it label, or drop it" if None in parsed.labels else "drop it"
            why = f": the key {min(parsed.unread)!r} is not read; {instead}"
        elif TASK_NAMES[task].as_written and isinstance(row.solution, (list, tuple)):
            why = "; of several accepted texts, store one as the solution and the others as aliases"
        if row.columns.get("task") is None:
            why += ". No column task says what it is"
        holds = f"{TASK_NAMES[task].holds} ({task}){why}"
        yield f"the solution {text[:80]!r} cannot be read as {holds}", Kind.GOLD
        return
    if task in BOX_TASKS:
        if problem := size_problem(row.image, size, row.annotated_size):
            yield problem, Kind.ROW
        boxes = gold.boxes if isinstance(gold, BoxList) else [gold]
        frame = row.columns.get("frame")
        if frame in FORMATS:
            if said := contradiction(row.problem, FORMATS[frame]):
                text = f"the prompt asks for boxes {said!r}, but they are declared as {frame}"
                yield f"{text}; correct the column frame or the prompt", Kind.ROW
            for problem in _misplaced(boxes, text, FORMATS[frame], size):
                yield problem, Kind.ROW
        elif boxes or frame is not None:
            yield f"unknown frame {frame!r}; known: {', '.join(FORMATS)}", Kind.ROW
    if size is not None and size.seconds:
        for problem in _outside(gold, size.seconds, row.columns.get("duration")):
            yield problem, Kind.ROW
    stated = {**row.columns, "solution": text}
    if problem := TASK_NAMES[task].problem_of(stated):
        yield problem, Kind.GOLD
    for name in PAYING[task] if every_reward else PAYING[task][:1]:
        known = ("task", *REWARDS[name].takes)
        further = {k: row.columns[k] for k in known if k in row.columns}
        plain = all(v is None or isinstance(v, str) for v in further.values())
        earned = _earned if plain else _earned.__wrapped__
        score = earned(name, task, text, tuple(further.items()))
        if score is None or score < 1.0 - 1e-9:
            problem = f"the gold answer {text[:80]!r} scores {score} under {name}, not 1.0"
            yield problem, Kind.ROW


@lru_cache(SAME)
def _earned(name: str, task: str, text: str, further: tuple[tuple[str, Any], ...]) -> float | None:
    """What a readable gold earns as an answer."""
    answer_of = TASK_NAMES[task].answer_of
    answer = text if answer_of is None else answer_of(TASK_NAMES[task].read_gold(text))
    completion = f"<think>.</think><answer>{answer}</answer>"
    return REWARDS[name]([completion], [text], **{k: [v] for k, v in further})[0]


def _outside(spans: list[Box], seconds: float, stated: Any) -> Iterator[str]:
    """What a video of that length cannot hold; ``stated`` is its length by the row, if any."""
    if isinstance(stated, int | float) and abs(stated - seconds) > BEYOND:
        yield (
            f"the video has {seconds:.1f} seconds, and the column duration says {stated:g}: "
            "give the video that the spans are of"
        )
    for start, _, end, _ in spans:
        if start >= seconds or end > seconds + BEYOND:
            yield (
                f"the span {start:g} to {end:g} lies outside the video of {seconds:.1f} "
                "seconds; of spans in frames say so in a column unit"
            )


def fitting_tasks(row: Row, size: ImageSize, known: Sequence[str]) -> list[str]:
    """Return the tasks under all of whose rewards a row's gold answer earns 1.0; the row has no
    problem. If it states a task, that fits; tasks ``known`` to fit are not judged again.
    """
    if row.guess is None:
        return [*known]
    named, text = row.columns.get("task"), gold_text(row.solution)
    return [
        name
        for name, task in TASK_NAMES.items()
        if (name == named or not task.reads_most)
        and reads(name, row)
        and (name in known or not any(_task_problems(name, row, text, size, True)))
    ]


def _misplaced(
    boxes: list[Box | None], text: str, of: BoxFormat, size: ImageSize | None
) -> Iterator[str]:
    if of.key is not None and not all_under(of.key, text):
        yield (
            f"the frame {of.name} needs every box of the solution as "
            f'{{"{of.key}": [y1, x1, y2, x2]}}; corners without that key are read x first'
        )
    if of.scale is None and size is None:
        return
    width, height = of.edges((size.width, size.height) if size is not None else (0, 0))
    # Annotations in pixels are often rounded up, and shares computed in floats: a little more is
    # not an error.
    slack = {"pixels": ROUNDING, "unit": 0.001}.get(of.name, 0.0)
    for box in boxes:
        if box is None:
            yield "a box of the solution is not four numbers with an area"
        elif of.scale != 1 and is_dot(box):
            yield f"the box {tuple(round(v, 3) for v in box)} is a dot in {of.name}; in shares?"
        elif min(box) < -slack or box[2] > width + slack or box[3] > height + slack:
            meant = f"{of}; if boxes are in another format, state it in a column frame"
            if of.scale is None:
                meant = f"the image of {width} x {height} pixels"
            yield f"the box {tuple(round(v, 3) for v in box)} reaches beyond {meant}"


# ---- what prompts ask for, and which rewards score a row ---------------------------------------


def named_tasks(rewards: Iterable[str]) -> dict[str, list[str]]:
    """Return the tasks of the named rewards of this package, with the rewards' names."""
    named: dict[str, list[str]] = {}
    for name in rewards:
        if name in REWARDS and (task := REWARDS[name].task) is not None:
            named.setdefault(task.name, []).append(name)
    return named


@lru_cache(SAME)
def lacks(text: str) -> list[Asked]:
    """Return what a prompt never asks for."""
    return [asked for asked in ASKED if not re.search(asked.pattern, text)]


def routed(row: Row, rewards: Sequence[str]) -> tuple[Row, list[str]]:
    """Return the row with the one task whose rewards score it, without a task if several do; and
    these tasks: none if no named reward reads its gold.

    Without rewards it is the task that the row looks to be of; where all of them are of others than
    us, none, and what its gold may be is theirs to say.
    """
    task, named = row.columns.get("task"), named_tasks(rewards)
    if task and (row.guess is None or not named or task in named):
        return row, [task]
    if not named:
        return row, [] if rewards else [row.guess or task_of(row.solution)]
    tasks = [name for name in named if reads(name, row)]
    task = tasks[0] if len(tasks) == 1 else None
    box_format = row.columns.get("frame") or ("norm1000" if task in BOX_TASKS else None)
    return replace(row, columns=row.columns | {"task": task, "frame": box_format}), tasks


def reads(task: str, row: Row) -> bool:
    """Tell whether the rewards of a task read the gold of a row that states no task.

    A list of boxes is no class name and no text in an image (but "(12, 30)" may be that), nor is
    "No Objects"; "None" may be one.
    """
    if task in ("classification", "ocr"):
        boxes = read_boxes(gold_text(row.solution))
        holds_boxes = boxes is not None and (boxes or row.guess == "detection")
        if boxes is not None and holds_boxes and (task != "ocr" or None not in boxes.boxes):
            return False
    return TASK_NAMES[task].read_gold(row.solution) is not None
