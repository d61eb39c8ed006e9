"""A reward is a record around one function that scores one row.

    @reward(COUNTING)
    def vlrft_counting(answer: Answer, gold: float) -> float:
        return 1.0 if answer.number == gold else 0.0

    vlrft_counting(["<think>t</think><answer>4</answer>"], ["4"], task=["counting"])      [1.0]
    vlrft_counting(["<think>t</think><answer>4</answer>"], ["4"], task=["detection"])     [None]

A reward never raises on text. A column is a list, a tuple, or an array or series of numpy, pandas,
pyarrow, torch or datasets; a single string in place of a column other than ``solution`` stands for
every row. The optional column ``response_prefix`` is what the chat template wrote before the
completion.
"""

import json
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial, wraps
from hashlib import sha256
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from swift_vlrft.parsing.answers import Answer, gold_text, plain, read, text_of, with_prefix

log = logging.getLogger("swift_vlrft")

Scores = list[float | None]
RewardFunction = Callable[..., Scores]
"""What ms-swift calls: a ``Reward``, or a function around one."""


class Asked(NamedTuple):
    """A prompt must ask for this, or every answer to it earns 0."""

    what: str
    pattern: str
    """A regular expression that finds it in such a prompt."""
    line: str
    """The sentence that asks for it, for --system or the end of a prompt."""


ANSWER = Asked(
    "<answer>",
    "<answer>|(?i:answer['\"]? ?(?:tags?|标签))",
    "First think in <think> </think>, then answer in <answer> </answer>.",
)
BOXED = Asked(
    r"\boxed", r"\\boxed", r"First think in <think> </think>, then give the answer in \boxed{}."
)
ANSWER_OR_BOXED = ANSWER._replace(pattern=f"{ANSWER.pattern}|{BOXED.pattern}")
BOX = Asked(
    "boxes as [x1, y1, x2, y2]",
    r"(?i)x[_-]?(?:1|min|left|tl)|x_\{?1|b(?:ounding)?[ _-]?box|box_2d|<\|?box|[框矩]"
    r"|left, ?top|top[ -]left|左上",
    'Write each box as {"Position": [x1, y1, x2, y2]}.',
)
CONFIDENCE = Asked(
    "confidence",
    "(?i)confidence|score|置信度",
    "Give each box its confidence (between 0 and 1, with two decimal places).",
)
SPAN = Asked(
    "a span of time",
    r"(?i)seconds|timestamp|start.{0,20}\bend|\d ?s? ?(?:to|-->?) ?\d|秒|时间",
    'Give start and end in seconds, such as "12.5 to 18.2".',
)
OPTION = Asked(
    "an option letter",
    "(?i)(?<![a-z])[bｂ](?![a-z])|letter|选项|字母",  # any options have a B
    "Answer with the letter of an option: A, B, C, ...",
)


class Stated(NamedTuple):
    """Describes the short answer of a task: the field of ``Answer``, what it is called in the codes
    of reasons, and the reason where it is missing.
    """

    field: str
    noun: str
    missing: str
    may_be_boxed: bool = True
    """It may stand in ``\\boxed{}`` alone."""


@dataclass(frozen=True)
class Task:
    """Describes a kind of row: the value of its ``task`` column, how the text of its gold is read
    (None if it cannot be), and what a solution ``holds``, for messages.
    """

    name: str
    read: Callable[[str], Any]
    holds: str
    has_boxes: bool = False
    """Answers and gold are boxes."""
    has_points: bool = False
    """Answers are points, and the gold boxes."""
    has_spans: bool = False
    """Answers and gold are spans of time, and a row is of a video."""
    has_items: bool = False
    """The gold may be stored as a list."""
    as_written: bool = False
    """The gold is compared as it is written: a list of one text is no gold either."""
    reads_most: bool = False
    """Most solutions read as its gold: it is proposed only for a set that states this task."""
    answer_of: Callable[[Any], str] | None = None
    """The answer to a gold that earns 1.0, where that is not the gold's own text."""
    states: Stated | None = None
    """The short answer that its rewards compare; None: boxes or points."""
    headline: str = "accuracy"
    """The metric by which two evaluations are compared."""
    format_reward: str = "vlrft_format"
    """The reward of the format in its recipes, beside its first reward."""
    completion_tokens: int = 512
    """The length of a completion in its recipes."""
    hub_category: str = "visual-question-answering"
    """Its name among the hubs' tasks."""
    problem_of: Callable[[Mapping[str, Any]], str | None] = lambda columns: None
    """What is wrong with the solution and further columns of a row, for the checks of data."""
    asks_also: Asked | None = None
    """What a prompt must ask for beside the tags."""

    @property
    def asks(self) -> tuple[Asked, ...]:
        """What a prompt must ask for, or answers to it are not read."""
        boxed = self.states is not None and self.states.may_be_boxed
        return (ANSWER_OR_BOXED if boxed else ANSWER, *filter(None, [self.asks_also]))

    @property
    def gold_has_boxes(self) -> bool:
        return self.has_boxes or self.has_points

    def read_gold(self, solution: Any) -> Any:
        """Return the gold of a solution, with or without answer tags; the same text is read once.
        None if it cannot be read, or is a structure where one text or number is asked for.
        """
        if type(solution) is not str:
            solution = plain(solution)
            if isinstance(solution, (list, tuple, dict)) and not self._may_be(solution):
                return None
            solution = gold_text(solution)
        return self._read_once(solution)

    def _may_be(self, solution: Sequence[Any] | dict[Any, Any]) -> bool:
        structured = self.gold_has_boxes or self.has_spans
        if structured or isinstance(solution, dict):
            return structured
        single = len(solution) == 1 and isinstance(solution[0], (str, int, float))
        return self.has_items or (single and not self.as_written)

    @cached_property
    def _read_once(self) -> Callable[[str], Any]:
        return lru_cache(maxsize=8192)(lambda solution: self.read(gold_text(solution)))


