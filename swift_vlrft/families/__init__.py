"""Model families: one file each, with all that depends on the family.

    family_of(name="Qwen/Qwen2.5-VL-3B-Instruct").box_format     "pixels"
    family_of(model_type="glm4v_moe").images.tokens(640, 480)    391
    image_rule("qwen2_5_vl").size(640, 480)                      (644, 476)

A new family is a file beside the others and a line in ``FAMILIES``.
"""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from swift_vlrft.families import (
    chatglm4v,
    gemma4,
    glm4v,
    glm46v,
    internvl,
    minicpmv4_6,
    qwen2,
    qwen2_5_vl,
    qwen2_vl,
    qwen3,
    qwen3_5,
    qwen3_vl,
)
from swift_vlrft.families.family import Family
from swift_vlrft.families.resize import ImageRule

_FILES = (
    *(qwen2_5_vl, qwen2_vl, glm4v, glm46v, qwen3_vl, qwen3_5, internvl, minicpmv4_6, gemma4),
    *(qwen2, qwen3, chatglm4v),
)

FAMILIES: dict[str, Family] = {
    family.name: family for family in (*(file.FAMILY for file in _FILES), chatglm4v.COGAGENT)
}

_BY_TYPE: dict[str, list[Family]] = {}
for _family in FAMILIES.values():
    for _kind in _family.model_types:
        _BY_TYPE.setdefault(_kind, []).append(_family)

IMAGE_TYPES = tuple(kind for kind, families in _BY_TYPE.items() if families[0].images)
"""ms-swift's model types whose resize rule is known."""

UNKNOWN_IMAGES: ImageRule = qwen2_vl.IMAGES
"""The rule by which images of an unknown family are counted."""

SHARED_PREFIX_TYPES = tuple(
    dict.fromkeys(kind for family in FAMILIES.values() for kind in family.shared_prefix)
)
"""transformers' model types that can share prefixes."""


def family_of(
    *,
    model_type: str | None = None,
    name: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> Family | None:
    """Return the family of a model type, a config.json, a folder or a hub's name; else None.

    Families that share a type are told apart by the config.json, else by the name.
    """
    told = model_type is not None
    folder = Path(name) if name and os.path.isdir(name) else None
    if model_type is None and config is None and name and folder is None:
        found = (f for f in FAMILIES.values() if re.search(f.hub_name, name, re.IGNORECASE))
        return next(found, None)
    if model_type is None and config is None and folder:
        # Like ms-swift: the checkpoint's args.json goes before the architecture.
        model_type = _values_in(folder / "args.json").get("model_type")
    if config is None and folder:
        config = _values_in(folder / "config.json")
    kind = model_type if isinstance(model_type, str) else str((config or {}).get("model_type"))
    families = _BY_TYPE.get(kind, [])
    fitting = [family for family in families if not config or family.is_config(config)]
    if not fitting and told:
        fitting = families
    named = [f for f in fitting if re.search(f.hub_name, name or "", re.IGNORECASE)]
    return next(iter([*named, *fitting]), None)


def _values_in(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def why_not_shared(config: Mapping[str, Any]) -> str | None:
    """Return why a model with this config.json cannot share prefixes; None if it can."""
    kind = config.get("model_type")
    if kind in SHARED_PREFIX_TYPES:
        return None
    known = family_of(config=config)
    why = known.why_not_shared if known else None
    if known and not known.images:
        why = "it takes no images"
    return f"model type {kind}: " + (why or f"known are {', '.join(SHARED_PREFIX_TYPES)}")


def known_family(name: str) -> Family:
    """Return the family of that name or model type; a ValueError lists the known ones."""
    if name in FAMILIES:
        return FAMILIES[name]
    if name not in _BY_TYPE:
        raise ValueError(f"unknown model family {name!r}; known: {', '.join(FAMILIES)}")
    return _BY_TYPE[name][0]


def image_rule(name: str) -> ImageRule:
    """Return how that family resizes images; a ValueError lists the known ones."""
    rule = known_family(name).images
    if rule is None:
        raise ValueError(f"{name} takes no images; families that do: {', '.join(IMAGE_TYPES)}")
    return rule


def sees_images(name: str) -> bool:
    """Return whether a model of that name takes images; also for unknown families."""
    family = family_of(name=name)
    if family is not None:
        return family.images is not None
    return bool(re.search(r"vl|4v|4\.1v|llava", name, re.IGNORECASE))


def sizes_in_pixels(width: float, height: float) -> dict[str, tuple[float, float]]:
    """Return the size that each family that writes pixels sees: under our limit, and its own."""
    found: dict[str, tuple[float, float]] = {}
    for name, family in FAMILIES.items():
        if family.box_format == "pixels" and family.images is not None:
            for limits in ({"max_pixels": 401408}, {}):
                with suppress(ValueError):
                    seen = family.images.within(**limits).size(int(width), int(height))
                    found[name if limits else f"{name} without MAX_PIXELS"] = seen
    return found
