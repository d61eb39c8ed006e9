"""Resolve a recipe once: every flag gets its type, and ms-swift's default if it is missing.

    run = read_run("recipes/demo_cpu.sh")
    run.integer("num_generations")                  4
    run.text("eval_strategy")                       "no", as there is no set to evaluate on

A value that is not known without running the script, or that ms-swift would reject, raises when it
is accessed: a rule that needs it reports nothing, and the planner passes the error on.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from swift_vlrft.families.resize import RESOLUTION
from swift_vlrft.files.environment import truth
from swift_vlrft.recipe import facts as ms_swift
from swift_vlrft.recipe.facts import OLD_FLAGS
from swift_vlrft.recipe.reader import Flag, Recipe, only, read_recipes

Value = bool | int | float | str | tuple[Any, ...] | None

DIGITS = 18
"""Of the largest whole number that is taken; more do not fit into 64 bits."""
PLURAL = ("ints", "floats", "strs")
UNREAD = "cannot be read without running the script; write its value"


class NoValue(ValueError):
    """A value cannot be read: the message names file, line, flag and remedy."""


class NotKnown(NoValue):
    """Only running the script tells the value, or whether the flag has any."""


class NotTaken(NoValue):
    """ms-swift would refuse the value."""


@dataclass(frozen=True)
class Run:
    recipe: Recipe
    facts: ms_swift.Facts

    @cached_property
    def flags(self) -> dict[str, ms_swift.Flag]:
        return self.facts.flags(self.command)

    @cached_property
    def given(self) -> dict[str, Flag]:
        """Map current names to the flags that count: the last of a name, as in argparse."""
        named = ((flag, *self.named(flag)) for flag in self.recipe.flags)
        return {name: replace(f, values=v) if v != f.values else f for f, name, v in named}

    def named(self, flag: Flag) -> tuple[str, tuple[str, ...]]:
        """Return the current name of a flag, and its values."""
        if self.is_negated(flag.name):
            return flag.name.removeprefix("no_"), ("false",)
        return self.current_name(flag.name), flag.values

    def is_negated(self, name: str) -> bool:
        """transformers' parser adds such a flag, --no_freeze_vit, for each switch on by default."""
        fact = self.flags.get(name.removeprefix("no_"))
        return name.startswith("no_") and fact is not None and fact.default is True

    def current_name(self, name: str) -> str:
        """Return the current name for an old or abbreviated name; else the name itself."""
        if name in self.flags or not name:
            return name
        if (old := OLD_FLAGS.get(name)) is not None:
            return old.now or name
        # To argparse, --report may be --report_to or --report-to, and is refused.
        spelled = {s: flag for flag in self.flags for s in (flag, flag.replace("_", "-"))}
        longer = [flag for option, flag in spelled.items() if option.startswith(name)]
        return longer[0] if len(longer) == 1 else name

    def read(self, name: str) -> Value:
        """Return the value that ms-swift uses beside other flags."""
        value = self.as_given(name)
        return _derived(self, name, value) if name in DECIDED and self.trains else value

    def as_given(self, name: str) -> Value:
        """Return the recipe's value or the argument class's default; other flags change nothing."""
        recipe, flag, fact = self.recipe, self.given.get(name), self.flags.get(name)
        if flag is None and not recipe.omits(name):
            raise NotKnown(f"{recipe.path}:{recipe.line}: --{name} {UNREAD}")
        if flag is None:
            default = fact.default if fact else None
            return tuple(default) if isinstance(default, list) else default
        what = f"{recipe.path}:{flag.line}: {written(flag)}"
        if not flag.known:
            raise NotKnown(f"{what}{UNREAD}")
        try:
            return typed(fact, flag.values, self.facts.bounds.get(name))
        except ValueError as error:
            if not flag.values and fact and fact.kind in PLURAL:
                return ()
            raise NotTaken(f"{what}{error}") from None

    def omits(self, *names: str) -> bool:
        """Say whether none of the flags is given; NotKnown if that is not certain."""
        if any(name in self.given for name in names):
            return False
        for name in names:
            self.as_given(name)  # which raises it
        return True

    def integer(self, name: str) -> int:
        return int(self.read(name) or 0)  # type: ignore[arg-type]

    def number(self, name: str) -> float:
        return float(self.read(name) or 0)  # type: ignore[arg-type]

    def optional(self, name: str) -> int | None:
        """Return an integer, or None if neither the recipe nor ms-swift sets it."""
        return None if self.read(name) is None else self.integer(name)

    def true(self, name: str) -> bool:
        value = self.read(name)
        return bool(truth(value) if isinstance(value, str) else value)

    def text(self, name: str) -> str | None:
        value = self.read(name)
        return None if value is None else str(value)

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.read(name)
        return tuple(map(str, value)) if isinstance(value, tuple) else ()

    def json(self, name: str) -> dict[str, Any]:
        """Return a JSON object, inline or from a file; OSError or ValueError if it is neither."""
        text = self.text(name) or "{}"
        if not text.lstrip().startswith("{"):
            if (path := self.recipe.at(text)) is None:
                raise ValueError("its folder is not known")
            text = path.read_text()
        value = json.loads(text)
        if not isinstance(value, dict):
            raise ValueError("it is not a JSON object")
        return value

    def json_or_empty(self, name: str) -> dict[str, Any]:
        """Return a JSON object as ``json`` does, empty where that fails: another rule says so."""
        try:
            return self.json(name)
        except (OSError, ValueError):
            return {}

    @property
    def command(self) -> str:
        return self.recipe.command[-1]

    @property
    def trains(self) -> bool:
        return self.recipe.trains

    @property
    def grpo(self) -> bool:
        return self.command == "rlhf" and self.text("rlhf_type") == "grpo"

    @property
    def evaluates(self) -> bool:
        return self.text("eval_strategy") != "no"

    def line(self, name: str) -> int:
        """Return the line of the flag that counts, or of the command if there is none."""
        return self.given[name].line if name in self.given else self.recipe.line

    def variable(self, name: str) -> str | None:
        """Return a variable of the command's environment; None if it is not set."""
        if self.recipe.may_be_unread(name):
            notes = [note for note in self.recipe.notes if name in note.variable.split()]
            why = f" (line {notes[0].line}: {notes[0].text})" if notes else ""
            raise NotKnown(f"{self.recipe.path}: only bash knows {name}{why}; write its value")
        return self.recipe.environment.get(name)

    def count(self, name: str) -> int | None:
        """Return NPROC_PER_NODE or NNODES, or the launcher's option for it; None if not set."""
        recipe = self.recipe
        text = recipe.launched[name == "NNODES"] if recipe.launcher else self.variable(name)
        text = (text or "").strip()
        if recipe.launcher and not text:
            raise NotKnown(f"{recipe.path}: only bash knows how many {recipe.launcher} starts")
        if text and not re.fullmatch(rf"0*[1-9][0-9]{{,{DIGITS - 1}}}", text):
            needed = f"a whole number is needed, 1 or more, of {DIGITS} digits at most"
            raise NotTaken(f"{recipe.path}: {name}={text[:40]}: {needed}")
        return int(text) if text else None

    @property
    def processes(self) -> int:
        """Return the number of training processes on all nodes."""
        return (self.count("NPROC_PER_NODE") or 1) * (self.count("NNODES") or 1)

    @cached_property
    def image_limits(self) -> dict[str, str]:
        """Return the limits of images; --model_kwargs wins (base_args.py: _init_model_kwargs)."""
        both = self.recipe.environment | self.limits_in_kwargs
        limits = {name: both[name] for name in RESOLUTION if both.get(name, "").strip()}
        for name, text in limits.items():
            try:
                scalar("int", text.strip(), self.facts.bounds.get(name))
            except ValueError as error:
                raise NotTaken(f"{self.recipe.path}: {name}={text}: {error}") from None
        return limits

    @cached_property
    def limits_in_kwargs(self) -> dict[str, str]:
        kwargs = {name.upper(): str(value) for name, value in self.model_kwargs.items()}
        return {name: value for name, value in kwargs.items() if name in RESOLUTION}

    @cached_property
    def model_kwargs(self) -> dict[str, Any]:
        what = f"{self.recipe.path}: --model_kwargs {self.text('model_kwargs')}"
        try:
            return self.json("model_kwargs")
        except (OSError, ValueError):
            raise NotTaken(f"{what}: neither a JSON object nor a file with one") from None


