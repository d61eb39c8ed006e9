"""Which answer belongs to which row: by picture, question and gold, then by id, last by order.

    answers   im/0.png "What colour?" red      im/2.png "What colour?" blue
    rows      im/0.png ... red    im/1.png ... red    im/2.png ... blue       0 -> 0, 1 -> 2

What an answer says and no row has makes it a stranger (of another split); what contradicts the row
that the rest names is refused. Order counts only where the answers are as many as the rows and
nothing that they say is against it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from swift_vlrft.datasets.box_format_sentence import without_box_format
from swift_vlrft.evaluation.pictures import Pictures
from swift_vlrft.evaluation.predictions import EvaluationError
from swift_vlrft.files.jsonl import finite
from swift_vlrft.parsing.answers import boxes_or_refusal
from swift_vlrft.parsing.labels import normalise

IN_ORDER = (
    ", as they name no picture or id that both have (as many on both sides, and nothing that they "
    "say contradicts)"
)
"""What is said wherever order had to do."""


@dataclass
class Known:
    """What an answer, or a row, says of its question. Of a row, the first of ``pictures`` is the
    picture itself and the others are further names of it.
    """

    place: str
    pictures: tuple[str, ...] = ()
    question: str = ""
    gold: Hashable = None
    gold_said: str = ""
    id: str | None = None
    number: int | None = None
    """Of an answer: the number of its row, where it is stated as such."""


@dataclass
class Pairing:
    rows: list[int | None]
    """The row of every answer; None: it is left out."""
    strangers: list[int] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)
    renumbered: list[int] = field(default_factory=list)
    """Answers whose stated number is another row's than picture and question name."""
    in_order: list[int] = field(default_factory=list)


_TOKEN = re.compile(r"<image>|<\|[^|<>]{1,40}\|>")


def question_key(prompt: str) -> str:
    """A prompt without tags of pictures, the frame that it states, and runs of blanks."""
    return " ".join(_TOKEN.sub(" ", without_box_format(prompt)).split())


def gold_key(text: str) -> Hashable:
    """What a gold text means, whatever way it was written; None where it says nothing."""
    if not text.strip():
        return None
    found = boxes_or_refusal(text)
    if found is not None and None not in found.boxes:
        pairs = zip(found.labels, found.boxes, strict=True)
        return tuple(sorted((normalise(label or ""), *(box or ())) for label, box in pairs))
    number = finite(text)
    if number is not None:
        return number
    return normalise(text.replace('"', "'")) or " ".join(text.split())


def pair(
    answers: Sequence[Known],
    rows: Sequence[Known],
    *,
    contents: Callable[[int], Iterable[str]] = lambda n: (),
    agrees: Callable[[int, int], bool] = lambda answer, row: True,
    any_question: bool = False,
) -> Pairing:
    """``contents``: the keys of a row's picture by what its file holds, asked for only where names
    do not tell. ``agrees``: whether an answer's gold, written in another frame, is the row's.
    ``any_question``: where no answer asks what a row asks, prompts were reworded: they say nothing.
    EvaluationError names the line, the row, and what contradicts.
    """
    return _Pairs(answers, rows, contents, agrees, any_question).made()


