"""Rows made of COCO annotations, held against pycocotools' own reading of the same file."""

import contextlib
import io
import itertools
import json
import random
from collections import Counter

import numpy as np
import pytest
from PIL import Image
from support.written_sets import check, data, rows_in

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.build import (
    CATEGORY_LISTS,
    NO_OBJECTS,
    UNSURE_IMAGES,
    build_folder,
    chosen_categories,
    plan_rows,
)
from swift_vlrft.datasets.instances import read_instances
from swift_vlrft.parsing.answers import gold_text
from swift_vlrft.parsing.boxes import read_boxes
from swift_vlrft.rewards import REWARDS

IDS = {3: "bus", 7: "train", 17: "cat", 18: "dog", 20: "traffic light"}
CATEGORIES = list(IDS.values())


@pytest.fixture
def coco(tmp_path):
    """40 images of many sizes; crowds, boxes without area, a pixel too wide, empty images."""
    rng = random.Random(5)
    folder = tmp_path / "images"
    folder.mkdir()
    images, annotations = [], []
    for i in range(40):
        width, height = rng.randint(20, 300), rng.randint(20, 300)
        name = f"{i:04d}.jpg"
        Image.new("RGB", (width, height), (i * 5, 99, 30)).save(folder / name)
        images.append({"id": 1000 + i, "file_name": name, "width": width, "height": height})
        for _ in range(rng.randint(1, 6) if i % 8 != 7 else 0):
            x, y = rng.uniform(0, width - 2), rng.uniform(0, height - 2)
            w, h = rng.uniform(0.2, width - x), rng.uniform(0.2, height - y)
            kind = rng.random()
            w = 0.0 if kind < 0.08 else width - x + 1.5 if kind < 0.16 else w
            place = {"image_id": 1000 + i, "category_id": rng.choice([*IDS]), "bbox": [x, y, w, h]}
            outline = {"area": w * h, "segmentation": [[x, y, x + w, y, x + w, y + h]]}
            number = {"id": len(annotations) + 1, "iscrowd": int(kind > 0.92)}
            annotations.append(number | place | outline)
    categories = [{"id": number, "name": name} for number, name in IDS.items()]
    content = {"images": images, "annotations": annotations, "categories": categories}
    file = tmp_path / "instances.json"
    file.write_text(json.dumps(content))
    return file, folder


def built(coco, destination, categories=CATEGORIES, **options):
    """In ViRFT's form, unless the options say otherwise."""
    options = {"per_category": True} | options
    written = build_folder(*coco, destination, categories=categories, **options)
    return rows_in(destination), written


def gold_by_question(theirs, per_category):
    """What rows are to hold, as pycocotools reads the file: names and boxes in thousandths by image
    and categories that are asked for. An image is in none where a crowd or a line stands for one.
    """
    ids = {c["name"]: c["id"] for c in theirs.loadCats(theirs.getCatIds())}
    questions = [(name,) for name in ids] if per_category else [tuple(ids)]
    found = {}
    for image, names in itertools.product(theirs.getImgIds(), questions):
        numbers = theirs.getAnnIds(imgIds=[image], catIds=[ids[name] for name in names])
        annotations = theirs.loadAnns(numbers)
        annotations.sort(key=lambda one: [*ids.values()].index(one["category_id"]))
        if annotations and all(a["bbox"][2] > 0 and not a["iscrowd"] for a in annotations):
            (entry,) = theirs.loadImgs([image])
            edges = [entry["width"], entry["height"]] * 2
            boxes = [np.add(a["bbox"], [0, 0, *a["bbox"][:2]]) for a in annotations]
            boxes = [np.minimum(box, edges) * 1000 / edges for box in boxes]
            labels = [None if per_category else IDS[a["category_id"]] for a in annotations]
            found[image, names] = labels, boxes
    return found


