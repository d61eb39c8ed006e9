"""``agree(...)``: run a recipe up to its first step, and judge what its engine and its trainer say.

    runs/agree/NAME/verdict.json    measured.json (every token of both sides)    swift.log

The measuring is done in processes of their own, as many as the recipe trains with, with its flags
and variables (agreement/ here). Nothing of the recipe's output folder is touched.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from swift_vlrft.agreement.measurement import Job, Measurement
from swift_vlrft.agreement.verdict import Verdict, judge
from swift_vlrft.files.records import as_json, read_record, strict_json, write_record
from swift_vlrft.files.writing import write_atomically
from swift_vlrft.recipe.reader import Flag, Recipe, RecipeError, read_recipes, read_text
from swift_vlrft.recipe.rules import PROBLEM, check_recipe
from swift_vlrft.recipe.rules.data import DATA
from swift_vlrft.recipe.rules.model import MODEL
from swift_vlrft.recipe.rules.text import TEXT
from swift_vlrft.recipe.run import Run, resolve
from swift_vlrft.recipe.shipped import is_command, recipe_path
from swift_vlrft.swift_plugin.agreement.launch import measure, why_not
from swift_vlrft.swift_plugin.inference import chosen_engine

MEASURING = (
    *("--add_version", "false", "--report_to", "none", "--save_strategy", "no"),
    *("--eval_strategy", "no", "--split_dataset_ratio", "0", "--max_steps", "1"),
    *("--dataset_shuffle", "false", "--log_completions", "false", "--push_to_hub", "false"),
    *("--beta", "0", "--sync_ref_model", "false", "--async_generate", "false"),
)
"""Flags of a measurement: no reference model, no output, rows in the order of the set."""
OF_TURNS = {"multi_turn_scheduler", "max_turns"}
"""Flags that are left out: the first turn of each row is compared."""

GRPO_ONLY = "`vlrft agree` compares GRPO runs: give a recipe of `swift rlhf --rlhf_type grpo`"
FATAL_RULES = {"unknown-flag", "stray-word", "value", "json", "placeholder", "model", "dataset"}
"""Rules of `vlrft check`: without the model, the data or a valid flag nothing can be started."""


class AgreeError(RecipeError):
    """Nothing was compared; the message says why."""


def agree(
    target: str,
    *,
    out: Path | None = None,
    rows: int = 8,
    tokens: int = 64,
    flags: Sequence[str] = (),
) -> tuple[Verdict, Measurement, Path]:
    """Return the verdict on a recipe, and its folder."""
    is_text = is_command(target)
    commands = read_text(target) if is_text else read_recipes(recipe_path(target))
    recipe = next((command for command in commands if command.command == ("swift", "rlhf")), None)
    if recipe is None:
        names = ", ".join(" ".join(command.command) for command in commands)
        raise AgreeError(f"{target}: it holds {names}; {GRPO_ONLY}")
    written = read_text(shlex.join(["swift", "rlhf", *flags]))[0].flags
    added = [replace(flag, line=0) for flag in written]
    run = _checked(recipe, added)
    if vllm := run.true("use_vllm"):
        chosen_engine("vllm")  # it is installed
    left_out = {flag.name for flag in added} | OF_TURNS
    words = _flags(recipe, left_out, "" if vllm else "vllm_")
    # The other engine returns log-probabilities from before the temperature.
    chosen = () if vllm else ("--use_vllm", "false", "--temperature", "1")
    name = "command" if is_text else Path(target).name.removesuffix(".sh")
    out = out or Path("runs", "agree", name)
    out.mkdir(parents=True, exist_ok=True)
    result = out / "measured.json"
    for old in ("measured.json", "measured.error", "verdict.json"):
        (out / old).unlink(missing_ok=True)
    job = out / "job.json"
    write_record(job, Job(str(result.resolve()), rows, tokens))
    words = [str(job.resolve()), *words, *MEASURING, *flags, *chosen]
    words += ["--output_dir", str((out / "swift").resolve())]
    log = out / "swift.log"
    code = measure(recipe, run, words, log)
    if not result.is_file():
        why = why_not(result, log, code)
        raise AgreeError(f"{recipe.path}: nothing was compared: {why}")
    measured = read_record(result, Measurement)
    if run.text("multi_turn_scheduler"):
        measured.notes.append("the first turn of each row was compared")
    verdict = judge(measured)
    write_atomically(out / "verdict.json", strict_json(as_json(verdict)) + "\n")
    return verdict, measured, out


def _checked(recipe: Recipe, added: Sequence[Flag]) -> Run:
    """The run with those flags; AgreeError if it would certainly end before its first step."""
    run = resolve(replace(recipe, flags=[*recipe.flags, *added]))
    if not run.grpo:
        raise AgreeError(
            f"{recipe.path}:{run.line('rlhf_type')}: --rlhf_type {run.text('rlhf_type')} has no "
            f"engine whose tokens are trained on; {GRPO_ONLY}"
        )
    if (nodes := run.count("NNODES") or 1) > 1:
        raise AgreeError(
            f"{recipe.path}: NNODES is {nodes}, and `vlrft agree` compares on one node: give "
            "NNODES=1, and NPROC_PER_NODE as this machine has GPUs"
        )
    for finding in check_recipe(run, (*TEXT, *MODEL, *DATA)):
        if finding.level == PROBLEM and finding.rule in FATAL_RULES:
            where = f"{finding.path}:{finding.line}" if finding.line else "after --"
            text = " ".join(finding.text.split())
            raise AgreeError(f"{where}: {text}; change it there, or give another flag after --")
    return run


def _flags(recipe: Recipe, left_out: Collection[str], refused: str) -> list[str]:
    """Return the recipe's flags as words, without those that are ``left_out``.

    Flags that begin with ``refused`` go, too: ms-swift takes none about vLLM without it.
    """
    words: list[str] = []
    for flag in recipe.flags:
        if flag.name in left_out or (refused and flag.name.startswith(refused)):
            continue
        if not flag.known:
            raise AgreeError(
                f"{recipe.path}:{flag.line}: --{flag.name} {' '.join(flag.values)} cannot be read "
                "without running the script; write its value, set its variable, or give another "
                "flag after --"
            )
        words += [f"--{flag.name}", *flag.values] if flag.name else flag.values
    return words
