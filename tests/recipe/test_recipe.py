"""Recipes as data: what bash itself would hand to `swift` is what the reader says."""

import json
import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies
from support.limits import time_limit

from swift_vlrft.recipe.reader import RecipeError, read_recipe, read_recipes, read_text

OURS = sorted((Path(__file__).resolve().parents[2] / "recipes").glob("*/*.sh"))

# A `swift` that writes down what it was given: bash is the oracle.
ORACLE = f"""#!{sys.executable}
import json, os, sys
with open(os.environ["SEEN"], "a") as out:
    out.write(json.dumps([sys.argv[1:], dict(os.environ)]) + "\\n")
"""

SCRIPTS = {
    "continued": 'A=1 \\\nB="two words" swift rlhf \\\n  --model m \\\n  --x 1 2 3\n',
    "comments": "# swift sft --model no\nswift rlhf --model m # --not this\n",
    "hash inside": "swift rlhf --dataset set#100 --x 'a # b'\n",
    "defaults": 'M=${MODEL:-Q/a b}\nswift rlhf --model "$M" --x ${EMPTY:-d} ${EMPTY-e} "${G:-}"\n',
    "given": 'swift rlhf --model "${GIVEN:-none}" --x ${GIVEN:+yes} "${NO:+no}"\n',
    "assigning default": ': "${A:=7}"\nswift rlhf --x $A ${B:=8} --y $B\n',
    "json": 'swift rlhf --limit_mm \'{"image": 2}\' --x "{\\"a\\": \\"$GIVEN\\"}"\n',
    "splitting": 'FLAGS="--a 1 --b"\nswift rlhf $FLAGS 2 --c "$FLAGS"\n',
    "arrays": 'F=(--a 1 --b "x y")\nF+=(--c)\nswift rlhf "${F[@]}" --d "${F}"\n',
    "arguments": 'swift rlhf --model m "$@"\n',
    "argument one": 'swift rlhf --model "$1" --x "${2:-two}" --n $#\n',
    "exports": "export A=1 B\nB=2\nC=3\nexport C\nD=4\nswift rlhf --x $A$B$C$D\n",
    "prefix only": "A=1\nA=2 swift rlhf --x $A\nswift sft --x $A\n",
    "two": "swift rollout --model m &\nswift rlhf --model m; swift sft --model n\n",
    "quotes join": "swift rlhf --x a'b c'\"d\"e --y '' --z \"\"\n",
    "escapes": 'swift rlhf --x a\\ b "\\$A \\\\ \\n" \\"q\\"\n',
    "redirected": "swift rlhf --x 1 > /dev/null 2>&1\nswift sft --y 2 2>/dev/null | cat\n",
    "heredoc": "cat > /dev/null <<EOF\nswift rlhf --not this\nEOF\nswift rlhf --x 1\n",
    "wrapped": "env A=1 timeout 60 swift rlhf --x 1\n",
    "nested default": 'swift rlhf --x "${A:-${B:-deep}}" --y "${A:-$GIVEN}"\n',
    "multi line quote": "swift rlhf --system 'one\ntwo' \\\n --x 1\n",
    "dollar alone": "swift rlhf --x \"5$\" --y a$ --z '$A'\n",
    "gpus": "N=${N:-4}\nexport G=${G-$(seq -s, 0 $((N - 1)))}\nswift rlhf --x $((N + 1)) $G\n",
    "later gpus": 'N=2\nG="$(seq -s, $N $((N + 1)))" swift rlhf --x 1\n',
    "one gpu": "N=1\nexport G=$(seq -s, 0 $((N - 1)))\nswift rlhf --x $G\n",
    "negative": "swift rlhf --top_k -1 --x=3 --y= 4\n",
    "unquoted list": "X='1 2'\nswift rlhf --report_to ${X} \\\n    --y 1\n",
    "strict": 'set -euo pipefail\ncd "$(dirname "$0")"\nswift rlhf --x 1 "$@"\n',
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_reads_what_bash_would_run(name, tmp_path):
    (tmp_path / "swift").write_text(ORACLE)
    (tmp_path / "swift").chmod(0o755)
    script = tmp_path / "recipe.sh"
    script.write_text(SCRIPTS[name])
    environment = {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "GIVEN": "given by the caller",
        "SEEN": str(tmp_path / "seen"),
    }
    arguments = ["--more", "a b", "--last", "3"]
    subprocess.run(["bash", script, *arguments], env=environment, check=True, timeout=600)
    read = read_recipes(script, environment, arguments)
    # A command in the background may write later than the next one, and than bash ends.
    end = time.monotonic() + 200
    while len(lines := (tmp_path / "seen").read_text().splitlines()) < len(read):
        if time.monotonic() > end:
            break
        time.sleep(0.05)
    seen = [json.loads(line) for line in lines]
    as_argv = [
        [recipe.command[1], *(w for f in recipe.flags for w in _words(f))] for recipe in read
    ]
    assert sorted(as_argv) == sorted(_normal(argv) for argv, _ in seen)
    own = {"PWD", "SHLVL", "_", "LC_CTYPE", "OLDPWD"}
    environments = [{k: v for k, v in e.items() if k not in own} for _, e in seen]
    for recipe in read:
        assert {k: v for k, v in recipe.environment.items() if k not in own} in environments
        assert all(flag.known for flag in recipe.flags)


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
@pytest.mark.parametrize("given", [{}, {"NPROC_PER_NODE": "2"}, {"CUDA_VISIBLE_DEVICES": ""}])
def test_our_recipes_read_as_bash_runs_them(path, given, tmp_path):
    """The GPUs of each process above all: the first NPROC_PER_NODE, or what the caller names."""
    (tmp_path / "swift").write_text(ORACLE)
    (tmp_path / "swift").chmod(0o755)
    environment = {
        **{"DATASET": "d", "NODE_RANK": "0", "MASTER_ADDR": "a", "PLUGIN": "p", **given},
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "SEEN": str(tmp_path / "seen"),
    }
    subprocess.run(["bash", path], env=environment, check=True, timeout=600)
    seen = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    (trained,) = [run for run in seen if run[0][0] in ("rlhf", "sft")]
    (recipe,) = [recipe for recipe in read_recipes(path, environment) if recipe.trains]
    assert [recipe.command[-1], *(w for f in recipe.flags for w in _words(f))] == trained[0]
    names = ("NPROC_PER_NODE", "CUDA_VISIBLE_DEVICES")
    count, gpus = (recipe.environment[name] for name in names)
    assert [count, gpus] == [trained[1][name] for name in names]
    if "server" in path.stem or "CUDA_VISIBLE_DEVICES" not in given:
        assert gpus == ",".join(map(str, range(int(count))))
        rollout = [r for r in read_recipes(path, environment) if not r.trains]
        after = f"{count},{int(count) + 1}"
        assert all(r.environment["CUDA_VISIBLE_DEVICES"] == after for r in rollout)
    else:
        assert gpus == ""


def _words(flag):
    return [*([f"--{flag.name}"] if flag.name else []), *flag.values]


def _normal(argv):
    """--a=b as --a b, as argparse reads it."""
    return [
        w
        for word in argv
        for w in (word.split("=", 1) if word.startswith("--") and "=" in word else [word])
    ]


def test_lines_and_flags():
    (recipe,) = read_text(
        "# first\nA=1 \\\nswift rlhf \\\n  --model m \\\n  --top_k -1 \\\n  --x\n"
    )
    assert recipe.command == ("swift", "rlhf")
    assert recipe.line == 3
    assert [(f.name, f.values, f.line) for f in recipe.flags] == [
        ("model", ("m",), 4),
        ("top_k", ("-1",), 5),
        ("x", (), 6),
    ]
    assert recipe.get("model") == "m" and recipe.get("none", "8") == "8"
    assert recipe.values("none") == ()


PLACES = """\ufeffARGS=( --num_generations 8 \r
  --train_type "lo ra" )
export MAX_PIXELS=${MAX_PIXELS:-401408}\r
NPROC_PER_NODE='4' env B=1 swift rlhf --model "$M" "${ARGS[@]}" \\\r
  --x=3 --y > log 2>&1 &
"""


def test_where_everything_stands():
    (recipe,) = read_text(PLACES, environment={"M": "m"})

    def written(span):
        return span and (recipe.text[span.start : span.end], span.literal)

    assert recipe.text == PLACES
    assert written(recipe.span)[0].startswith("swift rlhf --model")
    assert written(recipe.span)[0].endswith("--x=3 --y")
    assert recipe.text[recipe.start :].startswith("NPROC_PER_NODE='4' env B=1 swift rlhf --model")
    stand = [(f.line, written(f.span), [written(s) for s in f.value_spans]) for f in recipe.flags]
    assert stand == [
        (4, ("--model", True), [('"$M"', False)]),
        (1, ("--num_generations", True), [("8", True)]),
        (2, ("--train_type", True), [('"lo ra"', True)]),
        (5, ("--x", True), [("3", True)]),
        (5, ("--y", True), []),
    ]
    assert {k: (a.line, written(a.name), written(a.value)) for k, a in recipe.assigned.items()} == {
        "MAX_PIXELS": (3, ("MAX_PIXELS", True), ("${MAX_PIXELS:-401408}", False)),
        "NPROC_PER_NODE": (4, ("NPROC_PER_NODE", True), ("'4'", True)),
        "B": (4, ("B", True), ("1", True)),
    }


def test_a_carriage_return_is_no_part_of_a_value():
    (recipe,) = read_text("# \u00fc\nswift rlhf --x 1\r\n", environment={})
    (flag,) = recipe.flags
    assert [recipe.text[span.start : span.end] for span in (flag.span, *flag.value_spans)] == [
        "--x", "1"
    ]  # fmt: skip
    assert recipe.text[recipe.start : recipe.span.end] == "swift rlhf --x 1"


def test_where_a_configuration_says_it(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("model: 'a b'  # why\nreward_funcs:\n  - one\n  - two\n")
    recipe = read_recipe(path, {})
    stand = [[recipe.text[s.start : s.end] for s in (f.span, *f.value_spans)] for f in recipe.flags]
    assert stand == [["model", "'a b'"], ["reward_funcs", "one", "two"]]
    (shell,) = read_text(f"swift rlhf {path} --x 1", environment={})
    spans = {f.name: (f.span, *f.value_spans) for f in shell.flags}
    assert spans["model"] == (None, None) and spans["reward_funcs"] == (None, None, None)
    assert shell.text[spans["x"][0].start :] == "--x 1"


def test_the_last_of_a_repeated_flag_counts():
    (recipe,) = read_text('swift rlhf --model a --x 1 "$@"', arguments=["--x", "2", "3"])
    assert recipe.get("x") == "2" and recipe.values("x") == ("2", "3")


@pytest.mark.parametrize(
    ("script", "kind", "line", "said"),
    [
        ("swift rlhf --model m\n  --x 1 \\\n  --y 2\n", "continuation", 2, "--x"),
        ("swift rlhf --model m \\ \n  --x 1\n", "continuation", 1, "blank"),
        ("swift rlhf --model m \\\n  # why\n  --x 1\n", "continuation", 3, "comment"),
        ("swift rlhf --model m \\\r\n  --x 1\r\n", "continuation", 1, "carriage return"),
        ("swift rlhf --model m\n  a.jsonl \\\n  --y 2\n", "continuation", 2, "ends line 1"),
        ('swift rlhf --model m\n  "$@"\n', "continuation", 2, "ends line 1"),
        ("\ufeffswift rlhf --model m\n", "syntax", 1, "byte order mark"),
        ("NNODES=2\nswift rlhf --model m\n", "not-exported", 1, "export NNODES"),
        ("NNODES=${NNODES:-2}\nA=1 swift rlhf\n", "not-exported", 1, "export NNODES"),
        ('A=1\nswift rlhf --model "$NONE"\n', "unset", 2, "$NONE"),
        ("swift rlhf --model ${M:?give a model}\n", "needed", 1, "give a model"),
        ("swift rlhf --port <node1_port>\n", "placeholder", 1, "<node1_port>"),
        ("swift rlhf --x $(nproc)\n", "unread", 1, "$(nproc)"),
        ("swift rlhf --x $((2 * 3))\n", "unread", 1, "$((2 * 3))"),
        ("swift rlhf --x $(seq -s, 0 $((N - 1)))\n", "unread", 1, "$((N - 1))"),
        ("swift rlhf --x $(seq -s, 1 2 9)\n", "unread", 1, "seq -s, 1 2 9"),
        ("swift rlhf --x $(seq -s, 0 99999999)\n", "unread", 1, "99999999"),
        ("swift rlhf --x ${A%.sh}\n", "unread", 1, "${A%.sh}"),
        ("source other.sh\nswift rlhf --x 1\n", "unread", 1, "other.sh"),
        ("if true; then\nswift rlhf --x 1\nfi\n", "conditional", 2, "line 1"),
        ("N=1\n[ -d x ] && N=2\nswift rlhf --x $N\n", "unread", 2, "the `&&` of line 2"),
        ("export N\nread N\nswift rlhf --x 1\n", "unread", 2, "`read` sets it"),
        ("A=$(date)\nB=$A\nswift rlhf --x $B\n", "unread", 1, "$(date)"),
        ("swift rlhf --x 1\nssh host swift rlhf --x 2\n", "unread", 2, "`ssh` is given"),
        ("swift rlhf --x 1\nsbatch --wrap='swift sft --x 2'\n", "unread", 2, "`sbatch`"),
        ("swift rlhf --x 1\n$LAUNCH -n 2 swift rlhf\n", "unread", 2, "`$LAUNCH`"),
        ("swift rlhf --x 1\nbash more.sh\n", "unread", 2, "more.sh"),
        ('eval "$(cat x)"\nswift rlhf --x 1\n', "unread", 1, "may do anything"),
        ("swift rlhf --x a $EXTRA\n", "needed", 1, "$EXTRA"),
        ("swift rlhf --x 1\nssh host <<E\nswift sft\nE\n", "unread", 2, "`ssh` is given"),
        ("swift rlhf --x 1\ncat > a.sh <<E\nswift sft\nE\n", "unread", 2, "`cat` is given"),
        ("swift rlhf --x 1\n$(which swift) sft --y 2\n", "unread", 2, "only bash knows"),
        ("swift rlhf --x 1\nM=m swift sft --x $M\n", "unset", 2, "$M"),
        ('[ -n "$M" ] || exit 1\nswift rlhf --x $M\n', "needed", 2, "$M"),
        ("export NODE_RANK=$RANK\nswift rlhf --x 1\n", "needed", 1, "$RANK"),
        ("swift rlhf --x $1\n", "needed", 1, "$1"),
        ("M=$NONE/m\nswift rlhf --x $M\n", "unset", 1, "$NONE"),
        ("f() { f; f; }\nf\nswift rlhf\n", "unread", 1, "calls itself"),
        ("swift rlhf --x 1\nswift rlhf --x 'open\n", "syntax", 2, "without closing quote"),
        ("swift rlhf --x 1\n()( ls )\n", "syntax", 2, "no function without a name"),
        (
            "case x in x) A=2 ;& *) B=3;; esac\nswift rlhf --x $A\n",
            "unread",
            1,
            "a `case` with `;&`",
        ),
        ("swift rlhf --x 1\nif a; then\n  swift rlhf --y\n", "syntax", 2, "must end with `fi`"),
        ("swift rlhf --x 1\nswift rlhf \\\n  --x 'open", "syntax", 3, "without closing quote"),
    ],
)
def test_says_what_it_cannot_read_and_where(script, kind, line, said):
    notes = read_text(script, environment={})[0].notes
    (note,) = [note for note in notes if note.kind == kind]
    assert note.line == line
    assert said in note.text


@pytest.mark.parametrize(
    "script",
    [
        "swift rlhf --model m \\\n  a.jsonl\n",
        "  swift rlhf --model m\n  echo done\n",
        "swift rlhf --model m &&\n  echo done\n",
        "if swift rlhf --model m; then\n  echo done\nfi\n",
        "export NNODES=2\nswift rlhf\n",
        "NNODES=2\nexport NNODES\nswift rlhf\n",
        "set -a\nNNODES=2\nswift rlhf\n",
        "NNODES=2 swift rlhf\n",
        "N=2\nNNODES=$N swift rlhf\n",
        "NNODES=2\nNNODES=$NNODES swift rlhf\n",
        "NPROC_PER_NODE=2\ntorchrun --nproc_per_node $NPROC_PER_NODE swift/cli/rlhf.py\n",
    ],
)
def test_lines_that_are_not_lost(script):
    kinds = {note.kind for recipe in read_text(script, environment={}) for note in recipe.notes}
    assert not kinds & {"continuation", "not-exported", "conditional"}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("ssh host 'swift rlhf --x 1'\n", "`ssh` is given a `swift` command"),
        ("docker run image swift rlhf --x 1\n", "`docker` is given"),
        ('bash -c "$(cat command)"\n', "was not read"),
        ("sbatch train.slurm\n", "no `swift"),
        ("sbatch <<EOF\nsrun swift rlhf --x 1\nEOF\n", "`sbatch` is given a `swift` command"),
        ("echo 'swift rlhf' | bash\n", "line 1: `bash` reads commands from .*, a pipe"),
        ("bash <<EOF\nswift rlhf --x 1\nEOF\n", "line 1: `bash` reads commands from a document"),
        ("bash --norc swift.sh\n", "line 1: `bash swift.sh` runs another file"),
        ("bash <<< 'swift rlhf --x 1'\n", "line 1: `bash` reads commands from a document"),
        ("f() {\nswift rlhf --x 1\n}\n", "line 1: the function f is not called here"),
        ("megatron rollout --model m\n", "or `megatron rlhf` command in it"),
        ("$SWIFT rlhf\n", "line 1: `.SWIFT`, a name that only bash knows"),
        ("exit 1\nswift rlhf --x 1\n", "no `swift"),
        (
            "swift rlhf --x 'open\n",
            "line 1: reached EOF without closing quote `'`: nothing below read",
        ),
        ("if x; then\nswift rlhf\n", "line 1: `if` statement must end with `fi`"),
    ],
)
def test_no_command_says_why(script, said):
    with pytest.raises(RecipeError, match=said):
        read_text(script, environment={})


