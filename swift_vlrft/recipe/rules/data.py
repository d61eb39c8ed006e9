"""Plugins, rewards, data sets and coordinates: do they exist and fit together?

vlrft_detection_iou needs the column solution          a folder with image, problem, answer lacks it
a norm1000 set and Qwen2.5-VL, which writes pixels     a note
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from swift_vlrft.families.coordinates import FAMILIES
from swift_vlrft.recipe.reader import Recipe
from swift_vlrft.recipe.rules.batches import finding
from swift_vlrft.recipe.rules.finding import NOTE, PROBLEM, Finding

if TYPE_CHECKING:
    from swift_vlrft.datasets.report import Report

SHADOWS = (
    "datasets",
    "swift",
    "json",
    "rewards",
    "torch",
    "transformers",
    "vllm",
    "eval",
    "typing",
)
FAMILY_NAMES = {
    r"qwen2\.5-?vl": "qwen2_5_vl",
    r"qwen2-?vl": "qwen2_vl",
    r"qwen3-?vl": "qwen3_vl",
    r"glm-?4\.[156]v": "glm4v",
}
PIXEL_VARIABLES = ("MAX_PIXELS", "IMAGE_MAX_TOKEN_NUM")


def data(recipe: Recipe) -> Iterator[Finding]:
    yield from _plugins(recipe)
    if recipe.command[-1] in ("rlhf", "sft", "pt"):
        yield from _model(recipe)
        yield from _files(recipe)
        yield from _sets(recipe)


def _plugins(recipe: Recipe) -> Iterator[Finding]:
    for name in ("external_plugins", "custom_register_path"):
        for value in recipe.values(name):
            path = recipe.at(value)
            if path is None:
                continue
            if path.is_dir():
                text = (
                    f"--{name} {value} is a folder; ms-swift takes files since 4.5.3: "
                    f"give {value.rstrip('/')}/__init__.py"
                )
            elif not path.is_file():
                own = ' Ours is "$(vlrft plugin)".' if path.name == "vlrft.py" else ""
                text = (
                    f"--{name} {value}: no such file (from {recipe.folder}). ms-swift's own "
                    f"examples are not in its wheel.{own}"
                )
            elif path.stem in SHADOWS:
                text = (
                    f"--{name} {value}: its folder goes first on Python's path, so it hides the "
                    f"package {path.stem}. Rename it"
                )
            else:
                continue
            yield finding(recipe, name, PROBLEM, "plugin", text)


def _files(recipe: Recipe) -> Iterator[Finding]:
    """Files that flags name: a prompt, a DeepSpeed configuration."""
    for name, ending, other in (
        ("system", ".txt", "Give the text itself, or a file"),
        ("deepspeed", ".json", "Give zero2, zero3, zero3_offload, or a file"),
    ):
        value = recipe.get(name) or ""
        path = recipe.at(value)
        if value.endswith(ending) and path is not None and not path.is_file():
            text = f"--{name} {value}: no such file (from {recipe.folder}). {other}"
            yield finding(recipe, name, PROBLEM, "file", text)


def rewards(recipe: Recipe, known_to_swift: Collection[str]) -> Iterator[Finding]:
    """Reward names that neither ms-swift nor a plugin file registers."""
    plugins = [*recipe.values("external_plugins"), *recipe.values("custom_register_path")]
    ours = _own_rewards()
    paths = [recipe.at(plugin) for plugin in plugins]
    texts = [path.read_text(errors="replace") for path in paths if path and path.is_file()]
    if None in paths or not recipe.knows("external_plugins", "custom_register_path"):
        return  # a plugin that was not read may register any name
    with_ours = any("swift_vlrft" in text for text in texts)
    for name in recipe.values("reward_funcs"):
        if name in known_to_swift or (with_ours and name in ours):
            continue
        if any(re.search(rf"['\"]{re.escape(name)}['\"]", text) for text in texts):
            continue
        if name in ours:
            yield finding(
                recipe,
                "reward_funcs",
                PROBLEM,
                "reward",
                f'{name} is ours: add --external_plugins "$(vlrft plugin)"',
            )
            continue
        names = [*ours, *known_to_swift]
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        yield finding(
            recipe,
            "reward_funcs",
            PROBLEM,
            "reward",
            f"no reward is named {name}."
            + (f" Did you mean {near[0]}?" if near else "")
            + f" Known: {', '.join(names)}",
        )


def _own_rewards() -> list[str]:
    from swift_vlrft.rewards import REWARDS

    return list(REWARDS)


def family(recipe: Recipe) -> str | None:
    """The model's family in ms-swift's words: stated, read off its folder, or off its name."""
    stated = recipe.get("model_type")
    if not recipe.knows("model_type", "model"):
        return None
    if stated:
        return stated if stated in FAMILIES else None
    model = recipe.get("model") or ""
    folder = recipe.at(model)
    configuration = folder / "config.json" if model and folder else None
    if configuration is not None and configuration.is_file():
        try:
            found = json.loads(configuration.read_text()).get("model_type")
        except (ValueError, OSError, AttributeError):
            found = None
        return found if found in FAMILIES else None
    for pattern, name in FAMILY_NAMES.items():
        if re.search(pattern, model, re.I):
            return name
    return None


def _model(recipe: Recipe) -> Iterator[Finding]:
    if recipe.lacks("model", "resume_from_checkpoint"):
        yield finding(recipe, "model", PROBLEM, "model", "--model is missing")
    name = recipe.get("model")
    if name == "":
        yield finding(recipe, "model", PROBLEM, "model", "--model has no value")
    if name and _is_missing(recipe, name):
        yield finding(recipe, "model", PROBLEM, "model", f"--model {name}: no such folder")
    if re.search(r"glm-?4v-9b", name or "", re.I) and recipe.get("rlhf_type") == "grpo":
        yield finding(
            recipe,
            "model",
            PROBLEM,
            "model",
            "glm-4v-9b needs transformers < 4.45; the trl of ms-swift's GRPO needs 4.53.2: "
            "use zai-org/GLM-4.1V-9B-Thinking",
        )
    kind = family(recipe)
    if kind is None or not recipe.lacks("max_pixels"):
        return
    if FAMILIES[kind].from_environment:
        seen = any(recipe.environment.get(name) for name in PIXEL_VARIABLES)
        if not seen and not recipe.hides(*PIXEL_VARIABLES) and recipe.lacks("model_kwargs"):
            yield finding(
                recipe,
                "model",
                NOTE,
                "max-pixels",
                "MAX_PIXELS is not set: one image may take 16,384 tokens. Set it, for example to "
                "401408 (512 tokens)",
            )
    else:
        yield finding(
            recipe,
            "model",
            NOTE,
            "max-pixels",
            "ms-swift does not hand MAX_PIXELS to this family; cap its images with "
            "--max_pixels 401408",
        )


def _sets(recipe: Recipe) -> Iterator[Finding]:
    if recipe.lacks("dataset", "cached_dataset"):
        yield finding(recipe, "dataset", PROBLEM, "dataset", "--dataset is missing")
    from swift_vlrft.datasets.schemas import is_for_swift

    renamed = _renamed(recipe)
    for flag in ("dataset", "val_dataset"):
        for value in recipe.values(flag):
            name, subset = _parts(recipe, value)
            if _is_missing(recipe, name):
                text = f"--{flag} {value}: the path {name} does not exist (from {recipe.folder})"
                yield finding(recipe, flag, PROBLEM, "dataset", text)
                continue
            columns = _columns(name, recipe.at(name), renamed)
            if isinstance(columns, str):
                yield finding(recipe, flag, PROBLEM, "dataset", columns)
            elif columns is not None:
                yield from _reward_columns(recipe, flag, value, columns)
            read = columns if isinstance(columns, list) else []
            ours = "solution" in read and not is_for_swift(read)
            yield from _frame(recipe, flag, value, name, subset, ours)
    yield from _scored(recipe, renamed)


def _scored(recipe: Recipe, renamed: Mapping[str, str]) -> Iterator[Finding]:
    """Rewards of ours that would score no row of any set, and gold that none of them reads: what
    the plugin says when training starts.
    """
    from swift_vlrft.datasets.report import Kind, nothing_scored

    rewards = list(recipe.values("reward_funcs"))
    if not set(rewards) & set(_own_rewards()) or recipe.flag("cached_dataset") is not None:
        return
    if not recipe.knows("dataset"):
        return
    reports: list[Report | None] = []
    notes: list[Finding] = []
    for value in recipe.values("dataset"):
        name = _parts(recipe, value)[0]
        report = _report(name, recipe.at(name), renamed, rewards)
        reports.append(report)
        unread = (
            [one for one in report.problems if one.kind in (Kind.GOLD, Kind.NOT_READ)]
            if report
            else []
        )
        if report is not None and unread:
            report.problems = unread
            text = f"{len(unread)} rows of {value} cannot be trained on:\n{report.listed()}"
            yield finding(recipe, "dataset", PROBLEM, "reward-gold", text)
        for note in report.routing_notes(rewards) if report is not None and not unread else ():
            notes.append(finding(recipe, "dataset", NOTE, "reward-rows", note))
    if problem := nothing_scored(rewards, reports):
        yield finding(recipe, "reward_funcs", PROBLEM, "reward-rows", problem)
    else:
        yield from notes


def _report(
    name: str, path: Path | None, renamed: Mapping[str, str], rewards: list[str]
) -> Report | None:
    """What the named rewards make of a set's rows; None where they are not known here."""
    from swift_vlrft.datasets import SOURCES, DataError
    from swift_vlrft.datasets.check import check_set
    from swift_vlrft.datasets.opening import find_set
    from swift_vlrft.datasets.report import report_of_source
    from swift_vlrft.datasets.schemas import is_for_swift, schema_of

    if path is None:
        return None
    if not path.exists():
        source = next((source for source in SOURCES if source.hub_id == name), None)
        return None if source is None else report_of_source(source)
    try:
        stored = find_set(path, keep_going=True, rename=renamed)
        if stored is None or is_for_swift(stored.columns) or schema_of(stored.columns) is None:
            return None
        report = check_set(stored, images=False, rewards=rewards)
    except (DataError, OSError):
        return None  # another rule says so, or the pictures lie elsewhere
    report.leave_unread()
    return report


