"""Find flags that do not go together, do nothing beside others, or work against learning.

--vllm_mode colocate without --use_vllm true       answers come from transformers
--kl_coef 0.05                                     is PPO's: in GRPO --beta is the weight of the KL
--temperature 0.1                                  answers to one prompt will be alike

A row of clashes.toml each; what ms-swift's own arguments refuse in the first seconds has none.
"""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from swift_vlrft.families import sees_images
from swift_vlrft.recipe.facts import OF_OTHERS, installed_versions
from swift_vlrft.recipe.rules.batches import engine_mode
from swift_vlrft.recipe.rules.finding import PROBLEM, Finding, note, problem
from swift_vlrft.recipe.rules.model import family, of_videos
from swift_vlrft.recipe.run import NoValue, Run, within


class Clash(msgspec.Struct, frozen=True):
    """A row of the table, whose head says what its fields are."""

    flag: str
    when: dict[str, str]
    text: str
    rule: str = "clash"
    level: str = PROBLEM


TABLE = msgspec.toml.decode(
    Path(__file__).with_name("clashes.toml").read_bytes(), type=dict[str, tuple[Clash, ...]]
)


def _pixels(run: Run) -> str:
    """Say what is wrong with the limits of images; either may be the family's default."""
    known = family(run)
    if known is None or known.images is None or of_videos(run):
        return ""
    free = known.images.adjustable and run.omits("max_pixels")
    if not known.images.from_environment:
        return "by flag alone" * free
    low, high = known.images.limits(run.text("model"), run.image_limits)
    seen = any(map(run.variable, ("MAX_PIXELS", "IMAGE_MAX_TOKEN_NUM")))
    unlimited = free and not seen and run.omits("model_kwargs")
    return "crossed" if low > high else "unlimited" * unlimited


def _sees(run: Run) -> bool:
    known = family(run)
    return known.images is not None if known else _named_so(run)


def _named_so(run: Run) -> bool:
    return sees_images(Path(run.text("model") or "").name)


def _of_text(run: Run) -> set[str]:
    flags = ("template", "model_type")
    return {flag for flag in flags if run.text(flag) in run.facts.names[f"{flag} of text"]}


STATES: dict[str, Callable[[Run], object]] = {
    "command": lambda run: run.command,
    "engine": engine_mode,
    "images": _sees,
    "images by name": _named_so,
    "of text": _of_text,
    "pixels": _pixels,
    "launcher": lambda run: run.recipe.launcher,
    "start": lambda run: " ".join([run.recipe.launcher, *(w.text for w in run.recipe.words[:1])]),
    "videos": of_videos,
    "videos allowed": lambda run: run.json_or_empty("vllm_limit_mm_per_prompt").get("video"),
    "video room": lambda run: (
        (run.optional("max_length") or math.inf) - 64 * float(run.variable("FPS_MAX_FRAMES") or 0)
    ),
    "rest of processes": lambda run: run.processes % run.integer("sequence_parallel_size"),
}
"""What a condition may ask beside settings."""


def _holds(run: Run, name: str, condition: str) -> bool:
    if condition in ("given", "absent"):
        return run.omits(name) == (condition == "absent")
    if name in STATES:
        value = STATES[name](run)
    else:
        value = run.variable(name) if name.isupper() else run.texts(name) or run.text(name)
    if condition[0] in "[(":
        return within(float(value or 0), condition)  # type: ignore[arg-type]
    values = {*value} if isinstance(value, (tuple, set)) else {str(value)}
    listed = {*condition.removeprefix("not ").split(", ")}
    return bool(values & listed) != condition.startswith("not ")


def _applies(run: Run, row: Clash) -> bool:
    return all(_holds(run, name, condition) for name, condition in row.when.items())


def clashes(run: Run) -> Iterator[Finding]:
    for row in TABLE["clash"] if run.trains else ():
        with suppress(ValueError):  # another rule names it
            if _applies(run, row):
                flag = run.given.get(row.flag)
                given = " ".join(flag.values) if flag else ""
                text = row.text.format(given=given, command=run.command)
                yield problem(run, row.flag, row.rule, text, level=row.level)


def idle(run: Run) -> Iterator[Finding]:
    """Yield one finding a flag: of the first thing that it lacks."""
    for name, flag in run.given.items() if run.command == "rlhf" else ():
        with suppress(NoValue):  # what is not known may be on
            value = run.as_given(name)
            if value in (False, 0, None) or (value == 1 and name.endswith("parallel_size")):
                continue
        for row in TABLE["idle"] if name in run.flags else ():
            with suppress(NoValue):
                if re.fullmatch(row.flag, name) and _applies(run, row):
                    kind, ours = run.text("rlhf_type"), OF_OTHERS.get(name, "")
                    text = f"--{name} has no effect here: {row.text}"
                    text += f", and --rlhf_type is {kind}" * row.text.startswith("it is")
                    text += f"; in GRPO --{ours} is the flag for it" * bool(ours and run.grpo)
                    yield problem(run, flag, "no-effect", text, level=row.level)
                    break


def installed(run: Run) -> Iterator[Finding]:
    """Where ms-swift is missing no recipe runs, and what else it needs is missing, too."""
    if not installed_versions():
        text = "ms-swift is not installed here: what the recipe needs besides is not checked"
        yield note(run, "model", "not-installed", text)
        return
    known = family(run)
    resizes = known is not None and known.images is not None and known.images.from_environment
    for flag, needed, package in (
        ("use_vllm", run.command == "rollout" or run.true("use_vllm"), "vllm"),
        ("model", resizes, "qwen-vl-utils"),
    ):
        if needed and importlib.util.find_spec(package.replace("-", "_")) is None:
            text = f"--{flag} needs {package}, which is not installed here: pip install {package}"
            yield problem(run, flag, "not-installed", text)
