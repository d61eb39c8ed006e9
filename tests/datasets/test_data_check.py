"""``vlrft data check``: what it finds, where, and the clean copy."""

import pytest
from support.stored_sets import PROBLEM, columns, picture
from support.written_sets import check, data, write_set


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"], None),
        (["train-00000-of-00002.parquet"], "train-00001-of-00002.parquet"),
        # older sets bear a checksum in their names
        ([f"train-0000{n}-of-00002-a1b2c3d4e5f6071{n}.parquet" for n in range(2)], None),
        (
            [f"train-0000{n}-of-00003-a1b2c3d4e5f6071{n}.parquet" for n in range(2)],
            "train-00002-of-00003.parquet",
        ),
    ],
)
def test_shards_that_the_names_speak_of_are_missed(names, missing, tmp_path):
    for name in names:
        write_set(tmp_path, 3, name)
    code, report = check(tmp_path)
    assert (code, report["good"]) == (0, 3 * len(names))
    assert sum(f"(1: {missing})" in note for note in report["notes"]) == bool(missing)


def test_columns_are_renamed_as_the_error_says(tmp_path):
    folder = write_set(tmp_path / "set", solution=None, answer=columns()["solution"])
    done = data("check", folder)
    assert done.exit_code == 2 and "--columns" in done.output
    rename = ["--columns", '{"answer": "solution"}']
    code, report = check(folder, *rename)
    assert (code, report["good"]) == (0, 3)
    mistyped = ["--columns", '{"answer": "solution", "tsk": "task"}']
    for command in (("check", folder), ("convert", folder, tmp_path / "new")):
        done = data(*command, *mistyped)
        assert done.exit_code == 0 and "renames tsk" in done.output
    for text in ("answer", '{"picture": 5}'):
        done = data("check", folder, "--columns", text)
        assert done.exit_code == 2 and f"--columns {text}" in done.output


@pytest.mark.slow
def test_rows_that_are_too_long_are_named_with_their_tokens(tmp_path):
    """Against ms-swift's own template, which encodes the pictures to know."""
    pytest.importorskip("swift")
    from swift.model import get_processor
    from swift.template import get_template

    from swift_vlrft.tiny.checkpoint import write_tiny

    write_tiny("qwen2_5_vl", tmp_path / "tiny")
    rows = columns(2)
    rows["image"][1] = {"bytes": picture(size=(400, 300)), "path": "big.png"}
    source = write_set(tmp_path / "set", 2, **rows)
    template = get_template(get_processor(str(tmp_path / "tiny")))
    message = {"role": "user", "content": f"<image>{PROBLEM}"}
    short, long = (
        len(template.encode({"messages": [message], "images": [image]})["input_ids"])
        for image in rows["image"]
    )
    assert long > short + 100
    for limit, good in ((short - 1, 0), (short, 1), (long, 2)):
        code, report = check(source, "--max-length", limit, "--model", tmp_path / "tiny")
        assert (report["good"], report["too_long"], code) == (good, 2 - good, int(good < 2))
        assert good == 2 or f" {long} tokens" in str(report["problems"])


# ---- --reward -------------------------------------------------------------------------------


def rewards(*names):
    return [word for name in names for word in ("--reward", f"vlrft_{name}")]


def test_rewards_that_fit_are_those_of_the_tasks_that_the_named_rewards_score(tmp_path):
    write_set(tmp_path, solution=["<answer>[[254, 303, 291, 365]]</answer>"] * 3)
    fitting = check(tmp_path)[1]["rewards"]
    assert {"vlrft_detection_iou", "vlrft_grounding_iou"} <= set(fitting)
    named = check(tmp_path, *rewards("detection_iou"))[1]["rewards"]
    assert named and all(name.startswith("vlrft_detection") for name in named)


def test_a_split_that_no_named_reward_scores_is_noted(tmp_path):
    for split, task, gold in (("train", "classification", "rose"), ("test", "counting", "4")):
        write_set(tmp_path, 2, f"{split}.parquet", solution=[gold] * 2, task=[task] * 2)
    code, report = check(tmp_path, *rewards("counting", "format"))
    assert code == 0
    assert sum("2 of 4 rows" in note for note in report["notes"]) == 1
    for names in (("counting", "classification"), (), ("format",)):
        assert not any("2 of 4" in note for note in check(tmp_path, *rewards(*names))[1]["notes"])
    # Where no split is scored, that is a problem of the set, said once.
    code, report = check(tmp_path, *rewards("choice"))
    assert (code, len(report["problems"])) == (1, 1)
