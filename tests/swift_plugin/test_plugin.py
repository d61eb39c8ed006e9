"""The plugin in ms-swift's registries, and what it says before a model is loaded."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from support.drawn_rows import FIVE, boxed_rows, mixed_rows
from support.plugin_run import answer_of, check_refusals, refusals
from support.stored_sets import columns, command, picture, train_on
from support.written_sets import write_rows

from swift_vlrft.datasets import Source
from swift_vlrft.datasets.training import LoadOptions
from swift_vlrft.parsing.answers import gold_text, read_boxes
from swift_vlrft.rewards import REWARDS
from tests.support.parquet import write_parquet

pytestmark = pytest.mark.slow  # ms-swift is imported


@pytest.fixture(scope="module")
def sets(tmp_path_factory) -> Path:
    """Folders and files by what is in them."""
    folder, rows = tmp_path_factory.mktemp("sets"), boxed_rows(random.Random(0), 4)
    for name, solution in {
        "shapes": rows[3].solution,
        "no-boxes": "a dog",
        "outside": "[10, 20, 1400, 90]",
    }.items():
        write_parquet([*rows[:3], replace(rows[3], solution=solution)], folder / name)
    write_parquet(mixed_rows(random.Random(0), 25, FIVE), folder / "mixed")
    write_parquet([replace(row, problem="Find it.") for row in rows], folder / "unasked")
    turn = [{"role": "user", "content": "?"}]
    for name, row in {
        "query": {"query": "?", "images": ["1.png"], "solution": "red"},
        "talk": {"conversations": [{"from": "human", "value": "hello"}], "solution": "x"},
        "messages": {"messages": turn, "solution": "x"},
        "text": {"problem": "1 + 1?", "solution": "2"},
    }.items():
        (folder / f"{name}.jsonl").write_text(json.dumps(row))
    (folder / "config.json").write_text('{"model_type": "gemma4"}')
    return folder


def test_registering_twice_makes_rewards_metrics_and_sets_known(sets):
    then = f"""
from types import SimpleNamespace
from swift.dataset import load_dataset
from swift.dataset.dataset_syntax import DatasetSyntax
from swift.metrics import eval_metrics_map
from swift.rewards import orms
from swift.utils import Serializer
from swift_vlrft.swift_plugin import loader
names = {list(REWARDS)}
loader.training_set = loader.open_set = None  # the import has read the set: once is enough
rows = load_dataset([sys.argv[2]])[0]
hub = DatasetSyntax.parse("laolao77/ViRFT_COCO_base65")
loaders = {{hub.get_dataset_meta(hf).loader.__name__ for hf in (True, False)}}
texts = ["<answer>rose</answer>", "<answer>a rose</answer>", "rose", "<answer>Rose</answer>"]
*told, gold = map(Serializer.to_tensor, texts)
told = SimpleNamespace(predictions=told, label_ids=[gold] * 3)
metric = eval_metrics_map["vlrft_classification"](None, None).compute_metrics(told)
known = [orms[n](args=None).__name__ for n in names if n in eval_metrics_map]
first = [rows[0]["task"], len(rows)]
print(json.dumps([known, list(loaders), metric, rows.column_names, first]))
"""
    flags = ("--dataset", f"{sets}/shapes", "--reward_funcs", "vlrft_detection_iou")
    (names, loaders, metric, column_names, first), _ = answer_of(*flags, then=then)
    assert names == list(REWARDS) and loaders == ["VlrftLoader"]
    assert metric == {"vlrft_classification": pytest.approx(1 / 3)}
    assert {"messages", "images", "solution", "task", "frame"} <= set(column_names)
    assert first == ["detection", 4]


def test_what_is_wrong_is_named_before_a_model_is_loaded(sets):
    (sets / "theirs.py").write_text("from swift.rewards import orms\norms['vlrft_counting'] = 1\n")
    (sets / "mine.py").write_text("from swift.rewards import orms\norms['mine'] = 1\n")
    check_refusals(SETS=str(sets))
    (error,), _ = refusals([""], VLRFT_SHARED_PREFIX="maybe")
    assert "VLRFT_SHARED_PREFIX=" in error and "maybe" in error


def test_ms_swifts_own_forms_and_text_alone_are_left_to_ms_swift(sets):
    then = """
