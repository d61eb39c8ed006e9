"""Random texts against every reward: no exception, a finite score in [0, 1], the same one twice.

    python tests/fuzz_rewards.py --seconds 300

Half of the inputs are changed from well-formed answers (cut, doubled, spliced), half are put
together from pieces that parsers trip over. Prints how many were tried; a failure prints the input
that caused it.
"""

# ruff: noqa: E501 - rows of a table stay on one line

import argparse
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

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


def generate(rng: random.Random) -> str:
    if rng.random() < 0.5:
        pieces = "".join(rng.choices(PIECES, k=rng.randint(1, 25)))
        return f"<answer>{pieces}</answer>" if rng.random() < 0.7 else pieces
    text = rng.choice(SEEDS)
    for _ in range(rng.randint(1, 6)):
        a, b = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
        insert = rng.choice(
            ["", rng.choice(PIECES), text[a:b] * rng.randint(1, 3), rng.choice(SEEDS)]
        )
        text = text[:a] + insert + text[rng.choice([a, b]) :]
    return text


def check(text: str) -> None:
    """AssertionError or the reward's own exception where a score is not one."""
    for name, function in REWARDS.items():
        task = REWARDS[name].task
        for gold in GOLDS[task.name] if task else [""]:
            value = function([text], [gold])[0]
            assert isinstance(value, float), (name, value)
            assert 0.0 <= value <= 1.0, (name, value)
            answers.forget()  # a second reading from scratch
            assert function([text], [gold])[0] == value, name


def fuzz(seconds: float, seed: int = 0, most: int | None = None) -> int:
    """How many texts were tried before ``seconds``, or ``most``, were over."""
    rng = random.Random(seed)
    end = time.monotonic() + seconds
    tried = 0
    while time.monotonic() < end and (most is None or tried < most):
        text = generate(rng)
        try:
            check(text)
        except BaseException:
            print(f"input {tried} of seed {seed}: {text!r}", file=sys.stderr)
            raise
        tried += 1
    return tried


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=None, help="default: from the clock")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else time.time_ns() % 1_000_000
    tried = fuzz(arguments.seconds, seed)
    print(
        f"{tried} inputs tried in {arguments.seconds:g} s under {len(REWARDS)} rewards, seed {seed}: none failed"
    )
