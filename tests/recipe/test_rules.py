"""What `vlrft check` finds in a command: rules.jsonl has a fault of each rule, and what is near it;
mistakes.jsonl has what people write, some of it by the threads that it links.

``script``: a command, or several lines, with the names below; ``findings``: level, rule, line, and
a word of the text.
"""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files.test_checkpoints import files as checkpoint_files
from support.stored_sets import picture
from support.written_sets import write_set

from swift_vlrft.recipe.reader import read_text
from swift_vlrft.recipe.rules import check_recipes
from swift_vlrft.recipe.rules.clashes import installed
from swift_vlrft.recipe.run import resolve

TABLE = Path(__file__).with_name("rules.jsonl")
ROWS = [json.loads(line) for line in TABLE.read_text().splitlines()]
MISTAKES = TABLE.with_name("mistakes.jsonl").read_text().splitlines()

SWIFT = (
    "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-3B-Instruct --max_pixels 401408 "
    '--dataset laolao77/ViRFT_CLS_flower_4_shot --external_plugins "$(vlrft plugin)" '
    "--reward_funcs vlrft_classification --per_device_train_batch_size 8"
)
NAMES = {
    "@SWIFT@": SWIFT,
    "@NO_LIMIT@": SWIFT.replace("--max_pixels 401408 ", ""),
    "@DETECTION@": SWIFT.replace("CLS_flower_4_shot", "COCO").replace(
        "classification", "detection_iou"
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files that the scripts name: sets, models, checkpoints, plugins."""
    import datasets  # noqa: F401  # which asks once which packages are there: before a test says so

    root = tmp_path_factory.mktemp("files")
    texts = json.loads(Path(__file__).with_name("rules_files.json").read_text())
    for name, text in texts.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    sets = {
        "boxes": ("solution", ["[1, 2, 3, 4]"]),
        "broken": ("solution", ["[1, 2, 3, 4]", "[5, 6]"]),
        "names": ("solution", ["c"]),
        "answers": ("answer", ["c"]),
        "gone": ("solution", ["c"]),
    }
    for name, (column, values) in sets.items():
        (root / name).mkdir()
        (root / name / "a.png").write_bytes(picture())
        asks = ["[x1, y1, x2, y2] <answer>"] * len(values)
        questions = {"image": ["a.png"] * len(values), "problem": asks}
        pq.write_table(pa.table({**questions, column: values}), root / name / "a.parquet")
    (root / "gone" / "a.png").unlink()
    row = {"image": "names/a.png", "problem": "<answer>", "solution": "c"}
    (root / "half.jsonl").write_text(f"{json.dumps(row)}\n{{half\n")
    roses = {"problem": ["<answer>?"] * 3, "solution": ["rose"] * 3}
    roses["task"] = ["classification"] * 3
    for n in (0, 1):
        write_set(root / "shards", name=f"train-0000{n}-of-00002.parquet", **roses)
    for name in ("complete", "half", "alone", "run/checkpoint-2"):
        (root / name).mkdir(parents=True)
        for file, content in checkpoint_files().items():
            (root / name / file).write_bytes(content)
        (root / name / "trainer_state.json").write_text('{"global_step": 2, "max_steps": 4}')
    (root / "half" / "trainer_state.json").unlink()
    for file in ("rng_state.pth", "optimizer.pt", "scheduler.pt"):
        (root / "alone" / file).unlink()
    (root / "alone" / "args.json").write_text('{"save_only_model": true}')
    return root


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['rules']}: {row['why'][:50]}")
def test_a_rule_finds_its_fault_and_passes_what_is_near(row, folder, monkeypatch):
    findings = findings_of(row, folder, monkeypatch)
    assert [(f.level, f.rule, f.line) for f in findings] == [tuple(f[:3]) for f in row["findings"]]
    for finding, (*_, word) in zip(findings, row["findings"], strict=True):
        assert word in finding.text and row.get("never", "\0") not in finding.text


@pytest.mark.parametrize("row", [*map(json.loads, MISTAKES)], ids=lambda row: row["script"][-60:])
def test_what_people_write_wrong_is_found(row, folder, monkeypatch):
    findings = findings_of(row, folder, monkeypatch)
    level = row.get("level", "problem")
    found = [f.text for f in findings if (f.level, f.rule) == (level, row["rule"])]
    assert any(row["word"] in text for text in found), findings


def findings_of(row, folder, monkeypatch):
    """On a machine without GPUs, on which every package is installed, unless the row says so."""
    lacking = row.get("lacking", ())
    monkeypatch.chdir(folder)
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, *_: None if name in lacking or "*" in lacking else name,
    )
    if "ms-swift" in lacking:
        monkeypatch.setitem(installed.__globals__, "installed_versions", dict)
    text = row["script"]
    for name, command in NAMES.items():
        text = text.replace(name, command)
    text = text.replace(row.get("without", "\0"), "")
    recipes = read_text(text, environment=row.get("environment", {}))
    findings = check_recipes(map(resolve, recipes))
    # Rows give flags of @SWIFT@ again, in the same line.
    asked = str([row.get("rules", "steps"), row.get("findings"), row.get("rule")])
    return [f for f in findings if f.rule not in ("steps", "repeated-flag") or f.rule in asked]
