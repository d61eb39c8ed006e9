"""A recipe with other flags, and a new one for a model, a task and GPUs.

changed_text(recipe, {"MAX_PIXELS": "401408", "gradient_checkpointing": "true"})
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.files.secrets import is_secret_name
from swift_vlrft.geometry.box_format import SUBSETS
from swift_vlrft.memory.models import read_model
from swift_vlrft.recipe.edit import with_edit
from swift_vlrft.recipe.reader import CONFIGURATION, Recipe, RecipeError, read_recipe, read_text
from swift_vlrft.recipe.rules.finding import Edit, Variable

TEMPLATE = Path(__file__).with_name("new_recipe.sh.jinja")

TASKS = {
    "detection": ("vlrft_detection_iou vlrft_detection_format", 1024),
    "grounding": ("vlrft_grounding_iou vlrft_format", 512),
    "classification": ("vlrft_classification vlrft_format", 512),
    "pointing": ("vlrft_pointing vlrft_format", 512),
    "counting": ("vlrft_counting vlrft_format", 512),
    "number": ("vlrft_number vlrft_format", 512),
    "ocr": ("vlrft_ocr vlrft_format", 1024),
    "list": ("vlrft_list vlrft_format", 512),
    "ordering": ("vlrft_ordering vlrft_format", 512),
}
"""Rewards, and tokens for a completion."""

IMAGE_LIMITS = ("MAX_PIXELS", "IMAGE_MAX_TOKEN_NUM", "max_pixels", "model_kwargs")
"""What `swift rollout` needs as the trainer does: both encode the same images."""

PLANNED = re.compile(
    r"NPROC_PER_NODE|NNODES|CUDA_VISIBLE_DEVICES|M(?:AX|IN)_PIXELS|IMAGE_M(?:AX|IN)_TOKEN_NUM"
    r"|VLRFT_SHARED_PREFIX\w*"
)
"""Variables that a plan reads in the environment of the command."""

OF_EVERYBODY = ("HOME", "PATH", "PWD", "OLDPWD", "USER", "LOGNAME", "SHELL", "TMPDIR", "_")
OWN_PLACE = re.compile(r"BASH_SOURCE|(?:dirname|realpath|readlink)\b[^\n]*\$\{?0|\$\{0[%#/]")


def changed_text(recipe: Recipe, flags: Mapping[str, str]) -> str:
    """The text of ``recipe`` with these ``flags``; names in capitals are variables.

    CannotEdit if one cannot be changed alone.
    """
    text, path = recipe.text, recipe.path
    commands = read_text(text, path)
    trains = next((i for i, command in enumerate(commands) if command.trains), 0)
    for name, value in flags.items():
        edit: Edit | Variable = Variable(name, value)
        if not name.isupper():
            old = name == "tuner_type" and not recipe.flag(name) and recipe.flag("train_type")
            edit = Edit("train_type" if old else name, values=(value,))
        for place, command in enumerate(commands):
            serves = command.command[-1] == "rollout" and name in IMAGE_LIMITS
            if place == trains or serves:
                text = with_edit(text, path, edit, command=place)
    if "NNODES" in flags and path.suffix not in CONFIGURATION:  # that is started with them in front
        first = re.match(r"(?:\ufeff?[ \t]*(?:#[^\n]*)?\r?\n)*", text)
        at = first.end() if first else 0
        text = text[:at] + _required(text) + text[at:]
    return text


def copied(recipe: Recipe, flags: Mapping[str, str], out: Path, remark: str) -> str:
    """``recipe`` with these ``flags`` and a remark below `#!`, as it may be written to ``out``;
    ValueError if it would be a different recipe there.
    """
    text = changed_text(recipe, flags)
    kinds = [path.suffix if path.suffix in CONFIGURATION else ".sh" for path in (recipe.path, out)]
    if len({kind.replace(".yml", ".yaml") for kind in kinds}) > 1:
        raise ValueError(f"{out}: {recipe.path} is another kind of file; name it *{kinds[0]}")
    code = re.sub(r"(?m)^\s*#.*", "", text)
    place = OWN_PLACE.search(code)
    if kinds[0] == ".sh" and place and out.parent.resolve() != recipe.path.parent.resolve():
        line = code[: place.start()].count("\n") + 1
        raise ValueError(
            f"{recipe.path}:{line}: the script looks for files beside itself ({place[0]}); write "
            f"the changed one beside it: {recipe.path.with_name(out.name)}"
        )
    try:
        read_text(text, out)
    except RecipeError as error:
        raise ValueError(f"{out}: the recipe cannot be read from there: {error}") from None
    if out.suffix == ".json":  # which has no comments
        return text
    mark = text.startswith("\ufeff")
    at = text.find("\n") + 1 if text.startswith("#!", mark) else int(mark)
    new_line = "\r\n" if "\r\n" in text else "\n"
    return f"{text[:at]}# {' '.join(remark.split())}{new_line}{text[at:]}"


def callers_part(recipe: Recipe) -> str:
    """The variables of the caller's environment that ``recipe`` depends on, as written in front of
    a command; never shows a key.
    """
    found = []
    for name, value in os.environ.items():
        planned = PLANNED.fullmatch(name)
        if name in OF_EVERYBODY or not (planned or re.search(rf"\b{name}\b", recipe.text)):
            continue
        ignored = "" if planned else name
        try:
            without = {other: text for other, text in os.environ.items() if other != name}
            same = _reads(read_recipe(recipe.path, without), ignored) == _reads(recipe, ignored)
        except RecipeError:
            same = False
        if not same:
            found.append(f"{name}={'...' if is_secret_name(name) else shlex.quote(value)}")
    return " ".join(found)


def _reads(recipe: Recipe, ignored: str) -> object:
    """A command with its flags and environment, without one variable."""
    variables = {k: v for k, v in recipe.environment.items() if k != ignored}
    return recipe.command, recipe.span, [(f.name, f.values) for f in recipe.flags], variables


def _required(script: str) -> str:
    """Lines that require the variables that differ between nodes, if unset; ms-swift passes all of
    them to torchrun (swift/cli/main.py: get_torchrun_args).
    """
    required = {
        "NODE_RANK": "0 on the first node, 1 on the second",
        "MASTER_ADDR": "address of the first node",
    }
    missing = {name: what for name, what in required.items() if name not in script}
    lines = [f': "${{{name}:?{what}}}"\n' for name, what in missing.items()]
    return "".join([*lines, f"export {' '.join(missing)}\n"]) if missing else ""


def new_recipe(
    model: str, task: str, processes: int, dataset: str | None, *, nodes: int = 1
) -> str:
    """A recipe to start from: full tuning, vLLM beside the trainer, ZeRO-3 on several GPUs.

    ``processes`` is the number of GPUs of one node, of which there are ``nodes``.
    """
    from jinja2 import Environment

    if task not in TASKS:
        raise ValueError(f"--task {task}: known tasks are {', '.join(TASKS)}")
    rewards, completion = TASKS[task]
    family = read_model(model).family
    data = dataset or "DATASET"
    native = family.box_format if family and task in BOX_TASKS else None
    if native not in (None, "norm1000") and "#" not in data:
        named = data.endswith(tuple(f":{name}" for name in SUBSETS))
        data += "" if named else f":{native}"
    images = family.images if family else None
    limit = "flag" if images and not images.from_environment else "variable"
    one_node = f"{processes} GPU{'s' * (processes > 1)}"
    jinja = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    jinja.filters["quote"] = shlex.quote
    return jinja.from_string(TEMPLATE.read_text()).render(
        **{"task": task, "model": model, "data": data, "processes": processes, "nodes": nodes},
        where=one_node if nodes == 1 else f"{nodes} nodes of {processes} GPUs",
        required=_required(""),
        rewards=rewards,
        completion=completion,
        limit="none" if images and not images.adjustable else limit,
    )
