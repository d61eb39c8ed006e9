"""Answers that others published with their verdict, scored by ours: every difference.

    python benchmarks/published_answers.py FOLDER

FOLDER keeps the files of the four projects as ``owner/name/path``; what is not there is downloaded
from GitHub at the commits below. Nothing of theirs is kept here.

- R1-V: what Qwen2-VL answered on SuperCLEVR (its own rule: the last number of the answer) and on
  GeoQA (math_verify over the text), before and after training.
- NeMo Gym: example rollouts of its environments with their reward.
- supervision: the texts of its tests of VLM parsers. The gold is what it reads there.
- faster-coco-eval: COCO's fake boxes, scored as a file (its test states the figures) and image by
  image as an answer, where AP50 of COCO is computed here with that library.
"""

import argparse
import ast
import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.evaluation import read_predictions, summarise
from swift_vlrft.evaluation.annotations import Gold, open_annotations

COMMITS = {
    "Deep-Agent/R1-V": "bbbbe3dc1ea6a74ce31c118c1722b1ee73e372ba",
    "NVIDIA-NeMo/Gym": "07d6b0d07b22fcf530b4c211dae2ee23100428e4",
    "roboflow/supervision": "7f7b25d7e72d44486596f5ffab188c8ef7da1a7c",
    "MiXaiLL76/faster_coco_eval": "33ab6097d7983940e67591d20af1b4e9f48c4a93",
}
SAME = 1e-3
"""Scores that differ by less agree: supervision rounds pixels."""


@dataclass
class Verdict:
    """An answer that somebody scored: ``said`` is why ``theirs``, where that is not plain."""

    text: str
    gold: str
    theirs: float
    said: str = ""


@dataclass
class Source:
    """Answers scored by one of our rewards."""

    name: str
    reward: str
    verdicts: list[Verdict] = field(default_factory=list)


class Files:
    """Files of the four projects by project and path, downloaded where they are missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, project: str, path: str) -> Path:
        file = self.folder / project / path
        if not file.exists():
            address = f"https://raw.githubusercontent.com/{project}/{COMMITS[project]}/{path}"
            try:
                with urllib.request.urlopen(address, timeout=60) as answer:
                    content = answer.read()
            except OSError as problem:
                raise SystemExit(f"{address}: {problem}; or put the file at {file}") from None
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return file


def tagged(text: str) -> str:
    return f"<answer>{text}</answer>"


# ---- R1-V ------------------------------------------------------------------------------------

LOGS = {
    "SuperCLEVR, trained": ("counting_results_superclevr_200_qwen2vl_2b_instruct_grpo100_legacy",),
    "SuperCLEVR, untrained": ("counting_results_superclevr_200_qwen2vl_2b_instruct_legacy",),
    "GeoQA, trained": ("geoqa_test_qwen2vl_7b_grpo_2epochs_legacy", "math", "number"),
    "GeoQA, untrained": ("geoqa_test_qwen2vl_7b_instruct_legacy", "math", "number"),
}
"""The log, and the rewards by which it is scored (none: counting)."""


def r1_v(files: Files) -> Iterator[Source]:
    for name, (log, *rewards) in LOGS.items():
        file = files("Deep-Agent/R1-V", f"src/eval/logs/{log}.json")
        rows = json.loads(file.read_text(encoding="utf-8"))["results"]
        for reward in rewards or ["counting"]:
            source = Source(f"R1-V, {name}", f"vlrft_{reward}")
            for row in rows:
                read = str(row.get("extracted_answer"))
                right = row.get("is_correct", read == str(row["ground_truth"]))
                text, gold = str(row["model_output"]), str(row["ground_truth"])
                source.verdicts.append(Verdict(text, gold, float(right), f"they read {read}"))
            yield source


# ---- NeMo Gym --------------------------------------------------------------------------------

GYM = {
    "circle_click": "pointing",
    "circle_count": "counting",
    "gui_coordinate": "pointing",
    "image_tools": "grounding_iou",
    "mcqa": "choice",
    "gpqa_diamond": "choice",
    "math_with_judge": "math",
    "polymath": "math",
}
"""The environments and the reward that scores their answers."""


def nemo_gym(files: Files) -> Iterator[Source]:
    for environment, reward in GYM.items():
        source = Source(f"NeMo Gym, {environment}", f"vlrft_{reward}")
        path = f"resources_servers/{environment}/data/"
        rows = json_lines(files("NVIDIA-NeMo/Gym", f"{path}example_rollouts.jsonl"))
        if environment == "circle_click":
            tasks = json_lines(files("NVIDIA-NeMo/Gym", f"{path}example.jsonl"))
            rows = [row | tasks[row["_ng_task_index"]] for row in rows]
        source.verdicts += [v for row in rows if (v := rollout(environment, row)) is not None]
        yield source


def rollout(environment: str, row: dict[str, Any]) -> Verdict | None:
    """A rollout with the gold in our words; None for those of image_tools that are no box."""
    output = row["response"]["output"]
    text = "".join(
        part["text"] for item in output if item["type"] == "message" for part in item["content"]
    )
    theirs = row["reward"]
    if environment == "circle_click":
        call = next(item for item in output if item["type"] == "function_call")
        text = tagged(f'{{"name": "click", "arguments": {call["arguments"]}}}')
        circle = next(c for c in row["circles"] if c["color"] == row["target_color"])
        return Verdict(text, square(circle["x"], circle["y"], circle["radius"]), theirs)
    if environment == "gui_coordinate":  # theirs falls to 0 at a distance of 0.15
        x, y = (1000 * float(number) for number in row["expected_answer"].split(","))
        return Verdict(tagged(text), square(x, y, 150), float(theirs > 0))
    if environment == "image_tools":
        if row["argument_detail"] != "iou":
            return None
        gold = json.dumps(row["expected_action"]["arguments"]["bbox_2d"])
        return Verdict(tagged(text), gold, row["argument_score"])
    gold = row["expected_count"] if environment == "circle_count" else row["expected_answer"]
    return Verdict(text, str(gold), theirs, f"they read {row.get('extracted_answer')}")


def square(x: float, y: float, radius: float) -> str:
    return json.dumps([x - radius, y - radius, x + radius, y + radius])


def json_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


# ---- supervision -----------------------------------------------------------------------------

UNITS = {
    "test_from_paligemma": (1024, 1024),
    "test_from_qwen_2_5_vl": None,  # the test's own input_wh
    "test_from_google_gemini": (1000, 1000),
    "test_from_google_gemini_2_5": (1000, 1000),
    "test_from_moondream": (1, 1),
    "test_from_deepseek_vl_2": (999, 999),
}
"""Its tests of what models write, with the width and height of the units that the model uses.

