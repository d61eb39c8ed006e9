"""What our reader calls known is what bash hands to `swift`; no rule sees a problem in it."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.random_scripts import script as random_script
from support.shell_scripts import SCRIPTS, TOKENS

from swift_vlrft.recipe.reader import RecipeError, read_recipes
from swift_vlrft.recipe.rules import PROBLEM, check_recipe

SWIFT = f"""#!{sys.executable} -SE
import json, os, sys
name = os.path.basename(sys.argv[0])
method = [] if name == "swift" else [name.removesuffix(".py")]
with open(os.environ["SEEN"], "a") as out:
    out.write(json.dumps([method + sys.argv[1:], dict(os.environ)]) + "\\n")
"""
OPTIONS = {
    "uv": "--python",
    "srun": "-N|-p",
    "conda": "-n",
    "pixi": "-e",
    "poetry": "",
    "xvfb-run": "",
    "sudo": "",
    "ionice": "-c",
    "accelerate": "--num_processes|--config_file",
    "torchrun": "--nproc_per_node|--nnodes",
}
"""Wrappers that a machine may lack, as scripts that skip their options: those that take a value."""
STUB = """#!/bin/bash
case $1 in run|launch) shift;; esac
while [[ $1 == -* || $1 == *=* ]]; do
  case $1 in -m) break;; *=*) [[ $1 == -* ]] || export "$1";; {0}) shift;; esac
  shift
done
case $1 in
  -m) shift; f=${{1//.//}}; shift; exec $f.py "$@";;
  *.py) exec "./$@";;
  *) exec "$@";;
esac
"""
PYTHON = """#!/bin/bash
[ "$1" = -u ] && shift
case $1 in -m) f=${2//.//}.py; shift 2;; *) f=$1; shift;; esac
exec "$f" "$@"
"""
CONF = "rlhf_type: grpo\nmodel: m\ndataset: d\nreward-funcs: format\nnum-generations: 8\n"
CONF += "per_device_train_batch_size: 8\ngradient_accumulation_steps: 1\n"
RANDOM = range(80)
OWN = {"PWD", "SHLVL", "_", "LC_CTYPE", "OLDPWD", "_STDBUF_O", "_STDBUF_E", "LD_PRELOAD"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Every script, run by bash: its folder, and (arguments, environment) of each `swift`."""
    root = tmp_path_factory.mktemp("bash")
    tools = root / "tools"
    tools.mkdir()
    stubs = {name: STUB.format(values or "-") for name, values in OPTIONS.items()}
    for name, text in {**stubs, "swift": SWIFT, "python": PYTHON}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)

    def run(item):
        at, (name, script) = item
        folder = root / str(at)
        (folder / "data").mkdir(parents=True)
        for file in ("a.jsonl", "b.jsonl", "my set.jsonl"):
            (folder / "data" / file).write_text('{"messages": [], "solution": ""}\n')
        (folder / "env.sh").write_text("# settings\nFROM_ENV=1\nNPROC_PER_NODE=8\n")
        (folder / "args.txt").write_text("--a 1 --beta 0\n")
        (folder / "conf.yaml").write_text(CONF)
        for path in ("bin/swift", "swift/cli/rlhf.py", "swift/cli/sft.py"):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(SWIFT)
            (folder / path).chmod(0o755)
        for token, text in TOKENS.items():
            script = script.replace(token, text)
        (folder / "recipe.sh").write_text(script)
        environment = {
            "PATH": f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin",
            "GIVEN": "given by the caller",
            "SEEN": str(folder / "seen"),
            "HOME": "/nowhere",
        }
        done = subprocess.run(
            ["bash", "recipe.sh"],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=600,
        )
        (folder / "log").write_text(done.stderr)
        seen = folder / "seen"
        lines = seen.read_text().splitlines() if seen.is_file() else []
        return name, (folder, environment, [json.loads(line) for line in lines])

    scripts = {name: script for name, (script, _) in SCRIPTS.items()}
    scripts |= {seed: random_script(seed) for seed in RANDOM}
    with ThreadPoolExecutor(4) as pool:
        return dict(pool.map(run, enumerate(scripts.items())))


def given(argv):
    """Flags as argparse sees them: name to values, the last of a name."""
    flags, stray = {}, []
    for word in argv[1:]:
        if word.startswith("-") and not word[1:2].isdigit() and " " not in word.partition("=")[0]:
            name, equals, value = word.lstrip("-").partition("=")
            stray = flags[name.replace("-", "_")] = [value] if equals else []
        else:
            stray.append(word)
    return flags


