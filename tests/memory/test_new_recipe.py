"""`vlrft recipe new`: the nearest tested recipe, with one change for the machine."""

import json
from pathlib import Path

import pytest
from PIL import Image
from support.command_line import vlrft

from swift_vlrft.memory.models import read_model
from swift_vlrft.memory.new_recipe import nearest
from swift_vlrft.memory.recipe_plan import plan_recipe
from swift_vlrft.memory.settings import parse_gpus
from swift_vlrft.recipe.reader import only, read_recipes
from swift_vlrft.recipe.shipped import recipe_path

MODEL = "Qwen/Qwen2.5-VL-3B-Instruct"
RECIPE = "qwen2_5_vl_3b/detection_4x80g"
NEAREST = list(map(json.loads, Path(__file__).with_name("nearest.jsonl").open()))
"""Which recipe is nearest, and what is changed: on every machine the 32 rows a step of before, or
the nearest number that its processes and the 8 answers to a prompt divide.
"""


def new(out, *more, model=MODEL):
    return vlrft("recipe", "new", out, "--model", model, *more)


def data(done):
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", [case for case in NEAREST if "flags" in case], ids=str)
def test_what_new_writes_is_what_was_planned(case, tmp_path, monkeypatch):
    monkeypatch.setenv("NODE_RANK", "0")
    monkeypatch.setenv("MASTER_ADDR", "a")
    where = ["--gpus", case["gpus"], "--nodes", case.get("nodes", "1"), "--json"]
    out = tmp_path / "new.sh"
    made = data(vlrft("recipe", "new", out, "--model", MODEL, *where))
    assert made["flags"] == case["flags"]
    assert f"/{case['recipe']}.sh; changed for" in made["from"]
    shown = "".join(line.lstrip("# ") + " " for line in out.read_text().split("\n")[:9])
    assert made["from"] in shown
    again = data(vlrft("plan", out, *where))
    assert (again["peak_gib"], again["verdict"]) == (made["peak_gib"], made["verdict"])
    assert again["phases"] == made["phases"]


def test_a_new_recipe_keeps_all_that_the_tested_one_has(tmp_path):
    out = tmp_path / "new.sh"
    flags = data(new(out, "--gpus", "1x80", "--json"))["flags"]
    before, after = (only(read_recipes(path, {})) for path in (recipe_path(RECIPE), out))
    changed = {name: (value,) for name, value in flags.items() if not name.isupper()}
    assert {f.name: f.values for f in after.flags} == {
        f.name: f.values for f in before.flags
    } | changed
    visible = {"NPROC_PER_NODE": "1", "CUDA_VISIBLE_DEVICES": "0"}
    assert after.environment == before.environment | visible


@pytest.mark.parametrize("case", [case for case in NEAREST if "model" in case], ids=str)
def test_the_nearest_recipe(case):
    """The family first, then the task, the size of the model and the memory of the machine."""
    found = nearest(read_model(case["model"]), case["task"], parse_gpus(case["gpus"]), 1)
    assert found.name == case["recipe"]


def test_what_is_different_for_model_and_task_is_said(tmp_path):
    out = tmp_path / "new.sh"
    model = "Qwen/Qwen2.5-VL-7B-Instruct"
    said = data(new(out, "--gpus", "4x80", "--task", "counting", "--json", model=model))["from"]
    for text in (f"--model {model} in place of {MODEL}", "counting in place of", "DATASET must be"):
        assert text in said
    recipe = only(read_recipes(out, {"DATASET": "d"}))
    assert recipe.values("reward_funcs") == ("vlrft_counting", "vlrft_format")
    assert recipe.get("model") == model and recipe.get("output_dir").endswith(
        "7b_instruct_counting"
    )


def test_a_data_set_is_asked_for_in_the_models_box_format(tmp_path):
    Image.new("RGB", (28, 28)).save(tmp_path / "a.png")
    row = {"image": "a.png", "problem": "where?", "solution": "No Objects"}
    (tmp_path / "d.jsonl").write_text(json.dumps(row))
    out = tmp_path / "new.sh"
    assert new(out, "--gpus", "4x80", "--dataset", tmp_path / "d.jsonl").exit_code == 0
    assert only(read_recipes(out, {})).get("dataset") == f"{tmp_path}/d.jsonl:pixels"


@pytest.mark.parametrize(
    ("out", "model", "said"),
    [
        ("a.yaml", MODEL, "name it *.sh"),
        ("", MODEL, "is a folder"),
        ("a.sh", "Qwen/Qwen2.5-7B-Instruct", "no recipe that sees images is tested for"),
    ],
)
def test_what_recipe_refuses_in_one_line(out, model, said, tmp_path):
    done = new(tmp_path / out, "--gpus", "1x24", model=model)
    assert done.exit_code == 2 and said in done.output, done.output
    assert len(done.output.strip().splitlines()) == 1 and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_callers_shell_changes_no_plan_for_other_machines(monkeypatch):
    def plans():
        shown = json.loads(vlrft("plan", RECIPE, "--gpus", "4x24", "--json").output)
        return shown["phases"], shown["assumptions"]

    before = plans()
    monkeypatch.setenv("NPROC_PER_NODE", "2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("NNODES", "3")
    assert plans() == before
    four = ("plan", "qwen2_5_vl_3b/detection_lora_1x24g", "--gpus", "4x24", "--json")
    assert "set NPROC_PER_NODE=4" in vlrft(*four).output
    monkeypatch.setenv("NPROC_PER_NODE", "4")
    assert data(vlrft(*four))["gpus"]["count"] == 4
    asked = data(vlrft(*four, "--largest", "lora_rank"))
    assert asked[0]["command"].startswith("NPROC_PER_NODE=4 bash ")
    asked = data(vlrft(*four[:2], "--json", "--largest", "gpus"))
    assert asked[0]["largest"] == "1x24" and asked[0]["command"].startswith("bash ")


def test_what_a_change_costs_beside_memory_is_in_the_recipe(tmp_path):
    """Host memory, and another number of rows."""
    large = "Qwen/Qwen2.5-VL-7B-Instruct"
    one = data(new(tmp_path / "a.sh", "--gpus", "1x24", "--json", model=large))
    assert one["flags"]["deepspeed"] == "zero3_offload" and "32 GiB of host memory" in one["from"]
    six = data(new(tmp_path / "b.sh", "--gpus", "6x80", "--json"))
    assert "24 rows a step in place of 32" in six["from"]
    plan = plan_recipe(tmp_path / "a.sh", "1x24").plan
    assert plan.host <= plan.usual_host == 2 * plan.settings.gpu_bytes


def test_a_supervised_set_is_planned_with_its_answers(tmp_path):
    (path := tmp_path / "sft.sh").write_text(
        f"swift sft --model {MODEL} --dataset x --max_length 3000 --per_device_train_batch_size 1"
    )
    turns = [{"role": "user", "content": "x" * 30}, {"role": "assistant", "content": "y" * 6000}]
    rows = [{"images": [], "messages": turns}]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    where = ("--gpus", "1x80", "--dataset", tmp_path / "rows.json", "--json")
    for length, said in (("3000", "rows of 2010 tokens with answers of 2000"), ("1000", "of 1000")):
        path.write_text(path.read_text().replace("3000", length))
        assert said in " ".join(data(vlrft("plan", path, *where))["assumptions"])


def test_weights_are_shared_out_where_that_fits():
    done = vlrft("plan", "glm_4_1v_9b/detection_lora_4x80g", "--gpus", "4x24", "--json")
    assert json.loads(done.output)["changes"][0]["flags"] == {
        "deepspeed": "zero3",
        "move_model_batches": "16",
    }