@dataclass(frozen=True)
class Reward:
    """Scores rows: ``score`` gets the ``Answer``; the gold, if ``needs`` names the solution; then
    the row's values of further columns of ``needs``, and of ``takes`` (None if the data lack them).
    """

    score: Callable[..., float]
    task: Task | None = None
    """The task whose rows it scores; other rows get None. None: every row."""
    needs: tuple[str, ...] = ("solution",)
    takes: tuple[str, ...] = ()
    reads_confidence: bool = False
    asks: tuple[Asked, ...] | None = None
    """What a prompt must ask for; None: what its task's prompts must, else the answer tags."""
    scores_format: bool = False
    """It scores how the answer is written, not whether it is right."""
    zero_without: str | None = None
    """A column of ``takes`` without which a row earns 0."""
    problem_of: Callable[[Mapping[str, Any]], str | None] | None = None
    """What is wrong with its columns of a row, for the checks of data."""
    reason: tuple[str, str] | None = None
    """Code and text of why it pays less, where that is not the form of the answer."""
    changes_in_training: bool = False
    """``score`` also gets ``trainer_state``: the same answer may earn less later in training."""
    sees_means: bool = False
    """``score`` also gets ``means``: those that the trainer has logged of it, oldest first."""
    sees_group: bool = False
    """``score`` also gets ``others``: the other answers of its group, from every process."""
    least_iou: float = 0.5
    """Under this IoU a pair of boxes earns nothing, where the threshold does not change."""
    recommended: bool = True
    """If false, `data check` never suggests this reward."""
    __name__: str = field(init=False)
    """The name in ms-swift's logs: the function's name."""

    def __post_init__(self) -> None:
        for name in ("__name__", "__doc__", "__module__"):
            object.__setattr__(self, name, getattr(self.score, name))
        if self.asks is None:
            object.__setattr__(self, "asks", self.task.asks if self.task else (ANSWER,))

    def __reduce__(self) -> str:
        """Return the name to pickle it by, as a function is: its module's attribute."""
        return self.__name__

    def __call__(self, completions: Sequence[Any], solution: Any = None, **columns: Any) -> Scores:
        """Return a score in [0, 1] per completion; None for rows of other tasks and for gold that
        cannot be read. ValueError: a column that is missing or of another length, or no completion.
        """
        if isinstance(completions, str):
            raise ValueError(
                f"{self.__name__}: completions is one string; a list of completions is needed."
            )
        named = columns | {"completions": completions, "solution": solution}
        column = partial(self._column, named, len(completions))
        texts = column("completions") or []
        for row, text in enumerate(texts):
            if text is None:
                raise ValueError(f"{self.__name__}: completions: row {row} is None, no text.")
        further = {}
        for key in (*self.needs, *self.takes):
            values = column(key)
            if values is None and key in self.needs:
                raise ValueError(
                    f"{self.__name__}: the column {key!r} is missing (given: "
                    f"{', '.join(sorted(columns)) or 'no other column'}). Add it to the data set, "
                    f'or rename yours with --columns \'{{"answer": "{key}"}}\'.'
                )
            further[key] = [None] * len(texts) if values is None else values
        golds = further.pop("solution") if "solution" in self.needs else None
        task = self.task
        tasks = column("task") if task else None
        if prefixes := column("response_prefix"):
            texts = [with_prefix(text, plain(p)) for text, p in zip(texts, prefixes, strict=True)]
        state = columns.get("trainer_state")
        seen: dict[str, Any] = {"trainer_state": state} if self.changes_in_training else {}
        if self.sees_means:
            seen["means"] = logged_means(state, self.__name__)
        others = self._others(texts, named) if self.sees_group else []
        scores: Scores = [None] * len(texts)
        unreadable = []
        for row, text in enumerate(texts):
            if task and tasks and (plain(tasks[row]) or task.name) != task.name:
                continue
            values = [of_rows[row] for of_rows in further.values()]
            if golds is not None:
                gold = task.read_gold(golds[row]) if task else gold_text(golds[row])
                if gold is None:
                    unreadable.append((row, gold_text(golds[row])))
                    continue
                values.insert(0, gold)
            seen |= {"others": others[row]} if others else {}
            scores[row] = self.score(read(text), *values, **seen)
        if task and unreadable:
            _warn_unreadable(self.__name__, task, unreadable)
        return scores

    def _others(self, texts: Sequence[Any], columns: Mapping[str, Any]) -> list[list[Answer]]:
        """The other answers of each one's group: neighbours of one prompt, picture and solution."""
        of_row = {key: self._column(columns, len(texts), key) for key in OF_ROW}
        known = {key: values for key, values in of_row.items() if values is not None}
        if known.keys().isdisjoint(PROMPTS):
            raise ValueError(f"{self.__name__}: a column that tells groups is missing: {PROMPTS}")
        rows = [{key: values[n] for key, values in known.items()} for n in range(len(texts))]
        marks = [json.dumps(row, default=_content) for row in rows]
        parts, rank = [list(zip(marks, map(text_of, texts), strict=True))], 0
        distributed = sys.modules.get("torch.distributed")
        if "trainer_state" in columns and distributed and distributed.is_initialized():
            rank = distributed.get_rank()  # a group may lie in several processes
            parts *= distributed.get_world_size()
            distributed.all_gather_object(parts, parts[0])
        others: list[list[Answer]] = []
        for _, group in groupby(sum(parts, []), key=itemgetter(0)):
            answers = [read(text) for _, text in group]
            others += [answers[:n] + answers[n + 1 :] for n in range(len(answers))]
        return others[sum(map(len, parts[:rank])) :]

    def _column(self, columns: Mapping[str, Any], rows: int, key: str) -> Sequence[Any] | None:
        """A column as a list or tuple, None if it is missing."""
        values = columns.get(key)
        if type(values) not in (list, tuple):
            values = plain(values)
            if isinstance(values, Iterable) and not isinstance(values, (str, Mapping, Set)):
                values = list(values)
            elif isinstance(values, str) and key != "solution":
                values = [values] * rows
        if values is None:
            return None
        if not isinstance(values, (list, tuple)) or len(values) != rows:
            count, without = f"one {type(values).__name__}", ""
            if isinstance(values, (list, tuple)):
                count, first = f"{len(values)} values", min(len(values), rows)
                without = f"; row {first} has no {key if len(values) < rows else 'completion'}"
            raise ValueError(
                f"{self.__name__}: {rows} completions, but {count} in the column {key!r}{without}; "
                "there must be one value per completion."
            )
        return values