def test_flags_of_an_array_are_reported_where_they_stand(tmp_path):
    text = 'ARGS=(\n  --train_type lora\n)\nswift sft \\\n  --model m \\\n  "${ARGS[@]}"\n'
    (recipe,) = read_text(text, environment={})
    assert [(flag.name, flag.line) for flag in recipe.flags] == [("model", 5), ("train_type", 2)]


def test_what_is_not_set_and_what_is_not_known_differ():
    text = "export A=1 B=$(x)\nunset C\nswift rlhf --a 1 --b $(x) --c\n"
    (recipe,) = read_text(text, environment={"C": "3", "D": "4"})
    assert [recipe.environment.get(name, "-") for name in "ACDE"] == ["1", "-", "4", "-"]
    assert [recipe.hides(name) for name in "ABCDE"] == [False, True, False, False, False]
    assert [recipe.get(name, "-") for name in "abcd"] == ["1", None, "-", "-"]
    assert [recipe.lacks(name) for name in "abcd"] == [False, False, False, True]
    (recipe,) = read_text('[ -n "$R" ] && F="--d 1"\nswift rlhf --a 1 $F\n', environment={})
    assert (recipe.get("a"), recipe.get("d", "-"), recipe.lacks("d")) == ("1", None, False)
    (recipe,) = read_text("source none.sh\nswift rlhf --a 1\n", environment={"A": "1"})
    assert recipe.hides("A") and recipe.hides("Z")


