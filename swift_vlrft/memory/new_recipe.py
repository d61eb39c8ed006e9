"""Write a new recipe: the text of the nearest tested recipe, with a few words changed.

start, text, said = draft("Qwen/Qwen2.5-VL-7B-Instruct", "counting", parse_gpus("4x24"), 1, None)
with_flags(text, {"move_model_batches": "16", "MAX_PIXELS": "200704"})
"""

from __future__ import annotations

import os
import re
import shlex
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from math import log2
from pathlib import Path

from swift_vlrft.datasets.opening import find_set
from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.datasets.schemas import is_for_swift
from swift_vlrft.geometry.box_format import SUBSETS
from swift_vlrft.memory.append import ASKED_OF_A_NODE
from swift_vlrft.memory.models import Model, read_model
from swift_vlrft.memory.settings import GIB, Gpus
from swift_vlrft.recipe.reader import read_recipe
from swift_vlrft.recipe.shipped import shipped_recipes
from swift_vlrft.rewards import PAYING, TASK_NAMES

NAME = re.compile(r"\w+/([a-z]+)_(?:lora_)?(?:(\d+)nodes_)?(\d+)x(\d+)g")
"""Of a recipe that a new one can begin with: it trains where it generates, and vLLM does; QLoRA,
which generates slowly (its header), is taken by name.
"""

IMAGE_TOKENS = 512
"""What our recipes allow an image where its size can be limited."""


@dataclass(frozen=True)
class Tested:
    """A tested recipe is shipped, for a single task."""

    name: str
    path: Path
    task: str
    nodes: int
    count: int
    size: int
    model: Model

    def distance(self, gpus: Gpus, nodes: int) -> float:
        """Return the distance to this machine in doublings of memory. A recipe for less memory
        counts twice: it gives up what this machine could do.
        """
        more = log2(self.nodes * self.count * self.size * GIB / (nodes * gpus.count * gpus.bytes))
        return max(more, -2 * more)


def tested() -> list[Tested]:
    """Return all recipes that a new recipe can begin with."""
    recipes = []
    for name, path in shipped_recipes().items():
        if (parts := NAME.fullmatch(name)) and parts[1] in TASK_NAMES:
            model = read_model(str(read_recipe(path, {}).get("model")))
            nodes, count, size = (int(part or 1) for part in parts.groups()[1:])
            recipes.append(Tested(name, path, parts[1], nodes, count, size, model))
    return recipes


def nearest(model: Model, task: str, gpus: Gpus, nodes: int) -> Tested:
    """Return the nearest tested recipe: of the same family, or else of a family that resizes images
    alike; then of the same task, of as many nodes, and of similar size of model and machine.
    """
    known = tested()
    same = [recipe for recipe in known if recipe.model.family is model.family]
    # Where images have one size, or come in tiles, lengths of prompts are made for them.
    others = [recipe for recipe in known if recipe.model.image_rule.from_environment]

    def apart(recipe: Tested) -> tuple[object, ...]:
        size = abs(log2(recipe.model.parameters.total / model.parameters.total))
        return recipe.task != task, recipe.nodes != nodes, size + recipe.distance(gpus, nodes)

    return min(same or others, key=apart)