def read_run(path: str | Path, environment: Mapping[str, str] | None = None) -> Run:
    """Read the command of a recipe that trains; if none does, its only command."""
    return resolve(only(read_recipes(path, environment)))


def resolve(recipe: Recipe, facts: ms_swift.Facts | None = None) -> Run:
    """Return the run of a recipe, by the facts of the installed ms-swift or by these."""
    return Run(recipe, facts or ms_swift.facts())


def typed(fact: ms_swift.Flag | None, values: Sequence[str], bounds: str | None = None) -> Value:
    """Return the value of a flag; ValueError says what is wrong with its text."""
    kind = fact.kind if fact else "str"
    if not values and kind != "bool":
        raise ValueError("has no value")
    if not values:
        return True
    if kind in PLURAL:
        return tuple(scalar(kind[:-1], value, bounds) for value in values)
    if fact and len(values) > 1:
        raise ValueError(f"takes one value, got {len(values)}: {' '.join(values)}")
    if not fact or not fact.choices:
        return scalar(kind, values[0], bounds)
    known = {str(choice): choice for choice in fact.choices}
    if values[0] not in known:
        raise ValueError(f"known are {', '.join(known)}")
    return known[values[0]]


def written(flag: Flag) -> str:
    """Write the flag in front of what is wrong with it."""
    return " ".join((f"--{flag.name}", *flag.values)) + (": " if flag.values else " ")