from swift.dataset import load_dataset
from swift.dataset.dataset_syntax import DatasetSyntax
names = sys.argv[2:6]
loaders = [DatasetSyntax.parse(n).get_dataset_meta(False).loader.__name__ for n in names]
print(json.dumps([loaders, load_dataset(names[3:])[0][0]["messages"]]))
"""
    names = [f"{sets}/{name}.jsonl" for name in ("query", "talk", "messages", "text")]
    # Text is ours where one of our rewards reads its solutions.
    flags = ("--dataset", *names, "--reward_funcs", "accuracy", "vlrft_format")
    (loaders, messages), _ = answer_of(*flags, then=then)
    assert "VlrftLoader" not in loaders and messages[0]["content"] == "1 + 1?"


def test_columns_that_ms_swift_takes_for_its_own_are_those_that_it_names():
    from dataclasses import fields

    from swift.rl_core.data import GRPOSample
    from swift.template.template_inputs import StdTemplateInputs

    from swift_vlrft.datasets.row import RESERVED_COLUMNS, safe_name

    theirs = {one.name for form in (StdTemplateInputs, GRPOSample) for one in fields(form)}
    of_rewards = {"completions", "trainer_state", "trajectory_inputs", "is_truncated"}
    # The system turn comes from system; dataset is the set's name, which ms-swift writes.
    assert (theirs | of_rewards) - {"system"} == RESERVED_COLUMNS - {"dataset"}
    assert safe_name("rejected_response") == "row_rejected_response" and safe_name("a") == "a"


def test_a_row_reaches_the_template_with_its_own_system_turn_and_nothing_more(tmp_path):
    from swift.template.template_inputs import TemplateInputs

    (tmp_path / "1.png").write_bytes(picture())
    row = {"image": "1.png", "problem": "What?", "solution": "dog", "system": "You are a pirate."}
    row |= {"objects": [{"bbox": [1, 2, 30, 40], "label": "dog"}], "videos": "x.mp4", "label": 3}
    (tmp_path / "a.jsonl").write_text(json.dumps(row | {"negative_count": 1, "tools": "saw"}))
    (row,), report = train_on(tmp_path / "a.jsonl", tmp_path / "cache")
    found = TemplateInputs.from_dict(row)
    assert found.chosen.system == "You are a pirate." and found.negative == []
    assert found.chosen.messages == [{"role": "user", "content": "<image>What?"}]
    assert not (found.chosen.objects or found.chosen.videos or found.chosen.tools)
    assert found.chosen.extra_kwargs["row_label"] == 3
    assert "objects as row_objects" in report.notes[0]


@pytest.mark.parametrize(
    "columns",
    [
        {"images": [["1.png"]], "problem": ["?"], "solution": ["red"]},
        {"image": ["1.png"], "label": ["red"]},
        {"messages": [[{"role": "user", "content": "?"}]], "solution": ["red"]},
    ],
)
def test_what_ms_swift_cannot_read_is_said_as_data_check_says_it(columns, tmp_path):
    from datasets import Dataset

    Dataset.from_dict(columns).save_to_disk(tmp_path / "saved")
    recipe = tmp_path / "run.sh"
    flags = f"--dataset {tmp_path}/saved --reward_funcs vlrft_classification"
    recipe.write_text(f"swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-3B-Instruct {flags}")
    (error,), _ = refusals([flags])
    missing = error.partition("; it has")[0]
    assert missing.startswith(f"{tmp_path}/saved lacks the column")
    for words in (["data", "check", f"{tmp_path}/saved"], ["check", recipe]):
        code, said = command(*words)
        assert code and missing in said


def test_native_loads_what_the_model_in_the_command_was_trained_on(sets):
    """Through ms-swift: numbers, key and prompt of one row; another format is said in the log."""
    then = """
from swift.dataset import load_dataset
made = {}
for name in ("native", "yx1000", "unit", "norm1000"):
    row = load_dataset([sys.argv[2].rpartition(":")[0] + ":" + name])[0][0]
    made[name] = [row["frame"], row["solution"], row["messages"][0]["content"]]
print(json.dumps(made))
"""
    flags = ("--dataset", f"{sets}/shapes:native", "--model_type", "gemma4")
    loaded, said = answer_of(*flags, then=then)
    assert loaded["native"] == loaded["yx1000"] and loaded["native"][0] == "yx1000"
    _, solution, problem = loaded["native"]
    assert "'box_2d': [" in solution and '"box_2d": [y1, x1, y2, x2]' in problem.replace("'", '"')
    boxes = {name: read_boxes(gold_text(row[1])).boxes for name, row in loaded.items()}
    assert boxes["native"] == boxes["norm1000"]
    assert [tuple(1000 * v for v in box) for box in boxes["unit"]] == boxes["norm1000"]
    assert "between 0 and 1, with three decimals" in loaded["unit"][2]
    for name in ("unit", "norm1000", "yx1000"):
        assert (f"boxes are in {name}, " in said) == (name != "yx1000")
    assert f"{sets}/shapes:native" in said


def test_boxes_for_a_model_that_writes_none_are_said(sets):
    """GLM-4v; not "trained on None"."""
    then = "from swift.dataset import load_dataset\nprint(len(load_dataset([sys.argv[2]])[0]))"
    _, said = answer_of("--dataset", f"{sets}/shapes", "--model_type", "chatglm4v", then=then)
    assert "chatglm4v was not trained" in said and "on None" not in said


def test_rows_of_ms_swifts_own_train_beside_ours(sets, tmp_path):
    """Images of both are of one type, in either order."""
    (tmp_path / "1.png").write_bytes(picture())
    row = {"messages": [{"role": "user", "content": "<image>?"}], "solution": "red"}
    write_rows(tmp_path / "own.jsonl", *[row | {"images": [str(tmp_path / "1.png")]}] * 3)
    then = """
