"""How fast evaluation is, side by side with what people use.

    python benchmarks/evaluation.py                     scoring: 5,000 images x 80 categories
    python benchmarks/evaluation.py --engines MODEL     asking: batched vLLM, one by one

Scoring: pycocotools and `vlrft eval` on the same made detections, in turns, numbers compared.
Both are single-threaded; times are of the processor, which a shared machine does not stretch.
Asking: the same rows through vLLM in one batch, and through transformers' generate one by one, as
Visual-RFT's evaluation does it. Ratios, not seconds, are what a shared machine can tell.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any


def made_detections(images: int, categories: int, seed: int = 0) -> tuple[list, list]:
    """About 7 gold boxes per image as in COCO, and 4 detections for each of them."""
    rng = random.Random(seed)
    gold, found = [], []
    for image in range(1, images + 1):
        for _ in range(rng.randint(1, 13)):
            side = rng.choice((15, 60, 250))
            box = [rng.uniform(0, 400), rng.uniform(0, 400), side * rng.uniform(0.6, 1.4), side]
            entry = {"image_id": image, "category_id": rng.randint(1, categories), "bbox": box}
            gold.append({**entry, "area": box[2] * box[3], "iscrowd": int(rng.random() < 0.01)})
            for _ in range(4):
                slip = rng.choice((0.02, 0.1, 0.3, 1.0))
                moved = [v + rng.uniform(-slip, slip) * side for v in box]
                moved[2:] = [max(1.0, v) for v in moved[2:]]
                found.append({**entry, "bbox": moved, "score": rng.random()})
    return gold, found


def pycocotools_scores(gold: list, found: list, images: int, categories: int) -> list[float]:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    truth = COCO()
    truth.dataset = {
        "info": {},
        "images": [{"id": i} for i in range(1, images + 1)],
        "categories": [{"id": c, "name": str(c)} for c in range(1, categories + 1)],
        "annotations": [{"id": n, **box} for n, box in enumerate(gold, start=1)],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        evaluator = COCOeval(truth, truth.loadRes(found), "bbox")
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    return [float(value) for value in evaluator.stats[:6]]


def our_scores(gold: list, found: list, images: int, categories: int) -> list[float]:
    from swift_vlrft.evaluation.coco import coco_scores

    mean = coco_scores(gold, found, range(1, images + 1), range(1, categories + 1)).mean
    names = ("AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large")
    return [value if (value := mean[name]) is not None else -1.0 for name in names]


def scoring(images: int, categories: int, turns: int) -> dict[str, Any]:
    gold, found = made_detections(images, categories)
    times: dict[str, list[float]] = {"pycocotools": [], "vlrft": []}
    numbers = {}
    for _ in range(turns):
        for name, function in (("pycocotools", pycocotools_scores), ("vlrft", our_scores)):
            given = copy.deepcopy(gold), copy.deepcopy(found)
            began = time.process_time()
            numbers[name] = function(*given, images, categories)
            times[name].append(time.process_time() - began)
    apart = max(abs(a - b) for a, b in zip(numbers["pycocotools"], numbers["vlrft"], strict=True))
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {
        "images": images,
        "categories": categories,
        "gold": len(gold),
        "detections": len(found),
        "turns": turns,
        "processor_seconds": {name: round(value, 3) for name, value in medians.items()},
        "ratio": round(medians["pycocotools"] / medians["vlrft"], 2),
        "largest_difference": apart,
    }


def asking(model: Path, rows: int, max_tokens: int, options: dict[str, Any]) -> dict[str, Any]:
    import os
    import tempfile

    os.environ.setdefault("LOG_LEVEL", "WARNING")
    from swift.infer_engine import RequestConfig

    from swift_vlrft.datasets.writer import write_folder
    from swift_vlrft.demo.rows import colour_rows, stored
    from swift_vlrft.evaluation.predictions import Problems
    from swift_vlrft.evaluation.queries import QuerySet
    from swift_vlrft.evaluation.settings import Settings
    from swift_vlrft.swift_plugin.inference import answer_batch, load_engine

    with tempfile.TemporaryDirectory() as folder:
        drawn = colour_rows(random.Random(0), rows)
        write_folder(Path(folder) / "set", {"train": map(stored, drawn)})
        config = RequestConfig(max_tokens=max_tokens, temperature=0.0)
        seconds = {}
        for engine, at_once in (("transformers", 1), ("vllm", rows)):
            settings = Settings(
                model=str(model),
                dataset=Path(folder) / "set",
                task="classification",
                engine=engine,
                batch_size=at_once,
                dtype="float32",
                engine_options=options if engine == "vllm" else {},
            )
            ask, *_ = load_engine(settings)
            found = list(QuerySet(settings).read(Problems()))
            answer_batch(ask, config, settings, found[:1], Problems())  # warm
            began = time.perf_counter()
            for first in range(0, rows, at_once):
                answer_batch(ask, config, settings, found[first : first + at_once], Problems())
            seconds[engine] = time.perf_counter() - began
    return {
        "rows": rows,
        "max_tokens": max_tokens,
        "seconds": {
            "transformers, one by one": round(seconds["transformers"], 2),
            "vLLM, batched": round(seconds["vllm"], 2),
        },
        "ratio": round(seconds["transformers"] / seconds["vllm"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--categories", type=int, default=80)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--engines", type=Path, help="a checkpoint: compare ways of asking it")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--engine-options", default="{}", help="flags of `swift infer` for vLLM")
    given = parser.parse_args()
    if given.engines is None:
        result = scoring(given.images, given.categories, given.turns)
    else:
        options = json.loads(given.engine_options)
        result = asking(given.engines, given.rows, given.max_tokens, options)
    print(json.dumps(result, indent=2))
    if result.get("largest_difference", 0.0) > 1e-6:
        sys.exit("the numbers differ")


if __name__ == "__main__":
    main()