def for_model(start: Tested, name: str, task: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables that turn a recipe to another model, and what is said of them."""
    before = str(read_recipe(start.path, {}).get("model"))
    if name == before:
        return {}, []
    folder = re.sub(r"\W+", "_", Path(name).name).lower()
    said = f"--model {name} in place of {before}"
    return {"MODEL": name, "OUTPUT_DIR": f"output/{folder}_{task}"}, [said]


def draft(
    name: str, task: str, gpus: Gpus, nodes: int, dataset: str | None
) -> tuple[Tested, str, list[str]]:
    """Return the nearest recipe, its text for this model, task and data set, and the differences;
    ValueError for what is unknown.
    """
    if task not in TASK_NAMES:
        raise ValueError(f"--task {task}: known tasks are {', '.join(TASK_NAMES)}")
    model = read_model(name)
    if not model.sees:
        raise ValueError(f"--model {name} sees no images; begin with a copy of a text_*.sh recipe")
    start = nearest(model, task, gpus, nodes)
    text = start.path.read_text()
    variables, said = for_model(start, name, task)
    text = with_flags(text, variables)
    if model.family is not start.model.family:
        text, about = _of_another_family(text, model)
        said += [f"no recipe is tested for its family: {about}"]
    if model.why_not_shared and "VLRFT_SHARED_PREFIX" in text:
        text = _without(text, "VLRFT_SHARED_PREFIX")
        said.append(f"no VLRFT_SHARED_PREFIX: {model.why_not_shared}")
    if task != start.task:
        known = TASK_NAMES[task]
        rewards = f"{PAYING[task][0]} {known.format_reward}"
        longest = max(
            known.completion_tokens,
            int(read_recipe(start.path, {}).get("max_completion_length") or 0),
        )
        text = with_flags(text, {"max_completion_length": str(longest)})
        text = re.sub(r"--reward_funcs .* \\", rf"--reward_funcs {rewards} \\", text)
        said.append(f"{task} in place of {start.task}: --reward_funcs {rewards}")
    return start, *_with_data(text, said, model, task, start, dataset)


def _of_another_family(text: str, model: Model) -> tuple[str, str]:
    """Limit images in a family that has no recipe, and say by which limit."""
    text, rule = _without(_without(text, "MAX_PIXELS"), "max_pixels"), model.image_rule
    if not rule.adjustable:
        return text, "an image has one size, which --max_length must hold"
    pixels = IMAGE_TOKENS * rule.factor**2
    text = with_flags(text, {"MAX_PIXELS": str(pixels)})
    if model.knows_images and rule.from_environment:
        return text, f"MAX_PIXELS={pixels}"
    text = text.replace('    "$@"', '    --max_pixels "$MAX_PIXELS" \\\n    "$@"')
    return text, f"--max_pixels {pixels}, as ms-swift limits the images of any model"


def _with_data(
    text: str, said: list[str], model: Model, task: str, start: Tested, dataset: str | None
) -> tuple[str, list[str]]:
    """Set the data set in the model's box format; the recipe's own where its task is the same."""
    own = re.search(r"^DATASET=\$\{DATASET:-(.*)\}$", text, re.M)
    native = model.family.box_format if model.family else None
    if dataset is None and task == start.task and model.family is start.model.family:
        return text, said
    if dataset is None and task == start.task and own:
        dataset = re.sub(rf":({'|'.join(SUBSETS)})$", "", own[1])
    if task in BOX_TASKS and native is None:
        said.append("the model's box format is not known: boxes stay as the data set has them")
    elif task in BOX_TASKS and dataset and _for_swift(dataset):
        said.append("the data set is in ms-swift's own form: its boxes stay as they are")
    elif task in BOX_TASKS and dataset and native != "norm1000" and "#" not in dataset:
        named = dataset.endswith(tuple(f":{name}" for name in SUBSETS))
        dataset += "" if named else f":{native}"
    box = "" if native in (None, "norm1000") or task not in BOX_TASKS else f", as FOLDER:{native}"
    value = shlex.quote(dataset) if dataset else f"a folder with image, problem, solution{box}"
    line = f"DATASET=${{DATASET:-{value}}}" if dataset else f': "${{DATASET:?{value}}}"'
    said.append(f"DATASET {dataset}" if dataset else "DATASET must be given")
    return re.sub(r"^(DATASET=|: \"\$\{DATASET:).*$", lambda _: line, text, flags=re.M), said


def _for_swift(dataset: str) -> bool:
    """Say whether ms-swift reads this file or folder itself, without our box formats."""
    stored = find_set(Path(dataset)) if os.path.exists(dataset) else None
    return stored is not None and is_for_swift(stored.columns)


def _without(text: str, name: str) -> str:
    return re.sub(rf"^(export {name}=|    --{name} ).*\n", "", text, flags=re.M)


def with_flags(text: str, flags: Mapping[str, str]) -> str:
    """Write other flags into a shipped recipe, or what was made of it; names in capitals are
    variables that the caller may still set.
    """
    for name, value in flags.items():
        word = shlex.quote(value)
        if name.isupper():
            line, pattern = f"{name}=${{{name}:-{word}}}", rf"^(export )?{name}=.*$"
            end, new = "\n\nswift rlhf", f"\nexport {line}\n\nswift rlhf"
        else:
            line, pattern = f"--{name} {word} \\", rf"^(    )--{name} .*$"
            end, new = '    "$@"', f'    {line}\n    "$@"'
        there = re.search(pattern, text, re.M)
        if there:
            text = text[: there.start()] + (there[1] or "") + line + text[there.end() :]
        else:
            text = text.replace(end, new, 1)
    if "NNODES" in flags and "NODE_RANK" not in text:
        asked = [f"export {name}=${{{name}:?{what}}}" for name, what in ASKED_OF_A_NODE.items()]
        lines = ["set -euo pipefail", *asked, "export MASTER_PORT=${MASTER_PORT:-29500}", ""]
        text = text.replace("set -euo pipefail\n", "\n".join(lines), 1)
    return text


def with_header(text: str, title: str, origin: str) -> str:
    """Put these comments in place of the recipe's own, which are about another run."""
    lines = textwrap.wrap(origin, 98, break_long_words=False, break_on_hyphens=False)
    header = "\n".join(f"# {line}" for line in [title, *lines])
    return f"#!/usr/bin/env bash\n{header}\n{text[text.index('set -euo pipefail') :]}"
