"""Find the row of each answer, as ``--join`` says; nothing is guessed.

    id      the line's ``id`` is the row's, or the row's number from 0 where the rows have no ids
    image   the line's image is the row's, by its path (of which one may be a part of the other) or
            its content; of several rows with one image, the question and the gold tell
    order   line n is of row n, and there are as many of both

Ids may repeat, as those of images do: nothing is joined by them but with --join id. Lines of `vlrft
eval` carry the row's number and its image's hash, and need no --join. What a line says besides
(image, question, gold, with --join order also its id) must be its row's: an EvaluationError names
line and row.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from pathlib import Path

from swift_vlrft.datasets.image import content_key
from swift_vlrft.datasets.prompt_sentences import without_box_format
from swift_vlrft.evaluation.predictions import EvaluationError, Prediction
from swift_vlrft.files.jsonl import finite
from swift_vlrft.parsing.answers import read_boxes
from swift_vlrft.parsing.labels import normalise

JOINS = ("id", "image", "order")
_TOKEN = re.compile(r"</?(?:\w+_)?(?:image|img|image_soft_token|IMG_CONTEXT)>|<\|[^|<>]{1,40}\|>")
_HASH = re.compile(r"[0-9a-f]{16,64}")


def question_key(prompt: str) -> str:
    """Return a prompt without image tags, box-format sentence and runs of blanks."""
    return " ".join(_TOKEN.sub(" ", without_box_format(prompt)).split())


def gold_key(text: str) -> Hashable:
    """Return a key for the meaning of a gold text, however it is written; None if it is empty."""
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


class ImageIndex:
    """Finds the images of rows by their names; a row's first name identifies its image.

    ``contents``: the keys of a row's image by file content, called only if names are not enough.
    """

    def __init__(
        self,
        rows: Sequence[tuple[str, ...]],
        contents: Callable[[int], Iterable[str]] = lambda n: (),
    ) -> None:
        self.rows, self.contents = rows, contents
        self.whole: dict[tuple[str, ...], set[str]] = {}
        self.parts: dict[tuple[str, ...], set[str]] = {}
        for names in rows:
            for ends in map(_ends, names):
                self.whole.setdefault(ends[0], set()).add(names[0])
                for end in ends[1:]:
                    self.parts.setdefault(end, set()).add(names[0])

    def find(self, names: Sequence[str], key: str | None = None) -> set[str] | None:
        """Return the images that may be meant: empty if no row has any, None without a name."""
        if not names and key is None:
            return None
        groups = [images for images in map(self._by_name, names) if images]
        return set.intersection(*groups) if groups else self._by_content(names, key)

    def _by_name(self, name: str) -> set[str]:
        """Those whose whole name the given name ends with, else those that end with it."""
        ends = _ends(name)
        longer = next((self.whole[end] for end in ends if end in self.whole), None)
        return longer or self.parts.get(ends[0], set())

    def _by_content(self, names: Sequence[str], key: str | None) -> set[str]:
        """Copies in a cache: by the file's content, or by a name that is its hash."""
        keys = {key}
        for name in names:
            stem, file = _ends(name)[0][-1].partition(".")[0], Path(name)
            if _HASH.fullmatch(stem):
                keys.add(stem[:16])
            try:
                if file.is_absolute() and file.is_file():
                    keys.add(content_key(file.read_bytes()))
            except (OSError, ValueError):
                continue
        return {image for each in keys if each for image in self._contents.get(each, ())}

    @cached_property
    def _contents(self) -> dict[str, set[str]]:
        images: dict[str, set[str]] = {}
        for n, names in enumerate(self.rows):
            for key in self.contents(n) if names else ():
                images.setdefault(key, set()).add(names[0])
        return images


