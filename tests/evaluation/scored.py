"""What the tests of evaluation share: files of answers, the command, COCO's own evaluator."""

import contextlib
import copy
import io
import json
import random
from pathlib import Path

import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from support.command_line import vlrft
from support.hostile import answered as answer

NAMES = ("cat", "dog", "bus")
REFUSED = list(map(json.loads, Path(__file__).with_name("refused.jsonl").open()))
REFUSED_SETTINGS = [case for case in REFUSED if "content" not in case]
REFUSED_PREDICTIONS = [case for case in REFUSED if "content" in case]
"""Whose ``content`` is a file: JSON, or text that is none."""
AP_NAMES = ("AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large")


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run_json(*arguments) -> dict:
    result = vlrft(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def eval_json(file, *arguments) -> dict:
    return run_json("eval", "--predictions", file, "--bootstrap", "0", *arguments)


def assert_metrics(summary: dict, **expected) -> None:
    values = {name: summary["metrics"][name]["value"] for name in expected}
    assert values == pytest.approx(expected)


def refusal(*arguments) -> str:
    """What a command says that refuses, without line breaks."""
    result = vlrft(*arguments)
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


def classification_rows(said: list[tuple[str, str]]) -> list[dict]:
    """Rows of (answer, gold), each of a picture of its own."""
    shared = {"task": "classification"}
    return [
        shared
        | {"id": str(n), "image_id": f"{n}.png", "completion": answer(text), "solution": gold}
        for n, (text, gold) in enumerate(said)
    ]


def pycocotools_evaluator(gold, predicted, images, categories) -> COCOeval:
    truth = COCO()
    truth.dataset = {
        "info": {},
        "images": [{"id": i, "width": 640, "height": 640} for i in images],
        "categories": [{"id": c, "name": str(c)} for c in categories],
        "annotations": [box | {"id": n} for n, box in enumerate(gold, start=1)],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        results = truth.loadRes(copy.deepcopy(predicted))
        evaluator = COCOeval(truth, results, "bbox")
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    return evaluator


def coco_box(image: int, category: int, box: list[int], size: tuple[int, int]) -> dict:
    """A box in thousandths as COCO has it, in pixels."""
    x1, y1, x2, y2 = (v * side / 1000 for v, side in zip(box, size * 2, strict=True))
    return {"image_id": image, "category_id": category, "bbox": [x1, y1, x2 - x1, y2 - y1]}


def detection_set(images: int = 20) -> tuple[list[dict], dict, list[dict]]:
    """Rows of one category each; their gold as COCO's annotations, their answers as its results."""
    rng = random.Random(0)
    rows, results = [], []
    coco: dict = {"images": [], "annotations": []}
    coco["categories"] = [{"id": n, "name": name} for n, name in enumerate(NAMES, start=1)]
    for image in range(1, images + 1):
        size = rng.choice([(640, 480), (300, 900)])
        sides = {"width": size[0], "height": size[1]}
        coco["images"].append(sides | {"id": image, "file_name": f"{image}.jpg"})
        for category, name in enumerate(NAMES, start=1):
            gold, said = [], []
            for _ in range(rng.choice((0, 1, 2))):
                x, y = rng.randint(0, 500), rng.randint(0, 500)
                box = [x, y, x + rng.randint(20, 400), y + rng.randint(20, 400)]
                gold.append({"Position": box, "Confidence": 1})
                entry = coco_box(image, category, box, size)
                more = {"area": entry["bbox"][2] * entry["bbox"][3], "iscrowd": 0}
                coco["annotations"].append(entry | more | {"id": len(coco["annotations"]) + 1})
                if rng.random() < 0.8:
                    slip = [v + rng.randint(-15, 15) for v in box]
                    said.append({"Position": slip, "Confidence": rng.random()})
            if rng.random() < 0.2:
                said.append({"Position": [900, 900, 990, 990], "Confidence": rng.random()})
            results += [
                coco_box(image, category, one["Position"], size) | {"score": one["Confidence"]}
                for one in said
            ]
            rows.append(
                sides
                | {"id": f"{image}/{name}", "image_id": str(image), "category": name}
                | {"task": "detection", "frame": "norm1000"}
                | {"completion": answer(str(said or "No Objects"))}
                | {"solution": str(gold or "No Objects")}
            )
    return rows, coco, results
