"""pyproject.toml names what the package imports; requirements/ pins a set that fits it."""

import os
import subprocess
import sys
import tomllib
from importlib import metadata
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as plain
from support.swift_run import REPOSITORY
from test_layers import IMPORTS

from swift_vlrft.commands.output import OF_PLUGIN

THE_USERS_CHOICE = {"torch", "vllm", "deepspeed"}
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
CORE = list(map(Requirement, PROJECT["dependencies"]))
SWIFT = list(map(Requirement, PROJECT["optional-dependencies"]["swift"]))


def test_what_is_imported_is_declared_and_what_is_declared_imported():
    imported = {name.partition(".")[0] for names in IMPORTS.values() for name in names}
    imported -= set(sys.stdlib_module_names) | {"swift_vlrft"} | THE_USERS_CHOICE
    distributions_of = packages_distributions()
    used = {name: {plain(d) for d in distributions_of.get(name, [name])} for name in imported}
    declared = {plain(requirement.name) for requirement in [*CORE, *SWIFT]}
    assert not [name for name, offered in used.items() if not declared & offered]
    # The first is a program, transformers imports the last.
    others = {"shfmt-py", "torchvision"}
    assert declared - set().union(*used.values()) == others
    of_plugin = {plain(requirement.name) for requirement in SWIFT}
    missing = {d for name in OF_PLUGIN for d in distributions_of.get(name, [name])} - {"peft"}
    assert {plain(name) for name in missing} == of_plugin - {"qwen-vl-utils"} | {"torch"}


# ---- the core alone --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """A folder with this package, and what `pip install` of it brings in."""
    folder = tmp_path_factory.mktemp("core")
    todo, known = [*CORE], {"swift-vlrft"}
    while todo:
        if (name := plain((asked := todo.pop()).name)) not in known:
            known.add(name)
            extras = [{"extra": extra} for extra in ("", *asked.extras)]
            needed = map(Requirement, metadata.requires(name) or ())
            todo += [r for r in needed if not r.marker or any(map(r.marker.evaluate, extras))]
    (folder / "swift_vlrft").symlink_to(REPOSITORY / "swift_vlrft")
    for distribution in map(metadata.distribution, known):
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(distribution.locate_file(top))
    return folder


IN_THE_CORE = """
import json, sys
import swift_vlrft
assert "swift_vlrft.rewards" not in sys.modules
import swift_vlrft.rewards
assert not {"numpy", "msgspec", "datasets"} & set(sys.modules)
from typer.testing import CliRunner
from swift_vlrft import REWARDS, check
from swift_vlrft.cli import app
assert CliRunner().invoke(app, sys.argv[1].split()).exit_code == 0  # vlrft check
assert not {"datasets", "pyarrow", "numpy", "PIL"} & set(sys.modules)
from pathlib import Path
from PIL import Image
from swift_vlrft.datasets import read_rows, to_dataset
from swift_vlrft.evaluation import average_precision
assert average_precision(["<answer>[0, 0, 9, 9]</answer>"], ["[0, 0, 9, 9]"])["AP"] == 1.0
Image.new("RGB", (64, 48)).save("a.png")
row = {"image": "a.png", "problem": "Where?", "solution": "[1, 2, 30, 40]", "task": "grounding"}
answered = row | {"completion": "<answer>[1, 2, 30, 40]</answer>"}
for name, content in ("set", row), ("answers", answered):
    Path(f"{name}.jsonl").write_text(json.dumps(content))
(read,) = read_rows("set.jsonl")
assert read.size == (64, 48) and read.boxes == [(1, 2, 30, 40)]
assert to_dataset("set.jsonl")["solution"][0] == row["solution"]
for words in sys.argv[1:]:
    done = CliRunner().invoke(app, words.split())
    print(done.exit_code, done.stderr.strip())
print([name for name in sys.modules if name in ("torch", "transformers", "swift", "trl", "vllm")])
"""
RECIPE = REPOSITORY / "recipes" / "qwen2_5_vl_3b" / "detection_4x80g.sh"


@pytest.mark.slow
def test_the_core_works_alone_and_says_what_it_lacks(core, tmp_path):
    runs = [f"check {RECIPE}", f"plan {RECIPE} --gpus 4x80", "score answers.jsonl"]
    runs += ["data check set.jsonl", "eval --predictions answers.jsonl"]
    lacking = {"tiny internvl tiny": "torchvision", "try set.jsonl": "torch"}
    lacking["score answers.jsonl --external_plugins mine.py"] = "swift"
    lacking["eval model set.jsonl --task grounding"] = "torch"
    places = {"PYTHONPATH": str(core), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    places["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.defpath])  # shfmt
    command = [sys.executable, "-S", "-c", IN_THE_CORE, *runs, *lacking]
    done = subprocess.run(command, env=places, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    *lines, heavy = done.stdout.splitlines()
    said = [
        f'2 error: {name} is not installed: pip install "swift-vlrft[swift]"'
        for name in lacking.values()
    ]
    assert lines == ["0 "] * len(runs) + said and heavy == "[]"