@pytest.mark.parametrize("per_category", [True, False], ids=["category", "picture"])
def test_every_row_holds_what_pycocotools_reads_and_the_rest_is_counted(
    per_category, coco, tmp_path
):
    from pycocotools.coco import COCO

    with contextlib.redirect_stdout(io.StringIO()):
        theirs = COCO(str(coco[0]))
    rows, written = built(coco, tmp_path / "out", per_category=per_category)
    expected = gold_by_question(theirs, per_category)
    asked = [(r["image_id"], (r["category"],) if per_category else (*CATEGORIES,)) for r in rows]
    assert set(asked) == expected.keys() and len(rows) == len(expected) > 10
    for key, row in zip(asked, rows, strict=True):
        read, (labels, boxes) = read_boxes(gold_text(row["solution"])), expected[key]
        assert read.labels == labels
        for box, other in zip(read.boxes, boxes, strict=True):
            assert all(v == int(v) and 0 <= v <= 1000 for v in box)
            assert box[0] < box[2] and box[1] < box[3]
            # half a thousandth of rounding; one where a thin box is widened to have area
            assert box == pytest.approx(other, rel=0, abs=1.0)
        assert (row["task"], row["frame"]) == ("detection", "norm1000")
        start = "Detect all objects of these categories in the image: bus, train, cat, dog, traffic"
        if per_category:
            start = f"Detect all objects belonging to the category '{row['category']}' in the "
            start += "image, and provide the bounding boxes (between 0 and 1000, integer) and "
            assert "return 'No Objects'.\nOutput the thinking process" in row["problem"]
        assert row["problem"].startswith(start) and "tags.The" not in row["problem"]
    crowds = [annotation["iscrowd"] for annotation in theirs.anns.values()]
    empty = [a["bbox"][2] == 0 and not a["iscrowd"] for a in theirs.anns.values()]
    counts = written.counts
    assert counts["crowd regions"] == sum(crowds) > 0
    assert counts["boxes without area"] == sum(empty) > 0
    # What is counted is what was written, and every picture is accounted for.
    assert counts["rows with boxes in train"] == len(rows)
    assert counts["boxes in train"] == sum(len(boxes) for _, boxes in expected.values())
    left = [n for name, n in counts.items() if name.startswith("images ")]
    assert per_category or len(rows) + sum(left) == len(theirs.getImgIds())
    solutions = [row["solution"] for row in rows]
    for name in ("iou", "confidence", "map", "f1")[: 3 if per_category else 4]:
        assert REWARDS[f"vlrft_detection_{name}"](solutions, solutions) == [1.0] * len(rows)
    assert data("check", tmp_path / "out").exit_code == 0


def test_negatives_are_the_share_asked_for_and_truly_lack_the_category(coco, tmp_path):
    annotations = json.loads(coco[0].read_text())["annotations"]
    held = {(a["image_id"], IDS[a["category_id"]]) for a in annotations}
    rows, _ = built(coco, tmp_path / "out", negatives=0.5)
    negative = [row for row in rows if row["solution"] == NO_OBJECTS]
    assert len(negative) == round(0.5 * (len(rows) - len(negative)))
    assert all((row["image_id"], row["category"]) not in held for row in negative)
    assert len({(row["image_id"], row["category"]) for row in rows}) == len(rows)
    spread = Counter(row["category"] for row in negative)
    assert max(spread.values()) - min(spread[name] for name in CATEGORIES) <= 1
    # At four shots of five categories 0.1 is two rows, not none.
    rows, _ = built(coco, tmp_path / "few", shots=4, negatives=0.1)
    assert [row["solution"] for row in rows].count(NO_OBJECTS) == 2
    # More than there are is said, not waited for.
    _, written = built(coco, tmp_path / "many", negatives=50)
    assert written.counts["negatives that no image was left for"] > 0


def test_shots_are_per_category_and_by_seed(coco, tmp_path):
    rows, _ = built(coco, tmp_path / "a", shots=4, negatives=0)
    assert Counter(row["category"] for row in rows) == {name: 4 for name in CATEGORIES}
    again, _ = built(coco, tmp_path / "b", shots=4, negatives=0)
    other, _ = built(coco, tmp_path / "c", shots=4, negatives=0, seed=1)
    cats, _ = built(coco, tmp_path / "d", ["cat"], shots=4, negatives=0)
    first, second, of_cats = (
        {(row["image_id"], row["category"]) for row in part} for part in (rows, other, cats)
    )
    assert again == rows and first != second
    assert of_cats == {key for key in first if key[1] == "cat"}
    _, written = built(coco, tmp_path / "e", ["cat"], shots=30)
    assert written.counts["shots that 'cat' lacks"] > 0


