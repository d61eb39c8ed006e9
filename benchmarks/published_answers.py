"""Answers that others published with their verdict, scored by ours: every difference.

    python benchmarks/published_answers.py R1_V        a checkout of Deep-Agent/R1-V

R1-V keeps what Qwen2-VL answered on SuperCLEVR (counting, its own rule: the last number of the
answer) and on GeoQA (math_verify over the text), before and after training, in src/eval/logs.
Nothing of it is kept here. A difference is shown with the end of the answer and the gold.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from swift_vlrft.rewards import REWARDS, TASK_NAMES

LOGS = Path("src/eval/logs")
RULES = {"counting_results": ("counting",), "geoqa": ("math", "number")}
"""The tasks under which a log is scored, by the beginning of its name."""


def verdict(row: dict[str, Any]) -> bool:
    """What R1-V said: as it stored it, or by its rule for counts."""
    if "is_correct" in row:
        return bool(row["is_correct"])
    return str(row.get("extracted_answer")) == str(row["ground_truth"])


def compared(rows: list[dict[str, Any]], task: str) -> tuple[str, list[str]]:
    """A line of the table, and the answers on which the verdicts differ."""
    texts = [str(row["model_output"]) for row in rows]
    golds = [str(row["ground_truth"]) for row in rows]
    unread = sum(TASK_NAMES[task].read_gold(gold) is None for gold in golds)
    counts = {(True, True): 0, (False, False): 0, (True, False): 0, (False, True): 0}
    differences = []
    scores = REWARDS[f"vlrft_{task}"](texts, golds)
    for row, text, gold, score in zip(rows, texts, golds, scores, strict=True):
        if score is None:
            continue
        ours, theirs = bool(score), verdict(row)
        counts[ours, theirs] += 1
        if ours != theirs:
            differences.append(f"    {'ours' if ours else 'theirs'}  {text[-70:]!r}  gold {gold!r}")
    shown = "".join(f"{count:>14}" for count in counts.values())
    return f"{task:10}{len(rows):>6}{unread:>14}{shown}", differences


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path, help="folder of R1-V")
    parser.add_argument("--differences", action="store_true", help="show every difference")
    arguments = parser.parse_args()
    names = ("rows", "unread golds", "both right", "both wrong", "ours alone", "theirs alone")
    print(f"{'task':10}{names[0]:>6}" + "".join(f"{name:>14}" for name in names[1:]))
    for file in sorted((arguments.checkout / LOGS).glob("*.json")):
        rows = json.loads(file.read_text(encoding="utf-8"))["results"]
        tasks = next(tasks for start, tasks in RULES.items() if file.name.startswith(start))
        print(file.stem)
        for task in tasks:
            line, differences = compared(rows, task)
            print(line)
            if arguments.differences:
                print(*differences, sep="\n")


if __name__ == "__main__":
    main()
