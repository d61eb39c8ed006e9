"""Which answer belongs to which row: by image, question and gold, then by id, last by order.

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
from swift_vlrft.evaluation.image_names import ImageNames
from swift_vlrft.evaluation.predictions import EvaluationError
from swift_vlrft.files.jsonl import finite
from swift_vlrft.parsing.answers import boxes_or_refusal
from swift_vlrft.parsing.labels import normalise

IN_ORDER = (
    ", as they name no image or id that both have (as many on both sides, and nothing that they "
    "say contradicts)"
)
"""What is said wherever order had to do."""


Contents = Callable[[int], Iterable[str]]
Agrees = Callable[[int, int], bool]


@dataclass(frozen=True)
class Known:
    """What an answer, or a row, says of its query. Of a row, the first of ``images`` is the image
    itself and the others are further names of it. ``gold`` is what ``gold_text`` means.
    """

    place: str
    images: tuple[str, ...] = ()
    question: str = ""
    gold: Hashable = None
    gold_text: str = ""
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
    """Answers whose stated number is another row's than image and question name."""
    in_order: list[int] = field(default_factory=list)


def pair(
    answers: Sequence[Known],
    rows: Sequence[Known],
    *,
    contents: Contents = lambda n: (),
    agrees: Agrees = lambda answer, row: True,
    any_question: bool = False,
) -> Pairing:
    """``contents``: the keys of a row's image by what its file holds, asked for only where names
    do not tell. ``agrees``: whether an answer's gold, written in another box format, is the row's.
    ``any_question``: where no answer asks what a row asks, prompts were reworded: they say nothing.
    EvaluationError names the line, the row, and what contradicts.
    """
    pairs = _Pairs(answers, rows, contents, agrees)
    if any_question and not any(pairs.questions):
        pairs.questions = [None] * len(answers)
    return pairs.paired()


_TOKEN = re.compile(r"<image>|<\|[^|<>]{1,40}\|>")


def question_key(prompt: str) -> str:
    """A prompt without tags of images, the box format that it states, and runs of blanks."""
    return " ".join(_TOKEN.sub(" ", without_box_format(prompt)).split())


def gold_key(text: str) -> Hashable:
    """What a gold text means, whatever way it was written; None if it says nothing."""
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
        """The rows' question that an answer was asked; None if it does not say, "" where it is
        none of theirs. A log holds it within the text of the chat template.
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
            found = self._rows_of(n)
            if found is None:
                self.pairing.strangers.append(n)
            elif len(found) == 1:
                self._take(n, found[0])
            elif found and self._are_one_query(found):
                several.append((n, found))
            else:
                waiting.append((n, found))
        for n, found in several:
            free = [r for r in found if r not in self.taken]
            self._take(n, n if n in free else (free or found)[0])
        for n, found in waiting:
            self._by_order(n, found)
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
        """The rows that the answer may be of, as far as it says; none where it says nothing that
        tells. None: it is of no row.
        """
        answer, images, question = self.answers[n], self.located[n], self.questions[n]
        if answer.id is not None and self.ids_known:
            row = self.by_id.get(answer.id)
            if row is None:
                return None
            self._check(n, row, "has its id")
            return [row]
        if images == set() and any(self.located):
            return None  # the names of images are the set's, and this one is not among them
        asked, found = self._by_content(n)
        if answer.number is not None and 0 <= answer.number < len(self.rows):
            if answer.number not in found and not images:
                self._check(n, answer.number, "has its number")
                found = [answer.number]
            if answer.number in found:
                return [answer.number]
        if found:
            return found
        if asked:
            same = "image and question" if images else "question"
            self._check(n, asked[0], f"has its {same}")
        return None if images or question == "" or answer.number is not None else []

    def _by_content(self, n: int) -> tuple[list[int], list[int]]:
        """The rows of its image and question, and those of them whose gold is its gold."""
        answer, images, question = self.answers[n], self.located[n], self.questions[n]
        if images:
            rows = self._of_images(n)
            if question is not None:
                rows = [r for r in rows if self.rows[r].question == question]
            return rows, [r for r in rows if self._gold_fits(n, r)]
        if not question or (images is not None and answer.gold is None):
            return [], []  # a question alone tells nothing of an image that has another name
        rows = self.of_question[question]
        if answer.gold is None:
            return rows, rows
        return rows, self.of_both.get((question, answer.gold), [])

    def _gold_fits(self, n: int, row: int) -> bool:
        stated, gold = self.answers[n].gold, self.rows[row].gold
        return self.agrees(n, row) if stated is None else gold in (None, stated)

    def _are_one_query(self, found: list[int]) -> bool:
        """Whether the rows are one query, asked more than once."""
        rows = [self.rows[r] for r in found]
        return all(row.images for row in rows) and (
            len({(row.images[0], row.question, row.gold) for row in rows}) == 1
        )

    def _check(self, n: int, r: int, why: str) -> None:
        """EvaluationError if the answer says something else than the row."""
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
            "set that the answers were made on (where its gold was corrected since, take "
            "'solution' and 'labels' out of the lines)"
        )

    def _by_order(self, n: int, found: list[int]) -> None:
        """The row in the answer's place, where the answers are as many as the rows and all others
        are in theirs; EvaluationError if not.
        """
        answer, pairing = self.answers[n], self.pairing
        moved = [m for m, r in enumerate(pairing.rows) if r not in (m, None)]
        moved += pairing.strangers + pairing.repeated
        unknown = bool(answer.images) and not self.located[n]
        if len(self.answers) != len(self.rows):
            against = f"{len(self.answers)} answers are not the {len(self.rows)} rows in order"
        elif moved:
            against = f"{self.answers[moved[0]].place} is not in the place of its row"
        elif unknown and not answer.gold_text:  # copies have other names; gold has to speak then
            against = "it states no gold"
        else:
            self._check(n, n, "stands in its place")
            pairing.rows[n] = n
            pairing.in_order.append(n)
            return
        some = " and ".join(self.rows[r].place for r in found[:2])
        what = f"could be of {len(found)} rows, such as {some}" if found else "no id"
        if unknown:
            what = f"names the image {answer.images[0][-80:]!r}, which no row has, and {what}"
        elif not found:
            what = "names no id or image of a row"
        raise EvaluationError(
            f"{answer.place} {what}, and {against}: write the image's path ('images') or the "
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
