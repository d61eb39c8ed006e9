"""Recipes as data: what is read, where it stands, and what is said of the rest (notes.jsonl)."""

import json
import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies
from support.limits import time_limit

from swift_vlrft.recipe.reader import RecipeError, only, read_recipes, read_text

TABLE = Path(__file__).with_name("notes.jsonl")
ROWS = [json.loads(line) for line in TABLE.read_text().splitlines()]
"""``kind``, ``line`` and a ``word`` of a note; ``none``: kinds of notes that there are not;
``error``: a word of the refusal of a text without a command that can be read.
"""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["why"])
def test_says_what_it_cannot_read_and_where(row):
    if "error" in row:
        with pytest.raises(RecipeError, match=re.escape(row["error"])):
            read_text(row["script"], environment={})
        return
    notes = [note for recipe in read_text(row["script"], environment={}) for note in recipe.notes]
    if "none" in row:
        assert not {note.kind for note in notes} & {*row["none"]}
        return
    texts = [note.text for note in notes if (note.kind, note.line) == (row["kind"], row["line"])]
    assert any(row["word"] in text for text in texts), notes


# Where things stand -------------------------------------------------------------------------------


def test_lines_and_flags():
    script = "# first\nA=1 \\\nswift rlhf \\\n  --model m \\\n  --top_k -1 \\\n  --x\n"
    (recipe,) = read_text(script)
    assert (recipe.command, recipe.line) == (("swift", "rlhf"), 3)
    assert [(f.name, f.values, f.line) for f in recipe.flags] == [
        ("model", ("m",), 4),
        ("top_k", ("-1",), 5),
        ("x", (), 6),
    ]
    assert recipe.get("model") == "m" and recipe.get("none", "8") == "8"
    assert recipe.values("none") == ()
    (recipe,) = read_text('swift rlhf --model a --x 1 "$@"', arguments=["--x", "2", "3"])
    assert recipe.get("x") == "2" and recipe.values("x") == ("2", "3")  # the last one counts


PLACES = """\ufeffexport MAX_PIXELS=${MAX_PIXELS:-401408}\r
NPROC_PER_NODE='4' env B=1 swift rlhf --model "$M" --train_type "lo ra" \\\r
  --x=3 --y > log 2>&1 --z 4\r
"""


def test_where_everything_stands():
    (recipe,) = read_text(PLACES, environment={"M": "m"})

    def written(span):
        return span and (recipe.text[span.start : span.end], span.literal)

    assert recipe.text == PLACES
    stand = [(f.line, written(f.span), [written(s) for s in f.value_spans]) for f in recipe.flags]
    assert stand == [
        (2, ("--model", True), [('"$M"', False)]),
        (2, ("--train_type", True), [('"lo ra"', True)]),
        (3, ("--x", True), [("3", True)]),
        (3, ("--y", True), []),
        (3, ("--z", True), [("4", True)]),
    ]


def test_what_is_not_set_and_what_is_not_known_differ():
    text = "export A=1 B=$(x)\nswift rlhf --a 1 --b $(x) --c\n"
    (recipe,) = read_text(text, environment={"D": "4"})
    assert [recipe.environment.get(name, "-") for name in "ACDE"] == ["1", "-", "4", "-"]
    assert [recipe.may_be_unread(name) for name in "ABCDE"] == [False, True, False, False, False]
    assert [recipe.get(name, "-") for name in "abcd"] == ["1", None, "-", "-"]
    assert [recipe.omits(name) for name in "abcd"] == [False, False, False, True]
    assert recipe.values("b") == () and recipe.flag("b").values == ("$(x)",)
    (recipe,) = read_text('[ -n "$R" ] && F="--d 1"\nswift rlhf --a 1 $F\n', environment={})
    assert (recipe.get("a"), recipe.get("d", "-"), recipe.omits("d")) == (None, None, False)
    (recipe,) = read_text("source none.sh\nswift rlhf --a 1\n", environment={"A": "1"})
    assert recipe.may_be_unread("A") and recipe.may_be_unread("Z")


def test_a_server_recipe_has_one_command_that_trains():
    recipes = read_text("swift rollout --model m &\nswift rlhf --model m\n")
    assert [recipe.command[1] for recipe in recipes] == ["rollout", "rlhf"]
    assert [recipe.trains for recipe in recipes] == [False, True]


# Configurations -----------------------------------------------------------------------------------


def test_yaml_and_json_are_read_as_ms_swift_does(tmp_path):
    yaml = tmp_path / "c.yaml"
    yaml.write_text(
        "rlhf_type: grpo\nreward_funcs:\n  - a\n  - b\n"
        "vllm_limit_mm_per_prompt: {image: 2}\nuse_vllm: true\nENV:\n  MAX_PIXELS: 401408\n  B: 1\n"
    )
    recipe = only(read_recipes(yaml, {"B": "2"}))
    assert recipe.command == ("swift", "rlhf")
    assert recipe.values("reward_funcs") == ("a", "b")
    assert recipe.get("vllm_limit_mm_per_prompt") == '{"image": 2}'
    assert recipe.get("use_vllm") == "True"
    assert recipe.environment == {"MAX_PIXELS": "401408", "B": "2"}
    assert recipe.flag("use_vllm").line == 6
    (shell,) = read_text(f"swift rlhf {yaml} --num_generations 4", environment={})
    assert shell.get("num_generations") == "4" and shell.get("rlhf_type") == "grpo"
    config = tmp_path / "c.json"
    config.write_text('{"rlhf_type": "grpo",\n "beta": 0.0}')
    assert only(read_recipes(config, {})).get("beta") == "0.0"
    yaml.write_text("beta: 0.1\ndataset: d\nbeta: 0.2\n")
    flags = [(f.name, f.values, f.line) for f in only(read_recipes(yaml, {})).flags]
    assert flags == [("beta", ("0.1",), 1), ("dataset", ("d",), 2), ("beta", ("0.2",), 3)]


