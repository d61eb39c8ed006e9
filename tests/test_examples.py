"""examples/ runs as it stands."""

import json

import pytest
from PIL import Image
from support.swift_run import REPOSITORY, run_python

EXAMPLES = REPOSITORY / "examples"
IMPORT = """
import sys
from swift.utils import import_external_file
for plugin in sys.argv[1].split(","):
    import_external_file(plugin)
del sys.argv[1]
"""
PLUGIN = str(REPOSITORY / "plugins" / "vlrft.py")


@pytest.mark.slow
def test_a_reward_of_your_own():
    then = """
from swift.rewards import orms
print(orms["short_answer"]()(["<answer>4</answer>", "no answer"]))
"""
    done = run_python(IMPORT + then, f"{PLUGIN},{EXAMPLES / 'my_reward.py'}")
    assert "[1.0, 0.0]" in done.stdout, done.stderr


@pytest.mark.slow
def test_a_data_set_of_your_own(tmp_path):
    (tmp_path / "shelf").mkdir()
    Image.new("RGB", (400, 300), (200, 30, 30)).save(tmp_path / "shelf" / "17.jpg")
    record = {"photo": "shelf/17.jpg", "ask": "the red mug", "rect": [120, 40, 310, 260]}
    path = tmp_path / "shelf.jsonl"
    path.write_text(json.dumps(record) + "\n")
    then = """
from swift.dataset import load_dataset
(row,) = load_dataset([sys.argv[2]])[0]
print(row["task"], row["solution"])
"""
    flags = ("--dataset", str(path), "--reward_funcs", "vlrft_grounding_iou")
    done = run_python(IMPORT + then, f"{EXAMPLES / 'my_dataset.py'},{PLUGIN}", *flags)
    assert "grounding <answer>[300, 133, 775, 867]</answer>" in done.stdout, done.stderr
