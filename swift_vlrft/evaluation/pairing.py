"""Which answer belongs to which row: by image, question and gold, then by id, finally by order.

    answers   im/0.png "What colour?" red      im/2.png "What colour?" blue
    rows      im/0.png ... red    im/1.png ... red    im/2.png ... blue       0 -> 0, 1 -> 2

An answer that states something no row has is a stranger (from another split); one that contradicts
the row it otherwise names is an error. Order counts only if there are as many answers as rows and
nothing contradicts it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from swift_vlrft.datasets.box_format_sentence import stated_size, without_box_format
from swift_vlrft.evaluation.image_names import ImageNames
from swift_vlrft.evaluation.predictions import EvaluationError, Prediction
from swift_vlrft.files.jsonl import finite
from swift_vlrft.parsing.answers import read_boxes
from swift_vlrft.parsing.labels import normalise

IN_ORDER = (
    ", as they name no image or id that both have (as many on both sides, and nothing that they "
    "say contradicts)"
)
"""The end of a note on pairing by order."""

_TOKEN = re.compile(r"<image>|<\|[^|<>]{1,40}\|>")


def question_key(prompt: str) -> str:
    """A prompt without image tags, box-format sentence and runs of blanks."""
    return " ".join(_TOKEN.sub(" ", without_box_format(prompt)).split())


def gold_key(text: str) -> Hashable:
    """A key for the meaning of a gold text, however it is written; None if it is empty."""
    if not text.strip():
        return None
    boxes = read_boxes(text)
    if boxes is not None and None not in boxes.boxes:
        pairs = zip(boxes.labels, boxes.boxes, strict=True)
        return tuple(sorted((normalise(label or ""), *(box or ())) for label, box in pairs))
    number = finite(text)
    if number is not None:
        return number
    return normalise(text.replace('"', "'")) or " ".join(text.split())


class Pairing:
    """The pairs of ``answers`` and ``known``, the rows of a set or of another file. Of a row, the
    first of the image's names identifies it.

    ``contents``: the keys of a row's image by file content, called only if names are not enough.
    ``agrees``: whether an answer's gold, written in another box format, is the row's.
    ``any_question``: if no question occurs on both sides, prompts were reworded and are ignored.
    EvaluationError names the line, the row, and the contradiction.
    """

    def __init__(
        self,
        answers: Sequence[Prediction],
        known: Sequence[Prediction],
        *,
        contents: Callable[[int], Iterable[str]] = lambda n: (),
        agrees: Callable[[int, int], bool] = lambda answer, row: True,
        any_question: bool = False,
    ) -> None:
        self.answers, self.known, self.agrees = answers, known, agrees
        self.rows: list[int | None] = [None] * len(answers)
        """The row of every answer; None: it is left out."""
        self.strangers: list[int] = []
        self.repeated: list[int] = []
        self.renumbered: list[int] = []
        """Answers whose stated row number contradicts image and question."""
        self.in_order: list[int] = []
        self.row_questions = [question_key(row.prompt) for row in known]
        self.row_golds = [gold_key(row.solution) for row in known]
        self.row_images = [row.image_names[0] if row.image_names else None for row in known]
        self.of_image = _grouped(self.row_images)
        self.of_question = _grouped(self.row_questions)
        self.of_both = _grouped(zip(self.row_questions, self.row_golds, strict=True))
        ids = _grouped(row.own_id for row in known)
        self.by_id = {key: found[0] for key, found in ids.items() if key and len(found) == 1}
        names = ImageNames([row.image_names for row in known], contents)
        self.located = [names.find(answer.image_names) for answer in answers]
        """The images that an answer may be of: None if it names none, empty if unknown."""
        formats = {row.box_format for row in known} - {None}
        self.golds = [_comparable_gold(answer, formats) for answer in answers]
        has_ids = ids.keys() != {None}
        numbered = [answer.row is not None or not has_ids for answer in answers]
        stated = [answer.own_id for answer in answers]
        self.ids = [None if n else key for key, n in zip(stated, numbered, strict=True)]
        """The rows' ids that answers state; or, if the rows have none, their numbers."""
        self.numbers = [
            int(key) if n and key is not None and key.isdecimal() and len(key) < 19 else None
            for key, n in zip(stated, numbered, strict=True)
        ]
        self.ids_known = any(key in self.by_id for key in self.ids)
        self.asked = [question_key(answer.prompt) for answer in answers]
        self.questions = [self._question(n) for n in range(len(answers))]
        if any_question and not any(self.questions):
            self.questions = [None] * len(answers)
        self._pair()

    def _question(self, n: int) -> str | None:
        """The row's question that an answer is to, which a log has inside the text of the chat
        template; None if it states none, "" if no row has it.
        """
        text = self.asked[n]
        if not text or text in self.of_question:
            return text or None
        near = {self.row_questions[r] for r in self._of_images(n)} or self.of_question
        return max((q for q in near if q and q in text), key=len, default="")

    def _of_images(self, n: int) -> list[int]:
        return sorted(r for image in self.located[n] or () for r in self.of_image.get(image, ()))

    def _pair(self) -> None:
        several: list[tuple[int, list[int]]] = []
        waiting: list[tuple[int, list[int]]] = []
        taken: set[int] = set()

        def take(n: int, row: int) -> None:
            if row in taken:
                self.repeated.append(n)
                return
            taken.add(row)
            self.rows[n] = row
            if self.numbers[n] not in (None, row):
                self.renumbered.append(n)

        for n in range(len(self.answers)):
            candidates = self._rows_of(n)
            if candidates is None:
                self.strangers.append(n)
            elif len(candidates) == 1:
                take(n, candidates[0])
            else:  # maybe one query, asked more than once
                of = self.row_images, self.row_questions, self.row_golds
                keys = {tuple(values[r] for values in of) for r in candidates}
                one = len(keys) == 1 and self.row_images[candidates[0]] is not None
                (several if one else waiting).append((n, candidates))
        for n, candidates in several:
            free = [r for r in candidates if r not in taken]
            take(n, n if n in free else (free or candidates)[0])
        for n, candidates in waiting:
            self._by_order(n, candidates)

    def _rows_of(self, n: int) -> list[int] | None:
        """The rows that it may be for; empty if it states nothing to tell by, None: for none."""
        images, question, number = self.located[n], self.questions[n], self.numbers[n]
        if self.ids[n] is not None and self.ids_known:
            row = self.by_id.get(self.ids[n])
            if row is None:
                return None
            self._check(n, row, "has its id")
            return [row]
        if images == set() and any(self.located):
            return None  # image names are those of the set, but this one is not among them
        matching, candidates = self._by_content(n)
        if number is not None and number < len(self.known):
            if number not in candidates and not images:
                self._check(n, number, "has its number")
                return [number]
            if number in candidates:
                return [number]
        if candidates:
            return candidates
        if matching:
            self._check(n, matching[0], f"has its {'image and ' * bool(images)}question")
        return None if images or question == "" or number is not None else []

    def _by_content(self, n: int) -> tuple[list[int], list[int]]:
        """The rows with its image and question, and those of them with its gold."""
        images, question, gold = self.located[n], self.questions[n], self.golds[n]
        if images:
            rows = self._of_images(n)
            if question is not None:
                rows = [r for r in rows if self.row_questions[r] == question]
            return rows, [r for r in rows if self._gold_fits(n, r)]
        if not question or (images is not None and gold is None):
            return [], []  # a question alone does not identify an image under another name
        rows = self.of_question[question]
        return rows, rows if gold is None else self.of_both.get((question, gold), [])

    def _gold_fits(self, n: int, r: int) -> bool:
        gold = self.golds[n]
        return self.agrees(n, r) if gold is None else self.row_golds[r] in (None, gold)

    def _check(self, n: int, r: int, why: str) -> None:
        """EvaluationError if the answer contradicts the row."""
        answer, row = self.answers[n], self.known[r]
        images, question = self.located[n], self.questions[n]
        if images and row.image_names and self.row_images[r] not in images:
            names = answer.image_names[0], row.image_names[-1]
            differ = f"is of the image {names[0][-80:]!r}", repr(names[1][-80:])
        elif question is not None and question != self.row_questions[r]:
            differ = f"was asked {_start(self.asked[n])}", _start(self.row_questions[r])
        elif not self._gold_fits(n, r):
            differ = f"answers the gold {_start(answer.solution)}", _start(row.solution)
        else:
            return
        raise EvaluationError(
            f"{answer.place} {differ[0]}, but {row.place}, which {why}, has {differ[1]}: give the "
            "set that the answers were made on (if its gold was corrected since, remove "
            "'solution' and 'labels' from the lines)"
        )

    def _by_order(self, n: int, candidates: list[int]) -> None:
        """Pair by position, if there are as many answers as rows and all others are in position."""
        answer = self.answers[n]
        moved = [m for m, r in enumerate(self.rows) if r not in (m, None)]
        moved += self.strangers + self.repeated
        unknown = bool(answer.image_names) and not self.located[n]
        if len(self.answers) != len(self.known):
            obstacle = f"{len(self.answers)} answers are not the {len(self.known)} rows in order"
        elif moved:
            obstacle = f"{self.answers[moved[0]].place} is not in the place of its row"
        elif unknown and not answer.solution:  # copies have other names; gold has to speak then
            obstacle = "it states no gold"
        else:
            self._check(n, n, "stands in its place")
            self.rows[n] = n
            self.in_order.append(n)
            return
        some = " and ".join(self.known[r].place for r in candidates[:2])
        what = f"could be of {len(candidates)} rows, such as {some}" if candidates else "no id"
        if unknown:
            what = f"names the image {answer.image_names[0][-80:]!r}, which no row has, and {what}"
        elif not candidates:
            what = "names no id or image of a row"
        raise EvaluationError(
            f"{answer.place} {what}, and {obstacle}: write the image's path ('images') or the "
            "number of the row ('id', from 0) into every line"
        )


def _comparable_gold(answer: Prediction, formats: set[str | None]) -> Hashable:
    """None: its boxes are written in another format than those of the rows."""
    box_format = answer.box_format or ("pixels" if stated_size(answer.prompt) else None)
    if box_format is None or (box_format != "pixels" and formats <= {box_format}):
        return gold_key(answer.solution)
    return None


def _grouped(keys: Iterable[Any]) -> dict[Any, list[int]]:
    groups: dict[Any, list[int]] = {}
    for n, key in enumerate(keys):
        groups.setdefault(key, []).append(n)
    return groups


def _start(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + " ...")