def pair(
    lines: Sequence[Prediction],
    rows: Sequence[Prediction],
    join: str | None = None,
    *,
    contents: Callable[[int], Iterable[str]] = lambda n: (),
    agrees: Callable[[int, int], bool] = lambda line, row: True,
    reworded: bool = False,
) -> list[int | None]:
    """Return the row of every line; None: an id or an image that no row has.

    ``join``: one of JOINS; None for lines of `vlrft eval`. ``contents``: the keys of a row's image
    by content. ``agrees``: whether a line's gold is the row's, however it is written.
    ``reworded``: a question that no row asks may be a row's in other words.
    EvaluationError for a line that does not say what is joined by, that contradicts its row, or
    whose row another line has; where ``join`` is needed, it names those that are possible.
    """
    sides = _Sides(lines, rows, contents, agrees, reworded)
    ways = (sides.by_number, sides.by_id, sides.by_image, sides.by_order)
    if join not in (None, *JOINS):
        raise EvaluationError(f"--join {join}: known are {', '.join(JOINS)}")
    if join is None and not all(line.row is not None and line.image_hash for line in lines):
        raise EvaluationError(_which(sides))
    rows_of = ways[(None, *JOINS).index(join)]
    pairs: list[int | None] = []
    taken: dict[int, int] = {}
    for n, line in enumerate(lines):
        matches = rows_of(n)
        free = [r for r in matches if r not in taken]
        same = {(sides.asked[r], gold_key(rows[r].solution)) for r in matches}
        if len(same) > 1 or (join == "id" and len(matches) > 1):
            some = " and ".join(rows[r].place for r in matches[:2])
            raise EvaluationError(f"{line.place} fits {len(matches)} rows, such as {some}")
        if matches and (wrong := sides.contradiction(n, matches[0], join)):
            raise EvaluationError(
                f"{line.place} {wrong}, with which it is joined: give the set that the answers "
                "were made on (if it was corrected since, remove 'solution' and 'labels', or "
                "'prompt' and 'messages', from the lines)"
            )
        if matches and not free:
            other = lines[taken[matches[0]]].place
            raise EvaluationError(f"{other} and {line.place} both fit {rows[matches[0]].place}")
        pairs.append(free[0] if free else None)
        taken |= {free[0]: n} if free else {}
    return pairs


