"""Read the facts of the installed ms-swift (recipe/facts.py) from its classes.

python dev/ms_swift_facts.py > facts.json && mv facts.json swift_vlrft/recipe/ms_swift.json

Bounds of numbers, kinds of variables and `loss_type KIND` are those of that file, where they are
written by hand.
"""

from __future__ import annotations

import json
import os
import re
import sys
import typing
from argparse import Action
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import msgspec

from swift_vlrft.recipe.facts import Facts, Flag, facts, installed_versions

CLASSES = {
    "rlhf": "RLHFArguments",
    "sft": "SftArguments",
    "pt": "PretrainArguments",
    "rollout": "RolloutArguments",
    "infer": "InferArguments",
    "deploy": "DeployArguments",
    "export": "ExportArguments",
    "eval": "EvalArguments",
    "sample": "SamplingArguments",
}
PARSED = re.compile(r"json_parse_to_dict\(self\.(\w+)")
"""How ms-swift declares a JSON flag."""


def read_facts() -> Facts:
    import swift.arguments
    from swift.dataset import DATASET_MAPPING
    from swift.rewards import orms
    from swift.utils.utils import _patch_get_type_hints

    from swift_vlrft.rewards import REWARDS

    commands: dict[str, dict[str, Flag]] = {}
    classes = {command: getattr(swift.arguments, name) for command, name in CLASSES.items()}
    for command, arguments in classes.items():
        with _patch_get_type_hints():
            flags = read_flags(arguments)
        for flag, kind in flags.items():
            same = commands.setdefault(flag, {})
            key = next((key for key, other in same.items() if other == kind), "")
            same.pop(key, None)
            same[f"{key} {command}".strip()] = kind
    ids = {name for key in DATASET_MAPPING if isinstance(key, tuple) for name in key[:2] if name}
    rewards = [name for name in orms if name not in REWARDS]
    commands = dict(sorted(commands.items()))
    return Facts(
        installed_versions(),
        rewards,
        sorted(ids),
        names(),
        facts().bounds,
        facts().variables,
        commands,
        models(),
    )


def read_flags(arguments: type) -> dict[str, Flag]:
    """Return the flags of one arguments class, by the parser that ms-swift builds from it."""
    import swift
    from transformers import HfArgumentParser

    texts = [
        path.read_text()
        for folder in ("arguments", "trainers", "rlhf_trainers")
        for path in (Path(swift.__file__).parent / folder).rglob("*.py")
    ]
    # FSDP's flag is parsed under another name (sft_args.py: _init_fsdp).
    parsed = {name for text in texts for name in PARSED.findall(text)} | {"fsdp"}
    hints = typing.get_type_hints(arguments)
    flags = {}
    for action in HfArgumentParser([arguments])._actions:
        name = action.option_strings[0][2:]
        if name == action.dest and action.nargs != 0:
            takes = typing.get_args(hints[name]) or (hints[name],)
            is_json = name in parsed or any("dict" in str(kind).lower() for kind in takes)
            flags[name] = _flag(action, is_json)
    return dict(sorted(flags.items()))


def _flag(action: Action, is_json: bool) -> Flag:
    reader: Any = action.type
    if getattr(reader, "__name__", "") == "string_to_bool":
        kind = "bool" if action.nargs == "?" else "bool value"
    elif is_json and action.nargs is None:
        kind = "json"
    else:
        kind = reader.__name__ if reader in (int, float) else "str"
        kind += "s" if action.nargs == "+" else ""
    default = action.default
    if not isinstance(default, str | int | float | bool | list | None):
        default = str(getattr(default, "value", default))
    return Flag(kind, default, tuple(action.choices or ()))  # type: ignore[arg-type]


def models() -> list[str]:
    """Return the ids of the models that ms-swift registers, of either hub."""
    from swift.model import MODEL_MAPPING

    groups = (group for meta in MODEL_MAPPING.values() for group in meta.model_groups)
    ids = (name for g in groups for m in g.models for name in (m.hf_model_id, m.ms_model_id))
    return sorted({name for name in ids if name and "/" in name})


def names() -> dict[str, list[str]]:
    """Return what a text flag may name beside files and hub ids, by flag or with --rlhf_type."""
    import swift
    from swift.agent_template import agent_template_map
    from swift.callbacks import callbacks_map
    from swift.loss import loss_map
    from swift.model import MODEL_MAPPING
    from swift.optimizers import optimizers_map
    from swift.template import TEMPLATE_MAPPING
    from transformers import AttentionInterface
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
    from transformers.trainer_utils import SchedulerType

    config = [path.stem for path in (Path(swift.__file__).parent / "config").glob("*.json")]
    metas = [meta for meta in MODEL_MAPPING.values() if meta.model_type]
    seeing = {of for meta in metas if meta.is_multimodal for of in _templates(meta)}
    reading = {of for meta in metas if not meta.is_multimodal for of in _templates(meta)}
    attention = ["flash_attn", "eager", *AttentionInterface._global_mapping]
    known = {
        "NPROC_PER_NODE": ["auto", "cpu", "gpu"],  # torch.distributed.run
        "agent_template": agent_template_map,
        "attn_impl": [name for name in attention if "|" not in name],
        "callbacks": callbacks_map,
        "deepspeed": [name for name in config if name.startswith("zero")],
        "fsdp": [name for name in config if name.startswith("fsdp")],
        "loss_type": loss_map,
        "lr_scheduler_type": [kind.value for kind in SchedulerType],
        "model_type": [meta.model_type for meta in metas],
        "model_type of text": [meta.model_type for meta in metas if not meta.is_multimodal],
        "optimizer": optimizers_map,
        "report_to": ["none", "all", *INTEGRATION_TO_CALLBACK],
        "template": TEMPLATE_MAPPING,
        "template of text": reading - seeing,
    }
    shipped = facts().names.items()
    known |= {name: values for name, values in shipped if name.startswith("loss_type ")}
    return {name: sorted(map(str, values)) for name, values in sorted(known.items())}


def _templates(meta: object) -> Iterator[str]:
    yield from filter(None, (meta.template, *(group.template for group in meta.model_groups)))  # type: ignore[attr-defined]


def as_text(read: Facts) -> str:
    """Write JSON with a line per flag, so that changes of ms-swift are readable in a diff."""
    parts = []
    for name, value in msgspec.to_builtins(read).items():
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
        lines = [(f"{json.dumps(key)}: " if key else "") + json.dumps(item) for key, item in items]
        parts.append(f' "{name}": {opening}\n  ' + ",\n  ".join(lines) + f"\n {closing}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    os.environ["LOG_LEVEL"] = "ERROR"  # ms-swift logs what it registers
    with redirect_stdout(sys.stderr):  # what its imports print is not ours
        text = as_text(read_facts())
    sys.stdout.write(text)
