"""A script changed by `vlrft check --fix` does what it did, but for the flags that were meant: bash
is asked, with a `swift` (and `notify`) that writes down what it was given.
"""

import itertools
import json
import os
import re
import stat
from pathlib import Path

import pytest
from recipe.bash import Call, run_bash, write_programs
from support.command_line import vlrft

from swift_vlrft.recipe.by_bash import run_recipes
from swift_vlrft.recipe.reader import read_recipes

TABLE = Path(__file__).with_name("edits.jsonl")
ROWS = [json.loads(line) for line in TABLE.read_text().splitlines()]
"""``change``: flags of the command (rlhf unless it is named), null where one goes; ``left``: the
lines of the findings that stay.
"""
PATH = {"PATH": os.environ["PATH"]}
GRPO = "swift rlhf --rlhf_type grpo --model m --reward_funcs format"


@pytest.fixture
def bash(tmp_path):
    """What a script does: its calls, the files it writes, its code and its output."""
    programs, count = tmp_path / "programs", itertools.count()
    write_programs(programs, ["swift", "python", "notify"])
    write_programs(programs, ["vlrft"], "#!/bin/sh\necho /plugins/vlrft.py\n")

    def run(script, variables, arguments=()):
        folder = tmp_path / f"run{next(count)}"
        folder.mkdir()
        calls, ended = run_bash(script, programs, folder, variables, arguments)
        files = {file.name: file.read_text() for file in folder.rglob("*") if file.is_file()}
        return calls, files, ended.returncode, ended.stdout

    return run


def parted(words):
    """As argparse takes them: the last of a name counts; and the words before the first."""
    flags, before, values = {}, [], None
    for word in words:
        if match := re.fullmatch(r"--([A-Za-z][\w-]*)(?:=(.*))?", word, re.DOTALL):
            values = flags[match[1].replace("-", "_")] = [] if match[2] is None else [match[2]]
        elif values is None:
            before.append(word)
        else:
            values.append(word)
    return before, flags


def assert_changed(before, after, change, command="rlhf"):
    """Two runs differ in ``change`` alone."""
    (calls, *rest), (calls_after, *rest_after) = before, after
    assert rest == rest_after

    def seen(call: Call, expected: bool):
        words, flags = parted(call.words)
        if expected and call.program == "swift" and words[:1] == [command]:
            for name, value in change.items():
                flags.pop(name, None)
                flags |= {} if value is None else {name: [value]}
        return call.program, words, sorted(flags.items()), sorted(call.environment.items())

    assert sorted(seen(call, False) for call in calls_after) == sorted(
        seen(call, True) for call in calls
    )


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["why"])
def test_a_changed_script_runs_as_before(row, tmp_path, bash):
    path, arguments = tmp_path / "run.sh", row.get("arguments", ())
    script = row["script"].replace("@GRPO@", GRPO)
    path.write_text(script)
    path.chmod(0o751)
    before = bash(path, {}, arguments)
    shown = json.loads(vlrft("check", "--json", "--fix", path).output)
    left = [f["line"] for f in shown["findings"] if f["rule"].startswith(("removed", "abbrev"))]
    assert left == row.get("left", [])
    if row["change"]:
        assert (tmp_path / "run.sh.orig").read_text() == script
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    after = bash(path, {}, arguments)
    assert_changed(before, after, row["change"], row.get("command", "rlhf"))


OLD = "swift rlhf --rlhf_type grpo --train_type lora --beta 1"
BYTES = {
    "carriage returns": "#!/bin/bash\r\n"
    + OLD.replace(" --", " \\\r\n  --")
    + "\r\necho \u00e9\r\n",
    "byte order mark": f"\ufeff{OLD}\n",
    "no line end": OLD,
    "trailing blanks": f"{OLD.replace('lora', 'lora  ')}   \n\n \n",
    "unicode": f"# \u4e2d\u6587\u2028\x0c\n{OLD} --system '\u2028'",
}


@pytest.mark.parametrize("name", BYTES)
def test_every_other_byte_stays(name, tmp_path):
    path = tmp_path / "run.sh"
    before = BYTES[name].encode()
    path.write_bytes(before)
    assert "--tuner_type lora" in vlrft("check", "--fix", path).output
    after = before.replace(b"train_type", b"tuner_type").replace(b"\r\n", b"\n")
    assert path.read_bytes() == after.removeprefix("\ufeff".encode())


@pytest.mark.parametrize(
    "text", ["train_type: lora\ndataset: d\n", '{"train_type": "lora", "dataset": "d"}']
)
def test_a_configuration_is_named_and_left_alone(text, tmp_path):
    path = tmp_path / ("a.json" if text[0] == "{" else "a.yaml")
    path.write_text(text)
    shown = vlrft("check", "--fix", path).output
    assert "--train_type" in shown and "--tuner_type" in shown
    assert path.read_text() == text and len(list(tmp_path.iterdir())) == 1


@pytest.mark.slow
def test_every_version_of_a_fixed_recipe_is_kept(tmp_path):
    path = tmp_path / "run.sh"
    versions = [f"swift rlhf --rlhf_type grpo --train_type lora --beta {n}\n" for n in range(3)]
    for version in versions:
        path.write_text(version)
        shown = " ".join(vlrft("check", "--fix", path).output.split())
        (named,) = re.findall(r"backup: (\S+)", shown)
        assert Path(named).read_text() == version
    assert {file.read_text() for file in tmp_path.glob("run.sh.orig*")} == {*versions}
    # Nothing to fix: nothing is written.
    assert "backup: " not in vlrft("check", "--fix", path).output


def test_a_link_to_a_recipe_stays_a_link(tmp_path):
    (tmp_path / "shared").mkdir()
    file, link = tmp_path / "shared" / "run.sh", tmp_path / "run.sh"
    file.write_text("swift rlhf --rlhf_type grpo --train_type lora\n")
    link.symlink_to(file)
    vlrft("check", "--fix", link)
    assert link.is_symlink() and "tuner_type" in file.read_text()
    assert "train_type" in (tmp_path / "shared" / "run.sh.orig").read_text()


SLIPS = [json.loads(line) for line in TABLE.with_name("slips.jsonl").read_text().splitlines()]
"""``finds``: line, column and kind of what is said of the text; ``flags``: what bash hands over of
the script that --fix has made, beside those of @G@; ``variables``: some that the command sees.
"""


@pytest.mark.slow
@pytest.mark.parametrize("row", SLIPS, ids=lambda row: row["script"])
def test_a_slip_is_said_with_its_place_and_mended(row, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ["rlhf_type", "model", "dataset"]
    script = row["script"].replace("@G", "swift rlhf --rlhf_type grpo --model m --dataset d")
    path = tmp_path / "run.sh"
    path.write_bytes(script.encode())
    places = []
    for read in (read_recipes, run_recipes) if script[0] != "\ufeff" else (read_recipes,):
        notes = [note for recipe in read(path, PATH)[:1] for note in recipe.notes]
        places.append([[n.line, n.column, n.kind] for n in notes if n.patches])
    assert places == [row["finds"]] * len(places)
    vlrft("check", "--fix", path)
    recipe = run_recipes(path, PATH)[-1]
    flags = {f.name: " ".join(f.values) for f in recipe.flags}
    assert {n: v for n, v in flags.items() if n not in given or n in row["flags"]} == row["flags"]
    variables = row.get("variables", {})
    assert {name: recipe.environment.get(name) for name in variables} == variables