def test_lvis_negatives_only_where_lvis_says_so_and_no_row_where_labels_lack(coco, tmp_path):
    content = json.loads(coco[0].read_text())
    content["annotations"] = [
        {"image_id": image, "category_id": 17, "bbox": [1, 1, 9, 9]} for image in (1000, 1001)
    ]
    for image in content["images"]:
        image["coco_url"] = f"http://images.example.org/images/{image.pop('file_name')}"
        image["neg_category_ids"] = [17] if image["id"] == 1005 else []
        image["not_exhaustive_category_ids"] = [17] if image["id"] == 1001 else []
    coco[0].write_text(json.dumps(content))
    found = read_instances(coco[0])
    rows = plan_rows(found, [["cat"]], negatives=5)
    assert {(row.image_id, bool(row.boxes)) for row in rows} == {(1000, True), (1005, False)}
    assert found.left_out[UNSURE_IMAGES] == 1
    rows, _ = built((coco[0], tmp_path), tmp_path / "out", ["cat"])
    assert [row["image"]["path"] for row in rows] == ["images/0000.jpg"]


@pytest.mark.slow
def test_the_named_lists():
    from torchvision.models._meta import _COCO_CATEGORIES

    official = [n for n in _COCO_CATEGORIES if n not in ("__background__", "N/A")]
    lists = CATEGORY_LISTS
    assert lists["coco80"] == official
    assert len(lists["coco-base65"]) == 65 and len(lists["coco-novel15"]) == 15
    assert {*lists["coco-base65"], *lists["coco-novel15"]} == set(official)
    assert len(lists["virft-coco8"]) == 8 and set(lists["virft-coco8"]) <= set(official)
    assert (len(lists["lvis-rare6"]), len(lists["lvis-rare13"])) == (6, 13)
    assert all(len(set(names)) == len(names) for names in lists.values())


def test_categories_by_name_by_list_and_unknown():
    known = [*CATEGORY_LISTS["coco80"], "left, turn"]
    assert chosen_categories(["virft-coco8", "zebra,dog"], known) == [
        *CATEGORY_LISTS["virft-coco8"],
        "zebra",
    ]
    assert chosen_categories(["left, turn"], known) == ["left, turn"]
    with pytest.raises(DataError, match="'virft-coco9' .* virft-coco8"):
        chosen_categories(["virft-coco9"], known)
    with pytest.raises(DataError, match="'horse_buggy'"):
        chosen_categories(["lvis-rare6"], known)


def test_a_broken_image_stops_or_is_left_out(coco, tmp_path):
    content = json.loads(coco[0].read_text())
    file = coco[1] / content["images"][0]["file_name"]
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(DataError, match=r"instances.json, image 1000: .*0000.jpg"):
        built(coco, tmp_path / "out")
    rows, written = built(coco, tmp_path / "out", keep_going=True)
    assert len(written.left_out) >= 1 and 1000 not in {row["image_id"] for row in rows}
    with_boxes = sum(row["solution"] != NO_OBJECTS for row in rows)
    assert written.counts["rows with boxes in train"] == with_boxes
    assert all(str(one.place).endswith("image 1000") for one in written.left_out)
    with pytest.raises(DataError, match="is no folder"):
        build_folder(coco[0], tmp_path / "nowhere", tmp_path / "o", categories=["cat"])
    coco[0].write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        built(coco, tmp_path / "o")


def test_named_categories_narrow_the_question_and_negatives_come_when_asked_for(coco, tmp_path):
    options = ["--categories", "cat,dog", "--negatives", "0.5"]
    done = data("coco", *coco, tmp_path / "out", *options)
    assert done.exit_code == 0, done.output
    rows = rows_in(tmp_path / "out")
    assert all("in the image: cat, dog." in row["problem"] for row in rows)
    held = {
        a["image_id"]
        for a in json.loads(coco[0].read_text())["annotations"]
        if IDS[a["category_id"]] in ("cat", "dog")
    }
    empty = [row["image_id"] for row in rows if row["solution"] == NO_OBJECTS]
    assert len(empty) == round(0.5 * (len(rows) - len(empty))) > 0 and not held & set(empty)
    assert f'{len(empty)} rows with gold "No Objects" in train' in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("form", [[], ["--per-category"]], ids=["picture", "category"])