class _Pairs:
    def __init__(
        self,
        answers: Sequence[Known],
        rows: Sequence[Known],
        contents: Callable[[int], Iterable[str]],
        agrees: Callable[[int, int], bool],
        any_question: bool,
    ) -> None:
        self.answers, self.rows, self.agrees = answers, rows, agrees
        self.pictures = Pictures([row.pictures for row in rows], contents)
        self.located = [self.pictures.find(answer.pictures) for answer in answers]
        self.shared = any(self.located)
        self.of_picture = _grouped(_picture(row) for row in rows)
        self.of_question = _grouped(row.question for row in rows)
        self.of_both = _grouped((row.question, row.gold) for row in rows)
        ids = _grouped(row.id for row in rows)
        self.by_id = {key: found[0] for key, found in ids.items() if key and len(found) == 1}
        self.ids_known = any(answer.id in self.by_id for answer in answers)
        self.known_questions: dict[str, str | None] = {}
        self.asked = [self._question(n) for n in range(len(answers))]
        if any_question and not any(self.asked):
            self.asked = [None] * len(answers)

    def _question(self, n: int) -> str | None:
        """The rows' question that an answer was asked; None where it does not say, "" where it is
        none of theirs. A log holds it within the text of the chat template.
        """
        said = self.answers[n].question
        if not said or said in self.of_question:
            return said or None
        near = {self.rows[r].question for r in self._of(self.located[n])}
        if not near and said in self.known_questions:
            return self.known_questions[said]
        within = [q for q in near or self.of_question if q and q in said]
        found = max(within, key=len, default="")
        if not near:
            self.known_questions[said] = found
        return found

    def _of(self, pictures: set[str] | None) -> list[int]:
        return sorted(n for picture in pictures or () for n in self.of_picture.get(picture, ()))

    def made(self) -> Pairing:
        made = Pairing([None] * len(self.answers))
        taken: set[int] = set()
        several: list[tuple[int, list[int]]] = []
        waiting: list[tuple[int, list[int]]] = []
        for n in range(len(self.answers)):
            found = self._rows_of(n)
            if found is None:
                made.strangers.append(n)
            elif len(found) == 1:
                self._take(made, taken, n, found[0])
            elif found and self._one_question(found):
                several.append((n, found))
            else:
                waiting.append((n, found))
        for n, found in several:
            free = [r for r in found if r not in taken]
            self._take(made, taken, n, n if n in free else (free or found)[0])
        if waiting:
            self._by_order(made, waiting)
        return made

    def _take(self, made: Pairing, taken: set[int], n: int, row: int) -> None:
        if row in taken:
            made.repeated.append(n)
            return
        taken.add(row)
        made.rows[n] = row
        number = self.answers[n].number
        if number is not None and number != row:
            made.renumbered.append(n)

    def _rows_of(self, n: int) -> list[int] | None:
        """The rows that the answer may be of, as far as it says; none where it says nothing that
        tells. None: it is of no row.
        """
        answer, pictures, question = self.answers[n], self.located[n], self.asked[n]
        if answer.id is not None and self.ids_known:
            row = self.by_id.get(answer.id)
            if row is not None:
                self._check(n, row, "has its id")
            return None if row is None else [row]
        unknown = pictures is not None and not pictures
        if unknown and self.shared:
            return None  # the names of pictures are the set's, and this one is not among them
        wide, found = self._by_content(n)
        if answer.number is not None and 0 <= answer.number < len(self.rows):
            if answer.number in found:
                return [answer.number]
            if not pictures:
                self._check(n, answer.number, "has its number")
                return [answer.number]
        if found:
            return found
        if wide:
            same = "picture and question" if pictures else "question"
            self._check(n, wide[0], f"has its {same}")
        if pictures or question == "" or answer.number is not None:
            return None
        return []

    def _by_content(self, n: int) -> tuple[list[int], list[int]]:
        """The rows of its picture and question, and those of them whose gold is its gold."""
        answer, pictures, question = self.answers[n], self.located[n], self.asked[n]
        if pictures:
            wide = self._of(pictures)
            if question is not None:
                wide = [r for r in wide if self.rows[r].question == question]
            return wide, [r for r in wide if self._gold_fits(n, r)]
        if not question or (pictures is not None and answer.gold is None):
            return [], []  # a question alone tells nothing of a picture that has another name
        wide = self.of_question[question]
        if answer.gold is not None:
            return wide, self.of_both.get((question, answer.gold), [])
        return wide, wide

    def _gold_fits(self, n: int, row: int) -> bool:
        said, gold = self.answers[n].gold, self.rows[row].gold
        return self.agrees(n, row) if said is None else gold is None or said == gold

    def _one_question(self, found: list[int]) -> bool:
        """Whether the rows are one question, asked more than once."""
        first = self.rows[found[0]]
        same = (_picture(first), first.question, first.gold)
        return bool(first.pictures) and all(
            (_picture(row), row.question, row.gold) == same
            for row in (self.rows[r] for r in found[1:])
        )

    def _check(self, n: int, r: int, why: str) -> None:
        """EvaluationError where the answer says something else than the row."""
        answer, row = self.answers[n], self.rows[r]
        located, asked = self.located[n], self.asked[n]
        said = None
        if located and row.pictures and _picture(row) not in located:
            said = f"is of the picture {answer.pictures[0][-80:]!r}", repr(row.pictures[-1][-80:])
        elif asked is not None and asked != row.question:
            said = f"was asked {_start(answer.question)}", _start(row.question)
        elif not self._gold_fits(n, r):
            said = f"answers the gold {_start(answer.gold_said)}", _start(row.gold_said)
        if said is not None:
            raise EvaluationError(
                f"{answer.place} {said[0]}, but {row.place}, which {why}, has {said[1]}: give the "
                "set that the answers were made on (where its gold was corrected since, take "
                "'solution' and 'labels' out of the lines)"
            )

    def _by_order(self, made: Pairing, waiting: list[tuple[int, list[int]]]) -> None:
        """Order as the last resort: as many answers as rows, all others in their own place."""
        first, found = waiting[0]
        answer = self.answers[first]
        against = None
        if len(self.answers) != len(self.rows):
            against = f"{len(self.answers)} answers are not the {len(self.rows)} rows in order"
        else:
            moved = next((n for n, r in enumerate(made.rows) if r not in (n, None)), None)
            moved = next(iter(made.strangers + made.repeated), None) if moved is None else moved
            if moved is not None:
                against = f"{self.answers[moved].place} is not in the place of its row"
            for n, rows in waiting:
                # Copies may have other names, but then something has to speak for the order.
                unknown = self.located[n] is not None and not self.located[n]
                if against is None and unknown and not self.answers[n].gold_said:
                    first, found, answer = n, rows, self.answers[n]
                    against = "it states no gold"
        if against is not None:
            lacking = ""
            if answer.pictures and not self.located[first]:
                lacking = f"names the picture {answer.pictures[0][-80:]!r}, which no row has, and "
            what = lacking + (
                f"could be of {len(found)} rows, such as {self.rows[found[0]].place} and "
                f"{self.rows[found[1]].place}"
                if found
                else "no id"
                if lacking
                else "names no id or picture of a row"
            )
            raise EvaluationError(
                f"{answer.place} {what}, and {against}: write the picture's path ('images') or the "
                "number of the row ('id', from 0) into every line"
            )
        for n, _ in waiting:
            self._check(n, n, "stands in its place")
            made.rows[n] = n
            made.in_order.append(n)


def _picture(row: Known) -> str | None:
    return row.pictures[0] if row.pictures else None


def _grouped(keys: Iterable[Any]) -> dict[Any, list[int]]:
    groups: dict[Any, list[int]] = {}
    for n, key in enumerate(keys):
        groups.setdefault(key, []).append(n)
    return groups


def _start(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + " ...")