def scalar(kind: str, text: str, bounds: str | None = None) -> Value:
    """Return the value of a single word; ``bounds``: the interval that a number lies in."""
    if kind.startswith("bool"):
        if truth(text) is None:
            raise ValueError("true or false is needed")
        return truth(text)
    if kind not in ("int", "float"):
        return text
    said = f" in {bounds}" if bounds else ""
    try:
        value = int(text) if kind == "int" else float(text)
        if kind == "int" and abs(value) >= 10**DIGITS:
            said = f", of {DIGITS} digits at most"
        elif not bounds or within(value, bounds):
            return value
    except ValueError:
        pass
    raise ValueError(f"a {'whole ' * (kind == 'int')}number is needed{said}")


def within(value: float, bounds: str) -> bool:
    """Say whether a number lies in an interval that is written as `(0, 1]` or `[1, inf)`."""
    low, high = map(float, bounds[1:-1].split(","))
    above = value >= low if bounds[0] == "[" else value > low
    below = value <= high if bounds[-1] == "]" else value < high
    return above and below


# How ms-swift derives flags from others (rlhf_args.py, sft_args.py, trainers/arguments.py)

DECIDED = (
    *("eval_strategy", "split_dataset_ratio", "sleep_level", "vllm_tensor_parallel_size"),
    *("max_completion_length", "gradient_accumulation_steps", "beta", "learning_rate"),
    *("truncation_strategy", "vit_gradient_checkpointing"),
)


def _derived(run: Run, name: str, value: Value) -> Value:
    """Return the value that ms-swift sets, or ``value``, which the recipe gives, unchanged."""
    match name:
        case "eval_strategy":
            sets = ("val_dataset", "cached_val_dataset", "eval_dataset")
            ratio = run.as_given("split_dataset_ratio")
            if not ratio and not any(map(run.texts, sets)):
                return "no"
            return run.text("save_strategy") if value is None else value
        case "split_dataset_ratio" if not run.evaluates:
            return 0.0
        case "sleep_level" if run.grpo:
            apart = run.text("vllm_mode") == "server" or run.true("async_generate")
            return 0 if apart or not run.true("use_vllm") else value
        case "vllm_tensor_parallel_size" if run.grpo and not run.true("use_vllm"):
            return 1
        case "max_completion_length":
            for older in ("response_length", "max_new_tokens"):
                if older in run.given and older in run.flags:
                    return run.as_given(older)
        case "gradient_accumulation_steps" if value is None and not run.grpo:
            rows = run.integer("per_device_train_batch_size") * run.processes
            return max(1, math.ceil(16 / rows))
        case "gradient_accumulation_steps" if value is None:
            return 1
        case "beta" if value is None:
            return {"grpo": 0.04, "gkd": 0.5, "simpo": 2.0}.get(run.text("rlhf_type") or "", 0.1)
        case "learning_rate" if value is None:
            return 1e-5 if run.text("tuner_type") == "full" else 1e-4
        case "truncation_strategy" if value is None:
            return "left" if run.grpo else "delete"
        case "vit_gradient_checkpointing" if value is None:
            return run.true("gradient_checkpointing")
    return value
