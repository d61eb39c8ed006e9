"""`vlrft data push`: the card, and what is refused before a hub is asked."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import DatasetCard
from support.command_line import vlrft
from support.contract_rows import gold_by_task
from support.written_sets import row

from swift_vlrft.datasets.writer import write_folder
from swift_vlrft.hub.cards import dataset_files
from swift_vlrft.hub.push import staged
from swift_vlrft.rewards import REWARDS, TASK_NAMES

SHARD = "data/train-00000-of-00001.parquet"


def of_task(task: str) -> dict:
    frame = "norm1000" if TASK_NAMES[task].gold_has_boxes else None
    words = r"A or B? [x1, y1, x2, y2] from 0 to 1000. Answer in <answer> </answer> or \boxed{}."
    asked = {"solution": gold_by_task()[task], "problem": words}
    return row(0, task=task, frame=frame, **asked)


OF_IMAGES = [name for name, task in TASK_NAMES.items() if not task.has_spans]


@pytest.fixture
def folder(tmp_path):
    write_folder(tmp_path / "shapes", {"train": [row(i) for i in range(3)]})
    return tmp_path / "shapes"


def refusal(folder, *arguments: str, **variables: str) -> str:
    words = ["data", "push", str(folder), "--repo", "me/x", *(arguments or ("--hub", "hf"))]
    done = vlrft(*words, **variables)
    assert done.exit_code == 2, done.output
    return " ".join(done.stderr.split())


def card_of(folder, hub: str = "hf", licence: str | None = None) -> str:
    return dataset_files(folder, hub, "me/shapes", licence)["README.md"].decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tasks", "hub"), [*(([task], "hf") for task in OF_IMAGES), (OF_IMAGES, "modelscope")]
)
def test_the_command_is_right_for_every_task(tmp_path, tasks, hub):
    write_folder(tmp_path / "set", {"train": [of_task(task) for task in tasks]})
    blocks = re.findall(r"^```bash\n(.*?)^```$", card_of(tmp_path / "set", hub), re.M | re.S)
    command = next(block for block in blocks if "swift rlhf" in block)
    # Every task's rows are scored by a reward of the command.
    named = re.search(r"--reward_funcs (.*?) \\", command)[1].split()
    assert {REWARDS[name].task.name for name in named if REWARDS[name].task} >= set(tasks)
    assert any(REWARDS[name].scores_format for name in named)
    # Also on the folder itself: rows, rewards and columns fit each other.
    recipe = tmp_path / "train.sh"
    for dataset in ("me/shapes", str(tmp_path / "set")):
        recipe.write_text(command.replace("--dataset me/shapes", f"--dataset {dataset}"))
        done = vlrft("check", "--json", recipe)
        findings = {finding["rule"] for finding in json.loads(done.stdout)["findings"]}
        assert done.exit_code == 0 and findings <= {"steps"}


def test_the_card_says_what_is_in_the_set_and_loads(tmp_path):
    from datasets import load_dataset

    rows = [of_task("detection")] * 5 + [of_task("classification")] * 3
    write_folder(tmp_path / "set", {"train": rows, "test": [of_task("counting")]})
    files = dataset_files(tmp_path / "set", "hf", "me/shapes", "cc-by-4.0")
    text = files["README.md"].decode()
    data = DatasetCard(text).data  # the library's own reader
    assert data.license == "cc-by-4.0"
    assert data.task_categories[1:] == ["object-detection", "visual-question-answering"]
    assert "\n9 rows" in text and "| train | detection | 5 |" in text
    assert "| train | classification | 3 |" in text and "| test | counting | 1 |" in text
    assert "`image`, `problem`, `solution`, `task`, `frame`" in text
    with staged(files) as repository:
        loaded = load_dataset(str(repository), cache_dir=str(tmp_path / "cache"))
    assert {name: len(split) for name, split in loaded.items()} == {"train": 8, "test": 1}
    assert loaded["train"][0]["image"].size == (16, 12)


def test_a_card_that_is_there_goes_up_as_it_is(folder):
    assert "license" not in DatasetCard(card_of(folder)).data.to_dict()
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n")
    assert dataset_files(folder, "hf", "me/x")["README.md"] == folder / "README.md"


@pytest.mark.slow
def test_bad_input_is_one_clear_error(folder, tmp_path):
    for n, image in enumerate([None, "/home/me/1.jpg", {"bytes": None, "path": "1.jpg"}, 5]):
        (tmp_path / f"named{n}" / "data").mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist([row(1, image=image)]), tmp_path / f"named{n}" / SHARD)
        assert "vlrft data convert" in refusal(tmp_path / f"named{n}")
    for hub, token in {"hf": "HF_TOKEN", "modelscope": "MODELSCOPE_API_TOKEN"}.items():
        tokens = {"HF_TOKEN": "x", "MODELSCOPE_API_TOKEN": "x"} | {token: ""}
        assert f"{token} is" in refusal(folder, "--hub", hub, **tokens)
    write_folder(tmp_path / "unknown", {"train": [row(0, task="segmentation")]})
    assert "known task" in refusal(tmp_path / "unknown")
    (folder / "README.md").write_text("# Mine")
    assert "new folder" in refusal(folder, "--hub", "hf", "--card-only", str(folder))
    (folder / "README.md").write_text("export HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123")
    assert "README.md: holds a secret" in refusal(folder)
    (folder / "README.md").unlink()
    (folder / SHARD).write_bytes((folder / SHARD).read_bytes()[:-50])
    assert "Parquet" in refusal(folder)
    (folder / SHARD).unlink()
    assert "data convert" in refusal(folder)
