"""`vlrft data check`, conversion, training and `vlrft check` find the same rows with the same
words, whatever form a set lies in; what training refuses, `vlrft check` and the plugin refuse.
"""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.stored_sets import picture, train_on
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.convert import convert_folder
from swift_vlrft.recipe.reader import read_text
from swift_vlrft.recipe.rules import PROBLEM, check_recipe
from swift_vlrft.recipe.rules.data import data_sets
from swift_vlrft.recipe.run import resolve

GOOD = {
    "image": "0.png",
    "problem": "Where is the dog, as [x1, y1, x2, y2]? <answer>",
    "solution": "[254, 303, 291, 365]",
    "task": "grounding",
    "frame": "norm1000",
}
LINES = Path(__file__).with_name("faults.jsonl").read_text().splitlines()
FAULTS = {case["why"]: case["change"] for case in map(json.loads, LINES)}
RECIPE = "swift rlhf --rlhf_type grpo --model Qwen/Qwen2-VL-2B-Instruct --strict {} --dataset {} "
RECIPE += "--reward_funcs vlrft_grounding_iou"


def rows_as_jsonl(folder, rows):
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows_with_bytes(folder, rows):
    files = [folder / row["image"] for row in rows]
    images = [{"bytes": f.read_bytes() if f.exists() else None, "path": f.name} for f in files]
    rows = [row | {"image": image} for row, image in zip(rows, images, strict=True)]
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    schema = pa.schema({name: pa.string() for name in GOOD} | {"image": kind})
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / "train.parquet")


FORMS = [rows_as_jsonl, rows_with_bytes]


def of_check(path):
    done = CliRunner().invoke(app, ["data", "check", str(path), "--json"])
    assert done.exit_code < 2, done.output
    found = json.loads(done.stdout)["problems"]
    return {(one["place"], one["problem"]) for one in found}


def of_conversion(path, out):
    try:
        written = convert_folder(path, out, keep_going=True)
    except DataError as error:  # no row is left
        return {line.strip() for line in str(error).splitlines()[1:]}
    return {(str(one.place), one.problem) for one in written.left_out}


@pytest.mark.slow
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    write=st.sampled_from(FORMS),
    faults=st.lists(st.sampled_from(list(FAULTS)), max_size=3),
    strict=st.booleans(),
)
def test_four_askers_find_the_same(write, faults, strict, tmp_path_factory):
    folder = tmp_path_factory.mktemp("case")
    (path := folder / "set").mkdir()
    (path / "0.png").write_bytes(picture())
    (path / "broken.png").write_bytes(picture(size=(300, 300))[:-40])
    rows = [GOOD, *(GOOD | FAULTS[fault] for fault in faults)]
    write(path, rows)

    checked = of_check(path)
    bad = [n for n, fault in enumerate(["good", *faults]) if fault != "good"]
    assert sorted(int(place.rpartition(" ")[2]) for place, _ in checked) == bad
    assert of_conversion(path, folder / "out") == checked

    (recipe,) = read_text(RECIPE.format(str(strict).lower(), path))
    found = check_recipe(resolve(recipe), [data_sets])
    refused = [finding.text for finding in found if finding.level == PROBLEM]
    try:
        rewards = ("vlrft_grounding_iou",)
        dataset, report = train_on(path, folder / "cache", strict=strict, rewards=rewards)
    except DataError as error:
        assert all(f"{place}: {problem}" in str(error) for place, problem in checked)
        assert refused == [str(error)]
        return
    assert refused == [] and (not bad or report.bad_notes()[0] in [one.text for one in found])
    assert {(str(one.place), one.problem) for one in report.problems} == checked
    assert len(dataset) == len(rows) - len(bad)