PROMPTS = ("prompts", "prompt_id", "prompt")
"""Of TRL, of ms-swift, and of its completions.jsonl."""
OF_ROW = (*PROMPTS, "image", "images", "solution")


def _content(value: Any) -> str:
    """A picture's pixels, hashed; anything else as it prints."""
    return sha256(value.tobytes()).hexdigest() if hasattr(value, "tobytes") else repr(value)


def logged_means(trainer_state: Any, name: str) -> list[float]:
    """Return what a trainer has logged of a reward, resumed or not; rows of None do not count."""
    logged = getattr(trainer_state, "log_history", None) or ()
    means = [entry.get(f"rewards/{name}/mean") for entry in logged]
    return [mean for mean in means if mean is not None and mean == mean]


def reward(task: Task | None = None, **facts: Any) -> Callable[[Callable[..., float]], Reward]:
    """Make a reward of a function that scores one row; ``facts`` are further fields of it."""
    return lambda score: Reward(score, task, **facts)


def compares(field: str) -> Callable[[Callable[..., float]], Callable[..., float]]:
    """Make a score of a formula over what answers hold under ``field`` and over gold.

    The formula sees neither empty: if both are, the score is 1; if one is, or the answer cannot be
    read, it is 0.
    """

    def scored(formula: Callable[..., float]) -> Callable[..., float]:
        @wraps(formula)
        def score(answer: Answer, gold: Any, *further: Any) -> float:
            if (stated := getattr(answer, field)) and gold:
                return formula(stated, gold, *further)
            return 1.0 if stated is not None and not stated and not gold else 0.0

        return score

    return scored


_warned: set[str] = set()


def _warn_unreadable(name: str, task: Task, unreadable: list[tuple[int, str]]) -> None:
    """Warn of a task's first batch with such rows: `vlrft data check` lists them all."""
    if task.name not in _warned:
        _warned.add(task.name)
        row, text = unreadable[0]
        log.warning(
            "%s: the gold solution of row %d, one of %d such rows of the batch, cannot be read as "
            "%s: %r. Rows like it get no reward (None); this is not reported again.",
            *(name, row, len(unreadable), task.holds),
            text if len(text) <= 120 else text[:120] + "...",
        )