class _Sides:
    """What lines and rows are joined and compared by: the arguments of ``pair``, indexed."""

    def __init__(
        self,
        lines: Sequence[Prediction],
        rows: Sequence[Prediction],
        contents: Callable[[int], Iterable[str]],
        agrees: Callable[[int, int], bool],
        reworded: bool,
    ) -> None:
        self.lines, self.rows, self.reworded = lines, rows, reworded
        self.contents, self.agrees = contents, agrees
        images = ImageIndex([row.image_names for row in rows], contents)
        self.meant = [images.find(line.image_names, line.image_hash) for line in lines]
        self.asked = [question_key(row.prompt) for row in rows]
        self.questions = set(self.asked)
        self.numbers = {str(n if row.row is None else row.row): n for n, row in enumerate(rows)}
        self.of_image: dict[str, list[int]] = {}
        self.ids: dict[str | None, list[int]] = {}
        for r, row in enumerate(rows):
            self.of_image.setdefault(row.image_names[0] if row.image_names else "", []).append(r)
            self.ids.setdefault(row.own_id, []).append(r)
        self.own_ids = self.ids.keys() != {None}
        if not self.own_ids:
            self.ids = {key: [r] for key, r in self.numbers.items()}
        self.said = {line.own_id for line in lines}

    def by_number(self, n: int) -> list[int]:
        return [self.numbers[key] for key in [str(self.lines[n].row)] if key in self.numbers]

    def by_id(self, n: int) -> list[int]:
        key, most = self.lines[n].own_id, len(self.said)
        if key is None:
            raise EvaluationError(f"{self.lines[n].place} has no id, by which --join id joins")
        if not self.own_ids and most > 1 and self.said == {str(m + 1) for m in range(most)}:
            raise EvaluationError(
                f"the ids are 1 to {most}, as if counted from 1, but rows count from 0: subtract 1 "
                "from 'id', or give row 0 a line with an empty completion"
            )
        return self.ids.get(key, [])

    def by_image(self, n: int) -> list[int]:
        line, meant = self.lines[n], self.meant[n]
        if meant is None:
            raise EvaluationError(f"{line.place} names no image, by which --join image joins")
        likely = sorted(r for image in meant for r in self.of_image.get(image, ()))
        if len(likely) > 1 and (question := question_key(line.prompt)):
            near = max((q for r in likely if (q := self.asked[r]) in question), key=len, default="")
            likely = [r for r in likely if self.asked[r] == near] or likely[:1]
        return [r for r in likely if self.agrees(n, r)] or likely[:1]

    def by_order(self, n: int) -> list[int]:
        if len(self.lines) != len(self.rows):
            raise EvaluationError(
                f"--join order needs an answer for each row: {len(self.lines)} answers, "
                f"{len(self.rows)} rows"
            )
        return [n]

    def contradiction(self, n: int, r: int, join: str | None) -> str:
        """Say how line n contradicts row r; "" if it does not."""
        line, row, meant = self.lines[n], self.rows[r], self.meant[n]
        if meant and row.image_names and row.image_names[0] not in meant:
            of = line.image_names[0] if line.image_names else f"with the hash {line.image_hash}"
            return f"is of the image {of[-80:]!r}, {row.place} of {row.image_names[-1][-80:]!r}"
        if line.image_hash and (keys := list(self.contents(r))) and line.image_hash not in keys:
            return f"is of an image with the hash {line.image_hash}, {row.place} of {keys[0]}"
        question = question_key(line.prompt)
        if not self.is_question(line, question, r):
            return f"was asked {_start(question)}, {row.place} asks {_start(self.asked[r])}"
        if not self.agrees(n, r):
            return f"has the gold {_start(line.solution)}, {row.place} {_start(row.solution)}"
        # Of rows without ids, numbers in another order say so only where they are those of all.
        if join == "order" and (self.own_ids or self.said == self.ids.keys()):
            of_id = self.ids.get(line.own_id, [r])
            if r not in of_id:
                return f"has the id {line.own_id!r} of {self.rows[of_id[0]].place}, not {row.place}"
        return ""

    def is_question(self, line: Prediction, question: str, r: int) -> bool:
        """Return whether a line's question can be row r's."""
        if not question or not self.asked[r] or question == self.asked[r]:
            return True
        if question in self.questions:
            return False
        # ms-swift's log, whose places are "3[0]", has the chat template's text.
        logged = "[" in line.place and self.asked[r] in question
        return self.reworded or logged


def _which(sides: _Sides) -> str:
    """Which --join is possible; what prevents each, where none is."""
    possible, wrong = [], []
    for join in JOINS:
        try:
            row_numbers = pair(
                sides.lines, sides.rows, join, contents=sides.contents, agrees=sides.agrees,
                reworded=sides.reworded,
            )  # fmt: skip
        except EvaluationError as error:
            wrong.append(f"--join {join}: {str(error).split(', with which')[0]}")
        else:
            if any(r is not None for r in row_numbers):
                possible.append(f"--join {join}")
            else:
                wrong.append(f"--join {join}: no row matches a line")
    if not possible:
        return f"the answers cannot be joined with the rows. {'. '.join(wrong)}"
    return (
        "say how the answers are joined with the rows, as they do not carry the row and the "
        f"image's hash as those of `vlrft eval` do. Possible here: {' or '.join(possible)}"
    )


def _ends(name: str) -> list[tuple[str, ...]]:
    """A path and all its ends, the longest first."""
    path = posixpath.normpath(name.replace("\\", "/").partition("?")[0])
    parts = tuple(part for part in path.split("/") if part) or (name,)
    return [parts[n:] for n in range(len(parts))]


def _start(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + " ...")