def disagreement(recipe, argv, environment, unknown):
    """What we call known and bash does not say; None where all is right."""
    if recipe.command[1] != argv[0]:
        return "command", recipe.command
    seen = given(argv)
    for name in {*seen, *(flag.name for flag in recipe.flags if flag.name)}:
        flag = recipe.flag(name)
        if flag is None if recipe.lacks(name) else recipe.knows(name):
            if (list(flag.values) if flag else None) != seen.get(name):
                return name, flag, seen.get(name)
        elif unknown != "*" and name not in unknown.split():
            return name, "is unknown"
    for name in {*recipe.environment, *environment} - OWN:
        if recipe.hides(name):
            if unknown != "*" and name not in unknown.split():
                return name, "is unknown"
        elif recipe.environment.get(name) != environment.get(name):
            return name, recipe.environment.get(name), environment.get(name)
    return None


@pytest.fixture
def read(runs, monkeypatch):
    monkeypatch.setattr("swift_vlrft.recipe.rules.gpus.gpus_here", lambda: 0)

    def read(name):
        folder, environment, seen = runs[name]
        monkeypatch.chdir(folder)
        return read_recipes("recipe.sh", environment), seen

    return read


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_is_known_is_what_bash_says(name, read, runs):
    recipes, seen = read(name)
    unknown = SCRIPTS[name][1]
    wrong = {}
    for argv, environment in seen:
        if argv[:2] == ["rlhf", "conf.yaml"]:
            argv = ["rlhf", *(w for line in CONF.splitlines() for w in _as_flag(line)), *argv[2:]]
        said = [disagreement(recipe, argv, environment, unknown) for recipe in recipes]
        if None not in said:
            wrong[" ".join(argv)] = said
    assert seen and not wrong, (runs[name][0] / "log").read_text()
    assert len(recipes) == len(seen) or "loop" in name


def test_random_scripts_agree_with_bash(read, runs):
    """Assignments, conditions, loops, functions, arrays: what we do not know may be anything."""
    known = compared = 0
    for seed in RANDOM:
        if not runs[seed][2]:
            continue  # it ended before its first command
        recipes, seen = read(seed)
        for argv, environment in seen:
            environment = {k: v for k, v in environment.items() if "%%" not in k}  # functions
            same = [r for r in recipes if (id := r.flag("id")) and id.values[0] == argv[2]]
            said = [disagreement(recipe, argv, environment, "*") for recipe in same]
            assert None in said, (seed, argv, said, random_script(seed))
            compared += 1
            known += sum(flag.known for recipe in same for flag in recipe.flags)
    assert compared > 80 and known > 2 * compared


def _as_flag(line):
    name, value = line.split(": ")
    return [f"--{name}", value]


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_problem_is_seen_in_a_sound_script(name, read):
    found = [found for recipe in read(name)[0] for found in check_recipe(recipe)]
    found = [f for f in found if f.rule not in ("unknown-flag", "value", "reward")]  # --x, made up
    assert [f.text for f in found if f.level == PROBLEM] == []


MS_SWIFT = os.environ.get("VLRFT_MS_SWIFT", "")
TRUE = {"placeholder", "not-installed"}
"""What is wrong with examples of ms-swift: they hold placeholders, and need other packages."""


@pytest.mark.skipif(
    not (MS_SWIFT and Path(MS_SWIFT, "examples").is_dir()),
    reason="VLRFT_MS_SWIFT names no checkout of ms-swift",
)
def test_the_examples_of_ms_swift_have_no_other_problem(monkeypatch):
    """All of its GRPO scripts; none of them is kept here."""
    monkeypatch.chdir(MS_SWIFT)
    monkeypatch.setattr("swift_vlrft.recipe.rules.gpus.gpus_here", lambda: 0)
    problems, count = {}, 0
    for path in sorted(Path("examples").rglob("*.sh")):
        text = path.read_text()
        if "grpo" not in f"{path} {text}".lower():
            continue
        try:
            recipes = read_recipes(path, {})
        except RecipeError:
            assert not any(line.lstrip().startswith("swift rlhf") for line in text.splitlines())
            continue
        count += 1
        found = [f for recipe in recipes for f in check_recipe(recipe) if f.level == PROBLEM]
        problems[str(path)] = [(f.line, f.text) for f in found if f.rule not in TRUE]
    assert {path: said for path, said in problems.items() if said} == {}
    assert count > 30
