"""Completions and gold answers under every reward."""

# ruff: noqa: E501 - rows of a table stay on one line

import json
import math
import random
from pathlib import Path
from typing import Any

from fuzz import mutate
from fuzz.target import clean
from support.contract_rows import plain_rows, rows

from swift_vlrft.commands.output import printable
from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.parsing import answers
from swift_vlrft.rewards import REWARDS

NAMES = list(REWARDS)
SEEDS = [row["completion"] for name in NAMES for row in rows(name)[:20]]
"""Answers of the contract: right ones, and wrong ones of every kind."""
PIECES = [
    "<think>", "</think>", "<answer>", "</answer>", "[", "]", "{", "}", "(", ")", "<", ">", ",", ":", "'", '"',
    "\\", "\\u", "\\x4", "'Position'", '"bbox_2d"', '"label"', "'Confidence'", "1e400", "-1e400", "NaN", "nan",
    "inf", "-Infinity", "True", "None", "null", "0x1F", "1_0", "1.", ".5", "+5", "--", "9" * 30, "9" * 4400,
    "0.9", "254, 303, 291, 365", "No Objects", "yes", "no", "A.", "(B)", "\x00", "\ud800", "\u0664", "\uff14",
    "\u2028", " ", "\n", "```json", "<|box_start|>", "<|object_ref_start|>", "<|object_ref_end|>", "<ref>", "#",
    "<box>", "</box>", "<|box_end|>", "'boxes'", '"objects"', "'box_2d'", "and", " or ", "so ", "not ", "b)", "~",
    "\\boxed{", "}", "$", "**", "\\text{", "\\(", "\\frac{", "^{9}", "\\sqrt", "Answer: ", "答案：", "→", "</s>", "click(x=", "½", "²",
]  # fmt: skip
GOLDS = {
    reward.task.name: [row["solution"] for row in plain_rows(name) if row["score"] == 1.0]
    for name, reward in REWARDS.items()
    if reward.task
}
COLUMNS: dict[str, list[Any]] = {
    "aliases": [["dog", "cat"], "dog", [], None, [1, None], {"a": 1}, "\ud800"],
    "tolerance": [0.1, "0.1", -1, float("nan"), None, "a", [1], 1e308],
    "response_prefix": ["<think>\n", "", None, 3, "</think><answer>", "\x1b"],
    "task": ["detection", "ocr", "Detection", "", None, 3, "\u202e"],
}
SECONDS, SHARE = 5.0, 4
EACH = 6
"""How often a completion is scored; one input is one completion under one reward."""


def _asked(rng: random.Random) -> dict[str, Any]:
    name = rng.choice(NAMES)
    task = REWARDS[name].task
    gold: Any = rng.choice(GOLDS[task.name]) if task else ""
    if rng.random() < 0.15:
        gold = rng.choice([completion(rng), mutate.value(rng, {"g": gold}), rng.choice(mutate.ODD)])
    column = rng.choice(list(COLUMNS))
    columns = {column: rng.choice(COLUMNS[column])} if rng.random() < 0.2 else {}
    return {"reward": name, "gold": gold, "columns": columns}


def completion(rng: random.Random) -> str:
    """Half from pieces that parsers trip over, half a changed well-formed answer."""
    if rng.random() < 0.5:
        pieces = "".join(rng.choices(PIECES, k=rng.randint(1, 25)))
        return f"<answer>{pieces}</answer>" if rng.random() < 0.7 else pieces
    return mutate.text(rng, rng.choice(SEEDS), PIECES, SEEDS)


def make(rng: random.Random) -> tuple[str, bytes]:
    text = completion(rng) if rng.random() < 0.98 else rng.choice(mutate.ODD)
    case = {"completion": text, "asked": [_asked(rng) for _ in range(EACH)]}
    return "completion.json", json.dumps(case).encode()


def check(name: str, content: bytes, folder: Path) -> int:
    """A finite score in [0, 1] or None, from scratch the same with its reason."""
    case, scores = json.loads(content), []
    text = case["completion"]
    answers.forget()
    for asked in case["asked"]:
        listed = {key: [value] for key, value in asked["columns"].items()}
        score = REWARDS[asked["reward"]]([text], [asked["gold"]], **listed)[0]
        if score is not None:
            assert type(score) is float and math.isfinite(score) and 0.0 <= score <= 1.0, asked
        scores.append(score)
    answers.forget()
    for asked, score in zip(case["asked"], scores, strict=True):
        reason = explain(asked["reward"], text, asked["gold"], **asked["columns"])
        assert reason.score == score, (reason.score, score, asked)
        assert score is not None or reason.code in ("bad_gold", "other_task"), reason
        assert 0 < len(reason.text) < 1500, len(reason.text)
        clean(printable(reason.text))
    return len(scores)