def _is_missing(recipe: Recipe, name: str) -> bool:
    """Whether a name is that of a path, and nothing is there."""
    path = recipe.at(name)
    return name.startswith(("/", "./", "../", "~")) and path is not None and not path.exists()


def _parts(recipe: Recipe, value: str) -> tuple[str, str | None]:
    """``[hf::]NAME[:subset][#count]`` to (NAME, subset), by ms-swift's rules."""

    def exists(name: str) -> bool:
        path = recipe.at(name)
        return path is not None and path.exists()

    if not exists(value):
        value = value.split("::", 1)[-1]
    if not exists(value):
        value = value.rsplit("#", 1)[0]
    if exists(value):
        return value, None
    name, _, subset = value.partition(":")
    return name, subset or None


def _renamed(recipe: Recipe) -> dict[str, str]:
    try:
        found = json.loads(recipe.get("columns") or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _columns(name: str, path: Path | None, renamed: Mapping[str, str]) -> list[str] | str | None:
    """The columns of a set, ``solution`` among them where our readers make it; text where the set
    cannot be read; None where nothing is known of it.
    """
    from swift_vlrft.datasets import SOURCES, DataError
    from swift_vlrft.datasets.opening import find_set
    from swift_vlrft.datasets.schemas import is_for_swift, schema_of

    if any(source.hub_id == name for source in SOURCES):
        return ["image", "problem", "solution"]
    if path is None or not path.exists():
        return None
    try:
        stored = find_set(path, rename=renamed)
    except DataError as error:
        return str(error)
    if stored is None:
        return None
    columns = stored.columns
    known = schema_of(columns) is not None and not is_for_swift(columns)
    return [*columns, "solution"] if known else columns


def _reward_columns(recipe: Recipe, flag: str, value: str, columns: list[str]) -> Iterator[Finding]:
    own = _own_rewards()
    wanting = [
        name
        for name in recipe.values("reward_funcs")
        if name in own and not name.endswith("_format")
    ]
    if wanting and "solution" not in columns and recipe.knows("columns"):
        yield finding(
            recipe,
            flag,
            PROBLEM,
            "reward-columns",
            f"--{flag} {value} has the columns {', '.join(columns)}; {', '.join(wanting)} need "
            'solution. Rename one with --columns \'{"answer": "solution"}\'',
        )


def _frame(
    recipe: Recipe, flag: str, value: str, name: str, subset: str | None, ours: bool
) -> Iterator[Finding]:
    """A set in thousandths for a model that writes pixels. ``ours``: our readers read it."""
    kind = family(recipe)
    if kind is None or FAMILIES[kind].native_box_format != "pixels" or subset == "pixels":
        return
    if not any(reward.startswith(BOX_REWARDS) for reward in recipe.values("reward_funcs")):
        return
    if subset == "norm1000" or ours:
        yield finding(
            recipe,
            flag,
            NOTE,
            "frame",
            f"{value} gives boxes in thousandths (norm1000), as every set does without a subset, "
            f"while {kind} writes pixels of the resized image: rewards start near 0. "
            f"Use {name}:pixels",
        )


BOX_REWARDS = ("vlrft_detection", "vlrft_grounding", "vlrft_paper")
