"""What the command's model is: its family, how it sees pictures, how long a prompt is to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from swift_vlrft.datasets.box_format import ImageResize
from swift_vlrft.datasets.source import DataError
from swift_vlrft.families.coordinates import FAMILIES, pixel_limits
from swift_vlrft.swift_plugin.command_line import CommandLine


def family_of(command: CommandLine) -> str | None:
    """The model type that ms-swift will use, where it is a family whose resize rule is known."""
    found = command.model_type or (command.model and _type_of_model(command.model))
    return found if found in FAMILIES else None


def _type_of_model(model: str) -> str | None:
    folder = Path(model)
    if folder.is_dir():
        # ms-swift, too, trusts its own args.json before the architecture.
        for name in ("args.json", "config.json"):
            try:
                found = json.loads((folder / name).read_text()).get("model_type")
            except (OSError, ValueError, AttributeError):
                continue
            if isinstance(found, str):
                return found
        return None
    from swift.model import get_matched_model_meta

    meta = get_matched_model_meta(model)
    return None if meta is None else str(meta.model_type)


def image_resize_of(command: CommandLine) -> ImageResize | None:
    """How the model sees pictures under the flags and variables of now; None for a family whose
    rule is not known.
    """
    family = family_of(command)
    if family is None:
        return None
    low, high = pixel_limits(family, model=command.model)
    return ImageResize(family, low, high, command.max_pixels)


def needed_image_resize(command: CommandLine, dataset: str) -> ImageResize:
    """The same; DataError says what to give."""
    view = image_resize_of(command)
    if view is None:
        which = command.model_type or command.model
        raise DataError(
            f"{dataset}: the subset pixels needs the model's resize rule, and "
            + (f"none is known for {which}" if which else "the command names no --model")
            + f". Known families (--model_type): {', '.join(FAMILIES)}"
        )
    return view


def text_tokens(command: CommandLine) -> Callable[[str], int]:
    """Counts the tokens of a prompt without its image: the template's turn and system prompt,
    and the text.
    """
    from swift.model import get_processor
    from swift.template import get_template

    if not command.model:
        raise DataError("counting tokens needs --model")
    processor = get_processor(command.model, model_type=command.model_type)
    template = get_template(processor, default_system=command.system)
    tokenizer = getattr(processor, "tokenizer", processor)

    def count(text: str) -> int:
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    turn = template.encode({"messages": [{"role": "user", "content": "x"}]})
    around = len(turn["input_ids"]) - count("x")
    return lambda text: around + count(text.replace("<image>", ""))
