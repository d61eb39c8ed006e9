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
from dataclasses import dataclass, field
from typing import Any

from swift_vlrft.datasets.box_format_sentence import without_box_format
from swift_vlrft.evaluation.image_names import ImageNames
from swift_vlrft.evaluation.predictions import EvaluationError
from swift_vlrft.files.jsonl import finite
from swift_vlrft.parsing.answers import read_boxes
from swift_vlrft.parsing.labels import normalise

IN_ORDER = (
    ", as they name no image or id that both have (as many on both sides, and nothing that they "
    "say contradicts)"
)
"""The end of a note on pairing by order."""


Contents = Callable[[int], Iterable[str]]
Agrees = Callable[[int, int], bool]


@dataclass(frozen=True)
class Known:
    """What an answer, or a row, states about its query. For a row, the first of ``images``
    identifies the image and the others are further names. ``gold`` is the key of ``gold_text``.
    """

    place: str
    images: tuple[str, ...] = ()
    question: str = ""
    gold: Hashable = None
    gold_text: str = ""
    id: str | None = None
    number: int | None = None
    """For an answer: the number of its row, if stated."""


@dataclass
class Pairing:
    rows: list[int | None]
    """The row of every answer; None: it is left out."""
    strangers: list[int] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)
    renumbered: list[int] = field(default_factory=list)
    """Answers whose stated row number contradicts image and question."""
    in_order: list[int] = field(default_factory=list)


def pair(
    answers: Sequence[Known],
    rows: Sequence[Known],
    *,
    contents: Contents = lambda n: (),
    agrees: Agrees = lambda answer, row: True,
    any_question: bool = False,
) -> Pairing:
    """``contents``: the keys of a row's image by file content, called only if names are not enough.
    ``agrees``: whether an answer's gold, written in another box format, is the row's.
    ``any_question``: if no question occurs on both sides, prompts were reworded and are ignored.
    EvaluationError names the line, the row, and the contradiction.
    """
    pairs = _Pairs(answers, rows, contents, agrees)
    if any_question and not any(pairs.questions):
        pairs.questions = [None] * len(answers)
    return pairs.paired()


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