Florence-2's are left out: they hold what its processor made of the text.
"""


def supervision(files: Files) -> Iterator[Source]:
    file = files("roboflow/supervision", "test/detection/test_vlm.py")
    for test in ast.parse(file.read_text(encoding="utf-8")).body:
        if not isinstance(test, ast.FunctionDef) or test.name not in UNITS:
            continue
        source = Source(f"supervision, {test.name}", "vlrft_detection_iou")
        call = test.decorator_list[0]
        assert isinstance(call, ast.Call)
        names, cases = (value(argument) for argument in call.args)
        for case in cases:
            row = dict(zip(names.split(", "), case, strict=True))
            expected = row.get("expected_results", row.get("expected_detections"))
            if expected is None:
                continue  # an impossible size, or a text that is refused
            boxes = [expected, None, []] if test.name == "test_from_moondream" else expected
            width, height = UNITS[test.name] or row["input_wh"]
            scale = width / row["resolution_wh"][0], height / row["resolution_wh"][1]
            text = row["result"] if isinstance(row["result"], str) else json.dumps(row["result"])
            gold = gold_boxes(boxes[0], boxes[2], scale)
            asked = f" of {' and '.join(row['classes'])} alone" if row.get("classes") else ""
            said = f"they read {len(boxes[0])} boxes{asked}"
            source.verdicts.append(Verdict(tagged(text), gold, 1.0, said))
        yield source


def gold_boxes(boxes: list[list[float]], labels: list[str], scale: tuple[float, float]) -> str:
    if not boxes:
        return "No Objects"
    scaled = [
        [x1 * scale[0], y1 * scale[1], x2 * scale[0], y2 * scale[1]] for x1, y1, x2, y2 in boxes
    ]
    named: list[dict[str, Any]] = [{"bbox_2d": box} for box in scaled]
    for box, label in zip(named, labels, strict=False):
        box["label"] = label
    return json.dumps(named)


def value(node: ast.AST) -> Any:
    """A literal of the test; of an array its list; None for what is not one of both."""
    match node:
        case ast.Tuple(elts) | ast.List(elts):
            return [value(element) for element in elts]
        case ast.Call(ast.Attribute(inner, "astype")):
            return value(inner)
        case ast.Call(ast.Attribute(_, "array"), [argument, *_]):
            return value(argument)
        case ast.Call(ast.Name("Detections"), _, given):
            found = {keyword.arg: keyword.value for keyword in given}
            data = found["data"]
            assert isinstance(data, ast.Dict)
            return [value(found["xyxy"]), None, value(data.values[0])]
        case ast.Call(ast.Attribute(ast.Name("Detections"), "empty")):
            return [[], None, []]
        case ast.Call(ast.Attribute(_, "empty")):
            return []
        case ast.Call():
            return None
        case ast.Dict(keys, values) if all(isinstance(key, ast.Constant) for key in keys):
            return {value(key): value(held) for key, held in zip(keys, values, strict=True) if key}
        case ast.Constant() | ast.UnaryOp():
            return ast.literal_eval(node)
    return None


# ---- faster-coco-eval ------------------------------------------------------------------------

FAKE = "tests/dataset/cocoapi/instances_val2014_"
FIGURES = ("AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large")


def fake_boxes(files: Files) -> Source:
    """The boxes of every image as an answer; theirs is COCO's AP50 over that image."""
    source = Source("COCO fake boxes, an image each", "vlrft_detection_map50")
    annotations, results = (
        json.loads(file.read_text(encoding="utf-8")) for file in files_of(files)
    )
    names = {category["id"]: category["name"] for category in annotations["categories"]}
    for image in annotations["images"]:
        gold, given = (
            [box for box in boxes if box["image_id"] == image["id"]]
            for boxes in (annotations["annotations"], results)
        )
        crowds = sum(box["iscrowd"] for box in gold)
        single = [box for box in gold if not box["iscrowd"]]
        if not single:
            continue  # COCO has no AP where nothing is to be found
        theirs = ap50(image, gold, given, names)
        said = f"COCO alone; {len(given)} boxes for {len(single)}"
        said += f", and {crowds} crowd regions" * bool(crowds)
        said += ", equal confidences" * (len({box["score"] for box in given}) < len(given))
        answer = tagged(as_text(given, names))
        source.verdicts.append(Verdict(answer, as_text(single, names), theirs, said))
    return source