def test_held_out_pictures_are_in_no_row_of_train(form, coco, tmp_path):
    splits = []
    for name in ("a", "b", "c"):
        seed = ["--seed", "1"] * (name == "c")
        done = data("coco", *coco, tmp_path / name, "--held-out", "0.25", *form, *seed)
        assert done.exit_code == 0, done.output
        train, test = (
            {row["image_id"] for row in rows_in(tmp_path / name, split)}
            for split in ("train", "test")
        )
        assert not train & test
        assert len(test) == round(0.25 * len(train | test)) > 0
        splits.append(test)
    assert splits[0] == splits[1] != splits[2]
    code, report = check(tmp_path / "a")
    assert (code, report["problems"]) == (0, [])
    both = rows_in(tmp_path / "a", "train"), rows_in(tmp_path / "a", "test")
    assert report["rows"] == sum(map(len, both))


BOX = {"category_id": 17, "bbox": [1, 1, 9, 9]}
ALONE = [BOX | {"id": 1, "image_id": 1000}]
FILES = [
    # part of the file, number in it (None: all of it), changes or the part (None: none), options
    ("annotations", None, ALONE, ["--held-out", "0.5"], "only one image"),
    ("images", 2, {"width": 999}, [], "0002.jpg is "),
    ("images", 2, {"width": 9}, [], "0002.jpg, of 9 x"),
    ("images", 2, {"file_name": "../x.jpg"}, [], "lies outside"),
    ("images", 2, {"file_name": "train\\2.jpg"}, [], "has backslashes; write /"),
    ("images", 2, {"file_name": "no.jpg"}, [], "no.jpg does not exist"),
    ("images", 2, {"neg_category_ids": []}, ["whole"], "neg_category_ids"),
    ("categories", None, None, [], "`categories`"),
]


@pytest.mark.parametrize(("part", "number", "changes", "options", "named"), FILES)
def test_what_is_wrong_with_a_file_is_named(part, number, changes, options, named, coco, tmp_path):
    content = json.loads(coco[0].read_text())
    if number is not None:
        record = content[part][number] | changes
        content[part][number] = {k: v for k, v in record.items() if v is not None}
    elif changes is None:
        del content[part]
    else:
        content[part] = changes
    coco[0].write_text(json.dumps(content))
    options = [] if options == ["whole"] else ["--per-category", *options]
    done = data("coco", *coco, tmp_path / "out", *options)
    assert done.exit_code == 2 and not (tmp_path / "out").exists()
    assert named in done.stderr.replace("\n", " ")


OPTIONS = [
    (["--held-out", "1"], "--held-out 1.0: "),
    (["--held-out", "nan"], "--held-out nan: "),
    (["--held-out", "0.1", "--split", "dev"], "--split"),
    (["--negatives", "inf"], "--negatives inf"),
    (["--shots", "4"], "--per-category"),
    (["--boxes", "yx"], "--boxes yx: unknown; known: xywh, xyxy, cxcywh, yxyx"),
    (["--unit", "cm"], "--unit cm: unknown; known: pixels, unit, percent, norm1000"),
    (["--categories", "dgo"], "neither a category"),
]


@pytest.mark.parametrize(("options", "named"), OPTIONS)
def test_options_that_are_not_understood_are_named_in_one_line(options, named, coco, tmp_path):
    done = data("coco", *coco, tmp_path / "out", *options)
    assert done.exit_code == 2 and not (tmp_path / "out").exists()
    (line,) = done.stderr.splitlines()
    assert named in line


def test_a_box_that_is_there_twice_is_asked_for_once(coco, tmp_path):
    content = json.loads(coco[0].read_text())
    box = {"image_id": 1000, "category_id": 17, "bbox": [1, 1, 9, 9]}
    content["annotations"] = [box | {"id": 1}, box | {"id": 2}, box | {"id": 3, "category_id": 18}]
    coco[0].write_text(json.dumps(content))
    _, written = built(coco, tmp_path / "out", per_category=False)
    assert written.counts["boxes in train"] == 2
    assert written.counts["boxes that repeat a box of the same category and image"] == 1