from swift.dataset import load_dataset
rows = [*load_dataset(sys.argv[2:4])[0], *load_dataset(sys.argv[3:1:-1])[0]]
print(json.dumps([len(rows), sorted({bool(row["images"][0]["bytes"]) for row in rows})]))
"""
    given = ("--dataset", f"{sets}/shapes", tmp_path / "own.jsonl")
    (count, stored), _ = answer_of(*given, "--reward_funcs", "vlrft_detection_iou", then=then)
    assert count > 6 and stored == [False, True]


def test_a_set_that_is_on_the_other_hub_says_what_to_type():
    dataset = "laolao77/ViRFT_COCO"
    _, said = answer_of("--dataset", dataset, "--use_hf", "false", then="print(0)")
    assert f"--dataset hf::{dataset}" in said  # before the model


def test_what_a_hub_hands_over_becomes_rows(tmp_path):
    """Downloads need a network; what ms-swift passes on afterwards does not."""
    from datasets import Dataset, Features, Image, List, Value

    from swift_vlrft.swift_plugin.loader import VlrftLoader

    def rows_of(given, source=None, usual=None, streaming=False, **options):
        loader, asked = VlrftLoader(streaming=streaming), LoadOptions(**options)
        return list(loader._hub("me/set", source, asked, usual, given))

    texts = {"problem": Value("string"), "solution": Value("string")}
    virft = Dataset.from_dict(columns(), features=Features({"image": Image()} | texts))
    rows = rows_of(virft.select([2, 1, 0]), Source("laolao77/ViRFT_COCO", "detection", "norm1000"))
    assert ["No Objects" in row["solution"] for row in rows] == [True, False, False]
    assert [row["task"] for row in rows] == ["detection"] * 3
    assert rows[0]["images"][0]["bytes"] == picture()
    assert rows[0]["messages"][0]["content"].startswith("<image>Detect dogs")
    image = {"bytes": picture(), "path": None}
    easy = {"images": [image], "problem": "<image>How many?", "answer": "4", "level": 2}
    table = Dataset.from_list([easy] * 2).cast_column("images", List(Image()))
    for row in rows_of(table, usual=print, rewards=("vlrft_counting",)):
        (seen,) = row["images"]
        assert (seen["bytes"] or Path(seen["path"]).read_bytes()) == picture()
        assert (row["solution"], row["level"]) == ("4", 2)
        assert row["messages"] == [{"role": "user", "content": "<image>How many?"}]
    talk = columns() | {"messages": [[{"role": "user", "content": "?"}]] * 3}
    for refused, how, named in (
        (
            {name: talk[name] for name in ("messages", "solution")},
            {"usual": print, "box_format": "pixels"},
            "me/set:pixels",
        ),
        ({name: talk[name] for name in texts}, {}, "lacks the column image"),
        (columns(), {"streaming": True}, "leave --streaming out"),
        (columns(), {"source": Source("me/set", "detection", "pixels")}, "declared as pixels"),
    ):
        with pytest.raises(ValueError, match=named):
            rows_of(Dataset.from_dict(refused), **how)


def test_the_one_trainer_is_ms_swifts_with_more(sets):
    then = """
from types import SimpleNamespace
from swift.trainers.trainer_factory import TrainerFactory
args = SimpleNamespace(rlhf_type="grpo")
chosen = TrainerFactory.get_trainer_cls(args)
config = TrainerFactory.get_cls(args, TrainerFactory.TRAINING_ARGS_MAPPING)
print(json.dumps([chosen.__name__, config(output_dir="x", report_to=[], use_cpu=True).check_model]))
"""
    # Is ModelScope asked whether that is the model's last version?
    for model, asks in (("Qwen/Qwen2.5-VL-3B-Instruct", True), (str(sets), False)):
        assert answer_of("--model", model, then=then)[0] == ["VlrftGRPOTrainer", asks]
