"""What scoring a completion costs, beside two peers, on the same boxes in one run.

    python benchmarks/rewards.py PEERS        a folder with checkouts of Visual-RFT and VLM-R1

Prints medians in microseconds per completion for 1, 5, 20 and 100 boxes, and for the mix that
COCO's makers publish: 7.7 instances of 3.5 categories an image (Lin et al. 2014, section 5), so
2.2 boxes for an image and a category, drawn from a geometric distribution. Ours is iou +
confidence + format, each text parsed anew; then short answers in the forms that models write. The
floor is a bare JSON parse of the same answers. Visual-RFT needs the package math_verify to run as
released; without it only its time with the math parser off is shown. Its parser gives up on hard
texts after a timeout of seconds, which is its released behaviour and is counted.
"""

import argparse
import contextlib
import gc
import importlib
import io
import json
import math
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from peers import visual_rft, vlm_r1

from swift_vlrft.parsing import answers
from swift_vlrft.parsing.labels import normalise
from swift_vlrft.rewards import REWARDS

COUNTS = (1, 5, 20, 100)
MIX = 7.7 / 3.5
OURS = ("vlrft_detection_iou", "vlrft_detection_confidence", "vlrft_format")

SHORT = {
    "vlrft_classification": ("dog", ["African-Violet.", "dog", "The answer is dog.", "**rose**"]),
    "vlrft_counting": ("4", ["4", "There are 4 dogs.", "four", r"\boxed{4}", "12"]),
    "vlrft_number": ("4.5", ["4.5", "$1,234.50", r"30^\circ", "1/2", r"\boxed{12}"]),
    "vlrft_choice": ("B", ["B", "(B)", "B. two dogs and a cat", "The answer is B.", "C"]),
    "vlrft_yes_no": ("yes", ["yes", "No.", "Yes, there are no cats.", r"\boxed{yes}"]),
}


def short_answers(repeats: int) -> dict[str, float]:
    """Median time of a short answer by reward, each text new."""

    def scored(name: str, turn: int) -> float:
        gold, forms = SHORT[name]
        texts = [
            f"<think>{turn} {n}</think><answer>{forms[n % len(forms)]}</answer>" for n in range(100)
        ]
        normalise.cache_clear()
        start = time.process_time()
        REWARDS[name](texts, [gold] * len(texts))
        return (time.process_time() - start) / len(texts) * 1e6

    return {name: statistics.median(scored(name, n) for n in range(repeats)) for name in SHORT}


def rows(
    n_boxes: float, n_rows: int, rng: random.Random
) -> list[list[tuple[list[int], list[int]]]]:
    """Per row pairs of a gold box and a prediction a few units off, all distinct: ``n_boxes`` of
    them, or as many in the mean.
    """

    def count() -> int:
        if isinstance(n_boxes, int):
            return n_boxes
        return 1 + int(math.log(rng.random()) / math.log(1 - 1 / n_boxes))

    def box() -> list[int]:
        x, y = rng.randint(10, 800), rng.randint(10, 800)
        return [x, y, x + rng.randint(20, 180), y + rng.randint(20, 180)]

    return [
        [(b, [v + rng.randint(-3, 3) for v in b]) for b in (box() for _ in range(count()))]
        for _ in range(n_rows)
    ]


def microseconds(
    contestants: dict[str, tuple[Callable[[], object], int]], repeats: int
) -> dict[str, float]:
    """Median time per completion of each (call, completions per call).

    They take turns, so that a moment in which the machine is busy with something else touches all.
    """
    times: dict[str, list[float]] = {label: [] for label in contestants}
    for turn in range(repeats + 1):
        for label, (call, n_rows) in contestants.items():
            gc.collect()
            gc.disable()  # as timeit does: the peers' expressions are not ours to collect
            start = time.process_time()
            call()
            seconds = time.process_time() - start
            gc.enable()
            if turn:  # the first one warms up
                times[label].append(seconds / n_rows * 1e6)
    return {label: statistics.median(values) for label, values in times.items()}


