"""Completions and gold answers under every reward."""

# ruff: noqa: E501 - rows of a table stay on one line

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from fuzz import mutate
from fuzz.target import Target, clean

from swift_vlrft.commands.output import printable
from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.parsing import answers
from swift_vlrft.rewards import REWARDS

SEEDS = [
    "<think>t</think><answer>[{'Position': [254, 303, 291, 365], 'Confidence': 0.9}]</answer>",
    '<think>t</think>\n<answer>```json\n[{"bbox_2d": [1, 2, 30, 40], "label": "dog\'s"}]\n```</answer>',
    "<answer>(254,303),(291,365) (1,2),(3,4)</answer>",
    "<answer><|object_ref_start|>dog<|object_ref_end|><|box_start|>(1,2),(3,4)<|box_end|></answer>",
    "<think>t</think><answer><|begin_of_box|>[[1, 2, 3, 4]]<|end_of_box|></answer>",
    "<think>t</think><answer>No Objects</answer>",
    "<think>t</think><answer>I count 4 dogs, so 4</answer>",
    "<think>t</think><answer>B. two dogs</answer>",
    "<think>t</think><answer>not yes</answer>",
    "<answer>```\n254, 303, 291, 365\n```</answer>",
    "<answer><ref>dog</ref><box>254 303 291 365</box><box>[[1, 2, 3, 4]]</box></answer>",
    '<answer>{"boxes": [[1, 2, 3, 4], [5, 6, 7, 8]], "label": "dog"}</answer>',
    '<answer>{"objects": [{"box_2d": [303, 254, 365, 291]}]}</answer>',
    "<answer>There are 4 dogs, not more than 4</answer>",
    "<answer>a. cat or b</answer>",
    '<answer>[{"point_2d": [270, 350]}, {"point": [330, 260]}, {"coordinate": ["1e3", null]}]</answer>',
    '<answer><points x1="270" y1="350" alt="x2=\'3\'"/><point>254 303</point> (254, 303)</answer>',
    "<answer>-$1,500.0 or 1.5e3 kg</answer>",
    "<answer>['dog\\'s', \"cat\", 1, [2]]</answer>",
    "<answer>b; c\na</answer>",
]
PIECES = [
    "<think>", "</think>", "<answer>", "</answer>", "[", "]", "{", "}", "(", ")", "<", ">", ",", ":", "'", '"',
    "\\", "\\u", "\\x4", "'Position'", '"bbox_2d"', '"label"', "'Confidence'", "1e400", "-1e400", "NaN", "nan",
    "inf", "-Infinity", "True", "None", "null", "0x1F", "1_0", "1.", ".5", "+5", "--", "9" * 30, "9" * 4400,
    "0.9", "254, 303, 291, 365", "No Objects", "yes", "no", "A.", "(B)", "\x00", "\ud800", "\u0664", "\uff14",
    "\u2028", " ", "\n", "```json", "<|box_start|>", "<|object_ref_start|>", "<|object_ref_end|>", "<ref>", "#",
    "<box>", "</box>", "<|box_end|>", "'boxes'", '"objects"', "'box_2d'", "and", " or ", "so ", "not ", "b)", "~",
]  # fmt: skip
GOLDS = {
    "detection": ["[{'Position': [254, 303, 291, 365], 'label': 'dog'}]", "No Objects"],
    "grounding": ["(254,303),(291,365)", "none"],
    "classification": ["dog's bowl"],
    "counting": ["4"],
    "choice": ["B"],
    "yes_no": ["no"],
    "pointing": ["[[254, 303, 291, 365], [250, 300, 300, 400]]", "No Objects"],
    "ocr": ["I count 4 dogs, so 4"],
    "number": ["-1.5e3"],
    "list": ['["dog\'s", "cat"]', "none"],
    "ordering": ["a; b; c"],
}


NAMES = list(REWARDS)
COLUMNS: dict[str, list[Any]] = {
    "aliases": [["dog", "cat"], "dog", [], None, [1, None], {"a": 1}, "\ud800"],
    "tolerance": [0.1, "0.1", -1, float("nan"), None, "a", [1], 1e308],
    "response_prefix": ["<think>\n", "", None, 3, "</think><answer>", "\x1b"],
    "task": ["detection", "ocr", "Detection", "", None, 3, "\u202e"],
}


EACH = 6
"""How often a completion is scored."""


def _asked(rng: random.Random) -> dict[str, Any]:
    name = rng.choice(NAMES)
    task = REWARDS[name].task
    gold: Any = rng.choice(GOLDS[task.name]) if task else ""
    if rng.random() < 0.15:
        gold = rng.choice([completion(rng), mutate.value(rng, {"g": gold}), rng.choice(mutate.ODD)])
    asked = {"reward": name, "gold": gold}
    if rng.random() < 0.2:
        column = rng.choice(list(COLUMNS))
        asked[column] = rng.choice(COLUMNS[column])
    return asked


def completion(rng: random.Random) -> str:
    """Half from pieces that parsers trip over, half a changed well-formed answer."""
    if rng.random() < 0.5:
        pieces = "".join(rng.choices(PIECES, k=rng.randint(1, 25)))
        return f"<answer>{pieces}</answer>" if rng.random() < 0.7 else pieces
    return mutate.text(rng, rng.choice(SEEDS), PIECES, SEEDS)


class Rewards(Target):
    name = "rewards"
    one_input = "one completion under one reward, with one gold answer and further columns"
    seconds = 5.0
    share = 4

    def make(self, rng: random.Random, folder: Path) -> dict[str, Any]:
        text = completion(rng) if rng.random() < 0.98 else rng.choice(mutate.ODD)
        return {"completion": text, "asked": [_asked(rng) for _ in range(EACH)]}

    def check(self, case: dict[str, Any], folder: Path) -> int:
        """A finite score in [0, 1] or None, from scratch the same with its reason."""
        text, scores = case["completion"], []
        answers.forget()
        for asked in case["asked"]:
            listed = {key: [value] for key, value in asked.items() if key not in ("reward", "gold")}
            score = REWARDS[asked["reward"]]([text], [asked["gold"]], **listed)[0]
            if score is not None:
                assert type(score) is float and math.isfinite(score) and 0.0 <= score <= 1.0, asked
            scores.append(score)
        answers.forget()
        for asked, score in zip(case["asked"], scores, strict=True):
            columns = {key: value for key, value in asked.items() if key not in ("reward", "gold")}
            reason = explain(asked["reward"], text, asked["gold"], **columns)
            assert reason.score == score, (reason.score, score, asked)
            assert score is not None or reason.code in ("bad_gold", "other_task"), reason
            assert 0 < len(reason.text) < 1500, len(reason.text)
            clean(printable(reason.text))
        return len(scores)

    def save(self, case: dict[str, Any], folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "completion.json").write_text(json.dumps(case))
        return folder / "completion.json"

    def load(self, file: Path) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(file.read_text())
        return found


TARGET = Rewards()