def test_where_a_configuration_says_it(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("dataset: 'a b'  # why\nreward_funcs:\n  - one\n  - two\n")
    assert [(f.name, f.line, f.span) for f in only(read_recipes(path, {})).flags] == [
        ("dataset", 1, None),
        ("reward_funcs", 2, None),
    ]
    (shell,) = read_text(f"swift rlhf {path} --x 1", environment={})
    assert [flag.line for flag in shell.flags] == [1, 1, 1]
    path.write_text("dataset: d\nmodel:m\nbeta: 1\n")
    with pytest.raises(RecipeError, match="line 2, column 1: .*blank stands behind a name's colon"):
        only(read_recipes(path, {}))


def test_a_configuration_that_the_script_writes_is_not_read(tmp_path, monkeypatch):
    """Not from a file of that name which an earlier run has left."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("beta: 7\n")
    (recipe,) = read_text("date > a.yaml\nswift rlhf a.yaml --x 1\n", environment={})
    assert not recipe.is_known("beta") and recipe.get("x") == "1"
    assert any("a.yaml" in note.text for note in recipe.notes)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.sh", b"echo swift rlhf\n", "no `swift"),
        ("a.yaml", b"a: [1\n", "parse"),
        ("a.yaml", b"- 1\n", "table"),
        ("a.json", b"{'a': 1}", "parse"),
        ("a.json", b'{"a": ' * 3000, "parse"),
        ("a.yaml", b"model: m\nENV: [1]\n", "ENV"),
        ("a.yaml", b"model: m\ntrain: {gpus: 4}\nrollout: {gpus: 4}\n", "Ray"),
        ("a.sh", b"swift rlhf none.yaml --beta 0\n", "line 1: none.yaml"),
        ("a.sh", b"A=1\nswift rlhf binary.yaml\n", "binary.yaml"),
        ("none.sh", None, "none.sh"),
        ("a.json", b'{"cells": [{"source": ["!swift rlhf"]}]}', "notebook"),
        ("train.sh", b"# x\nFROM a:1\nRUN swift rlhf --x 1\n", "Dockerfile"),
        ("train.sh", b"```bash\nswift rlhf --x 1\n```\n", "Markdown"),
        ("a.sh", b"#!/usr/bin/env fish\nswift rlhf --x 1\n", "fish"),
        ("a.sh", b"REM it\r\nswift rlhf --x 1\r\n", "batch file"),
        ("a.sh", b"swift rlhf ^\r\n  --x 1 ^\r\n  --y 2\r\n", "batch file"),
        ("a.sh", b"swift rlhf --x %MODEL% --y 1\r\n", "batch file"),
        ("a.sh", b"swift rlhf `\n  --x 1\n", "PowerShell"),
        ("a.sh", b'$Model = "m"\nswift rlhf --x 1\n', "PowerShell"),
        ("a.sh", b"A=1 \\\nswift rlhf --x \0 1\n", "line 2: a byte 0"),
        ("gbk.sh", "# \u4e2d\nswift rlhf --x '\u4e2d'\n".encode("gbk"), "line 1: byte 0xd6"),
    ],
)
def test_what_is_no_recipe(tmp_path, name, content, said):
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(RecipeError, match=said):
        read_recipes(tmp_path / name, {})


# Hostile scripts ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        "A=aaaaaaaa\n" + "A=$A$A\n" * 60,
        "A=aa\n" + "A+=$A\n" * 60,
        "A=aaaaaaaa\n" + "A=$A$A\n" * 12 + "".join(f"B{n}=$A.\n" for n in range(1000)),
    ],
    ids=["text", "appended", "many variables"],
)
def test_a_text_that_doubles_is_followed_for_so_long(script):
    tracemalloc.start()
    (recipe,) = read_text(script + "swift rlhf --system $A $@\n", environment={})
    assert not recipe.is_known("system")
    assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
    tracemalloc.stop()


@pytest.mark.slow
def test_a_long_document_is_passed_over_at_once():
    text = "cat > notes <<E\n" + "a 'quote $A and so on\n" * 5_000 + "E\nswift rlhf --x 1\n"
    with time_limit(60):
        (recipe,) = read_text(text, environment={})
    assert recipe.get("x") == "1"


PIECES = ["swift rlhf ", "--a ", "$A", "${A:-", "}", "$(", ")", "((", "`", "'", '"', "\\", "\\\n"]
PIECES += ["\n", " ", "#", "<", ">", "<<E\n", "E\n", "A=(", "A+=b ", ";", "&", "|", "if ", "fi\n"]
PIECES += ["for x in ", "case ", "{ ", "} ", "f() ", "export A=b\n", "${!A", "$@", "é", "\r\n"]


@pytest.mark.slow
@settings(max_examples=200)
@given(strategies.lists(strategies.sampled_from([*PIECES, "~/"]), max_size=40))
def test_any_text_is_read_or_refused(pieces):
    try:
        recipes = read_text("".join(pieces), environment={"HOME": "/h"})
    except RecipeError:
        return
    for recipe in recipes:
        assert all(isinstance(value, str) for flag in recipe.flags for value in flag.values)
