"""Find the run's model: its family, its image resize, and its token count of a prompt."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from swift_vlrft.datasets.box_format import native_format
from swift_vlrft.datasets.source import DataError
from swift_vlrft.families import IMAGE_TYPES, family_of, known_family
from swift_vlrft.families.image_resize import ImageResize
from swift_vlrft.families.resize import RESOLUTION
from swift_vlrft.geometry.box_format import NATIVE
from swift_vlrft.recipe.rules.model import resize_of
from swift_vlrft.recipe.run import Run


def register_model_of(run: Run, *, check: bool = True) -> None:
    """Put a model that ms-swift cannot load or run into its registries. ValueError, with ``check``:
    what is wrong with its folder.
    """
    named = [run.text("model"), run.text("resume_from_checkpoint"), *run.texts("adapters")]
    families = [family_of(model_type=run.text("model_type"), name=name) for name in named]
    for module in {family.registers for family in families if family} - {None}:
        import_module(f"swift_vlrft.swift_plugin.{module}").register()
    if not any(family.own_classes for family in families if family):
        return
    from swift_vlrft.swift_plugin import chatglm4v

    if check and (run.optional("max_pixels") or any(map(os.environ.get, RESOLUTION))):
        chatglm4v.logger.warning(
            f"swift_vlrft: {', '.join(RESOLUTION)} and --max_pixels change nothing: GLM-4V and "
            "CogAgent see every image in the same size"
        )
    chatglm4v.register(run.text("model"), check=check)


def image_resize_of(run: Run) -> ImageResize | None:
    """Return how the model's images are resized under the current flags; None if not known."""
    model, kind = run.text("model") or run.text("resume_from_checkpoint"), run.text("model_type")
    family = family_of(model_type=kind, name=model)
    if model and not (family or kind or Path(model).is_dir()):
        from swift.model import get_matched_model_meta  # knows models of another name, as UI-TARS

        meta = get_matched_model_meta(model)
        family = family_of(model_type=str(meta.model_type)) if meta else None
    return resize_of(run, family)


WantedFormat = tuple[str, str | None, ImageResize | None]
"""A box format, the key of its boxes, and how the model's images are resized."""


def wanted_box_format(run: Run, subset: str, dataset: str) -> WantedFormat:
    """Return the box format of a subset of a set.

    DataError for ``pixels`` or ``native`` says what to give where the model is not known, or that
    it was not trained to write boxes.
    """
    resize = image_resize_of(run)
    if subset not in ("pixels", NATIVE):
        return subset, None, resize
    if resize is None:
        which = run.text("model_type") or run.text("model")
        needs = "resize rule" if subset == "pixels" else "box format"
        raise DataError(
            f"{dataset}: the subset {subset} needs the model's {needs}, and "
            + (f"none is known for {which}" if which else "the command names no --model")
            + f". Known families (--model_type): {', '.join(IMAGE_TYPES)}"
        )
    if subset == NATIVE:
        return *native_format(dataset, known_family(resize.family)), resize
    return subset, None, resize


def text_tokens(run: Run) -> Callable[[str], int]:
    """Return a counter of a prompt's tokens without its image: turn, system prompt and text."""
    from swift.model import get_processor
    from swift.template import get_template

    if not (model := run.text("model")):
        raise DataError("counting tokens needs --model")
    register_model_of(run)
    processor = get_processor(model, model_type=run.text("model_type"))
    template = get_template(processor, default_system=run.text("system"))
    tokenizer = getattr(processor, "tokenizer", processor)

    def count(text: str) -> int:
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    turn = template.encode({"messages": [{"role": "user", "content": "x"}]})
    around = len(turn["input_ids"]) - count("x")
    return lambda text: around + count(text.replace("<image>", ""))
