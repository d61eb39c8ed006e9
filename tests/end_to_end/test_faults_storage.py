"""Disks that fill up, clocks that are set back and files that go while `swift` trains on them."""

import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.full_disk import small_disk
from support.swift_run import SUPPORT, grpo_command, run_swift, run_swift_unchecked

from swift_vlrft.demo.data import png_bytes, write_parquet
from swift_vlrft.demo.tasks import known_task

pytestmark = pytest.mark.end_to_end

FAULTS = SUPPORT / "faults_storage.py"
LORA = ("--tuner_type", "lora", "--beta", "0")


def contents(folder):
    return {one.name: one.read_bytes() for one in folder.iterdir()}


def columns(rows):
    return {
        "image": [{"bytes": png_bytes(row), "path": None} for row in rows],
        "problem": [row.problem for row in rows],
        "solution": [row.solution for row in rows],
    }


def test_a_disk_that_fills_up_while_a_checkpoint_is_saved(tiny_qwen2_5_vl, shapes, tmp_path):
    """And, before it, a clock that was set back: the checkpoint just saved is the one to keep."""
    with small_disk(tmp_path / "disk", "64m") as mounted:
        out = tmp_path / "disk" / "out"
        command = [
            *grpo_command(tiny_qwen2_5_vl, shapes, out, [FAULTS], *LORA, "--max_steps", "4"),
            *("--save_strategy", "steps", "--save_steps", "1", "--save_total_limit", "1"),
        ]
        cache = {"MODELSCOPE_CACHE": str(tmp_path / "cache")}
        disk = {"VLRFT_TEST_DISK": str(tmp_path / "disk")} if mounted else {}
        fault = {"VLRFT_TEST_FAULT": "full_disk"} | disk
        ended = run_swift_unchecked(command, **cache, **fault)
        assert ended.returncode == 1, ended.stdout[-3000:]
        kept = out / "checkpoint-2"
        if mounted:  # a limit for files leaves the disk as free as it is
            told = ended.stdout.index("swift_vlrft: checkpoint-3 takes about 0 MB, and the disk of")
            assert told < ended.stdout.index("Traceback")
            assert f"--resume_from_checkpoint {kept} goes on from there" in ended.stdout
        assert not (out / "checkpoint-1").exists()
        assert not (out / "checkpoint-3" / "trainer_state.json").exists()
        whole = contents(kept)
        assert (out / "last-checkpoint").resolve() == kept.resolve()
        (tmp_path / "disk" / "filler").unlink(missing_ok=True)
        # Kept from being removed, so that it can be looked at afterwards.
        command += ["--resume_from_checkpoint", str(kept), "--save_total_limit", "4"]
        again = run_swift(command, out, **cache)
        assert json.loads((out / "checkpoint-4" / "trainer_state.json").read_text())
        assert contents(kept) == whole and "checkpoint-2" in again.output


def test_files_that_change_and_go_while_a_run_reads_them(tiny_qwen2_5_vl, tmp_path):
    rows = known_task("colours").make(random.Random(0), 12)
    write_parquet(rows, tmp_path / "parquet")
    (tmp_path / "other").mkdir()
    lines = []
    for n, row in enumerate(rows):
        row.image.save(tmp_path / f"{n}.png")
        row.image.rotate(90).save(tmp_path / "other" / f"{n}.png")
        line = {"image": f"{n}.png", "problem": row.problem, "solution": row.solution}
        lines.append(json.dumps(line) + "\n")
    (tmp_path / "5.png").write_bytes(png_bytes(rows[5])[:60])
    (tmp_path / "rows.jsonl").write_text("".join(lines))
    from datasets import Dataset

    Dataset.from_dict(columns(rows * 20)).save_to_disk(tmp_path / "arrow")
    (arrow,) = (tmp_path / "arrow").glob("*.arrow")
    size = arrow.stat().st_size
    sets = [str(tmp_path / name) for name in ("parquet", "rows.jsonl", "arrow")]
    command = grpo_command(tiny_qwen2_5_vl, sets[0], tmp_path / "out", [FAULTS], *LORA)
    command += ["--dataset", *sets, "--max_steps", "12"]
    ended = run_swift_unchecked(
        command, MODELSCOPE_CACHE=str(tmp_path / "cache"), VLRFT_TEST_FAULT="files"
    )
    assert ended.returncode == 1, ended.stdout[-3000:]
    assert "rows.jsonl, row 5: the image" in ended.stdout and "is broken" in ended.stdout
    # Parquet without its shards, and other pictures, trained on; Arrow without its end did not.
    log = (tmp_path / "out" / "logging.jsonl").read_text()
    assert '"global_step/max_steps": "2/12"' in log
    told = f"{arrow} had {size} bytes when it was opened, and has 4096 now"
    assert told in ended.stdout[-3000:]


def test_an_image_that_is_deleted_while_a_run_trains(tiny_qwen2_5_vl, rows, tmp_path):
    for n, row in enumerate(rows):
        row.image.save(tmp_path / f"{n}.png")
    lines = [
        {"image": f"{n}.png", "problem": row.problem, "solution": row.solution}
        for n, row in enumerate(rows)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = grpo_command(
        tiny_qwen2_5_vl, tmp_path / "rows.jsonl", tmp_path / "out", [FAULTS], *LORA
    )
    ended = run_swift_unchecked(
        command, MODELSCOPE_CACHE=str(tmp_path / "cache"), VLRFT_TEST_FAULT="image"
    )
    assert ended.returncode == 1
    last = ended.stdout.strip().splitlines()[-1]
    assert last.startswith("FileNotFoundError") and f"'{tmp_path}/" in last and ".png" in last


def test_a_shard_that_is_deleted_while_it_is_streamed(tiny_qwen2_5_vl, rows, tmp_path):
    """One that is reached after the steps that are trained at once."""
    (tmp_path / "stream").mkdir()
    for n in range(2):
        name = f"train-{n:05d}-of-00002.parquet"
        table = pa.table(columns((rows * 5)[:32] if n == 0 else rows))
        pq.write_table(table, tmp_path / "stream" / name, row_group_size=2)
    command = [
        *("swift", "sft", "--model", str(tiny_qwen2_5_vl), "--dataset", str(tmp_path / "stream")),
        *("--streaming", "true", "--dataset_shuffle", "false", "--callbacks", "fault"),
        *("--external_plugins", str(SUPPORT.parents[1] / "plugins" / "vlrft.py"), str(FAULTS)),
        *("--output_dir", str(tmp_path / "out"), "--add_version", "false", "--use_cpu", "true"),
        *("--tuner_type", "lora", "--torch_dtype", "float32", "--max_length", "512"),
        *("--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "1"),
        *("--max_steps", "14", "--logging_steps", "1", "--save_strategy", "no"),
        *("--report_to", "none"),
    ]
    run = run_swift(
        command, tmp_path / "out", VLRFT_TEST_FAULT="stream", MODELSCOPE_CACHE=str(tmp_path / "c")
    )
    told = "train-00001-of-00002.parquet breaks off or is damaged before its first row ("
    assert told in run.output and "No such file" in run.output
    assert any(row.get("global_step/max_steps") == "14/14" for row in run.rows)