def measure(n_boxes: float, peers: Path | None, n_rows: int, repeats: int) -> dict[str, float]:
    rng = random.Random(n_boxes)
    data = rows(n_boxes, n_rows, rng)
    lists = [
        [
            {"Position": p, "Confidence": round(rng.random(), 2)}
            for _, p in rng.sample(row, len(row))
        ]
        for row in data
    ]
    texts = [f"<think>t</think><answer>{boxes}</answer>" for boxes in lists]
    golds = [
        f"<answer>{[{'Position': g, 'Confidence': 1} for g, _ in row]}</answer>" for row in data
    ]
    bare = [json.dumps(boxes) for boxes in lists]

    def ours() -> None:
        answers.forget()  # every completion is new, as in training
        for name in OURS:
            REWARDS[name](texts, golds)

    contestants: dict[str, tuple[Callable[[], object], int]] = {
        "floor": (lambda: [json.loads(text) for text in bare], n_rows),
        "ours": (ours, n_rows),
    }
    if peers is None:
        return microseconds(contestants, repeats)
    # The peers take long enough for a few rows to do.
    few = max(1, min(n_rows, 100 // n_boxes)) if isinstance(n_boxes, int) else n_rows
    chats = [[{"role": "assistant", "content": text}] for text in texts[:few]]
    try:
        math_verify = importlib.import_module("math_verify")
    except ImportError:
        math_verify = None
    for label, parser in (("Visual-RFT", math_verify), ("Visual-RFT, math parser off", None)):
        functions = visual_rft(peers, parser)
        if functions is None or (label == "Visual-RFT" and parser is None):
            continue
        both = [functions["accuracy_reward_iou"], functions["accuracy_reward_confidence"]]
        contestants[label] = (partial(_call_each, both, chats, golds[:few]), few)
    if (functions := vlm_r1(peers)) is not None:
        theirs = [
            "<think>t</think><answer>```json\n"
            + json.dumps([{"bbox_2d": b["Position"], "label": "dog"} for b in boxes])
            + "\n```</answer>"
            for boxes in lists[:few]
        ]
        gold = [
            "<answer>```json\n"
            + json.dumps([{"bbox_2d": g, "label": "dog"} for g, _ in row])
            + "\n```</answer>"
            for row in data[:few]
        ]
        od_length = functions["odLength_reward"]

        def call() -> None:
            with contextlib.redirect_stdout(io.StringIO()):  # it prints its table per completion
                for text, solution in zip(theirs, gold, strict=True):
                    od_length(text, solution)

        contestants["VLM-R1 odLength"] = (call, few)
    return microseconds(contestants, repeats)


def _call_each(functions: list[Callable[..., object]], *arguments: object) -> None:
    for function in functions:
        function(*arguments)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peers", nargs="?", type=Path, help="folder with checkouts of the peers")
    parser.add_argument("--rows", type=int, default=200, help="completions per measurement")
    parser.add_argument("--repeats", type=int, default=15, help="measurements per median")
    arguments = parser.parse_args()
    results = {
        n: measure(n, arguments.peers, arguments.rows, arguments.repeats) for n in (MIX, *COUNTS)
    }
    labels = list(dict.fromkeys(label for found in results.values() for label in found))
    print("microseconds per completion (median), and how many times ours")
    print(f"{'boxes':32}" + "".join(f"{n:>18.3g}" for n in results))
    for label in labels:
        cells = []
        for n in results:
            value = results[n].get(label)
            ratio = (
                "" if value is None or label == "ours" else f"{value / results[n]['ours']:9.1f}x"
            )
            cells.append(" " * 18 if value is None else f"{value:>{18 - len(ratio)}.1f}{ratio}")
        print(f"{label:32}" + "".join(cells))
    for name, value in short_answers(arguments.repeats).items():
        print(f"{name:32}{value:>18.1f}")


if __name__ == "__main__":
    main()
