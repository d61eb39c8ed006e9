"""The plugin in ms-swift's registries, and what it says before a model is loaded."""

from pathlib import Path

import pytest
from support.drawn_rows import boxed_rows
from support.plugin_run import PLUGIN, import_plugin
from support.swift_run import run_python

from swift_vlrft.demo.data import write_parquet
from swift_vlrft.parsing.answers import gold_text, read_boxes
from swift_vlrft.rewards import REWARDS
from swift_vlrft.swift_plugin.command_line import read_command_line


@pytest.fixture(scope="module")
def shapes(tmp_path_factory) -> Path:
    import random

    folder = tmp_path_factory.mktemp("shapes") / "of any name"
    write_parquet(boxed_rows(random.Random(0), 4), folder)
    return folder


def test_registering_twice_makes_rewards_and_sets_known(shapes):
    then = """
from swift.dataset import load_dataset
from swift.dataset.dataset_syntax import DatasetSyntax
from swift.rewards import orms
import json, sys
path = sys.argv[2]
rows = load_dataset([path])[0]
hub = DatasetSyntax.parse("laolao77/ViRFT_COCO_base65")
loaders = [hub.get_dataset_meta(hf).loader.__name__ for hf in (True, False)]
names = [orms[n](args=None).__name__ for n in json.loads(sys.argv[-1])]
print(json.dumps([names, loaders, rows.column_names, rows[0]["task"], len(rows)]))
"""
    import json

    done = import_plugin(
        "--dataset", str(shapes), "--reward_funcs", "vlrft_detection_iou",
        "--x", json.dumps(list(REWARDS)), then=then,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    names, loaders, columns, task, rows = json.loads(done.stdout.strip().splitlines()[-1])
    assert names == list(REWARDS)
    assert loaders == ["VlrftLoader", "VlrftLoader"]
    assert {"messages", "images", "solution", "task", "frame"} <= set(columns)
    assert (task, rows) == ("detection", 4)


def test_an_unknown_reward_name_is_refused_with_the_known_ones():
    done = import_plugin("--reward_funcs", "vlrft_detection_iuo")
    assert done.returncode == 1
    assert "swift-vlrft: --reward_funcs vlrft_detection_iuo: no reward has this name" in done.stderr
    assert "Did you mean vlrft_detection_iou?" in done.stderr
    assert "Traceback" not in done.stderr and "vlrft_classification" in done.stderr


METRIC = """
from types import SimpleNamespace
from swift.metrics import eval_metrics_map
from swift.utils import Serializer
answers = ["<answer>rose</answer>", "<answer>a rose</answer>", "rose"]
told = SimpleNamespace(
    predictions=[Serializer.to_tensor(text) for text in answers],
    label_ids=[Serializer.to_tensor("<answer>Rose</answer>")] * 3,
)
print(eval_metrics_map["vlrft_classification"](None, None).compute_metrics(told))
print(len([name for name in eval_metrics_map if name.startswith("vlrft_")]))
"""


def test_rewards_are_metrics_of_supervised_training():
    done = import_plugin(then=METRIC)
    assert done.returncode == 0, done.stderr[-3000:]
    score, count = done.stdout.strip().splitlines()[-2:]
    assert score == "{'vlrft_classification': 0.3333333333333333}" and int(count) == len(REWARDS)


def test_boxes_for_a_model_that_writes_none_are_said(tmp_path):
    """GLM-4v; not "trained on None"."""
    import random

    write_parquet(boxed_rows(random.Random(0), 2), tmp_path / "shapes")
    flags = ("--dataset", str(tmp_path / "shapes"), "--seed", "1", "--model_type", "chatglm4v")
    flags += ("--dataset_num_proc", "1")
    done = import_plugin(*flags, then=LOAD)
    assert done.returncode == 0, done.stderr[-3000:]
    said = done.stdout + done.stderr
    assert "chatglm4v was not trained to write boxes" in said and "on None" not in said


def test_a_name_that_a_later_plugin_may_bring_is_left_alone():
    flags = ("--reward_funcs", "mine", "--external_plugins", str(PLUGIN), "mine.py")
    assert import_plugin(*flags).returncode == 0
    assert import_plugin("--reward_funcs", "mine").returncode == 1


def test_a_path_that_does_not_exist_is_refused(tmp_path):
    done = import_plugin("--dataset", str(tmp_path / "nowhere"))
    assert done.returncode == 1 and "nowhere does not exist" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bad_gold_solution_is_refused_by_file_and_row(tmp_path):
    import random
    from dataclasses import replace

    rows = boxed_rows(random.Random(0), 3)
    write_parquet([*rows, replace(rows[0], solution="a dog")], tmp_path / "set")
    named = "train-00000-of-00001.parquet, row 3: the solution 'a dog' cannot be read"
    done = import_plugin("--dataset", f"{tmp_path / 'set'}#2")
    assert done.returncode == 1 and named in done.stderr and "Traceback" not in done.stderr
    assert "--fix" in done.stderr  # how to get on


def test_other_bad_rows_are_listed_and_stop_a_strict_run(tmp_path):
    import random
    from dataclasses import replace

    rows = boxed_rows(random.Random(0), 3)
    write_parquet([*rows, replace(rows[0], solution="[10, 20, 1400, 90]")], tmp_path / "set")
    named = "row 3: the box (10, 20, 1400, 90) reaches beyond norm1000"
    done = import_plugin("--dataset", str(tmp_path / "set"))
    assert done.returncode == 0 and named in done.stdout + done.stderr
    assert "1 of 4 rows of" in done.stdout + done.stderr
    done = import_plugin("--dataset", str(tmp_path / "set"), "--strict", "true")
    assert done.returncode == 1 and named in done.stderr and "Traceback" not in done.stderr


LOAD = """
from swift.dataset import load_dataset
from PIL import Image
import io, json, sys
names = sys.argv[2 : sys.argv.index("--seed")]
streaming = "--streaming" in sys.argv
proc = int(sys.argv[sys.argv.index("--dataset_num_proc") + 1]) if not streaming else 1
rows = load_dataset(names, streaming=streaming, num_proc=proc, shuffle=True)[0]
made = []
for row in rows:
    (image,) = row["images"]
    with Image.open(image["path"] if image["bytes"] is None else io.BytesIO(image["bytes"])) as p:
        size = p.size
    made.append([row["task"], row["frame"], row["solution"], size, row["messages"][0]["content"]])
print(json.dumps(made))
"""


@pytest.mark.parametrize("how", [("--dataset_num_proc", "2"), ("--streaming", "true")])
def test_sets_of_several_forms_load_together_and_in_pixels(how, tmp_path):
    """Detection in pixels from Parquet, classification from save_to_disk, REC from JSON Lines."""
    import json
    import random

    from datasets import Dataset
    from support.stored_sets import picture

    write_parquet(boxed_rows(random.Random(0), 2), tmp_path / "shapes")
    columns = {"image": [{"bytes": picture(), "path": None}], "problem": ["?"], "solution": ["red"]}
    Dataset.from_dict(columns | {"weight": [0.5]}).save_to_disk(tmp_path / "colours")
    (tmp_path / "1.png").write_bytes(picture())
    turns = [{"from": "human", "value": "Where?"}, {"from": "gpt", "value": "[4, 5, 20, 15]"}]
    (tmp_path / "rec.jsonl").write_text(json.dumps({"image": "1.png", "conversations": turns}))
    sets = [f"{tmp_path}/shapes:pixels", f"{tmp_path}/colours", f"{tmp_path}/rec.jsonl"]
    flags = (*sets, "--seed", "1", "--model_type", "qwen2_5_vl", *how)
    done = import_plugin("--dataset", *flags, then=LOAD)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = json.loads(done.stdout.strip().splitlines()[-1])
    by_task = {}
    for row in rows:
        by_task.setdefault(row[0], []).append(row[1:])
    # No reward is named, so none is kept from a row; REC's form says what it asks for.
    assert {task: len(found) for task, found in by_task.items()} == {None: 3, "grounding": 1}
    assert [row for row in by_task[None] if row[0] is None] == [[None, "red", [40, 20], "<image>?"]]
    assert by_task["grounding"][0][:2] == ["norm1000", "<answer>[100, 250, 500, 750]</answer>"]
    for frame, _, size, prompt in [row for row in by_task[None] if row[0] is not None]:
        assert (frame, size) == ("pixels", [112, 112])
        assert "in pixels, x from 0 to 112 and y from 0 to 112" in prompt


def test_ms_swifts_own_forms_are_left_to_ms_swift(tmp_path):
    import json

    rows = {
        "query.jsonl": {"query": "?", "images": ["1.png"], "solution": "red"},
        "talk.jsonl": {"conversations": [{"from": "human", "value": "hello"}], "solution": "x"},
        "messages.jsonl": {"messages": [{"role": "user", "content": "?"}], "solution": "x"},
    }
    for name, row in rows.items():
        (tmp_path / name).write_text(json.dumps(row))
    then = """
from swift.dataset.dataset_syntax import DatasetSyntax
for name in sys.argv[2:]:
    print(name, DatasetSyntax.parse(name).get_dataset_meta(False).loader.__name__)
"""
    done = import_plugin(
        "--dataset", *(str(tmp_path / name) for name in rows), then="import sys" + then
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "VlrftLoader" not in done.stdout
    for subset in ("pixels", "native"):
        done = import_plugin("--dataset", f"{tmp_path}/messages.jsonl:{subset}")
        assert done.returncode == 1 and "leaves boxes as they are" in done.stderr


def test_pixels_without_a_known_family_and_unknown_subsets_are_refused(shapes):
    done = import_plugin("--dataset", f"{shapes}:pixels", "--model_type", "llama3")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "no rule" in done.stderr or "none is known for llama3" in done.stderr
    done = import_plugin("--dataset", f"{shapes}:pixel")
    assert done.returncode == 1 and "known box formats: norm1000, pixels" in done.stderr


def test_native_loads_what_the_model_in_the_command_was_trained_on(shapes):
    """Through ms-swift: numbers, key and prompt of one row; another format is said in the log."""
    import json

    then = """
import sys, json
from swift.dataset import load_dataset
made = {}
for name in ("native", "yx1000", "unit", "norm1000"):
    row = load_dataset([sys.argv[2].rpartition(":")[0] + ":" + name])[0][0]
    made[name] = [row["frame"], row["solution"], row["messages"][0]["content"]]
print(json.dumps(made))
"""
    done = import_plugin("--dataset", f"{shapes}:native", "--model_type", "gemma4", then=then)
    assert done.returncode == 0, done.stderr[-3000:]
    made = json.loads(done.stdout.strip().splitlines()[-1])
    assert made["native"] == made["yx1000"] and made["native"][0] == "yx1000"
    frame, solution, problem = made["native"]
    assert "'box_2d': [" in solution and '"box_2d": [y1, x1, y2, x2]' in problem.replace("'", '"')
    thousandths, shares = (made[name][1] for name in ("norm1000", "unit"))
    assert read_boxes(gold_text(solution)).boxes == read_boxes(gold_text(thousandths)).boxes
    assert [tuple(1000 * v for v in box) for box in read_boxes(gold_text(shares)).boxes] == (
        read_boxes(gold_text(thousandths)).boxes
    )
    assert "between 0 and 1, with three decimals" in made["unit"][2]
    output = done.stdout + done.stderr
    for name in ("unit", "norm1000"):
        assert f"boxes are in {name}, while gemma4 was trained on yx1000" in output
    assert "boxes are in yx1000" not in output and f"Use {shapes}:native" in output


def test_shares_of_tasks_in_one_run(tmp_path):
    """ms-swift's own #count, for the rows of each task of one set."""
    import ast
    import random

    from swift_vlrft.demo.data import write_parquet
    from swift_vlrft.demo.mixed import demo_rows

    write_parquet(demo_rows(random.Random(0), 25), tmp_path / "set")
    then = """
import sys
from collections import Counter
from swift.dataset import load_dataset
train, _ = load_dataset(sys.argv[2:4], shuffle=True)
print(sorted(Counter(train["task"]).items()))
"""
    named = [f"{tmp_path}/set:ocr#3", f"{tmp_path}/set:counting/pointing#14"]
    rewards = ("vlrft_ocr", "vlrft_counting", "vlrft_pointing", "vlrft_format")
    done = import_plugin("--dataset", *named, "--reward_funcs", *rewards, then=then)
    assert done.returncode == 0, done.stderr[-3000:]
    # 3 of 5 rows, 10 rows and 4 of them again
    counts = dict(ast.literal_eval(done.stdout.strip().splitlines()[-1]))
    assert counts["ocr"] == 3 and counts["counting"] + counts["pointing"] == 14
    assert min(counts.values()) >= 3
    done = import_plugin("--dataset", f"{tmp_path}/set:text")
    assert done.returncode == 1 and "known tasks, for their rows alone: detection" in done.stderr


def resumed(folder) -> tuple[str, ...]:
    """From a folder that holds args.json alone."""
    return "--resume_from_checkpoint", str(folder), "--resume_only_model", "true"


def test_native_of_a_run_that_goes_on_from_a_checkpoint(shapes, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gemma4"}')
    done = import_plugin("--dataset", f"{shapes}:native", *resumed(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]


def test_native_of_a_model_without_boxes_is_refused(shapes):
    done = import_plugin("--dataset", f"{shapes}:native", "--model", "zai-org/glm-4v-9b")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "chatglm4v was not trained to write boxes; name a box format: norm1000" in done.stderr
    done = import_plugin("--dataset", f"{shapes}:native")
    assert done.returncode == 1 and "the command names no --model" in done.stderr


def test_a_set_that_is_on_the_other_hub_says_what_to_type():
    dataset = "laolao77/ViRFT_COCO"
    then = f"""
from swift.dataset import load_dataset
import swift.hub.hub
try:
    load_dataset(["{dataset}"], use_hf=False)
except Exception as error:
    print(type(error).__name__, error)
"""
    done = import_plugin("--dataset", dataset, "--use_hf", "false", then=then)
    output = done.stdout + done.stderr
    advice = f"not on ModelScope: type --dataset hf::{dataset}, or --use_hf true"
    assert output.count(advice) >= 2  # before the model, and when it could not be had
    assert f"DataError {dataset} could not be loaded" in output


def test_the_command_line_is_read_as_ms_swift_reads_it():
    flags = '--dataset a b#3 --reward_funcs x --dataset c --columns {"q":"problem"} --lr=1'
    found = read_command_line(flags.split())
    assert (found.datasets, found.reward_funcs) == (["c"], ["x"])
    assert found.columns == {"q": "problem"}
    found = read_command_line(
        ["--strict", "--use_hf", "no", "--val-dataset", "v", "--max_length", "3x", "--model"]
    )
    assert (found.strict, found.use_hf, found.val_datasets) == (True, False, ["v"])
    assert (found.max_length, found.model) == (None, None)
    assert read_command_line(["--strict", "t"]).strict and not read_command_line([]).strict


def test_what_a_hub_hands_over_becomes_rows(tmp_path):
    """Downloads need a network; what ms-swift passes on afterwards does not."""
    code = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parents[1])!r}, {str(Path(__file__).parents[1] / "datasets")!r}]
from test_published_sets import FORMS
from datasets import ClassLabel, Dataset, Features, Image, List, Value
from pathlib import Path
from support.stored_sets import columns, picture
from swift_vlrft.datasets import Source
from swift_vlrft.datasets.training import LoadOptions
from swift_vlrft.swift_plugin.loader import VlrftLoader
wanted = LoadOptions(Path({str(tmp_path / "cache")!r}))
source = Source("laolao77/ViRFT_COCO", "detection", "norm1000")
features = Features({{"image": Image(), "problem": Value("string"), "solution": Value("string")}})
virft = Dataset.from_dict(columns(), features=features)
objects = {{"bbox": List(List(Value("float64"))), "category": List(ClassLabel(names=["a", "b"]))}}
row = {{"image": {{"bytes": picture(), "path": None}},
       "objects": {{"bbox": [[4.0, 5.0, 20.0, 15.0]], "category": [1]}}}}
coco = Dataset.from_list([row], features=Features({{"image": Image(), "objects": objects}}))
for given in (virft, virft.select([2, 1, 0]), virft.to_iterable_dataset()):
    made = list(VlrftLoader(streaming=True)._hub(source.hub_id, source, wanted, None, given))
    assert [r["task"] for r in made] == ["detection"] * 3, made
    assert made[0]["images"][0]["bytes"] == picture()
    assert made[0]["messages"][0]["content"].startswith("<image>Detect all dogs")
for given in (coco, coco.to_iterable_dataset()):
    (made,) = VlrftLoader()._hub("detection-datasets/coco", None, wanted, None, given)
    assert "[100, 250, 500, 750]" in made["solution"] and "'b'" in made["messages"][0]["content"]
for name, task in (("screenspot", "pointing"), ("screenspot-v2-hub", "pointing"),
                   ("screenspot-pro-hub", "pointing"), ("docvqa", "ocr"), ("textvqa", "ocr"),
                   ("countbench", "counting"), ("countbenchqa", "counting")):
    given = Dataset.from_list([FORMS[name][0]] * 2).cast_column("image", Image())
    found = []
    for given in (given, given.to_iterable_dataset()):
        for source in (None, Source("me/" + name, task, "norm1000")):
            made = list(VlrftLoader()._hub("me/" + name, source, wanted, None, given))
            found += [(r["messages"], r["solution"], r["task"], r.get("aliases")) for r in made]
            assert all(len(r["images"][0]["bytes"] or open(r["images"][0]["path"], "rb").read())
                       for r in made)
    assert all(one == found[0] for one in found) and len(found) == 8, found
    assert found[0][2] == task
talk = Dataset.from_dict(columns() | {{"messages": [[{{"role": "user", "content": "?"}}]] * 3}})
for frame, given in (("pixels", talk), ("norm1000", talk.remove_columns(["image", "messages"]))):
    asked = LoadOptions(wanted.cache, box_format=frame)
    try:
        usual = None if frame == "norm1000" else print
        VlrftLoader()._hub("me/talk", None, asked, usual, given)
    except ValueError as error:
        print(error)
print("all of it")
"""
    done = run_python(code)
    assert "--dataset me/talk:pixels: ms-swift's own loader" in done.stdout
    assert "me/talk lacks the column image; it has problem, solution" in done.stdout
    assert "all of it" in done.stdout, done.stderr[-3000:]


def test_the_trainer_of_shared_prefixes_is_chosen_by_its_variable(monkeypatch):
    then = (
        "from types import SimpleNamespace\n"
        "from swift.trainers.trainer_factory import TrainerFactory\n"
        "chosen = TrainerFactory.get_trainer_cls(SimpleNamespace(rlhf_type='grpo'))\n"
        "print(chosen.__name__, *(one.__name__ for one in chosen.__mro__[1:]))"
    )
    monkeypatch.setenv("VLRFT_SHARED_PREFIX", "1")
    done = import_plugin(then=then)
    name, *bases = done.stdout.splitlines()[-1].split()
    assert name == "SharedPrefixGRPOTrainer" and "GRPOTrainer" in bases, done.stderr
    monkeypatch.setenv("VLRFT_SHARED_PREFIX", "0")
    done = import_plugin(then=then)
    assert done.stdout.splitlines()[-1].startswith("GRPOTrainer "), done.stderr
    monkeypatch.setenv("VLRFT_SHARED_PREFIX", "maybe")
    assert "VLRFT_SHARED_PREFIX=maybe: neither on nor off" in import_plugin().stderr


def test_text_alone_is_left_to_ms_swift_unless_a_reward_of_ours_reads_its_solutions(tmp_path):
    path = tmp_path / "text.jsonl"
    path.write_text('{"problem": "1 + 1?", "solution": "2"}\n')
    then = (
        "from swift.dataset import load_dataset\nimport sys\n"
        "print(load_dataset([sys.argv[2]])[0][0])"
    )
    text = import_plugin(
        "--dataset", str(path), "--reward_funcs", "accuracy", "vlrft_format", then=then
    )
    assert text.returncode == 0, text.stderr[-3000:]
    assert "{'role': 'user', 'content': '1 + 1?'}" in text.stdout
    seen = import_plugin("--dataset", str(path), "--reward_funcs", "vlrft_classification")
    assert seen.returncode != 0 and "lacks the column image" in seen.stderr