class _Pairs:
    def __init__(
        self, answers: Sequence[Known], rows: Sequence[Known], contents: Contents, agrees: Agrees
    ) -> None:
        self.answers, self.rows, self.agrees = answers, rows, agrees
        names = ImageNames([row.images for row in rows], contents)
        self.located = [names.find(answer.images) for answer in answers]
        """The images that an answer may be of: None if it names none, empty if unknown."""
        self.of_image = _grouped(row.images[0] if row.images else None for row in rows)
        self.of_question = _grouped(row.question for row in rows)
        self.of_both = _grouped((row.question, row.gold) for row in rows)
        ids = _grouped(row.id for row in rows)
        self.by_id = {key: found[0] for key, found in ids.items() if key and len(found) == 1}
        self.ids_known = any(answer.id in self.by_id for answer in answers)
        self.within: dict[str, str] = {}
        self.questions = [self._question(n) for n in range(len(answers))]
        self.pairing = Pairing([None] * len(answers))
        self.taken: set[int] = set()

    def _question(self, n: int) -> str | None:
        """The rows' question that an answer is to; None if it states none, "" if no row has it. In
        a log it is inside the text of the chat template.
        """
        text = self.answers[n].question
        if not text or text in self.of_question:
            return text or None
        if near := {self.rows[r].question for r in self._of_images(n)}:
            return _longest_in(text, near)
        if text not in self.within:
            self.within[text] = _longest_in(text, self.of_question)
        return self.within[text]

    def _of_images(self, n: int) -> list[int]:
        return sorted(r for image in self.located[n] or () for r in self.of_image.get(image, ()))

    def paired(self) -> Pairing:
        several: list[tuple[int, list[int]]] = []
        waiting: list[tuple[int, list[int]]] = []
        for n in range(len(self.answers)):
            candidates = self._rows_of(n)
            if candidates is None:
                self.pairing.strangers.append(n)
            elif len(candidates) == 1:
                self._take(n, candidates[0])
            elif candidates and self._are_one_query(candidates):
                several.append((n, candidates))
            else:
                waiting.append((n, candidates))
        for n, candidates in several:
            free = [r for r in candidates if r not in self.taken]
            self._take(n, n if n in free else (free or candidates)[0])
        for n, candidates in waiting:
            self._by_order(n, candidates)
        return self.pairing

    def _take(self, n: int, row: int) -> None:
        if row in self.taken:
            self.pairing.repeated.append(n)
            return
        self.taken.add(row)
        self.pairing.rows[n] = row
        if self.answers[n].number not in (None, row):
            self.pairing.renumbered.append(n)

    def _rows_of(self, n: int) -> list[int] | None:
        """The rows that the answer may be for; empty if it states nothing to tell them by. None: it
        is for no row.
        """
        answer, images, question = self.answers[n], self.located[n], self.questions[n]
        if answer.id is not None and self.ids_known:
            row = self.by_id.get(answer.id)
            if row is None:
                return None
            self._check(n, row, "has its id")
            return [row]
        if images == set() and any(self.located):
            return None  # image names are those of the set, but this one is not among them
        matching, candidates = self._by_content(n)
        if answer.number is not None and 0 <= answer.number < len(self.rows):
            if answer.number not in candidates and not images:
                self._check(n, answer.number, "has its number")
                candidates = [answer.number]
            if answer.number in candidates:
                return [answer.number]
        if candidates:
            return candidates
        if matching:
            same = "image and question" if images else "question"
            self._check(n, matching[0], f"has its {same}")
        return None if images or question == "" or answer.number is not None else []

    def _by_content(self, n: int) -> tuple[list[int], list[int]]:
        """The rows with its image and question, and those of them with its gold."""
        answer, images, question = self.answers[n], self.located[n], self.questions[n]
        if images:
            rows = self._of_images(n)
            if question is not None:
                rows = [r for r in rows if self.rows[r].question == question]
            return rows, [r for r in rows if self._gold_fits(n, r)]
        if not question or (images is not None and answer.gold is None):
            return [], []  # a question alone does not identify an image under another name
        rows = self.of_question[question]
        if answer.gold is None:
            return rows, rows
        return rows, self.of_both.get((question, answer.gold), [])

    def _gold_fits(self, n: int, row: int) -> bool:
        answered, gold = self.answers[n].gold, self.rows[row].gold
        return self.agrees(n, row) if answered is None else gold in (None, answered)

    def _are_one_query(self, candidates: list[int]) -> bool:
        """Whether the rows are one query, asked more than once."""
        rows = [self.rows[r] for r in candidates]
        return all(row.images for row in rows) and (
            len({(row.images[0], row.question, row.gold) for row in rows}) == 1
        )

    def _check(self, n: int, r: int, why: str) -> None:
        """EvaluationError if the answer contradicts the row."""
        answer, row = self.answers[n], self.rows[r]
        images, question = self.located[n], self.questions[n]
        if images and row.images and row.images[0] not in images:
            differ = f"is of the image {answer.images[0][-80:]!r}", repr(row.images[-1][-80:])
        elif question is not None and question != row.question:
            differ = f"was asked {_start(answer.question)}", _start(row.question)
        elif not self._gold_fits(n, r):
            differ = f"answers the gold {_start(answer.gold_text)}", _start(row.gold_text)
        else:
            return
        raise EvaluationError(
            f"{answer.place} {differ[0]}, but {row.place}, which {why}, has {differ[1]}: give the "
            "set that the answers were made on (if its gold was corrected since, remove "
            "'solution' and 'labels' from the lines)"
        )

    def _by_order(self, n: int, candidates: list[int]) -> None:
        """Pair by position, if there are as many answers as rows and all others are in position;
        EvaluationError if not.
        """
        answer, pairing = self.answers[n], self.pairing
        moved = [m for m, r in enumerate(pairing.rows) if r not in (m, None)]
        moved += pairing.strangers + pairing.repeated
        unknown = bool(answer.images) and not self.located[n]
        if len(self.answers) != len(self.rows):
            obstacle = f"{len(self.answers)} answers are not the {len(self.rows)} rows in order"
        elif moved:
            obstacle = f"{self.answers[moved[0]].place} is not in the place of its row"
        elif unknown and not answer.gold_text:  # copies have other names; gold has to speak then
            obstacle = "it states no gold"
        else:
            self._check(n, n, "stands in its place")
            pairing.rows[n] = n
            pairing.in_order.append(n)
            return
        some = " and ".join(self.rows[r].place for r in candidates[:2])
        what = f"could be of {len(candidates)} rows, such as {some}" if candidates else "no id"
        if unknown:
            what = f"names the image {answer.images[0][-80:]!r}, which no row has, and {what}"
        elif not candidates:
            what = "names no id or image of a row"
        raise EvaluationError(
            f"{answer.place} {what}, and {obstacle}: write the image's path ('images') or the "
            "number of the row ('id', from 0) into every line"
        )


def _longest_in(text: str, questions: Iterable[str]) -> str:
    return max((q for q in questions if q and q in text), key=len, default="")


def _grouped(keys: Iterable[Any]) -> dict[Any, list[int]]:
    groups: dict[Any, list[int]] = {}
    for n, key in enumerate(keys):
        groups.setdefault(key, []).append(n)
    return groups


def _start(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + " ...")
