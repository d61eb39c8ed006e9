"""The rewards in the real verl and verifiers, which ask for other versions than ms-swift
and have an environment each, as examples/README.md says. What they score with examples/ equals
REWARDS bit by bit.
"""

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.drawn_rows import FIVE, mixed_rows
from support.swift_run import REPOSITORY

from swift_vlrft.rewards import REWARDS
from swift_vlrft.tiny.checkpoint import write_tiny

pytestmark = [pytest.mark.end_to_end, pytest.mark.nightly]

EXAMPLES, HERE = REPOSITORY / "examples", Path(__file__).parent
# The package, what its pins need that ours has not, and our pins that it does not take.
TRAINERS = {
    "verl": (
        *("verl==0.9.1", "ray==2.60.0", "tensordict==0.10.0", "transformers==5.10.4"),
        *("-antlr4-python3-runtime", "-packaging", "-tokenizers", "-transformers"),
    ),
    "verifiers with rubrics": ("verifiers==0.3.0", "-mcp", "-mcp-types", "-websockets"),
    "verifiers with tasks": ("verifiers==0.4.0", "-mcp", "-mcp-types", "-openai"),
}
OURS = ("msgspec", "numpy", "rapidfuzz", "scipy")
NAMES = (
    *("vlrft_counting", "vlrft_grounding_iou", "vlrft_grounding_giou", "vlrft_number"),
    *("vlrft_ocr", "vlrft_pointing", "vlrft_format"),
)


@pytest.fixture
def environment(request, tmp_path) -> Path:
    """The Python of an environment with that trainer; this package comes by PYTHONPATH."""
    if request.param == "verl" and sys.version_info >= (3, 13):
        pytest.skip("verl 0.9.1 is for Python 3.10 to 3.12")
    uv = shutil.which("uv") or REPOSITORY / ".uv" / "bin" / "uv"
    if not Path(uv).is_file():
        pytest.skip("uv is not installed: make env gets it")
    wanted = [word for word in TRAINERS[request.param] if word[0] != "-"]
    free = {word[1:] for word in TRAINERS[request.param] if word[0] == "-"}
    pins = (REPOSITORY / "requirements" / "cpu.txt").read_text().splitlines()
    kept = [pin for pin in pins if pin.partition("==")[0] not in free]
    (tmp_path / "pins.txt").write_text("\n".join(kept) + "\n")
    folder = tmp_path / "environment"
    python = folder / "bin" / "python"
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, folder], check=True)
    install = [uv, "pip", "install", "-q", "--python", python, "-c", tmp_path / "pins.txt"]
    done = subprocess.run([*install, *wanted, *OURS], capture_output=True, text=True)
    if "error sending request" in done.stderr:
        pytest.skip(f"no package index: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    yield python
    shutil.rmtree(folder)  # gigabytes


def rows():
    """A right answer of each task, one of them rough, wrong ones and malformed ones."""
    found = []
    for row in [*mixed_rows(random.Random(0), 12), *mixed_rows(random.Random(0), 10, FIVE)]:
        boxed = row.solution.replace("0]", "9]").replace("500", "450")
        seen = "<answer>[[300, 600]]</answer>"  # a point, in a box of one row
        texts = (seen, row.solution, f"<think>t</think>{row.solution}", boxed)
        texts += ("<answer>none of it</answer>", "<answer>[1, 2", "<answer></answer>", "", "é\x00<")
        found += [(text, row.solution, row.columns) for text in texts]
    return found


def scored(python: Path, script: str, *arguments: str | Path) -> list:
    done = subprocess.run(
        [python, HERE / script, *arguments],
        input=json.dumps(rows()),
        env={
            "PYTHONPATH": str(REPOSITORY),
            "PATH": "/usr/bin:/bin",
            "HOME": str(python.parents[2]),
        },
        cwd=python.parents[2],
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # verifiers logs what a reward raises, and counts 0.
    assert "Error calling" not in done.stderr + done.stdout
    return json.loads(done.stdout.splitlines()[-1])


def one_by_one(name: str) -> list[float]:
    """What ``REWARDS[name]`` gives each row; rows of other tasks count 0."""
    found = [
        REWARDS[name]([text], [gold], **{key: [value] for key, value in columns.items()})[0]
        for text, gold, columns in rows()
    ]
    return [score or 0.0 for score in found]


@pytest.mark.parametrize("environment", ["verl"], indirect=True)
def test_verls_reward_manager(environment, tmp_path, monkeypatch):
    write_tiny("qwen2_5_vl", tmp_path / "model")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from verl_reward import BY_TASK

    by_task = {task: one_by_one(reward.__name__) for task, reward in BY_TASK.items()}
    expected = [by_task[columns["task"]][n] for n, (*_, columns) in enumerate(rows())]
    found = scored(environment, "in_verl.py", tmp_path / "model", EXAMPLES / "verl_reward.py")
    assert found == expected
    assert len(set(found)) > 5  # not only 0 and 1


@pytest.mark.parametrize(
    "environment", ["verifiers with rubrics", "verifiers with tasks"], indirect=True
)
def test_verifiers(environment):
    rubric = EXAMPLES / "verifiers_rubric.py"
    found = scored(environment, "in_verifiers.py", rubric, json.dumps(NAMES))
    for name in NAMES:
        column = [row[name] for row in found]
        assert column == one_by_one(name), name
        assert {0.0, 1.0} <= set(column), name
