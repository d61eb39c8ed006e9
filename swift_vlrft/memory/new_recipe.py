"""Draft a new recipe: the nearest tested recipe, with a few fields changed.

script, said = draft("Qwen/Qwen2.5-VL-7B-Instruct", "counting", parse_gpus("4x24"), 1, None)
script.with_flags({"move_model_batches": "16", "MAX_PIXELS": "200704"}).text()
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import replace
from math import log2
from pathlib import Path

from swift_vlrft.datasets.opening import local_set
from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.datasets.schemas import is_for_swift
from swift_vlrft.geometry.box_format import SUBSETS
from swift_vlrft.memory.models import Model, read_model
from swift_vlrft.memory.scripts import Script, scripts
from swift_vlrft.memory.settings import Gpus, parse_gpus
from swift_vlrft.rewards import PAYING, TASK_NAMES
from swift_vlrft.shared_prefix.settings import SWITCH

IMAGE_TOKENS = 512
"""What our recipes allow an image where its size can be limited."""


def nearest(model: Model, task: str, gpus: Gpus, nodes: int) -> Script:
    """Return the nearest tested recipe: of the same family, or else of a family that resizes images
    alike; then of the same task, of as many nodes, and of similar size of model and machine.
    """
    known = [(script, read_model(script.model)) for script in scripts().values() if script.task]
    same = [pair for pair in known if pair[1].family is model.family]
    # Where images have one size, or come in tiles, lengths of prompts are made for them.
    others = [pair for pair in known if pair[1].image_rule.from_environment]

    def apart(pair: tuple[Script, Model]) -> tuple[object, ...]:
        script, other = pair
        count = int((script.variables.get("NNODES") or "1")[0])
        size = abs(log2(other.parameters.total / model.parameters.total))
        own = parse_gpus(script.gpus)
        here = nodes * gpus.count * gpus.bytes
        more = log2(count * own.count * own.bytes / here)
        # A recipe for less memory counts twice: it gives up what this machine could do.
        return script.task != task, count != nodes, size + max(more, -2 * more)

    return min(same or others, key=apart)[0]


def draft(
    name: str, task: str, gpus: Gpus, nodes: int, data: Path | None
) -> tuple[Script, list[str]]:
    """Return the nearest recipe for this model, task and data set, and the differences. ValueError
    for what is unknown.
    """
    if task not in TASK_NAMES:
        raise ValueError(f"--task {task}: known tasks are {', '.join(TASK_NAMES)}")
    model = read_model(name)
    if not model.sees:
        raise ValueError(f"--model {name} sees no images; begin with a copy of a text_*.sh recipe")
    script, said = nearest(model, task, gpus, nodes), list[str]()
    same_family = read_model(script.model).family is model.family
    if name != script.model:
        said.append(f"--model {name} in place of {script.model}")
        folder = re.sub(r"\W+", "_", Path(name).name).lower()
        script = replace(script, model=shlex.quote(name), output=f"{folder}_{task}")
    if not same_family:
        script, limit = _with_image_limit(script, model)
        said.append(f"no recipe is tested for its family: {limit}")
    if model.why_not_shared and script.variables.get(SWITCH):
        script = script.with_flags({SWITCH: ""})
        said.append(f"no {SWITCH}: {model.why_not_shared}")
    if task != script.task:
        rewards = f"{PAYING[task][0]} {TASK_NAMES[task].format_reward}"
        asked = TASK_NAMES[task].completion_tokens
        longest = max(asked, int(script.flags["max_completion_length"]))
        changed = {"reward_funcs": rewards, "max_completion_length": str(longest)}
        said.append(f"{task} in place of {script.task}: --reward_funcs {rewards}")
        script = replace(script, flags=script.flags | changed)
    dataset = str(data) if data else None
    if dataset or task != script.task or not same_family:
        script, notes = _with_data(script, model, task, dataset)
        said += notes
    return script, said


def _with_image_limit(script: Script, model: Model) -> tuple[Script, str]:
    """Limit images in a family that has no recipe, and say by which limit."""
    script, rule = script.with_flags({"MAX_PIXELS": "", "max_pixels": ""}), model.image_rule
    if not rule.adjustable:
        return script, "an image has one size, which --max_length must hold"
    pixels = IMAGE_TOKENS * rule.factor**2
    script = script.with_flags({"MAX_PIXELS": str(pixels)})
    if model.knows_images and rule.from_environment:
        return script, f"MAX_PIXELS={pixels}"
    script = replace(script, flags=script.flags | {"max_pixels": '"$MAX_PIXELS"'})
    return script, f"--max_pixels {pixels}, as ms-swift limits the images of any model"


def _with_data(
    script: Script, model: Model, task: str, dataset: str | None
) -> tuple[Script, list[str]]:
    """Set the data set in the model's box format; the recipe's own where its task is the same."""
    native, said = model.family.box_format if model.family else None, list[str]()
    if dataset is None and task == script.task:
        dataset = re.sub(rf":({'|'.join(SUBSETS)})$", "", script.dataset)
    if task in BOX_TASKS and native is None:
        said.append("the model's box format is not known: boxes stay as the data set has them")
    elif task in BOX_TASKS and dataset and _for_swift(dataset):
        said.append("the data set is in ms-swift's own form: its boxes stay as they are")
    elif task in BOX_TASKS and dataset and native != "norm1000" and "#" not in dataset:
        named = dataset.endswith(tuple(f":{name}" for name in SUBSETS))
        dataset += "" if named else f":{native}"
    box = "" if native in (None, "norm1000") or task not in BOX_TASKS else f", as FOLDER:{native}"
    needed = f"a folder with image, problem, solution{box}"
    said.append(f"DATASET {dataset}" if dataset else "DATASET must be given")
    given = shlex.quote(dataset) if dataset else ""
    return replace(script, dataset=given, dataset_needed=needed), said


def _for_swift(dataset: str) -> bool:
    """Say whether ms-swift reads this file or folder itself, without our box formats."""
    stored = local_set(Path(dataset)) if os.path.exists(dataset) else None
    return stored is not None and is_for_swift(stored.columns)