def files_of(files: Files) -> tuple[Path, Path]:
    project = "MiXaiLL76/faster_coco_eval"
    return files(project, f"{FAKE}100.json"), files(project, f"{FAKE}fakebbox100_results.json")


def as_text(boxes: list[dict[str, Any]], names: dict[int, str]) -> str:
    """Boxes as a model writes them."""
    written: list[dict[str, Any]] = []
    for box in boxes:
        x, y, width, height = box["bbox"]
        label = names[box["category_id"]]
        written.append({"bbox_2d": [x, y, x + width, y + height], "label": label})
        if "score" in box:
            written[-1]["score"] = box["score"]
    return json.dumps(written)


def ap50(
    image: dict[str, Any],
    gold: list[dict[str, Any]],
    given: list[dict[str, Any]],
    names: dict[int, str],
) -> float:
    from faster_coco_eval import COCO, COCOeval_faster

    categories = [{"id": number, "name": name} for number, name in names.items()]
    quiet: dict[str, Any] = {"print_function": lambda *_: None}
    known = {"info": {}, "images": [image], "categories": categories, "annotations": gold}
    coco = COCO(known, use_deepcopy=True, **quiet)
    evaluator = COCOeval_faster(coco, coco.loadRes([*map(dict, given)]), "bbox", **quiet)
    evaluator.params.iouThrs = [0.5]
    evaluator.evaluate()
    evaluator.accumulate()
    precision = evaluator.eval["precision"][0, :, :, 0, -1]
    return float(precision[precision > -1].mean())


def stated_figures(files: Files) -> list[tuple[str, float, float]]:
    """The figures of `vlrft eval`, and those that the test of faster-coco-eval states."""
    annotations, results = files_of(files)
    gold = Gold(open_annotations(annotations))
    metrics = summarise(read_predictions(results, "detection"), gold, bootstrap=0).metrics
    test = files("MiXaiLL76/faster_coco_eval", "tests/test_cocoapi_fake_data.py")
    held = [n for n in ast.walk(ast.parse(test.read_text(encoding="utf-8"))) if type(n) is ast.Dict]
    stated = next(d for n in held if isinstance(d := value(n), dict) and "keys" in d)["bbox"]
    return [(name, metrics[name].value or 0.0, stated[n]) for n, name in enumerate(FIGURES)]


# ---- the table -------------------------------------------------------------------------------


def compared(source: Source) -> tuple[str, list[str]]:
    """A line of the table, and every difference."""
    agree = higher = lower = unread = 0
    differences = []
    for verdict in source.verdicts:
        reason = explain(source.reward, verdict.text, verdict.gold)
        if reason.score is None:
            unread += 1
        elif abs(reason.score - verdict.theirs) < SAME:
            agree += 1
        else:
            higher += reason.score > verdict.theirs
            lower += reason.score < verdict.theirs
            why = "; ".join(part for part in (reason.text, verdict.said) if part)
            shown = f"{reason.score:.3g} | {verdict.theirs:.3g} | {verdict.text[-90:]!r}"
            differences.append(f"| {source.name} | {shown} | {verdict.gold[:60]!r} | {why} |")
    counts = (len(source.verdicts), agree, higher, lower, unread)
    line = " | ".join(map(str, (source.name, f"`{source.reward}`", *counts)))
    return f"| {line} |", differences


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder of the files, downloaded if missing")
    files = Files(parser.parse_args().folder)
    print("| answers | under | rows | agree | ours higher | theirs higher | unread golds |")
    print("|---|---|---|---|---|---|---|")
    differences: list[str] = []
    sources = (r1_v(files), nemo_gym(files), supervision(files), [fake_boxes(files)])
    for source in chain.from_iterable(sources):
        line, found = compared(source)
        print(line)
        differences += found
    print("\n| COCO fake boxes, the file | `vlrft eval` | faster-coco-eval |\n|---|---|---|")
    for name, ours, theirs in stated_figures(files):
        print(f"| {name} | {ours:.10f} | {theirs:.10f} |")
    print("\n| differences | ours | theirs | end of the answer | gold | why |")
    print("|---|---|---|---|---|---|")
    print(*differences, sep="\n")


if __name__ == "__main__":
    main()
