"""A tiny checkpoint of every model family, and of every type of mixture of experts in one."""

from dataclasses import replace
from pathlib import Path

from swift_vlrft.families import FAMILIES, known_family
from swift_vlrft.tiny.checkpoint import build_model, build_tokenizer, save_checkpoint, write_tiny


def write_kind(kind: str, folder: Path) -> None:
    """A family as `vlrft tiny` writes it; a mixture is recognised by its config.json alone."""
    if kind in FAMILIES:
        write_tiny(kind, folder)
        return
    from support.vision_rows import tiny_of

    family = known_family(kind)
    tiny = replace(tiny_of(kind), processor_type=family.tiny.processor_type or family.name)
    template = next(iter(family.templates))
    save_checkpoint(build_model(tiny), build_tokenizer(tiny), tiny, template, folder)
    (folder / "args.json").unlink()