def test_a_script_is_followed_for_so_long_and_no_longer():
    script = "for i in 1 2; do A=$B; " * 16 + "swift rlhf\n" + "done; " * 16
    with pytest.raises(RecipeError, match="too many steps"):
        read_text(script, environment={})


@pytest.mark.parametrize(
    "script",
    [
        "A=aaaaaaaa\n" + "A=$A$A\n" * 60,
        "A=aa\n" + "A+=$A\n" * 60,
        "A='a a'\n" + 'A="$A $A"\n' * 18 + "B=($A $A $A)\n" * 20,
        "A=(a a)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 60,
        "set -- a a\n" + 'set -- "$@" "$@"\n' * 60,
        "A=aaaaaaaa\n" + "A=$A$A\n" * 16 + "".join(f"B{n}=$A.\n" for n in range(4000)),
        "A='x;x;'\n" + 'A="$A$A"\n' * 17 + 'eval "$A"\n',
    ],
    ids=range(7),
)
def test_a_text_that_doubles_is_followed_for_so_long(script):
    tracemalloc.start()
    with pytest.raises(RecipeError, match=r"line \d+: its words become too long a text"):
        read_text(script + "swift rlhf --system $A\n", environment={})
    assert tracemalloc.get_traced_memory()[1] < 300 * 2**20
    tracemalloc.stop()


