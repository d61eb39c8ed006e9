"""The fuzzers of `make fuzz` on their first inputs, and that they would see a broken reader."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz.run import NAMES, ROOT, Fuzzer, target
from fuzz.target import Target

INPUTS = {"rewards": 4000, "completions": 1000, "predictions": 3000}
INPUTS |= {"data": 100, "images": 100, "recipes": 20}


@pytest.mark.parametrize("name", NAMES)
def test_a_fixed_budget_of_random_input(name, tmp_path):
    one = Fuzzer(target(name), 1, tmp_path / "work", failed_to=tmp_path / "failed")
    one.run(600, most=INPUTS[name])
    assert not one.failures, (one.failures[0].parent / "error.txt").read_text()
    assert one.inputs >= INPUTS[name]


def _mute(monkeypatch, name):
    """A reader that lets through what it must refuse."""
    if name == "rewards":
        from swift_vlrft.diagnostics.reasons import Reason

        monkeypatch.setattr("fuzz.rewards.explain", lambda *a, **b: Reason(0.5, "ok", "half"))
    elif name == "images":
        monkeypatch.setattr("swift_vlrft.datasets.image._sound_png", lambda content: True)
    elif name == "recipes":
        import yaml

        monkeypatch.setattr(
            "swift_vlrft.recipe.reader.RecipeError", type("Other", (yaml.YAMLError,), {})
        )
    elif name == "data":
        monkeypatch.setattr("swift_vlrft.datasets.json_files.read_json", json.loads)
    else:
        monkeypatch.setattr("swift_vlrft.files.jsonl._value", lambda text, place: json.loads(text))


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_reader_is_seen_and_its_input_kept(name, tmp_path, monkeypatch, capsys):
    _mute(monkeypatch, name)
    one = Fuzzer(target(name), 1, tmp_path / "work", failed_to=tmp_path / "failed")
    while not one.failures:
        assert one.inputs < 50 * INPUTS[name]
        one.run(0)
    assert f"--only {name} --file {one.failures[0]}" in capsys.readouterr().err
    again = one.target.load(one.failures[0])
    with pytest.raises(Exception):  # noqa: B017 - any is a failure
        one.target.check(again, tmp_path / "work")
    monkeypatch.undo()
    assert one.target.check(again, tmp_path / "work") > 0


class Endless(Target):
    name = "endless"
    seconds = 0.2

    def make(self, rng, folder):
        return "a.txt", b"a"

    def check(self, case, folder):
        while True:
            try:
                case = case[::1]
            except Exception:  # as a reader may
                continue


def test_an_input_that_never_ends_is_a_failure(tmp_path):
    one = Fuzzer(Endless(), 1, tmp_path / "work", failed_to=tmp_path / "failed")
    one.run(0)
    assert "TooSlow" in (one.failures[0].parent / "error.txt").read_text()


@pytest.mark.slow
def test_the_command_counts_and_checks_a_file_again(tmp_path):
    def run(*arguments):
        command = [sys.executable, str(ROOT / "tests" / "fuzz" / "run.py"), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True)

    record = tmp_path / "fuzz.jsonl"
    done = run("--seconds", 1, "--only", "recipes", "--seed", 3, "--record", record)
    assert done.returncode == 0, done.stderr
    counted = json.loads(record.read_text())
    assert counted["target"] == "recipes" and counted["inputs"] > 0 and counted["failures"] == 0
    assert {"seconds", "seed", "version", "commit", "date", "one_input"} <= counted.keys()
    case = target("recipes").save(("recipe.yaml", b"a: [1"), tmp_path / "case")
    assert run("--only", "recipes", "--file", case).returncode == 0
    assert not list(Path(tmp_path).glob("vlrft-fuzz-*"))
