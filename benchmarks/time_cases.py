"""The estimate of a step's seconds against published step times.

    python benchmarks/time_cases.py [benchmarks/results/step_times.jsonl] [--json] [--case ID]
    python benchmarks/time_cases.py --table              # the table of docs/plan.md

A line is one public report: model, GPUs, batch, lengths, and the seconds of a step, with its source
and what it leaves open (``unknown``). A step is as the report counts it: all ``rows`` completions
of a generation and the ``updates`` made with them. ``lengths`` says how the length of the answers
is known: stated, derived (from a published throughput), limit (from the limit on them) or assumed.
No constant of the estimate is taken from a case by its name. Prints the ratio of estimated to
published seconds, its median and its spread.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from swift_vlrft.memory.generation import Answers
from swift_vlrft.memory.models import read_model
from swift_vlrft.memory.settings import CAPACITY, GIB, Settings
from swift_vlrft.memory.speeds import SPEEDS
from swift_vlrft.memory.step_time import StepTime, step_time

FILE = Path(__file__).with_name("results") / "step_times.jsonl"

KNOWN = ("stated", "derived")
"""Lengths that a report tells, so that they are no part of the error."""

NODE = 8
"""GPUs of a node, in every report of several nodes."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", default=FILE)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--table", action="store_true", help="in Markdown")
    parser.add_argument("--case", help="only this id, with its phases")
    arguments = parser.parse_args()
    try:
        cases = read_cases(arguments.file)
    except (OSError, ValueError) as error:
        parser.error(f"{arguments.file}: {error}")
    if arguments.table:
        print("\n".join(table(cases)))
        return 0
    results = [judged(case) for case in cases]
    if arguments.case:
        results = [result for result in results if result["id"] == arguments.case]
    if arguments.json:
        print(json.dumps({"cases": results, "summary": summary(results)}, indent=1))
        return 0
    for result in results:
        print(
            f"{result['id']:28} {result['lengths']:8} published {result['published']:7.1f} s  "
            f"estimated {result['estimated']:7.1f} s  ratio {result['ratio']:.2f}  "
            f"{result['larger_half']}"
        )
        if arguments.case:
            print(json.dumps(result["phases"], indent=1))
    for name, found in summary(results).items():
        print(f"{name}: {json.dumps(found)}")
    return 0


def table(cases: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| case | model | GPUs | answers | published, s | estimated, s | ratio |",
        "|---" * 7 + "|",
    ]
    for case in cases:
        result, beside = judged(case), case.get("rollout_gpus")
        model = case["model"].rpartition("/")[2].removesuffix("-Instruct")
        gpus = f"{case['gpus']}{f' + {beside}' if beside else ''} x {case['gpu']}"
        lines.append(
            f"| `{case['id']}` | {model}, {case['tuning']} | {gpus} | "
            f"{case['answer_mean']} ({case['lengths']}) | {result['published']:g} | "
            f"{result['estimated']:g} | {result['ratio']:.2f} |"
        )
    return lines


def read_cases(file: Path = FILE) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines() if line.strip()]


def judged(case: dict[str, Any]) -> dict[str, Any]:
    step = estimated(case)
    seconds = step.seconds or 0.0
    return {
        "id": case["id"],
        "lengths": case["lengths"],
        "published": case["seconds"],
        "estimated": round(seconds, 1),
        "ratio": round(seconds / case["seconds"], 3),
        "larger_half": step.larger,
        "phases": {p.name: [round(p.seconds or 0.0, 1), p.bound] for p in step.phases},
    }


def estimated(case: dict[str, Any]) -> StepTime:
    return step_time(
        settings_of(case),
        SPEEDS[case["gpu"]],
        Answers(case["answer_mean"], case["answer_longest"]),
        server_gpus=case.get("rollout_gpus"),
    )


def settings_of(case: dict[str, Any]) -> Settings:
    """A report as the planner's settings. All updates of a step count as one with more
    accumulation: the optimizer's own step takes next to nothing.
    """
    model, gpus = read_model(case.get("like", case["model"])), case["gpus"]
    batch = case["micro_batch"]
    grids: tuple[tuple[int, int, int], ...] = ()
    if image := case.get("image"):
        width, height = model.image_rule.size(*image)
        one = (1, height // model.patch, width // model.patch)
        grids = (one,) * case.get("images", 1)
    offload = bool(case.get("offload"))
    return Settings(
        model=model,
        gpu_bytes=round(CAPACITY[case["gpu"]] * GIB),
        processes=gpus,
        nodes=-(-gpus // NODE),
        tuning=case["tuning"],
        train_vit=model.sees and not case.get("freeze_vit", True),
        train_aligner=model.sees and not case.get("freeze_vit", True),
        sharding=case["sharding"],
        cpu_states=bool(case.get("cpu_offload")),
        cpu_parameters=bool(case.get("cpu_offload")) and case["sharding"] == "zero3",
        rollout=case["rollout"],
        rollout_gpus=case.get("rollout_gpus", 0),
        vllm_tp=case.get("tp", 1),
        vllm_utilization=case.get("utilization", 0.9),
        vllm_batched_tokens=8192,
        sleep_level=1 if offload else 0,
        offload_model=offload,
        offload_optimizer=offload,
        batch=batch,
        accumulation=max(1, round(case["rows"] / (gpus * batch))),
        rollout_batch=round(case.get("rows_at_once", case["rows"]) / gpus),
        generations=case["generations"],
        prompt=case["text"],
        completion=case["max_completion"],
        grids=grids,
        checkpoint_llm=case["checkpoint"],
        checkpoint_vit=case["checkpoint"],
        reference=case["reference"],
        old_logps=case["old_logps"],
        float32_states=case.get("bits") == "AMP",
        all_logits=bool(case.get("all_logits")),
    )


def summary(results: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    groups = {
        "all": results,
        "lengths known": [r for r in results if r["lengths"] in KNOWN],
        "lengths assumed": [r for r in results if r["lengths"] not in KNOWN],
    }
    return {name: _spread([r["ratio"] for r in rows]) for name, rows in groups.items() if rows}


def _spread(ratios: list[float]) -> dict[str, float]:
    low, high = min(ratios), max(ratios)
    quarters = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [low, low, low]
    within = sum(0.5 <= ratio <= 2 for ratio in ratios)
    return {
        "cases": len(ratios),
        "median": round(statistics.median(ratios), 2),
        "quarter": round(quarters[0], 2),
        "three_quarters": round(quarters[2], 2),
        "least": round(low, 2),
        "most": round(high, 2),
        "within_factor_2": within,
    }


if __name__ == "__main__":
    raise SystemExit(main())