def test_a_long_document_is_passed_over_at_once():
    text = "cat > notes <<E\n" + "a 'quote $A and so on\n" * 20_000 + "E\nswift rlhf --x 1\n"
    with time_limit(20):
        (recipe,) = read_text(text, environment={})
    assert recipe.get("x") == "1"


def test_carriage_returns_of_a_file(tmp_path):
    path = tmp_path / "windows.sh"
    path.write_bytes(b"swift rlhf --model m \\\r\n  --x 1\r\n")
    (recipe,) = read_recipes(path)
    assert [note.kind for note in recipe.notes] == ["continuation"] and recipe.get("x") == "1"


def test_a_module_is_a_command():
    (recipe,) = read_text("python -m swift.cli.rlhf --model m")
    assert recipe.command == ("swift", "rlhf") and recipe.get("model") == "m"


def test_never_guesses():
    text = 'if [ -n "$A" ]; then\n N=8\nfi\nswift rlhf --num_generations "$N" --x "$(nproc)"\n'
    (recipe,) = read_text(text, environment={})
    assert [flag.known for flag in recipe.flags] == [False, False]
    assert recipe.get("num_generations") is None
    assert recipe.values("x") == ()
    assert recipe.flag("x").values == ("$(nproc)",)


def test_the_own_plugin_is_known():
    (recipe,) = read_text('swift rlhf --external_plugins "${PLUGIN:-$(vlrft plugin)}"', "c", {})
    assert Path(recipe.get("external_plugins")).is_file()


def test_yaml_and_json_are_read_as_ms_swift_does(tmp_path):
    yaml = tmp_path / "c.yaml"
    yaml.write_text(
        "rlhf_type: grpo\nreward_funcs:\n  - a\n  - b\n"
        "vllm_limit_mm_per_prompt: {image: 2}\nuse_vllm: true\nENV:\n  MAX_PIXELS: 401408\n  B: 1\n"
    )
    recipe = read_recipe(yaml, {"B": "2"})
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
    assert read_recipe(config, {}).get("beta") == "0.0"
    yaml.write_text("beta: 0.1\nx: 1\nbeta: 0.2\n")
    assert [(f.name, f.values, f.line) for f in read_recipe(yaml, {}).flags] == [
        ("beta", ("0.1",), 1), ("x", ("1",), 2), ("beta", ("0.2",), 3)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.sh", "echo swift rlhf\n", "no `swift"),
        ("a.yaml", "a: [1\n", "does not parse"),
        ("a.yaml", "- 1\n", "not a table"),
        ("a.json", "{'a': 1}", "does not parse"),
        ("a.json", '{"a": ' * 3000, "does not parse"),
        ("a.yaml", "model: m\nENV: [1]\n", "ENV is not a table"),
        ("a.sh", "swift rlhf none.yaml --beta 0\n", "line 1: none.yaml: no such file"),
        ("a.sh", "A=1\nswift rlhf binary.yaml\n", "binary.yaml: cannot be read"),
    ],
)
def test_what_is_no_recipe(tmp_path, name, text, said):
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / name).write_text(text)
    with pytest.raises(RecipeError, match=said):
        read_recipes(tmp_path / name, {})


def test_unreadable_files(tmp_path):
    with pytest.raises(RecipeError, match="cannot be read"):
        read_recipes(tmp_path / "none.sh")
    (tmp_path / "binary.sh").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecipeError, match="cannot be read"):
        read_recipes(tmp_path / "binary.sh")
    (tmp_path / "gbk.sh").write_bytes("# \u4e2d\nswift rlhf --x '\u4e2d'\n".encode("gbk"))
    with pytest.raises(RecipeError, match="cannot be read: line 2: byte 0xd6.*iconv"):
        read_recipes(tmp_path / "gbk.sh")


def test_a_configuration_that_the_script_writes_is_read_from_the_script(tmp_path, monkeypatch):
    """Not from a file of that name which an earlier run has left."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("beta: 7\n")
    script = "cat > a.yaml <<EOF\nrlhf_type: grpo\nbeta: {}\nEOF\n{}swift rlhf a.yaml --x 1\n"
    (recipe,) = read_text(script.format("0.1", ""), environment={})
    assert (recipe.get("beta"), recipe.get("x")) == ("0.1", "1")
    for text in (script.format("$(date)", ""), script.format("0.1", "date >> a.yaml\n")):
        (recipe,) = read_text(text, environment={})
        assert not recipe.knows("beta") and recipe.get("x") == "1"
        assert any("a.yaml was not read: the script writes it" in n.text for n in recipe.notes)


def test_a_server_recipe_has_one_command_that_trains():
    recipes = read_text("swift rollout --model m &\nswift rlhf --model m\n")
    assert [recipe.command[1] for recipe in recipes] == ["rollout", "rlhf"]
    assert [recipe.trains for recipe in recipes] == [False, True]


PIECES = ["swift rlhf ", "--a ", "$A", "${A:-", "}", "$(", ")", "((", "`", "'", '"', "\\", "\\\n"]
PIECES += ["\n", " ", "#", "<", ">", "<<E\n", "E\n", "A=(", "A+=b ", ";", "&", "|", "if ", "fi\n"]
PIECES += [
    "for x in ",
    "case ",
    "{ ",
    "} ",
    "f() ",
    "export A=b\n",
    "${!A",
    "$@",
    "é",
    "\r\n",
    "~/",
]


@settings(max_examples=400, deadline=None)
@given(strategies.lists(strategies.sampled_from(PIECES), max_size=40))
def test_any_text_is_read_or_refused(pieces):
    try:
        recipes = read_text("".join(pieces), environment={"HOME": "/h"})
    except RecipeError:
        return
    for recipe in recipes:
        assert all(isinstance(value, str) for flag in recipe.flags for value in flag.values)
